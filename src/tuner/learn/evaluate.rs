//! How well rates are foretold, of every method on the same held-out runs.

use super::baselines::{Formula, Nearest};
use super::pairs::ratio_errors;
use super::split::{By, Fold, by_time, k_fold};
use super::stats::{quantile, r2, spearman};
use super::throughput::{LEAST_RUNS, ThroughputRegressor, TrainError, TrainOptions};
use crate::tuner::recommendation::Interval;
use crate::tuner::run::{Run, Trial};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What predicts.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Trees over the roofline.
    GradientBoosting,
    /// The nearest runs.
    Nearest,
    /// The roofline, with the share of it that is usual in the runs.
    Roofline,
    /// The roofline, with a share by rule of thumb.
    Heuristic,
}

impl Method {
    /// All of them, the one with the most to learn first.
    pub const ALL: [Self; 4] = [
        Self::GradientBoosting,
        Self::Nearest,
        Self::Roofline,
        Self::Heuristic,
    ];

    /// Its name, as in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::GradientBoosting => "gradient boosting",
            Self::Nearest => "k nearest runs",
            Self::Roofline => "roofline",
            Self::Heuristic => "rule of thumb",
        }
    }

    /// Learns from runs.
    ///
    /// # Errors
    /// Too few of them.
    pub fn train(self, runs: &[&Run], options: &TrainOptions) -> Result<Fitted, TrainError> {
        Ok(match self {
            Self::GradientBoosting => {
                Fitted::GradientBoosting(Box::new(ThroughputRegressor::train(runs, options)?))
            }
            Self::Nearest => Fitted::Nearest(Box::new(Nearest::train(runs)?)),
            Self::Roofline => Fitted::Formula(Formula::roofline(runs)),
            Self::Heuristic => Fitted::Formula(Formula::heuristic(runs)),
        })
    }
}

/// A method that has learned.
#[derive(Debug, Clone, PartialEq)]
pub enum Fitted {
    /// Trees over the roofline.
    GradientBoosting(Box<ThroughputRegressor>),
    /// The nearest runs.
    Nearest(Box<Nearest>),
    /// A share of the roofline.
    Formula(Formula),
}

impl Fitted {
    /// The rate of a trial.
    pub fn predict(&self, trial: &Trial) -> Interval {
        match self {
            Self::GradientBoosting(m) => m.predict(trial).tok_s,
            Self::Nearest(m) => m.predict(trial),
            Self::Formula(m) => m.predict(trial),
        }
    }
}

/// A prediction with what came out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Place of the run.
    pub run: usize,
    /// The prediction, tokens a second.
    pub predicted: Interval,
    /// The measurement, tokens a second.
    pub actual: f64,
}

impl Outcome {
    /// Error as a share of the measurement.
    pub fn error(&self) -> f64 {
        (self.predicted.mid - self.actual).abs() / self.actual
    }
}

/// How well a method did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Score {
    /// Runs that were predicted.
    pub runs: usize,
    /// Mean error, a share of the measurement.
    pub mape: f64,
    /// Median of the errors.
    pub median_error: f64,
    /// Share of the variance of rates that is explained; `None` where they do not vary.
    pub r2: Option<f64>,
    /// The same of the rates' logarithms, in which a slow machine counts as much as a fast one.
    pub r2_log: Option<f64>,
    /// Rank correlation of the intervals' widths with the errors' sizes (both logarithmic): whether it knows what it does
    /// not know.
    pub confidence: Option<f64>,
    /// Share of the measurements that their intervals hold; 0.9 is wanted.
    pub coverage: f64,
    /// Median of the intervals' upper by lower end.
    pub width: f64,
    /// Share of the predictions that are more than twice the measurement.
    pub over_2x: f64,
    /// Of the folds' mean errors, the standard deviation by the mean; `None` with one fold.
    pub fold_cv: Option<f64>,
}

/// The score of a method on one kind of split.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MethodScore {
    /// The method.
    pub method: Method,
    /// Its score on all held-out runs.
    pub score: Score,
    /// Nine of ten ratios of runs that differ in a knob alone are predicted within this much, in logarithms, by knob.
    #[serde(default)]
    pub ratio_errors: BTreeMap<String, f64>,
}

