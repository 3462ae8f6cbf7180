//! The profiler on the engine that users run: every thread is seen, times add up, no mode changes a logit.

mod common;

use cbtop::engine::cpu::KernelSet;
use cbtop::engine::sampler::SamplerConfig;
use cbtop::engine::{
    Call, Config, Engine, Logits, NO_LAYER, Observer, StepKind, SyncMode, Unobserved,
};
use cbtop::model::Model;
use cbtop::model::brick::{BrickId, Category};
use cbtop::model::work::Work;
use cbtop::profiler::stats::Aggregate;
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
        beside: None,
        overlay: None,
        tracers: Default::default(),
        reference: None,
        bandwidth: Vec::new(),
        peaks: Vec::new(),
        tuner: None,
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

/// F101, as far as a test may say: the command measures every mode against the same engine unwatched. The figures are in
/// docs/src/falsification.md.
#[test]
fn f101_every_mode_is_measured_against_an_unwatched_engine() {
    let done = std::process::Command::new(env!("CARGO_BIN_EXE_cbtop"))
        .args(["overhead", "-t", "1", "-r", "8", "-n", "2", "-o", "json"])
        .output()
        .expect("runs");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let costs: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let modes = costs["modes"].as_array().expect("modes");
    let names: Vec<_> = modes
        .iter()
        .map(|m| m["mode"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, SyncMode::ALL.map(SyncMode::name));
    for mode in modes {
        let figure = |name: &str| mode[name].as_f64().expect("a number");
        let (low, ratio, high) = (figure("ratio_low"), figure("ratio"), figure("ratio_high"));
        assert!(0.0 < low && low <= ratio && ratio <= high && high.is_finite());
        assert!(figure("tok_s") > 0.0);
    }
}

/// F102: every mode counts the same calls, elements, bytes and operations.
#[test]
fn f102_all_modes_count_the_same_calls_and_work() {
    let loaded = common::fixture(FIXTURES[0]);
    let counted = |mode| -> Vec<(BrickId, u64, [u64; 3])> {
        let observer = recorder(&loaded.model, mode);
        let mut engine = Engine::new(Arc::clone(&loaded.model), config(2), observer).expect("runs");
        let mut stats = Aggregate::new(loaded.model.hparams.n_layers);
        for id in 1..6 {
            engine.decode(id).expect("runs");
            stats.add_step(engine.observer().last());
        }
        let rows = stats.rows(StepKind::Decode);
        let engine_only = rows
            .into_iter()
            .filter(|r| r.category != Category::Overhead);
        engine_only
            .map(|r| {
                let work = [r.elements_per_step, r.bytes_per_step, r.flops_per_step];
                (r.id, r.calls, work)
            })
            .collect()
    };
    let deferred = counted(SyncMode::Deferred);
    assert!(deferred.len() > 10);
    assert_eq!(deferred, counted(SyncMode::PerLayer));
    assert_eq!(deferred, counted(SyncMode::Immediate));
}

/// F103: a brick is found by its discriminant, which is its place in every array of statistics.
#[test]
fn f103_bricks_index_an_array() {
    assert_eq!(BrickId::ALL.len(), BrickId::COUNT);
    for (place, id) in BrickId::ALL.iter().enumerate() {
        assert_eq!(*id as usize, place);
        let name = serde_json::to_string(id).expect("a name");
        assert_eq!(serde_json::from_str::<BrickId>(&name).expect("itself"), *id);
    }
    let names: BTreeSet<&str> = BrickId::ALL.iter().map(|id| id.name()).collect();
    assert_eq!(names.len(), BrickId::COUNT);
}

/// F104: what the categories take sums to the step.
#[test]
fn f104_categories_sum_to_the_step() {
    let loaded = common::fixture(FIXTURES[0]);
    let observer = recorder(&loaded.model, SyncMode::Deferred);
    let mut engine = Engine::new(Arc::clone(&loaded.model), config(2), observer).expect("runs");
    let mut stats = Aggregate::new(loaded.model.hparams.n_layers);
    let mut wall = 0.0;
    for id in 1..9 {
        engine.decode(id).expect("runs");
        let record = engine.observer().last();
        wall += record.wall_us();
        stats.add_step(record);
    }
    let rows = stats.rows(StepKind::Decode);
    let categories = [
        Category::Norm,
        Category::Attention,
        Category::Ffn,
        Category::Head,
        Category::Overhead,
    ];
    let of = |c: Category| -> f64 {
        rows.iter()
            .filter(|r| r.category == c)
            .map(|r| r.total_us)
            .sum()
    };
    let sums = categories.map(of);
    assert!(sums.iter().all(|s| *s > 0.0), "{sums:?}");
    let sum: f64 = sums.iter().sum();
    assert!((sum - wall).abs() <= 1e-6 * wall, "{sum} of {wall}");
}

/// F106: a step that has ended stays as it is, however often it is ended.
#[test]
fn f106_ending_a_step_twice_changes_nothing() {
    let mut rec = StepRecorder::new(Clock::calibrated(), 8);
    rec.begin_step(StepKind::Decode, 3, 1);
    let t = rec.start();
    rec.worked(t, BrickId::QProj, 0, Work::default());
    let parts = |r: &cbtop::profiler::StepRecord| {
        let sums = [r.wall, r.work, r.sync, r.launch, r.join, r.unattributed];
        (sums, r.events().to_vec())
    };
    let once = parts(rec.end_step());
    std::thread::sleep(std::time::Duration::from_millis(2));
    assert_eq!(parts(rec.end_step()), once);
    assert_eq!(parts(rec.last()), once);
}

/// F107: threads record side by side, and nothing is lost or mixed up.
#[test]
fn f107_threads_record_side_by_side() {
    let loaded = common::fixture(FIXTURES[0]);
    let plan = loaded.model.plan.bricks.len();
    let observer = recorder(&loaded.model, SyncMode::Deferred);
    let mut engine = Engine::new(Arc::clone(&loaded.model), config(4), observer).expect("runs");
    for step in 0..200 {
        engine.truncate(0);
        engine.decode(step % 100).expect("runs");
        let recorder = engine.observer();
        assert_eq!(recorder.lanes().len(), 3);
        for lane in recorder.lanes() {
            assert_eq!(lane.dropped(), 0);
            let bricks: Vec<u32> = lane.spans().iter().map(|s| s.brick).collect();
            assert_eq!(bricks, (0..plan as u32).collect::<Vec<_>>());
            let forward =
                |s: &cbtop::profiler::recorder::Span| s.start <= s.end && s.end <= s.synced;
            assert!(lane.spans().iter().all(forward));
        }
    }
}

/// F109: the interface by which a backend records, used as its documentation says.
#[test]
fn f109_the_recording_interface() {
    let mut rec = StepRecorder::new(Clock::calibrated(), 8);
    rec.prepare(1, 8);
    rec.set_mode(SyncMode::Immediate);
    rec.begin_step(StepKind::Prefill, 9, 10);
    let start = rec.start();
    let work = Work {
        elements: 64,
        bytes: 4096,
        flops: 8192,
    };
    let call = Call {
        brick: Some(0),
        barrier: true,
        ..Call::outside(BrickId::QProj, 0, work)
    };
    let end = rec.called(start, call);
    rec.synced(end);
    rec.pause();
    rec.resume();
    let start = rec.start();
    rec.worked(start, BrickId::Sample, NO_LAYER, Work::default());
    let record = rec.end_step();
    assert_eq!((record.events().len(), record.bytes()), (2, 4096));
    assert_eq!((record.kind, record.tokens), (StepKind::Prefill, 10));
    let mut stats = Aggregate::new(1);
    stats.add_step(record);
    assert!(stats.rows(StepKind::Prefill).len() >= 4);
}

/// F145: whatever watches an engine is told of the same calls, in the same order.
#[test]
fn f145_any_observer_sees_the_same_calls() {
    #[derive(Default)]
    struct Calls(Vec<(BrickId, Option<u32>)>);
    impl Observer for Calls {
        type Lane = ();
        type Ticks = ();
        fn prepare(&mut self, _: usize, _: usize) {}
        fn sync_mode(&self) -> SyncMode {
            SyncMode::Deferred
        }
        fn clock(&self) {}
        fn take_lanes(&mut self) -> Vec<()> {
            Vec::new()
        }
        fn put_lanes(&mut self, _: Vec<()>) {}
        fn begin_step(&mut self, _: StepKind, _: u32, _: u32) {
            self.0.clear();
        }
        fn start(&self) -> u64 {
            0
        }
        fn worked(&mut self, _: u64, call: Call) -> u64 {
            self.0.push((call.id, call.brick));
            0
        }
        fn synced(&mut self, _: u64) -> u64 {
            0
        }
        fn pause(&mut self) {}
        fn resume(&mut self) {}
        fn end_step(&mut self) {}
    }
    let loaded = common::fixture(FIXTURES[0]);
    let mut engine =
        Engine::new(Arc::clone(&loaded.model), config(2), Calls::default()).expect("runs");
    engine.decode(1).expect("runs");
    let trace = traced(&loaded.model, 2, SyncMode::Deferred);
    let recorded: Vec<_> = trace.events.iter().map(|e| (e.id, e.brick)).collect();
    assert_eq!(engine.observer().0, recorded);
}

/// F147, for the engine's own pool: the graph of a real step has every thread's share once, all of them joined and forked at
/// every barrier, and the same critical path as the short cut that the dashboard takes.
#[test]
fn f147_the_dag_of_the_engines_own_pool_is_rebuilt() {
    use cbtop::profiler::graph::{EdgeKind, Node, from_step, threads_critical_path};
    for loaded in fixtures() {
        for threads in [1, 2, 3] {
            let trace = traced(&loaded.model, threads, SyncMode::Deferred);
            let graph = from_step(&trace, &[]).expect("a graph");
            let count = |f: fn(&Node) -> bool| graph.nodes().iter().filter(|n| f(n)).count();
            let tasks = count(|n| matches!(n, Node::CpuTask(_)));
            assert_eq!(
                tasks,
                trace.threads.iter().map(|t| t.spans.len()).sum::<usize>()
            );
            let barriers = trace.events.iter().filter(|e| e.barrier).count();
            assert_eq!(count(|n| matches!(n, Node::Barrier { .. })), barriers);
            let edges = |kind| graph.edges().iter().filter(|e| e.kind == kind).count();
            assert_eq!(edges(EdgeKind::Join), barriers * threads);
            // Nothing comes behind the last barrier of a step that ends in one.
            let last = trace.events.last().is_some_and(|e| e.barrier);
            assert_eq!(
                edges(EdgeKind::Fork),
                (barriers - usize::from(last)) * threads
            );
            let path = threads_critical_path(&trace).expect("a path");
            let whole = graph.schedule().expect("no cycle").length_ns() as f64 * 1e-3;
            assert!(
                (path.length_us - whole).abs() < 1e-3,
                "{} {whole}",
                path.length_us
            );
            assert!(path.length_us <= trace.wall_us);
        }
    }
}
