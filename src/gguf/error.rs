//! What can be wrong with a GGUF file, in one sentence each.

use std::path::PathBuf;

use super::types::GgmlType;

/// Why a file could not be opened or a value could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// Nothing at this path.
    #[error("{}: no such file; check the path", path.display())]
    NotFound {
        /// The path as given.
        path: PathBuf,
    },
    /// The path is a directory.
    #[error("{}: is a directory; name the .gguf file inside it", path.display())]
    Directory {
        /// The path as given.
        path: PathBuf,
    },
    /// A pipe, socket or device, which cannot be mapped.
    #[error("{}: is not a regular file and cannot be memory-mapped; copy it to a file first", path.display())]
    NotRegular {
        /// The path as given.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{}: cannot be opened: {source}", path.display())]
    Io {
        /// The path as given.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Zero bytes long.
    #[error("{file}: the file is empty; download or convert it again")]
    Empty {
        /// The file or shard.
        file: String,
    },
    /// The first bytes are not a GGUF header.
    #[error("{file}: not a GGUF file (starts with {found}){hint}")]
    NotGguf {
        /// The file or shard.
        file: String,
        /// The first bytes, escaped.
        found: String,
        /// What the file looks like instead and what to do; empty when unknown.
        hint: &'static str,
    },
    /// Written in big-endian byte order.
    #[error(
        "{file}: a big-endian GGUF file; only little-endian files can be read: convert it with gguf-py's gguf_convert_endian.py"
    )]
    BigEndian {
        /// The file or shard.
        file: String,
    },
    /// A version of the format that this program does not read.
    #[error("{file}: GGUF version {version} is not supported, 2 and 3 are; {}", version_advice(*version))]
    Version {
        /// The file or shard.
        file: String,
        /// The version in the header.
        version: u32,
    },
    /// A count, offset, type or string in the file is wrong.
    #[error(transparent)]
    Malformed(Box<Malformed>),
    /// The shards of a split model do not fit together.
    #[error("{file}: {problem}")]
    Split {
        /// The shard.
        file: String,
        /// What does not fit.
        problem: SplitProblem,
    },
    /// A metadata key has another type than the caller needs.
    #[error("{file}: metadata key {key} should be {expected}, but the file has {found}")]
    WrongType {
        /// The file.
        file: String,
        /// The key asked for.
        key: String,
        /// What the caller needs, for example "an unsigned integer".
        expected: &'static str,
        /// The type in the file and, for arrays, its length.
        found: String,
    },
    /// A metadata integer does not fit the type the caller needs.
    #[error("{file}: metadata key {key} is {value}, outside the range of {expected}")]
    OutOfRange {
        /// The file.
        file: String,
        /// The key asked for.
        key: String,
        /// The value in the file.
        value: String,
        /// The Rust type asked for.
        expected: &'static str,
    },
}

fn version_advice(version: u32) -> &'static str {
    match version {
        0 | 1 => "convert the model again with a current convert_hf_to_gguf.py",
        _ => "the file is newer than this program: update it, or convert the model to version 3",
    }
}

