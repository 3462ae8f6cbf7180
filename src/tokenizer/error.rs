//! What can go wrong between a vocabulary and its tokens.

/// Why a vocabulary cannot be used, a text cannot be encoded, or a chat template cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The file holds no vocabulary at all.
    #[error(
        "the file has no vocabulary ({0} is missing); use a GGUF that was converted together with its tokenizer"
    )]
    NoVocabulary(&'static str),
    /// The token list is there but empty.
    #[error(
        "the vocabulary is empty (tokenizer.ggml.tokens has no entries); convert the model again"
    )]
    EmptyVocabulary,
    /// More tokens than a 32-bit id can name.
    #[error("the vocabulary has {0} tokens; at most 2^31 can be numbered")]
    TooManyTokens(usize),
    /// `tokenizer.ggml.model` names a tokenizer that is not built here.
    #[error("tokenizer.ggml.model is \"{found}\", which cannot be run; what can: {supported}")]
    UnknownModel {
        /// The name in the file.
        found: String,
        /// The names that can run, comma-separated.
        supported: String,
    },
    /// `tokenizer.ggml.pre` names a pre-tokenizer that is not built here.
    #[error(
        "tokenizer.ggml.pre is \"{found}\", whose way of cutting words is unknown here; what can run: {supported}"
    )]
    UnknownPre {
        /// The name in the file.
        found: String,
        /// The names that can run, comma-separated.
        supported: String,
    },
    /// A metadata value that this kind of vocabulary cannot do without.
    #[error(
        "a \"{model}\" vocabulary needs {key}, which the file does not have; convert the model again"
    )]
    MissingKey {
        /// The absent metadata key.
        key: &'static str,
        /// The value of `tokenizer.ggml.model`.
        model: &'static str,
    },
    /// An array that must have one entry a token has another length.
    #[error(
        "{key} has {found} entries for {expected} tokens; the file is damaged, convert the model again"
    )]
    LengthMismatch {
        /// The metadata key.
        key: &'static str,
        /// Entries in the array.
        found: usize,
        /// Tokens in the vocabulary.
        expected: usize,
    },
    /// A score that cannot be ordered.
    #[error("the score of token {0} is not a number; the file is damaged, convert the model again")]
    BadScore(usize),
    /// A token type outside llama.cpp's 0..=6.
    #[error("token {token} has type {found}; known types are 0 to 6")]
    BadTokenType {
        /// The token's id.
        token: usize,
        /// The type in the file.
        found: i32,
    },
    /// A merge rule that is not two tokens of the vocabulary.
    #[error(
        "merge rule {index} ({merge:?}) {problem}; the file is damaged, convert the model again"
    )]
    BadMerge {
        /// Position in `tokenizer.ggml.merges`.
        index: usize,
        /// The rule as the file has it.
        merge: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// `bos`, `eos` or another special id that names no token.
    #[error("{key} is {id}, but the vocabulary has {n_vocab} tokens; correct the metadata")]
    SpecialOutOfRange {
        /// The metadata key.
        key: &'static str,
        /// The id in the file.
        id: u32,
        /// Tokens in the vocabulary.
        n_vocab: usize,
    },
    /// A metadata value of the wrong type.
    #[error("the vocabulary's metadata cannot be read: {0}")]
    Metadata(String),
    /// The vocabulary can express neither this byte nor an unknown token.
    #[error(
        "byte 0x{0:02X} has no token in this vocabulary and there is no unknown token; remove the character from the text"
    )]
    Unencodable(u8),
    /// A text too long for 32-bit positions.
    #[error("the text has {0} bytes; at most 2^32 - 1 can be encoded at once")]
    TextTooLong(usize),
    /// An id that names no token.
    #[error("token id {id} is out of range: the vocabulary has {n_vocab} tokens")]
    IdOutOfRange {
        /// The id that was asked for.
        id: u32,
        /// Tokens in the vocabulary.
        n_vocab: usize,
    },
    /// The `tokenizers` library refused; its own words.
    #[error("the tokenizer library refused: {0}")]
    Library(String),
    /// A chat template that does not compile, fails, or does not end.
    #[error("the chat template cannot be rendered: {0}; write the prompt without --chat")]
    Template(String),
}
