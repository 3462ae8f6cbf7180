//! The residual stream as captured: it adds up bit for bit, is that of the reference, changes no logit, and what is
//! changed in it is changed as in the reference.

mod common;
mod tiny;

use cbtop::engine::capture::{Capture, Captured, Part, Which};
use cbtop::engine::cpu::KernelSet;
use cbtop::engine::edit::{Change, Edit, Edits, RankOne, Site, site_len};
use cbtop::engine::reference::Reference;
use cbtop::engine::{Config, Engine, KvType, Logits, StepKind, Unobserved};
use cbtop::model::Model;
use cbtop::session::{Loaded, Source};
use common::cosine;
use std::collections::HashMap;
use std::sync::Arc;
use tiny::{ids, models};

type Stream = HashMap<(usize, Part, usize), Vec<f32>>;

const ALL: Capture = Capture {
    which: Which::All,
    heads: true,
    keys: true,
};

fn config(loaded: &Loaded, set: KernelSet, threads: usize) -> Config {
    Config {
        n_ctx: 256,
        chunk: 64,
        logit_rows: 3,
        kv_type: KvType::F32,
        kernels: set,
        threads,
        ..loaded.config()
    }
}

/// Runs `ids` in steps of `chunk`; what was captured, and the last logits.
fn run(engine: &mut Engine<Unobserved>, ids: &[u32], chunk: usize) -> (Stream, Vec<f32>) {
    let mut stream = Stream::new();
    engine.truncate(0);
    for part in ids.chunks(chunk) {
        engine
            .begin(part, Logits::Last, StepKind::Prefill)
            .expect("a step");
        engine
            .finish_captured(&mut |c: Captured<'_>| {
                let new = stream.insert((c.layer, c.part, c.position), c.data.to_vec());
                assert!(new.is_none(), "a vector twice");
            })
            .expect("a step");
        engine.end_step();
    }
    (stream, engine.logits(0).to_vec())
}

fn reference(model: &Model, ids: &[u32], edits: Option<Arc<Edits>>) -> (Stream, Vec<f32>) {
    let mut stream = Stream::new();
    let mut reference = Reference::for_context(model, 256);
    reference.set_edits(edits);
    let logits = reference
        .forward_captured(ids, &mut |c: Captured<'_>| {
            stream.insert((c.layer, c.part, c.position), c.data.to_vec());
        })
        .expect("forward");
    (stream, logits.last().expect("a position").clone())
}

fn adds_up(name: &str, stream: &Stream, n_layers: usize, positions: usize) {
    for position in 0..positions {
        for layer in 1..=n_layers {
            let at = |layer, part| &stream[&(layer, part, position)];
            let before = at(layer - 1, Part::Residual);
            let (attn, ffn) = (at(layer, Part::AttnDelta), at(layer, Part::FfnDelta));
            let sum: Vec<f32> = before
                .iter()
                .zip(attn)
                .zip(ffn)
                .map(|((x, a), f)| (x + a) + f)
                .collect();
            assert_eq!(
                &sum,
                at(layer, Part::Residual),
                "{name}: layer {layer} at {position}"
            );
        }
        for part in [Part::AttnDelta, Part::FfnDelta] {
            assert!(stream[&(0, part, position)].iter().all(|v| *v == 0.0));
        }
    }
}

