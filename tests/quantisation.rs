//! Quantisation error: looking changes nothing, and errors are as large as they should be.

mod common;

use cbtop::engine::edit::{Edits, RankOne};
use cbtop::engine::reference::Reference;
use cbtop::engine::{Config, Engine, EngineError, Logits, StepKind, Unobserved};
use cbtop::model::Op;
use cbtop::session::{Loaded, Source};
use cbtop::tracer::figures::{ErrorGrade, ErrorOf, ModelQuantisationError, QuantisationErrorTrace};
use cbtop::tracer::quantisation::{Baseline, LiveErrors, QuantisationError, measure};
use std::sync::Arc;

const IDS: [u32; 11] = [1, 40, 7, 130, 12, 99, 5, 77, 23, 180, 4];

fn config(loaded: &Loaded) -> Config {
    Config {
        threads: 2,
        n_ctx: 64,
        chunk: 16,
        logit_rows: 16,
        ..loaded.config()
    }
}

fn engine(loaded: &Loaded) -> Engine<Unobserved> {
    Engine::new(Arc::clone(&loaded.model), config(loaded), Unobserved).expect("engine")
}

/// Figures of own errors whose weights are of one type, and how many there are: least cosine, least SNR.
fn worst(m: &ModelQuantisationError, ty: &str) -> (f64, f64, usize) {
    let of = |e: &&QuantisationErrorTrace| e.quant_type == ty;
    own(m)
        .filter(of)
        .fold((f64::INFINITY, f64::INFINITY, 0), |w, e| {
            let snr = e.snr_db.expect("there is an error");
            (w.0.min(e.cosine_similarity), w.1.min(snr), w.2 + 1)
        })
}

fn against(loaded: &Loaded, baseline: Option<&Loaded>) -> ModelQuantisationError {
    let baseline = baseline.map(|b| Baseline {
        model: Arc::clone(&b.model),
        name: b.source.to_string(),
    });
    let ids: Vec<u32> = (0..48).map(|i| (i * 37 + 11) % 256).collect();
    measure(
        &loaded.model,
        baseline.as_ref(),
        &ids,
        &config(loaded),
        &mut |_, _| true,
    )
    .expect("measured")
}

/// A model of `../shared` and the same weights in F16, where they are.
fn with_f16(file: &str) -> Option<(Loaded, Loaded)> {
    let folder = common::shared()?.join("models");
    let open = |file: &str| Loaded::open(Source::File(folder.join(file))).expect("model");
    Some((open(file), open("llama.F16.gguf")))
}

/// Products of Q4_K weights: against F32 of the same weights, and against F16 weights that they were made of.
#[test]
fn f258_q4_k_products_have_a_cosine_above_0_990() {
    let (cosine, _, n) = worst(
        &against(&common::fixture("llama.Q4_K_M.gguf"), None),
        "Q4_K",
    );
    println!("F258: against F32 of the same weights {cosine:.6}, {n} matrices");
    assert!(n > 10 && cosine > 0.990, "{cosine}");
    let Some((model, f16)) = with_f16("llama.Q4_K_M.gguf") else {
        return;
    };
    let (cosine, _, n) = worst(&against(&model, Some(&f16)), "Q4_K");
    println!("F258: against F16 weights {cosine:.6}, {n} matrices");
    assert!(n > 10 && cosine > 0.990, "{cosine}");
}

/// As above, of Q8_0 weights.
#[test]
fn f259_q8_0_products_have_a_cosine_above_0_999() {
    let (cosine, _, n) = worst(&against(&common::fixture("gemma3.Q8_0.gguf"), None), "Q8_0");
    println!("F259: against F32 of the same weights {cosine:.6}, {n} matrices");
    assert!(n > 10 && cosine > 0.999, "{cosine}");
    let Some((model, f16)) = with_f16("llama.Q8_0.gguf") else {
        return;
    };
    let (cosine, _, n) = worst(&against(&model, Some(&f16)), "Q8_0");
    println!("F259: against F16 weights {cosine:.6}, {n} matrices");
    assert!(n > 10 && cosine > 0.999, "{cosine}");
}

