//! Pre-tokenizers: how a text is cut into words before byte-pair merging, by `tokenizer.ggml.pre`.
//!
//! The ways of cutting are in [`super::pre_families`]. Their patterns have no look-ahead and run in linear time; the white space
//! that a look-ahead would leave to the next word is handed back here.

use super::TokenizerError;
use super::pre_digits::Triples;
use super::pre_families::{FAMILIES, Step, Whitespace};
use std::ops::Range;
use tokenizers::utils::SysRegex;

/// The name that a file without `tokenizer.ggml.pre` is read as.
const WHEN_ABSENT: &str = "default";

/// All names that can run, comma-separated.
fn supported() -> String {
    let names: Vec<&str> = FAMILIES.iter().flat_map(|f| f.names).copied().collect();
    names.join(", ")
}

/// A step of [`super::pre_families`], ready to run.
#[derive(Debug)]
enum Compiled {
    Pattern(SysRegex, Whitespace),
    Digits(Triples),
}

/// A compiled pre-tokenizer.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    steps: Vec<Compiled>,
    pub whole_words_first: bool,
    pub adds_bos: bool,
}

impl PreTokenizer {
    /// The pre-tokenizer of that name; an unknown one is refused, since guessing changes every token.
    pub fn named(name: Option<&str>) -> Result<Self, TokenizerError> {
        let name = name.unwrap_or(WHEN_ABSENT);
        let Some(family) = FAMILIES.iter().find(|f| f.names.contains(&name)) else {
            return Err(TokenizerError::UnknownPre {
                found: name.to_owned(),
                supported: supported(),
            });
        };
        let compile = |step: &Step| match *step {
            Step::Digits(triples) => Ok(Compiled::Digits(triples)),
            Step::Pattern(pattern, whitespace) => match SysRegex::new(pattern) {
                Ok(regex) => Ok(Compiled::Pattern(regex, whitespace)),
                Err(e) => Err(TokenizerError::Library(e.to_string())),
            },
        };
        let steps = family.steps.iter().map(compile).collect::<Result<_, _>>()?;
        Ok(Self {
            steps,
            whole_words_first: family.whole_words_first,
            adds_bos: family.adds_bos,
        })
    }

    /// Cuts `text` into words that cover it, in order. Every step cuts the pieces of the one before.
    pub fn split(&self, text: &str) -> Vec<Range<usize>> {
        let mut pieces: Vec<Range<usize>> = Vec::new();
        if !text.is_empty() {
            pieces.push(0..text.len());
        }
        for step in &self.steps {
            let mut finer = Vec::with_capacity(pieces.len());
            for piece in pieces {
                let start = piece.start;
                let emit = |r: Range<usize>| finer.push(start + r.start..start + r.end);
                match step {
                    Compiled::Pattern(regex, rule) => split(regex, *rule, &text[piece], emit),
                    Compiled::Digits(triples) => triples.split(&text[piece], emit),
                }
            }
            pieces = finer;
        }
        pieces
    }
}

/// Matches and the gaps between them.
fn split(regex: &SysRegex, rule: Whitespace, text: &str, mut emit: impl FnMut(Range<usize>)) {
    let mut done = 0;
    'from_here: while done < text.len() {
        // The patterns look neither behind nor at line starts, so searching a tail is searching the text.
        let base = done;
        for (start, end) in regex.find_iter(&text[base..]) {
            let (start, end) = (base + start, base + end);
            if start > done {
                emit(done..start);
            }
            let kept = end - handed_back(rule, &text[start..end], end == text.len());
            let mut from = start;
            for len in cut_run(rule, &text[start..kept]) {
                emit(from..from + len);
                from += len;
            }
            if from < kept {
                emit(from..kept);
            }
            done = kept;
            if kept < end {
                continue 'from_here;
            }
        }
        if done < text.len() {
            emit(done..text.len());
        }
        return;
    }
}

/// Whether a match is white space of which the last character may belong to the next word.
fn is_loose(rule: Whitespace, matched: &str) -> bool {
    let whole_lines = rule != Whitespace::HandBack && matched.ends_with(['\r', '\n']);
    rule != Whitespace::Keep && !whole_lines && matched.chars().all(char::is_whitespace)
}

/// Bytes at the end of a matched whitespace run that belong to the next word.
fn handed_back(rule: Whitespace, matched: &str, at_end: bool) -> usize {
    if at_end || !is_loose(rule, matched) {
        return 0;
    }
    match matched.chars().next_back() {
        Some(last) if last.len_utf8() < matched.len() => last.len_utf8(),
        _ => 0,
    }
}

