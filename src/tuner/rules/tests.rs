//! A table of situations and what the rules say in each.

use super::*;
use crate::engine::config::EngineInfo;
use crate::model::ModelInfo;
use crate::model::brick::BrickId;
use crate::profiler::critical::tests::row;
use crate::profiler::figures::{BrickRow, MachineInfo, MemoryInfo, Rates};
use crate::profiler::probe::Bandwidth;
use crate::tuner::recommendation::RecommendationStatus;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A machine of four cores where everything is as it should be.
struct Case {
    machine: MachineInfo,
    model: ModelInfo,
    engine: EngineInfo,
    rates: Rates,
    bricks: Vec<BrickRow>,
    memory: MemoryInfo,
    bandwidth: Vec<Bandwidth>,
    kernels: Vec<&'static str>,
    schedule: Option<&'static str>,
    physical_cores: Option<u32>,
    governor: Option<&'static str>,
    memory_available: Option<u64>,
    prompt_tokens: u32,
    decode_major_faults: Option<u64>,
    explicit: BTreeSet<&'static str>,
}

fn bricks(rows: &[(BrickId, f64, u64)]) -> Vec<BrickRow> {
    let all: f64 = rows.iter().map(|r| r.1).sum();
    let make = |&(id, us, bytes): &(BrickId, f64, u64)| BrickRow {
        steps: 64,
        calls: 64,
        share: us / all,
        ..row(id, 1, us, bytes, 2 * bytes)
    };
    rows.iter().map(make).collect()
}

fn fine() -> Case {
    Case {
        machine: MachineInfo {
            cpu: "Some CPU".into(),
            cpus: 4,
            isa: "AVX2".into(),
            memory_bytes: Some(16 << 30),
            read_bandwidth_gbps: Some(20.0),
        },
        model: ModelInfo {
            name: "m".into(),
            path: "m.gguf".into(),
            arch: "llama".into(),
            quantisation: "Q4_1".into(),
            params: 135_000_000,
            file_bytes: 90_000_000,
            weight_bytes_per_token: 80_000_000,
            n_layers: 30,
            n_embd: 576,
            n_head: 9,
            n_head_kv: 3,
            n_vocab: 49152,
            n_ctx_train: 2048,
        },
        engine: EngineInfo {
            backend: "cpu".into(),
            kernels: "avx2".into(),
            threads: 4,
            n_ctx: 2048,
            kv_type: "f16".into(),
            chunk: 512,
            prefetch: "4096".into(),
            load: "mmap, willneed".into(),
            sampler: "greedy".into(),
            clock: "measured".into(),
            pace_tok_s: None,
        },
        rates: Rates {
            decode_mean_tok_s: Some(100.0),
            decode_gbps: Some(12.0),
            prefill_tok_s: Some(400.0),
            ..Rates::default()
        },
        // 10 ms a token: half of it at the roof, 40% compute, 10% overhead.
        bricks: bricks(&[
            (BrickId::QProj, 5000.0, 90_000_000),
            (BrickId::Attention, 4000.0, 10_000_000),
            (BrickId::Sync, 800.0, 0),
            (BrickId::Unattributed, 200.0, 0),
        ]),
        memory: MemoryInfo {
            kv_used_bytes: 10_000_000,
            kv_bytes: 40_000_000,
            weights_bytes: 90_000_000,
            ..MemoryInfo::default()
        },
        bandwidth: vec![
            Bandwidth {
                threads: 4,
                gbps: 20.0,
            },
            Bandwidth {
                threads: 2,
                gbps: 16.0,
            },
        ],
        kernels: vec!["scalar", "avx2"],
        schedule: Some("dynamic"),
        physical_cores: Some(4),
        governor: Some("performance"),
        memory_available: Some(8 << 30),
        prompt_tokens: 40,
        decode_major_faults: Some(0),
        explicit: BTreeSet::new(),
    }
}