#[test]
fn the_stream_adds_up_and_changes_no_logit() {
    for (name, loaded) in models() {
        let model = &loaded.model;
        let n_layers = model.hparams.n_layers;
        let ids = ids(model, 12);
        let (want, _) = reference(model, &ids, None);
        adds_up(&format!("{name}: reference"), &want, n_layers, ids.len());
        for set in KernelSet::available() {
            for (threads, chunk) in [(1, 12), (2, 5), (3, 1)] {
                let what = format!("{name}: {set}, {threads} threads, steps of {chunk}");
                let config = config(&loaded, set, threads);
                let mut engine = Engine::new(model.clone(), config, Unobserved).expect("engine");
                let (nothing, plain) = run(&mut engine, &ids, chunk);
                assert!(nothing.is_empty());
                engine.set_capture(Some(ALL)).expect("memory");
                let (stream, logits) = run(&mut engine, &ids, chunk);
                assert_eq!(plain, logits, "{what}: logits");
                adds_up(&what, &stream, n_layers, ids.len());
                assert_eq!(stream.len(), want.len(), "{what}");
                for (key, want) in &want {
                    assert_eq!(stream[key].len(), want.len(), "{what}: {key:?}");
                }

                // The lens behind the last layer is the head: alone bit for bit, among others in their arithmetic.
                let last = &stream[&(n_layers, Part::Residual, ids.len() - 1)];
                let first = &stream[&(0, Part::Residual, 0)];
                let mut alone = Vec::new();
                engine
                    .lens(last, &mut |_, lens| alone = lens.to_vec())
                    .expect("lens");
                assert_eq!(alone, logits, "{what}: lens");
                let five: Vec<f32> = [last, first, last, last, last]
                    .into_iter()
                    .flatten()
                    .copied()
                    .collect();
                let mut seen = 0;
                engine
                    .lens(&five, &mut |i, lens| {
                        assert_eq!(i, seen);
                        seen += 1;
                        let c = cosine(lens, &logits);
                        assert_eq!(c > 0.9999, i != 1, "{what}: lens {i}: cosine {c}");
                    })
                    .expect("lens");
                assert_eq!(seen, 5);

                engine
                    .set_capture(Some(Capture {
                        which: Which::Last,
                        ..ALL
                    }))
                    .expect("memory");
                let (last, logits) = run(&mut engine, &ids, chunk);
                assert_eq!(
                    plain, logits,
                    "{what}: logits of a run with the last position captured"
                );
                assert!(
                    last.iter().all(|(key, v)| &stream[key] == v),
                    "{what}: last position"
                );
                assert!(last.contains_key(&(n_layers, Part::FfnDelta, ids.len() - 1)));
            }
        }
    }
}

#[test]
fn the_stream_is_that_of_the_reference() {
    for (name, loaded) in models() {
        let model = &loaded.model;
        let dense = name.contains("archs") || name.contains("F16");
        let ids = ids(model, 9);
        let (want, _) = reference(model, &ids, None);
        let config = config(&loaded, KernelSet::best(), 2);
        let mut engine = Engine::new(model.clone(), config, Unobserved).expect("engine");
        engine.set_capture(Some(ALL)).expect("memory");
        let (got, _) = run(&mut engine, &ids, 9);
        if !dense || model.hparams.experts.is_some() {
            // int8 activations, and experts chosen at near ties, differ in the third digit.
            continue;
        }
        for (key, want) in &want {
            if want.iter().any(|v| *v != 0.0) {
                let c = cosine(&got[key], want);
                assert!(c > 0.9999, "{name}: {key:?}: cosine {c}");
            }
        }
    }
}

fn vector(n: usize, seed: usize) -> Arc<[f32]> {
    (0..n)
        .map(|i| (((i * 7 + seed * 13) % 23) as f32 - 11.0) / 11.0)
        .collect()
}

/// One edit of every kind, and a rank-one change.
fn edits_of(model: &Model) -> Vec<Edits> {
    let n_layers = model.hparams.n_layers;
    let sites = [
        Site::Attention,
        Site::Ffn,
        Site::Residual,
        Site::Head(model.hparams.n_head - 1),
        Site::Neuron(3),
    ];
    let mut all = Vec::new();
    for (i, site) in sites.into_iter().enumerate() {
        let n = site_len(model, site);
        for change in [
            Change::Zero,
            Change::Scale(-1.5),
            Change::Replace(vector(2 * n, i)),
        ] {
            let edit = Edit {
                layer: 1 + i % n_layers,
                site,
                positions: 3..5,
                change,
            };
            all.push(Edits::new(model, vec![edit], vec![]).expect("an edit"));
        }
    }
    let rank_one = RankOne {
        layer: n_layers,
        key: vector(Edits::key_len(model, n_layers), 1),
        value: vector(model.hparams.n_embd, 2),
    };
    all.push(Edits::new(model, vec![], vec![rank_one]).expect("a change"));
    all
}

