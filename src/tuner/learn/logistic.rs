//! What limits a token: a multinomial logistic regression by linfa, whose coefficients say why.
//!
//! Labels are measured: the largest of a run's [`TimeShares`], never a rule over the columns that are learned from.

use super::forest::{ClassifierError, Example, check};
use super::metrics::{self, Scored};
use crate::tuner::run::TimeShares;
use linfa::traits::Fit;
use linfa::{Dataset, ParamGuard};
use linfa_logistic::MultiLogisticRegression;
use ndarray::{Array1, Array2};

/// The classes, in the order of their numbers.
pub const CLASSES: [&str; 4] = ["memory", "compute", "launch", "attention"];
/// Weight of the penalty of large coefficients; columns are scaled to a standard deviation of 1.
const PENALTY: f64 = 1.0;
/// Iterations of the solver at most, unless others are asked for.
pub const ITERATIONS: u64 = 300;
/// A class's rows are repeated by how many times as many rows the commonest has, to this power. At 1 all classes count alike and
/// rare ones are said too often; at 0 they are found too seldom. This was best on held-out groups of the committed runs.
const BALANCE: f64 = 0.4;
/// And up to this many times.
const MOST_REPEATS: usize = 10;
/// Columns that vary less than this tell nothing.
const LEAST_DEVIATION: f64 = 1e-4;
/// Columns that vary less than this (they are from 0 to 1) are not blown up to the same scale as others: what all rows have
/// in common but for the noise of its measurement would decide about a row that has it otherwise.
const LEAST_SCALE: f64 = 0.1;
/// Folds of the cross-validation.
const FOLDS: u64 = 5;

/// The class of measured shares of time: the largest; `None` where most of the time is not known to be anything.
pub fn label(shares: &TimeShares) -> Option<usize> {
    let known = shares.of_classes();
    let sum: f64 = known.iter().sum();
    if !(sum.is_finite() && sum > shares.unknown) {
        return None;
    }
    let places = (0..known.len()).max_by(|a, b| known[*a].total_cmp(&known[*b]));
    places.filter(|at| known[*at] > 0.0)
}

/// The classifier. Classes without rows in training have a probability of 0.
#[derive(Debug, Clone, PartialEq)]
pub struct BottleneckModel {
    /// Classes it knows, as places in [`CLASSES`], ascending.
    pub(super) classes: Vec<u32>,
    /// Mean of each column over the rows of training.
    pub(super) mean: Vec<f32>,
    /// Coefficients of columns from which the mean is taken, a row a class; scaled back, so that nothing need be divided.
    pub(super) coefficients: Vec<f32>,
    /// Intercept of each class.
    pub(super) intercepts: Vec<f32>,
}

/// A classifier with what it said of rows of groups it had not seen.
#[derive(Debug, Clone)]
pub struct Fitted {
    /// The classifier of all rows.
    pub model: BottleneckModel,
    /// By row; rows whose other groups give no classifier are left out.
    pub held_out: Vec<Scored>,
}

impl BottleneckModel {
    /// Fits to rows whose classes are places in [`CLASSES`], and measures on held-out groups.
    ///
    /// # Errors
    /// Fewer than two classes, damaged rows, or a solver that gives up.
    pub fn train(rows: &[Example]) -> Result<Fitted, ClassifierError> {
        Self::train_in(rows, ITERATIONS)
    }

    /// As [`Self::train`], in at most so many iterations of the solver.
    ///
    /// # Errors
    /// As [`Self::train`].
    pub fn train_in(rows: &[Example], iterations: u64) -> Result<Fitted, ClassifierError> {
        check(rows, CLASSES.len())?;
        let model = fit(rows, iterations)?;
        let mut held_out = Vec::with_capacity(rows.len());
        for f in 0..FOLDS {
            let held = |r: &Example| metrics::fold(r.group, FOLDS) == f;
            let train: Vec<Example> = rows.iter().filter(|r| !held(r)).copied().collect();
            let fitted = check(&train, CLASSES.len()).and_then(|()| fit(&train, iterations));
            // A fold that nothing can be learned from says nothing about its rows.
            let Ok(partial) = fitted else { continue };
            let tested = rows.iter().enumerate().filter(|(_, r)| held(r));
            held_out.extend(tested.map(|(at, row)| Scored {
                row: at,
                class: row.class,
                probabilities: partial.probabilities(row.x).to_vec(),
            }));
        }
        held_out.sort_by_key(|s| s.row);
        Ok(Fitted { model, held_out })
    }

    /// Probability of each of [`CLASSES`]; `x` has the columns it was fitted to.
    pub fn probabilities(&self, x: &[f32]) -> [f32; CLASSES.len()] {
        let columns = self.mean.len();
        let mut scores = [f32::NEG_INFINITY; CLASSES.len()];
        let rows = self.coefficients.chunks_exact(columns.max(1));
        for ((class, row), intercept) in self.classes.iter().zip(rows).zip(&self.intercepts) {
            let products = row
                .iter()
                .zip(x.iter().zip(&self.mean))
                .map(|(c, (x, m))| c * (x - m));
            if let Some(score) = scores.get_mut(*class as usize) {
                *score = intercept + products.sum::<f32>();
            }
        }
        let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut out = scores.map(|s| (s - most).exp());
        let sum: f32 = out.iter().sum();
        out.iter_mut().for_each(|p| *p /= sum);
        out
    }

