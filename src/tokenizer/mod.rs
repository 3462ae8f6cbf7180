//! Text to token ids and back, from the vocabulary in a GGUF file.
//!
//! Two families run: byte-level BPE (`tokenizer.ggml.model` = `gpt2`) and SentencePiece-style BPE
//! (`llama`). Ids are those of llama.cpp. [`Tokenizer::encode`] cuts a text at its special tokens,
//! then each piece goes through the family's encoder.

mod bpe;
mod chat;
mod error;
mod from_gguf;
mod pre;
mod pre_digits;
mod pre_families;
mod special;
mod special_names;
mod spm;
mod stream;
mod strftime;
mod vocab;

pub use chat::{ChatMessage, render_chat};
pub use error::TokenizerError;
pub use stream::StreamDecoder;
pub use vocab::Vocabulary;

use crate::gguf::Gguf;
use bpe::ByteLevelBpe;
use special::{Fragment, SpecialTokens};
use spm::SentencePiece;
use vocab::{TokenKind, TokenTable};

/// The values of `tokenizer.ggml.model` that can run.
const MODELS: &str = "gpt2, llama";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    ByteLevel,
    SentencePiece,
}

fn family(model: &str) -> Result<Family, TokenizerError> {
    match model {
        "gpt2" => Ok(Family::ByteLevel),
        "llama" => Ok(Family::SentencePiece),
        "none" | "no_vocab" | "" => Err(TokenizerError::NoVocabulary("tokenizer.ggml.model")),
        _ => Err(TokenizerError::UnknownModel {
            found: model.to_owned(),
            supported: MODELS.to_owned(),
        }),
    }
}

#[derive(Debug)]
enum Encoder {
    ByteLevel(Box<ByteLevelBpe>),
    SentencePiece(SentencePiece),
}

/// A vocabulary, ready to encode and decode. Shared freely between threads.
#[derive(Debug)]
pub struct Tokenizer {
    table: TokenTable,
    special: SpecialTokens,
    encoder: Encoder,
    add_bos: bool,
    add_eos: bool,
    add_space_prefix: bool,
    chat_template: Option<String>,
}

