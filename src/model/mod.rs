//! Hyperparameters per architecture, weights, and the list of bricks a layer is made of.

pub mod arch;
pub mod brick;
mod hparams;
mod info;
mod keys;
mod layout;
mod plan;
mod rope;
mod slots;
mod weights;
pub mod work;

pub use arch::{Act, Architecture, RopeStyle};
pub use hparams::{Experts, Hparams, RopeScaling, Temperature, Window};
pub use info::{ModelInfo, quantisation_name, weight_bytes_per_token};
pub use plan::{Brick, Buf, Op, Plan, Q8_BLOCK, SharedExpert};
pub use rope::{ContextRope, RopeTable};
pub use slots::{Slots, Span};
pub use weights::{Matrix, Vector};

use crate::gguf::{Gguf, GgufError};
use std::sync::Arc;

/// Why a file cannot be run as a model.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The file itself.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A required metadata key is not there.
    #[error(
        "metadata key '{key}' is missing: the file is not a complete model (see `cbtop inspect`)"
    )]
    MissingKey {
        /// The key.
        key: String,
    },
    /// A metadata value is out of range.
    #[error("metadata key '{key}' is {value}, expected {expected}")]
    BadValue {
        /// The key.
        key: String,
        /// What the file says.
        value: String,
        /// What would be possible.
        expected: String,
    },
    /// The architecture is not one this program runs.
    #[error("architecture '{name}' cannot run yet; these can: {supported}")]
    UnknownArch {
        /// Architecture of the file.
        name: String,
        /// Comma-separated architectures that run.
        supported: String,
    },
    /// A feature of the file is not one this program runs.
    #[error("the model uses {what}, which cannot run yet")]
    Unsupported {
        /// The feature.
        what: String,
    },
    /// A tensor of the architecture is not in the file.
    #[error("tensor '{name}' is missing: the file is incomplete or of another architecture")]
    MissingTensor {
        /// Its name.
        name: String,
    },
    /// A tensor has another shape than the hyperparameters ask for.
    #[error("tensor '{name}' has shape {found}, expected {expected}")]
    Shape {
        /// Its name.
        name: String,
        /// Shape in the file, innermost first.
        found: String,
        /// Shape expected, innermost first.
        expected: String,
    },
    /// A tensor's type has no kernels.
    #[error("tensor '{name}' is quantised as {ty}, which cannot run yet; these can: {supported}")]
    UnsupportedType {
        /// Its name.
        name: String,
        /// Its type.
        ty: String,
        /// Comma-separated types that run.
        supported: String,
    },
}

/// A model ready to run: the file, its hyperparameters, and the bricks of a forward pass.
#[derive(Debug)]
pub struct Model {
    gguf: Arc<Gguf>,
    /// Hyperparameters.
    pub hparams: Hparams,
    /// The bricks, in the order they run.
    pub plan: Plan,
    /// Vocabulary size (rows of the embedding).
    pub n_vocab: usize,
}

impl Model {
    /// Checks that `gguf` is a whole model of a known architecture and lays out its forward pass.
    ///
    /// # Errors
    /// See [`ModelError`]: nothing is read from a tensor before its shape and type have been checked.
    pub fn new(gguf: Arc<Gguf>) -> Result<Self, ModelError> {
        let hparams = Hparams::from_gguf(&gguf)?;
        let (plan, n_vocab) = layout::build(&gguf, &hparams)?;
        Ok(Self {
            gguf,
            hparams,
            plan,
            n_vocab,
        })
    }

    /// The longest context that can run: as many tokens as there are learned positions; `None` where positions are rotations.
    pub fn max_context(&self) -> Option<usize> {
        self.plan.bricks.iter().find_map(|b| match &b.op {
            Op::Embed {
                positions: Some(p), ..
            } => Some(p.rows),
            _ => None,
        })
    }

    /// The file.
    pub fn gguf(&self) -> &Gguf {
        &self.gguf
    }

    /// The bytes of a matrix, as stored.
    pub fn bytes(&self, matrix: &Matrix) -> &[u8] {
        let tensor = self.gguf.data(&self.gguf.tensors()[matrix.tensor]);
        let first = matrix.first * matrix.row_bytes;
        &tensor[first..first + matrix.rows * matrix.row_bytes]
    }
}
