//! What a machine does otherwise than the model says: a ridge regression of the logarithms of measured by predicted rates
//! (Hoerl and Kennard, "Ridge Regression", Technometrics 12(1), 1970), small enough to be fitted from a dozen runs.

use super::metrics;

/// What the corrections see of a trial beside its columns: that it is there, and whether it generates.
const FIXED: usize = 3;
/// How much of the regression is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freedom {
    /// One factor.
    Offset,
    /// One for prompts and one for generation.
    Kinds,
    /// And a slope for every column.
    Columns,
}

/// From the least to the most free: of equal errors the first one wins.
const FREEDOMS: [Freedom; 3] = [Freedom::Offset, Freedom::Kinds, Freedom::Columns];
/// A freer correction must lower the held-out error by this share.
const WORTH: f64 = 0.98;
/// Penalty of slopes by the squared log error they explain: columns lie in 0 to 1, and a slope of 0.5 is much.
const SLOPE_PENALTY: f64 = 0.3;
const KIND_PENALTY: f64 = 0.05;
/// No correction is larger: a factor of 16.
const MOST: f32 = 2.772_588_8;
/// Fewest runs that are fitted.
pub const LEAST_FIT: usize = 3;
/// Folds of the held-out error.
const FOLDS: u64 = 5;
/// Share of rows that the interval holds.
const HELD: f64 = 0.9;

/// A run as it is learned from.
#[derive(Debug, Clone, PartialEq)]
pub struct Residual {
    /// The columns that a rate is predicted from.
    pub x: Vec<f32>,
    /// Whether it generated.
    pub decode: bool,
    /// Logarithm of the measured by the predicted rate.
    pub log_ratio: f64,
    /// Runs of one group are held out together.
    pub group: u64,
}

/// A correction of predictions for one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Correction {
    /// The machine.
    pub fingerprint: String,
    /// Runs it was fitted to.
    pub runs: u32,
    /// Weights: constant, generation, prompts, then the columns.
    pub(super) weights: Vec<f32>,
    /// Half the width of the interval that held nine of ten held-out runs, in logarithms; `None` with too few runs.
    pub(super) half_width: Option<f32>,
}

impl Correction {
    /// The correction whose held-out error is least, and that error: mean of absolute logarithms. `None` if nothing is better
    /// than no correction, or with fewer than three runs.
    pub fn fit(fingerprint: &str, rows: &[Residual]) -> Option<(Self, f64)> {
        if rows.len() < LEAST_FIT || !whole(rows) {
            return None;
        }
        let mut best: Option<(Freedom, Vec<f64>, f64)> = None;
        let plain: f64 = rows.iter().map(|r| r.log_ratio.abs()).sum::<f64>() / rows.len() as f64;
        let mut least = plain;
        for freedom in FREEDOMS {
            let Some(errors) = held_out(rows, freedom) else {
                continue;
            };
            let error = errors.iter().map(|e| e.abs()).sum::<f64>() / errors.len() as f64;
            if error < least * WORTH {
                least = error;
                best = Some((freedom, errors, error));
            }
        }
        let (freedom, errors, error) = best?;
        let mut correction = Self::of(fingerprint, rows, freedom)?;
        correction.half_width = half_width(errors);
        Some((correction, error))
    }

    /// A correction of a given freedom.
    pub fn of(fingerprint: &str, rows: &[Residual], freedom: Freedom) -> Option<Self> {
        let weights = solve(rows.iter(), freedom)?;
        Some(Self {
            fingerprint: fingerprint.to_owned(),
            runs: rows.len() as u32,
            weights,
            half_width: None,
        })
    }

    /// What is added to the logarithm of the rate.
    pub fn log_ratio(&self, x: &[f32], decode: bool) -> f64 {
        f64::from(apply(&self.weights, x, decode))
    }

