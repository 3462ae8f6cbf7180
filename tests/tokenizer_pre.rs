//! Pre-tokenizers: every name cuts texts as llama.cpp does (tests/fixtures/make_pre_tokenizers.py wrote down how).

mod common;
mod vocabularies;

use cbtop::tokenizer::{Tokenizer, Vocabulary};
use serde_json::Value;
use std::path::PathBuf;

/// The made vocabulary of make_pre_tokenizers.py: tokens of two bytes at most, so that every cut shows, and words that no
/// merge leads to.
fn pairs(whole: &[Value]) -> Vocabulary {
    let letters = vocabularies::byte_alphabet();
    let kept = (0..65536u64)
        .map(|rank| rank * 40503 % 65536)
        .filter(|p| p >> 8 < 128 && p & 255 < 128 || (p * 2_654_435_761 % (1 << 32)) >> 30 == 0);
    let halves: Vec<(&str, &str)> = kept
        .map(|p| {
            (
                letters[p as usize >> 8].as_str(),
                letters[p as usize & 255].as_str(),
            )
        })
        .collect();
    let mut tokens = letters.clone();
    tokens.extend(halves.iter().map(|(a, b)| format!("{a}{b}")));
    tokens.extend(whole.iter().map(|w| w.as_str().unwrap().to_owned()));
    tokens.push("<bos>".into());
    let mut types = vec![1; tokens.len() - 1];
    types.push(3);
    let bos = tokens.len() as u32 - 1;
    Vocabulary {
        model: "gpt2".into(),
        token_types: Some(types),
        merges: Some(halves.iter().map(|(a, b)| format!("{a} {b}")).collect()),
        bos: Some(bos),
        eos: Some(bos),
        tokens: tokens.into(),
        ..Vocabulary::default()
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// A larger file of make_pre_tokenizers.py in CBTOP_PRE_TOKENIZERS is compared in place of the repository's.
fn reference() -> Value {
    match std::env::var_os("CBTOP_PRE_TOKENIZERS") {
        Some(path) => vocabularies::json(&PathBuf::from(path)),
        None => vocabularies::fixture("pre_tokenizers.json"),
    }
}

/// Compares the families on one vocabulary of the fixture, by their first name or by all.
fn compare(reference: &Value, which: &str, vocabulary: &Vocabulary, names: usize) {
    let texts = list(&reference["vocabularies"][which]["texts"]);
    let answers = list(&reference["vocabularies"][which]["ids"]);
    let mut failed = Vec::new();
    for family in list(&reference["families"]) {
        for (at, name) in list(&family["names"]).iter().enumerate().take(names) {
            let name = name.as_str().unwrap();
            let changed = Vocabulary {
                pre: Some(name.to_owned()),
                ..vocabulary.clone()
            };
            let tokenizer = Tokenizer::new(changed).unwrap_or_else(|e| panic!("{name}: {e}"));
            if which == "pairs" {
                assert_eq!(
                    Some(tokenizer.adds_bos()),
                    family["add_bos"].as_bool(),
                    "{name}"
                );
            }
            let some = if at == 0 { usize::MAX } else { 100 };
            let cases = texts
                .iter()
                .zip(answers)
                .zip(list(&family["answers"][which]));
            let mut wrong = 0;
            for ((text, answers), answer) in cases.take(some) {
                let text = text.as_str().unwrap();
                let expected = &answers[answer.as_u64().unwrap() as usize];
                let got = serde_json::to_value(tokenizer.encode(text, false, false).unwrap());
                if got.as_ref().unwrap() != expected {
                    wrong += 1;
                    if wrong < 4 {
                        failed.push(format!(
                            "{name}: {text:?}\n  {}\n  {expected}",
                            got.unwrap()
                        ));
                    }
                }
            }
            if wrong > 0 {
                failed.push(format!("{name}: {wrong} texts"));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// A real vocabulary under each pre-tokenizer, on texts where they differ.
#[test]
fn every_family_of_pre_tokenizers_cuts_as_llama_cpp_does() {
    let Some(shared) = common::shared() else {
        return;
    };
    let vocabulary = vocabularies::vocabulary(&shared.join("vocab/ggml-vocab-gpt-2.gguf"));
    compare(&reference(), "gpt-2", &vocabulary, 1);
}

#[test]
fn every_cut_and_every_bos_is_llama_cpps() {
    let reference = reference();
    let vocabulary = pairs(list(&reference["whole"]));
    compare(&reference, "pairs", &vocabulary, usize::MAX);
}
