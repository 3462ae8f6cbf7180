//! What integration tests share: where inputs are, and how a test says that they are not there.
#![allow(dead_code)]

use std::path::{Path, PathBuf};

/// The folder of tiny models and golden values beside the checkout; `None`, with a message, where there is none.
pub fn shared() -> Option<PathBuf> {
    let path = std::env::var_os("CBTOP_SHARED")
        .map(PathBuf::from)
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"));
    if path.join("golden").is_dir() {
        return Some(path);
    }
    println!(
        "skipped: {} is not there (set CBTOP_SHARED)",
        path.display()
    );
    None
}

/// A real model in the cache that `tests/fetch-models.sh` fills. Missing: skipped, or with `CI=true` a failure.
pub fn real_model(file: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("CBTOP_MODELS")
        .map(PathBuf::from)
        .or_else(|| {
            std::env::var_os("XDG_CACHE_HOME").map(|c| PathBuf::from(c).join("cbtop/models"))
        })
        .or_else(|| std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache/cbtop/models")))
        .unwrap_or_default();
    let path = cache.join(file);
    if path.is_file() {
        return Some(path);
    }
    let message = format!("{} is not there; run tests/fetch-models.sh", path.display());
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{message}");
    println!("skipped: {message}");
    None
}

/// SmolLM2, `llama` architecture, Q4_1 with Q8_0 head.
pub const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
/// Gemma 3 270M, Q4_K, Q5_0, Q6_K and Q8_0 mixed.
pub const GEMMA3: &str = "gemma-3-270m-q4_k_m.gguf";

/// Cosine of two vectors, in f64.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let dot = |x: &[f32], y: &[f32]| -> f64 {
        x.iter()
            .zip(y)
            .map(|(x, y)| f64::from(*x) * f64::from(*y))
            .sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// A tiny model with random weights that the repository carries.
pub fn fixture(file: &str) -> cbtop::session::Loaded {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/models")
        .join(file);
    cbtop::session::Loaded::open(cbtop::session::Source::File(path)).expect("fixture")
}

/// A tiny model of an architecture, with random weights.
pub fn archs(file: &str) -> cbtop::session::Loaded {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/archs")
        .join(file);
    cbtop::session::Loaded::open(cbtop::session::Source::File(path)).expect("fixture")
}
