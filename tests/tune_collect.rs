//! Sweeps: what they plan, that they go on where they stopped, and that only honest runs are kept.

mod common;

use cbtop::engine::cpu::KernelSet;
use cbtop::engine::knobs::{ActsOn, Cost, KNOBS, Setting, Setup, knob};
use cbtop::engine::{Config, SyncMode};
use cbtop::gguf::LoadOptions;
use cbtop::profiler::probe::Bandwidth;
use cbtop::session::Loaded;
use cbtop::tuner::collect::{Progress, Subject, Sweep, Watcher, collect, is_honest};
use cbtop::tuner::describe::{around, matrix_types, model_shape};
use cbtop::tuner::measure::{Measured, Patience};
use cbtop::tuner::run::{Hardware, Origin, Run};
use cbtop::tuner::sweep::{CLASS_KNOB, plan, tests};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const FILE: &str = "llama.Q4_K_M.gguf";

#[test]
fn a_plan_turns_every_knob_and_has_all_kernel_sets_beside_each_other() {
    let loaded = common::fixture(FILE);
    let types = matrix_types(&loaded.model);
    let around = around(&loaded.model, &types, 256);
    let base = Setup {
        config: Config::for_context(512),
        load: LoadOptions::default(),
        sync_mode: SyncMode::default(),
    };
    let tests = tests(2 << 20, 512);
    let planned = plan(&base, &around, &tests, (12, Cost::Reload), 7);
    assert_eq!(planned, plan(&base, &around, &tests, (12, Cost::Reload), 7));
    let kept = plan(&base, &around, &tests, (12, Cost::Rebuild), 7);
    assert!(kept.iter().all(|p| p.setup.load == base.load));
    let keys: BTreeSet<_> = planned
        .iter()
        .map(|p| (p.test, p.setup.settings()))
        .collect();
    assert_eq!(keys.len(), planned.len(), "no trial twice");
    for k in KNOBS {
        let seen: BTreeSet<String> = planned.iter().map(|p| (k.get)(&p.setup)).collect();
        for value in (k.values)(&around) {
            assert!(seen.contains(&value), "{} {value}", k.name);
        }
    }
    // A knob that only prompts show is not turned in tests of generation.
    let decode_chunks = planned.iter().filter(|p| p.test.is_decode());
    assert!(
        decode_chunks
            .map(|p| p.setup.config.chunk)
            .all(|c| c == 512)
    );
    assert_eq!(knob("chunk").map(|k| k.acts_on), Some(ActsOn::Prefill));
    // Trials that are equal but for the kernel set: what the classifier compares.
    let mut groups: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for p in &planned {
        let rest: Vec<Setting> = p
            .setup
            .settings()
            .into_iter()
            .filter(|s| s.knob != CLASS_KNOB)
            .collect();
        let set = p.setup.config.kernels.name().to_owned();
        groups.entry((p.test, rest)).or_default().insert(set);
    }
    let whole = groups
        .values()
        .filter(|sets| sets.len() == KernelSet::available().len())
        .count();
    assert!(whole >= 12, "{whole}");
}

#[derive(Default)]
struct Memory {
    runs: Vec<Run>,
    seen: Vec<Progress>,
}

impl Watcher for Memory {
    fn knows(&mut self, key: &str) -> Result<bool, String> {
        Ok(self.runs.iter().any(|r| r.trial.key() == key))
    }

    fn keep(&mut self, run: &Run) -> Result<(), String> {
        self.runs.push(run.clone());
        Ok(())
    }

    fn progress(&mut self, progress: &Progress) {
        self.seen.push(progress.clone());
    }
}

fn sweep(limit: Option<Duration>) -> Sweep {
    Sweep {
        hardware: Hardware::default(),
        bandwidth: vec![Bandwidth {
            threads: 1,
            gbps: 10.0,
        }],
        origin: Origin::Collect,
        most_cost: Cost::Rebuild,
        mixtures: 0,
        seed: 1,
        patience: Patience {
            repetitions: 3,
            least: Duration::from_micros(1),
            most: Duration::from_secs(1),
        },
        limit,
    }
}

