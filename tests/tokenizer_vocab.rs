//! Vocabularies: ids equal llama.cpp's, decoding is the inverse of encoding, damaged ones are refused.

use cbtop::gguf::{Gguf, Strings};
use cbtop::tokenizer::{ChatMessage, Tokenizer, TokenizerError, Vocabulary, render_chat};
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The shared reference files, or None (and a word about it) where the checkout has none.
fn shared(folder: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared");
    let root = std::env::var_os("CBTOP_SHARED").map_or_else(beside, PathBuf::from);
    let path = root.join(folder);
    if !path.exists() {
        println!("skipped: {} is missing (set CBTOP_SHARED)", path.display());
        return None;
    }
    Some(path)
}

/// A real model from the cache that tests/fetch-models.sh fills.
fn real_model(name: &str) -> Option<PathBuf> {
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or(home.join(".cache"), PathBuf::from);
    let path = cache.join("cbtop/models").join(name);
    if !path.exists() {
        println!(
            "skipped: {} is missing (run tests/fetch-models.sh)",
            path.display()
        );
        return None;
    }
    Some(path)
}

const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const GEMMA3: &str = "gemma-3-270m-q4_k_m.gguf";

fn load(path: &Path) -> Tokenizer {
    let gguf = Gguf::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Tokenizer::from_gguf(&gguf).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn vocabularies() -> Vec<PathBuf> {
    let Some(folder) = shared("vocab") else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "gguf"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn beside(path: &Path, suffix: &str) -> String {
    let name = format!("{}{suffix}", path.display());
    std::fs::read_to_string(&name).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn ids_of_every_vocabulary_file_equal_llama_cpp() {
    let mut failed = Vec::new();
    for path in vocabularies() {
        let tokenizer = load(&path);
        let (inputs, outputs) = (beside(&path, ".inp"), beside(&path, ".out"));
        let texts: Vec<&str> = inputs.split("\n__ggml_vocab_test__\n").collect();
        let lines: Vec<&str> = outputs.lines().collect();
        // The separator also closes the last text, which leaves one empty text without a line.
        let cases = lines.len();
        assert!(cases > 30 && texts.len() - cases <= 1, "{}", path.display());
        let mut passed = 0;
        for (text, line) in texts.iter().zip(lines) {
            let expected: Vec<u32> = line
                .split_whitespace()
                .map(|id| id.parse().unwrap())
                .collect();
            let got = tokenizer.encode(text, false, false).unwrap();
            if got == expected {
                passed += 1;
            } else {
                failed.push(format!(
                    "{}: {text:?}\n  {got:?}\n  {expected:?}",
                    path.display()
                ));
            }
        }
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        println!("{name:28} {passed:3} of {cases} texts");
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn golden(file: &str, model: impl Fn(&str) -> Option<PathBuf>) {
    let Some(path) = shared("golden") else { return };
    let text = std::fs::read_to_string(path.join(file)).unwrap();
    let golden: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (name, cases) in golden.as_object().unwrap() {
        let Some(path) = model(name) else { continue };
        let tokenizer = load(&path);
        let cases = cases.as_array().unwrap();
        for case in cases {
            let text = case["text"].as_str().unwrap();
            let ids = case["ids"].as_array().unwrap().iter();
            let ids: Vec<u32> = ids.map(|id| id.as_u64().unwrap() as u32).collect();
            assert_eq!(
                tokenizer.encode(text, true, false).unwrap(),
                ids,
                "{name}: {text:?}"
            );
            assert_eq!(tokenizer.decode(&ids).unwrap(), text, "{name}");
            for token in case["top20"].as_array().into_iter().flatten() {
                let id = token[0].as_u64().unwrap() as u32;
                assert_eq!(tokenizer.token_text(id), token[1].as_str(), "{name}");
            }
        }
        println!("{name:40} {} texts", cases.len());
    }
}

#[test]
fn golden_ids_of_the_tiny_models() {
    golden("tiny-models.json", |name| {
        Some(shared("models")?.join(name))
    });
}

#[test]
fn golden_ids_of_the_real_models() {
    golden("real-models.json", real_model);
}

fn fixture(name: &str) -> serde_json::Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// One vocabulary under each pre-tokenizer, on texts where they differ.
#[test]
fn every_family_of_pre_tokenizers_cuts_as_llama_cpp_does() {
    let Some(folder) = shared("vocab") else {
        return;
    };
    let gguf = Gguf::open(&folder.join("ggml-vocab-gpt-2.gguf")).unwrap();
    let vocabulary = Vocabulary::from_gguf(&gguf).unwrap();
    let fixture = fixture("pre_tokenizers.json");
    for (pre, expected) in fixture["ids"].as_object().unwrap() {
        let changed = Vocabulary {
            pre: Some(pre.clone()),
            ..vocabulary.clone()
        };
        let tokenizer = Tokenizer::new(changed).unwrap();
        for (text, ids) in fixture["texts"]
            .as_array()
            .unwrap()
            .iter()
            .zip(expected.as_array().unwrap())
        {
            let text = text.as_str().unwrap();
            let got = serde_json::to_value(tokenizer.encode(text, false, false).unwrap()).unwrap();
            assert_eq!(&got, ids, "{pre}: {text:?}");
        }
    }
}

/// As llama.cpp decides it, asked for every id of the file.
#[test]
fn end_of_generation_and_control_tokens_equal_llama_cpp() {
    type Known = (&'static str, &'static [u32], &'static [u32]);
    let known: [Known; 5] = [
        (
            "deepseek-coder",
            &[32014],
            &[32013, 32014, 32015, 32016, 32017],
        ),
        ("gpt-2", &[50256], &[50256]),
        ("llama-spm", &[2], &[1, 2]),
        (
            "phi-3",
            &[2, 32000, 32007],
            &[
                0, 1, 2, 32000, 32001, 32002, 32003, 32004, 32005, 32006, 32007, 32008, 32009,
                32010,
            ],
        ),
        (
            "qwen2",
            &[128247, 151643, 151645],
            &[128247, 151643, 151644, 151645],
        ),
    ];
    let check = |tokenizer: &Tokenizer, name: &str, ends: &[u32], control: &[u32]| {
        let all = 0..tokenizer.n_vocab() as u32;
        let found: Vec<u32> = all
            .clone()
            .filter(|&id| tokenizer.is_end_of_generation(id))
            .collect();
        assert_eq!(found, ends, "{name}: end of generation");
        let found: Vec<u32> = all.filter(|&id| tokenizer.is_control(id)).collect();
        assert_eq!(found, control, "{name}: control");
    };
    for path in vocabularies() {
        if let Some((name, ends, control)) = known
            .iter()
            .find(|k| path.ends_with(format!("ggml-vocab-{}.gguf", k.0)))
        {
            check(&load(&path), name, ends, control);
        }
    }
    if let Some(path) = real_model(SMOLLM2) {
        check(
            &load(&path),
            SMOLLM2,
            &[0, 2, 4],
            &(0..17).collect::<Vec<u32>>(),
        );
    }
    if let Some(path) = real_model(GEMMA3) {
        let tokenizer = load(&path);
        let control: Vec<u32> = (0..5)
            .chain(6..107)
            .chain([212])
            .chain(256_001..262_144)
            .collect();
        check(&tokenizer, GEMMA3, &[1, 106, 212], &control);
        assert_eq!(
            (tokenizer.bos(), tokenizer.eos(), tokenizer.eot()),
            (Some(2), Some(1), Some(106))
        );
    }
}

/// Special tokens in text: parsed on request, plain text otherwise (ids from llama.cpp).
#[test]
fn control_text_is_a_token_only_when_asked() {
    let case = |tokenizer: &Tokenizer, text: &str, plain: &[u32], parsed: &[u32]| {
        assert_eq!(
            tokenizer.encode(text, false, false).unwrap(),
            plain,
            "{text:?}"
        );
        assert_eq!(
            tokenizer.encode(text, true, true).unwrap(),
            parsed,
            "{text:?}"
        );
    };
    for path in vocabularies() {
        let tokenizer = load(&path);
        match path.file_stem().unwrap().to_str().unwrap() {
            "ggml-vocab-qwen2" => case(
                &tokenizer,
                "<|im_start|>user\nhi<|im_end|>\n",
                &[
                    27, 91, 318, 4906, 91, 29, 872, 198, 6023, 27, 91, 318, 6213, 91, 397,
                ],
                &[151644, 872, 198, 6023, 151645, 198],
            ),
            "ggml-vocab-llama-spm" => {
                case(&tokenizer, "<s>", &[529, 29879, 29958], &[1, 1]);
                case(
                    &tokenizer,
                    "<unk> a",
                    &[529, 2960, 29958, 263],
                    &[1, 0, 29871, 263],
                );
            }
            // Phi-3's markers swallow the white space after them.
            "ggml-vocab-phi-3" => case(
                &tokenizer,
                "<|end|>  x <|user|> \n y",
                &[
                    529, 29989, 355, 29989, 29958, 29871, 921, 529, 29989, 1792, 29989, 29958,
                    29871, 13, 343,
                ],
                &[1, 32007, 921, 29871, 32010, 343],
            ),
            _ => {}
        }
    }
    if let Some(path) = real_model(GEMMA3) {
        let tokenizer = load(&path);
        case(
            &tokenizer,
            "<start_of_turn>user\nhi<end_of_turn>\n",
            &[
                236820, 3041, 236779, 1340, 236779, 887, 236813, 2364, 107, 2202, 236820, 643,
                236779, 1340, 236779, 887, 236813, 107,
            ],
            &[2, 105, 2364, 107, 2202, 106, 107],
        );
        // User-defined tokens (runs of spaces and lines, HTML tags) always match.
        case(
            &tokenizer,
            "  a   b\n\n\n\nc\t\t<h1>",
            &[138, 236746, 139, 236763, 110, 236755, 255969, 184],
            &[2, 138, 236746, 139, 236763, 110, 236755, 255969, 184],
        );
        case(
            &tokenizer,
            "a\0b",
            &[236746, 238, 236763],
            &[2, 236746, 238, 236763],
        );
    }
}

// ---------------------------------------------------------------------------------------------------
// Properties

/// The vocabularies that are there, loaded once.
fn loaded() -> &'static [(String, Tokenizer)] {
    static LOADED: OnceLock<Vec<(String, Tokenizer)>> = OnceLock::new();
    LOADED.get_or_init(|| {
        let mut files = vocabularies();
        files.extend([SMOLLM2, GEMMA3].into_iter().filter_map(real_model));
        let mut all: Vec<(String, Tokenizer)> = files
            .iter()
            .map(|path| (path.display().to_string(), load(path)))
            .collect();
        all.push(("small gpt2".into(), Tokenizer::new(small_bpe()).unwrap()));
        all.push(("small llama".into(), Tokenizer::new(small_spm()).unwrap()));
        all
    })
}

fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any::<String>(),
        "[ \t\r\n]{1,8}",
        "[a-zA-Z]{1,12}",
        "[0-9]{1,6}",
        Just("<|im_end|>".to_owned()),
        Just("</s>".to_owned()),
        Just("'S 'll".to_owned()),
        "[\u{300}-\u{36F}]{1,3}",
        "[一-鿿぀-ヿ가-힣]{1,6}",
        "[🀀-🫿]{1,3}",
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn decoding_is_the_inverse_of_encoding(text in any_text()) {
        // ▁ is how a SentencePiece-style vocabulary writes a space: the two cannot be told apart.
        let text = text.replace('▁', " ");
        for (name, tokenizer) in loaded() {
            let ids = tokenizer.encode(&text, false, false).unwrap();
            prop_assert_eq!(&tokenizer.decode(&ids).unwrap(), &text, "{}", name);
            let ids = tokenizer.encode(&text, true, false).unwrap();
            prop_assert_eq!(&tokenizer.decode(&ids).unwrap(), &text, "{}", name);
        }
    }

    #[test]
    fn streaming_gives_the_same_text(seeds in proptest::collection::vec(any::<u32>(), 0..60)) {
        for (name, tokenizer) in loaded() {
            let ids: Vec<u32> = seeds.iter().map(|s| s % tokenizer.n_vocab() as u32).collect();
            let mut stream = tokenizer.stream();
            let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
            text += &stream.flush();
            prop_assert_eq!(text, tokenizer.decode_continuation(&ids).unwrap(), "{}", name);
        }
    }

    /// Byte tokens and byte-level pieces break characters anywhere.
    #[test]
    fn streaming_bytes_gives_the_same_text(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let tokenizer = Tokenizer::new(small_spm()).unwrap();
        let ids: Vec<u32> = bytes.iter().map(|&b| u32::from(b) + 3).collect();
        let mut stream = tokenizer.stream();
        let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
        text += &stream.flush();
        prop_assert_eq!(&text, &tokenizer.decode_continuation(&ids).unwrap());
        prop_assert_eq!(text, String::from_utf8_lossy(&bytes).into_owned());
    }

    #[test]
    fn no_vocabulary_panics(
        texts in proptest::collection::vec("[ab▁Ġ <>\\|]{0,3}|<0x4[0-9]>|</s>", 0..12),
        types in proptest::collection::vec(0..8i32, 0..12),
        scores in proptest::collection::vec(any::<f32>(), 0..12),
        merges in proptest::collection::vec("[ab ]{0,4}", 0..4),
        special in any::<[Option<u8>; 3]>(),
        llama in any::<bool>(),
        text in any_text(),
    ) {
        let vocabulary = Vocabulary {
            model: if llama { "llama" } else { "gpt2" }.into(),
            tokens: texts.into(),
            token_types: (types.len() > 4).then_some(types),
            scores: Some(scores),
            merges: Some(merges.into()),
            bos: special[0].map(u32::from),
            eos: special[1].map(u32::from),
            unknown: special[2].map(|id| u32::from(id % 4)),
            ..Vocabulary::default()
        };
        if let Ok(tokenizer) = Tokenizer::new(vocabulary)
            && let Ok(ids) = tokenizer.encode(&text, true, true)
        {
            prop_assert!(tokenizer.decode(&ids).is_ok());
        }
    }
}

// ---------------------------------------------------------------------------------------------------
// Small vocabularies and damaged ones

fn small_bpe() -> Vocabulary {
    let printable = (0x21..=0x7Eu32).chain(0xA1..=0xAC).chain(0xAE..=0xFF);
    let mut tokens: Vec<String> = printable
        .chain(0x100..0x144)
        .filter_map(char::from_u32)
        .map(String::from)
        .collect();
    tokens.extend(["ab", "abc", "Ġab"].map(String::from));
    let merges = ["a b", "ab c", "Ġ ab"].map(String::from).to_vec();
    Vocabulary {
        model: "gpt2".into(),
        pre: Some("gpt-2".into()),
        tokens: tokens.into(),
        merges: Some(merges.into()),
        ..Vocabulary::default()
    }
}

fn small_spm() -> Vocabulary {
    let mut tokens = vec!["<unk>".to_owned(), "<s>".into(), "</s>".into()];
    tokens.extend((0..=255u8).map(|b| format!("<0x{b:02X}>")));
    let mut types = vec![2, 3, 3];
    types.resize(tokens.len(), 6);
    let texts = ["▁", "a", "b", "aa", "aaa", "ab", "▁a", "▁▁"];
    tokens.extend(texts.map(String::from));
    types.resize(tokens.len(), 1);
    let mut scores = vec![0.0; 259];
    scores.extend([-1.0, -1.0, -1.0, -2.0, -2.0, -3.0, -4.0, -5.0]);
    Vocabulary {
        model: "llama".into(),
        tokens: tokens.into(),
        token_types: Some(types),
        scores: Some(scores),
        bos: Some(1),
        eos: Some(2),
        unknown: Some(0),
        ..Vocabulary::default()
    }
}

fn refusal(vocabulary: Vocabulary) -> String {
    Tokenizer::new(vocabulary)
        .expect_err("a damaged vocabulary was taken")
        .to_string()
}

#[test]
fn equal_scores_merge_leftmost_first() {
    let tokenizer = Tokenizer::new(Vocabulary {
        add_space_prefix: Some(false),
        ..small_spm()
    })
    .unwrap();
    let texts = |text: &str| -> Vec<String> {
        let ids = tokenizer.encode(text, false, false).unwrap();
        ids.iter()
            .map(|&id| tokenizer.token_text(id).unwrap().to_owned())
            .collect()
    };
    assert_eq!(texts("aaaa"), ["aaa", "a"]);
    assert_eq!(texts("aab"), ["aa", "b"]);
    assert_eq!(texts("a  aé"), ["a", "▁", "▁a", "<0xC3>", "<0xA9>"]);
}

#[test]
fn the_file_decides_about_bos_eos_and_space() {
    let ids = |vocabulary| {
        Tokenizer::new(vocabulary)
            .unwrap()
            .encode("a", true, false)
            .unwrap()
    };
    let (a, spaced) = (260, 265);
    assert_eq!(ids(small_spm()), [1, spaced]);
    let plain = Vocabulary {
        add_bos: Some(false),
        add_eos: Some(true),
        add_space_prefix: Some(false),
        ..small_spm()
    };
    assert_eq!(ids(plain), [a, 2]);
}

#[test]
fn damaged_vocabularies_are_refused_with_the_reason() {
    assert!(refusal(Vocabulary::default()).contains("no vocabulary"));
    let unknown = Vocabulary {
        model: "t5".into(),
        ..small_spm()
    };
    assert!(refusal(unknown).contains("\"t5\", which cannot be run; what can: gpt2, llama"));
    let unknown = Vocabulary {
        pre: Some("klingon".into()),
        ..small_bpe()
    };
    assert!(refusal(unknown).contains("klingon"));
    assert!(
        refusal(Vocabulary {
            tokens: Strings::default(),
            ..small_spm()
        })
        .contains("empty")
    );
    assert!(
        refusal(Vocabulary {
            scores: None,
            ..small_spm()
        })
        .contains("tokenizer.ggml.scores")
    );
    assert!(
        refusal(Vocabulary {
            merges: None,
            ..small_bpe()
        })
        .contains("tokenizer.ggml.merges")
    );
    let short = Vocabulary {
        scores: Some(vec![0.0; 5]),
        ..small_spm()
    };
    assert!(refusal(short).contains("scores has 5 entries for 267 tokens"));
    let short = Vocabulary {
        token_types: Some(vec![1; 5]),
        ..small_bpe()
    };
    assert!(refusal(short).contains("token_type has 5 entries for 259 tokens"));
    let mut scores = small_spm().scores.unwrap();
    scores[7] = f32::NAN;
    assert!(
        refusal(Vocabulary {
            scores: Some(scores),
            ..small_spm()
        })
        .contains("score of token 7")
    );
    let mut types = small_spm().token_types.unwrap();
    types[9] = -1;
    let strange = Vocabulary {
        token_types: Some(types),
        ..small_spm()
    };
    assert!(refusal(strange).contains("token 9 has type -1"));
    for (bos, eos) in [(Some(267), None), (None, Some(u32::MAX))] {
        assert!(
            refusal(Vocabulary {
                bos,
                eos,
                ..small_spm()
            })
            .contains("267 tokens")
        );
    }
    for (merge, problem) in [
        ("ab", "no space"),
        ("", "no space"),
        ("a ", "does not have"),
        ("a zz", "joins a token"),
        ("c b", "makes a token"),
    ] {
        let merges = Some(vec![merge].into());
        let message = refusal(Vocabulary {
            merges,
            ..small_bpe()
        });
        assert!(
            message.contains("merge rule 0") && message.contains(problem),
            "{message}"
        );
    }
}

#[test]
fn what_has_no_token_is_said_or_replaced() {
    let mut vocabulary = small_bpe();
    vocabulary.tokens = vocabulary.tokens.iter().filter(|&t| t != "x").collect();
    let tokenizer = Tokenizer::new(vocabulary.clone()).unwrap();
    assert_eq!(
        tokenizer.encode("axb", false, false),
        Err(TokenizerError::Unencodable(b'x'))
    );
    vocabulary.unknown = Some(0);
    let tokenizer = Tokenizer::new(vocabulary).unwrap();
    let ids = tokenizer.encode("abxab", false, false).unwrap();
    assert_eq!((ids.len(), ids[1]), (3, 0));
}

#[test]
fn ids_outside_the_vocabulary_are_an_error_not_a_panic() {
    let tokenizer = Tokenizer::new(small_spm()).unwrap();
    let error = tokenizer.decode(&[260, 267]).unwrap_err();
    assert_eq!(
        error,
        TokenizerError::IdOutOfRange {
            id: 267,
            n_vocab: 267
        }
    );
    assert_eq!(tokenizer.token_bytes(u32::MAX), None);
    assert_eq!(tokenizer.stream().push(u32::MAX), "");
    assert!(!tokenizer.is_control(u32::MAX) && !tokenizer.is_end_of_generation(u32::MAX));
}

/// One line of ten million bytes: these would not finish if anything were quadratic.
#[test]
fn a_ten_megabyte_line_is_encoded() {
    let bpe = Tokenizer::new(small_bpe()).unwrap();
    let spm = Tokenizer::new(small_spm()).unwrap();
    for (tokenizer, unit) in [
        (&bpe, "a"),
        (&bpe, " "),
        (&bpe, "ab c"),
        (&spm, "a"),
        (&spm, "ab c "),
    ] {
        let text = unit.repeat(10_000_000 / unit.len());
        let ids = tokenizer.encode(&text, false, true).unwrap();
        assert!(tokenizer.decode(&ids).unwrap() == text, "{unit:?}");
    }
}

// ---------------------------------------------------------------------------------------------------
// Chat templates

#[test]
fn smollm2_adds_its_system_message() {
    let Some(path) = real_model(SMOLLM2) else {
        return;
    };
    let tokenizer = load(&path);
    let template = tokenizer.chat_template().unwrap();
    let user = [ChatMessage::new("user", "Hi")];
    let system = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n";
    let rendered = render_chat(template, &user, "<|im_start|>", "<|im_end|>", true).unwrap();
    assert_eq!(
        rendered,
        format!("{system}<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    );
    let ids = tokenizer.encode(&rendered, false, true).unwrap();
    assert_eq!(ids.iter().filter(|&&id| id == 1).count(), 3);
    assert!(!tokenizer.decode(&ids).unwrap().contains("im_start"));
    let told = [
        ChatMessage::new("system", "Be brief."),
        ChatMessage::new("user", "Hi"),
    ];
    let rendered = render_chat(template, &told, "<|im_start|>", "<|im_end|>", false).unwrap();
    assert_eq!(
        rendered,
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    );
}

#[test]
fn templates_render_as_jinja2_does() {
    let fixture = fixture("chat_templates.json");
    for case in fixture["cases"].as_array().unwrap() {
        let template = fixture["templates"][case["template"].as_str().unwrap()]
            .as_str()
            .unwrap();
        let messages: Vec<ChatMessage> = serde_json::from_value(case["messages"].clone()).unwrap();
        let prompt = case["add_generation_prompt"].as_bool().unwrap();
        let rendered = render_chat(template, &messages, "<bos>", "<eos>", prompt);
        match case["rendered"].as_str() {
            Some(expected) => assert_eq!(rendered.as_deref(), Ok(expected), "{case}"),
            None => assert!(rendered.is_err(), "{case}"),
        }
    }
}
