//! The residual stream: what every layer added, how the answer forms, stores, and the TRACE language.
//!
//! `residual[L] = residual[L-1] + attn_delta[L] + ffn_delta[L]` at every position; layer 0 is the embedding.

pub mod figures;
pub mod lang;
pub mod store;
pub mod vector;