/// A wrong value inside a file, and where.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {place}, byte {offset} of {len}: {problem}")]
pub struct Malformed {
    /// The file or shard.
    pub file: String,
    /// The part of the file, for example `tensor "output.weight"`.
    pub place: String,
    /// Byte offset in the file at which the wrong value starts.
    pub offset: u64,
    /// Length of the file in bytes.
    pub len: u64,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a value inside a file.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file ends too early.
    #[error(
        "the file ends inside {what} ({need} bytes needed, {left} left): it is cut short or damaged, download or convert it again"
    )]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Bytes needed.
        need: u64,
        /// Bytes left.
        left: u64,
    },
    /// More items than the rest of the file could encode.
    #[error(
        "claims {count} {what}, but the {left} bytes left hold at most {max}: the file is damaged or cut short"
    )]
    Count {
        /// What is counted.
        what: &'static str,
        /// The claimed count.
        count: u64,
        /// Bytes left in the file.
        left: u64,
        /// The most that could fit.
        max: u64,
    },
    /// The metadata would take too much memory.
    #[error(
        "reading {count} {what} would take the metadata past {limit} bytes of memory: no model needs that"
    )]
    Memory {
        /// What is counted.
        what: &'static str,
        /// The count.
        count: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A key or name is longer than the format allows.
    #[error("{what} is {len} bytes long, at most {max} are allowed")]
    TooLong {
        /// Which string.
        what: &'static str,
        /// Its length in bytes.
        len: u64,
        /// The limit in bytes.
        max: u64,
    },
    /// A key or name is empty.
    #[error("{what} is empty")]
    EmptyString {
        /// Which string.
        what: &'static str,
    },
    /// A key or name is not UTF-8.
    #[error("{what} is not UTF-8 (its byte {at} is wrong)")]
    NotUtf8 {
        /// Which string.
        what: &'static str,
        /// Index of the first wrong byte in the string.
        at: usize,
    },
    /// A metadata value type that the format does not have.
    #[error("unknown value type {id}, the format has 0 to 12")]
    ValueType {
        /// The number in the file.
        id: u32,
    },
    /// Arrays of arrays of arrays ...
    #[error("arrays are nested more than {max} deep")]
    Depth {
        /// The depth allowed.
        max: u32,
    },
    /// A boolean that is neither 0 nor 1.
    #[error("a boolean is stored as {byte}, only 0 and 1 are allowed")]
    Bool {
        /// The byte in the file.
        byte: u8,
    },
    /// The key is in the file twice.
    #[error("the key appears twice")]
    DuplicateKey,
    /// The tensor is in the model twice.
    #[error("the tensor appears twice")]
    DuplicateTensor,
    /// `general.alignment` is not a u32.
    #[error("the alignment must be a u32, the file has {found}")]
    AlignmentType {
        /// The type in the file.
        found: String,
    },
    /// `general.alignment` is not usable.
    #[error("an alignment of {value} is not a power of two from 1 to {max}")]
    Alignment {
        /// The value in the file.
        value: u32,
        /// The largest alignment accepted.
        max: u32,
    },
    /// Too few or too many dimensions.
    #[error("has {count} dimensions, 1 to 4 are allowed")]
    Dimensions {
        /// The number of dimensions.
        count: u32,
    },
    /// A dimension is zero.
    #[error("dimension {index} is 0")]
    ZeroDimension {
        /// Index of the dimension, ggml order.
        index: usize,
    },
    /// The sizes multiply past 64 bits.
    #[error("the dimensions {dims:?} multiply to more than a 64-bit size")]
    Overflow {
        /// The dimensions, ggml order.
        dims: Vec<u64>,
    },
    /// A tensor type that this program does not know.
    #[error("unknown tensor type {id}{}", tensor_type_advice(*id))]
    TensorType {
        /// The number in the file.
        id: u32,
    },
    /// Rows are not made of whole blocks.
    #[error("rows of {row} elements are not whole blocks of {ty} ({} elements each)", ty.block_len())]
    PartialBlock {
        /// Row length in elements.
        row: u64,
        /// The tensor's type.
        ty: GgmlType,
    },
    /// The data does not start on a multiple of the alignment.
    #[error("data offset {offset} is not a multiple of the file's alignment of {alignment}")]
    Misaligned {
        /// Offset in the data section.
        offset: u64,
        /// The file's alignment in bytes.
        alignment: u64,
    },
    /// The data is not inside the file.
    #[error(
        "its {bytes} bytes at data offset {offset} end outside the data section of {section} bytes: the file is cut short or damaged, download or convert it again"
    )]
    Outside {
        /// Offset in the data section.
        offset: u64,
        /// Bytes of the tensor.
        bytes: u64,
        /// Bytes of the data section.
        section: u64,
    },
    /// The data overlaps that of another tensor.
    #[error("its data overlaps that of tensor {other}")]
    Overlap {
        /// The other tensor's name, quoted.
        other: String,
    },
}