#[test]
fn edits_do_what_they_do_in_the_reference() {
    for (name, loaded) in models().into_iter().filter(|(n, _)| n.contains("archs")) {
        let model = &loaded.model;
        let ids = ids(model, 6);
        let config = config(&loaded, KernelSet::best(), 2);
        let mut engine = Engine::new(model.clone(), config, Unobserved).expect("engine");
        engine.set_capture(Some(ALL)).expect("memory");
        let (_, plain) = run(&mut engine, &ids, 6);
        for edits in edits_of(model) {
            let what = format!("{name}: {edits:?}")
                .chars()
                .take(200)
                .collect::<String>();
            let edits = Arc::new(edits);
            let (_, want) = reference(model, &ids, Some(edits.clone()));
            engine.set_edits(Some(edits.clone()));
            let (_, got) = run(&mut engine, &ids, 6);
            let c = cosine(&got, &want);
            assert!(c > 0.9999, "{what}: cosine {c}");
            // One token at a time, on the same cache.
            let (_, single) = run(&mut engine, &ids, 1);
            let c = cosine(&single, &want);
            assert!(c > 0.9999, "{what}: token by token: cosine {c}");
            engine.set_edits(None);
        }
        assert_eq!(run(&mut engine, &ids, 6).1, plain, "{name}: edits are gone");
    }
}

#[test]
fn the_deltas_and_a_residual_are_the_rest_of_the_run() {
    // Replacing the residual by what it was changes nothing; by that of another text, the logits become that text's.
    for (name, loaded) in models().into_iter().filter(|(n, _)| n.contains("archs")) {
        let model = &loaded.model;
        let (a, b) = (ids(model, 6), ids(model, 7)[1..].to_vec());
        let config = config(&loaded, KernelSet::best(), 1);
        let mut engine = Engine::new(model.clone(), config, Unobserved).expect("engine");
        engine.set_capture(Some(ALL)).expect("memory");
        let (_, of_a) = run(&mut engine, &a, 6);
        let (stream, of_b) = run(&mut engine, &b, 6);
        let n_layers = model.hparams.n_layers;
        let last = stream[&(n_layers, Part::Residual, 5)].clone();
        let edit = Edit {
            layer: n_layers,
            site: Site::Residual,
            positions: 5..6,
            change: Change::Replace(last.into()),
        };
        let edits = Edits::new(model, vec![edit], vec![]).expect("an edit");
        engine.set_edits(Some(Arc::new(edits)));
        assert_eq!(run(&mut engine, &a, 6).1, of_b, "{name}");
        engine.set_edits(None);
        assert_eq!(run(&mut engine, &a, 6).1, of_a, "{name}");
    }
}

#[test]
fn edits_that_a_model_cannot_have_are_refused() {
    let loaded = Loaded::open(Source::Demo).expect("demo");
    let model = &loaded.model;
    let hp = &model.hparams;
    let edit = |layer, site, change| Edit {
        layer,
        site,
        positions: 0..1,
        change,
    };
    for bad in [
        edit(0, Site::Attention, Change::Zero),
        edit(hp.n_layers + 1, Site::Ffn, Change::Zero),
        edit(1, Site::Head(hp.n_head), Change::Zero),
        edit(1, Site::Neuron(usize::MAX), Change::Zero),
        edit(1, Site::Ffn, Change::Replace(vector(3, 0))),
        edit(1, Site::Ffn, Change::Scale(f32::NAN)),
    ] {
        let what = format!("{bad:?}");
        assert!(Edits::new(model, vec![bad], vec![]).is_err(), "{what}");
    }
    let rank_one = RankOne {
        layer: 1,
        key: vector(3, 0),
        value: vector(hp.n_embd, 0),
    };
    let error = Edits::new(model, vec![], vec![rank_one]).expect_err("a short key");
    assert!(error.to_string().contains("another model"), "{error}");
}
