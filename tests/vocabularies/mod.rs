//! What the tokenizer's tests share: real vocabularies, and small ones made by hand.
#![allow(dead_code)]

use cbtop::gguf::Gguf;
use cbtop::tokenizer::{Tokenizer, Vocabulary};
use std::path::{Path, PathBuf};

/// The tokenizer of a file.
pub fn load(path: &Path) -> Tokenizer {
    Tokenizer::new(vocabulary(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The vocabulary of a file.
pub fn vocabulary(path: &Path) -> Vocabulary {
    let gguf = Gguf::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Vocabulary::from_gguf(&gguf).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The vocabulary files of llama.cpp's own tests; none, with a message, where they are not there.
pub fn files() -> Vec<PathBuf> {
    let Some(shared) = crate::common::shared() else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = std::fs::read_dir(shared.join("vocab"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "gguf"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

/// A JSON file of tests/fixtures.
pub fn fixture(name: &str) -> serde_json::Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name);
    json(&path)
}

/// A JSON file.
pub fn json(path: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// The printable characters of the byte-level alphabet, in order of the bytes they stand for.
pub fn byte_alphabet() -> Vec<String> {
    let mut others = 0x100..;
    (0..256u32)
        .map(|byte| match byte {
            0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => byte,
            _ => others.next().unwrap(),
        })
        .map(|code| char::from_u32(code).unwrap().to_string())
        .collect()
}

/// A byte-level vocabulary with three merges.
pub fn small_bpe() -> Vocabulary {
    let mut tokens = byte_alphabet();
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

/// A SentencePiece-style vocabulary with byte tokens from id 3 on and eight pieces from id 259 on.
pub fn small_spm() -> Vocabulary {
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