fn tensor_type_advice(id: u32) -> String {
    let removed = match id {
        4 => "Q4_2",
        5 => "Q4_3",
        31 => "Q4_0_4_4",
        32 => "Q4_0_4_8",
        33 => "Q4_0_8_8",
        36 => "IQ4_NL_4_4",
        37 => "IQ4_NL_4_8",
        38 => "IQ4_NL_8_8",
        _ => return "; the file is damaged, or newer than this program".to_owned(),
    };
    format!(" ({removed}, since removed from the format): quantise the model again")
}

/// Why the shards of a split model do not make one model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SplitProblem {
    /// The file says it is a shard, its name does not say which.
    #[error(
        "is one shard of {count}, so its name must end in -{no:05}-of-{count:05}.gguf for the others to be found: rename it"
    )]
    Name {
        /// The shard's number from its metadata, from 1.
        no: u64,
        /// Shards in the model.
        count: u64,
    },
    /// A shard was given as bytes in memory.
    #[error("is one shard of {count}: open it from its file, beside the others")]
    InMemory {
        /// Shards in the model.
        count: u64,
    },
    /// `split.count` is absurd.
    #[error("split.count is {count}, at most {max} shards are supported")]
    TooMany {
        /// The claimed number.
        count: u64,
        /// The limit.
        max: u64,
    },
    /// A shard is missing.
    #[error(
        "shard {no} of {count} is missing; all shards must be in one directory: download it there"
    )]
    Missing {
        /// The shard's number, from 1.
        no: u64,
        /// Shards in the model.
        count: u64,
    },
    /// The shard lacks a key.
    #[error("is a shard, but has no {key}: split the model again with gguf-split")]
    NoKey {
        /// The missing key.
        key: &'static str,
    },
    /// Name and metadata disagree about the shard's number.
    #[error(
        "is named shard {named}, but its split.no says it is shard {stored}: files were renamed or linked to each other"
    )]
    Number {
        /// Number from the name, from 1.
        named: u64,
        /// Number from the metadata, from 1.
        stored: u64,
    },
    /// Shards disagree about how many there are.
    #[error(
        "says the model has {stored} shards, but {expected} were expected from the file names: the shards are of different models"
    )]
    CountDiffers {
        /// `split.count` of this shard.
        stored: u64,
        /// The number from the name opened.
        expected: u64,
    },
    /// `split.tensors.count` does not match.
    #[error(
        "says the model has {stored} tensors, but its shards hold {found}: the shards are of different models"
    )]
    Tensors {
        /// `split.tensors.count`.
        stored: u64,
        /// Tensors found in all shards.
        found: u64,
    },
    /// Two shards hold the same tensor.
    #[error("holds tensor {name}, which {other} holds too: the shards are of different models")]
    DuplicateTensor {
        /// The tensor's name, quoted.
        name: String,
        /// The other shard.
        other: String,
    },
}

/// A problem at a byte of the file, before the file and place are known.
#[derive(Debug)]
pub(super) struct Fault {
    pub offset: u64,
    pub problem: Problem,
}

impl Fault {
    pub fn at(self, place: impl Into<String>) -> Located {
        Located {
            place: place.into(),
            fault: self,
        }
    }
}

/// A problem at a named place, before the file is known.
#[derive(Debug)]
pub(super) struct Located {
    pub place: String,
    pub fault: Fault,
}

impl Located {
    pub fn in_file(self, file: &str, len: u64) -> GgufError {
        GgufError::Malformed(Box::new(Malformed {
            file: file.to_owned(),
            place: self.place,
            offset: self.fault.offset,
            len,
            problem: self.fault.problem,
        }))
    }
}

/// A name from the file as it may be printed: quoted, control characters escaped, shortened.
pub(super) fn quote(name: &str) -> String {
    const SHOWN: usize = 80;
    let mut shown: String = name.chars().take(SHOWN).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}
