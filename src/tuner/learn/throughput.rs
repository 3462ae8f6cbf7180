//! How fast a trial will be: the roofline, corrected by what trees learned of the runs.
//!
//! The logarithm of the rate is a line over the logarithm of the roofline, one line for generation and one for prompts, plus
//! the trees' answer. The lines rise and the trees keep to their constraints, so that a predicted rate never falls with more
//! bandwidth, more sequences or fewer bytes. Intervals are conformal: while training, every run is predicted by trees that
//! saw nothing of its machine (or, on the commonest machine, of its model), and the errors of these predictions say how wide
//! an interval must be to hold nine of ten. A second set of trees learns where the errors are large.

use super::baselines::rule;
use super::gbt::{Gbt, GbtError, GbtOptions, Loss, Rows};
use super::split::{By, Fold, k_fold};
use super::stats::{conformal, weighted_median};
use super::tree::{TreeArrays, Trees};
use crate::tuner::features::{PREDICTORS, TunerFeatures, directions, names};
use crate::tuner::recommendation::Interval;
use crate::tuner::roofline;
use crate::tuner::run::{Run, Trial};
use std::collections::BTreeMap;

/// Share of the rates that may lie outside an interval.
const MISS: f64 = 0.1;
/// Smallest error, in logarithms, that the second trees may expect: no measurement repeats better than this.
const LEAST_ERROR: f64 = 0.02;
/// Rows from which a line is fitted; fewer have the roofline's slope.
const LINE_ROWS: usize = 20;

/// How the regressor learns.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainOptions {
    /// Seed of every draw.
    pub seed: u64,
    /// How far a machine with many runs is weighed down: its rows weigh `n^-balance`, so that at 0 rows count alike and at
    /// 1 machines do.
    pub balance: f64,
    /// Share of a fitted line's slope that is kept; the trees make up the rest.
    pub slope: f64,
    /// Folds of the predictions that intervals are made of.
    pub folds: usize,
    /// How the trees grow; constraints and seed are set here.
    pub gbt: GbtOptions,
    /// Predictors that trees may not see, by name: for ablations.
    pub hidden: Vec<String>,
}

impl Default for TrainOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            balance: 0.1,
            slope: 0.7,
            folds: 5,
            gbt: GbtOptions {
                loss: Loss::Huber(0.5),
                ..GbtOptions::default()
            },
            hidden: Vec::new(),
        }
    }
}

/// Why nothing could be learned.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TrainError {
    /// Too few runs, or no rate among them.
    #[error("{0} runs with a rate are too few to learn from; {LEAST_RUNS} are the least")]
    TooFew(usize),
    /// Runs that are all of one trial, or too few to test with some of them.
    #[error(
        "of {0} runs none can be held out and leave {LEAST_RUNS} of other trials to learn from; collect more with cbtop tune collect"
    )]
    NotHeldOut(usize),
    /// The trees' reason.
    #[error(transparent)]
    Trees(#[from] GbtError),
}

/// Runs that are the least to learn from.
pub const LEAST_RUNS: usize = 20;

/// A rate foretold.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The rate, with the interval that holds it nine times out of ten, tokens a second.
    pub tok_s: Interval,
    /// The predictors that the trees rest on most.
    pub top_features: [&'static str; 5],
}

/// `log(rate) = offset + slope * log(roofline)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Offset.
    pub offset: f64,
    /// Slope, above 0 and at most 1.
    pub slope: f64,
}

/// Predicts rates.
#[derive(Debug, Clone, PartialEq)]
pub struct ThroughputRegressor {
    /// Of generation and of prompts; a kind without runs has none, and what trees learned of the other is not about it.
    lines: [Option<Line>; 2],
    rate: Gbt,
    error: Gbt,
    /// What expected errors are multiplied with to hold nine of ten: where bandwidth is known, and where not.
    widths: [f64; 2],
    top: [&'static str; 5],
}

/// Every number of a [`ThroughputRegressor`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RegressorParts {
    /// Offset and slope for generation, then for prompts; a slope of 0 is no line.
    pub lines: [f64; 4],
    /// Answer without trees of the rate's and of the error's trees.
    pub bases: [f64; 2],
    /// Widths with the bandwidth known and not.
    pub widths: [f64; 2],
    /// Trees of the rate.
    pub rate: TreeArrays,
    /// Importances of its columns.
    pub rate_gain: Vec<f64>,
    /// Trees of the error.
    pub error: TreeArrays,
    /// Importances of its columns.
    pub error_gain: Vec<f64>,
}

