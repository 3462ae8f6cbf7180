//! Opening a model: the file, its hyperparameters and its vocabulary, checked together.

use crate::engine::Config;
use crate::gguf::{Gguf, GgufError, LoadOptions, LoadOutcome};
use crate::model::{Model, ModelError};
use crate::profiler::os::{FaultCounter, Faults, memory_available_bytes};
use crate::tokenizer::{Tokenizer, TokenizerError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The embedded demo model.
const DEMO: &[u8] = include_bytes!("../../assets/demo.gguf");
/// How the demo is named where a path is shown.
pub const DEMO_NAME: &str = "(embedded demo)";

/// Where a model comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The demo model in the binary.
    Demo,
    /// A GGUF file.
    File(PathBuf),
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Demo => f.write_str(DEMO_NAME),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Why a model cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The model in it.
    #[error("{source_name}: {error}")]
    Model {
        /// The file's name.
        source_name: String,
        /// What is wrong.
        error: ModelError,
    },
    /// Its vocabulary.
    #[error("{source_name}: {error}")]
    Tokenizer {
        /// The file's name.
        source_name: String,
        /// What is wrong.
        error: TokenizerError,
    },
    /// Model and vocabulary disagree.
    #[error(
        "{source_name}: the vocabulary has {tokens} tokens, the embedding {rows} rows: the file is damaged"
    )]
    VocabularySize {
        /// The file's name.
        source_name: String,
        /// Tokens listed.
        tokens: usize,
        /// Rows of the embedding.
        rows: usize,
    },
}

/// A model with its vocabulary, ready for an engine.
#[derive(Clone)]
pub struct Loaded {
    /// Where it came from.
    pub source: Source,
    /// The model.
    pub model: Arc<Model>,
    /// Its vocabulary.
    pub tokenizer: Arc<Tokenizer>,
    /// How the file came into memory.
    pub outcome: LoadOutcome,
    /// How long it took to open, check and prepare all of it.
    pub took: Duration,
    /// Page faults of the process meanwhile.
    pub faults: Option<Faults>,
}

/// Opens the GGUF file alone.
///
/// # Errors
/// A file that cannot be read or is not a whole GGUF file.
pub fn open(source: &Source) -> Result<Gguf, GgufError> {
    match source {
        Source::Demo => Gguf::from_static(DEMO, DEMO_NAME),
        Source::File(path) => Gguf::open(path),
    }
}

/// How to load a file that nothing else was said about.
pub fn automatic(gguf: &Gguf) -> LoadOptions {
    LoadOptions::automatic(gguf.file_bytes(), memory_available_bytes())
}

impl Loaded {
    /// Opens a model.
    ///
    /// # Errors
    /// See [`LoadError`]; each is one line that names the file.
    pub fn open(source: Source) -> Result<Self, LoadError> {
        Self::open_with(source, Some(LoadOptions::default()))
    }

    /// Opens a model whose bytes come into memory as `options` says, or as [`automatic`] does.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(source: Source, options: Option<LoadOptions>) -> Result<Self, LoadError> {
        let counter = FaultCounter::open();
        let faults = || counter.as_ref().and_then(FaultCounter::read);
        let (before, began) = (faults(), Instant::now());
        let mut gguf = open(&source)?;
        // Before the vocabulary is built: the disk reads weights meanwhile.
        let outcome = gguf.load(options.unwrap_or_else(|| automatic(&gguf)))?;
        let source_name = source.to_string();
        let tokenizer = Tokenizer::from_gguf(&gguf).map_err(|error| LoadError::Tokenizer {
            source_name: source_name.clone(),
            error,
        })?;
        let model = Model::new(Arc::new(gguf)).map_err(|error| LoadError::Model {
            source_name: source_name.clone(),
            error,
        })?;
        // Fewer tokens than rows is padding, common in released files; more cannot be generated or read.
        if tokenizer.n_vocab() > model.n_vocab {
            return Err(LoadError::VocabularySize {
                source_name,
                tokens: tokenizer.n_vocab(),
                rows: model.n_vocab,
            });
        }
        Ok(Self {
            source,
            model: Arc::new(model),
            tokenizer: Arc::new(tokenizer),
            outcome,
            took: began.elapsed(),
            faults: before.zip(faults()).map(|(then, now)| now.since(then)),
        })
    }

    /// The engine's defaults for this model.
    pub fn config(&self) -> Config {
        Config::for_context(self.model.hparams.n_ctx_train)
    }

    /// `general.name`, or the file's name.
    pub fn name(&self) -> String {
        let named = self
            .model
            .gguf()
            .str("general.name")
            .ok()
            .flatten()
            .map(str::to_owned);
        named.unwrap_or_else(|| match &self.source {
            Source::Demo => DEMO_NAME.into(),
            Source::File(path) => file_name(path),
        })
    }
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}
