//! One trial on this machine: built, warmed, repeated, profiled.

use super::run::{Test, TimeShares};
use super::store::quality::MIN_REPETITIONS;
use crate::engine::knobs::Setup;
use crate::engine::workload::{Sizes, Workload};
use crate::engine::{Config, Engine, EngineError, StepKind, SyncMode};
use crate::model::Model;
use crate::model::brick::BrickId;
use crate::profiler::critical::{Bound, Roof, bound};
use crate::profiler::figures::BrickRow;
use crate::profiler::stats::Aggregate;
use crate::profiler::{Clock, StepRecorder};
use procfs::CurrentSI;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long and how often.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Patience {
    /// Repetitions that are counted, at most; [`MIN_REPETITIONS`] where these would take longer than `most`.
    pub repetitions: u32,
    /// Least time of a repetition: a short test is run several times in one.
    pub least: Duration,
    /// A trial whose least repetitions would take longer than this is given up after its warm-up.
    pub most: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            repetitions: 5,
            least: Duration::from_millis(20),
            most: Duration::from_secs(4),
        }
    }
}

/// What came out.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Rate of every repetition, tokens a second over all sequences.
    pub tok_s: Vec<f64>,
    /// CPU time of other programs meanwhile, as a share of all CPUs.
    pub background: Option<f64>,
    /// Where a step's time went; `None` where bricks are not timed.
    pub shares: Option<TimeShares>,
}

impl Measured {
    /// Mean rate, tokens a second.
    pub fn mean(&self) -> f64 {
        self.tok_s.iter().sum::<f64>() / self.tok_s.len().max(1) as f64
    }

    /// Standard deviation of the rates; `None` with fewer than two.
    pub fn stddev(&self) -> Option<f64> {
        let n = self.tok_s.len();
        let mean = self.mean();
        let squares: f64 = self.tok_s.iter().map(|r| (r - mean).powi(2)).sum();
        (n > 1).then(|| (squares / (n - 1) as f64).sqrt())
    }
}

/// The engine's knobs for a test: those of `setup`, with just the context that the test needs.
pub fn config_for(setup: &Setup, test: &Test) -> Config {
    let n_ctx = (test.depth + test.prompt + test.generated) as usize;
    let batch = test.batch.max(1) as usize;
    Config {
        n_ctx,
        n_seq: batch,
        chunk: setup.config.chunk.max(batch),
        ..setup.config.clone()
    }
}

/// Runs a test; `None` where it would take longer than `patience` has. `roof` is the bandwidth at this number of threads.
///
/// # Errors
/// The engine's: a configuration that cannot run, or too little memory.
pub fn measure(
    model: &Arc<Model>,
    setup: &Setup,
    test: &Test,
    patience: &Patience,
    roof: Roof,
) -> Result<Option<Measured>, EngineError> {
    let sizes = Sizes {
        prompt: test.prompt as usize,
        generated: test.generated as usize,
        depth: test.depth as usize,
        batch: test.batch.max(1) as usize,
    };
    let workload = Workload::new(sizes, model.n_vocab);
    // One call more than the plan's bricks: sampling.
    let mut recorder = StepRecorder::new(Clock::calibrated(), model.plan.bricks.len() + 1);
    recorder.set_mode(setup.sync_mode);
    let mut engine = Engine::new(Arc::clone(model), config_for(setup, test), recorder)?;
    workload.fill(&mut engine)?;
    workload.warm_up(&mut engine)?;
    workload.forget(&mut engine);

    // Once more, timed: how often it fits into a repetition.
    let began = Instant::now();
    workload.run(&mut engine)?;
    let once = began.elapsed().max(Duration::from_nanos(1));
    workload.forget(&mut engine);
    let times = patience
        .least
        .as_nanos()
        .div_ceil(once.as_nanos())
        .clamp(1, 10_000) as u32;
    let fits = patience.most.as_nanos() / (once * times).as_nanos().max(1);
    if fits < u128::from(MIN_REPETITIONS) {
        return Ok(None);
    }
    let repetitions = patience
        .repetitions
        .min(u32::try_from(fits).unwrap_or(u32::MAX));

    let usage = CpuUse::now();
    let mut tok_s = Vec::with_capacity(repetitions as usize);
    for _ in 0..repetitions {
        let mut spent = Duration::ZERO;
        for _ in 0..times {
            let began = Instant::now();
            workload.run(&mut engine)?;
            spent += began.elapsed();
            workload.forget(&mut engine);
        }
        let tokens = workload.tokens() as f64 * f64::from(times);
        tok_s.push(tokens / spent.as_secs_f64().max(1e-9));
    }
    let background = usage
        .zip(CpuUse::now())
        .and_then(|(a, b)| b.others_since(&a));
    Ok(Some(Measured {
        tok_s,
        background,
        shares: profile(&workload, &mut engine, setup.sync_mode, roof)?,
    }))
}

