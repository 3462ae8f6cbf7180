//! Both forward passes against reference values of an independent implementation (`../shared/golden`).

mod common;

use cbtop::engine::capture::{Captured, Part};
use cbtop::engine::cpu::KernelSet;
use cbtop::engine::reference::Reference;
use cbtop::engine::sampler::{argmax, logsumexp, top};
use cbtop::engine::{Config, Engine, Logits, StepKind, Unobserved};
use cbtop::session::{Loaded, Source};
use common::{GEMMA3, SMOLLM2, cosine, real_model, shared};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
    argmax: Vec<u32>,
    logsumexp: Vec<f64>,
    /// Tiny models: all logits of the last position.
    last_logits: Option<Vec<f32>>,
    /// Real models: id, token, logit.
    top20: Option<Vec<(u32, String, f32)>>,
    #[serde(default)]
    greedy12: Vec<u32>,
    #[serde(default)]
    greedy_margins: Vec<f64>,
    #[serde(default)]
    answer: Option<(u32, String)>,
    #[serde(default)]
    lens: Vec<LensRow>,
    peer_quantised_min_cosine: f64,
}

#[derive(Deserialize)]
struct LensRow {
    layer: usize,
    residual_l2: f64,
    residual_first4: Vec<f64>,
}

/// Greedy tokens are compared where the gap to the second logit is above this.
const SAFE_MARGIN: f64 = 0.3;
/// What an F32 path must reach.
const REFERENCE_COSINE: f64 = 0.99999;

fn golden(file: &str) -> Option<BTreeMap<String, Vec<Case>>> {
    let text = std::fs::read_to_string(shared()?.join("golden").join(file)).expect("golden file");
    Some(serde_json::from_str(&text).expect("golden JSON"))
}

fn load(path: &Path) -> Loaded {
    Loaded::open(Source::File(path.into())).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Logits of all positions by the fast path.
fn fast(loaded: &Loaded, ids: &[u32], change: impl Fn(&mut Config)) -> Vec<Vec<f32>> {
    let mut config = loaded.config();
    config.n_ctx = 512;
    config.chunk = 32;
    config.logit_rows = 32;
    change(&mut config);
    let mut engine = Engine::new(loaded.model.clone(), config.clone(), Unobserved).expect("engine");
    let mut all = Vec::new();
    for chunk in ids.chunks(config.logit_rows) {
        engine
            .step(chunk, Logits::All, StepKind::Prefill)
            .expect("step");
        all.extend((0..chunk.len()).map(|row| engine.logits(row).to_vec()));
    }
    all
}

/// Logits of the last position with every token decoded on its own.
fn decoded(loaded: &Loaded, ids: &[u32]) -> Vec<f32> {
    let mut config = loaded.config();
    config.n_ctx = 512;
    let mut engine = Engine::new(loaded.model.clone(), config, Unobserved).expect("engine");
    for &id in ids {
        engine.decode(id).expect("decode");
    }
    engine.logits(0).to_vec()
}

/// The golden file's rounding of a cosine.
fn rounded(cosine: f64) -> f64 {
    (cosine * 1e6).round() / 1e6
}

/// Cosine of `logits` with what the case knows of the last position.
fn last_cosine(case: &Case, logits: &[f32]) -> f64 {
    match (&case.last_logits, &case.top20) {
        (Some(all), _) => cosine(logits, all),
        (None, Some(top)) => {
            let (want, got): (Vec<f32>, Vec<f32>) = top
                .iter()
                .map(|(id, _, l)| (*l, logits[*id as usize]))
                .unzip();
            cosine(&got, &want)
        }
        _ => panic!("a case without logits"),
    }
}

fn check_reference(name: &str, loaded: &Loaded, case: &Case) -> Vec<Vec<f32>> {
    let ids = loaded
        .tokenizer
        .encode(&case.text, true, true)
        .expect("encode");
    assert_eq!(ids, case.ids, "{name}: token ids of {:?}", case.text);
    let mut reference = Reference::new(&loaded.model);
    let mut residuals = Vec::new();
    let logits = reference
        .forward_captured(&ids, &mut |c: Captured<'_>| {
            if c.part == Part::Residual && c.position + 1 == ids.len() {
                residuals.push(c.data.to_vec());
            }
        })
        .expect("forward");
    for (position, l) in logits.iter().enumerate() {
        assert_eq!(
            argmax(l),
            case.argmax[position],
            "{name}: argmax at {position} of {:?}",
            case.text
        );
        // Gemma's residual grows to a norm of 36,000, where the order of f32 sums, and the golden values' f16 cache,
        // show in the fourth digit.
        let (lse, want) = (logsumexp(l), case.logsumexp[position]);
        assert!(
            (lse / want - 1.0).abs() < 1e-3,
            "{name}: logsumexp {lse} at {position}, expected {want}"
        );
    }
    let c = last_cosine(case, logits.last().expect("a position"));
    assert!(
        c >= REFERENCE_COSINE,
        "{name}: reference cosine {c} for {:?}",
        case.text
    );
    for row in &case.lens {
        let x = &residuals[row.layer + 1];
        let l2 = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
        assert!(
            (l2 / row.residual_l2 - 1.0).abs() < 1e-3,
            "{name}: layer {} norm {l2}",
            row.layer
        );
        for (got, want) in x.iter().zip(&row.residual_first4) {
            assert!(
                (f64::from(*got) - want).abs() < 1e-3 * (1.0 + l2),
                "{name}: layer {} residual",
                row.layer
            );
        }
    }
    logits
}

