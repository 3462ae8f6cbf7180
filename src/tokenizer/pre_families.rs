//! The ways of cutting text that `tokenizer.ggml.pre` names, as data.
//!
//! The patterns are those that the model authors publish in `tokenizer.json`, as far as llama.cpp keeps to them; where it
//! departs, so does this table, since a GGUF file's ids are llama.cpp's (tests/tokenizer_pre.rs holds the two together). Each
//! is written without its look-ahead `\s+(?!\S)` ("leave the last space to the next word"): the backtracking that needs gives
//! up on a run of a million spaces, so [`super::pre`] hands the last character back itself, which leaves a plain
//! linear-time regular expression.

use super::pre_digits::Triples;

/// How a pattern treats the whitespace it matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whitespace {
    /// The pattern has no whitespace look-ahead.
    Keep,
    /// Before a word, the last whitespace character belongs to the word.
    HandBack,
    /// As `HandBack`, but a run that ends in a line break is whole.
    HandBackAfterLines,
    /// As `HandBackAfterLines`, and what is left of the run is cut into the largest powers of two up to 512.
    PowersOfTwo,
}

use Whitespace::{HandBack, HandBackAfterLines, Keep, PowersOfTwo};

/// One pass over the pieces that the pass before left.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// Matches and the gaps between them become pieces.
    Pattern(&'static str, Whitespace),
    /// Runs of digits are cut in groups of three.
    Digits(Triples),
}

use Step::{Digits, Pattern};

/// A way of cutting text, with the vocabulary habits that go with it.
pub(super) struct Family {
    pub names: &'static [&'static str],
    pub steps: &'static [Step],
    /// A word that is a token as a whole is taken whole, whatever the merges say.
    pub whole_words_first: bool,
    /// Whether a beginning-of-text token is added when the file does not say.
    pub adds_bos: bool,
}

/// A family without habits.
const fn plain(names: &'static [&'static str], steps: &'static [Step]) -> Family {
    Family {
        names,
        steps,
        whole_words_first: false,
        adds_bos: false,
    }
}

/// A family that takes a word whole where it is a token.
const fn whole_words(
    names: &'static [&'static str],
    steps: &'static [Step],
    adds_bos: bool,
) -> Family {
    Family {
        names,
        steps,
        whole_words_first: true,
        adds_bos,
    }
}

/// English contractions in any case.
macro_rules! contractions {
    () => {
        r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
    };
}

/// Words, numbers, symbols and white space as most families since Llama 3 have them; `$words` and `$numbers` differ.
macro_rules! modern {
    ($words:expr, $numbers:expr, $symbols:expr) => {
        Pattern(
            concat!($words, "|", $numbers, "|", $symbols, r"|\s*[\r\n]+|\s+"),
            HandBackAfterLines,
        )
    };
}

/// A symbol, then letters.
macro_rules! letters {
    () => {
        r"[^\r\n\p{L}\p{N}]?\p{L}+"
    };
}

/// Symbols with the line breaks after them.
macro_rules! symbols_and_lines {
    () => {
        r" ?[^\s\p{L}\p{N}]+[\r\n]*"
    };
}

/// Symbols with the line breaks and slashes after them.
macro_rules! symbols_and_paths {
    () => {
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
    };
}

/// Capitals then small letters, or capitals, from a class of letters. llama.cpp takes every letter outside ASCII for both.
macro_rules! cased {
    ($class:literal, $suffix:expr) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[",
            $class,
            r"--[a-z]]*[",
            $class,
            r"--[A-Z]]+",
            $suffix,
            r"|[^\r\n\p{L}\p{N}]?[",
            $class,
            r"--[a-z]]+[",
            $class,
            r"--[A-Z]]*",
            $suffix,
        )
    };
}

/// A contraction that stays with its word.
macro_rules! suffix {
    () => {
        concat!("(?:", contractions!(), ")?")
    };
}

