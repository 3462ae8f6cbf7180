//! A model with a tensor of every rarer weight type against llama.cpp's logits: `tests/fixtures/models/make_mixed.py`.

mod common;

use cbtop::engine::cpu::KernelSet;
use cbtop::engine::reference::Reference;
use cbtop::engine::{Engine, Logits, StepKind, Unobserved};
use cbtop::session::Loaded;
use common::{cosine, fixture};
use serde::Deserialize;

#[derive(Deserialize)]
struct Expected {
    ids: Vec<u32>,
    /// Smallest cosine that llama.cpp's own kernels reach with the packed weights.
    peer_min_cosine: f64,
    /// Of llama.cpp with the weights expanded to F32, for every position.
    logits: Vec<Vec<f32>>,
}

fn expected() -> Expected {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/models/llama.mixed.json"
    );
    serde_json::from_str(&std::fs::read_to_string(path).expect("fixture")).expect("JSON")
}

fn smallest_cosine(got: &[Vec<f32>], want: &[Vec<f32>]) -> f64 {
    assert_eq!(got.len(), want.len());
    let pairs = got.iter().zip(want);
    pairs.map(|(g, w)| cosine(g, w)).fold(1.0, f64::min)
}

/// All positions in one step, or one after the other.
fn logits(loaded: &Loaded, ids: &[u32], set: KernelSet, at_once: bool) -> Vec<Vec<f32>> {
    let mut config = loaded.config();
    config.n_ctx = 64;
    config.kernels = set;
    config.logit_rows = ids.len();
    let mut engine = Engine::new(loaded.model.clone(), config, Unobserved).expect("engine");
    if at_once {
        engine
            .step(ids, Logits::All, StepKind::Prefill)
            .expect("step");
        return (0..ids.len()).map(|i| engine.logits(i).to_vec()).collect();
    }
    let mut all = Vec::new();
    for &id in ids {
        engine.decode(id).expect("decode");
        all.push(engine.logits(0).to_vec());
    }
    all
}

#[test]
fn the_reference_agrees_with_llama_cpp_on_every_rare_type() {
    let (loaded, want) = (fixture("llama.mixed.gguf"), expected());
    let got = Reference::new(&loaded.model)
        .forward(&want.ids)
        .expect("forward");
    let c = smallest_cosine(&got, &want.logits);
    assert!(c >= 0.99999, "smallest cosine {c}");
}

#[test]
fn the_engine_is_as_close_as_llama_cpps_kernels() {
    let (loaded, want) = (fixture("llama.mixed.gguf"), expected());
    for set in KernelSet::available() {
        for at_once in [true, false] {
            let got = logits(&loaded, &want.ids, set, at_once);
            let c = smallest_cosine(&got, &want.logits);
            println!("model: llama.mixed.gguf {set}, at once {at_once}: cosine {c}");
            assert!(c >= want.peer_min_cosine, "{set}, at once {at_once}: {c}");
        }
    }
}