/// A row to learn from.
struct Row {
    x: TunerFeatures,
    decode: bool,
    known: bool,
    log_bound: f64,
    log_rule: f64,
    log_rate: f64,
    weight: f64,
}

impl ThroughputRegressor {
    /// Learns from runs; those without a positive rate are passed over.
    ///
    /// # Errors
    /// Fewer than [`LEAST_RUNS`].
    pub fn train(runs: &[&Run], options: &TrainOptions) -> Result<Self, TrainError> {
        let usable = |r: &&&Run| r.tok_s.is_finite() && r.tok_s > 0.0;
        let runs: Vec<&Run> = runs.iter().filter(usable).copied().collect();
        if runs.len() < LEAST_RUNS {
            return Err(TrainError::TooFew(runs.len()));
        }
        let rows = rows(&runs, options);
        let all: Vec<usize> = (0..rows.len()).collect();
        let (lines, rate) = fit(&rows, &all, options)?;
        let folds = k_fold(&runs, By::New, options.folds, options.seed);
        let errors = held_out_errors(&rows, &folds, options)?;
        let error = fit_errors(&rows, &errors, options)?;
        let widths = widths(&rows, &folds, &errors, options)?;
        let top = top(rate.importances());
        Ok(Self {
            lines,
            rate,
            error,
            widths,
            top,
        })
    }

    /// The rate of a trial.
    pub fn predict(&self, trial: &Trial) -> Prediction {
        let x = TunerFeatures::of(trial, None);
        let line = self.lines[usize::from(!trial.test.is_decode())];
        let log = line.map_or_else(
            || rule(trial).ln(),
            |l| l.at(log_bound(trial)) + self.rate.predict(x.predictors()),
        );
        let known = trial.hardware.mem_gbps.is_some();
        let width = self.widths[usize::from(!known)] * expected(&self.error, &x);
        let mid = log.clamp(-20.0, 40.0).exp();
        // Beyond this an interval says nothing more.
        let factor = width.clamp(0.0, 6.0).exp();
        Prediction {
            tok_s: Interval {
                low: mid / factor,
                mid,
                high: mid * factor,
            },
            top_features: self.top,
        }
    }

    /// Predictors with their share of what the trees gained, which sum to 1, the largest first.
    pub fn importances(&self) -> Vec<(&'static str, f64)> {
        let gain = self.rate.importances().iter().copied();
        let mut all: Vec<_> = names().iter().copied().zip(gain).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all
    }

    /// Every number, to be saved.
    pub fn parts(&self) -> RegressorParts {
        let none = Line {
            offset: 0.0,
            slope: 0.0,
        };
        let [d, p] = self.lines.map(|l| l.unwrap_or(none));
        RegressorParts {
            lines: [d.offset, d.slope, p.offset, p.slope],
            bases: [self.rate.base(), self.error.base()],
            widths: self.widths,
            rate: self.rate.trees().arrays(),
            rate_gain: self.rate.importances().to_vec(),
            error: self.error.trees().arrays(),
            error_gain: self.error.importances().to_vec(),
        }
    }

    /// A regressor from the numbers of a file.
    ///
    /// # Errors
    /// Trees that are none or were made for other columns, figures that are no numbers.
    pub fn from_parts(parts: RegressorParts) -> Result<Self, TrainError> {
        let gbt = |base, trees, gain: Vec<f64>| {
            if gain.len() != PREDICTORS {
                return Err(GbtError::Shape);
            }
            let trees = Trees::from_arrays(trees, gain.len())?;
            Gbt::from_parts(base, trees, gain)
        };
        let [d_offset, d_slope, p_offset, p_slope] = parts.lines;
        let finite = parts.lines.iter().all(|v| v.is_finite());
        if !finite || parts.widths.iter().any(|w| w.is_nan() || *w < 0.0) {
            return Err(GbtError::NotFinite.into());
        }
        let rate = gbt(parts.bases[0], parts.rate, parts.rate_gain)?;
        let error = gbt(parts.bases[1], parts.error, parts.error_gain)?;
        let line = |offset, slope| (slope != 0.0).then_some(Line { offset, slope });
        let top = top(rate.importances());
        Ok(Self {
            lines: [line(d_offset, d_slope), line(p_offset, p_slope)],
            rate,
            error,
            widths: parts.widths,
            top,
        })
    }
}

