//! What an engine leaves for tracers: it is what was computed, it changes no logit, and it stays within its memory.

mod common;
mod tiny;

use cbtop::engine::batch::Token;
use cbtop::engine::cpu::KernelSet;
use cbtop::engine::probe::{AttentionProbe, ProbeConfig, Site};
use cbtop::engine::tensor_stats::Moments;
use cbtop::engine::{Config, Engine, KvType, Logits, Overflow, StepKind, Unobserved};
use cbtop::model::{Buf, Hparams, Model, Op};
use cbtop::session::Loaded;
use std::collections::HashMap;
use tiny::{ids, models};

/// Every weight of texts of up to 32 tokens.
fn all_weights() -> ProbeConfig {
    ProbeConfig {
        activations: true,
        attention: Some(AttentionProbe {
            top_k: 32,
            weight_threshold: 0.0,
            ..AttentionProbe::default()
        }),
    }
}

fn config(loaded: &Loaded, set: KernelSet, threads: usize) -> Config {
    Config {
        n_ctx: 64,
        chunk: 32,
        logit_rows: 32,
        kv_type: KvType::F32,
        kernels: set,
        threads,
        ..loaded.config()
    }
}

/// Every architecture's model on every kernel set, cut into steps in several ways.
fn everywhere(mut check: impl FnMut(&str, &Loaded, Config, usize)) {
    for (name, loaded) in models() {
        for set in KernelSet::available() {
            for (threads, chunk) in [(1, 12), (2, 5), (3, 1)] {
                let what = format!("{name}: {set}, {threads} threads, steps of {chunk}");
                check(&what, &loaded, config(&loaded, set, threads), chunk);
            }
        }
    }
}

#[test]
fn f272_logits_are_the_same_with_tracers_and_without() {
    everywhere(|what, loaded, config, chunk| {
        let ids = ids(&loaded.model, 12);
        let run = |probe: Option<ProbeConfig>| {
            let mut engine =
                Engine::new(loaded.model.clone(), config.clone(), Unobserved).expect("engine");
            engine.set_probe(probe).expect("memory");
            let mut rows = Vec::new();
            for part in ids.chunks(chunk) {
                engine
                    .step(part, Logits::All, StepKind::Prefill)
                    .expect("a step");
                rows.extend((0..part.len()).map(|r| engine.logits(r).to_vec()));
            }
            rows
        };
        let (with, without) = (run(Some(all_weights())), run(None));
        let bits = |rows: &[Vec<f32>]| -> Vec<u32> {
            rows.iter().flatten().map(|l| l.to_bits()).collect()
        };
        assert!(bits(&with) == bits(&without), "{what}");
    });
}

/// Queries and keys of every layer and position, as they are after the rotation.
type QueriesAndKeys = HashMap<(usize, Buf, usize), Vec<f32>>;

/// Of every layer: the brick that writes the cache, before which queries and keys have all been done to them, and those
/// whose products they are.
fn layers(model: &Model) -> Vec<(usize, [(Buf, usize); 2])> {
    let bricks = &model.plan.bricks;
    let product = |layer: Option<usize>, buf: Buf| {
        let of = |b: &cbtop::model::Brick| {
            b.layer == layer && matches!(b.op, Op::MatMul { dst, .. } if dst == buf)
        };
        (buf, bricks.iter().position(of).expect("a projection"))
    };
    let writes = bricks.iter().enumerate();
    writes
        .filter(|(_, b)| matches!(b.op, Op::KvWrite))
        .map(|(i, b)| (i, [Buf::Q, Buf::K].map(|buf| product(b.layer, buf))))
        .collect()
}

