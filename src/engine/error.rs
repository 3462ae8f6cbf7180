//! Why the engine refuses or stops.

/// An error of the engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// A knob is out of range.
    #[error("{0}")]
    Config(String),
    /// Memory for buffers or the kv cache could not be had.
    #[error(
        "not enough memory for {what}: {bytes} bytes needed; use a smaller context (--ctx) or chunk"
    )]
    OutOfMemory {
        /// What was to be allocated.
        what: &'static str,
        /// Bytes needed.
        bytes: u64,
    },
    /// Worker threads could not be started.
    #[error("cannot start {threads} threads: {reason}; use fewer (--threads)")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// The system's word.
        reason: String,
    },
    /// More tokens than the context holds.
    #[error(
        "{needed} tokens do not fit into a context of {n_ctx}; use a larger one (--ctx) or a shorter prompt"
    )]
    ContextFull {
        /// Tokens that would be in the cache.
        needed: usize,
        /// Context length.
        n_ctx: usize,
    },
    /// A step of no tokens.
    #[error("a step needs at least one token: the prompt is empty")]
    Empty,
    /// A step of more tokens than a chunk, or more logits than rows allocated.
    #[error("a step of {tokens} tokens is larger than the chunk or the logit rows of {max}")]
    ChunkTooLarge {
        /// Tokens asked for.
        tokens: usize,
        /// Largest step.
        max: usize,
    },
    /// A sequence that the engine does not have.
    #[error("sequence {seq} does not exist: the engine has {n_seq}, counted from 0")]
    NoSequence {
        /// The sequence asked for.
        seq: usize,
        /// Sequences of the engine.
        n_seq: usize,
    },
    /// Two tokens of one sequence, each of which is to be decoded after the same past.
    #[error(
        "sequence {seq} is twice in a batch of single tokens; decode one token of it at a time"
    )]
    SequenceTwice {
        /// The sequence.
        seq: usize,
    },
    /// A token id outside the vocabulary.
    #[error("token id {id} is outside the vocabulary of {n_vocab}")]
    BadToken {
        /// The id.
        id: u32,
        /// Vocabulary size.
        n_vocab: usize,
    },
    /// An intervention that the model cannot have.
    #[error("{0}")]
    Edit(String),
    /// A stream that cannot be read, or that no cache can be made of.
    #[error("{0}")]
    Stream(String),
    /// A worker thread panicked.
    #[error(
        "a worker thread failed; restart the session (this is a defect of cbtop: please report it)"
    )]
    WorkerFailed,
}
