//! Snapshots as a session of SmolLM2 135M would publish them, for tests.

use crate::model::brick::BrickId as B;
use crate::session::snapshot::*;
use std::sync::Arc;

/// Brick, microseconds a call, calls a token, output elements and bytes of one call.
const BRICKS: [(B, f64, u64, u64, u64); 21] = [
    (B::Embed, 0.9, 1, 576, 1_300),
    (B::AttnNorm, 1.2, 30, 576, 7_000),
    (B::QProj, 14.1, 30, 576, 210_000),
    (B::KProj, 5.2, 30, 192, 70_000),
    (B::VProj, 5.1, 30, 192, 70_000),
    (B::Rope, 0.8, 30, 768, 6_100),
    (B::KvWrite, 0.3, 30, 384, 2_300),
    (B::Attention, 9.7, 30, 576, 240_000),
    (B::OProj, 14.3, 30, 576, 210_000),
    (B::AttnResidual, 0.4, 30, 576, 6_900),
    (B::FfnNorm, 1.1, 30, 576, 7_000),
    (B::GateProj, 37.2, 30, 1536, 556_000),
    (B::UpProj, 37.5, 30, 1536, 556_000),
    (B::Activation, 1.9, 30, 1536, 18_400),
    (B::DownProj, 38.9, 30, 576, 556_000),
    (B::FfnResidual, 0.4, 30, 576, 6_900),
    (B::FinalNorm, 1.2, 1, 576, 7_000),
    (B::LmHead, 1_890.4, 1, 49_152, 30_100_000),
    (B::Sample, 21.5, 1, 1, 196_608),
    (B::Sync, 3.1, 120, 0, 0),
    (B::Unattributed, 64.0, 1, 0, 0),
];

const TEXT: &str = " Paris. It is the largest city in France and one of the most visited cities in the world.\n\nThe city stands on \
                    the river Seine, in the north of the country, and has been a centre of trade, science and art since the \
                    17th century.";

fn rows(tokens: u64, scale: f64) -> Vec<BrickRow> {
    let total: f64 = BRICKS
        .iter()
        .map(|(_, us, calls, ..)| us * *calls as f64)
        .sum();
    BRICKS
        .iter()
        .map(|&(id, us, calls, elements, bytes)| {
            let us = us * scale;
            BrickRow {
                id,
                category: id.category(),
                calls: calls * tokens,
                steps: tokens,
                total_us: us * (calls * tokens) as f64,
                us_per_step: us * calls as f64,
                mean_us: us,
                stddev_us: us * 0.08,
                min_us: us * 0.9,
                max_us: us * 2.4,
                p50_us: us * 0.98,
                p99_us: us * 1.31,
                elements_per_step: elements * calls,
                bytes_per_step: bytes * calls,
                flops_per_step: elements * calls * 2 * 576,
                share: us * calls as f64 / (total * scale),
            }
        })
        .collect()
}

fn layers() -> Vec<LayerRow> {
    (0..30u32)
        .map(|layer| {
            let wave =
                1.0 + 0.09 * (f64::from(layer) * 0.7).sin() + if layer == 17 { 0.2 } else { 0.0 };
            LayerRow {
                layer,
                us_per_step: 171.0 * wave,
                attention_us: 49.5 * wave,
                ffn_us: 115.5 * wave,
                norm_us: 3.1,
                sync_us: 2.9 * wave,
                last_us: 173.0 * wave,
            }
        })
        .collect()
}

fn critical_path() -> CriticalPath {
    let node = |id, us: f64, gbps, bound: &str| CriticalNode {
        id,
        us,
        share: us / 7_200.0,
        gbps,
        intensity: gbps.map(|_| 3.6),
        tok_s_if_2x: 1e6 / (7_200.0 - us / 2.0),
        bound: bound.into(),
    };
    CriticalPath {
        length_us: 7_200.0,
        nodes: vec![
            node(B::LmHead, 1890.4, Some(15.9), "memory"),
            node(B::DownProj, 1167.0, Some(14.3), "memory"),
            node(B::UpProj, 1125.0, Some(14.8), "memory"),
            node(B::GateProj, 1116.0, Some(14.9), "memory"),
            node(B::OProj, 429.0, Some(14.7), "memory"),
            node(B::QProj, 423.0, Some(14.9), "compute"),
            node(B::Sync, 372.0, None, "overhead"),
        ],
        verdict: "Memory traffic bounds the step: 82% of a token is spent in projections at 15 of 18 GB/s; LmHead alone takes 26%."
            .into(),
    }
}

