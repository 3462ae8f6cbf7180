//! Quantisation error: what a brick of the engine gives, against the same in F32.
//!
//! Two questions. A brick's own error: its input times its weights in F32, of the same file (what int8 activations and the
//! kernels cost) or of a file of higher precision (what the weights cost too). And what has arrived at its output since the
//! embedding, every brick before it having been computed the other way as well.

mod live;
mod measure;
mod product;
mod sums;

pub use live::{LiveErrors, ROWS};
pub use measure::measure;
pub use sums::{ErrorSums, cosine};

use crate::engine::EngineError;
use crate::model::Model;
use std::sync::Arc;

/// What an error is measured against where no other file is given.
pub const OWN_WEIGHTS: &str = "F32 of the same weights";

/// Why an error cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum QuantisationError {
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The other file is of another model.
    #[error(
        "{name} is another model: {what} {found}, here {expected}; the reference must be the same model in another precision"
    )]
    Incompatible {
        /// The other file.
        name: String,
        /// What differs.
        what: String,
        /// There.
        found: String,
        /// In the model measured.
        expected: String,
    },
    /// No token has a next one.
    #[error("{0} tokens: at least 2 are needed, so that one can be predicted; give more text")]
    TooShort(usize),
    /// Whoever asked for it wants it no longer.
    #[error("stopped")]
    Stopped,
}

/// Another file to compare with.
#[derive(Debug, Clone)]
pub struct Baseline {
    /// Its model.
    pub model: Arc<Model>,
    /// As it is named to users.
    pub name: String,
}

impl Baseline {
    /// What figures are compared with, in words.
    fn name_of(baseline: Option<&Self>) -> String {
        baseline.map_or_else(|| OWN_WEIGHTS.into(), |b| b.name.clone())
    }

    /// Whether it is `model` in another precision: architecture, shape and vocabulary are the same.
    ///
    /// # Errors
    /// [`QuantisationError::Incompatible`], with the first difference.
    pub fn check(&self, model: &Model) -> Result<(), QuantisationError> {
        let (own, other) = (&model.hparams, &self.model.hparams);
        let differs = |what: &str, found: String, expected: String| {
            Err(QuantisationError::Incompatible {
                name: self.name.clone(),
                what: what.into(),
                found,
                expected,
            })
        };
        if own.arch.name != other.arch.name {
            return differs("architecture", other.arch.name.into(), own.arch.name.into());
        }
        let experts = |e: Option<crate::model::Experts>| e.map_or((0, 0), |e| (e.n, e.n_used));
        let ((n, used), (other_n, other_used)) = (experts(own.experts), experts(other.experts));
        for (what, a, b) in [
            ("layers", own.n_layers, other.n_layers),
            ("width", own.n_embd, other.n_embd),
            ("query heads", own.n_head, other.n_head),
            ("key/value heads", own.n_head_kv, other.n_head_kv),
            ("elements of a key", own.head_dim_k, other.head_dim_k),
            ("elements of a value", own.head_dim_v, other.head_dim_v),
            ("experts", n, other_n),
            ("experts of a token", used, other_used),
            ("vocabulary size", model.n_vocab, self.model.n_vocab),
        ] {
            if a != b {
                return differs(what, b.to_string(), a.to_string());
            }
        }
        let (own, other) = (&model.plan.bricks, &self.model.plan.bricks);
        if own.len() != other.len() {
            return differs("bricks", other.len().to_string(), own.len().to_string());
        }
        let shape = |b: &crate::model::Brick| (b.id, b.layer, product::shape(&b.op));
        for (a, b) in own.iter().zip(other) {
            if shape(a) != shape(b) {
                let layer = a.layer.map_or(String::new(), |l| format!(" of layer {l}"));
                let say = |b: &crate::model::Brick| match product::shape(&b.op) {
                    Some((rows, k)) => format!("{} {rows} x {k}", b.id.name()),
                    None => b.id.name().into(),
                };
                return differs(&format!("brick{layer}"), say(b), say(a));
            }
        }
        let tokens = |m: &Model| {
            m.gguf()
                .strings("tokenizer.ggml.tokens")
                .ok()
                .flatten()
                .cloned()
        };
        if tokens(model) != tokens(&self.model) {
            return differs("vocabulary", "has other tokens".into(), "not".into());
        }
        Ok(())
    }
}
