//! The tiny models of every architecture, for tests that hold for all of them.
#![allow(dead_code)]

use crate::common;
use cbtop::model::Model;
use cbtop::session::{Loaded, Source};
use std::path::PathBuf;

/// Every tiny model of the repository and of the shared folder.
pub fn models() -> Vec<(String, Loaded)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/archs");
    let folders = [Some(root), common::shared().map(|s| s.join("models"))];
    let mut all = Vec::new();
    for folder in folders.into_iter().flatten() {
        let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
            .expect("folder")
            .map(|e| e.expect("entry").path())
            .filter(|p| p.extension().is_some_and(|e| e == "gguf"))
            .collect();
        files.sort();
        for file in files {
            let name = file.display().to_string();
            all.push((name, Loaded::open(Source::File(file)).expect("a model")));
        }
    }
    all
}

/// Ids that are spread over the vocabulary.
pub fn ids(model: &Model, n: usize) -> Vec<u32> {
    (0..n)
        .map(|i| ((i * 37 + 11) % model.n_vocab) as u32)
        .collect()
}