impl Line {
    fn at(self, log_bound: f64) -> f64 {
        self.offset + self.slope * log_bound
    }

    /// Least squares over (log bound, log rate, weight), the slope kept above 0 and at most 1 and then scaled by `keep`.
    fn fit(points: &[(f64, f64, f64)], keep: f64) -> Self {
        let total: f64 = points.iter().map(|p| p.2).sum();
        let mean = |of: fn(&(f64, f64, f64)) -> f64| {
            points.iter().map(|p| of(p) * p.2).sum::<f64>() / total
        };
        let (x, y) = (mean(|p| p.0), mean(|p| p.1));
        let xx: f64 = points.iter().map(|p| (p.0 - x).powi(2) * p.2).sum();
        let xy: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y) * p.2).sum();
        let few = points.len() < LINE_ROWS || xx <= 1e-9;
        let slope = if few { 1.0 } else { (xy / xx).clamp(0.05, 1.0) };
        let slope = slope * keep.clamp(0.0, 1.0);
        let offsets: Vec<(f64, f64)> = points.iter().map(|p| (p.1 - slope * p.0, p.2)).collect();
        Self {
            offset: weighted_median(&offsets).unwrap_or(0.0),
            slope,
        }
    }
}

/// The roofline of one sequence: what more sequences bring is left to the trees, since the line's slope for other machines is
/// not that of a batch.
fn log_bound(trial: &Trial) -> f64 {
    let machine = roofline::machine(&trial.hardware);
    roofline::bound_of_one(trial, &machine).ln()
}

fn rows(runs: &[&Run], options: &TrainOptions) -> Vec<Row> {
    let mut of_machine: BTreeMap<&str, f64> = BTreeMap::new();
    for run in runs {
        *of_machine
            .entry(&run.trial.hardware.fingerprint)
            .or_default() += 1.0;
    }
    let weight = |run: &Run| {
        let n = of_machine.get(run.trial.hardware.fingerprint.as_str());
        n.map_or(1.0, |n| n.powf(-options.balance))
    };
    let mean = runs.iter().map(|r| weight(r)).sum::<f64>() / runs.len() as f64;
    let row = |run: &&Run| Row {
        x: TunerFeatures::of(&run.trial, None),
        decode: run.trial.test.is_decode(),
        known: run.trial.hardware.mem_gbps.is_some(),
        log_bound: log_bound(&run.trial),
        log_rule: rule(&run.trial).ln(),
        log_rate: run.tok_s.ln(),
        weight: weight(run) / mean,
    };
    runs.iter().map(row).collect()
}

/// The lines and trees of some of the rows.
fn fit(
    rows: &[Row],
    at: &[usize],
    options: &TrainOptions,
) -> Result<([Option<Line>; 2], Gbt), TrainError> {
    let line = |decode: bool| {
        let of_test = at.iter().map(|&i| &rows[i]).filter(|r| r.decode == decode);
        let points: Vec<_> = of_test
            .map(|r| (r.log_bound, r.log_rate, r.weight))
            .collect();
        (!points.is_empty()).then(|| Line::fit(&points, options.slope))
    };
    let lines = [line(true), line(false)];
    let gbt = GbtOptions {
        directions: directions().to_vec(),
        seed: options.seed,
        ..options.gbt.clone()
    };
    let residual = |r: &Row| {
        let line = lines[usize::from(!r.decode)];
        r.log_rate - line.map_or(r.log_rule, |l| l.at(r.log_bound))
    };
    let y: Vec<f64> = at.iter().map(|&i| residual(&rows[i])).collect();
    Ok((lines, train_on(rows, at, &y, &gbt, options)?))
}

fn train_on(
    rows: &[Row],
    at: &[usize],
    y: &[f64],
    gbt: &GbtOptions,
    options: &TrainOptions,
) -> Result<Gbt, GbtError> {
    let weight: Vec<f64> = at.iter().map(|&i| rows[i].weight).collect();
    let masked: Vec<Vec<f32>>;
    let x: Vec<&[f32]> = if options.hidden.is_empty() {
        at.iter().map(|&i| rows[i].x.predictors()).collect()
    } else {
        masked = at.iter().map(|&i| mask(&rows[i].x, options)).collect();
        masked.iter().map(Vec::as_slice).collect()
    };
    let rows = Rows {
        x: &x,
        y,
        weight: &weight,
    };
    Gbt::train(&rows, gbt)
}