/// The weights of a head by their definition, in f64.
fn weights(
    hp: &Hparams,
    qk: &QueriesAndKeys,
    (layer, head, position): (usize, usize, usize),
    sink: Option<f32>,
) -> Vec<f64> {
    let (dim, group) = (hp.head_dim_k, hp.n_head / hp.n_head_kv);
    let q = &qk[&(layer, Buf::Q, position)][head * dim..][..dim];
    let first = hp
        .layer_window(layer)
        .map_or(0, |w| (position + 1).saturating_sub(w));
    let scores: Vec<f64> = (first..=position)
        .map(|p| {
            let k = &qk[&(layer, Buf::K, p)][head / group * dim..][..dim];
            let dot: f64 = q
                .iter()
                .zip(k)
                .map(|(q, k)| f64::from(*q) * f64::from(*k))
                .sum();
            let s = dot * f64::from(hp.score_scale(position));
            hp.attn_softcap.map_or(s, |cap| {
                let cap = f64::from(cap);
                cap * (s / cap).tanh()
            })
        })
        .collect();
    let max = scores
        .iter()
        .copied()
        .chain(sink.map(f64::from))
        .fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scores
        .iter()
        .copied()
        .chain(sink.map(f64::from))
        .map(|s| (s - max).exp())
        .sum();
    let mut p: Vec<f64> = scores.iter().map(|s| (s - max).exp() / sum).collect();
    // Positions outside the window have no weight.
    let mut all = vec![0.0; first];
    all.append(&mut p);
    all
}

#[test]
fn f253_f254_f255_f273_attention_weights_are_those_of_their_definition() {
    everywhere(|what, loaded, config, chunk| {
        let model = &loaded.model;
        let hp = &model.hparams;
        let ids = ids(model, 12);
        let mut engine = Engine::new(model.clone(), config.clone(), Unobserved).expect("engine");
        engine.set_probe(Some(all_weights())).expect("memory");
        let layers = layers(model);
        let mut qk = QueriesAndKeys::new();
        for (step, part) in ids.chunks(chunk).enumerate() {
            engine
                .begin(part, Logits::Last, StepKind::Prefill)
                .expect("a step");
            for (layer, (write, products)) in layers.iter().enumerate() {
                assert!(engine.advance_through(*write).expect("bricks"));
                for &(buf, product) in products {
                    for v in engine.vectors(product) {
                        qk.insert((layer, buf, step * chunk + v.token), v.output.to_vec());
                    }
                }
            }
            engine.finish().expect("a step");
            engine.end_step();
        }
        let log = engine.attention().expect("attention is recorded");
        let queries: Vec<_> = log.queries(0).collect();
        assert_eq!(queries.len(), ids.len(), "{what}");
        for (position, query) in queries.into_iter().enumerate() {
            assert_eq!(query.place.position as usize, position);
            let records: Vec<_> = log.of(query).collect();
            assert_eq!(records.len(), hp.n_layers * hp.n_head);
            for r in records {
                let sinks = model.plan.bricks.iter().find_map(|b| match &b.op {
                    Op::Attend { sinks, .. } if b.layer == Some(r.layer) => sinks.as_ref(),
                    _ => None,
                });
                let want = weights(
                    hp,
                    &qk,
                    (r.layer, r.head, position),
                    sinks.map(|s| s[r.head]),
                );
                let at = format!("{what}: layer {} head {} at {position}", r.layer, r.head);
                let seen = want.iter().filter(|w| **w > 0.0).count();
                assert_eq!(r.sums.seen as usize, seen, "{at}");
                assert!(r.weights.windows(2).all(|w| w[0] >= w[1]), "{at}");
                for (p, w) in r.positions.iter().zip(r.weights) {
                    let want = want[*p as usize];
                    assert!((f64::from(*w) - want).abs() < 2e-5, "{at}: {w} {want}");
                }
                let top: f64 = r.weights.iter().map(|w| f64::from(*w)).sum();
                let all = top + f64::from(r.sums.tail_mass) + f64::from(r.sums.sink_logit_mass);
                assert!((all - 1.0).abs() < 1e-5, "{at}: {all}");
                let mass: f64 = want.iter().sum();
                assert!(
                    (f64::from(r.sums.sink_logit_mass) - (1.0 - mass)).abs() < 2e-5,
                    "{at}"
                );
                let entropy: f64 = want
                    .iter()
                    .filter(|w| **w > 0.0)
                    .map(|w| -(w / mass) * (w / mass).ln())
                    .sum();
                assert!((f64::from(r.sums.entropy) - entropy).abs() < 1e-4, "{at}");
                match r.sums.first_weight {
                    first if first.is_nan() => assert_eq!(want[0], 0.0, "{at}"),
                    // The first token always has some weight.
                    first => assert!(first > 0.0 && (f64::from(first) - want[0]).abs() < 2e-5),
                }
                let recent: f64 = want.iter().rev().take(4).sum();
                assert!(
                    (f64::from(r.sums.recent_mass) - recent).abs() < 5e-5,
                    "{at}"
                );
            }
        }
    });
}

