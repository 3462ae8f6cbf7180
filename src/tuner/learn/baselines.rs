//! What a model must beat: a rule of thumb, the roofline, and the nearest runs.

use super::split::{By, groups};
use super::stats::{conformal, weighted_median};
use super::throughput::TrainError;
use crate::tuner::features::{PREDICTORS, TunerFeatures};
use crate::tuner::recommendation::Interval;
use crate::tuner::roofline;
use crate::tuner::run::{Run, Trial};

/// The share of the roofline that generation and prompts reach by rule of thumb: of the bandwidth most, of the peak of
/// narrow arithmetic little.
const RULE: [f64; 2] = [0.6, 0.15];

/// Runs that an answer is made of.
const NEIGHBOURS: usize = 5;

/// Runs that are kept: an answer looks at each, and all must fit a model's file.
const MOST_ROWS: usize = 8192;

/// A formula with the width of its intervals.
#[derive(Debug, Clone, PartialEq)]
pub struct Formula {
    /// Shares of the roofline of generation and prompts.
    shares: [f64; 2],
    width: f64,
}

impl Formula {
    /// The roofline itself, once its share of generation and prompts is fitted to the runs.
    pub fn roofline(runs: &[&Run]) -> Self {
        let share = |decode: bool| {
            let of_test = runs.iter().filter(|r| r.trial.test.is_decode() == decode);
            let shares: Vec<(f64, f64)> =
                of_test.map(|r| (r.tok_s / bound(&r.trial), 1.0)).collect();
            weighted_median(&shares).unwrap_or(RULE[usize::from(!decode)])
        };
        Self::with([share(true), share(false)], runs)
    }

    /// The rule of thumb; runs only tell how wide its intervals are.
    pub fn heuristic(runs: &[&Run]) -> Self {
        Self::with(RULE, runs)
    }

    /// Shares of the roofline of generation and prompts, and the width of the intervals, in logarithms.
    pub fn parts(&self) -> [f64; 3] {
        [self.shares[0], self.shares[1], self.width]
    }

    /// A formula from the numbers of a file; `None` where they are no shares or no width.
    pub fn from_parts(parts: [f64; 3]) -> Option<Self> {
        let [decode, prompt, width] = parts;
        let whole = parts.iter().all(|v| v.is_finite() && *v >= 0.0);
        whole.then_some(Self {
            shares: [decode, prompt],
            width: width.min(6.0),
        })
    }

    fn with(shares: [f64; 2], runs: &[&Run]) -> Self {
        let mut formula = Self { shares, width: 0.0 };
        let error = |r: &&Run| (formula.mid(&r.trial) / r.tok_s).ln().abs();
        let errors: Vec<f64> = runs.iter().map(error).collect();
        formula.width = conformal(&errors, 0.1).min(6.0);
        formula
    }

    fn mid(&self, trial: &Trial) -> f64 {
        self.shares[usize::from(!trial.test.is_decode())] * bound(trial)
    }

    /// The rate of a trial.
    pub fn predict(&self, trial: &Trial) -> Interval {
        around(self.mid(trial), self.width)
    }
}

/// The rate by rule of thumb.
pub(super) fn rule(trial: &Trial) -> f64 {
    RULE[usize::from(!trial.test.is_decode())] * bound(trial)
}

/// The roofline, with what is usual for what is not known.
fn bound(trial: &Trial) -> f64 {
    roofline::bound(trial, &roofline::machine(&trial.hardware))
}

fn around(mid: f64, width: f64) -> Interval {
    Interval {
        low: mid / width.exp(),
        mid,
        high: mid * width.exp(),
    }
}

/// The nearest runs: their shares of the roofline, the nearer the more.
#[derive(Debug, Clone, PartialEq)]
pub struct Nearest {
    rows: Vec<[f32; PREDICTORS]>,
    /// Logarithm of the share of the roofline, by row.
    shares: Vec<f64>,
    /// Of every column, one over its standard deviation.
    scale: [f32; PREDICTORS],
    width: f64,
}

