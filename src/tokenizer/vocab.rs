//! The vocabulary as the file gives it, checked once, and what each token is.

use super::TokenizerError;
use super::special_names::{self, NamedRole};
use crate::gguf::Strings;
use hashbrown::HashTable;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// Everything the tokenizer reads from a GGUF file's metadata.
///
/// One field a key of `tokenizer.ggml.*`; absent keys are `None`. Built by
/// [`Vocabulary::from_gguf`], or by hand in tests.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Vocabulary {
    /// `model`: `gpt2` (byte-level BPE) or `llama` (SentencePiece-style).
    pub model: String,
    /// `pre`: how text is cut into words before BPE.
    pub pre: Option<String>,
    /// `tokens`: the text of each token, in order of id.
    pub tokens: Strings,
    /// `scores`: one a token; a `llama` vocabulary merges the highest first.
    pub scores: Option<Vec<f32>>,
    /// `token_type`: one a token, llama.cpp's numbers 0 to 6.
    pub token_types: Option<Vec<i32>>,
    /// `merges`: a `gpt2` vocabulary's rules, "left right", in order of rank.
    pub merges: Option<Strings>,
    /// `bos_token_id`.
    pub bos: Option<u32>,
    /// `eos_token_id`.
    pub eos: Option<u32>,
    /// `eot_token_id`.
    pub eot: Option<u32>,
    /// `eom_token_id`.
    pub eom: Option<u32>,
    /// `unknown_token_id`.
    pub unknown: Option<u32>,
    /// `fim_pad_token_id`, `fim_rep_token_id` and `fim_sep_token_id`: all three end a generation.
    pub fim_stops: [Option<u32>; 3],
    /// `add_bos_token`.
    pub add_bos: Option<bool>,
    /// `add_eos_token`.
    pub add_eos: Option<bool>,
    /// `add_space_prefix`.
    pub add_space_prefix: Option<bool>,
    /// `tokenizer.chat_template`.
    pub chat_template: Option<String>,
    /// `general.name`: a few model families strip whitespace around their special tokens.
    pub model_name: Option<String>,
}

/// What a token is, by llama.cpp's `token_type` numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// Ordinary text.
    Normal,
    /// Stands for what the vocabulary cannot express.
    Unknown,
    /// Structure (turn markers, end of text): never text, matched only when special tokens are parsed.
    Control,
    /// Text that is always matched whole, before anything else.
    UserDefined,
    /// A hole in the numbering: never produced.
    Unused,
    /// One raw byte, written `<0xNN>`.
    Byte,
}

impl TokenKind {
    fn from_file(token: usize, found: i32) -> Result<Self, TokenizerError> {
        Ok(match found {
            0 | 1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return Err(TokenizerError::BadTokenType { token, found }),
        })
    }
}

/// The tokens with their kinds and the ids that have a role.
#[derive(Debug)]
pub(super) struct TokenTable {
    pub texts: Strings,
    pub kinds: Vec<TokenKind>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub eot: Option<u32>,
    pub unknown: Option<u32>,
    /// Sorted ids after which generation stops.
    end_of_generation: Vec<u32>,
}

impl TokenTable {
    /// Checks lengths, types and special ids; takes the texts out of `vocabulary`.
    pub fn new(vocabulary: &mut Vocabulary) -> Result<Self, TokenizerError> {
        let texts = std::mem::take(&mut vocabulary.tokens);
        let n_vocab = texts.len();
        if n_vocab == 0 {
            return Err(TokenizerError::EmptyVocabulary);
        }
        if n_vocab > i32::MAX as usize {
            return Err(TokenizerError::TooManyTokens(n_vocab));
        }
        let kinds = match vocabulary.token_types.take() {
            None => vec![TokenKind::Normal; n_vocab],
            Some(types) => {
                same_length("tokenizer.ggml.token_type", types.len(), n_vocab)?;
                let kind = |(token, &found)| TokenKind::from_file(token, found);
                types
                    .iter()
                    .enumerate()
                    .map(kind)
                    .collect::<Result<_, _>>()?
            }
        };
        let in_range = |key, id: Option<u32>| match id {
            Some(id) if id as usize >= n_vocab => {
                Err(TokenizerError::SpecialOutOfRange { key, id, n_vocab })
            }
            other => Ok(other),
        };
        let bos = in_range("tokenizer.ggml.bos_token_id", vocabulary.bos)?;
        let eos = in_range("tokenizer.ggml.eos_token_id", vocabulary.eos)?;
        let eot = in_range("tokenizer.ggml.eot_token_id", vocabulary.eot)?;
        let eom = in_range("tokenizer.ggml.eom_token_id", vocabulary.eom)?;
        let unknown = in_range("tokenizer.ggml.unknown_token_id", vocabulary.unknown)?;
        let [pad, rep, sep] = vocabulary.fim_stops;
        let stops = [
            eos,
            eot,
            eom,
            in_range("tokenizer.ggml.fim_pad_token_id", pad)?,
            in_range("tokenizer.ggml.fim_rep_token_id", rep)?,
            in_range("tokenizer.ggml.fim_sep_token_id", sep)?,
        ];
        let mut table = Self {
            texts,
            kinds,
            bos,
            eos,
            eot,
            unknown,
            end_of_generation: stops.into_iter().flatten().collect(),
        };
        table.apply_names(vocabulary.fim_stops);
        Ok(table)
    }

