//! The profiler on the engine that users run: every thread is seen, times add up, no mode changes a logit.

mod common;

use cbtop::engine::cpu::KernelSet;
use cbtop::engine::sampler::SamplerConfig;
use cbtop::engine::{Config, Engine, Logits, StepKind, SyncMode, Unobserved};
use cbtop::model::Model;
use cbtop::model::brick::{BrickId, Category};
use cbtop::profiler::{Clock, StepRecorder};
use cbtop::session::snapshot::{Snapshot, StepTrace};
use cbtop::session::{Loaded, Options, Session, Source};
use std::collections::BTreeSet;
use std::sync::Arc;

const FIXTURES: [&str; 3] = ["llama.Q4_K_M.gguf", "gemma3.Q8_0.gguf", "qwen2.Q4_K_M.gguf"];

fn config(threads: usize) -> Config {
    Config {
        threads,
        ..Config::for_context(96)
    }
}

fn recorder(model: &Model, mode: SyncMode) -> StepRecorder {
    let mut recorder = StepRecorder::new(Clock::calibrated(), model.plan.bricks.len() + 1);
    recorder.set_mode(mode);
    recorder
}

fn traced(model: &Arc<Model>, threads: usize, mode: SyncMode) -> StepTrace {
    let recorder = recorder(model, mode);
    let mut engine = Engine::new(Arc::clone(model), config(threads), recorder).expect("runs");
    engine.prefill(&[1, 2, 3, 4, 5]).expect("runs");
    engine
        .step(&[6], Logits::Last, StepKind::Decode)
        .expect("runs");
    engine.observer().trace().expect("a step")
}

fn fixtures() -> impl Iterator<Item = Loaded> {
    FIXTURES.into_iter().map(common::fixture)
}

/// F141: the forward pass of the CPU reports every brick of the plan, on every thread.
#[test]
fn f141_every_brick_of_the_plan_is_seen_on_every_thread() {
    for loaded in fixtures() {
        let plan = loaded.model.plan.bricks.len();
        for threads in [1, 2, 3] {
            let trace = traced(&loaded.model, threads, SyncMode::Deferred);
            assert_eq!(trace.threads.len(), threads);
            for thread in &trace.threads {
                let seen: Vec<u32> = thread.spans.iter().map(|s| s.event).collect();
                assert_eq!(seen, (0..plan as u32).collect::<Vec<_>>(), "{threads}");
            }
            let bricks: Vec<_> = trace.events.iter().map(|e| e.brick).collect();
            assert_eq!(bricks, (0..plan as u32).map(Some).collect::<Vec<_>>());
        }
    }
}

/// F149: what each thread did is told apart: its pieces, those that an even split would have given to another thread, its
/// waiting and its idling; and these sum to the step's wall time.
#[test]
fn f149_work_waiting_and_idling_of_a_thread_sum_to_the_step() {
    for loaded in fixtures() {
        let trace = traced(&loaded.model, 2, SyncMode::Deferred);
        for thread in &trace.threads {
            let sum = thread.work_us + thread.wait_us + thread.idle_us;
            assert!(
                (sum - trace.wall_us).abs() <= 0.01 * trace.wall_us,
                "thread {}: {sum} of {}",
                thread.thread,
                trace.wall_us
            );
            assert!(thread.stolen <= thread.pieces);
            let in_order = |pair: &[cbtop::session::snapshot::ThreadSpan]| {
                pair[0].start_us + pair[0].work_us + pair[0].wait_us <= pair[1].start_us + 1e-6
            };
            assert!(thread.spans.windows(2).all(in_order));
        }
        // Every piece of every brick that is dealt out was taken by somebody, once.
        let pieces = |event: u32| -> u32 {
            let of = |t: &cbtop::session::snapshot::ThreadTrace| t.spans[event as usize].pieces;
            trace.threads.iter().map(of).sum()
        };
        for (event, e) in trace.events.iter().enumerate() {
            if matches!(e.id, BrickId::QProj | BrickId::DownProj | BrickId::LmHead) {
                assert!(pieces(event as u32) >= 1, "{:?}", e.id);
            }
        }
    }
}

/// A barrier is a point in time: nobody leaves it before the last has come.
#[test]
fn nobody_leaves_a_barrier_before_the_last_has_come() {
    for loaded in fixtures() {
        for mode in [SyncMode::Deferred, SyncMode::PerLayer, SyncMode::Immediate] {
            let trace = traced(&loaded.model, 3, mode);
            for (i, event) in trace.events.iter().enumerate().filter(|(_, e)| e.barrier) {
                let spans = || trace.threads.iter().map(|t| t.spans[i]);
                let last_in = spans().map(|s| s.start_us + s.work_us).fold(0.0, f64::max);
                let first_out = spans()
                    .map(|s| s.start_us + s.work_us + s.wait_us)
                    .fold(f64::INFINITY, f64::min);
                // Counters of two cores differ by a little.
                assert!(
                    first_out > last_in - 1.0,
                    "{:?}: {last_in} {first_out}",
                    event.id
                );
            }
        }
    }
}

#[test]
fn modes_add_the_barriers_they_say() {
    let loaded = common::fixture(FIXTURES[0]);
    let barriers = |mode| {
        let trace = traced(&loaded.model, 2, mode);
        trace.events.iter().map(|e| e.barrier).collect::<Vec<_>>()
    };
    let (deferred, layer, all) = (
        barriers(SyncMode::Deferred),
        barriers(SyncMode::PerLayer),
        barriers(SyncMode::Immediate),
    );
    assert!(all.iter().all(|b| *b));
    assert!(deferred.iter().any(|b| !*b));
    let plan = &loaded.model.plan.bricks;
    for i in 0..plan.len() {
        let ends_layer = plan.get(i + 1).is_none_or(|n| n.layer != plan[i].layer);
        assert_eq!(layer[i], deferred[i] || ends_layer, "{i}");
        assert_eq!(deferred[i], plan[i].barrier);
    }
}

