//! SentencePiece-style BPE (`tokenizer.ggml.model` = `llama`): spaces are written `▁`, the neighbouring
//! pair whose joined text has the highest score is merged first, and what has no token falls back to bytes.
//!
//! This merger is ours and not the `tokenizers` crate's, for two reasons. The crate ranks pairs, so equal
//! scores and the several splits of one token are ordered by an arbitrary rank where the algorithm says
//! leftmost first (`aaaa` with the token `aa` + `a` shows it). And it would need a rule for every two-way
//! split, 513,511 for Gemma 3, where Qwen2's 151,387 already take most of that vocabulary's loading time.

use super::TokenizerError;
use super::vocab::{TextIndex, TokenKind, TokenTable, same_length};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::ops::Range;

/// How a space is written in the vocabulary.
pub(super) const SPACE: char = '▁';
/// Words longer than this are not remembered within one text: they hardly repeat.
const CACHED_WORD: usize = 64;
/// End of the linked list of symbols.
const NONE: u32 = u32::MAX;

/// The encoder of a SentencePiece-style vocabulary.
#[derive(Debug)]
pub(super) struct SentencePiece {
    ids: TextIndex,
    scores: Vec<f32>,
    byte_tokens: Vec<Option<u32>>,
    unknown: Option<u32>,
    /// Characters that stand directly before a `▁` inside some token: only there can a merge cross into
    /// a new word, so everywhere else words can be merged one by one.
    before_space: HashSet<char>,
}

/// A run of text that is one token, or one character that may become part of one.
struct Symbol {
    start: u32,
    len: u32,
    prev: u32,
    next: u32,
}

/// A possible merge of two neighbouring symbols.
struct Candidate {
    score: f32,
    left: u32,
    right: u32,
    len: u32,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score
            .total_cmp(&other.score)
            .then_with(|| other.left.cmp(&self.left))
    }
}
impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Candidate {}

/// What one call of `Tokenizer::encode` keeps from word to word.
#[derive(Default)]
pub(super) struct Scratch {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Candidate>,
    /// Where the ids of a word that was merged before lie in the output.
    seen: HashMap<Box<str>, Range<usize>>,
}

impl SentencePiece {
    pub fn new(table: &TokenTable, scores: Option<Vec<f32>>) -> Result<Self, TokenizerError> {
        let scores = scores.ok_or(TokenizerError::MissingKey {
            key: "tokenizer.ggml.scores",
            model: "llama",
        })?;
        same_length("tokenizer.ggml.scores", scores.len(), table.len())?;
        if let Some(bad) = scores.iter().position(|s| s.is_nan()) {
            return Err(TokenizerError::BadScore(bad));
        }
        // Only these are text; a control token must never come out of merging.
        let is_text = |text: &str, kind| {
            matches!(kind, TokenKind::Normal | TokenKind::UserDefined) && !text.is_empty()
        };
        let ids = TextIndex::new(table, is_text);
        let mut byte_tokens = vec![None; 256];
        let mut before_space = HashSet::new();
        for (id, text, kind) in table.iter() {
            match kind {
                TokenKind::Byte => {
                    if let Some(slot) =
                        byte_value(text).and_then(|b| byte_tokens.get_mut(usize::from(b)))
                    {
                        *slot = Some(id);
                    }
                }
                kind if is_text(text, kind) => note_inner_spaces(text, &mut before_space),
                _ => {}
            }
        }
        for (byte, slot) in (0..=127u8).zip(&mut byte_tokens) {
            *slot = slot.or_else(|| ids.get(table, char::from(byte).encode_utf8(&mut [0; 4])));
        }
        Ok(Self {
            ids,
            scores,
            byte_tokens,
            unknown: table.unknown,
            before_space,
        })
    }

