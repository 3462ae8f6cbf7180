//! Every architecture against llama.cpp: tiny random models of `tests/fixtures/archs`, made by the script beside them.

mod common;

use cbtop::engine::cpu::KernelSet;
use cbtop::engine::reference::Reference;
use cbtop::engine::sampler::{argmax, logsumexp};
use cbtop::engine::{Config, Engine, KvType, Logits, Overflow, StepKind, Unobserved};
use cbtop::model::arch::ARCHITECTURES;
use cbtop::session::{Loaded, Source};
use common::cosine;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

#[derive(Deserialize)]
struct Case {
    ids: Vec<u32>,
    argmax: Vec<u32>,
    logsumexp: Vec<f64>,
    last_logits: Vec<f32>,
}

/// What both paths must reach: nothing in these files is quantised.
const COSINE: f64 = 0.99999;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/archs")
}

fn cases() -> BTreeMap<String, Case> {
    let text = std::fs::read_to_string(folder().join("golden.json")).expect("golden file");
    serde_json::from_str(&text).expect("golden JSON")
}

fn load(name: &str) -> Loaded {
    let path = folder().join(format!("{name}.gguf"));
    Loaded::open(Source::File(path)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Logits of every position by the fast path, in steps of `chunk` tokens; 1 decodes.
fn fast(
    loaded: &Loaded,
    ids: &[u32],
    chunk: usize,
    set: KernelSet,
    threads: usize,
) -> Vec<Vec<f32>> {
    let config = Config {
        n_ctx: 256,
        chunk,
        logit_rows: chunk,
        kv_type: KvType::F32,
        kernels: set,
        threads,
        ..loaded.config()
    };
    let mut engine = Engine::new(loaded.model.clone(), config, Unobserved).expect("engine");
    let mut all = Vec::new();
    for ids in ids.chunks(chunk) {
        engine
            .step(ids, Logits::All, StepKind::Prefill)
            .expect("step");
        all.extend((0..ids.len()).map(|row| engine.logits(row).to_vec()));
    }
    all
}

fn check(name: &str, what: &str, case: &Case, logits: &[Vec<f32>]) {
    let c = cosine(logits.last().expect("a position"), &case.last_logits);
    assert!(c >= COSINE, "{name}: {what}: cosine {c}");
    for (position, l) in logits.iter().enumerate() {
        let (lse, want) = (logsumexp(l), case.logsumexp[position]);
        assert!(
            (lse - want).abs() < 2e-3 * want.abs().max(1.0),
            "{name}: {what}: log-sum-exp {lse} at {position}, expected {want}"
        );
        let (best, expected) = (argmax(l), case.argmax[position]);
        assert_eq!(best, expected, "{name}: {what}: argmax at {position}");
    }
}

#[test]
fn both_paths_equal_llama_cpp() {
    for (name, case) in cases() {
        let loaded = load(&name);
        let mut reference = Reference::for_context(&loaded.model, 256);
        let logits = reference.forward(&case.ids).expect("forward");
        check(&name, "reference", &case, &logits);
        for set in KernelSet::available() {
            for (chunk, threads) in [(1, 1), (7, 3), (40, 2)] {
                let logits = fast(&loaded, &case.ids, chunk, set, threads);
                let what = format!("{set}, chunk {chunk}, {threads} threads");
                check(&name, &what, &case, &logits);
            }
            println!("model: {name} {set}");
        }
    }
}

#[test]
fn every_architecture_has_a_model() {
    let mut missing: BTreeSet<&str> = ARCHITECTURES.iter().map(|a| a.name).collect();
    for name in cases().keys() {
        missing.remove(load(name).model.hparams.arch.name);
    }
    // These are in ../shared only.
    for name in ["qwen2", "qwen3"] {
        missing.remove(name);
    }
    assert!(missing.is_empty(), "no model of {missing:?}");
}

#[test]
fn learned_positions_end() {
    let loaded = load("gpt2");
    let longer = Config {
        n_ctx: 257,
        ..loaded.config()
    };
    let ring = Config {
        overflow: Overflow::Ring,
        chunk: 64,
        ..loaded.config()
    };
    for config in [longer, ring] {
        let refused = Engine::new(loaded.model.clone(), config, Unobserved).err();
        let message = refused.expect("refused").to_string();
        assert!(message.contains("256 tokens only"), "{message}");
    }
}