    /// Files often mistype turn markers as plain text; their names say what they are.
    fn apply_names(&mut self, fim_stops: [Option<u32>; 3]) {
        let named = special_names::find(&self.texts);
        for (&id, role) in &named.by_role {
            let already_set = match role {
                NamedRole::Fim(special_names::Fim::Pad) => fim_stops[0].is_some(),
                NamedRole::Fim(special_names::Fim::Repo) => fim_stops[1].is_some(),
                NamedRole::Fim(special_names::Fim::Separator) => fim_stops[2].is_some(),
                _ => false,
            };
            if already_set {
                continue;
            }
            if let Some(kind) = self.kinds.get_mut(id as usize) {
                *kind = TokenKind::Control;
            }
            if role.ends_generation() {
                self.end_of_generation.push(id);
            }
        }
        self.eot = self.eot.or(named.end_of_turn);
        self.end_of_generation
            .retain(|id| !named.not_an_end.contains(id));
        self.end_of_generation.sort_unstable();
        self.end_of_generation.dedup();
    }

    pub fn len(&self) -> usize {
        self.texts.len()
    }

    pub fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(id as usize)
    }

    pub fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.end_of_generation.binary_search(&id).is_ok()
    }

    /// Ids with their texts and kinds, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &str, TokenKind)> {
        self.texts
            .iter()
            .zip(&self.kinds)
            .enumerate()
            .map(|(id, (text, &kind))| (id as u32, text, kind))
    }
}

/// One entry a token, or an error that names the key.
pub(super) fn same_length(
    key: &'static str,
    found: usize,
    expected: usize,
) -> Result<(), TokenizerError> {
    if found == expected {
        Ok(())
    } else {
        Err(TokenizerError::LengthMismatch {
            key,
            found,
            expected,
        })
    }
}

/// Finds the id of a text. Holds ids alone: the texts are in the [`TokenTable`] that every call is given.
#[derive(Debug, Default)]
pub(super) struct TextIndex {
    ids: HashTable<u32>,
    hasher: BuildHasherDefault<DefaultHasher>,
}

impl TextIndex {
    /// An index of those tokens of `table` that `wanted` picks; of equal texts the last id counts.
    pub fn new(table: &TokenTable, wanted: impl Fn(&str, TokenKind) -> bool) -> Self {
        let hasher = BuildHasherDefault::default();
        let hash = |text: &str| hasher.hash_one(text);
        let text_of = |id: u32| table.text(id).unwrap_or_default();
        let mut ids = HashTable::with_capacity(table.len());
        for (id, text, kind) in table.iter() {
            if wanted(text, kind) {
                ids.entry(
                    hash(text),
                    |&other| text_of(other) == text,
                    |&other| hash(text_of(other)),
                )
                .and_modify(|slot| *slot = id)
                .or_insert(id);
            }
        }
        Self { ids, hasher }
    }

    /// The id of `text` in the table that the index was made of.
    pub fn get(&self, table: &TokenTable, text: &str) -> Option<u32> {
        let same = |&id: &u32| table.text(id) == Some(text);
        self.ids.find(self.hasher.hash_one(text), same).copied()
    }
}
