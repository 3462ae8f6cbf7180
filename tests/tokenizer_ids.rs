//! Ids equal llama.cpp's: on its own test texts, on the golden texts, with special tokens parsed.

mod common;
mod vocabularies;

use cbtop::tokenizer::{Tokenizer, Vocabulary};
use common::{GEMMA3, SMOLLM2, real_model, shared};
use std::path::{Path, PathBuf};
use vocabularies::load;

fn beside(path: &Path, suffix: &str) -> String {
    let name = format!("{}{suffix}", path.display());
    std::fs::read_to_string(&name).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn ids_of_every_vocabulary_file_equal_llama_cpp() {
    let mut failed = Vec::new();
    for path in vocabularies::files() {
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
    let Some(shared) = shared() else { return };
    let text = std::fs::read_to_string(shared.join("golden").join(file)).unwrap();
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
        Some(shared()?.join("models").join(name))
    });
}

#[test]
fn golden_ids_of_the_real_models() {
    golden("real-models.json", real_model);
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
    for path in vocabularies::files() {
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
    for path in vocabularies::files() {
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

/// Special tokens among text, under the file's own flags and others: add_bos, add_eos, add_space_prefix.
#[test]
fn special_tokens_in_text_equal_llama_cpp_whatever_the_flags() {
    let reference = vocabularies::fixture("special_tokens.json");
    let mut failed = Vec::new();
    for (file, case) in reference["files"].as_object().unwrap() {
        let vocab_file = shared().map(|s| s.join("vocab").join(file));
        let path = match vocab_file.filter(|path| path.exists()) {
            Some(path) => Some(path),
            None if file.starts_with("ggml-vocab") => None,
            None => real_model(file),
        };
        let Some(path) = path else { continue };
        let vocabulary = vocabularies::vocabulary(&path);
        for asked in case["asked"].as_array().unwrap() {
            let flag = |key: &str| asked["flags"][format!("tokenizer.ggml.{key}")].as_bool();
            let changed = Vocabulary {
                add_bos: flag("add_bos_token").or(vocabulary.add_bos),
                add_eos: flag("add_eos_token").or(vocabulary.add_eos),
                add_space_prefix: flag("add_space_prefix").or(vocabulary.add_space_prefix),
                ..vocabulary.clone()
            };
            let tokenizer = Tokenizer::new(changed).unwrap();
            let texts = case["texts"].as_array().unwrap();
            for (text, expected) in texts.iter().zip(asked["ids"].as_array().unwrap()) {
                let ids = tokenizer
                    .encode(text.as_str().unwrap(), true, true)
                    .unwrap();
                if &serde_json::to_value(&ids).unwrap() != expected {
                    let flags = &asked["flags"];
                    failed.push(format!("{file} {flags} {text}\n  {ids:?}\n  {expected}"));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
