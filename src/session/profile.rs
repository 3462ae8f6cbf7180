//! What a session keeps of its steps: statistics, slow tokens, and whether the times add up.

use crate::engine::StepKind;
use crate::profiler::StepRecorder;
use crate::profiler::anomalies::{TOKENS, Watch};
use crate::profiler::figures::TokenTime;
use crate::profiler::stats::Aggregate;
use crate::profiler::throughput::ThroughputDrop;
use crate::profiler::usage::TokenUsage;
use std::time::{Duration, Instant};

/// Folds finished steps in; allocates nothing once the first step has been added.
pub(super) struct Profile {
    pub stats: Aggregate,
    pub watch: Watch,
    pub throughput: ThroughputDrop,
    accounts: Accounts,
    /// Whether what the system counts belongs to the times: not with modelled time.
    measured: bool,
    usage: Option<TokenUsage>,
}

/// Decode steps by a clock that is not the recorder's: what its rows must sum to.
#[derive(Debug, Clone, Copy, Default)]
struct Accounts {
    steps: u64,
    wall: Duration,
    rows_us: f64,
    began: Option<Instant>,
}

impl Profile {
    pub fn new(n_layers: usize, measured: bool) -> Self {
        Self {
            stats: Aggregate::new(n_layers),
            watch: Watch::new(TOKENS),
            throughput: ThroughputDrop::default(),
            accounts: Accounts::default(),
            measured,
            usage: None,
        }
    }

    /// A decode step is about to begin, and will run to its end without a stop.
    pub fn begin_decode(&mut self) {
        if self.measured {
            self.usage = TokenUsage::now();
            self.accounts.began = Some(Instant::now());
        }
    }

    /// The step has stopped between layers: its wall time tells nothing.
    pub fn stopped(&mut self) {
        self.accounts.began = None;
    }

    /// A step has ended.
    pub fn add(&mut self, recorder: &StepRecorder) {
        let record = recorder.last();
        if record.sampled {
            self.interrupt();
            return;
        }
        // First of all: what follows is not the step's.
        if let Some(began) = self.accounts.began.take() {
            self.accounts.wall += began.elapsed();
            self.accounts.steps += 1;
            let rows = [
                record.work,
                record.sync,
                record.launch,
                record.join,
                record.unattributed,
            ];
            self.accounts.rows_us += rows
                .map(|ticks| record.clock().us(ticks))
                .iter()
                .sum::<f64>();
        }
        self.stats.add_step(record);
        if record.kind == StepKind::Decode {
            self.throughput.add(record.wall_us());
            self.watch_token(recorder);
        }
    }

    fn watch_token(&mut self, recorder: &StepRecorder) {
        let record = recorder.last();
        // Of the step alone: what the session and the dashboard do between two is not the token's.
        let then = self.usage.take();
        let used = then.and_then(|then| Some(TokenUsage::now()?.since(then)));
        let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let token = TokenTime {
            position: record.position,
            us: record.wall_us(),
            minor_faults: used.map(|u| count(u.minor_faults)),
            major_faults: used.map(|u| count(u.major_faults)),
            preempted: used.map(|u| count(u.involuntary_switches)),
            migrations: recorder.migrations(),
            slow: false,
        };
        let us = self.stats.last_decode_ns().map(|ns| ns * 1e-3);
        self.watch.push(token, &us);
    }

    /// What comes next does not follow on the last token: what the system counted meanwhile is not a token's.
    pub fn interrupt(&mut self) {
        self.usage = None;
        self.accounts.began = None;
    }

    /// What the rows of the table sum to over the steps of [`Self::wall_us`], microseconds a step.
    pub fn accounted_us(&self) -> Option<f64> {
        let Accounts { steps, rows_us, .. } = self.accounts;
        (steps > 0).then(|| rows_us / steps as f64)
    }

    /// Wall time of a decode step by the system's clock, microseconds, over those that ran without a stop.
    pub fn wall_us(&self) -> Option<f64> {
        let Accounts { steps, wall, .. } = self.accounts;
        (steps > 0).then(|| wall.as_secs_f64() * 1e6 / steps as f64)
    }

    /// Forgets everything: a restart, a change of configuration or the user's wish.
    pub fn clear(&mut self) {
        self.stats.clear();
        self.watch.clear();
        self.throughput.clear();
        self.accounts = Accounts::default();
        self.interrupt();
    }
}
