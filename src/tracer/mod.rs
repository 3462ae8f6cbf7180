//! What the numbers are: activations, attention, logits, quantisation error, kv cache. Five tracers, each switched on alone.

pub mod activations;
pub mod attention;
mod config;
pub mod exact;
pub mod export;
#[cfg(test)]
mod fault_tests;
pub mod figures;
pub mod kv;
mod kv_sims;
mod locate;
pub mod logits;
mod model_tracer;
pub mod perplexity;
pub mod quantisation;
pub mod sampling;

pub use config::ModelTracerConfig;
pub use model_tracer::ModelTracer;
