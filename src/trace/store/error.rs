//! What can be wrong with a store, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

/// Why a store could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct StoreError {
    /// The file, as the caller named it.
    pub path: PathBuf,
    /// What is wrong.
    pub problem: Problem,
}

impl StoreError {
    pub(in crate::trace) fn new(path: &Path, problem: Problem) -> Self {
        Self {
            path: path.to_owned(),
            problem,
        }
    }

    /// For `map_err`: the system's error while something was done to the file.
    pub(super) fn io<'a>(path: &'a Path, doing: &'static str) -> impl Fn(io::Error) -> Self + 'a {
        move |source| Self::new(path, Problem::Io { doing, source })
    }

    /// For `map_err`: the system's error while something was stored.
    pub(super) fn write<'a>(
        path: &'a Path,
        doing: &'static str,
    ) -> impl Fn(io::Error) -> Self + 'a {
        move |source| Self::new(path, Problem::Write { doing, source })
    }
}

/// What is wrong with a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The operating system refused.
    #[error("{doing} failed: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The operating system refused to store more.
    #[error(
        "{doing} failed: {source}; what was stored before is untouched, make room or name another place"
    )]
    Write {
        /// What was being done.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// Nothing is there.
    #[error("no such file; check the path")]
    NotFound,
    /// A folder, pipe, socket or device.
    #[error("not a regular file; name a file")]
    NotRegular,
    /// The computer stores numbers the other way round.
    #[error(
        "residual stores are little-endian and this computer is not; use them on x86-64 or aarch64"
    )]
    BigEndian,
    /// Another writer has the file.
    #[error(
        "another writer is at work on this file; wait until it has finished, or name another file"
    )]
    Locked,
    /// Shorter than its header.
    #[error(
        "{len} bytes are too few for the {needed} of header and index; the file was cut: write it again"
    )]
    TooShort {
        /// Bytes of the file.
        len: u64,
        /// Bytes that there must be.
        needed: u64,
    },
    /// The first four bytes are another store's, or no store's.
    #[error("begins with {found}, not with {wanted}; name a file of that kind")]
    Magic {
        /// The first bytes, escaped.
        found: String,
        /// What a store of the kind asked for begins with.
        wanted: &'static str,
    },
    /// A version that this program does not know.
    #[error("version {0} is not known, 1 and 2 are; read it with the program that wrote it")]
    Version(u32),
    /// The header's checksum is wrong.
    #[error("the header's checksum is wrong; the file is damaged: write it again")]
    HeaderChecksum,
    /// A field of the header has no meaning.
    #[error(
        "the header's {field} is {value}, and must be {must}; the file is damaged: write it again"
    )]
    Field {
        /// The field's name.
        field: &'static str,
        /// What it holds.
        value: u64,
        /// What would be right.
        must: &'static str,
    },
    /// The sizes in the header multiply to more than any file has.
    #[error(
        "the header's sizes multiply to more than a file can hold; the file is damaged: write it again"
    )]
    Overflow,
    /// The length is not what the header says, in a version that has no other way to tell.
    #[error(
        "{len} bytes, and the header says {expected}; a version-1 file must match it exactly: it was cut or not finished, write it again"
    )]
    Length {
        /// Bytes of the file.
        len: u64,
        /// Bytes that the header promises.
        expected: u64,
    },
    /// An entry of the index is wrong.
    #[error("index entry {entry}: {what}; the file is damaged: write it again")]
    Entry {
        /// The entry, from 0.
        entry: u32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The list of critical layers is wrong.
    #[error("critical layers: {what}; {remedy}")]
    CriticalLayers {
        /// What is wrong with it.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The template's checksum is wrong.
    #[error("the template's checksum is wrong; nothing in the file can be decoded: write it again")]
    TemplateChecksum,
    /// Something cannot be appended to version 1, which has no room to say where it ends.
    #[error(
        "version 1 cannot be appended to safely; copy what it holds into a new file and append to that"
    )]
    AppendToVersion1,
    /// A size that a new store cannot have.
    #[error("{field} cannot be {value}; give {must}")]
    Shape {
        /// The size's name.
        field: &'static str,
        /// What was given.
        value: u64,
        /// What would be right.
        must: &'static str,
    },
    /// A vector of another length than the store's.
    #[error(
        "a vector of {got} numbers, and the store's have {wanted}; give vectors of the store's width"
    )]
    Width {
        /// Numbers given.
        got: usize,
        /// Numbers that a vector has.
        wanted: u32,
    },
    /// Another number of vectors than a window has.
    #[error(
        "{got} vectors for {what}, and a window has {wanted}; give one for each critical layer"
    )]
    Vectors {
        /// Which vectors.
        what: &'static str,
        /// Vectors given.
        got: usize,
        /// Vectors that a window has.
        wanted: usize,
    },
    /// Something outside the chunk or the model was to be stored.
    #[error("{what} {index} does not exist, there are {count}; count from 0")]
    OutOfRange {
        /// What was counted.
        what: &'static str,
        /// The index given.
        index: u64,
        /// How many there are.
        count: u64,
    },
    /// A vector came a second time.
    #[error("token {token}, layer {layer}: this vector was stored already; store each once")]
    Twice {
        /// Token in the chunk.
        token: u32,
        /// Layer.
        layer: u32,
    },
    /// A chunk was ended before all its vectors were there.
    #[error(
        "{missing} vectors are missing, the first at token {token}, layer {layer}; store them before the chunk ends"
    )]
    Missing {
        /// How many.
        missing: u64,
        /// Token in the chunk of the first.
        token: u32,
        /// Layer of the first.
        layer: u32,
    },
    /// A call that does not fit the writer's state.
    #[error("{what}; {remedy}")]
    Order {
        /// What is wrong.
        what: &'static str,
        /// What to call first.
        remedy: &'static str,
    },
    /// Nothing more fits.
    #[error(
        "the store is full: {limit} {what} are the most it can hold; finish it and go on in a new file"
    )]
    Full {
        /// The most there can be.
        limit: u64,
        /// Of what.
        what: &'static str,
    },
    /// A window begins before the last one ended.
    #[error("a window from token {from}, and the last one ended at {end}; append windows in order")]
    Overlap {
        /// Where it begins.
        from: u32,
        /// Where the last one ended.
        end: u64,
    },
    /// A number that cannot be quantised.
    #[error(
        "vector {slot} holds a number that is not finite or too large to quantise; store such windows as f32"
    )]
    NotFinite {
        /// The vector's place in its window.
        slot: usize,
    },
    /// The window's last residual does not follow from what is stored.
    #[error(
        "{why}; residuals can be rebuilt from tiers 3 and 4 with every layer after the stored residual"
    )]
    NotRebuilt {
        /// Why not.
        why: &'static str,
    },
}
