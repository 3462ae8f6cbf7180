//! Learning on from every run of this machine, without forgetting and without swinging.
//!
//! Runs wait until there are eight; then a correction of the machine is fitted to them together with the older runs that are
//! kept for replay (Robins, "Catastrophic forgetting, rehearsal and pseudorehearsal", Connection Science 7, 1995). It is
//! taken in part of the way, and only as far as older tasks stay within 5% of their error; otherwise it is refused.

use super::brick_tuner::{Answer, BrickTuner};
use super::correction::{Correction, Freedom, Residual};
use super::drift::{Alarm, ConceptDrift, Degradation};
use crate::tuner::features::{Measured, PREDICTORS};
use crate::tuner::run::{Run, Trial};
use std::collections::BTreeMap;

/// Runs that are learned from together.
pub const BATCH: usize = 8;
/// Runs kept for replay.
const REPLAY: usize = 512;
/// How much worse older tasks may become (F285).
pub const FORGETTING: f64 = 0.05;
/// And absolutely: a log error this small is noise of the measurement.
const NOISE: f64 = 0.002;
/// Shares of the way to a new correction, tried in order.
const STEPS: [f32; 4] = [0.6, 0.3, 0.15, 0.05];
/// Runs from which on slopes of columns are learned as well.
const SLOPES_FROM: usize = 24;
/// Error expected of a model that does not know its own.
const USUAL_ERROR: f64 = 0.15;

/// What became of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Learned {
    /// Of another machine, or nothing can be predicted of it.
    Ignored,
    /// Kept until there are enough.
    Waiting,
    /// The correction changed; mean absolute log errors over the new runs.
    Updated {
        /// Before.
        before: f64,
        /// After.
        after: f64,
    },
    /// The correction stayed: older tasks would have become worse than [`FORGETTING`] allows, or nothing would be gained.
    Refused,
}

/// Why the model is to be doubted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Doubt {
    /// Its errors drift.
    Drift(Alarm),
    /// The median error of the newest runs, a share of the rate, is more than twice what it was in training.
    Worse(f64),
}

/// A run that is kept.
#[derive(Debug, Clone)]
struct Kept {
    row: Residual,
    task: String,
}

/// A tuner that learns on.
#[derive(Debug, Clone)]
pub struct OnlineTuner {
    tuner: BrickTuner,
    fingerprint: String,
    replay: Vec<Kept>,
    waiting: Vec<Kept>,
    /// Error of each task when it was last learned.
    learned: BTreeMap<String, f64>,
    seen: u64,
    drift: ConceptDrift,
    degradation: Degradation,
    doubt: Option<Doubt>,
}

impl OnlineTuner {
    /// Learns on for the machine of a fingerprint; `old` are runs of it that are not to be forgotten.
    pub fn new(tuner: BrickTuner, fingerprint: &str, old: &[&Run]) -> Self {
        let expected = tuner.about.error.unwrap_or(USUAL_ERROR);
        let mut online = Self {
            tuner,
            fingerprint: fingerprint.to_owned(),
            replay: Vec::new(),
            waiting: Vec::new(),
            learned: BTreeMap::new(),
            seen: 0,
            drift: ConceptDrift::default(),
            degradation: Degradation::new(expected),
            doubt: None,
        };
        for run in old {
            if let Some(kept) = online.kept(run) {
                online.keep(kept);
            }
        }
        online
    }

    /// The tuner as it is now.
    pub fn tuner(&self) -> &BrickTuner {
        &self.tuner
    }

    /// Answers as the tuner does, with the doubts there are.
    pub fn predict(&self, trial: &Trial, measured: Option<&Measured>) -> Answer {
        let mut answer = self.tuner.predict(trial, measured);
        let doubt = match self.doubt {
            None => return answer,
            Some(Doubt::Drift(Alarm::Slower)) => {
                "this machine has become slower than was learned".to_owned()
            }
            Some(Doubt::Drift(Alarm::Faster)) => {
                "this machine has become faster than was learned".to_owned()
            }
            Some(Doubt::Worse(error)) => format!(
                "the newest runs are {:.0}% off: calibrate, or train again",
                error * 100.0
            ),
        };
        answer.warnings.push(doubt);
        answer
    }

    /// Why the model is to be doubted, if it is.
    pub fn doubt(&self) -> Option<Doubt> {
        self.doubt
    }

    /// Takes in a run.
    pub fn observe(&mut self, run: &Run) -> Learned {
        let Some(kept) = self.kept(run) else {
            return Learned::Ignored;
        };
        if let Some(predicted) = self.tuner.rate(&run.trial) {
            if let Some(alarm) = self.drift.observe(predicted, run.tok_s) {
                self.doubt = Some(Doubt::Drift(alarm));
            }
            match self.degradation.observe(predicted, run.tok_s) {
                Some(error) => self.doubt = Some(Doubt::Worse(error)),
                None if matches!(self.doubt, Some(Doubt::Worse(_))) => self.doubt = None,
                None => {}
            }
        }
        self.waiting.push(kept);
        if self.waiting.len() < BATCH {
            return Learned::Waiting;
        }
        let fresh = std::mem::take(&mut self.waiting);
        let learned = self.learn(&fresh);
        if learned == Learned::Refused {
            // They are kept all the same: their tasks are held to what is right of them now.
            self.remember(&self.current(), &fresh);
        }
        fresh.into_iter().for_each(|k| self.keep(k));
        learned
    }