impl Case {
    fn facts(&self) -> Facts<'_> {
        Facts {
            machine: &self.machine,
            model: &self.model,
            engine: &self.engine,
            rates: &self.rates,
            bricks: &self.bricks,
            memory: &self.memory,
            bandwidth: &self.bandwidth,
            kernels_available: &self.kernels,
            schedule: self.schedule,
            physical_cores: self.physical_cores,
            governor: self.governor,
            memory_available: self.memory_available,
            prompt_tokens: self.prompt_tokens,
            decode_major_faults: self.decode_major_faults,
            explicit: &self.explicit,
        }
    }

    fn advice(&self) -> Vec<Advice> {
        recommend(&self.facts())
    }
}

fn with(change: impl FnOnce(&mut Case)) -> Case {
    let mut case = fine();
    change(&mut case);
    case
}

fn waiting(case: &mut Case, share: f64) {
    case.bricks = bricks(&[
        (BrickId::QProj, 10_000.0 * (1.0 - share), 90_000_000),
        (BrickId::Sync, 10_000.0 * share, 0),
    ]);
}

#[test]
fn each_situation_gets_its_advice_and_no_other() {
    type Situation = (&'static str, fn(&mut Case), &'static [&'static str]);
    let table: &[Situation] = &[
        ("all is well", |_| {}, &[]),
        (
            "two of four cores",
            |c| c.engine.threads = 2,
            &["more-threads"],
        ),
        (
            "hyperthreads that bring bandwidth",
            |c| {
                (c.engine.threads, c.physical_cores) = (2, Some(2));
            },
            &["more-threads"],
        ),
        (
            "hyperthreads that bring none",
            |c| {
                (c.engine.threads, c.physical_cores) = (2, Some(2));
                c.bandwidth = vec![
                    Bandwidth {
                        threads: 2,
                        gbps: 16.0,
                    },
                    Bandwidth {
                        threads: 4,
                        gbps: 16.1,
                    },
                ];
            },
            &[],
        ),
        (
            "hyperthreads of unknown use",
            |c| {
                (c.engine.threads, c.physical_cores, c.bandwidth) = (2, Some(2), Vec::new());
            },
            &[],
        ),
        (
            "threads that would not pay",
            |c| {
                c.engine.threads = 2;
                c.bandwidth = vec![
                    Bandwidth {
                        threads: 2,
                        gbps: 16.0,
                    },
                    Bandwidth {
                        threads: 4,
                        gbps: 16.0,
                    },
                ];
                c.bricks = bricks(&[
                    (BrickId::QProj, 9900.0, 150_000_000),
                    (BrickId::Sync, 100.0, 0),
                ]);
                c.rates.decode_gbps = None;
            },
            &[],
        ),
        (
            "more threads than CPUs",
            |c| c.engine.threads = 8,
            &["fewer-threads"],
        ),
        (
            "forced scalar",
            |c| c.engine.kernels = "scalar".into(),
            &["kernels"],
        ),
        (
            "a kernel set not heard of",
            |c| c.engine.kernels = "neon".into(),
            &[],
        ),
        (
            "waiting, static schedule",
            |c| {
                waiting(c, 0.2);
                c.schedule = Some("static");
            },
            &["sync"],
        ),
        ("waiting, all cores", |c| waiting(c, 0.2), &["sync"]),
        (
            "waiting, two threads on two cores",
            |c| {
                waiting(c, 0.2);
                (c.engine.threads, c.machine.cpus, c.physical_cores) = (2, 2, Some(2));
            },
            &["sync"],
        ),
        ("waiting, just not enough", |c| waiting(c, 0.1), &[]),
        (
            "f32 cache",
            |c| c.engine.kv_type = "f32".into(),
            &["kv-f16"],
        ),
        (
            "f32 cache, nearly empty",
            |c| {
                c.engine.kv_type = "f32".into();
                c.memory.kv_used_bytes = 100_000;
            },
            &[],
        ),
        (
            "small chunk, long prompt",
            |c| (c.engine.chunk, c.prompt_tokens) = (8, 300),
            &["chunk"],
        ),
        (
            "small chunk, shorter prompt",
            |c| (c.engine.chunk, c.prompt_tokens) = (8, 8),
            &[],
        ),
        (
            "governor",
            |c| c.governor = Some("powersave"),
            &["governor"],
        ),
        ("no governor", |c| c.governor = None, &[]),
        (
            "disk",
            |c| c.decode_major_faults = Some(640),
            &["major-faults"],
        ),
        (
            "memory's limit",
            |c| c.rates.decode_gbps = Some(17.0),
            &["fewer-bytes"],
        ),
        (
            "limit exactly hit",
            |c| c.rates.decode_gbps = Some(16.0),
            &["fewer-bytes"],
        ),
        ("from the caches", |c| c.rates.decode_gbps = Some(60.0), &[]),
    ];
    for (name, change, expected) in table {
        let advice = with(change).advice();
        let ids: Vec<&str> = advice
            .iter()
            .map(|a| a.recommendation.id.as_str())
            .collect();
        assert_eq!(ids, *expected, "{name}");
        for a in &advice {
            assert_eq!(a.recommendation.applicable, a.change.is_some(), "{name}");
            assert_eq!(a.recommendation.status, RecommendationStatus::Open);
            assert!(
                a.recommendation.why.ends_with('.') && !a.recommendation.why.contains(".."),
                "{}",
                a.recommendation.why
            );
        }
    }
    let threads = |n| Some(Change::one("threads", n));
    let change = |f: fn(&mut Case)| with(f).advice().remove(0).change;
    assert_eq!(change(|c| c.engine.threads = 2), threads(4));
    assert_eq!(change(|c| c.engine.threads = 8), threads(4));
    assert_eq!(change(|c| waiting(c, 0.2)), threads(3));
    assert_eq!(
        change(|c| c.engine.kernels = "scalar".into()),
        Some(Change::one("backend", "avx2"))
    );
    assert_eq!(
        change(|c| (c.engine.chunk, c.prompt_tokens) = (8, 300)),
        Some(Change::one("chunk", 512))
    );
    assert_eq!(
        change(|c| c.engine.kv_type = "f32".into()),
        Some(Change::one("kv-type", "f16"))
    );
    assert_eq!(change(|c| c.governor = Some("powersave")), None);
}

#[test]
fn more_threads_are_estimated_by_amdahl_and_bandwidth() {
    let case = with(|c| c.engine.threads = 2);
    let r = case.advice().remove(0).recommendation;
    // Memory-bound half: 16 -> 20 GB/s; compute 40%: 2 -> 4 cores; 10% stays.
    let expected = 100.0 / (0.1 + 0.5 * 16.0 / 20.0 + 0.4 / 2.0);
    assert!(
        r.expected_tok_s
            .is_some_and(|e| (e / expected - 1.0).abs() < 1e-9),
        "{r:?}"
    );
    assert_eq!(r.title, "Use 4 threads instead of 2");
    assert_eq!(
        r.why,
        "100.0 tok/s come from 2 threads of the 4 CPUs this process may use (4 cores). 142.9 tok/s expected: 50% of a token \
         is limited by memory, which gives 16.0 GB/s to 2 threads and 20.0 GB/s to 4; 40% by compute, on 2 and 4 cores; \
         10% does not change with threads."
    );

    let unknown = with(|c| {
        (c.engine.threads, c.bandwidth, c.machine.read_bandwidth_gbps) = (2, Vec::new(), None);
    });
    let r = unknown.advice().remove(0).recommendation;
    assert!(
        r.expected_tok_s.is_none() && r.why.contains("cannot be estimated"),
        "{r:?}"
    );
}

#[test]
fn half_the_cache_saves_half_its_time() {
    let r = with(|c| c.engine.kv_type = "f32".into())
        .advice()
        .remove(0)
        .recommendation;
    assert!(
        r.expected_tok_s
            .is_some_and(|e| (e - 100.0 / 0.8).abs() < 1e-9),
        "{r:?}"
    );
}

#[test]
fn what_the_user_set_is_named_and_left_alone() {
    let case = with(|c| {
        c.engine.threads = 2;
        c.explicit.insert("threads");
    });
    let why = case.advice().remove(0).recommendation.why;
    assert!(
        why.ends_with("You set --threads; it stays as it is unless you apply this."),
        "{why}"
    );
    let other = with(|c| {
        c.engine.threads = 2;
        c.explicit.insert("chunk");
    });
    assert!(
        !other
            .advice()
            .remove(0)
            .recommendation
            .why
            .contains("You set")
    );
}

#[test]
fn weights_that_do_not_fit_are_said_so() {
    let case = with(|c| {
        c.decode_major_faults = Some(6400);
        (c.memory_available, c.memory.rss_bytes) = (Some(10_000_000), Some(20_000_000));
    });
    let r = case.advice().remove(0).recommendation;
    assert!(
        r.title.contains("do not fit") && r.why.contains("100.0 a token"),
        "{r:?}"
    );
}

#[test]
fn nothing_is_said_before_there_are_figures() {
    let early = with(|c| {
        c.engine.threads = 2;
        c.engine.kv_type = "f32".into();
        waiting(c, 0.5);
        c.bricks.iter_mut().for_each(|b| b.steps = 3);
        c.rates.decode_gbps = Some(19.0);
    });
    assert_eq!(early.advice(), []);
    let nothing = with(|c| {
        c.engine.threads = 2;
        (c.engine.chunk, c.prompt_tokens) = (8, 300);
        (c.rates, c.bricks) = (Rates::default(), Vec::new());
    });
    assert_eq!(nothing.advice(), []);
}

#[test]
fn modelled_times_lead_to_nothing_that_rests_on_the_machine() {
    let case = with(|c| {
        c.engine.clock = "modelled".into();
        c.engine.threads = 2;
        c.engine.kv_type = "f32".into();
        c.governor = Some("powersave");
        c.rates.decode_gbps = Some(19.0);
    });
    let ids: Vec<_> = case
        .advice()
        .into_iter()
        .map(|a| a.recommendation.id)
        .collect();
    assert_eq!(ids, ["kv-f16"]);
}

#[test]
fn ids_are_unique() {
    let ids: BTreeSet<_> = RULES.iter().map(|r| r.id()).collect();
    assert_eq!(ids.len(), RULES.len());
}

proptest! {
    #[test]
    fn no_facts_lead_to_a_panic_or_a_figure_that_is_none(
        (threads, cpus, cores) in (0u32..600, 0u32..600, prop::option::of(0u32..600)),
        (chunk, n_ctx, prompt) in (any::<u32>(), any::<u32>(), any::<u32>()),
        (rate, gbps, roof) in (prop::option::of(0.0f64..1e6), prop::option::of(0.0f64..1e3), prop::option::of(0.0f64..1e3)),
        (kv, faults, us) in (any::<u64>(), prop::option::of(any::<u64>()), 0.0f64..1e9),
        steps in 0u64..100,
    ) {
        let case = with(|c| {
            (c.engine.threads, c.machine.cpus, c.physical_cores) = (threads, cpus, cores);
            (c.engine.chunk, c.engine.n_ctx, c.prompt_tokens) = (chunk, n_ctx, prompt);
            (c.rates.decode_mean_tok_s, c.rates.decode_gbps, c.machine.read_bandwidth_gbps) = (rate, gbps, roof);
            (c.memory.kv_used_bytes, c.decode_major_faults) = (kv, faults);
            c.engine.kv_type = "f32".into();
            c.bricks = bricks(&[(BrickId::Attention, us, kv / 2), (BrickId::Sync, us / 3.0, 0)]);
            c.bricks.iter_mut().for_each(|b| b.steps = steps);
        });
        for a in case.advice() {
            prop_assert!(a.recommendation.expected_tok_s.is_none_or(|e| e.is_finite() && e >= 0.0));
            prop_assert!(!a.recommendation.why.contains("NaN") && !a.recommendation.why.contains("inf "), "{}", a.recommendation.why);
        }
    }
}