fn recommendations() -> Vec<Recommendation> {
    vec![
        Recommendation {
            id: "threads".into(),
            title: "Use 2 threads instead of 1".into(),
            why: "One thread reads 9.8 GB/s of the 18.1 GB/s that two reach; projections are bound by memory.".into(),
            expected_tok_s: Some(168.0),
            applicable: true,
            status: RecommendationStatus::Open,
        },
        Recommendation {
            id: "kv-f16".into(),
            title: "Keep the kv cache in f16".into(),
            why: "The cache is read once a token and takes 6% of the traffic at this context.".into(),
            expected_tok_s: None,
            applicable: false,
            status: RecommendationStatus::Open,
        },
    ]
}

/// A decode run with `tokens` tokens generated.
pub(crate) fn decode(tokens: usize) -> Snapshot {
    let words: Vec<&str> = TEXT.split_inclusive(' ').collect();
    let generated: Vec<GeneratedToken> = (0..tokens)
        .map(|i| GeneratedToken {
            id: i as u32,
            text: words[i % words.len()].into(),
            prob: 0.31 + 0.6 * ((i * 37 % 100) as f32 / 100.0),
            us: 7_100.0 + ((i * 53) % 400) as f64,
        })
        .collect();
    Snapshot {
        seq: tokens as u64,
        state: RunState::Decode,
        model: Arc::new(ModelInfo {
            name: "SmolLM2 135M Instruct".into(),
            path: "SmolLM2-135M-Instruct.Q4_1.gguf".into(),
            arch: "llama".into(),
            quantisation: "Q4_1".into(),
            params: 134_515_008,
            file_bytes: 98_500_000,
            weight_bytes_per_token: 92_000_000,
            n_layers: 30,
            n_embd: 576,
            n_head: 9,
            n_head_kv: 3,
            n_vocab: 49_152,
            n_ctx_train: 8192,
        }),
        machine: Arc::new(MachineInfo {
            cpu: "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz".into(),
            cpus: 2,
            isa: "AVX2".into(),
            memory_bytes: Some(25_769_803_776),
            read_bandwidth_gbps: Some(18.1),
        }),
        engine: Arc::new(EngineInfo {
            backend: "cpu".into(),
            kernels: "avx2".into(),
            threads: 2,
            n_ctx: 2048,
            kv_type: "f16".into(),
            chunk: 64,
            prefetch: "4096".into(),
            load: "mmap, willneed".into(),
            sampler: "greedy".into(),
            clock: "measured".into(),
            pace_tok_s: None,
        }),
        context_used: 6 + tokens as u32,
        rates: Rates {
            decode_now_tok_s: Some(138.9 + (tokens % 7) as f64),
            decode_mean_tok_s: Some(139.6),
            decode_stddev_tok_s: Some(3.2),
            prefill_tok_s: Some(612.4),
            ttft_s: Some(0.0172),
            decode_gbps: Some(12.9),
            history_tok_s: (0..tokens.min(256))
                .map(|i| {
                    138.0 + 9.0 * ((i as f64) * 0.35).sin() - if i % 41 == 40 { 38.0 } else { 0.0 }
                })
                .collect(),
            overhead_share: Some(0.004),
        },
        phases: Phases::default(),
        bricks: rows(tokens as u64, 1.0),
        prefill_bricks: rows(1, 3.0),
        layers: layers(),
        last_step: None,
        critical_path: Some(critical_path()),
        memory: MemoryInfo {
            rss_bytes: Some(158_000_000),
            peak_rss_bytes: Some(171_000_000),
            weights_bytes: 98_500_000,
            kv_bytes: 47_185_920,
            kv_used_bytes: 3_100_000,
            scratch_bytes: 4_300_000,
            load_minor_faults: Some(2_310),
            load_major_faults: Some(0),
            minor_faults: Some(41_230),
            major_faults: Some(0),
            minor_faults_per_step: Some(0.0),
            voluntary_switches: Some(1_204),
            involuntary_switches: Some(87),
            huge_page_bytes: None,
        },
        prompt: "The capital of France is".into(),
        tokens: generated,
        generated: tokens as u64,
        recommendations: recommendations(),
        message: None,
    }
}