/// A hidden predictor is the same in every row, so that no split is made on it.
fn mask(x: &TunerFeatures, options: &TrainOptions) -> Vec<f32> {
    let hidden = |name: &str| options.hidden.iter().any(|h| h == name);
    let values = x.predictors().iter().zip(names());
    values
        .map(|(v, name)| if hidden(name) { 0.0 } else { *v })
        .collect()
}

/// Of every row the logarithmic error of a prediction by rows of other groups.
fn held_out_errors(
    rows: &[Row],
    folds: &[Fold],
    options: &TrainOptions,
) -> Result<Vec<Option<f64>>, TrainError> {
    let mut errors = vec![None; rows.len()];
    for fold in folds {
        let (lines, rate) = fit(rows, &fold.train, options)?;
        for &i in &fold.test {
            let r = &rows[i];
            let log = lines[usize::from(!r.decode)].map_or(r.log_rule, |l| {
                l.at(r.log_bound) + rate.predict(r.x.predictors())
            });
            errors[i] = Some((log - r.log_rate).abs());
        }
    }
    Ok(errors)
}

/// Trees that expect the logarithm of the error.
fn fit_errors(
    rows: &[Row],
    errors: &[Option<f64>],
    options: &TrainOptions,
) -> Result<Gbt, TrainError> {
    let at: Vec<usize> = (0..rows.len()).filter(|&i| errors[i].is_some()).collect();
    fit_errors_of(rows, &at, errors, options)
}

fn fit_errors_of(
    rows: &[Row],
    at: &[usize],
    errors: &[Option<f64>],
    options: &TrainOptions,
) -> Result<Gbt, TrainError> {
    let known = at.iter().filter_map(|&i| errors[i].map(|e| (i, e)));
    let (at, y): (Vec<usize>, Vec<f64>) = known.map(|(i, e)| (i, e.max(LEAST_ERROR).ln())).unzip();
    if at.is_empty() {
        let trees = Trees::new(1);
        return Ok(Gbt::from_parts(0.0, trees, vec![0.0; PREDICTORS])?);
    }
    let gbt = GbtOptions {
        trees: 50,
        depth: 4,
        leaves: 10,
        min_weight: 8.0,
        directions: Vec::new(),
        seed: options.seed,
        loss: Loss::Squared,
        ..options.gbt.clone()
    };
    Ok(train_on(rows, &at, &y, &gbt, options)?)
}

fn expected(error: &Gbt, x: &TunerFeatures) -> f64 {
    error
        .predict(x.predictors())
        .clamp(LEAST_ERROR.ln(), 3.0)
        .exp()
}

/// Factors for the expected errors. What is expected of a row comes from trees of other folds: those that saw its error
/// would make it look expected.
fn widths(
    rows: &[Row],
    folds: &[Fold],
    errors: &[Option<f64>],
    options: &TrainOptions,
) -> Result<[f64; 2], TrainError> {
    let mut scores: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    for fold in folds {
        let trees = fit_errors_of(rows, &fold.train, errors, options)?;
        for &i in &fold.test {
            if let Some(error) = errors[i] {
                let score = error / expected(&trees, &rows[i].x);
                scores[usize::from(!rows[i].known)].push(score);
            }
        }
    }
    let both: Vec<f64> = scores.iter().flatten().copied().collect();
    let of = |scores: &[f64]| {
        let own = conformal(scores, MISS);
        if own.is_finite() {
            own
        } else {
            conformal(&both, MISS)
        }
    };
    // With too few runs for nine of ten, the interval is as wide as intervals get.
    Ok([of(&scores[0]), of(&scores[1])].map(|w| if w.is_finite() { w } else { 1e3 }))
}

fn top(gain: &[f64]) -> [&'static str; 5] {
    let mut all: Vec<(&'static str, f64)> =
        names().iter().copied().zip(gain.iter().copied()).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut top = [""; 5];
    top.iter_mut().zip(all).for_each(|(t, (name, _))| *t = name);
    top
}
