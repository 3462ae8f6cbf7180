//! Tokens that are matched whole before the text between them is encoded.

use super::vocab::{TokenKind, TokenTable};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A stretch of input: text still to encode, or a token already found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fragment<'t> {
    Text(&'t str),
    Token(u32),
}

/// Finds special tokens in text, the longest first, as llama.cpp does.
#[derive(Debug)]
pub(super) struct SpecialTokens {
    /// User-defined tokens, which always match.
    always: Matcher,
    /// Those and the control tokens.
    with_control: Matcher,
    /// Tokens that swallow the whitespace after them.
    strips_after: HashSet<u32>,
}

impl SpecialTokens {
    pub fn new(table: &TokenTable, model_name: Option<&str>) -> Self {
        let user_defined = |kind| kind == TokenKind::UserDefined;
        let special = |kind| {
            matches!(
                kind,
                TokenKind::UserDefined | TokenKind::Control | TokenKind::Unknown
            )
        };
        let mut strips_after = HashSet::new();
        // The Phi-3 family was trained with its markers eating the white space that follows. Nothing in
        // the metadata says so but the model's name.
        let name = model_name.unwrap_or_default().to_lowercase();
        if name.contains("phi-3") || name.contains("phi3") {
            let keeps = ["<unk>", "<s>", "<|endoftext|>"];
            let strips = |&(_, text, kind): &(u32, &str, TokenKind)| {
                (special(kind) || text == "</s>") && !keeps.contains(&text)
            };
            strips_after = table.iter().filter(strips).map(|(id, _, _)| id).collect();
        }
        Self {
            always: Matcher::new(table, user_defined),
            with_control: Matcher::new(table, special),
            strips_after,
        }
    }

    /// Cuts `text` at its special tokens.
    pub fn partition<'t>(&self, text: &'t str, parse_special: bool) -> Vec<Fragment<'t>> {
        let matcher = if parse_special {
            &self.with_control
        } else {
            &self.always
        };
        let mut fragments = Vec::new();
        if !text.is_empty() {
            fragments.push(Fragment::Text(text));
        }
        for length in matcher.lengths_in(text.as_bytes()) {
            let mut finer = Vec::with_capacity(fragments.len());
            for fragment in fragments {
                match fragment {
                    Fragment::Text(text) => self.cut(length, text, &mut finer),
                    token => finer.push(token),
                }
            }
            fragments = finer;
        }
        fragments
    }

    /// Cuts one fragment at all tokens of one length.
    fn cut<'t>(&self, length: &OneLength, text: &'t str, into: &mut Vec<Fragment<'t>>) {
        let bytes = text.as_bytes();
        let (mut done, mut at) = (0, 0);
        while at + length.len <= bytes.len() {
            let Some(id) = length.token_at(bytes, at) else {
                at += 1;
                continue;
            };
            if at > done {
                into.push(Fragment::Text(&text[done..at]));
            }
            into.push(Fragment::Token(id));
            at += length.len;
            if self.strips_after.contains(&id) {
                let space = |b: &&u8| matches!(b, b' ' | b'\t'..=b'\r');
                at += bytes.iter().skip(at).take_while(space).count();
            }
            done = at;
        }
        if done < bytes.len() {
            into.push(Fragment::Text(&text[done..]));
        }
    }
}

/// A set of token texts, grouped by length.
#[derive(Debug)]
struct Matcher {
    /// Longest first.
    lengths: Vec<OneLength>,
    starts: PairSet,
}

/// All token texts of one length in bytes.
#[derive(Debug)]
struct OneLength {
    len: usize,
    starts: PairSet,
    last_bytes: [bool; 256],
    ids: HashMap<Box<[u8]>, u32>,
}

/// The first two bytes of a set of texts (a one-byte text counts with every second byte).
#[derive(Debug)]
struct PairSet(Vec<u64>);

impl PairSet {
    fn new() -> Self {
        Self(vec![0; 65536 / 64])
    }

    fn insert(&mut self, text: &[u8]) {
        match *text {
            [] => {}
            [first] => (0..=255).for_each(|second| self.set(first, second)),
            [first, second, ..] => self.set(first, second),
        }
    }

    fn set(&mut self, first: u8, second: u8) {
        let bit = usize::from(first) << 8 | usize::from(second);
        self.0[bit / 64] |= 1 << (bit % 64);
    }

    fn may_start(&self, bytes: &[u8], at: usize) -> bool {
        let Some(&first) = bytes.get(at) else {
            return false;
        };
        // At the very end only one-byte texts remain, and those are set for every second byte.
        let second = bytes.get(at + 1).copied().unwrap_or(0);
        let bit = usize::from(first) << 8 | usize::from(second);
        self.0[bit / 64] >> (bit % 64) & 1 == 1
    }
}

impl OneLength {
    fn token_at(&self, bytes: &[u8], at: usize) -> Option<u32> {
        let candidate = bytes.get(at..at + self.len)?;
        let last = *candidate.last()?;
        if !self.starts.may_start(bytes, at) || !self.last_bytes[usize::from(last)] {
            return None;
        }
        self.ids.get(candidate).copied()
    }
}

impl Matcher {
    fn new(table: &TokenTable, wanted: impl Fn(TokenKind) -> bool) -> Self {
        let mut by_length: BTreeMap<usize, OneLength> = BTreeMap::new();
        let mut starts = PairSet::new();
        for (id, text, kind) in table.iter() {
            if !wanted(kind) || text.is_empty() {
                continue;
            }
            let text = text.as_bytes();
            let group = by_length.entry(text.len()).or_insert_with(|| OneLength {
                len: text.len(),
                starts: PairSet::new(),
                last_bytes: [false; 256],
                ids: HashMap::new(),
            });
            starts.insert(text);
            group.starts.insert(text);
            if let Some(&last) = text.last() {
                group.last_bytes[usize::from(last)] = true;
            }
            group.ids.insert(text.into(), id);
        }
        let lengths = by_length.into_values().rev().collect();
        Self { lengths, starts }
    }

    /// The lengths that occur in a text at all, longest first: one pass here saves one pass a length.
    fn lengths_in(&self, bytes: &[u8]) -> Vec<&OneLength> {
        let mut absent: Vec<&OneLength> = self.lengths.iter().collect();
        let mut present = Vec::new();
        for at in 0..bytes.len() {
            if absent.is_empty() {
                break;
            }
            if !self.starts.may_start(bytes, at) {
                continue;
            }
            absent.retain(|length| {
                let found = length.token_at(bytes, at).is_some();
                if found {
                    present.push(*length);
                }
                !found
            });
        }
        present.sort_unstable_by_key(|length| std::cmp::Reverse(length.len));
        present
    }
}