impl Tokenizer {
    /// Builds the tokenizer of a GGUF file, vocabulary-only files included.
    ///
    /// # Errors
    /// There is no vocabulary, its model or pre-tokenizer is unknown (refused by name), or its arrays
    /// contradict each other.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, TokenizerError> {
        Self::new(Vocabulary::from_gguf(gguf)?)
    }

    /// Builds a tokenizer from a vocabulary.
    ///
    /// # Errors
    /// As [`Tokenizer::from_gguf`].
    pub fn new(mut vocabulary: Vocabulary) -> Result<Self, TokenizerError> {
        let family = family(&vocabulary.model)?;
        if family == Family::SentencePiece {
            // SentencePiece's own numbering, where the file does not say.
            let n_vocab = vocabulary.tokens.len() as u32;
            let usual = |id: u32| (id < n_vocab).then_some(id);
            vocabulary.unknown = vocabulary.unknown.or(usual(0));
            vocabulary.bos = vocabulary.bos.or(usual(1));
            vocabulary.eos = vocabulary.eos.or(usual(2));
        }
        let table = TokenTable::new(&mut vocabulary)?;
        let special = SpecialTokens::new(&table, vocabulary.model_name.as_deref());
        let (encoder, adds_bos, adds_space) = match family {
            Family::ByteLevel => {
                let pre = pre::PreTokenizer::named(vocabulary.pre.as_deref())?;
                let merges = vocabulary.merges.take().ok_or(TokenizerError::MissingKey {
                    key: "tokenizer.ggml.merges",
                    model: "gpt2",
                })?;
                let bpe = ByteLevelBpe::new(&table, &merges, pre)?;
                let adds_bos = bpe.adds_bos();
                (Encoder::ByteLevel(Box::new(bpe)), adds_bos, false)
            }
            Family::SentencePiece => {
                let spm = SentencePiece::new(&table, vocabulary.scores.take())?;
                // SentencePiece adds both unless the file says otherwise.
                let space = vocabulary.add_space_prefix.unwrap_or(true);
                (Encoder::SentencePiece(spm), true, space)
            }
        };
        Ok(Self {
            table,
            special,
            encoder,
            add_bos: vocabulary.add_bos.unwrap_or(adds_bos),
            add_eos: vocabulary.add_eos.unwrap_or(false),
            add_space_prefix: adds_space,
            chat_template: vocabulary.chat_template,
        })
    }

    /// The ids of `text`.
    ///
    /// `add_special` puts the beginning-of-text and end-of-text tokens where the file's `add_bos_token`
    /// and `add_eos_token` want them. `parse_special` turns text such as `<|im_start|>` into the control
    /// token it names; without it such text stays text, which is what untrusted input needs.
    ///
    /// # Errors
    /// The vocabulary cannot express a byte and has no unknown token, or the text exceeds 4 GiB.
    pub fn encode(
        &self,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        if add_special && self.add_bos {
            ids.extend(self.table.bos);
        }
        let (mut seen, mut scratch) = (bpe::SeenWords::new(), spm::Scratch::default());
        let mut after_special = true;
        for fragment in self.special.partition(text, parse_special) {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(text) => match &self.encoder {
                    Encoder::ByteLevel(bpe) => {
                        bpe.encode(&self.table, text, &mut seen, &mut ids)?
                    }
                    Encoder::SentencePiece(spm) => {
                        let prefix = self.add_space_prefix && after_special;
                        spm.encode(&self.table, text, prefix, &mut scratch, &mut ids)?;
                    }
                },
            }
            after_special = matches!(fragment, Fragment::Token(_));
        }
        if add_special && self.add_eos {
            ids.extend(self.table.eos);
        }
        Ok(ids)
    }

    /// The text of a whole sequence: the inverse of [`Tokenizer::encode`]. Control tokens are silent, the
    /// space that encoding put in front is taken away again, invalid UTF-8 becomes U+FFFD.
    ///
    /// # Errors
    /// [`TokenizerError::IdOutOfRange`] for an id outside the vocabulary.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        self.decode_from(ids, self.add_space_prefix)
    }

    /// The text of ids that continue an earlier text, so that a leading space stays: what
    /// [`Tokenizer::stream`] gives token by token.
    ///
    /// # Errors
    /// As [`Tokenizer::decode`].
    pub fn decode_continuation(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        self.decode_from(ids, false)
    }

    fn decode_from(&self, ids: &[u32], strip_prefix: bool) -> Result<String, TokenizerError> {
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        let mut strip = strip_prefix;
        for &id in ids {
            let from = bytes.len();
            let kind = self
                .push_bytes(id, &mut bytes)
                .ok_or(TokenizerError::IdOutOfRange {
                    id,
                    n_vocab: self.n_vocab(),
                })?;
            // Encoding puts the space in front of every stretch of text, after each special token anew.
            let is_text = matches!(kind, TokenKind::Normal | TokenKind::Byte);
            if is_text && strip && kind == TokenKind::Normal && bytes.get(from) == Some(&b' ') {
                bytes.remove(from);
            }
            strip = strip_prefix && !is_text;
        }
        Ok(match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
        })
    }

    /// Appends a token's bytes and says what it is; `None` outside the vocabulary.
    fn push_bytes(&self, id: u32, into: &mut Vec<u8>) -> Option<TokenKind> {
        let (text, kind) = (self.table.text(id)?, self.table.kind(id)?);
        match (kind, &self.encoder) {
            (TokenKind::Control | TokenKind::Unknown, _) => {}
            (TokenKind::UserDefined, _) => into.extend_from_slice(text.as_bytes()),
            (TokenKind::Byte, _) if spm::byte_value(text).is_some() => {
                into.extend(spm::byte_value(text))
            }
            (_, Encoder::ByteLevel(bpe)) => bpe.alphabet.bytes_of(text, into),
            (_, Encoder::SentencePiece(_)) => {
                for (i, part) in text.split(spm::SPACE).enumerate() {
                    if i > 0 {
                        into.push(b' ');
                    }
                    into.extend_from_slice(part.as_bytes());
                }
            }
        }
        Some(kind)
    }

    /// The bytes a token adds to a text when it is generated; none for control tokens. `None` outside
    /// the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.push_bytes(id, &mut bytes)?;
        Some(bytes)
    }

    /// The token as the vocabulary spells it, such as `ĠParis` or `▁the`.
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.table.text(id)
    }

    /// A decoder for ids that arrive one by one.
    pub fn stream(&self) -> StreamDecoder<&Self> {
        StreamDecoder::new(self)
    }

    /// Tokens in the vocabulary.
    pub fn n_vocab(&self) -> usize {
        self.table.len()
    }

    /// The beginning-of-text token.
    pub fn bos(&self) -> Option<u32> {
        self.table.bos
    }

    /// The end-of-text token.
    pub fn eos(&self) -> Option<u32> {
        self.table.eos
    }

    /// The end-of-turn token, from the metadata or by its well-known name.
    pub fn eot(&self) -> Option<u32> {
        self.table.eot
    }

    /// Whether [`Tokenizer::encode`] with `add_special` begins with [`Tokenizer::bos`].
    pub fn adds_bos(&self) -> bool {
        self.add_bos && self.table.bos.is_some()
    }

    /// Whether generation stops after this token: end of text, of turn, of message, by metadata or name.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.table.is_end_of_generation(id)
    }

    /// Whether the token is structure rather than text.
    pub fn is_control(&self, id: u32) -> bool {
        self.table.kind(id) == Some(TokenKind::Control)
    }

    /// The Jinja source of the model's chat template, for [`render_chat`].
    pub fn chat_template(&self) -> Option<&str> {
        self.chat_template.as_deref()
    }
}
