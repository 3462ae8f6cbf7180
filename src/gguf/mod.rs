//! GGUF files: header, metadata and tensor table, memory-mapped and validated before use.
//!
//! Format document: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>. Versions 2 and 3, little-endian; split
//! models load as one. Everything is checked when a file is opened, so nothing that an open [`Gguf`] gives can fail or
//! lie outside the file. Keys and tensor names must be UTF-8; string values that are not are kept as bytes
//! ([`Value::Bytes`], [`Array::Bytes`]), since replacing characters would silently change tokens.

mod buffer;
mod error;
mod getters;
mod load;
mod magic;
mod mapping;
mod parse;
mod reader;
mod source;
mod split;
mod strings;
mod tensor;
mod types;
mod value;
mod values;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

pub use error::{GgufError, Malformed, Problem, SplitProblem};
pub use load::{LoadMethod, LoadOptions, LoadOutcome, MapAdvice};
pub use mapping::Mapping;
use parse::{Parsed, parse};
use source::Source;
pub use strings::Strings;
pub use tensor::TensorInfo;
pub use types::GgmlType;
pub use value::{Array, Value};

/// An open model file, or all shards of a split one. Cheap to share between threads by reference.
pub struct Gguf {
    path: PathBuf,
    version: u32,
    shards: Vec<Shard>,
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
    tensors: Vec<TensorInfo>,
    tensor_index: HashMap<String, usize>,
}

struct Shard {
    /// As errors name it.
    file: String,
    source: Source,
}

impl Gguf {
    /// Maps and checks a file. Any one shard of a split model opens them all, in order.
    ///
    /// # Errors
    /// Every defect of the file or of its shards is a [`GgufError`] that names it; the first one found is given.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let source = Source::map(path)?;
        let file = path.display().to_string();
        let parsed = parse(source.bytes(), &file)?;
        match split::count(&file, &parsed)? {
            1 => Ok(Self::single(path.to_owned(), file, source, parsed)),
            count => split::open(path, (source, parsed), count),
        }
    }

    /// Reads a model embedded in the program; `name` stands for the path. Tensors are aligned in memory only as far as
    /// `bytes` itself is.
    ///
    /// # Errors
    /// As [`Gguf::open`]; a shard of a split model is refused.
    pub fn from_static(bytes: &'static [u8], name: &str) -> Result<Self, GgufError> {
        Self::from_source(Source::Static(bytes), name)
    }

    /// Reads a model from memory, as [`Gguf::from_static`] does.
    ///
    /// # Errors
    /// As [`Gguf::from_static`].
    pub fn from_vec(bytes: Vec<u8>, name: &str) -> Result<Self, GgufError> {
        Self::from_source(Source::Owned(bytes), name)
    }

    fn from_source(source: Source, name: &str) -> Result<Self, GgufError> {
        let parsed = parse(source.bytes(), name)?;
        match split::count(name, &parsed)? {
            1 => Ok(Self::single(
                PathBuf::from(name),
                name.to_owned(),
                source,
                parsed,
            )),
            count => Err(GgufError::Split {
                file: name.to_owned(),
                problem: SplitProblem::InMemory { count },
            }),
        }
    }

    fn single(path: PathBuf, file: String, source: Source, parsed: Parsed) -> Self {
        let Parsed {
            version,
            entries,
            index,
            tensors,
        } = parsed;
        let tensor_index = tensors
            .iter()
            .enumerate()
            .map(|(i, t)| (t.name.clone(), i))
            .collect();
        Self {
            path,
            version,
            shards: vec![Shard { file, source }],
            entries,
            index,
            tensors,
            tensor_index,
        }
    }

    /// Version of the format: 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The path as it was given to [`Gguf::open`], or the name of an embedded model.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of all shards together.
    pub fn file_bytes(&self) -> u64 {
        self.shards
            .iter()
            .map(|s| s.source.bytes().len() as u64)
            .sum()
    }

    /// Whether the bytes are no file's: they stay where they are, however loading is asked for.
    pub fn is_embedded(&self) -> bool {
        let in_memory = |s: &Source| matches!(s, Source::Static(_) | Source::Owned(_));
        self.shards.iter().any(|s| in_memory(&s.source))
    }

    /// Number of files: 1 unless the model is split.
    pub fn n_shards(&self) -> usize {
        self.shards.len()
    }

    /// Keys and values in file order (the first shard's).
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries
            .iter()
            .map(|(key, value)| (key.as_str(), value))
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries
            .get(*self.index.get(key)?)
            .map(|(_, value)| value)
    }

    /// All tensors, shard by shard in file order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(self.tensor_place(name)?)
    }

    /// The place of the tensor of this name in [`Self::tensors`].
    pub fn tensor_place(&self, name: &str) -> Option<usize> {
        self.tensor_index.get(name).copied()
    }

    /// The tensor's bytes, exactly `tensor.bytes` of them. A row of another file's table gives no or unrelated bytes.
    pub fn data(&self, tensor: &TensorInfo) -> &[u8] {
        let bytes = self
            .shards
            .get(tensor.shard())
            .map(|s| s.source.bytes())
            .unwrap_or_default();
        let range = || {
            let start = usize::try_from(tensor.offset).ok()?;
            Some(start..start.checked_add(usize::try_from(tensor.bytes).ok()?)?)
        };
        range().and_then(|r| bytes.get(r)).unwrap_or_default()
    }

    /// Brings the bytes of the file, or of all shards, where `options` wants them: right after [`Gguf::open`] they are
    /// mapped, and read when used. What cannot be had is replaced by what can; the outcome says what and why.
    ///
    /// # Errors
    /// A file that can no longer be read, or has become shorter.
    pub fn load(&mut self, options: LoadOptions) -> Result<LoadOutcome, GgufError> {
        let mut outcome = LoadOutcome {
            options,
            notes: Vec::new(),
        };
        for shard in &mut self.shards {
            shard.source.load(options, &mut outcome)?;
        }
        Ok(outcome)
    }

    fn file(&self) -> &str {
        self.shards.first().map_or("", |s| s.file.as_str())
    }
}

impl fmt::Debug for Gguf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gguf")
            .field("path", &self.path)
            .field("version", &self.version)
            .field("shards", &self.shards.len())
            .field("keys", &self.entries.len())
            .field("tensors", &self.tensors.len())
            .finish()
    }
}