/// All methods on one kind of split.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SplitScores {
    /// What was held out, in words.
    pub held_out: String,
    /// Folds.
    pub folds: usize,
    /// Scores, in the order of [`Method::ALL`].
    pub methods: Vec<MethodScore>,
    /// The method with the smallest mean error of logarithms, which is used.
    pub best: Method,
}

/// All methods on all kinds of splits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evaluation {
    /// Runs.
    pub runs: usize,
    /// Machines among them.
    pub machines: usize,
    /// Models by name.
    pub models: usize,
    /// The splits.
    pub splits: Vec<SplitScores>,
    /// What is to be used: the best on the split that decided.
    pub chosen: Method,
    /// What was held out on that split: machines, or models of the commonest one, where enough runs could be tested so; trials
    /// otherwise.
    pub decided_by: String,
}

/// Predicts the tests of every fold with what was learned from the rest.
///
/// # Errors
/// A part with too few runs to learn from.
pub fn outcomes(
    runs: &[&Run],
    folds: &[Fold],
    method: Method,
    options: &TrainOptions,
) -> Result<Vec<Vec<Outcome>>, TrainError> {
    let of_fold = |fold: &Fold| -> Result<Vec<Outcome>, TrainError> {
        let (train, _) = fold.parts(runs);
        let model = method.train(&train, options)?;
        let outcome = |&i: &usize| Outcome {
            run: i,
            predicted: model.predict(&runs[i].trial),
            actual: runs[i].tok_s,
        };
        Ok(fold.test.iter().map(outcome).collect())
    };
    // A fold needs nothing of another: each has a thread.
    std::thread::scope(|scope| {
        let running: Vec<_> = folds
            .iter()
            .map(|fold| scope.spawn(|| of_fold(fold)))
            .collect();
        let joined = running.into_iter().map(|r| r.join());
        joined
            .map(|r| r.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// The score of predictions, by fold. `None` without any.
pub fn score(folds: &[Vec<Outcome>]) -> Option<Score> {
    let all: Vec<Outcome> = folds.iter().flatten().copied().collect();
    let errors: Vec<f64> = all.iter().map(Outcome::error).collect();
    let log = |v: f64| v.max(1e-9).ln();
    let actual: Vec<f64> = all.iter().map(|o| o.actual).collect();
    let mids: Vec<f64> = all.iter().map(|o| o.predicted.mid).collect();
    let logs = |v: &[f64]| -> Vec<f64> { v.iter().map(|v| log(*v)).collect() };
    let widths: Vec<f64> = all
        .iter()
        .map(|o| log(o.predicted.high) - log(o.predicted.low))
        .collect();
    let log_errors: Vec<f64> = all.iter().map(log_error).collect();
    let share = |of: &dyn Fn(&Outcome) -> bool| {
        all.iter().filter(|o| of(o)).count() as f64 / all.len() as f64
    };
    Some(Score {
        runs: all.len(),
        mape: mean(&errors)?,
        median_error: quantile(&errors, 0.5)?,
        r2: r2(&actual, &mids),
        r2_log: r2(&logs(&actual), &logs(&mids)),
        confidence: spearman(&widths, &log_errors),
        coverage: share(&|o| o.predicted.low <= o.actual && o.actual <= o.predicted.high),
        width: quantile(&widths, 0.5)?.exp(),
        over_2x: share(&|o| o.predicted.mid > 2.0 * o.actual),
        fold_cv: fold_cv(folds),
    })
}

fn log_error(o: &Outcome) -> f64 {
    (o.predicted.mid.max(1e-9) / o.actual.max(1e-9)).ln().abs()
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn fold_cv(folds: &[Vec<Outcome>]) -> Option<f64> {
    let of_fold = |f: &Vec<Outcome>| mean(&f.iter().map(Outcome::error).collect::<Vec<_>>());
    let means: Vec<f64> = folds.iter().filter_map(of_fold).collect();
    let middle = mean(&means).filter(|m| means.len() > 1 && *m > 0.0)?;
    let squares = means.iter().map(|m| (m - middle).powi(2)).sum::<f64>();
    Some((squares / (means.len() - 1) as f64).sqrt() / middle)
}

/// Scores of all methods on the same folds, but for those that leave too few runs to learn from. `None` without anything to
/// test.
///
/// # Errors
/// Rows that no trees can be grown from.
pub fn compare(
    runs: &[&Run],
    held_out: &str,
    folds: &[Fold],
    options: &TrainOptions,
) -> Result<Option<SplitScores>, TrainError> {
    let enough = |f: &&Fold| f.train.len() >= LEAST_RUNS;
    let folds: Vec<Fold> = folds.iter().filter(enough).cloned().collect();
    let mut methods = Vec::new();
    let mut best: Option<(f64, Method)> = None;
    for method in Method::ALL {
        let outcomes = outcomes(runs, &folds, method, options)?;
        let errors: Vec<f64> = outcomes.iter().flatten().map(log_error).collect();
        let (Some(score), Some(error)) = (score(&outcomes), mean(&errors)) else {
            return Ok(None);
        };
        if best.is_none_or(|b| error < b.0) {
            best = Some((error, method));
        }
        methods.push(MethodScore {
            method,
            score,
            ratio_errors: ratio_errors(runs, &outcomes),
        });
    }
    Ok(best.map(|(_, best)| SplitScores {
        held_out: held_out.into(),
        folds: folds.len(),
        methods,
        best,
    }))
}

/// Evaluates all methods on every kind of split, five folds each, and on the newest fifth.
///
/// # Errors
/// No runs that can be held out and leave enough to learn from.
pub fn evaluate(runs: &[&Run], options: &TrainOptions) -> Result<Evaluation, TrainError> {
    let usable = |r: &&&Run| r.tok_s.is_finite() && r.tok_s > 0.0;
    let runs: Vec<&Run> = runs.iter().filter(usable).copied().collect();
    let mut splits = Vec::new();
    for by in By::ALL {
        let folds = k_fold(&runs, by, 5, options.seed);
        splits.extend(compare(&runs, by.name(), &folds, options)?);
    }
    let newest = by_time(&runs, 0.2);
    splits.extend(compare(&runs, "the newest fifth", &[newest], options)?);
    let Some(decides) = deciding(&splits) else {
        return Err(if runs.len() < LEAST_RUNS {
            TrainError::TooFew(runs.len())
        } else {
            TrainError::NotHeldOut(runs.len())
        });
    };
    let (chosen, decided_by) = (decides.best, decides.held_out.clone());
    let distinct = |of: fn(&Run) -> &str| {
        let names: std::collections::BTreeSet<&str> = runs.iter().map(|r| of(r)).collect();
        names.len()
    };
    Ok(Evaluation {
        runs: runs.len(),
        machines: distinct(|r| &r.trial.hardware.fingerprint),
        models: distinct(|r| &r.trial.model.name),
        splits,
        chosen,
        decided_by,
    })
}

/// The split whose best method is used: what is furthest from what was learned, unless too few runs could be tested so.
fn deciding(splits: &[SplitScores]) -> Option<&SplitScores> {
    let tested = |s: &SplitScores| s.methods.first().map_or(0, |m| m.score.runs);
    let of = |by: By| splits.iter().find(|s| s.held_out == by.name());
    of(By::New)
        .filter(|s| tested(s) >= LEAST_RUNS)
        .or_else(|| of(By::Trial))
        .or_else(|| splits.iter().max_by_key(|s| tested(s)))
}

impl Evaluation {
    /// What the chosen method reached on the split that decided.
    pub fn deciding(&self) -> Option<&MethodScore> {
        self.of_chosen(&self.decided_by)
    }

    /// The chosen method's score where this was held out.
    pub fn score(&self, held_out: &str) -> Option<&Score> {
        self.of_chosen(held_out).map(|m| &m.score)
    }

    fn of_chosen(&self, held_out: &str) -> Option<&MethodScore> {
        let split = self.splits.iter().find(|s| s.held_out == held_out)?;
        split.methods.iter().find(|m| m.method == self.chosen)
    }
}