    /// Which columns speak most for a class, the strongest first, with what each adds to its score against the mean of the
    /// other classes. A column that stands at its mean adds nothing.
    pub fn reasons(&self, x: &[f32], class: usize, most: usize) -> Vec<Reason> {
        let columns = self.mean.len();
        let Some(own) = self.classes.iter().position(|c| *c as usize == class) else {
            return Vec::new();
        };
        let others = (self.classes.len().max(2) - 1) as f32;
        let reason = |column: usize| {
            let coefficient = |k: usize| self.coefficients[k * columns + column];
            let rest: f32 = (0..self.classes.len())
                .filter(|k| *k != own)
                .map(coefficient)
                .sum();
            let off = x.get(column).map_or(0.0, |x| x - self.mean[column]);
            Reason {
                column,
                high: off > 0.0,
                weight: (coefficient(own) - rest / others) * off,
            }
        };
        let mut reasons: Vec<Reason> = (0..columns)
            .map(reason)
            .filter(|r| r.weight > 0.0)
            .collect();
        reasons.sort_by(|a, b| b.weight.total_cmp(&a.weight));
        reasons.truncate(most);
        reasons
    }
}

/// A column that speaks for a class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reason {
    /// Its place.
    pub column: usize,
    /// Whether it stands above its mean.
    pub high: bool,
    /// What it adds to the logarithm of the odds.
    pub weight: f32,
}

/// Mean and standard deviation of each column.
fn moments(rows: &[Example]) -> (Vec<f64>, Vec<f64>) {
    let columns = rows.first().map_or(0, |r| r.x.len());
    let n = rows.len().max(1) as f64;
    let column = |at: usize| rows.iter().map(move |r| f64::from(r.x[at]));
    let mean: Vec<f64> = (0..columns).map(|c| column(c).sum::<f64>() / n).collect();
    let square = |c: usize| column(c).map(|v| (v - mean[c]).powi(2)).sum::<f64>() / n;
    let deviation = (0..columns).map(|c| square(c).sqrt()).collect();
    (mean, deviation)
}

/// Rows with those of rare classes repeated.
fn balanced<'a>(rows: &[Example<'a>]) -> Vec<Example<'a>> {
    let mut counts = [0usize; CLASSES.len()];
    rows.iter().for_each(|r| counts[r.class] += 1);
    let most = counts.iter().copied().max().unwrap_or(1);
    let repeats = |r: &Example| {
        let times = most as f64 / counts[r.class].max(1) as f64;
        (times.powf(BALANCE) as usize).clamp(1, MOST_REPEATS)
    };
    rows.iter()
        .flat_map(|r| std::iter::repeat_n(*r, repeats(r)))
        .collect()
}

/// linfa's fit of scaled rows.
fn fit_linfa(
    rows: &[Example],
    (mean, deviation): (&[f64], &[f64]),
    iterations: u64,
) -> Result<linfa_logistic::MultiFittedLogisticRegression<f64, u32>, ClassifierError> {
    let failed = |e: &dyn std::fmt::Display| ClassifierError::Training(e.to_string());
    let scaled = |(at, v): (usize, &f32)| {
        if deviation[at] < LEAST_DEVIATION {
            return 0.0;
        }
        (f64::from(*v) - mean[at]) / deviation[at]
    };
    let values: Vec<f64> = rows
        .iter()
        .flat_map(|r| r.x.iter().enumerate().map(scaled))
        .collect();
    let x = Array2::from_shape_vec((rows.len(), mean.len()), values).map_err(|e| failed(&e))?;
    let y: Array1<u32> = rows.iter().map(|r| r.class as u32).collect();
    let params = MultiLogisticRegression::default()
        .alpha(PENALTY)
        .max_iterations(iterations)
        .check()
        .map_err(|e| failed(&e))?;
    params.fit(&Dataset::new(x, y)).map_err(|e| failed(&e))
}

