//! What the numbers are: activations, attention, logits, quantisation error, kv cache. Five tracers, each switched on alone.

pub mod figures;
pub mod perplexity;
pub mod quantisation;