    /// Appends the ids of plain text; `prefix` puts a space in front, as `add_space_prefix` asks.
    pub fn encode(
        &self,
        table: &TokenTable,
        text: &str,
        prefix: bool,
        scratch: &mut Scratch,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let mut escaped = String::with_capacity(text.len() + text.len() / 2 + SPACE.len_utf8());
        if prefix {
            escaped.push(SPACE);
        }
        escaped.extend(text.chars().map(|c| if c == ' ' { SPACE } else { c }));
        if u32::try_from(escaped.len()).is_err() {
            return Err(TokenizerError::TextTooLong(text.len()));
        }
        let mut rest = escaped.as_str();
        while !rest.is_empty() {
            let (word, tail) = rest.split_at(self.word_end(rest));
            rest = tail;
            if let Some(known) = scratch.seen.get(word) {
                ids.extend_from_within(known.clone());
                continue;
            }
            let from = ids.len();
            self.merge(table, word, scratch, ids)?;
            if word.len() <= CACHED_WORD {
                scratch.seen.insert(word.into(), from..ids.len());
            }
        }
        Ok(())
    }

    /// Where the first word of `text` ends: the first `▁` that no token can reach across.
    fn word_end(&self, text: &str) -> usize {
        let crosses = |at: usize| match text[..at].chars().next_back() {
            Some(before) => self.before_space.contains(&before),
            None => true,
        };
        let mut starts = text.match_indices(SPACE).map(|(at, _)| at);
        starts.find(|&at| !crosses(at)).unwrap_or(text.len())
    }

    fn merge(
        &self,
        table: &TokenTable,
        word: &str,
        scratch: &mut Scratch,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let Scratch { symbols, queue, .. } = scratch;
        symbols.clear();
        queue.clear();
        for (start, c) in word.char_indices() {
            let at = symbols.len() as u32;
            symbols.push(Symbol {
                start: start as u32,
                len: c.len_utf8() as u32,
                prev: at.wrapping_sub(1),
                next: at + 1,
            });
        }
        if let Some(last) = symbols.last_mut() {
            last.next = NONE;
        }
        for right in 1..symbols.len() as u32 {
            queue.extend(self.candidate(table, word, symbols, right - 1, right));
        }
        while let Some(best) = queue.pop() {
            let (left, right) = (best.left as usize, best.right as usize);
            // A symbol that was merged since has another length (or none), and the candidate is stale.
            if symbols[left].len == 0
                || symbols[right].len == 0
                || symbols[left].len + symbols[right].len != best.len
            {
                continue;
            }
            symbols[left].len = best.len;
            symbols[right].len = 0;
            let (prev, next) = (symbols[left].prev, symbols[right].next);
            symbols[left].next = next;
            if next != NONE {
                symbols[next as usize].prev = best.left;
                queue.extend(self.candidate(table, word, symbols, best.left, next));
            }
            if prev != NONE {
                queue.extend(self.candidate(table, word, symbols, prev, best.left));
            }
        }
        let mut at = 0u32;
        while let Some(symbol) = symbols.get(at as usize) {
            let text = &word[symbol.start as usize..(symbol.start + symbol.len) as usize];
            match self.ids.get(table, text) {
                Some(id) => ids.push(id),
                None => self.fall_back(text, ids)?,
            }
            at = symbol.next;
        }
        Ok(())
    }

    fn candidate(
        &self,
        table: &TokenTable,
        word: &str,
        symbols: &[Symbol],
        left: u32,
        right: u32,
    ) -> Option<Candidate> {
        let (a, b) = (symbols.get(left as usize)?, symbols.get(right as usize)?);
        let len = a.len + b.len;
        let id = self
            .ids
            .get(table, &word[a.start as usize..(a.start + len) as usize])?;
        let score = *self.scores.get(id as usize)?;
        Some(Candidate {
            score,
            left,
            right,
            len,
        })
    }

    fn fall_back(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let from = ids.len();
        for byte in text.bytes() {
            match self.byte_tokens.get(usize::from(byte)).copied().flatten() {
                Some(id) => ids.push(id),
                None => {
                    ids.truncate(from);
                    ids.push(self.unknown.ok_or(TokenizerError::Unencodable(byte))?);
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// The byte of a `<0xNN>` token.
pub(super) fn byte_value(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let two_digits = hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    two_digits
        .then(|| u8::from_str_radix(hex, 16).ok())
        .flatten()
}

fn note_inner_spaces(text: &str, before_space: &mut HashSet<char>) {
    for (at, _) in text.match_indices(SPACE) {
        before_space.extend(text[..at].chars().next_back());
    }
}