/// With everything on the logits are, bit for bit, those of an engine nobody watches.
#[test]
fn no_mode_changes_a_logit() {
    for loaded in fixtures() {
        let mut bare = Engine::new(Arc::clone(&loaded.model), config(2), Unobserved).expect("runs");
        bare.prefill(&[1, 2, 3]).expect("runs");
        bare.decode(4).expect("runs");
        let expected: Vec<u32> = bare.logits(0).iter().map(|l| l.to_bits()).collect();
        for mode in SyncMode::ALL {
            let observer = recorder(&loaded.model, mode);
            let mut engine =
                Engine::new(Arc::clone(&loaded.model), config(2), observer).expect("runs");
            engine.prefill(&[1, 2, 3]).expect("runs");
            engine.decode(4).expect("runs");
            let got: Vec<u32> = engine.logits(0).iter().map(|l| l.to_bits()).collect();
            assert!(got == expected, "{}", mode.name());
        }
    }
}

#[test]
fn with_no_mode_only_whole_steps_are_known() {
    let loaded = common::fixture(FIXTURES[0]);
    let observer = recorder(&loaded.model, SyncMode::None);
    let mut engine = Engine::new(Arc::clone(&loaded.model), config(2), observer).expect("runs");
    engine.decode(1).expect("runs");
    let record = engine.observer().last();
    assert!(record.events().is_empty() && record.wall > 0);
    assert_eq!(record.unattributed, record.wall);
    assert!(engine.observer().trace().is_none());
    // And back again, between two steps.
    engine.observer_mut().set_mode(SyncMode::Deferred);
    engine.decode(1).expect("runs");
    let trace = engine.observer().trace().expect("a step");
    assert_eq!(trace.threads.len(), 2);
}

fn run(path: std::path::PathBuf, threads: usize, tokens: u64) -> Snapshot {
    let loaded = Loaded::open(Source::File(path)).expect("a model");
    let mut config = loaded.config();
    (config.threads, config.n_ctx) = (threads, 256);
    config.chunk = config.chunk.min(64);
    let options = Options {
        config,
        explicit: BTreeSet::new(),
        sampler: SamplerConfig::GREEDY,
        prompt: "The capital of France is".into(),
        chat: false,
        max_tokens: Some(tokens),
        endless: false,
        pace: None,
        clock: Clock::calibrated(),
        sync_mode: SyncMode::Deferred,
        bandwidth: Vec::new(),
        peaks: Vec::new(),
    };
    let mut session = Session::new(loaded, options).expect("a session");
    while !session.is_over() {
        session.tick();
    }
    session.snapshot()
}

/// The bricks of a token and the named gaps between them sum to its wall time, told by another clock, within 1%.
#[test]
fn bricks_and_gaps_sum_to_the_wall_time_of_another_clock() {
    for file in [common::SMOLLM2, common::GEMMA3] {
        let Some(path) = common::real_model(file) else {
            return;
        };
        for threads in [1, 2] {
            let s = run(path.clone(), threads, 12);
            let (wall, sum) = (
                s.profiling.wall_us.expect("decoded"),
                s.profiling.accounted_us.expect("decoded"),
            );
            assert!(
                (sum / wall - 1.0).abs() < 0.01,
                "{file}, {threads} threads: rows sum to {sum} us of {wall}"
            );
            let rows: f64 = s.bricks.iter().map(|r| r.us_per_step).sum();
            assert!((rows - sum).abs() < 1e-6 * sum);
            let share: f64 = s.bricks.iter().map(|r| r.share).sum();
            assert!((share - 1.0).abs() < 1e-9);
            let gaps = s.bricks.iter().filter(|r| r.category == Category::Overhead);
            assert!(gaps.map(|r| r.id).any(|id| id == BrickId::Unattributed));
        }
    }
}

/// F142: the kernels named are those that run.
#[test]
fn f142_every_brick_names_its_kernel() {
    for set in KernelSet::available() {
        let loaded = common::fixture(FIXTURES[0]);
        let config = Config {
            kernels: set,
            ..config(1)
        };
        let engine = Engine::new(Arc::clone(&loaded.model), config, Unobserved).expect("runs");
        let uses = engine.kernels();
        assert_eq!(uses.len(), loaded.model.plan.bricks.len());
        for (brick, used) in loaded.model.plan.bricks.iter().zip(&uses) {
            assert_eq!(used.variant, set.name(), "{:?}", brick.id);
            assert!(!used.source.text.is_empty() && used.source.path.ends_with(".rs"));
            let product = matches!(
                brick.id,
                BrickId::QProj | BrickId::DownProj | BrickId::LmHead
            );
            assert!(!product || used.shape.is_some(), "{:?}", brick.id);
        }
    }
}

/// F112, for kernels that are compiled in: the hash is that of the source text, so equal code has an equal hash.
#[test]
fn f112_source_hashes_are_those_of_the_files() {
    let loaded = common::fixture(FIXTURES[0]);
    let engine = Engine::new(Arc::clone(&loaded.model), config(1), Unobserved).expect("runs");
    for used in engine.kernels() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(used.source.path);
        let text = std::fs::read_to_string(&path).expect("the source is in the repository");
        assert!(text == used.source.text, "{}", path.display());
    }
}