/// The engine's products of Q4_K weights are above 30 dB. What 4.5 bits leave of a weight is not: about 23 dB of weights
/// that are normally distributed, and that is a property of the format.
#[test]
fn f275_q4_k_products_have_a_signal_to_noise_ratio_above_30_db() {
    let (_, snr, n) = worst(
        &against(&common::fixture("llama.Q4_K_M.gguf"), None),
        "Q4_K",
    );
    println!("F275: against F32 of the same weights {snr:.1} dB, {n} matrices");
    assert!(n > 10 && snr > 30.0, "{snr}");
    let Some((model, f16)) = with_f16("llama.Q4_K_M.gguf") else {
        return;
    };
    let (_, snr, _) = worst(&against(&model, Some(&f16)), "Q4_K");
    println!("F275: against F16 weights {snr:.1} dB, which falls short of 30");
    assert!((20.0..30.0).contains(&snr), "{snr}");
}

#[test]
fn a_file_beside_itself_has_no_error_but_that_of_its_kernels() {
    let loaded = common::fixture("qwen2.Q4_K_M.gguf");
    let (own_weights, beside) = (against(&loaded, None), against(&loaded, Some(&loaded)));
    assert!(beside.reference.ends_with("qwen2.Q4_K_M.gguf"));
    for e in &beside.brick_errors {
        if e.of == ErrorOf::Arriving {
            assert_eq!((e.mse, e.snr_db), (0.0, None), "{e:?}");
            assert_eq!(e.grade, ErrorGrade::Acceptable);
        }
    }
    assert_eq!((beside.output_kl_divergence, beside.same_top), (0.0, 1.0));
    assert_eq!((beside.perplexity_delta, beside.tokens), (0.0, 48));
    let mine: Vec<_> = own(&own_weights).collect();
    assert_eq!(mine, own(&beside).collect::<Vec<_>>());
}

#[test]
fn experts_are_compared_where_both_chose_them() {
    let mut found = 0;
    for loaded in all_fixtures() {
        let experts = loaded.model.plan.bricks.iter();
        if !experts
            .clone()
            .any(|b| matches!(b.op, Op::ExpertMatMul { .. }))
        {
            continue;
        }
        found += 1;
        let m = measure(&loaded.model, None, &IDS, &config(&loaded), &mut |_, _| {
            true
        })
        .expect("measured");
        let pairs = (IDS.len() * loaded.model.hparams.n_expert_used()) as u64;
        for e in m
            .brick_errors
            .iter()
            .filter(|e| e.brick_id.name().starts_with("ExpertDown"))
        {
            match e.of {
                ErrorOf::Own => assert_eq!(e.vectors, pairs, "{}", loaded.name()),
                ErrorOf::Arriving => assert!(e.vectors <= pairs && e.vectors > 0),
            }
        }
    }
    assert!(found > 0, "no model with experts");
}

#[test]
fn another_model_is_no_reference() {
    let llama = common::fixture("llama.Q4_K_M.gguf");
    for (file, what) in [
        ("qwen2.Q4_K_M.gguf", "architecture qwen2, here llama"),
        ("llama.mixed.gguf", "layers 2, here 3"),
    ] {
        let other = common::fixture(file);
        let baseline = Baseline {
            model: Arc::clone(&other.model),
            name: file.into(),
        };
        let e = measure(
            &llama.model,
            Some(&baseline),
            &IDS,
            &config(&llama),
            &mut |_, _| true,
        );
        let text = e.expect_err("refused").to_string();
        assert!(text.contains(file) && text.contains(what), "{text}");
        let live = LiveErrors::new(Arc::clone(&llama.model), Some(baseline));
        assert!(matches!(
            live.err(),
            Some(QuantisationError::Incompatible { .. })
        ));
    }
}