#[test]
fn f250_statistics_are_those_of_what_the_bricks_wrote() {
    everywhere(|what, loaded, config, chunk| {
        let model = &loaded.model;
        let ids = ids(model, 12);
        let mut engine = Engine::new(model.clone(), config.clone(), Unobserved).expect("engine");
        engine.set_probe(Some(all_weights())).expect("memory");
        for part in ids.chunks(chunk) {
            engine
                .begin(part, Logits::All, StepKind::Prefill)
                .expect("a step");
            let mut stream: HashMap<usize, Vec<f32>> = HashMap::new();
            let mut logits = Vec::new();
            let bricks = &model.plan.bricks;
            engine
                .finish_inspected(
                    &|i| {
                        let id = bricks[i].id;
                        use cbtop::model::brick::BrickId::{Embed, FfnResidual, LmHead};
                        matches!(id, Embed | FfnResidual | LmHead)
                    },
                    &mut |i, v| match bricks[i].layer {
                        _ if v.buf == Buf::Logits => logits.extend_from_slice(v.output),
                        layer => stream
                            .entry(layer.map_or(0, |l| l + 1))
                            .or_default()
                            .extend_from_slice(v.output),
                    },
                )
                .expect("a step");
            engine.end_step();
            let readings = engine.activations().expect("looked at").clone();
            assert_eq!(readings.tokens as usize, part.len(), "{what}");
            let same = |got: &Moments, x: &[f32], at: &str| {
                let n = x.len() as f64;
                let mean = x.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
                let m2: f64 = x.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum();
                assert_eq!(got.n as usize, x.len(), "{what}: {at}");
                assert!(
                    (got.mean - mean).abs() < 1e-9 * (1.0 + mean.abs()),
                    "{what}: {at}"
                );
                assert!((got.m2 - m2).abs() < 1e-9 * (1.0 + m2), "{what}: {at}");
            };
            same(&readings.embedding.moments, &stream[&0], "embedding");
            same(&readings.logits.moments, &logits, "logits");
            for (layer, sites) in readings.layers.iter().enumerate() {
                let x = &stream[&(layer + 1)];
                same(
                    &sites[Site::Output as usize].moments,
                    x,
                    &format!("layer {layer}"),
                );
                for site in Site::ALL {
                    assert_eq!(sites[site as usize].moments.n as usize, x.len());
                }
            }
        }
    });
}

