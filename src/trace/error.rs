//! Why a trace cannot be made.

use super::overlay::OverlayError;
use super::store::StoreError;
use crate::engine::EngineError;
use crate::tokenizer::TokenizerError;

/// An error of a trace, in one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A text that cannot be encoded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Facts.
    #[error(transparent)]
    Overlay(Box<OverlayError>),
    /// More than memory should hold.
    #[error(
        "the streams of {positions} positions are too large for memory; name fewer (POSITIONS a-b), or SAVE them all, \
         which needs none"
    )]
    TooLarge {
        /// Positions asked for.
        positions: usize,
    },
    /// The head cannot be read.
    #[error("the model's output head cannot be read; check the file with cbtop inspect")]
    Head,
    /// What a statement asks for is not there.
    #[error("{0}")]
    Statement(String),
}

impl From<OverlayError> for TraceError {
    fn from(e: OverlayError) -> Self {
        Self::Overlay(Box::new(e))
    }
}