#[test]
fn too_few_tokens_too_many_and_a_stop_are_errors() {
    let loaded = common::fixture("llama.Q4_K_M.gguf");
    let go =
        |ids: &[u32], on: bool| measure(&loaded.model, None, ids, &config(&loaded), &mut |_, _| on);
    for n in [0, 1] {
        assert!(
            matches!(go(&IDS[..n], true), Err(QuantisationError::TooShort(found)) if found == n)
        );
    }
    assert!(matches!(
        go(&[3; 65], true),
        Err(QuantisationError::Engine(EngineError::ContextFull { .. }))
    ));
    assert!(matches!(
        go(&[3, u32::MAX], true),
        Err(QuantisationError::Engine(EngineError::BadToken { .. }))
    ));
    assert!(matches!(go(&IDS, false), Err(QuantisationError::Stopped)));
    let mut told = Vec::new();
    measure(
        &loaded.model,
        None,
        &IDS,
        &config(&loaded),
        &mut |done, all| {
            told.push((done, all));
            true
        },
    )
    .expect("measured");
    let bricks = loaded.model.plan.bricks.len() as u32;
    assert_eq!(told, (1..=bricks).map(|i| (i, bricks)).collect::<Vec<_>>());
}

/// What facts in force add to a product is no error of it.
#[test]
fn facts_in_force_are_no_error() {
    let loaded = common::fixture("llama.Q4_K_M.gguf");
    let model = &loaded.model;
    let fact = RankOne {
        layer: 2,
        key: (0..Edits::key_len(model, 2))
            .map(|i| (i as f32).sin())
            .collect(),
        value: (0..model.hparams.n_embd)
            .map(|i| (i as f32).cos())
            .collect(),
    };
    let edits = Edits::new(model, Vec::new(), vec![fact]).expect("edits");
    let mut engine = engine(&loaded);
    engine.set_edits(Some(Arc::new(edits)));
    let mut live = LiveErrors::new(Arc::clone(model), None).expect("live");
    for id in 0..8 {
        engine
            .begin(&[id], Logits::Last, StepKind::Decode)
            .expect("begins");
        live.step(&mut engine).expect("runs");
        engine.end_step();
    }
    for e in live.view().live {
        assert!(e.cosine_similarity > 0.999, "{e:?}");
    }
}

/// A step that stands between layers is seen from there on.
#[test]
fn a_step_that_has_begun_is_finished() {
    let loaded = common::fixture("llama.Q4_K_M.gguf");
    let (mut plain, mut watched) = (engine(&loaded), engine(&loaded));
    let mut live = LiveErrors::new(Arc::clone(&loaded.model), None).expect("live");
    plain
        .step(&IDS, Logits::Last, StepKind::Prefill)
        .expect("runs");
    watched
        .begin(&IDS, Logits::Last, StepKind::Prefill)
        .expect("begins");
    watched.advance_layer().expect("runs");
    live.step(&mut watched).expect("runs");
    watched.end_step();
    assert!(!watched.in_step() && live.view().live.is_empty());
    assert_eq!(bits(plain.logits(0)), bits(watched.logits(0)));
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

fn all_fixtures() -> Vec<Loaded> {
    let files = ["llama.Q4_K_M.gguf", "gemma3.Q8_0.gguf", "qwen2.Q4_K_M.gguf"];
    let mut all: Vec<_> = files.into_iter().map(common::fixture).collect();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/archs");
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|e| e == "gguf") {
            all.push(Loaded::open(Source::File(path)).expect("fixture"));
        }
    }
    all
}

