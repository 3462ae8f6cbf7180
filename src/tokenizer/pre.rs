//! Pre-tokenizers: how a text is cut into words before byte-pair merging, by `tokenizer.ggml.pre`.
//!
//! The patterns are those that the model authors publish in `tokenizer.json`. Each one is written
//! without its look-ahead `\s+(?!\S)` ("leave the last space to the next word"): the backtracking that
//! needs gives up on a run of a million spaces, so [`split`] hands the last character back itself, which
//! leaves a plain linear-time regular expression.

use super::TokenizerError;
use std::ops::Range;
use tokenizers::utils::SysRegex;

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";
const LLAMA3: &str = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const QWEN2: &str = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const QWEN35: &str = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
// llama.cpp takes every letter outside ASCII for both upper and lower case here, and so does this.
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{L}--[a-z]]*[\p{L}--[A-Z]]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\r\n\p{L}\p{N}]?[\p{L}--[a-z]]+[\p{L}--[A-Z]]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{L}--[a-z]]*[\p{L}--[A-Z]]+|[^\r\n\p{L}\p{N}]?[\p{L}--[a-z]]+[\p{L}--[A-Z]]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+";
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+"##;
/// U+0800 to U+9FA5 and U+AC00 to U+D7FF without the white space in them.
const CODER_SCRIPTS: &str = r"[\u{0800}-\u{167F}\u{1681}-\u{1FFF}\u{200B}-\u{2027}\u{202A}-\u{202E}\u{2030}-\u{205E}\u{2060}-\u{2FFF}\u{3001}-\u{9FA5}\u{AC00}-\u{D7FF}]+";
const DIGIT: &str = r"\p{N}";
const DIGITS: &str = r"\p{N}+";
const DIGIT_TRIPLET: &str = r"[0-9][0-9][0-9]";

/// How a pattern treats the whitespace it matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whitespace {
    /// The pattern has no whitespace look-ahead.
    Keep,
    /// Before a word, the last whitespace character belongs to the word.
    HandBack,
    /// As `HandBack`, but a run that ends in a line break is whole.
    HandBackAfterLines,
}

use Whitespace::{HandBack, HandBackAfterLines, Keep};

/// A way of cutting text, with the vocabulary habits that go with it.
struct Family {
    names: &'static [&'static str],
    patterns: &'static [(&'static str, Whitespace)],
    /// A word that is a token as a whole is taken whole, whatever the merges say.
    whole_words_first: bool,
    /// Whether a beginning-of-text token is added when the file does not say.
    adds_bos: bool,
}

