//! Byte-level BPE (`tokenizer.ggml.model` = `gpt2`): every byte is a printable character, words are
//! merged by rank. The merging is the `tokenizers` crate's.

use super::TokenizerError;
use super::pre::PreTokenizer;
use super::vocab::{TokenKind, TokenTable};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use tokenizers::Model;
use tokenizers::models::bpe::{BPE, Vocab};

/// Words longer than this are not remembered within one text: they hardly repeat.
const CACHED_WORD: usize = 64;

/// Where the ids of a word that was merged before lie in the output.
pub(super) type SeenWords<'t> = HashMap<&'t str, Range<usize>>;

/// The printable character of each byte, and back.
#[derive(Debug)]
pub(super) struct ByteAlphabet {
    chars: [char; 256],
    bytes: HashMap<char, u8>,
}

impl ByteAlphabet {
    /// GPT-2's alphabet: printable Latin-1 stands for itself, the other 68 bytes follow from U+0100 on.
    pub fn new() -> Self {
        let mut next = 0x100u32;
        let chars = std::array::from_fn(|byte| {
            let printable = matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
            let code = if printable {
                byte as u32
            } else {
                next += 1;
                next - 1
            };
            char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
        });
        let bytes = chars.iter().zip(0..=255u8).map(|(&c, b)| (c, b)).collect();
        Self { chars, bytes }
    }

    /// Spells `raw` in the alphabet.
    fn spell(&self, raw: &str, into: &mut String) {
        into.clear();
        into.extend(raw.bytes().map(|b| self.chars[usize::from(b)]));
    }

    /// The bytes that a token's text stands for; characters outside the alphabet stand for themselves.
    pub fn bytes_of(&self, text: &str, into: &mut Vec<u8>) {
        for c in text.chars() {
            match self.bytes.get(&c) {
                Some(&byte) => into.push(byte),
                None => into.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
    }
}

/// The encoder of a byte-level vocabulary.
#[derive(Debug)]
pub(super) struct ByteLevelBpe {
    pre: PreTokenizer,
    pub alphabet: ByteAlphabet,
    model: BPE,
    /// Bytes without a token of their own.
    missing: Vec<u8>,
    unknown: Option<u32>,
}

impl ByteLevelBpe {
    pub fn new(
        table: &TokenTable,
        merges: Vec<String>,
        pre: PreTokenizer,
    ) -> Result<Self, TokenizerError> {
        let alphabet = ByteAlphabet::new();
        // A control token is structure: no run of plain text may become one.
        let is_text = |kind| !matches!(kind, TokenKind::Control | TokenKind::Unknown);
        let vocab: Vocab = table
            .iter()
            .filter(|&(_, text, kind)| is_text(kind) && !text.is_empty())
            .map(|(id, text, _)| (text.to_owned(), id))
            .collect();
        let control: HashSet<&str> = table
            .iter()
            .filter(|&(_, _, kind)| !is_text(kind))
            .map(|(_, text, _)| text)
            .collect();
        let missing = (0..=255u8)
            .filter(|&b| !vocab.contains_key(alphabet.chars[usize::from(b)].to_string().as_str()))
            .collect();
        let rules = merge_rules(&vocab, &control, merges)?;
        let model = BPE::builder()
            .vocab_and_merges(vocab, rules)
            .cache_capacity(0)
            .ignore_merges(pre.whole_words_first)
            .build()
            .map_err(|e| TokenizerError::Library(e.to_string()))?;
        Ok(Self {
            pre,
            alphabet,
            model,
            missing,
            unknown: table.unknown,
        })
    }

    /// Appends the ids of plain text. `seen` says where the ids of earlier words lie in `ids`.
    pub fn encode<'t>(
        &self,
        text: &'t str,
        seen: &mut SeenWords<'t>,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let mut spelled = String::new();
        for range in self.pre.split(text) {
            let word = &text[range];
            if let Some(known) = seen.get(word) {
                ids.extend_from_within(known.clone());
                continue;
            }
            let from = ids.len();
            self.encode_word(word, &mut spelled, ids)?;
            if word.len() <= CACHED_WORD {
                seen.insert(word, from..ids.len());
            }
        }
        Ok(())
    }

    fn encode_word(
        &self,
        word: &str,
        spelled: &mut String,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let mut merge = |part: &str, ids: &mut Vec<u32>| {
            self.alphabet.spell(part, spelled);
            match self.model.tokenize(spelled) {
                Ok(tokens) => {
                    ids.extend(tokens.into_iter().map(|t| t.id));
                    Ok(())
                }
                Err(e) => Err(TokenizerError::Library(e.to_string())),
            }
        };
        // The crate drops characters it has no token for; text must never vanish silently.
        let lacks = |c: char| {
            c.encode_utf8(&mut [0; 4])
                .bytes()
                .any(|b| self.missing.contains(&b))
        };
        if self.missing.is_empty() || !word.contains(lacks) {
            return merge(word, ids);
        }
        let mut rest = word;
        while let Some((at, found)) = rest.char_indices().find(|&(_, c)| lacks(c)) {
            merge(&rest[..at], ids)?;
            let first = rest.as_bytes().get(at).copied().unwrap_or_default();
            ids.push(self.unknown.ok_or(TokenizerError::Unencodable(first))?);
            rest = &rest[at + found.len_utf8()..];
        }
        merge(rest, ids)
    }

    pub fn adds_bos(&self) -> bool {
        self.pre.adds_bos
    }
}

/// Checks every "left right" rule against the vocabulary before the crate sees it.
fn merge_rules(
    vocab: &Vocab,
    control: &HashSet<&str>,
    merges: Vec<String>,
) -> Result<Vec<(String, String)>, TokenizerError> {
    let mut rules = Vec::with_capacity(merges.len());
    let mut joined = String::new();
    for (index, merge) in merges.into_iter().enumerate() {
        // The left part may itself begin with a space in vocabularies that are not byte-level throughout.
        let at = merge
            .char_indices()
            .skip(1)
            .find(|&(_, c)| c == ' ')
            .map(|(at, _)| at);
        let problem = match at {
            None => Some("has no space between its two parts"),
            Some(at) => {
                let (left, right) = (&merge[..at], &merge[at + 1..]);
                joined.clear();
                joined.push_str(left);
                joined.push_str(right);
                if vocab.contains_key(left) && vocab.contains_key(right) && !right.is_empty() {
                    if vocab.contains_key(joined.as_str()) {
                        rules.push((left.to_owned(), right.to_owned()));
                        None
                    } else if control.contains(joined.as_str()) {
                        None
                    } else {
                        Some("makes a token that the vocabulary does not have")
                    }
                } else if control.contains(left) || control.contains(right) {
                    None
                } else {
                    Some("joins a token that the vocabulary does not have")
                }
            }
        };
        if let Some(problem) = problem {
            return Err(TokenizerError::BadMerge {
                index,
                merge,
                problem,
            });
        }
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_is_gpt2s() {
        let alphabet = ByteAlphabet::new();
        assert_eq!(alphabet.chars[usize::from(b' ')], 'Ġ');
        assert_eq!(alphabet.chars[usize::from(b'\n')], 'Ċ');
        assert_eq!(alphabet.bytes.len(), 256);
        let mut bytes = Vec::new();
        alphabet.bytes_of("ĠParis", &mut bytes);
        assert_eq!(bytes, b" Paris");
    }
}
