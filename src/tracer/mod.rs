//! What the numbers are: activations, attention, logits, quantisation error, kv cache. Five tracers, each switched on alone.

mod config;
pub mod activations;
pub mod attention;
pub mod exact;
pub mod export;
pub mod figures;

pub use config::ModelTracerConfig;
pub mod perplexity;
pub mod quantisation;
pub mod kv;
mod kv_sims;
pub mod logits;
pub mod sampling;
