//! Snapshots as a session of SmolLM2 135M would publish them, for tests.

mod advice;
mod figures;
pub(crate) mod trace;
pub(crate) mod tracer;

pub(crate) use advice::{advised, measured, settled};
pub(crate) use figures::{counted, own};

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
                step_stddev_us: Some(us * calls as f64 * 0.03),
                history_us: (0..32)
                    .map(|i| us * calls as f64 * (1.0 + 0.05 * (f64::from(i) * 0.6).sin()))
                    .collect(),
                cycles_per_call: Some(us * 2_700.0),
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
        slack_us: us * 0.02,
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

/// Bricks of the plan in the order they run: brick and layer.
fn plan() -> Vec<(B, Option<u32>)> {
    let inside = |b: B| !matches!(b, B::Embed | B::FinalNorm | B::LmHead);
    let bricks = || BRICKS.iter().map(|b| b.0).filter(|b| *b < B::Sample);
    let mut plan = vec![(B::Embed, None)];
    for layer in 0..30 {
        plan.extend(bricks().filter(|b| inside(*b)).map(|b| (b, Some(layer))));
    }
    plan.extend([(B::FinalNorm, None), (B::LmHead, None)]);
    plan
}

fn has_barrier(id: B) -> bool {
    BRICKS.iter().any(|b| b.0 == id && b.1 > 3.0) || id == B::KvWrite
}

fn kernels() -> Vec<KernelInfo> {
    let info = |(id, layer): (B, Option<u32>)| {
        let mat = BRICKS
            .iter()
            .find(|b| b.0 == id)
            .is_some_and(|b| b.4 > 60_000)
            && id != B::Attention;
        KernelInfo {
            id,
            layer,
            name: if mat { "q4_1_dot" } else { "f32" }.into(),
            variant: "avx2".into(),
            source: "src/engine/cpu/simd/legacy.rs".into(),
            source_hash: "cbf29ce484222325".into(),
            rows: mat.then_some(576),
            columns: mat.then_some(576),
            tile_rows: mat.then_some(16),
        }
    };
    plan().into_iter().map(info).collect()
}

/// A step on two threads; the second is a little faster and waits.
fn step() -> StepTrace {
    let mut at = 40.0;
    let mut events = Vec::new();
    let mut spans = [Vec::new(), Vec::new()];
    let mut steps: Vec<_> = plan()
        .into_iter()
        .enumerate()
        .map(|(i, p)| (Some(i as u32), p))
        .collect();
    steps.push((None, (B::Sample, None)));
    for (event, (brick, (id, layer))) in steps.into_iter().enumerate() {
        let us = BRICKS.iter().find(|b| b.0 == id).map_or(1.0, |b| b.1);
        let barrier = has_barrier(id);
        let wait = if barrier { 1.2 } else { 0.0 };
        events.push(StepEvent {
            id,
            layer,
            start_us: at,
            work_us: us,
            sync_us: wait,
            brick,
            barrier,
        });
        for (thread, spans) in spans.iter_mut().enumerate() {
            if thread > 0 && brick.is_none() {
                continue;
            }
            let work = if thread == 0 { us } else { us * 0.96 };
            spans.push(ThreadSpan {
                event: event as u32,
                start_us: at,
                work_us: work,
                wait_us: if barrier { us + wait - work } else { 0.0 },
                core: Some(thread as u32),
                pieces: 4,
                stolen: u32::from(thread == 0 && layer == Some(3)),
                slack_us: us - work,
            });
        }
        at += us + wait;
    }
    let wall_us = at + 12.0;
    let threads = spans
        .into_iter()
        .enumerate()
        .map(|(thread, spans)| {
            let (work_us, wait_us) = spans
                .iter()
                .fold((0.0, 0.0), |(w, s), x| (w + x.work_us, s + x.wait_us));
            ThreadTrace {
                thread: thread as u32,
                work_us,
                wait_us,
                idle_us: wall_us - work_us - wait_us,
                pieces: spans.iter().map(|s| s.pieces).sum(),
                stolen: spans.iter().map(|s| s.stolen).sum(),
                migrations: thread as u32,
                spans,
            }
        })
        .collect();
    StepTrace {
        kind: crate::engine::StepKind::Decode,
        position: 125,
        tokens: 1,
        wall_us,
        events,
        threads,
    }
}