/// Of every architecture, prompt and decode, every brick looked at.
#[test]
fn f272_logits_are_the_same_when_bricks_are_looked_at() {
    for loaded in all_fixtures() {
        let (mut plain, mut looked) = (engine(&loaded), engine(&loaded));
        let bricks = loaded.model.plan.bricks.len();
        for (ids, kind) in [(&IDS[..], StepKind::Prefill), (&[9], StepKind::Decode)] {
            plain.step(ids, Logits::All, kind).expect("runs");
            looked.begin(ids, Logits::All, kind).expect("begins");
            let mut seen = vec![0; bricks];
            looked
                .finish_inspected(&|_| true, &mut |brick, v| {
                    assert!(v.output.iter().all(|x| x.is_finite()));
                    assert!(v.token < ids.len());
                    seen[brick] += 1;
                })
                .expect("runs");
            looked.end_step();
            for (brick, seen) in loaded.model.plan.bricks.iter().zip(seen) {
                let silent = matches!(brick.op, Op::KvWrite | Op::QuantiseHeads | Op::Route { .. });
                assert_eq!(seen == 0, silent, "{:?}", brick.id);
            }
            for row in 0..ids.len() {
                assert_eq!(bits(plain.logits(row)), bits(looked.logits(row)));
            }
        }
    }
}

#[test]
fn the_reference_tells_what_it_writes_and_computes_the_same() {
    for loaded in all_fixtures() {
        let plain = Reference::new(&loaded.model).forward(&IDS).expect("runs");
        let mut last = Vec::new();
        let mut next = 0;
        let looked = Reference::new(&loaded.model)
            .forward_inspected(&IDS, &mut |brick, vectors| {
                assert_eq!(brick, next);
                next += 1;
                last = vectors.iter().map(|v| v.output.to_vec()).collect();
                Ok::<_, EngineError>(())
            })
            .expect("runs");
        assert_eq!(plain, looked);
        assert_eq!(plain, last);
        assert_eq!(next, loaded.model.plan.bricks.len());
    }
}

/// What an engine has written at a brick is what its input gives, and what the reference's differs from by rounding.
#[test]
fn errors_of_every_architecture_are_small() {
    for loaded in all_fixtures() {
        let m = measure(&loaded.model, None, &IDS, &config(&loaded), &mut |_, _| {
            true
        })
        .expect("measured");
        let name = loaded.name();
        for e in own(&m) {
            assert!(e.cosine_similarity > 0.999, "{name}: {e:?}");
        }
        assert!(m.logits_cosine > 0.99, "{name}: {}", m.logits_cosine);
        assert!(m.output_kl_divergence >= 0.0 && m.perplexity.is_finite());
    }
}

fn own(m: &ModelQuantisationError) -> impl Iterator<Item = &QuantisationErrorTrace> {
    m.brick_errors.iter().filter(|e| e.of == ErrorOf::Own)
}

#[test]
fn live_errors_leave_logits_alone_and_come_to_every_matrix() {
    for loaded in all_fixtures() {
        // Many short steps: a second thread would mostly be woken.
        let one = || {
            let config = Config {
                threads: 1,
                ..config(&loaded)
            };
            Engine::new(Arc::clone(&loaded.model), config, Unobserved).expect("engine")
        };
        let (mut plain, mut watched) = (one(), one());
        let mut live = LiveErrors::new(Arc::clone(&loaded.model), None).expect("live");
        plain.prefill(&IDS).expect("runs");
        watched.prefill(&IDS).expect("runs");
        let layers = loaded.model.hparams.n_layers + 1;
        for id in 0..2 * layers.min(20) as u32 {
            plain.decode(id).expect("runs");
            watched
                .begin(&[id], Logits::Last, StepKind::Decode)
                .expect("begins");
            live.step(&mut watched).expect("runs");
            watched.end_step();
            assert_eq!(bits(plain.logits(0)), bits(watched.logits(0)));
        }
        let view = live.view();
        let products = loaded.model.plan.bricks.iter();
        let products =
            products.filter(|b| matches!(b.op, Op::MatMul { .. } | Op::ExpertMatMul { .. }));
        assert_eq!(view.live.len(), products.count());
        assert_eq!(view.reference, "F32 of the same weights");
        for e in &view.live {
            assert!(e.cosine_similarity > 0.999, "{}: {e:?}", loaded.name());
        }
        live.clear();
        assert!(live.view().live.is_empty());
    }
}
