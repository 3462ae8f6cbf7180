//! What the numbers are: activations, attention, logits, quantisation error, kv cache. Five tracers, each switched on alone.

pub mod figures;
pub mod kv;
mod kv_sims;
pub mod logits;
pub mod sampling;