#[test]
fn f267_sequences_side_by_side_leave_what_each_leaves_alone() {
    let loaded = common::archs("gemma3.gguf");
    let model = &loaded.model;
    let threads = 3;
    let config = Config {
        n_seq: 3,
        ..config(&loaded, KernelSet::best(), threads)
    };
    let texts: Vec<Vec<u32>> = (0..3)
        .map(|s| {
            (0..9)
                .map(|i| ((s * 31 + i * 7 + 5) % model.n_vocab) as u32)
                .collect()
        })
        .collect();
    let read = |engine: &Engine<Unobserved>, seq| -> Vec<String> {
        let log = engine.attention().expect("attention");
        log.queries(seq)
            .flat_map(|q| log.of(q).map(move |r| (q.place.position, r)))
            .map(|(p, r)| {
                format!(
                    "{p} {} {} {:?} {:?} {:?}",
                    r.layer, r.head, r.positions, r.weights, r.sums
                )
            })
            .collect()
    };
    let mut together = Engine::new(model.clone(), config.clone(), Unobserved).expect("engine");
    together.set_probe(Some(all_weights())).expect("memory");
    for i in 0..9 {
        let tokens: Vec<Token> = texts
            .iter()
            .enumerate()
            .map(|(seq, ids)| Token {
                seq,
                id: ids[i],
                logits: true,
            })
            .collect();
        together
            .begin_tokens(&tokens, StepKind::Decode)
            .expect("a step");
        together.finish().expect("a step");
        together.end_step();
    }
    for (seq, text) in texts.iter().enumerate() {
        let mut alone = Engine::new(model.clone(), config.clone(), Unobserved).expect("engine");
        alone.set_probe(Some(all_weights())).expect("memory");
        for &id in text {
            let token = Token {
                seq,
                id,
                logits: true,
            };
            alone
                .begin_tokens(&[token], StepKind::Decode)
                .expect("a step");
            alone.finish().expect("a step");
            alone.end_step();
        }
        let (a, b) = (read(&together, seq), read(&alone, seq));
        assert_eq!(a.len(), 9 * model.hparams.n_layers * model.hparams.n_head);
        assert_eq!(a, b, "sequence {seq}");
    }
}

#[test]
fn records_are_of_what_is_in_the_cache_and_within_their_memory() {
    let loaded = common::archs("llama.gguf");
    let model = &loaded.model;
    let hp = &model.hparams;
    let query = hp.n_layers * hp.n_head * 2 * 64;
    let mut engine = Engine::new(
        model.clone(),
        Config {
            overflow: Overflow::Ring,
            n_ctx: 16,
            chunk: 8,
            logit_rows: 1,
            keep: 2,
            ..config(&loaded, KernelSet::best(), 2)
        },
        Unobserved,
    )
    .expect("engine");
    let probe = ProbeConfig {
        activations: false,
        attention: Some(AttentionProbe {
            top_k: 10,
            max_bytes: 5 * query,
            ..AttentionProbe::default()
        }),
    };
    engine.set_probe(Some(probe)).expect("memory");
    let held = |engine: &Engine<Unobserved>| -> Vec<u32> {
        let log = engine.attention().expect("attention");
        log.queries(0).map(|q| q.place.position).collect()
    };
    let mut ids = ids(model, 40).into_iter();
    let mut step = |engine: &mut Engine<Unobserved>, n| {
        let part: Vec<u32> = ids.by_ref().take(n).collect();
        engine
            .step(&part, Logits::Last, StepKind::Prefill)
            .expect("a step");
    };
    step(&mut engine, 3);
    assert_eq!(held(&engine), [0, 1, 2]);
    step(&mut engine, 7);
    assert_eq!(
        held(&engine),
        [5, 6, 7, 8, 9],
        "the newest five, also of one step"
    );
    assert_eq!(engine.attention().expect("attention").dropped(), 5);
    engine.truncate(8);
    assert_eq!(held(&engine), [5, 6, 7]);
    step(&mut engine, 1);
    assert_eq!(held(&engine), [5, 6, 7, 8]);
    // In a ring positions are those of the text, not of slots.
    (0..15).for_each(|_| step(&mut engine, 1));
    let log = engine.attention().expect("attention");
    let last = log.queries(0).next_back().expect("a query");
    assert_eq!(last.place.position, 23);
    for r in log.of(last) {
        assert!(
            r.positions.iter().all(|p| *p < 2 || (10..24).contains(p)),
            "{:?}",
            r.positions
        );
        assert_eq!(r.sums.seen, 16);
    }
    engine.truncate(0);
    assert!(held(&engine).is_empty());
    assert_eq!(engine.attention().expect("attention").dropped(), 0);
}