/// The longest piece of white space under [`Whitespace::PowersOfTwo`] is 512 characters.
const LARGEST_RUN_LOG2: u32 = 9;

/// The lengths in bytes into which a whitespace run is cut; none where it stays whole.
fn cut_run(rule: Whitespace, matched: &str) -> Vec<usize> {
    let mut lengths = Vec::new();
    if rule != Whitespace::PowersOfTwo || !is_loose(rule, matched) {
        return lengths;
    }
    let chars: Vec<usize> = matched.chars().map(char::len_utf8).collect();
    let mut rest = chars.as_slice();
    while !rest.is_empty() {
        let largest = 1 << rest.len().ilog2().min(LARGEST_RUN_LOG2);
        let (run, tail) = rest.split_at(largest);
        lengths.push(run.iter().sum());
        rest = tail;
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::OnceLock;

    fn words<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
        let pre = PreTokenizer::named(Some(name)).unwrap();
        pre.split(text).into_iter().map(|r| &text[r]).collect()
    }

    #[test]
    fn the_last_space_goes_to_the_next_word() {
        assert_eq!(words("gpt-2", "a   b"), ["a", "  ", " b"]);
        assert_eq!(
            words("gpt-2", "a\n\n=b  "),
            ["a", "\n", "\n", "=", "b", "  "]
        );
        assert_eq!(words("llama-bpe", "a  \n\n  b"), ["a", "  \n\n", " ", " b"]);
        assert_eq!(words("qwen2", "it'S 123"), ["it", "'S", " ", "1", "2", "3"]);
    }

    #[test]
    fn digits_stand_alone_where_the_family_says_so() {
        assert_eq!(words("smollm", "x 2024"), ["x", " ", "2", "0", "2", "4"]);
        assert_eq!(words("gpt-2", "x 2024"), ["x", " 2024"]);
        assert_eq!(words("llama-bpe", "12345"), ["123", "45"]);
    }

    #[test]
    fn a_long_run_of_spaces_is_one_word() {
        let text = format!("{}x", " ".repeat(3_000_000));
        assert_eq!(words("llama-bpe", &text).len(), 2);
        assert_eq!(words("gpt-2", &text).len(), 2);
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let message = PreTokenizer::named(Some("klingon"))
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("klingon") && message.contains("smollm"),
            "{message}"
        );
    }

    /// One of each family, compiled once.
    fn each_family() -> &'static [(&'static str, PreTokenizer)] {
        static COMPILED: OnceLock<Vec<(&str, PreTokenizer)>> = OnceLock::new();
        COMPILED.get_or_init(|| {
            let first = FAMILIES.iter().map(|f| f.names[0]);
            first
                .map(|name| (name, PreTokenizer::named(Some(name)).unwrap()))
                .collect()
        })
    }

    #[test]
    fn white_space_is_cut_in_powers_of_two() {
        let lengths = |text: &str| -> Vec<usize> {
            let words = words("jais-2", text).into_iter();
            words.map(|w| w.chars().count()).collect()
        };
        let spaces = |n| " ".repeat(n);
        assert_eq!(lengths(&format!("{}x", spaces(1033))), [512, 512, 8, 2]);
        assert_eq!(lengths(&spaces(15)), [8, 4, 2, 1]);
        assert_eq!(
            lengths(&format!("{}\n{}1", spaces(5), spaces(6))),
            [6, 4, 1, 1, 1]
        );
    }

    /// None of these would finish if a family needed quadratic time.
    #[test]
    fn long_runs_of_anything_are_cut_in_linear_time() {
        for unit in [
            " ", "\n", "a", "a ", "A", "1", "1 ", "'", "\u{301}", "中", "a\n", " \n", "!", "aB",
            "\t ",
        ] {
            let text = unit.repeat(300_000 / unit.len());
            for (name, pre) in each_family() {
                let covered: usize = pre.split(&text).iter().map(Range::len).sum();
                assert_eq!(covered, text.len(), "{name}: {unit:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn words_cover_the_text(text in "(\\PC|\\s|[0-9 \n])*") {
            for (name, pre) in each_family() {
                let words: Vec<&str> = pre.split(&text).into_iter().map(|r| &text[r]).collect();
                prop_assert_eq!(words.concat(), text.clone(), "{}", name);
            }
        }
    }
}
