//! Runs sweeps on this machine and keeps what came out: honest runs, or none.

use super::describe::{around, matrix_types, model_shape};
use super::measure::{Measured, Patience, measure};
use super::run::{Hardware, Origin, Run, Trial};
use super::store::quality::{MAX_BACKGROUND, MAX_CV};
use super::sweep::{Planned, plan, tests};
use crate::engine::knobs::{Cost, Setup};
use crate::engine::{Config, SyncMode};
use crate::gguf::LoadOptions;
use crate::model::Model;
use crate::profiler::critical::Roof;
use crate::profiler::probe::Bandwidth;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time given to whatever disturbed a run.
const REST: Duration = Duration::from_millis(200);
/// Attempts at a trial whose runs were not honest.
const ATTEMPTS: u32 = 3;

/// The program that measures, as the store has it.
pub const BACKEND: &str = "cbtop cpu";

/// A model to sweep over.
pub struct Subject<'a> {
    /// Its name.
    pub name: String,
    /// Loads it in a way; the error is one line.
    #[allow(clippy::type_complexity)]
    pub load: Box<dyn FnMut(LoadOptions) -> Result<Arc<Model>, String> + 'a>,
}

/// What a sweep is to do.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// The machine.
    pub hardware: Hardware,
    /// Its bandwidth by number of threads.
    pub bandwidth: Vec<Bandwidth>,
    /// What the runs are for.
    pub origin: Origin,
    /// Settings drawn at random for each model.
    pub mixtures: usize,
    /// The most that a knob may cost to turn.
    pub most_cost: Cost,
    /// Seed of the plan.
    pub seed: u64,
    /// How long and how often.
    pub patience: Patience,
    /// Stop after this time, whatever is left.
    pub limit: Option<Duration>,
}

/// What a sweep tells as it goes, and what it asks.
pub trait Watcher {
    /// Whether a trial has been run before and is to be left out.
    fn knows(&mut self, key: &str) -> Result<bool, String>;
    /// Whether a trial is to be left out as too slow without a try.
    fn is_too_slow(&self, _: &Trial) -> bool {
        false
    }
    /// A run to keep.
    fn keep(&mut self, run: &Run) -> Result<(), String>;
    /// How far it is.
    fn progress(&mut self, progress: &Progress);
}

/// How far a sweep is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Progress {
    /// Trials done, those known before included.
    pub done: usize,
    /// Trials of all models.
    pub total: usize,
    /// Of those done: run now and kept.
    pub kept: usize,
    /// Given up: the machine was busy or the figures scattered, each time.
    pub noisy: usize,
    /// Left out: they would have taken too long.
    pub slow: usize,
    /// Could not run; the newest reason.
    pub failed: usize,
    /// Why the newest one failed.
    pub reason: Option<String>,
    /// The trial that runs, in words.
    pub now: String,
    /// Rate of the newest run, tokens a second.
    pub tok_s: Option<f64>,
    /// Time left at the pace so far.
    pub left: Option<Duration>,
}

/// Sweeps over the models; ends early at the time limit, or when `watcher` refuses something.
///
/// # Errors
/// What `watcher` refuses, or a model that cannot be loaded.
pub fn collect(
    subjects: &mut [Subject],
    sweep: &Sweep,
    watcher: &mut dyn Watcher,
) -> Result<Progress, String> {
    let began = Instant::now();
    let mut plans = Vec::new();
    for subject in &mut *subjects {
        let model = (subject.load)(LoadOptions::default())?;
        plans.push(trials(&model, &subject.name, sweep));
    }
    let mut progress = Progress {
        total: plans.iter().map(Vec::len).sum(),
        ..Progress::default()
    };
    let mut known = 0;
    for (subject, planned) in subjects.iter_mut().zip(&plans) {
        let mut loaded: Option<(LoadOptions, Arc<Model>)> = None;
        for (trial, how) in planned {
            if sweep.limit.is_some_and(|limit| began.elapsed() >= limit) {
                return Ok(progress);
            }
            progress.now = format!("{} {} {}", trial.model.name, trial.model.quant, trial.test);
            if watcher.knows(&trial.key())? {
                known += 1;
            } else if watcher.is_too_slow(trial) {
                progress.slow += 1;
            } else {
                let model = match loaded.take().filter(|(load, _)| *load == how.setup.load) {
                    Some((_, model)) => model,
                    None => (subject.load)(how.setup.load)?,
                };
                let run = attempt(&model, trial, how, sweep, &mut progress);
                loaded = Some((how.setup.load, model));
                if let Some(run) = run {
                    watcher.keep(&run)?;
                }
            }
            progress.done += 1;
            let fresh = progress.done - known;
            progress.left = (fresh > 0).then(|| {
                let each = began.elapsed().as_secs_f64() / fresh as f64;
                Duration::from_secs_f64(each * (progress.total - progress.done) as f64)
            });
            watcher.progress(&progress);
        }
    }
    Ok(progress)
}

