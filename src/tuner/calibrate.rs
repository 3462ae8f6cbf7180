//! First run on a machine: its peaks, a few short runs, and the model fitted to them.

use super::collect::{Progress, Subject, Sweep, Watcher, collect};
use super::learn::brick_tuner::BrickTuner;
use super::learn::{metrics, stats};
use super::measure::Patience;
use super::run::{Hardware, Origin, Run, Trial};
use crate::engine::knobs::Cost;
use crate::profiler::graph::fnv1a_64;
use crate::profiler::probe::Bandwidth;
use std::time::Duration;

/// Settings drawn at random for each model.
const MIXTURES: usize = 12;
/// A trial that is foretold to take longer for one repetition is left out: half a minute is for many of them, seconds.
const LONGEST: f64 = 0.15;
/// How many times as fast a context is read as tokens are generated, roughly.
const READING: f64 = 8.0;
/// Fewer runs are not split into those that are learned from and those that are held out.
const LEAST_RUNS: usize = 12;

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// Runs on this machine.
    pub runs: Vec<Run>,
    /// How the micro-benchmarks went.
    pub progress: Progress,
    /// What it brought on runs that were held out; `None` with too few.
    pub gain: Option<Gain>,
    /// The model fitted to all runs; `None` where the one before is as good.
    pub tuner: Option<BrickTuner>,
}

/// Errors on runs that the fit has not seen: median and mean of |predicted / measured - 1|.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gain {
    /// Runs learned from.
    pub learned: usize,
    /// Runs held out.
    pub held_out: usize,
    /// Median error before.
    pub median_before: f64,
    /// Median error after.
    pub median_after: f64,
    /// Mean error before.
    pub mean_before: f64,
    /// Mean error after.
    pub mean_after: f64,
}

/// Runs the micro-benchmarks over the models, `time` in all, shared evenly, and fits `before` to them.
///
/// # Errors
/// What `watcher` refuses, or a model that cannot be loaded.
pub fn calibrate(
    before: &BrickTuner,
    subjects: &mut [Subject],
    (hardware, bandwidth): (&Hardware, &[Bandwidth]),
    time: Duration,
    watcher: &mut dyn Watcher,
) -> Result<Calibration, String> {
    let share = time / u32::try_from(subjects.len()).unwrap_or(u32::MAX).max(1);
    let mut kept = Kept {
        before,
        runs: Vec::new(),
        watcher,
    };
    let mut all = Progress::default();
    for subject in subjects.chunks_mut(1) {
        let sweep = Sweep {
            hardware: hardware.clone(),
            bandwidth: bandwidth.to_vec(),
            origin: Origin::Calibrate,
            mixtures: MIXTURES,
            most_cost: Cost::Rebuild,
            seed: 0,
            patience: Patience {
                repetitions: 3,
                least: Duration::from_millis(10),
                most: Duration::from_millis(600),
            },
            limit: Some(share),
        };
        let done = collect(subject, &sweep, &mut kept)?;
        all.done += done.done;
        all.total += done.total;
        all.kept += done.kept;
        all.noisy += done.noisy;
        all.slow += done.slow;
        all.failed += done.failed;
        all.reason = done.reason.or(all.reason);
    }
    let runs = kept.runs;
    Ok(Calibration {
        gain: gain(before, &runs),
        tuner: before.transfer(&runs.iter().collect::<Vec<_>>()),
        runs,
        progress: all,
    })
}

/// Fits to half of the runs and looks at the others. Runs that differ in one setting only may fall into both halves: that is
/// what a session asks, whose own configuration has been measured.
pub fn gain(before: &BrickTuner, runs: &[Run]) -> Option<Gain> {
    if runs.len() < LEAST_RUNS {
        return None;
    }
    let (learned, held): (Vec<&Run>, Vec<&Run>) = runs.iter().partition(|r| is_learned(&r.trial));
    let after = before.transfer(&learned);
    let errors_before = errors(before, &held);
    let errors_after = errors(after.as_ref().unwrap_or(before), &held);
    Some(Gain {
        learned: learned.len(),
        held_out: held.len(),
        median_before: stats::quantile(&errors_before, 0.5)?,
        median_after: stats::quantile(&errors_after, 0.5)?,
        mean_before: mean(&errors_before),
        mean_after: mean(&errors_after),
    })
}

/// Whether a trial falls into the half that is learned from: a hash of it, mixed until every bit counts.
fn is_learned(trial: &Trial) -> bool {
    metrics::fold(fnv1a_64(trial.key().as_bytes()), 2) == 0
}

fn errors(tuner: &BrickTuner, runs: &[&Run]) -> Vec<f64> {
    runs.iter()
        .filter_map(|r| Some((tuner.rate(&r.trial)? / r.tok_s - 1.0).abs()))
        .collect()
}

fn mean(errors: &[f64]) -> f64 {
    errors.iter().sum::<f64>() / errors.len().max(1) as f64
}

/// Keeps the runs beside whoever watches. Nothing is known before: a calibration measures the machine as it is now.
struct Kept<'a> {
    before: &'a BrickTuner,
    runs: Vec<Run>,
    watcher: &'a mut dyn Watcher,
}

impl Watcher for Kept<'_> {
    fn knows(&mut self, key: &str) -> Result<bool, String> {
        Ok(self.runs.iter().any(|r| r.trial.key() == key))
    }

    fn is_too_slow(&self, trial: &Trial) -> bool {
        let t = &trial.test;
        let tokens = f64::from(t.prompt + t.generated) * f64::from(t.batch.max(1));
        let read = f64::from(t.depth) * f64::from(t.batch.max(1)) / READING;
        let rate = self.before.rate(trial);
        rate.is_some_and(|r| (tokens + read) / r > LONGEST)
    }

    fn keep(&mut self, run: &Run) -> Result<(), String> {
        self.runs.push(run.clone());
        self.watcher.keep(run)
    }

    fn progress(&mut self, progress: &Progress) {
        self.watcher.progress(progress);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::knobs::Setting;
    use crate::tuner::run::{Subject, Test};

    #[test]
    fn settings_that_differ_in_a_digit_fall_into_both_halves() {
        let learned = |depth: u32, threads: &str| {
            let subject = Subject {
                settings: vec![Setting::new("threads", threads)],
                ..Subject::default()
            };
            is_learned(&subject.trial(Test {
                prompt: 0,
                generated: 16,
                depth,
                batch: 1,
            }))
        };
        let alike = (0..200)
            .filter(|d| learned(*d, "1") == learned(*d, "2"))
            .count();
        assert!((60..140).contains(&alike), "{alike}");
        let half = (0..200).filter(|d| learned(*d, "1")).count();
        assert!((60..140).contains(&half), "{half}");
    }
}