/// One more run of the test, brick by brick.
fn profile(
    workload: &Workload,
    engine: &mut Engine<StepRecorder>,
    sync_mode: SyncMode,
    roof: Roof,
) -> Result<Option<TimeShares>, EngineError> {
    if sync_mode == SyncMode::None {
        return Ok(None);
    }
    let mut stats = Aggregate::new(engine.model().hparams.n_layers);
    workload.run_watched(engine, |e| stats.add_step(e.observer().last()))?;
    workload.forget(engine);
    let decode = stats.rows(StepKind::Decode);
    let rows = if decode.is_empty() {
        stats.rows(StepKind::Prefill)
    } else {
        decode
    };
    Ok(time_shares(&rows, roof))
}

/// How the time of a step divides over what limits it; `None` without time.
pub fn time_shares(rows: &[BrickRow], roof: Roof) -> Option<TimeShares> {
    let all: f64 = rows.iter().map(|r| r.us_per_step).sum();
    if all.is_nan() || all <= 0.0 {
        return None;
    }
    let mut shares = TimeShares::default();
    for row in rows {
        let share = match (row.id, bound(row, roof)) {
            (BrickId::Attention, _) => &mut shares.attention,
            (_, Bound::Memory) => &mut shares.memory,
            (_, Bound::Compute | Bound::Cache) => &mut shares.compute,
            (_, Bound::Overhead) => &mut shares.launch,
            (_, Bound::Unknown) => &mut shares.unknown,
        };
        *share += row.us_per_step / all;
    }
    Some(shares)
}

/// CPU time since the system and this process began, ticks.
#[derive(Debug, Clone, Copy)]
struct CpuUse {
    at: Instant,
    busy: u64,
    own: u64,
    cpus: usize,
}

impl CpuUse {
    fn now() -> Option<Self> {
        let stat = procfs::KernelStats::current().ok()?;
        let t = &stat.total;
        let own = procfs::process::Process::myself().ok()?.stat().ok()?;
        // What the hypervisor gave to others is lost to this process as well.
        let busy = t.user
            + t.nice
            + t.system
            + t.irq.unwrap_or(0)
            + t.softirq.unwrap_or(0)
            + t.steal.unwrap_or(0);
        Some(Self {
            at: Instant::now(),
            busy,
            own: own.utime + own.stime,
            cpus: stat.cpu_time.len().max(1),
        })
    }

    /// CPU time of other programs since an earlier reading, as a share of all CPUs; `None` over less than five ticks.
    fn others_since(&self, then: &Self) -> Option<f64> {
        let ticks =
            self.at.duration_since(then.at).as_secs_f64() * procfs::ticks_per_second() as f64;
        let others = (self.busy - then.busy.min(self.busy))
            .saturating_sub(self.own - then.own.min(self.own));
        (ticks >= 5.0).then(|| (others as f64 / (ticks * self.cpus as f64)).min(1.0))
    }
}