fn heat() -> Vec<HeatRow> {
    let row = |&(id, us, calls, ..): &(B, f64, u64, u64, u64)| HeatRow {
        id,
        us: (0..30)
            .map(|l| us * (1.0 + 0.1 * (f64::from(l) * 0.7).sin()) + f64::from(l == 17) * us)
            .map(Some)
            .take(if calls >= 30 { 30 } else { 0 })
            .collect(),
    };
    BRICKS.iter().filter(|b| b.2 == 30).map(row).collect()
}

fn roofline() -> Roofline {
    let peak = |kind, isa: &str, threads, value| Peak {
        kind,
        isa: isa.into(),
        threads,
        value,
        in_use: threads == 2 && isa != "avx512" && isa != "scalar",
    };
    use PeakKind as K;
    let point = |id, intensity: f64, gflops: f64, compute, bound: &str| {
        let roof = (intensity * 18.1).min(if compute == K::Int8 { 310.0 } else { 82.0 });
        RoofPoint {
            id,
            intensity,
            gflops,
            gbps: gflops / intensity,
            roof_gflops: roof,
            of_roof: gflops / roof,
            compute,
            bound: bound.into(),
        }
    };
    Roofline {
        peaks: vec![
            peak(K::Memory, "", 1, 9.8),
            peak(K::Memory, "", 2, 18.1),
            peak(K::Fp32, "scalar", 1, 5.1),
            peak(K::Fp32, "avx2", 1, 41.0),
            peak(K::Fp32, "avx2", 2, 82.0),
            peak(K::Int8, "avx2", 1, 155.0),
            peak(K::Int8, "avx2", 2, 310.0),
        ],
        points: vec![
            point(B::LmHead, 3.6, 57.2, K::Int8, "memory"),
            point(B::DownProj, 3.2, 45.8, K::Int8, "memory"),
            point(B::UpProj, 3.2, 47.4, K::Int8, "memory"),
            point(B::GateProj, 3.2, 47.7, K::Int8, "memory"),
            point(B::OProj, 3.1, 45.6, K::Int8, "memory"),
            point(B::QProj, 3.1, 46.2, K::Int8, "memory"),
            point(B::Attention, 0.9, 22.2, K::Fp32, "cache"),
            point(B::Activation, 0.4, 3.8, K::Fp32, "overhead"),
        ],
        reading: "LmHead is at 88% of the memory roof: only fewer bytes help.".into(),
    }
}

fn latency() -> Latency {
    let bucket = |i: i32, count| LatencyBucket {
        from_us: 6_600.0 + 200.0 * f64::from(i),
        to_us: 6_800.0 + 200.0 * f64::from(i),
        count,
    };
    Latency {
        count: 120,
        mean_us: Some(7_204.0),
        stddev_us: Some(310.0),
        min_us: Some(6_712.0),
        p50_us: Some(7_150.0),
        p90_us: Some(7_480.0),
        p99_us: Some(9_310.0),
        max_us: Some(9_702.0),
        buckets: [
            (0, 3),
            (1, 14),
            (2, 49),
            (3, 31),
            (4, 12),
            (5, 7),
            (8, 2),
            (15, 2),
        ]
        .map(|(i, n)| bucket(i, n))
        .to_vec(),
    }
}

