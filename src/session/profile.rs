//! What a session keeps of its steps: statistics, the mean step, and whether the times add up.

use crate::engine::StepKind;
use crate::profiler::StepRecorder;
use crate::profiler::mean_step::MeanStep;
use crate::profiler::stats::Aggregate;
use std::time::{Duration, Instant};

/// Folds finished steps in; allocates nothing once the first step has been added.
pub(super) struct Profile {
    pub stats: Aggregate,
    pub mean: MeanStep,
    accounts: Accounts,
}

/// Decode steps by a clock that is not the recorder's: what its rows must sum to.
#[derive(Debug, Clone, Copy, Default)]
struct Accounts {
    steps: u64,
    wall: Duration,
    began: Option<Instant>,
}

impl Profile {
    pub fn new(n_layers: usize) -> Self {
        Self {
            stats: Aggregate::new(n_layers),
            mean: MeanStep::default(),
            accounts: Accounts::default(),
        }
    }

    /// A decode step is about to begin, and will run to its end without a stop.
    pub fn begin_decode(&mut self) {
        self.accounts.began = Some(Instant::now());
    }

    /// The step has stopped between layers: its wall time tells nothing.
    pub fn stopped(&mut self) {
        self.accounts.began = None;
    }

    /// A step has ended.
    pub fn add(&mut self, recorder: &StepRecorder) {
        let record = recorder.last();
        if record.kind == StepKind::Decode {
            if let Some(began) = self.accounts.began.take() {
                self.accounts.wall += began.elapsed();
                self.accounts.steps += 1;
            }
            self.mean.add(recorder);
        }
        self.stats.add_step(record);
    }

    /// Wall time of a decode step by the system's clock, microseconds, over those that ran without a stop.
    pub fn wall_us(&self) -> Option<f64> {
        let Accounts { steps, wall, .. } = self.accounts;
        (steps > 0).then(|| wall.as_secs_f64() * 1e6 / steps as f64)
    }

    /// Forgets everything: a restart, a change of configuration or the user's wish.
    pub fn clear(&mut self) {
        self.stats.clear();
        self.mean.clear();
        self.accounts = Accounts::default();
    }
}