impl Nearest {
    /// Keeps the runs, of very many an even part. Intervals are made of the answers for runs by runs of other groups.
    ///
    /// # Errors
    /// No runs.
    pub fn train(runs: &[&Run]) -> Result<Self, TrainError> {
        if runs.is_empty() {
            return Err(TrainError::TooFew(0));
        }
        let kept = runs.len().min(MOST_ROWS);
        let runs: Vec<&Run> = (0..kept).map(|i| runs[i * runs.len() / kept]).collect();
        let rows: Vec<[f32; PREDICTORS]> = runs.iter().map(|r| row(&r.trial)).collect();
        let share = |r: &&Run| (r.tok_s / bound(&r.trial)).max(1e-12).ln();
        let mut nearest = Self {
            scale: scale(&rows),
            shares: runs.iter().map(share).collect(),
            rows,
            width: 6.0,
        };
        let groups = groups(&runs, By::New);
        // Some hundred are enough to know how wide nine of ten are.
        let step = (runs.len() / 300).max(1);
        let errors: Vec<f64> = (0..runs.len())
            .step_by(step)
            .map(|i| {
                let others = |j: usize| groups[j] != groups[i];
                (nearest.answer(&nearest.rows[i], others) - nearest.shares[i]).abs()
            })
            .collect();
        nearest.width = conformal(&errors, 0.1).min(6.0);
        Ok(nearest)
    }

    /// The rate of a trial.
    pub fn predict(&self, trial: &Trial) -> Interval {
        let share = self.answer(&row(trial), |_| true).exp();
        around(share * bound(trial), self.width)
    }

    /// Rows one after another, the logarithms of their shares of the roofline, the scale of the columns, and the width of the
    /// intervals, in logarithms.
    pub fn parts(&self) -> (Vec<f32>, &[f64], &[f32; PREDICTORS], f64) {
        (self.rows.concat(), &self.shares, &self.scale, self.width)
    }

    /// Runs from the numbers of a file; `None` where they do not fit together or are no numbers.
    pub fn from_parts(rows: &[f32], shares: Vec<f64>, scale: &[f32], width: f64) -> Option<Self> {
        let (rows, rest) = rows.as_chunks::<PREDICTORS>();
        let whole = rest.is_empty() && !rows.is_empty() && rows.len() == shares.len();
        let finite = rows.iter().flatten().chain(scale).all(|v| v.is_finite())
            && shares.iter().all(|s| s.is_finite())
            && (0.0..=6.0).contains(&width);
        (whole && finite).then_some(())?;
        Some(Self {
            rows: rows.to_vec(),
            shares,
            scale: scale.try_into().ok()?,
            width,
        })
    }

    fn answer(&self, x: &[f32; PREDICTORS], allowed: impl Fn(usize) -> bool) -> f64 {
        let mut near: Vec<(f32, usize)> = Vec::with_capacity(NEIGHBOURS + 1);
        for (i, row) in self.rows.iter().enumerate().filter(|(i, _)| allowed(*i)) {
            let squares = row.iter().zip(x).zip(&self.scale);
            let distance: f32 = squares.map(|((a, b), s)| ((a - b) * s).powi(2)).sum();
            if near.len() < NEIGHBOURS || near.last().is_some_and(|far| distance < far.0) {
                let at = near.partition_point(|n| n.0 <= distance);
                near.insert(at, (distance, i));
                near.truncate(NEIGHBOURS);
            }
        }
        let weight = |distance: f32| 1.0 / (0.1 + f64::from(distance).sqrt());
        let total: f64 = near.iter().map(|(d, _)| weight(*d)).sum();
        let sum: f64 = near.iter().map(|(d, i)| weight(*d) * self.shares[*i]).sum();
        if total > 0.0 { sum / total } else { 0.0 }
    }
}

fn row(trial: &Trial) -> [f32; PREDICTORS] {
    let mut row = [0.0; PREDICTORS];
    row.copy_from_slice(TunerFeatures::of(trial, None).predictors());
    row
}

/// Columns of one value say nothing and weigh nothing; rare ones no more than ten times the commonest.
fn scale(rows: &[[f32; PREDICTORS]]) -> [f32; PREDICTORS] {
    let n = rows.len() as f32;
    let mut scale = [0.0; PREDICTORS];
    for (c, s) in scale.iter_mut().enumerate() {
        let mean = rows.iter().map(|r| r[c]).sum::<f32>() / n;
        let variance = rows.iter().map(|r| (r[c] - mean).powi(2)).sum::<f32>() / n;
        if variance > 0.0 {
            *s = 1.0 / variance.sqrt().max(0.05);
        }
    }
    scale
}