fn token_times(tokens: usize) -> Vec<TokenTime> {
    let token = |i: usize| TokenTime {
        position: 6 + i as u32,
        us: if i % 41 == 40 {
            9_702.0
        } else {
            7_100.0 + ((i * 53) % 400) as f64
        },
        minor_faults: Some(u32::from(i.is_multiple_of(16))),
        major_faults: Some(0),
        preempted: Some(u32::from(i % 41 == 40)),
        migrations: Some(0),
        slow: i % 41 == 40,
    };
    (0..tokens.min(512)).map(token).collect()
}

fn anomalies(tokens: usize) -> Vec<Anomaly> {
    let anomaly = |i: usize| {
        Anomaly {
        position: 6 + i as u32,
        us: 9_702.0,
        expected_us: 7_290.0,
        brick: Some(B::LmHead),
        excess_us: 2_310.0,
        cause: Cause::Preempted,
        says: "9.7 ms instead of 7.3 ms: LmHead took 2.3 ms more while the scheduler took the CPU away once".into(),
        by_rule: true,
        by_clusters: i % 82 == 40,
    }
    };
    (0..tokens).filter(|i| i % 41 == 40).map(anomaly).collect()
}

fn counters() -> Counters {
    let thread = |thread: u32| ThreadCounters {
        thread,
        core: Some(thread),
        cpu_ms: Some(861.2 - 40.0 * f64::from(thread)),
        page_faults: Some(12),
        context_switches: Some(43),
        migrations: Some(u64::from(thread)),
        ..ThreadCounters::default()
    };
    Counters {
        hardware: Support::Unavailable {
            why:
                "the kernel has no hardware counters here (ENOENT): a virtual machine without a PMU"
                    .into(),
            remedy:
                "run on the host, or give the virtual machine a PMU (for QEMU: -cpu host,pmu=on)"
                    .into(),
        },
        software: Support::Available,
        threads: vec![thread(0), thread(1)],
        bricks: Vec::new(),
        system: SystemFigures {
            tsc_mhz: Some(2_700.0),
            steal_share: Some(0.012),
            busy_share: Some(0.96),
            load_1m: Some(1.7),
            huge_page_mode: Some("madvise".into()),
            throughput_drop: Some(0.004),
            warnings: vec!["the hypervisor took 1.2% of the CPU time".into()],
            ..SystemFigures::default()
        },
        reading:
            "No hardware counters here; the threads were on a CPU 98% of the time and moved once."
                .into(),
    }
}

fn profiling() -> Profiling {
    Profiling {
        mode: "deferred".into(),
        says: "every brick has its own two stamps on every thread; no barriers are added".into(),
        stamps_per_step: 2_040,
        stamp_ns: Some(12.4),
        stamp_share: Some(0.0018),
        wall_us: Some(7_392.8),
        accounted_us: Some(7_391.1),
    }
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
        subject: None,
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
        attention_parts: Vec::new(),
        prefill_bricks: rows(1, 3.0),
        layers: layers(),
        last_step: Some(step()),
        heat: heat(),
        kernels: Arc::new(kernels()),
        critical_path: Some(critical_path()),
        roofline: roofline(),
        latency: latency(),
        token_times: token_times(tokens),
        anomalies: anomalies(tokens),
        counters: Some(counters()),
        profiling: profiling(),
        host: vec![NamedRow {
            name: "detokenise".into(),
            calls: 120,
            total_us: 240.0,
            mean_us: Some(2.0),
            stddev_us: Some(0.4),
            p50_us: Some(1.9),
            p99_us: Some(4.1),
            max_us: Some(4.4),
        }],
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
        recommendations: advice::recommendations(),
        tuner: Some(Arc::new(advice::tuner())),
        message: None,
        playback: None,
        trace: None,
        tracer: None,
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
        last_step: None,
        heat: Vec::new(),
        roofline: Roofline::default(),
        latency: Latency::default(),
        token_times: Vec::new(),
        anomalies: Vec::new(),
        counters: None,
        recommendations: Vec::new(),
        tuner: None,
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
    advice::out_of_bounds(&mut s, &evil);
    figures::out_of_bounds(&mut s, &evil);
    s
}