const FAMILIES: &[Family] = &[
    Family {
        names: &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "exaone4",
            "gigachat",
            "mellum",
            "granite-docling",
        ],
        patterns: &[(GPT2, HandBack)],
        whole_words_first: false,
        adds_bos: false,
    },
    Family {
        names: &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
        ],
        patterns: &[(DIGIT, Keep), (GPT2, HandBack)],
        whole_words_first: false,
        adds_bos: false,
    },
    Family {
        names: &[
            "qwen2",
            "deepseek-r1-qwen",
            "stablelm2",
            "hunyuan",
            "megrez",
            "kormo",
        ],
        patterns: &[(QWEN2, HandBackAfterLines)],
        whole_words_first: false,
        adds_bos: false,
    },
    Family {
        names: &["qwen35"],
        patterns: &[(QWEN35, HandBackAfterLines)],
        whole_words_first: false,
        adds_bos: false,
    },
    Family {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "lfm2",
        ],
        patterns: &[(LLAMA3, HandBackAfterLines)],
        whole_words_first: true,
        adds_bos: true,
    },
    Family {
        names: &["smaug-bpe", "dbrx", "chatglm-bpe", "glm4"],
        patterns: &[(LLAMA3, HandBackAfterLines)],
        whole_words_first: false,
        adds_bos: false,
    },
    Family {
        names: &["gpt-4o", "llama4", "kanana2", "minimax-m2"],
        patterns: &[(GPT4O, HandBackAfterLines)],
        whole_words_first: false,
        adds_bos: false,
    },
    Family {
        names: &["tekken"],
        patterns: &[(TEKKEN, HandBackAfterLines)],
        whole_words_first: true,
        adds_bos: true,
    },
    Family {
        names: &["deepseek-coder"],
        patterns: &[
            (r"[\r\n]", Keep),
            (r"\s?\p{L}+", Keep),
            (r"\s?\p{P}+", Keep),
            (CODER_SCRIPTS, Keep),
            (DIGIT, Keep),
        ],
        whole_words_first: false,
        adds_bos: false,
    },
    Family {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        patterns: &[
            (r"\p{N}{1,3}", Keep),
            (
                r"[\u{4E00}-\u{9FA5}\u{3040}-\u{309F}\u{30A0}-\u{30FF}]+",
                Keep,
            ),
            (DEEPSEEK3, HandBackAfterLines),
        ],
        whole_words_first: false,
        adds_bos: false,
    },
    Family {
        names: &["falcon"],
        patterns: &[
            (r"[\p{P}\$\+<=>\^~\|`]+", Keep),
            (GPT2, HandBack),
            (DIGIT_TRIPLET, Keep),
        ],
        whole_words_first: false,
        adds_bos: false,
    },
    Family {
        names: &["default"],
        patterns: &[
            (r"[\p{P}\$\+<=>\^~\|]+", Keep),
            (GPT2, HandBack),
            (DIGITS, Keep),
            (DIGIT_TRIPLET, Keep),
        ],
        whole_words_first: false,
        adds_bos: false,
    },
];

/// The name that a file without `tokenizer.ggml.pre` is read as.
const WHEN_ABSENT: &str = "default";

/// All names that can run, comma-separated.
fn supported() -> String {
    let names: Vec<&str> = FAMILIES.iter().flat_map(|f| f.names).copied().collect();
    names.join(", ")
}

/// A compiled pre-tokenizer.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    patterns: Vec<(SysRegex, Whitespace)>,
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
        let compile = |&(pattern, whitespace)| match SysRegex::new(pattern) {
            Ok(regex) => Ok((regex, whitespace)),
            Err(e) => Err(TokenizerError::Library(e.to_string())),
        };
        let patterns = family
            .patterns
            .iter()
            .map(compile)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            patterns,
            whole_words_first: family.whole_words_first,
            adds_bos: family.adds_bos,
        })
    }

    /// Cuts `text` into words that cover it, in order. Every pattern cuts the pieces of the one before.
    pub fn split(&self, text: &str) -> Vec<Range<usize>> {
        let mut pieces: Vec<Range<usize>> = Vec::new();
        if !text.is_empty() {
            pieces.push(0..text.len());
        }
        for (regex, whitespace) in &self.patterns {
            let mut finer = Vec::with_capacity(pieces.len());
            for piece in pieces {
                let start = piece.start;
                split(regex, *whitespace, &text[piece], |r| {
                    finer.push(start + r.start..start + r.end);
                });
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
            if kept > start {
                emit(start..kept);
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

/// Bytes at the end of a matched whitespace run that belong to the next word.
fn handed_back(rule: Whitespace, matched: &str, at_end: bool) -> usize {
    if rule == Keep || at_end || !matched.chars().all(char::is_whitespace) {
        return 0;
    }
    if rule == HandBackAfterLines && matched.ends_with(['\r', '\n']) {
        return 0;
    }
    match matched.chars().next_back() {
        Some(last) if last.len_utf8() < matched.len() => last.len_utf8(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    proptest! {
        #[test]
        fn words_cover_the_text(text in "(\\PC|\\s|[0-9 \n])*") {
            for family in FAMILIES {
                prop_assert_eq!(words(family.names[0], &text).concat(), text.clone());
            }
        }
    }
}
