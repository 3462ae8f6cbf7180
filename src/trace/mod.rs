//! The residual stream: what every layer added, how the answer forms, stores, and the TRACE language.
//!
//! `residual[L] = residual[L-1] + attn_delta[L] + ffn_delta[L]` at every position; layer 0 is the embedding.
//!
//! - [`forward`]: what can run a text: the engine, or the scalar reference
//! - [`stream`]: chains of vectors in memory
//! - [`readout`]: what a row of logits says
//! - [`attribution`]: what every part adds to a token's logit
//! - [`answer`]: from a word to the tokens that say it
//! - [`phase`]: where an answer is decided
//! - [`job`]: a `TRACE` statement, run in pieces
//! - [`patch`]: activation patching over layers and positions
//! - [`changes`]: from the edits of a statement to what the engine changes
//! - [`saved`]: traces in files
//! - [`rehydrate`]: saved traces back into an engine
//! - [`tiers`]: what a context store keeps, in bytes and accuracy
//! - [`tracer`]: statements of the language, run
//! - [`figures`]: traces as plain data
//! - [`prompts`]: files of prompts with their answers
//! - [`summary`]: many prompts taken together
//! - [`render`]: traces as tables, JSON and CSV
//! - [`vector`]: norms and cosines
//! - [`store`]: files of chains, boundary residuals and tiers
//! - [`lang`]: the TRACE language
//! - [`overlay`]: facts as rank-one edits, in a file beside the model

pub mod answer;
pub mod attribution;
pub mod changes;
mod error;
pub mod figures;
pub mod forward;
pub mod job;
pub mod lang;
pub mod overlay;
pub mod patch;
pub mod phase;
pub mod prompts;
pub mod readout;
pub mod rehydrate;
pub mod render;
pub mod saved;
pub mod store;
pub mod stream;
pub mod summary;
pub mod tiers;
pub mod tracer;
pub mod vector;

pub use error::TraceError;
pub use forward::Forward;
