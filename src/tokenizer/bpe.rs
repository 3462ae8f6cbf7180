//! Byte-level BPE (`tokenizer.ggml.model` = `gpt2`): every byte is a printable character, words are
//! merged by rank.
//!
//! The merging was the `tokenizers` crate's. It keeps every text twice and every rule's texts while it is
//! built: with SmolLM2 10 MiB of memory and half of the time to the first token.

use super::TokenizerError;
use super::pre::PreTokenizer;
use super::vocab::{TextIndex, TokenKind, TokenTable};
use crate::gguf::Strings;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::ops::Range;

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
    /// The token of each byte.
    bytes: [Option<u32>; 256],
    /// Which neighbours join, by their ids.
    merges: HashMap<(u32, u32), Merge>,
    /// Words that are tokens are not merged; only where the pre-tokenizer says so.
    whole_words: Option<TextIndex>,
    unknown: Option<u32>,
}

/// A rule: the lower its rank, the earlier it applies.
#[derive(Debug, Clone, Copy)]
struct Merge {
    rank: u32,
    id: u32,
}

/// A token of the word being merged, and its neighbours; merged into its left one it is gone.
struct Symbol {
    id: Option<u32>,
    prev: usize,
    next: usize,
}

/// A control token is structure: no run of plain text may become one.
fn is_text(text: &str, kind: TokenKind) -> bool {
    !matches!(kind, TokenKind::Control | TokenKind::Unknown) && !text.is_empty()
}

impl ByteLevelBpe {
    pub fn new(
        table: &TokenTable,
        merges: &Strings,
        pre: PreTokenizer,
    ) -> Result<Self, TokenizerError> {
        let alphabet = ByteAlphabet::new();
        let vocab = TextIndex::new(table, is_text);
        let bytes = alphabet
            .chars
            .map(|c| vocab.get(table, c.encode_utf8(&mut [0; 4])));
        Ok(Self {
            bytes,
            merges: merge_rules(table, &vocab, merges)?,
            whole_words: pre.whole_words_first.then_some(vocab),
            pre,
            alphabet,
            unknown: table.unknown,
        })
    }

