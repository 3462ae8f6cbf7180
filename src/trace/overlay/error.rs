//! Why a fact cannot be changed, or an overlay not be used.

use crate::engine::EngineError;
use crate::trace::TraceError;
use crate::trace::store::StoreError;
use std::path::PathBuf;

/// An error of an overlay, in one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// A forward pass or a text.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The file cannot be opened or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file is no overlay, or a damaged one.
    #[error("{}: {what}; name a file that cbtop wrote with INSERT or DELETE, or make it anew", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The overlay was made with another model.
    #[error(
        "the overlay is of model '{theirs}' ({why}), this is '{ours}'; load that model, or make a new overlay for this one"
    )]
    OtherModel {
        /// The model it is of.
        theirs: String,
        /// The model in use.
        ours: String,
        /// What differs.
        why: String,
    },
    /// Too many facts, or too large ones.
    #[error("{what}; take facts out with DELETE, or begin another overlay")]
    Full {
        /// What is too much.
        what: String,
    },
    /// A statement that has nothing to do, or cannot be done.
    #[error("{0}")]
    Statement(String),
    /// No layer tried makes the model say, or stop saying, the answer.
    #[error("{what}; {}", if *.one_layer { "leave LAYER out, or name another one" } else { "name a layer (LAYER n), or word the fact otherwise" })]
    NotReached {
        /// The best that was reached, with its figures.
        what: String,
        /// Whether the statement named the layer.
        one_layer: bool,
    },
    /// The key of the fact cannot be told from the background.
    #[error(
        "layer {layer} has the same input at '{prompt}' as at other texts, so a fact would show everywhere; name another \
         layer (LAYER n) or a longer prompt"
    )]
    NoKey {
        /// The layer.
        layer: u32,
        /// The prompt.
        prompt: String,
    },
}
