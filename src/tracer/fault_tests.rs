//! Faults injected into a real forward pass are found: which, in which layer, brick and position.

use super::figures::{ActivationAnomaly, ActivationSite, AnomalyKind, TracerSet};
use super::{ModelTracer, ModelTracerConfig};
use crate::engine::cpu::fault::{Fault, Wrong};
use crate::engine::sampler::SamplerConfig;
use crate::engine::{Config, Engine, Logits, StepKind, Unobserved};
use crate::model::Op;
use crate::model::brick::BrickId;
use crate::session::{Loaded, Source};
use std::path::Path;

fn fixture(file: &str) -> Loaded {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models");
    Loaded::open(Source::File(folder.join(file))).expect("fixture")
}

/// The anomalies of a text of which product `brick` of `layer` goes wrong, read in steps of `chunk` tokens.
fn found(
    loaded: &Loaded,
    (layer, id): (usize, BrickId),
    position: Option<usize>,
    what: Wrong,
    chunk: usize,
) -> Vec<ActivationAnomaly> {
    let model = &loaded.model;
    let config = Config {
        threads: 2,
        n_ctx: 64,
        ..loaded.config()
    };
    let on = TracerSet {
        activations: true,
        ..TracerSet::default()
    };
    let config_of = ModelTracerConfig {
        on,
        ..ModelTracerConfig::default()
    };
    let mut tracer =
        ModelTracer::new(model, &loaded.tokenizer, "tiny", None, config_of).expect("tracers");
    let mut engine = Engine::new(model.clone(), config, Unobserved).expect("engine");
    tracer.equip(&mut engine, None).expect("memory");
    let is_it = |b: &crate::model::Brick| {
        b.id == id && b.layer.is_none_or(|l| l == layer) && matches!(b.op, Op::MatMul { .. })
    };
    let brick = model.plan.bricks.iter().position(is_it).expect("a product");
    engine.inject(Some(Fault {
        brick,
        position,
        what,
    }));
    let ids: Vec<u32> = (0..12)
        .map(|i| (i * 37 + 11) % model.n_vocab as u32)
        .collect();
    for part in ids.chunks(chunk) {
        engine
            .step(part, Logits::Last, StepKind::Prefill)
            .expect("a step");
        tracer
            .step_done(&mut engine, &SamplerConfig::GREEDY, None)
            .expect("tracers");
    }
    let frame = tracer.frame(&engine, &mut ids.iter().copied());
    frame.activations.expect("on").anomalies.clone()
}

fn broken_products() -> [BrickId; 7] {
    use BrickId::{DownProj, GateProj, KProj, OProj, QProj, UpProj, VProj};
    [QProj, KProj, VProj, OProj, GateProj, UpProj, DownProj]
}

#[test]
fn f251_f268_nan_and_infinity_are_found_where_they_began() {
    for file in ["llama.Q4_K_M.gguf", "gemma3.Q8_0.gguf"] {
        let loaded = fixture(file);
        for (value, kind) in [
            (f32::NAN, AnomalyKind::Nan),
            (f32::INFINITY, AnomalyKind::Infinity),
        ] {
            for id in broken_products() {
                for chunk in [12, 5, 1] {
                    let at = (1, id);
                    let anomalies = found(&loaded, at, Some(7), Wrong::Element(value), chunk);
                    let what = format!(
                        "{file}: {value} in {} by {chunk}: {anomalies:#?}",
                        id.name()
                    );
                    let first = anomalies.first().expect(&what);
                    assert_eq!((first.layer, first.position), (Some(1), 7), "{what}");
                    // An infinity may become a NaN before it is seen in a layer's sums.
                    let kinds = [kind, AnomalyKind::Nan];
                    assert!(kinds.contains(&first.kind), "{what}");
                    if first.kind == kind {
                        assert_eq!(first.brick, Some(id), "{what}");
                        assert!(first.text.contains(id.name()), "{what}");
                    }
                    assert!(first.brick.is_some(), "{what}");
                }
            }
        }
        let healthy = found(&loaded, (1, BrickId::QProj), Some(99), Wrong::Dead, 5);
        assert!(healthy.is_empty(), "{file}: {healthy:#?}");
    }
}

#[test]
fn f252_f268_an_explosion_is_found() {
    for file in ["llama.Q4_K_M.gguf", "qwen2.Q4_K_M.gguf"] {
        let loaded = fixture(file);
        for id in [BrickId::OProj, BrickId::DownProj] {
            let anomalies = found(&loaded, (1, id), Some(4), Wrong::Element(1e7), 12);
            let what = format!("{file}: {} {anomalies:#?}", id.name());
            let first = anomalies.first().expect(&what);
            assert_eq!(first.kind, AnomalyKind::Explosion, "{what}");
            assert_eq!((first.layer, first.position), (Some(1), 4), "{what}");
            assert_eq!(first.brick, Some(id), "{what}");
            assert!(first.value >= 1e6, "{what}");
        }
        // The limit itself is none.
        let limit = found(
            &loaded,
            (1, BrickId::DownProj),
            Some(4),
            Wrong::Element(9e5),
            12,
        );
        let exploded = limit
            .iter()
            .any(|a| a.kind == AnomalyKind::Explosion && a.value > 1e6);
        assert!(!exploded, "{limit:#?}");
    }
}

#[test]
fn f268_a_dead_block_is_found() {
    for file in ["llama.Q4_K_M.gguf", "qwen2.Q4_K_M.gguf"] {
        let loaded = fixture(file);
        for (id, site) in [
            (BrickId::OProj, ActivationSite::PostAttention),
            (BrickId::DownProj, ActivationSite::PostFfn),
        ] {
            for layer in 0..2 {
                let anomalies = found(&loaded, (layer, id), None, Wrong::Dead, 5);
                let what = format!("{file}: {} of layer {layer}: {anomalies:#?}", id.name());
                let first = anomalies.first().expect(&what);
                assert_eq!(first.kind, AnomalyKind::Vanishing, "{what}");
                assert_eq!(
                    (first.layer, first.site),
                    (Some(layer as u32), site),
                    "{what}"
                );
                assert_eq!((first.position, first.brick), (0, Some(id)), "{what}");
            }
        }
    }
}

#[test]
fn f251_a_broken_head_is_found_in_the_logits() {
    let loaded = fixture("llama.Q4_K_M.gguf");
    let anomalies = found(
        &loaded,
        (0, BrickId::LmHead),
        None,
        Wrong::Element(f32::NAN),
        12,
    );
    let first = anomalies.first().expect("an anomaly");
    assert_eq!((first.site, first.layer), (ActivationSite::Logits, None));
    assert_eq!(first.brick, Some(BrickId::LmHead));
}