/// Letters and marks with a contraction. The published patterns tell capitals from small letters; llama.cpp does not.
macro_rules! letters_marks_suffix {
    () => {
        concat!(r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+", suffix!())
    };
}

const GPT2: Step = Pattern(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+",
    HandBack,
);
const QWEN2: Step = modern!(
    concat!(contractions!(), "|", letters!()),
    r"\p{N}",
    symbols_and_lines!()
);
const LLAMA3: Step = modern!(
    concat!(contractions!(), "|", letters!()),
    r"\p{N}{1,3}",
    symbols_and_lines!()
);
const JAIS2: Step = Pattern(
    concat!(
        contractions!(),
        "|",
        letters!(),
        r"|\p{N}{1,3}|",
        symbols_and_lines!(),
        r"|\s*[\r\n]+|\s+"
    ),
    PowersOfTwo,
);
const GPT4O: Step = modern!(
    cased!(r"\p{L}", suffix!()),
    r"\p{N}{1,3}",
    symbols_and_paths!()
);
const DEEPSEEK3: Step = Pattern(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+"##,
    HandBackAfterLines,
);
/// Spark's variant: symbols without line breaks, and each line break alone.
const SPARK: Step = Pattern(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+"##,
    HandBack,
);
const IDEOGRAPHS_AND_KANA: Step = Pattern(
    r"[\u{4E00}-\u{9FA5}\u{3040}-\u{309F}\u{30A0}-\u{30FF}]+",
    Keep,
);
/// U+0800 to U+9FA5 and U+AC00 to U+D7FF without the white space in them.
const CODER_SCRIPTS: Step = Pattern(
    r"[\u{0800}-\u{167F}\u{1681}-\u{1FFF}\u{200B}-\u{2027}\u{202A}-\u{202E}\u{2030}-\u{205E}\u{2060}-\u{2FFF}\u{3001}-\u{9FA5}\u{AC00}-\u{D7FF}]+",
    Keep,
);
/// The letters with case that DeepSeek LLM lists one by one.
const CASED: Step = Pattern(
    concat!(
        r"\s?[",
        r"A-Za-z\u{00B5}\u{00C0}-\u{00D6}\u{00D8}-\u{00F6}\u{00F8}-\u{01BA}\u{01BC}-\u{01BF}\u{01C4}-\u{0293}",
        r"\u{0295}-\u{02AF}\u{0370}-\u{0373}\u{0376}\u{0377}\u{037B}-\u{037D}\u{037F}\u{0386}\u{0388}-\u{038A}",
        r"\u{038C}\u{038E}-\u{03A1}\u{03A3}-\u{03F5}\u{03F7}-\u{0481}\u{048A}-\u{052F}\u{0531}-\u{0556}",
        r"\u{10A0}-\u{10C5}\u{13A0}-\u{13F5}\u{13F8}-\u{13FD}\u{1C90}-\u{1CBA}\u{1CBD}-\u{1CBF}\u{1D00}-\u{1D2B}",
        r"\u{1D6B}-\u{1D77}\u{1D79}-\u{1D9A}\u{1E00}-\u{1F15}\u{1F18}-\u{1F1D}\u{1F20}-\u{1F45}\u{1F48}-\u{1F4D}",
        r"\u{1F50}-\u{1F57}\u{1F59}\u{1F5B}\u{1F5D}\u{1F5F}-\u{1F7D}\u{1F80}-\u{1FB4}\u{1FB6}-\u{1FBC}\u{1FBE}",
        r"\u{1FC2}-\u{1FC4}\u{1FC6}-\u{1FCC}\u{1FD0}-\u{1FD3}\u{1FD6}-\u{1FDB}\u{1FE0}-\u{1FEC}\u{1FF2}-\u{1FF4}",
        r"\u{1FF6}-\u{1FFC}\u{2102}\u{2107}\u{210A}-\u{2113}\u{2115}\u{2119}-\u{211D}\u{2124}\u{2126}\u{2128}",
        r"\u{212A}-\u{212D}\u{212F}-\u{2134}\u{2139}\u{213C}-\u{213F}\u{2145}-\u{2149}\u{214E}\u{2183}\u{2184}",
        r"\u{2C00}-\u{2C7B}\u{2C7E}-\u{2CE4}\u{2CEB}-\u{2CEE}\u{2CF2}\u{2CF3}\u{A640}-\u{A66D}\u{A680}-\u{A69B}",
        r"\u{A722}-\u{A76F}\u{A771}-\u{A787}\u{A78B}-\u{A78E}\u{AB70}-\u{ABBF}\u{FB00}-\u{FB06}\u{FB13}-\u{FB17}",
        r"\u{FF21}-\u{FF3A}\u{FF41}-\u{FF5A}\u{10400}-\u{1044F}\u{104B0}-\u{104D3}\u{104D8}-\u{104FB}",
        r"\u{10C80}-\u{10CB2}\u{10CC0}-\u{10CF2}\u{118A0}-\u{118DF}\u{1E900}-\u{1E943}",
        r"]+"
    ),
    Keep,
);
/// U+8C48 and not U+F900 begins the compatibility ideographs: so the published text has it, normalised.
const AFMOE_SCRIPTS: Step = Pattern(
    concat!(
        r"[\u{4E00}-\u{9FFF}\u{3400}-\u{4DBF}\u{8C48}-\u{FAFF}\u{3040}-\u{309F}\u{30A0}-\u{30FF}\u{FF65}-\u{FF9F}",
        r"\u{2F00}-\u{2FDF}\u{0E40}-\u{0E7F}\u{0E80}-\u{0EFF}\u{1780}-\u{17FF}\u{1000}-\u{109F}\u{AA60}-\u{AA7F}",
        r"\u{A9E0}-\u{A9FF}\u{AC00}-\u{D7AF}\u{1100}-\u{11FF}]+"
    ),
    Keep,
);
const YOUTU_SCRIPTS: Step = Pattern(
    concat!(
        r"[\u{AC00}-\u{D7A3}\u{3131}-\u{318E}]+|",
        r"[\u{FF01}\u{2026}\u{201C}\u{201D}\u{2018}\u{2019}\u{2014}\u{FF1A}\u{FF1B}\u{FF0C}\u{3001}-\u{303F}\u{FE30}-\u{FE4F}]+|",
        r"[\u{3105}-\u{312F}]+|[\u{4E00}-\u{9FA5}\u{3040}-\u{309F}\u{30A0}-\u{30FF}]+"
    ),
    Keep,
);
/// The blocks that llama.cpp counts as Han.
macro_rules! han {
    () => {
        r"\u{4E00}-\u{9FFF}\u{3400}-\u{4DBF}\u{20000}-\u{2A6DF}\u{2A700}-\u{2EBEF}\u{F900}-\u{FAFF}\u{2F800}-\u{2FA1F}"
    };
}
const KIMI: Step = modern!(
    concat!(
        "[",
        han!(),
        r"]+|[^\r\n\p{L}\p{N}]?[\p{L}--[",
        han!(),
        "]]+",
        suffix!()
    ),
    r"\p{N}{1,3}",
    symbols_and_lines!()
);
/// Text between white space and the punctuation of several scripts.
const BLOOM: Step = Pattern(
    r" ?[^(\s|.,!?\u{2026}\u{3002}\u{FF0C}\u{3001}\u{0964}\u{06D4}\u{060C})]+",
    Keep,
);
const LINES: Step = Pattern(r"[^\n]+|[\n]+", Keep);
const LINE_BREAK: Step = Pattern(r"[\r\n]", Keep);
const DIGIT: Step = Pattern(r"\p{N}", Keep);
const DIGITS: Step = Pattern(r"\p{N}+", Keep);
const DIGITS_BY_THREE: Step = Pattern(r"\p{N}{1,3}", Keep);
const DIGIT_TRIPLET: Step = Pattern(r"[0-9][0-9][0-9]", Keep);

pub(super) const FAMILIES: &[Family] = &[
    plain(
        &[
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
            "a.x-4.0",
            "jina-de",
            "jina-es",
        ],
        &[GPT2],
    ),
    plain(
        &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        &[DIGIT, GPT2],
    ),
    plain(
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "stablelm2",
            "hunyuan",
            "megrez",
            "kormo",
            "bailingmoe",
            "bailingmoe2",
            "llada-moe",
            "grok-2",
            "solar-open",
            "f2llmv2",
        ],
        &[QWEN2],
    ),
    plain(
        &["qwen35"],
        &[modern!(
            concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"),
            r"\p{N}",
            r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
        )],
    ),
    plain(
        &["ufakzeka"],
        &[modern!(letters!(), r"\p{N}", symbols_and_lines!())],
    ),
    plain(
        &["seed-coder"],
        &[modern!(
            concat!(contractions!(), "|", letters!()),
            r"\p{N}",
            r" ?[^\s\p{L}\p{N}]+"
        )],
    ),
    plain(&["laguna"], &[LINES, QWEN2]),
    // Words with single spaces between them are one piece where every word is one letter or more.
    plain(
        &["exaone-moe"],
        &[modern!(
            concat!(
                contractions!(),
                r"|[^\r\n\p{L}\p{N}]?\p{L}\p{M}*(?: ?\p{L}\p{M}*)*"
            ),
            r"\p{N}",
            r" ?[^\s\p{L}\p{N}]+[\r\n/]?"
        )],
    ),
    whole_words(
        &["minicpm5"],
        &[
            DIGITS_BY_THREE,
            modern!(
                concat!(contractions!(), "|", letters!()),
                r"\p{N}+",
                symbols_and_lines!()
            ),
        ],
        false,
    ),
    whole_words(
        &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "lfm2",
            "midm-2.0",
            "jina-v5-nano",
        ],
        &[LLAMA3],
        true,
    ),
    whole_words(&["glm4", "glm5"], &[LLAMA3], false),
    plain(&["smaug-bpe", "dbrx", "chatglm-bpe"], &[LLAMA3]),
    plain(&["jais-2"], &[JAIS2]),
    plain(
        &["gpt-4o", "llama4", "kanana2", "minimax-m2", "talkie"],
        &[GPT4O],
    ),
    whole_words(
        &["granite-embed-multi-97m"],
        &[modern!(
            cased!(r"[\p{L}\p{M}]", suffix!()),
            r"\p{N}{1,3}",
            symbols_and_paths!()
        )],
        false,
    ),
    whole_words(
        &["tekken"],
        &[modern!(
            cased!(r"\p{L}", ""),
            r"\p{N}",
            symbols_and_paths!()
        )],
        true,
    ),
    whole_words(
        &["youtu"],
        &[
            YOUTU_SCRIPTS,
            modern!(letters_marks_suffix!(), r"\p{N}", symbols_and_paths!()),
        ],
        false,
    ),
    plain(
        &["tiny_aya", "cohere2moe"],
        &[
            Digits(Triples::EndsOnly),
            modern!(letters_marks_suffix!(), r"\p{N}{1,3}", symbols_and_paths!()),
        ],
    ),
    plain(&["kimi-k2"], &[KIMI]),
    plain(
        &["deepseek-coder"],
        &[
            LINE_BREAK,
            Pattern(r"\s?\p{L}+", Keep),
            Pattern(r"\s?\p{P}+", Keep),
            CODER_SCRIPTS,
            DIGIT,
        ],
    ),
    plain(
        &["deepseek-llm"],
        &[
            LINE_BREAK,
            CASED,
            Pattern(
                r"\s?[!-/:-~\u{FF01}-\u{FF0F}\u{FF1A}-\u{FF5E}\u{2018}-\u{201F}\u{3001}-\u{3002}]+",
                Keep,
            ),
            Pattern(r"\s+$", Keep),
            CODER_SCRIPTS,
            DIGITS,
        ],
    ),
    plain(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        &[DIGITS_BY_THREE, IDEOGRAPHS_AND_KANA, DEEPSEEK3],
    ),
    plain(
        &["spark2_5"],
        &[DIGITS_BY_THREE, IDEOGRAPHS_AND_KANA, SPARK, DIGIT],
    ),
    plain(
        &["afmoe"],
        &[Digits(Triples::EndsOnly), AFMOE_SCRIPTS, DEEPSEEK3],
    ),
    plain(&["superbpe"], &[DIGITS, Digits(Triples::StartsOnly)]),
    plain(&["bloom", "gpt3-finnish", "poro-chat"], &[BLOOM]),
    plain(&["viking"], &[BLOOM, DIGIT]),
    Family {
        names: &["chameleon"],
        steps: &[
            Pattern(r"<sentinel:[0-9]+>", Keep),
            Pattern(r"IMGIMG[A-I]{1,4}Z", Keep),
            Pattern(r"[\t\n]|    |  ", Keep),
            DIGIT,
            Pattern(r"[\p{P}!-/:-@\[-`\{-~]", Keep),
            GPT2,
        ],
        whole_words_first: false,
        adds_bos: true,
    },
    plain(
        &["falcon"],
        &[Pattern(r"[\p{P}\$\+<=>\^~\|`]+", Keep), GPT2, DIGIT_TRIPLET],
    ),
    plain(
        &["default"],
        &[
            Pattern(r"[\p{P}\$\+<=>\^~\|]+", Keep),
            GPT2,
            DIGITS,
            DIGIT_TRIPLET,
        ],
    ),
];
