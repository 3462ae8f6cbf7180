//! What the numbers are: activations, attention, logits, quantisation error, kv cache. Five tracers, each switched on alone.

pub mod activations;
pub mod attention;
pub mod exact;
pub mod export;
pub mod figures;