/// A session that has not yet timed anything.
pub(crate) fn starting() -> Snapshot {
    Snapshot {
        state: RunState::Prefill { done: 0, total: 6 },
        context_used: 0,
        rates: Rates::default(),
        bricks: Vec::new(),
        prefill_bricks: Vec::new(),
        layers: Vec::new(),
        critical_path: None,
        recommendations: Vec::new(),
        ..decode(0)
    }
}

/// A model file whose strings try to steer the terminal, with figures out of all bounds.
pub(crate) fn hostile() -> Snapshot {
    let mut s = decode(40);
    let evil = "\x1b]0;owned\x07\x1b[2J\u{9b}31m日本語のとても長い名前\u{202e}\r\n\t👩‍👩‍👧‍👦".repeat(8);
    let mut model = (*s.model).clone();
    model.name = evil.clone();
    model.arch = evil.clone();
    model.quantisation = evil.clone();
    model.params = u64::MAX;
    s.model = Arc::new(model);
    s.prompt = evil.clone();
    for (i, t) in s.tokens.iter_mut().enumerate() {
        t.text = evil.chars().skip(i).take(7).collect();
    }
    for (row, v) in s.bricks.iter_mut().zip(
        [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300, f64::MIN_POSITIVE]
            .into_iter()
            .cycle(),
    ) {
        (row.us_per_step, row.share, row.mean_us, row.p99_us) = (v, v, v, v);
        row.calls = u64::MAX;
    }
    for (row, v) in s
        .layers
        .iter_mut()
        .zip([f64::NAN, f64::INFINITY, -1.0, 1e300].into_iter().cycle())
    {
        row.us_per_step = v;
    }
    s.rates.history_tok_s = vec![f64::NAN, f64::INFINITY, -5.0, 0.0, 1e300];
    s.rates.decode_now_tok_s = Some(f64::NAN);
    s.state = RunState::Failed {
        error: evil.clone(),
    };
    s.message = Some(Message {
        is_error: true,
        text: evil.clone(),
    });
    if let Some(p) = &mut s.critical_path {
        p.verdict = evil.clone();
        p.length_us = f64::NAN;
    }
    for r in &mut s.recommendations {
        r.title = evil.clone();
        r.why = evil.clone();
    }
    s
}

/// Recommendations in every state, figures measured.
pub(crate) fn measured() -> Snapshot {
    let mut s = decode(120);
    let base = s.recommendations[0].clone();
    let with = |id: &str, title: &str, status| Recommendation {
        id: id.into(),
        title: title.into(),
        status,
        ..base.clone()
    };
    s.recommendations = vec![
        with(
            "threads",
            "Use 2 threads instead of 1",
            RecommendationStatus::Applied {
                before_tok_s: 92.1,
                after_tok_s: 139.6,
                spread: 0.012,
                significant: true,
            },
        ),
        with(
            "pin",
            "Pin threads to cores",
            RecommendationStatus::Measuring {
                done: 24,
                total: 64,
            },
        ),
        with(
            "chunk",
            "Read the prompt in chunks of 128",
            RecommendationStatus::Applied {
                before_tok_s: 139.6,
                after_tok_s: 140.1,
                spread: 0.021,
                significant: false,
            },
        ),
        with(
            "huge",
            "Use huge pages",
            RecommendationStatus::Undone {
                with_tok_s: 138.2,
                without_tok_s: 139.9,
            },
        ),
        base,
    ];
    s.message = Some(Message {
        is_error: false,
        text: "threads: 92.1 -> 139.6 tok/s (+51.6% +/- 1.2%)".into(),
    });
    s
}
