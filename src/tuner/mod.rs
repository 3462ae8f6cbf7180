//! What to change: rules that turn figures into recommendations, and the comparison that says what a change brought.
//!
//! [`rules::recommend`] reads [`facts::Facts`] and returns advice with the [`Change`] it would make; [`ab::AbTest`]
//! measures the change once the session made it. Nothing here acts on its own.

pub mod ab;
pub mod facts;
pub mod recommendation;
pub mod rules;

/// A change of the engine's configuration that the session can make while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Number of threads, the calling one included.
    Threads(usize),
    /// Kernel set by name.
    Kernels(String),
    /// Element type of the kv cache by name.
    KvType(String),
    /// Tokens in one prefill chunk.
    Chunk(usize),
    /// How rows are given to threads, by name.
    Schedule(String),
}

impl Change {
    /// The knob that it turns.
    pub fn knob(&self) -> Knob {
        match self {
            Self::Threads(_) => Knob::Threads,
            Self::Kernels(_) => Knob::Kernels,
            Self::KvType(_) => Knob::KvType,
            Self::Chunk(_) => Knob::Chunk,
            Self::Schedule(_) => Knob::Schedule,
        }
    }

    /// Whether it shows in the rate of decode steps. A chunk shows in the next prompt only, so that comparing tokens
    /// before and after it would measure nothing.
    pub fn affects_decode(&self) -> bool {
        !matches!(self, Self::Chunk(_))
    }
}

/// Something a user can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knob {
    /// Threads.
    Threads,
    /// Kernel set.
    Kernels,
    /// Element type of the kv cache.
    KvType,
    /// Tokens in one prefill chunk.
    Chunk,
    /// How rows are given to threads.
    Schedule,
}

impl Knob {
    /// Its name in [`facts::Facts::explicit`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Kernels => "backend",
            Self::KvType => "kv-type",
            Self::Chunk => "chunk",
            Self::Schedule => "schedule",
        }
    }

    /// The flag that sets it.
    pub fn flag(self) -> &'static str {
        match self {
            Self::Threads => "--threads",
            Self::Kernels => "--backend",
            Self::KvType => "--kv-type",
            Self::Chunk => "--chunk",
            Self::Schedule => "--schedule",
        }
    }
}
