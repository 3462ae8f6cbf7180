//! Logits followed through the layers: exact, on every architecture, and changing nothing.

mod common;

use cbtop::engine::capture::{Capture, Captured, Part};
use cbtop::engine::sampler::{Sampler, SamplerConfig};
use cbtop::engine::{Config, Engine, Logits, StepKind, Unobserved};
use cbtop::session::{Loaded, Source};
use cbtop::tracer::figures::LogitView;
use cbtop::tracer::logits::{LogitTracer, TOP};
use std::collections::HashMap;
use std::path::Path;

fn models() -> Vec<Loaded> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/archs");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("folder")
        .map(|e| e.expect("entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "gguf"))
        .collect();
    files.sort();
    let sources = files.into_iter().map(Source::File).chain([Source::Demo]);
    sources.map(|s| Loaded::open(s).expect("a model")).collect()
}

fn engine(loaded: &Loaded, threads: usize, logit_rows: usize) -> Engine<Unobserved> {
    let config = Config {
        n_ctx: 64,
        chunk: 16,
        threads,
        logit_rows,
        ..loaded.config()
    };
    let mut engine = Engine::new(loaded.model.clone(), config, Unobserved).expect("engine");
    engine.set_capture(Some(Capture::LAST)).expect("memory");
    engine
}

fn ids(loaded: &Loaded, n: usize) -> Vec<u32> {
    (0..n)
        .map(|i| ((i * 37 + 11) % loaded.model.n_vocab) as u32)
        .collect()
}

/// A prompt of 9 tokens and `n` generated ones, each followed.
fn generate(
    loaded: &Loaded,
    engine: &mut Engine<Unobserved>,
    sampler: SamplerConfig,
    n: usize,
    mut after: impl FnMut(&mut Engine<Unobserved>, &LogitView, &[u32]),
) -> (Vec<u32>, LogitView) {
    let mut tracer = LogitTracer::new(vec![2, u32::MAX]);
    let mut draw = Sampler::new(sampler, loaded.model.n_vocab);
    engine.prefill(&ids(loaded, 9)).expect("prefill");
    let mut drawn = Vec::new();
    loop {
        let id = engine.sample(&mut draw).id;
        drawn.push(id);
        let before: Vec<u32> = engine.logits(0).iter().map(|l| l.to_bits()).collect();
        tracer
            .step(engine, &loaded.tokenizer, &sampler, id)
            .expect("followed");
        after(engine, &tracer.view(), &before);
        if drawn.len() > n {
            return (drawn, tracer.view());
        }
        engine.decode(id).expect("a token");
    }
}

#[test]
fn the_last_entry_is_the_models_own_and_nothing_changes() {
    for loaded in models() {
        let what = loaded.source.to_string();
        let n_layers = loaded.model.hparams.n_layers;
        // Rows of the lens are a few at a time, and one of them alone.
        for rows in [1, 3] {
            let sampler = SamplerConfig {
                temperature: 0.9,
                top_k: 20,
                top_p: 0.9,
                min_p: 0.02,
                seed: 4,
            };
            let mut traced = engine(&loaded, 1, rows);
            let (drawn, view) =
                generate(&loaded, &mut traced, sampler, 4, |engine, view, before| {
                    let now: Vec<u32> = engine.logits(0).iter().map(|l| l.to_bits()).collect();
                    assert_eq!(now, before, "{what}: the step's logits are there again");
                    let trace = view.traces.last().expect("a trace");
                    assert_eq!(trace.position as usize, engine.past() - 1);
                    for token in &trace.tracked_tokens {
                        assert_eq!(token.per_layer_logit.len(), n_layers + 1);
                        assert_eq!(token.per_layer_rank.len(), n_layers + 1);
                        let last = token.per_layer_logit.last().expect("the end").to_bits();
                        assert_eq!(last, before[token.token_id as usize], "{what}");
                        assert_eq!(token.per_layer_rank.last(), Some(&token.final_rank));
                    }
                    assert!(trace.tracked_tokens.iter().any(|t| t.token_id == 2));
                    assert!(
                        trace
                            .tracked_tokens
                            .iter()
                            .any(|t| t.token_id == trace.selected.id)
                    );
                    assert_eq!(trace.top5_overlap.len(), n_layers + 1);
                    assert_eq!(trace.top5_overlap.last(), Some(&(TOP as u32)));
                    assert!((trace.decisive_layer as usize) < n_layers);
                    // What was drawn was not cut.
                    let shown = trace.sampling.candidates.iter();
                    let mut chosen = shown.filter(|c| c.token.id == trace.selected.id);
                    assert!(chosen.all(|c| c.drawn_prob > 0.0 && c.cut_by.is_none()));
                });
            assert_eq!((view.steps, view.traces.len()), (5, 5));

            let mut plain = engine(&loaded, 1, rows);
            plain.set_capture(None).expect("memory");
            let mut draw = Sampler::new(sampler, loaded.model.n_vocab);
            plain.prefill(&ids(&loaded, 9)).expect("prefill");
            for id in drawn {
                assert_eq!(
                    plain.sample(&mut draw).id,
                    id,
                    "{what}: the same tokens without"
                );
                plain.decode(id).expect("a token");
            }
        }
    }
}

#[test]
fn f256_a_logit_after_layer_b_is_that_of_the_steps_from_layer_a() {
    for loaded in models() {
        let what = loaded.source.to_string();
        let n_layers = loaded.model.hparams.n_layers;
        let mut engine = engine(&loaded, 1, 1);
        generate(
            &loaded,
            &mut engine,
            SamplerConfig::GREEDY,
            1,
            |engine, view, _| {
                let trace = view.traces.last().expect("a trace").clone();
                let mut parts: HashMap<(usize, Part), Vec<f32>> = HashMap::new();
                engine.captured(&mut |c: Captured<'_>| {
                    parts.insert((c.layer, c.part), c.data.to_vec());
                });
                for a in 0..=n_layers {
                    let mut x = parts[&(a, Part::Residual)].clone();
                    for b in a..=n_layers {
                        if b > a {
                            for part in [Part::AttnDelta, Part::FfnDelta] {
                                x.iter_mut()
                                    .zip(&parts[&(b, part)])
                                    .for_each(|(x, d)| *x += d);
                            }
                        }
                        let check = &mut |_: usize, logits: &[f32]| {
                            for token in &trace.tracked_tokens {
                                let by_steps = logits[token.token_id as usize].to_bits();
                                let direct = token.per_layer_logit[b].to_bits();
                                assert_eq!(by_steps, direct, "{what}: from layer {a} to {b}");
                            }
                        };
                        engine.lens(&x, check).expect("lens");
                    }
                }
            },
        );
    }
}