fn fit(rows: &[Example], iterations: u64) -> Result<BottleneckModel, ClassifierError> {
    let rows = balanced(rows);
    let (mean, mut deviation) = moments(&rows);
    let varies = |d: &&mut f64| **d >= LEAST_DEVIATION;
    deviation
        .iter_mut()
        .filter(varies)
        .for_each(|d| *d = d.max(LEAST_SCALE));
    let fitted = fit_linfa(&rows, (&mean, &deviation), iterations)?;
    let classes = fitted.classes().to_vec();
    let params = fitted.params();
    let unscaled = |k: usize, c: usize| {
        if deviation[c] < LEAST_DEVIATION {
            return 0.0;
        }
        (params[(c, k)] / deviation[c]) as f32
    };
    let places = (0..classes.len()).flat_map(|k| (0..mean.len()).map(move |c| (k, c)));
    let coefficients: Vec<f32> = places.map(|(k, c)| unscaled(k, c)).collect();
    let intercepts: Vec<f32> = fitted.intercept().iter().map(|v| *v as f32).collect();
    if !coefficients
        .iter()
        .chain(&intercepts)
        .all(|v| v.is_finite())
    {
        return Err(ClassifierError::Training(
            "coefficients are not finite".into(),
        ));
    }
    Ok(BottleneckModel {
        classes,
        mean: mean.iter().map(|v| *v as f32).collect(),
        coefficients,
        intercepts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    /// Rows whose class is the largest of three columns; the fourth is constant.
    fn rows(n: usize, seed: u64) -> Vec<(Vec<f32>, usize)> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut u = move || (rng.next_u32() >> 8) as f32 / (1 << 24) as f32;
        (0..n)
            .map(|_| {
                let x = vec![u(), u(), u(), 0.25];
                let class = (0..3).max_by(|a, b| x[*a].total_cmp(&x[*b])).unwrap_or(0);
                (x, class)
            })
            .collect()
    }

    fn examples(rows: &[(Vec<f32>, usize)]) -> Vec<Example<'_>> {
        let rows = rows.iter().enumerate();
        rows.map(|(at, (x, class))| Example {
            x,
            class: *class,
            group: at as u64,
        })
        .collect()
    }

    #[test]
    fn own_arithmetic_is_linfas() {
        let data = rows(300, 1);
        let rows = balanced(&examples(&data));
        let (mean, deviation) = moments(&rows);
        let linfa = fit_linfa(&rows, (&mean, &deviation), ITERATIONS).expect("fits");
        let model = fit(&examples(&data), ITERATIONS).expect("fits");
        let x = Array2::from_shape_fn((rows.len(), 4), |(i, j)| {
            if deviation[j] < LEAST_DEVIATION {
                return 0.0;
            }
            (f64::from(rows[i].x[j]) - mean[j]) / deviation[j]
        });
        let expected = linfa.predict_probabilities(&x);
        for (at, row) in rows.iter().enumerate() {
            let own = model.probabilities(row.x);
            for (k, class) in linfa.classes().iter().enumerate() {
                let (a, b) = (f64::from(own[*class as usize]), expected[(at, k)]);
                assert!((a - b).abs() < 1e-4, "{a} {b}");
            }
        }
    }

    #[test]
    fn f005_f006_f007_a_rule_is_learned_and_told() {
        let data = rows(500, 2);
        let fitted = BottleneckModel::train(&examples(&data)).expect("fits");
        let r = metrics::report(&fitted.held_out, CLASSES.len());
        assert!(r.classes[..3].iter().all(|c| c.f1() > 0.85), "{r:?}");
        assert_eq!(r.classes[3].count, 0);
        let reasons = fitted.model.reasons(&[0.9, 0.4, 0.4, 0.25], 0, 3);
        assert_eq!(
            (reasons[0].column, reasons[0].high),
            (0, true),
            "{reasons:?}"
        );
        assert!(reasons.iter().skip(1).all(|r| !r.high), "{reasons:?}");
        assert_eq!(fitted.model.reasons(&[0.5; 4], 3, 3), []);
    }

    #[test]
    fn labels_are_the_largest_measured_share() {
        let shares = |m, c, l, a, unknown| TimeShares {
            memory: m,
            compute: c,
            launch: l,
            attention: a,
            unknown,
        };
        assert_eq!(label(&shares(0.5, 0.3, 0.1, 0.1, 0.0)), Some(0));
        assert_eq!(label(&shares(0.1, 0.1, 0.1, 0.5, 0.2)), Some(3));
        assert_eq!(label(&shares(0.1, 0.1, 0.1, 0.1, 0.6)), None);
        assert_eq!(label(&TimeShares::default()), None);
        assert_eq!(label(&shares(f64::NAN, 0.1, 0.1, 0.1, 0.0)), None);
    }

    #[test]
    fn rows_of_folds_without_a_classifier_are_not_scored() {
        let data = rows(100, 3);
        let mut rows = examples(&data);
        rows.retain(|r| r.class < 2);
        let group = |r: &Example| if r.class == 1 { 0 } else { 1 + r.group % 9 };
        rows.iter_mut().for_each(|r| r.group = group(r));
        let fitted = BottleneckModel::train(&rows).expect("fits");
        let classes = |s: &Scored| (s.class, rows[s.row].class);
        assert!(!fitted.held_out.is_empty());
        assert!(fitted.held_out.iter().all(|s| classes(s) == (0, 0)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn few_rows_do_not_break_it(
            data in prop::collection::vec((0usize..4, 0u32..3), 1..10),
            x in -1e3f32..1e3,
        ) {
            let data: Vec<_> = data.iter().map(|(c, v)| (vec![*v as f32 / 2.0], *c)).collect();
            if let Ok(fitted) = BottleneckModel::train(&examples(&data)) {
                let p = fitted.model.probabilities(&[x]);
                prop_assert!((p.iter().sum::<f32>() - 1.0).abs() < 1e-4);
            }
        }
    }
}