fn subject(loaded: &Loaded) -> Subject<'static> {
    let source = loaded.source.clone();
    Subject {
        name: "tiny".into(),
        load: Box::new(move |how| {
            Loaded::open_with(source.clone(), Some(how))
                .map(|l| Arc::clone(&l.model))
                .map_err(|e| e.to_string())
        }),
    }
}

#[test]
fn a_sweep_goes_on_where_it_stopped_and_tells_how_far_it_is() {
    let loaded = common::fixture(FILE);
    let mut memory = Memory::default();
    let none = collect(
        &mut [subject(&loaded)],
        &sweep(Some(Duration::ZERO)),
        &mut memory,
    )
    .expect("stops at once");
    assert_eq!((none.done, memory.runs.len()), (0, 0));
    assert!(none.total > 30);

    let some = Some(Duration::from_millis(300));
    let first = collect(&mut [subject(&loaded)], &sweep(some), &mut memory).expect("runs");
    assert_eq!(first.kept, memory.runs.len());
    let kept = memory.runs.len();
    let second = collect(&mut [subject(&loaded)], &sweep(some), &mut memory).expect("goes on");
    assert_eq!(memory.runs.len(), kept + second.kept);
    let keys: BTreeSet<String> = memory.runs.iter().map(|r| r.trial.key()).collect();
    assert_eq!(keys.len(), memory.runs.len(), "no trial twice");
    for run in &memory.runs {
        assert!(run.cv().is_some_and(|cv| cv < 0.15) && run.repetitions >= 3);
        assert!(run.unix_s.is_some() && run.warm == Some(true));
        if let Some(s) = run.shares {
            let sum = s.memory + s.compute + s.launch + s.attention + s.unknown;
            assert!((sum - 1.0).abs() < 1e-9, "{s:?}");
        }
    }
    let done: Vec<usize> = memory.seen.iter().map(|p| p.done).collect();
    assert!(done.iter().all(|d| *d <= second.total));
}

#[test]
fn what_a_watcher_refuses_ends_the_sweep() {
    struct Full;
    impl Watcher for Full {
        fn knows(&mut self, _: &str) -> Result<bool, String> {
            Err("the disk is full".into())
        }
        fn keep(&mut self, _: &Run) -> Result<(), String> {
            Ok(())
        }
        fn progress(&mut self, _: &Progress) {}
    }
    let loaded = common::fixture(FILE);
    let ended = collect(&mut [subject(&loaded)], &sweep(None), &mut Full);
    assert_eq!(ended, Err("the disk is full".into()));
}

#[test]
fn runs_that_scatter_or_were_disturbed_are_not_honest() {
    let run = |tok_s: &[f64], background| Measured {
        tok_s: tok_s.to_vec(),
        background,
        shares: None,
    };
    assert!(is_honest(&run(&[100.0, 101.0, 99.0], Some(0.01))));
    assert!(is_honest(&run(&[100.0, 101.0, 99.0], None)));
    assert!(!is_honest(&run(&[100.0, 150.0, 60.0], None)), "scatters");
    assert!(!is_honest(&run(&[100.0, 101.0, 99.0], Some(0.2))), "busy");
    assert!(!is_honest(&run(&[100.0], None)), "one repetition");
    assert!(!is_honest(&run(&[f64::NAN; 3], None)));
    assert!(!is_honest(&run(&[], None)));
}

#[test]
fn a_model_is_described_by_what_is_read_for_a_token() {
    let loaded = common::fixture(FILE);
    let shape = model_shape(&loaded.model, "tiny");
    assert_eq!((shape.layers, shape.hidden), (Some(3), Some(256)));
    assert_eq!(shape.quant, "Q4_K_M");
    assert_eq!(shape.active_params, Some(shape.params), "no experts");
    let weights: u64 = loaded.model.gguf().tensors().iter().map(|t| t.bytes).sum();
    assert!(shape.weight_bytes <= weights as f64 && shape.weight_bytes > 0.8 * weights as f64);
    // Two kv heads of 64, keys and values, f16, three layers.
    assert_eq!(
        shape.kv_bytes_per_token,
        Some(f64::from(2 * 2 * 64 * 2 * 3))
    );
}