    fn kept(&self, run: &Run) -> Option<Kept> {
        if run.trial.hardware.fingerprint != self.fingerprint {
            return None;
        }
        let kind = if run.trial.test.is_decode() {
            "generation"
        } else {
            "prompt"
        };
        Some(Kept {
            row: self.tuner.residual(run)?,
            task: format!("{}|{}|{kind}", run.trial.model.name, run.trial.model.quant),
        })
    }

    /// Keeps a run for replay; once there are enough, in the place of one of the task that has most.
    fn keep(&mut self, kept: Kept) {
        self.seen += 1;
        if self.replay.len() < REPLAY {
            self.replay.push(kept);
            return;
        }
        let mut tasks: BTreeMap<&str, usize> = BTreeMap::new();
        for k in &self.replay {
            *tasks.entry(&k.task).or_default() += 1;
        }
        let most = tasks.iter().max_by_key(|(_, n)| **n).map(|(t, _)| *t);
        let of_most = |(_, k): &(usize, &Kept)| Some(k.task.as_str()) == most;
        let places: Vec<usize> = self
            .replay
            .iter()
            .enumerate()
            .filter(of_most)
            .map(|(at, _)| at)
            .collect();
        // A different one each time, so that no run stays for ever and none is dropped for being new.
        if let Some(&at) = places.get(self.seen as usize % places.len().max(1)) {
            self.replay[at] = kept;
        }
    }

    fn learn(&mut self, fresh: &[Kept]) -> Learned {
        let rows: Vec<Residual> = self
            .replay
            .iter()
            .chain(fresh)
            .map(|k| k.row.clone())
            .collect();
        let freedom = if rows.len() < SLOPES_FROM {
            Freedom::Kinds
        } else {
            Freedom::Columns
        };
        let current = self.current();
        let Some(goal) = Correction::of(&self.fingerprint, &rows, freedom) else {
            return Learned::Refused;
        };
        let new: Vec<&Residual> = fresh.iter().map(|k| &k.row).collect();
        let before = error(&current, &new);
        for share in STEPS {
            let mut step = current.towards(&goal, share);
            let after = error(&step, &new);
            if after <= before + NOISE && self.keeps_old(&current, &step, fresh) {
                step.half_width = current.half_width;
                self.remember(&step, fresh);
                self.tuner.correction = Some(step);
                // The watch is over predictions that are no longer made.
                self.drift = ConceptDrift::default();
                if matches!(self.doubt, Some(Doubt::Drift(_))) {
                    self.doubt = None;
                }
                return Learned::Updated { before, after };
            }
        }
        Learned::Refused
    }

    fn current(&self) -> Correction {
        let own = self.tuner.correction.as_ref();
        let own = own.filter(|c| c.fingerprint == self.fingerprint);
        own.cloned()
            .unwrap_or_else(|| Correction::none(&self.fingerprint, PREDICTORS))
    }

    /// Whether no task becomes worse than the bound allows: one that the new runs are of than it is with them, any other than
    /// it was when it was last learned, so that many small losses are not one large.
    fn keeps_old(&self, current: &Correction, step: &Correction, fresh: &[Kept]) -> bool {
        self.tasks(fresh).iter().all(|(task, rows)| {
            let is_new = fresh.iter().any(|f| f.task == *task);
            let learned = self.learned.get(*task).filter(|_| !is_new);
            let was = learned.copied().unwrap_or_else(|| error(current, rows));
            error(step, rows) <= was * (1.0 + FORGETTING) + NOISE
        })
    }

    /// Rows of every task, kept and new.
    fn tasks<'a>(&'a self, fresh: &'a [Kept]) -> BTreeMap<&'a str, Vec<&'a Residual>> {
        let mut tasks: BTreeMap<&str, Vec<&Residual>> = BTreeMap::new();
        for k in self.replay.iter().chain(fresh) {
            tasks.entry(&k.task).or_default().push(&k.row);
        }
        tasks
    }

    /// Remembers the errors of tasks that were just learned, and of those not remembered yet.
    fn remember(&mut self, correction: &Correction, fresh: &[Kept]) {
        let mut learned = std::mem::take(&mut self.learned);
        for (task, rows) in self.tasks(fresh) {
            if fresh.iter().any(|f| f.task == task) || !learned.contains_key(task) {
                learned.insert(task.to_owned(), error(correction, &rows));
            }
        }
        self.learned = learned;
    }
}

/// Mean absolute log error.
fn error(correction: &Correction, rows: &[&Residual]) -> f64 {
    let one = |r: &&Residual| (r.log_ratio - correction.log_ratio(&r.x, r.decode)).abs();
    rows.iter().map(one).sum::<f64>() / rows.len().max(1) as f64
}