    /// Appends the ids of plain text. `seen` says where the ids of earlier words lie in `ids`.
    pub fn encode<'t>(
        &self,
        table: &TokenTable,
        text: &'t str,
        seen: &mut SeenWords<'t>,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let mut scratch = Scratch::default();
        for range in self.pre.split(text) {
            let word = &text[range];
            if let Some(known) = seen.get(word) {
                ids.extend_from_within(known.clone());
                continue;
            }
            let from = ids.len();
            self.encode_word(table, word, &mut scratch, ids)?;
            if word.len() <= CACHED_WORD {
                seen.insert(word, from..ids.len());
            }
        }
        Ok(())
    }

    /// Characters with a byte that has no token become the unknown token, and what is between them is merged.
    fn encode_word(
        &self,
        table: &TokenTable,
        word: &str,
        scratch: &mut Scratch,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let token = |b: u8| self.bytes.get(usize::from(b)).copied().flatten();
        let lacks = |c: char| {
            let mut buffer = [0; 4];
            c.encode_utf8(&mut buffer)
                .bytes()
                .any(|b| token(b).is_none())
        };
        let mut rest = word;
        while let Some((at, found)) = rest.char_indices().find(|&(_, c)| lacks(c)) {
            self.merge(table, &rest[..at], scratch, ids);
            let first = rest.as_bytes().get(at).copied().unwrap_or_default();
            ids.push(self.unknown.ok_or(TokenizerError::Unencodable(first))?);
            rest = &rest[at + found.len_utf8()..];
        }
        self.merge(table, rest, scratch, ids);
        Ok(())
    }

    /// Joins neighbours, the lowest rank first and of equal ranks the leftmost, until no rule applies.
    fn merge(&self, table: &TokenTable, part: &str, scratch: &mut Scratch, ids: &mut Vec<u32>) {
        if let Some(vocab) = &self.whole_words {
            self.alphabet.spell(part, &mut scratch.spelled);
            if let Some(id) = vocab.get(table, &scratch.spelled) {
                ids.push(id);
                return;
            }
        }
        let Scratch { symbols, queue, .. } = scratch;
        symbols.clear();
        queue.clear();
        for (i, b) in part.bytes().enumerate() {
            symbols.push(Symbol {
                id: self.bytes.get(usize::from(b)).copied().flatten(),
                prev: i.wrapping_sub(1),
                next: i + 1,
            });
        }
        for right in 1..symbols.len() {
            queue.extend(self.candidate(symbols, right - 1, right));
        }
        while let Some(Reverse((rank, left))) = queue.pop() {
            let Some(right) = symbols.get(left).map(|s| s.next) else {
                continue;
            };
            // One of the two may have been merged with something else since.
            let Some(merge) = self.rule(symbols, left, right).filter(|m| m.rank == rank) else {
                continue;
            };
            let after = symbols.get(right).map_or(usize::MAX, |s| s.next);
            if let Some(s) = symbols.get_mut(right) {
                s.id = None;
            }
            let mut before = usize::MAX;
            if let Some(s) = symbols.get_mut(left) {
                (s.id, s.next) = (Some(merge.id), after);
                before = s.prev;
            }
            if let Some(s) = symbols.get_mut(after) {
                s.prev = left;
            }
            queue.extend(self.candidate(symbols, left, after));
            queue.extend(self.candidate(symbols, before, left));
        }
        ids.extend(symbols.iter().filter_map(|s| s.id));
    }

    fn rule(&self, symbols: &[Symbol], left: usize, right: usize) -> Option<Merge> {
        let pair = (symbols.get(left)?.id?, symbols.get(right)?.id?);
        self.merges.get(&pair).copied()
    }

    fn candidate(
        &self,
        symbols: &[Symbol],
        left: usize,
        right: usize,
    ) -> Option<Reverse<(u32, usize)>> {
        Some(Reverse((self.rule(symbols, left, right)?.rank, left)))
    }

    pub fn adds_bos(&self) -> bool {
        self.pre.adds_bos
    }
}

/// What one call of [`ByteLevelBpe::encode`] keeps from word to word.
#[derive(Default)]
struct Scratch {
    spelled: String,
    symbols: Vec<Symbol>,
    /// Rank and left symbol of possible merges.
    queue: BinaryHeap<Reverse<(u32, usize)>>,
}

/// Checks every "left right" rule against the vocabulary. Rules of control tokens are left out; of two for the same
/// pair the first counts.
fn merge_rules(
    table: &TokenTable,
    vocab: &TextIndex,
    merges: &Strings,
) -> Result<HashMap<(u32, u32), Merge>, TokenizerError> {
    let control: HashSet<&str> = table
        .iter()
        .filter(|&(_, _, kind)| matches!(kind, TokenKind::Control | TokenKind::Unknown))
        .map(|(_, text, _)| text)
        .collect();
    let mut rules = HashMap::with_capacity(merges.len());
    let mut joined = String::new();
    for (index, merge) in merges.iter().enumerate() {
        let problem = |problem| TokenizerError::BadMerge {
            index,
            merge: merge.to_owned(),
            problem,
        };
        // The left part may itself begin with a space in vocabularies that are not byte-level throughout.
        let at = merge
            .char_indices()
            .skip(1)
            .find(|&(_, c)| c == ' ')
            .map(|(at, _)| at);
        let Some(at) = at else {
            return Err(problem("has no space between its two parts"));
        };
        let (left, right) = (&merge[..at], &merge[at + 1..]);
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        match (vocab.get(table, left), vocab.get(table, right)) {
            (Some(l), Some(r)) => match vocab.get(table, &joined) {
                Some(id) => {
                    let rank = u32::try_from(index).unwrap_or(u32::MAX);
                    rules.entry((l, r)).or_insert(Merge { rank, id });
                }
                None if control.contains(joined.as_str()) => {}
                None => return Err(problem("makes a token that the vocabulary does not have")),
            },
            _ if control.contains(left) || control.contains(right) => {}
            _ => return Err(problem("joins a token that the vocabulary does not have")),
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
