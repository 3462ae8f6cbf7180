//! Quantisation error: looking changes nothing, and errors are as large as they should be.

mod common;

use cbtop::engine::reference::Reference;
use cbtop::engine::{Config, Engine, EngineError, Logits, StepKind, Unobserved};
use cbtop::model::Op;
use cbtop::model::brick::BrickId;
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
        let (mut plain, mut watched) = (engine(&loaded), engine(&loaded));
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