    /// A correction part of the way from this one to another of as many weights.
    pub fn towards(&self, other: &Self, share: f32) -> Self {
        let pairs = self.weights.iter().zip(&other.weights);
        let mut step = other.clone();
        if self.weights.len() == other.weights.len() {
            step.weights = pairs.map(|(a, b)| a + share * (b - a)).collect();
        }
        step
    }

    /// A correction that changes nothing, for rows of this many columns.
    pub fn none(fingerprint: &str, columns: usize) -> Self {
        Self {
            fingerprint: fingerprint.to_owned(),
            runs: 0,
            weights: vec![0.0; FIXED + columns],
            half_width: None,
        }
    }
}

fn whole(rows: &[Residual]) -> bool {
    let columns = rows.first().map_or(0, |r| r.x.len());
    rows.iter().all(|r| {
        r.x.len() == columns && r.log_ratio.is_finite() && r.x.iter().all(|v| v.is_finite())
    })
}

fn apply(weights: &[f32], x: &[f32], decode: bool) -> f32 {
    let [constant, generation, prompts, slopes @ ..] = weights else {
        return 0.0;
    };
    let kind = if decode { generation } else { prompts };
    let slopes = slopes.iter().zip(x).map(|(w, x)| w * x).sum::<f32>();
    (constant + kind + slopes).clamp(-MOST, MOST)
}

/// Weights that fit the rows best under the penalties.
fn solve<'a>(
    rows: impl Iterator<Item = &'a Residual> + Clone,
    freedom: Freedom,
) -> Option<Vec<f32>> {
    let columns = rows.clone().next()?.x.len();
    let used = match freedom {
        Freedom::Offset => 1,
        Freedom::Kinds => FIXED,
        Freedom::Columns => FIXED + columns,
    };
    let mut gram = vec![0.0; used * used];
    let mut right = vec![0.0; used];
    let mut row = vec![0.0; used];
    for r in rows {
        let kind = |d| f64::from(u8::from(d));
        let fixed = [1.0, kind(r.decode), kind(!r.decode)];
        let all = fixed.into_iter().chain(r.x.iter().map(|v| f64::from(*v)));
        row.iter_mut().zip(all).for_each(|(to, v)| *to = v);
        for i in 0..used {
            right[i] += row[i] * r.log_ratio;
            for j in 0..used {
                gram[i * used + j] += row[i] * row[j];
            }
        }
    }
    for i in 0..used {
        gram[i * used + i] += match i {
            0 => 1e-3,
            1 | 2 => KIND_PENALTY,
            _ => SLOPE_PENALTY,
        };
    }
    let mut weights: Vec<f32> = cholesky(gram, right)?.iter().map(|w| *w as f32).collect();
    weights.resize(FIXED + columns, 0.0);
    weights.iter().all(|w| w.is_finite()).then_some(weights)
}

/// Solves a symmetric positive definite system; `None` where it is not.
fn cholesky(mut a: Vec<f64>, mut b: Vec<f64>) -> Option<Vec<f64>> {
    let n = b.len();
    for i in 0..n {
        for j in 0..=i {
            let dot: f64 = (0..j).map(|k| a[i * n + k] * a[j * n + k]).sum();
            let rest = a[i * n + j] - dot;
            a[i * n + j] = if i == j {
                if !(rest.is_finite() && rest > 0.0) {
                    return None;
                }
                rest.sqrt()
            } else {
                rest / a[j * n + j]
            };
        }
        let dot: f64 = (0..i).map(|k| a[i * n + k] * b[k]).sum();
        b[i] = (b[i] - dot) / a[i * n + i];
    }
    for i in (0..n).rev() {
        let dot: f64 = (i + 1..n).map(|k| a[k * n + i] * b[k]).sum();
        b[i] = (b[i] - dot) / a[i * n + i];
    }
    Some(b)
}