/// Teacher-forced greedy continuation: at every safe margin the argmax is the golden token.
fn check_greedy(name: &str, case: &Case, mut next: impl FnMut(&[u32]) -> u32) {
    let mut ids = case.ids.clone();
    for (token, margin) in case.greedy12.iter().zip(&case.greedy_margins) {
        if *margin > SAFE_MARGIN {
            assert_eq!(
                next(&ids),
                *token,
                "{name}: greedy token {} of {:?}",
                ids.len() - case.ids.len(),
                case.text
            );
        }
        ids.push(*token);
    }
}

fn check_tiny(file: &str) {
    let Some(cases) = golden("tiny-models.json") else {
        return;
    };
    let Some(folder) = shared() else { return };
    let loaded = load(&folder.join("models").join(file));
    for case in &cases[file] {
        check_reference(file, &loaded, case);
        let c = rounded(last_cosine(case, &decoded(&loaded, &case.ids)));
        let peer = case.peer_quantised_min_cosine;
        assert!(
            c >= peer,
            "{file}: decoding cosine {c} below the peer's {peer} for {:?}",
            case.text
        );
        for set in KernelSet::available() {
            for threads in [1, 2, 3] {
                let logits = fast(&loaded, &case.ids, |c| {
                    c.kernels = set;
                    c.threads = threads;
                });
                let c = rounded(last_cosine(case, logits.last().expect("a position")));
                let peer = case.peer_quantised_min_cosine;
                assert!(
                    c >= peer,
                    "{file} {set:?}: fast cosine {c} below the peer's {peer} for {:?}",
                    case.text
                );
            }
            println!("model: {file} {set}");
        }
    }
}

macro_rules! tiny {
    ($($name:ident: $file:literal;)*) => {
        $(#[test] fn $name() { check_tiny($file); })*

        #[test]
        fn every_golden_file_has_a_test() {
            let Some(cases) = golden("tiny-models.json") else { return };
            let tested = [$($file),*];
            for file in cases.keys() {
                assert!(tested.contains(&file.as_str()), "{file} has no test");
            }
        }
    };
}

tiny! {
    llama_bf16: "llama.BF16.gguf";
    llama_f16: "llama.F16.gguf";
    llama_iq4_nl: "llama.IQ4_NL.gguf";
    llama_q2_k: "llama.Q2_K.gguf";
    llama_q3_k: "llama.Q3_K_M.gguf";
    llama_q4_0: "llama.Q4_0.gguf";
    llama_q4_1: "llama.Q4_1.gguf";
    llama_q4_k: "llama.Q4_K_M.gguf";
    llama_q5_0: "llama.Q5_0.gguf";
    llama_q5_k: "llama.Q5_K_M.gguf";
    llama_q6_k: "llama.Q6_K.gguf";
    llama_q8_0: "llama.Q8_0.gguf";
    llama_rope_freqs: "llama-ropefreqs.Q8_0.gguf";
    llama_yarn: "llama-yarn.Q8_0.gguf";
    qwen2_q4_k: "qwen2.Q4_K_M.gguf";
    qwen2_q8_0: "qwen2.Q8_0.gguf";
    qwen3_q8_0: "qwen3.Q8_0.gguf";
    gemma2_q8_0: "gemma2.Q8_0.gguf";
    gemma3_q4_k: "gemma3.Q4_K_M.gguf";
    gemma3_q8_0: "gemma3.Q8_0.gguf";
    gpt2_q8_0: "gpt2.Q8_0.gguf";
    mixtral_q4_k: "mixtral.Q4_K_M.gguf";
    olmo2_q8_0: "olmo2.Q8_0.gguf";
    phi3_q4_k: "phi3.Q4_K_M.gguf";
    qwen3moe_q4_k: "qwen3moe.Q4_K_M.gguf";
}

fn check_real(file: &str) {
    let Some(cases) = golden("real-models.json") else {
        return;
    };
    let Some(path) = real_model(file) else { return };
    let loaded = load(&path);
    for case in &cases[file] {
        let reference = check_reference(file, &loaded, case);
        let best = &case.top20.as_ref().expect("top 20")[0];
        assert_eq!(top(reference.last().expect("a position"), 1)[0].0, best.0);
        assert_eq!(case.answer.as_ref().map(|a| a.0), Some(best.0));
        check_greedy(file, case, |ids| {
            let mut r = Reference::new(&loaded.model);
            argmax(r.forward(ids).expect("forward").last().expect("a position"))
        });

        let reference = reference.last().expect("a position");
        let prefilled = fast(&loaded, &case.ids, |_| {});
        let peer = case.peer_quantised_min_cosine;
        for (path, logits) in [
            ("prefill", prefilled.last().expect("a position").clone()),
            ("decode", decoded(&loaded, &case.ids)),
        ] {
            let c = cosine(&logits, reference);
            println!("{file}: {path} cosine {c:.6}, peer {peer}, {:?}", case.text);
            assert!(
                rounded(c) >= peer,
                "{file}: {path} cosine {c} below the peer's {peer} for {:?}",
                case.text
            );
        }
    }
}

#[test]
fn smollm2() {
    check_real(SMOLLM2);
}

#[test]
fn gemma3_270m() {
    check_real(GEMMA3);
}