#[test]
fn what_cannot_be_recorded_is_refused() {
    let loaded = common::archs("llama.gguf");
    let config = config(&loaded, KernelSet::best(), 1);
    let mut engine = Engine::new(loaded.model.clone(), config, Unobserved).expect("engine");
    let mut refused = |probe: AttentionProbe| {
        let probe = ProbeConfig {
            activations: false,
            attention: Some(probe),
        };
        engine
            .set_probe(Some(probe))
            .expect_err("refused")
            .to_string()
    };
    let new = AttentionProbe::default;
    assert!(refused(AttentionProbe { top_k: 0, ..new() }).contains("1 to 32"));
    assert!(refused(AttentionProbe { top_k: 33, ..new() }).contains("1 to 32"));
    assert!(
        refused(AttentionProbe {
            weight_threshold: f32::NAN,
            ..new()
        })
        .contains("NaN")
    );
    assert!(
        refused(AttentionProbe {
            layers: Some(vec![1, 99]),
            ..new()
        })
        .contains("layers 0 to")
    );
    assert!(
        refused(AttentionProbe {
            heads: Some(Vec::new()),
            ..new()
        })
        .contains("heads 0 to")
    );
}

#[test]
fn what_is_looked_at_changes_only_between_tokens_and_one_by_one() {
    let loaded = common::archs("llama.gguf");
    let config = config(&loaded, KernelSet::best(), 2);
    let mut engine = Engine::new(loaded.model.clone(), config, Unobserved).expect("engine");
    let only_attention = ProbeConfig {
        activations: false,
        ..all_weights()
    };
    engine.set_probe(Some(only_attention)).expect("memory");
    engine.prefill(&[1, 2, 3]).expect("a prompt");
    assert!(engine.activations().is_none());
    // What the other tracer has recorded stays.
    engine.set_probe(Some(all_weights())).expect("memory");
    let held = |e: &Engine<Unobserved>| e.attention().expect("attention").queries(0).count();
    assert_eq!(held(&engine), 3);
    engine
        .begin(&[4], Logits::Last, StepKind::Decode)
        .expect("a step");
    engine.advance_layer().expect("a layer");
    assert_eq!(held(&engine), 3, "a query is there when its step has ended");
    let refused = engine.set_probe(None).expect_err("inside a token");
    assert!(refused.to_string().contains("finish it first"));
    engine.finish().expect("a step");
    assert_eq!(held(&engine), 4);
    engine
        .begin(&[5], Logits::Last, StepKind::Decode)
        .expect("a step");
    engine.advance_layer().expect("a layer");
    engine.truncate(4);
    assert_eq!(held(&engine), 4, "a step that was given up leaves nothing");
}

/// F263, F264: what tracers cost is measured against the same engine without them, each alone and together.
#[test]
fn f263_f264_tracers_are_measured_against_the_same_engine() {
    let done = std::process::Command::new(env!("CARGO_BIN_EXE_cbtop"))
        .args([
            "overhead",
            "--tracers",
            "-t",
            "1",
            "-r",
            "8",
            "-n",
            "2",
            "-o",
            "json",
        ])
        .output()
        .expect("runs");
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{stderr}");
    let costs: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    for phase in ["decode", "prefill"] {
        let rows = costs[phase].as_array().expect("rows");
        let has = |name| rows.iter().any(|r| r["what"] == name);
        assert_eq!(rows.len(), 7, "choices of tracers");
        assert!(has("activations,attention,kv") && has("all"));
        for row in rows {
            let figure = |name: &str| row[name].as_f64().expect("a number");
            let (low, ratio, high) = (figure("ratio_low"), figure("ratio"), figure("ratio_high"));
            assert!(0.0 < low && low <= ratio && ratio <= high && high.is_finite());
        }
    }
}