#[test]
fn f257_ranks_are_stable_on_greedy_decode() {
    for loaded in models() {
        let what = loaded.source.to_string();
        let mut first = None;
        for threads in [1, 2] {
            let mut engine = engine(&loaded, threads, 1);
            let (drawn, view) =
                generate(&loaded, &mut engine, SamplerConfig::GREEDY, 6, |_, _, _| {});
            for trace in &view.traces {
                let of = |id| trace.tracked_tokens.iter().find(|t| t.token_id == id);
                assert_eq!(
                    of(trace.selected.id).expect("followed").final_rank,
                    1,
                    "{what}"
                );
                let from = trace.stable_from.expect("first in the end") as usize;
                let ranks = &of(trace.selected.id).expect("followed").per_layer_rank;
                assert!(ranks[from + 1..].iter().all(|r| *r == 1), "{what}");
                // The five that are first, in order.
                let ranks: Vec<u32> = trace
                    .tracked_tokens
                    .iter()
                    .take(TOP)
                    .map(|t| t.final_rank)
                    .collect();
                assert!(
                    ranks.is_sorted() && ranks.iter().all(|r| *r <= TOP as u32),
                    "{what}: {ranks:?}"
                );
                assert_eq!(trace.sampling.cuts.len(), 1);
                assert_eq!((trace.sampling.cuts[0].left, trace.temperature), (1, 0.0));
            }
            let same = first.get_or_insert_with(|| (drawn.clone(), view.clone()));
            assert_eq!(
                (&same.0, &same.1),
                (&drawn, &view),
                "{what}: {threads} threads"
            );
        }
    }
}

#[test]
fn f274_final_logits_have_a_range_above_0_and_below_1000() {
    for loaded in models() {
        let what = loaded.source.to_string();
        let mut engine = engine(&loaded, 1, 1);
        generate(
            &loaded,
            &mut engine,
            SamplerConfig::GREEDY,
            3,
            |engine, _, _| {
                let logits = engine.logits(0);
                let least = logits.iter().copied().fold(f32::INFINITY, f32::min);
                let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let range = most - least;
                assert!(range > 0.0 && range < 1000.0, "{what}: {range}");
            },
        );
    }
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let loaded = Loaded::open(Source::Demo).expect("demo");
    let mut engine = engine(&loaded, 1, 1);
    let mut tracer = LogitTracer::new(vec![]);
    let mut refused = |engine: &mut Engine<Unobserved>| {
        let greedy = SamplerConfig::GREEDY;
        let error = tracer.step(engine, &loaded.tokenizer, &greedy, 0);
        assert_eq!(tracer.view(), LogitView::default());
        error.expect_err("refused").to_string()
    };
    assert!(refused(&mut engine).contains("was not captured"));
    let chunk = ids(&loaded, 4);
    engine
        .step(&chunk, Logits::None, StepKind::Prefill)
        .expect("a step");
    assert!(refused(&mut engine).contains("no logits were wanted"));
    engine
        .begin(&chunk, Logits::Last, StepKind::Prefill)
        .expect("a step");
    engine.advance_layer().expect("a layer");
    assert!(refused(&mut engine).contains("inside a token"));
    engine.finish().expect("a step");
    engine.set_capture(None).expect("memory");
    assert!(refused(&mut engine).contains("switch capturing on"));
}