/// Errors of rows whose group was left out of the fit: of each row where there are few, of folds of groups otherwise.
fn held_out(rows: &[Residual], freedom: Freedom) -> Option<Vec<f64>> {
    let few = rows.len() < 20;
    let folds = if few { rows.len() as u64 } else { FOLDS };
    let place = |at: usize, r: &Residual| {
        if few {
            at as u64
        } else {
            metrics::fold(r.group, FOLDS)
        }
    };
    let mut errors = Vec::with_capacity(rows.len());
    for f in 0..folds {
        let held = |(at, r): &(usize, &Residual)| place(*at, r) == f;
        let rest = rows.iter().enumerate().filter(|r| !held(r)).map(|(_, r)| r);
        rest.clone().next()?;
        let weights = solve(rest, freedom)?;
        let out = rows.iter().enumerate().filter(held);
        errors.extend(out.map(|(_, r)| r.log_ratio - f64::from(apply(&weights, &r.x, r.decode))));
    }
    Some(errors)
}

/// Half-width that holds nine of ten held-out errors (split conformal: Lei et al., JASA 113, 2018); `None` with fewer than nine.
fn half_width(errors: Vec<f64>) -> Option<f32> {
    let mut sizes: Vec<f64> = errors.iter().map(|e| e.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let at = ((sizes.len() + 1) as f64 * HELD).ceil() as usize;
    sizes.get(at.checked_sub(1)?).map(|s| s.max(0.005) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs of a machine that is 20% slower than predicted, 30% more in prompts, and the more so the higher its column.
    fn rows(n: usize, slope: f64) -> Vec<Residual> {
        (0..n)
            .map(|i| {
                let x = (i % 10) as f32 / 10.0;
                let decode = i % 2 == 0;
                let noise = 0.01 * ((i * 7919 % 100) as f64 / 50.0 - 1.0);
                let kind = if decode { -0.2 } else { -0.5 };
                Residual {
                    x: vec![x, 0.5],
                    decode,
                    log_ratio: kind + slope * f64::from(x) + noise,
                    group: i as u64,
                }
            })
            .collect()
    }

    #[test]
    fn as_much_is_learned_as_the_runs_carry() {
        let (flat, error) = Correction::fit("m", &rows(40, 0.0)).expect("better");
        assert!(error < 0.02, "{error}");
        assert!((flat.log_ratio(&[0.3, 0.5], true) + 0.2).abs() < 0.03);
        assert!((flat.log_ratio(&[0.3, 0.5], false) + 0.5).abs() < 0.03);
        let (sloped, error) = Correction::fit("m", &rows(40, 1.0)).expect("better");
        assert!(error < 0.1, "{error}");
        assert!(sloped.log_ratio(&[0.9, 0.5], true) > sloped.log_ratio(&[0.1, 0.5], true) + 0.3);
    }

    #[test]
    fn noise_is_not_learned() {
        let noise: Vec<Residual> = rows(40, 0.0)
            .into_iter()
            .map(|mut r| {
                r.log_ratio = if (r.group * 31 + 7) % 3 == 0 {
                    0.1
                } else {
                    -0.05
                };
                r
            })
            .collect();
        if let Some((c, error)) = Correction::fit("m", &noise) {
            assert!(
                error < 0.07 && c.log_ratio(&[0.5, 0.5], true).abs() < 0.06,
                "{c:?}"
            );
        }
        assert!(Correction::fit("m", &rows(2, 0.0)).is_none());
    }

    proptest! {
        #[test]
        fn no_runs_can_break_it(
            runs in prop::collection::vec((prop::num::f32::ANY, any::<bool>(), prop::num::f64::ANY), 0..30),
            x in prop::num::f32::NORMAL | prop::num::f32::ZERO,
        ) {
            let rows: Vec<Residual> = runs
                .into_iter()
                .enumerate()
                .map(|(i, (x, decode, log_ratio))| Residual { x: vec![x], decode, log_ratio, group: i as u64 })
                .collect();
            if let Some((c, _)) = Correction::fit("m", &rows) {
                let ratio = c.log_ratio(&[x], true).abs();
                prop_assert!(ratio.is_nan() || ratio <= 3.0);
            }
        }
    }
}