/// The plan of a model with what identifies each trial.
fn trials(model: &Model, name: &str, sweep: &Sweep) -> Vec<(Trial, Planned)> {
    let types = matrix_types(model);
    let n_ctx = model.hparams.n_ctx_train;
    let base = Setup {
        config: Config::for_context(n_ctx),
        load: LoadOptions::default(),
        sync_mode: SyncMode::default(),
    };
    let tests = tests(
        model.gguf().file_bytes(),
        u32::try_from(n_ctx).unwrap_or(u32::MAX),
    );
    let around = around(model, &types, 256);
    let shape = model_shape(model, name);
    plan(
        &base,
        &around,
        &tests,
        (sweep.mixtures, sweep.most_cost),
        sweep.seed,
    )
    .into_iter()
    .map(|how| {
        let trial = Trial {
            hardware: sweep.hardware.clone(),
            model: shape.clone(),
            backend: BACKEND.into(),
            test: how.test,
            settings: how.setup.settings(),
        };
        (trial, how)
    })
    .collect()
}

/// Runs a trial until it is honest; `None` where it never was, took too long or could not run.
fn attempt(
    model: &Arc<Model>,
    trial: &Trial,
    how: &Planned,
    sweep: &Sweep,
    progress: &mut Progress,
) -> Option<Run> {
    let threads = how.setup.config.threads;
    let roof = sweep
        .bandwidth
        .iter()
        .find(|b| b.threads as usize == threads);
    let roof = Roof::probed(roof.map(|b| b.gbps));
    for _ in 0..ATTEMPTS {
        match measure(model, &how.setup, &how.test, &sweep.patience, roof) {
            Ok(Some(measured)) if is_honest(&measured) => {
                progress.kept += 1;
                progress.tok_s = Some(measured.mean());
                return Some(run_of(trial.clone(), &measured, sweep.origin));
            }
            Ok(Some(_)) => std::thread::sleep(REST),
            Ok(None) => {
                progress.slow += 1;
                return None;
            }
            Err(e) => {
                progress.failed += 1;
                progress.reason = Some(e.to_string());
                return None;
            }
        }
    }
    progress.noisy += 1;
    None
}

/// Whether repetitions agree and the machine did nothing else, as far as runs are learned from.
pub fn is_honest(measured: &Measured) -> bool {
    let mean = measured.mean();
    let cv = measured.stddev().map(|s| s / mean);
    mean.is_finite()
        && mean > 0.0
        && cv.is_some_and(|cv| cv < MAX_CV)
        && measured.background.is_none_or(|b| b < MAX_BACKGROUND)
}

/// A measured trial as the store keeps it.
pub fn run_of(trial: Trial, measured: &Measured, origin: Origin) -> Run {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Run {
        trial,
        origin,
        source: concat!("cbtop ", env!("CARGO_PKG_VERSION")).into(),
        unix_s: now.ok().and_then(|t| i64::try_from(t.as_secs()).ok()),
        tok_s: measured.mean(),
        stddev: measured.stddev(),
        repetitions: u32::try_from(measured.tok_s.len()).unwrap_or(u32::MAX),
        warm: Some(true),
        background: measured.background,
        shares: measured.shares,
    }
}
