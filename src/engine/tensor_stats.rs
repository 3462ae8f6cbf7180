//! Statistics of a tensor without the tensor, in one pass over each of its rows.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// Statistics of the finite elements of a tensor, and how many of its elements are not. Not a number (`null` in JSON) where
/// no element is finite.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TensorStats {
    /// Elements, those that are not finite included.
    pub count: u64,
    /// Smallest.
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f32>")]
    pub min: f32,
    /// Largest.
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f32>")]
    pub max: f32,
    /// Mean.
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f32>")]
    pub mean: f32,
    /// Standard deviation of all of them (not of a sample).
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f32>")]
    pub std: f32,
    /// Elements that are NaN.
    pub nan_count: u64,
    /// Elements that are infinite.
    pub inf_count: u64,
    /// Square root of the sum of squares; [`f32::MAX`] where that is more.
    #[serde(deserialize_with = "null_is_nan")]
    #[schemars(with = "Option<f32>")]
    pub l2_norm: f32,
}

impl TensorStats {
    /// The largest magnitude.
    pub fn max_abs(&self) -> f32 {
        self.min.abs().max(self.max.abs())
    }

    /// Whether all elements are finite.
    pub fn is_finite(&self) -> bool {
        self.nan_count == 0 && self.inf_count == 0
    }
}

impl Default for TensorStats {
    fn default() -> Self {
        Moments::default().stats()
    }
}

/// JSON has no word for what is not a number.
pub(crate) fn null_is_nan<'de, D: Deserializer<'de>>(d: D) -> Result<f32, D::Error> {
    Ok(Option::deserialize(d)?.unwrap_or(f32::NAN))
}

/// What [`TensorStats`] are made of, in sums that can be put together: counts, extremes, mean and the sum of squared
/// deviations from it (Chan, Golub, LeVeque 1983).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moments {
    /// Finite elements.
    pub n: u64,
    /// NaNs.
    pub nan: u64,
    /// Infinities.
    pub inf: u64,
    /// Smallest finite element.
    pub min: f32,
    /// Largest finite element.
    pub max: f32,
    /// Mean of the finite elements.
    pub mean: f64,
    /// Sum of their squared deviations from it.
    pub m2: f64,
}

impl Default for Moments {
    fn default() -> Self {
        Self {
            n: 0,
            nan: 0,
            inf: 0,
            min: f32::INFINITY,
            max: f32::NEG_INFINITY,
            mean: 0.0,
            m2: 0.0,
        }
    }
}

impl Moments {
    /// Of the elements of both.
    pub fn merge(&mut self, other: &Self) {
        let (a, b) = (self.n as f64, other.n as f64);
        if other.n > 0 {
            let n = a + b;
            let delta = other.mean - self.mean;
            self.mean += delta * (b / n);
            self.m2 += other.m2 + delta * delta * (a * b / n);
        }
        self.n += other.n;
        self.nan += other.nan;
        self.inf += other.inf;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Standard deviation; NaN of nothing.
    pub fn std(&self) -> f64 {
        (self.m2 / self.n as f64).sqrt()
    }

    /// Square root of the sum of squares.
    pub fn l2_norm(&self) -> f64 {
        (self.m2 + self.n as f64 * self.mean * self.mean).sqrt()
    }

    /// As figures.
    pub fn stats(&self) -> TensorStats {
        // Of nothing every processor has a NaN of its own.
        let known = |x: f32| {
            if self.n == 0 {
                f32::NAN
            } else {
                x.clamp(f32::MIN, f32::MAX)
            }
        };
        TensorStats {
            count: self.n + self.nan + self.inf,
            min: known(self.min),
            max: known(self.max),
            mean: known(self.mean as f32),
            std: known(self.std() as f32),
            nan_count: self.nan,
            inf_count: self.inf,
            l2_norm: known(self.l2_norm() as f32),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Of one element.
    pub(crate) fn one(x: f32) -> Moments {
        let mut m = Moments::default();
        if x.is_nan() {
            m.nan = 1;
        } else if x.is_infinite() {
            m.inf = 1;
        } else {
            m.n = 1;
            (m.min, m.max, m.mean) = (x, x, f64::from(x));
        }
        m
    }

    fn merged<'a>(parts: impl IntoIterator<Item = &'a Moments>) -> Moments {
        let mut all = Moments::default();
        parts.into_iter().for_each(|m| all.merge(m));
        all
    }

    /// Two passes in f64: mean, deviation, norm.
    fn reference(x: &[f32]) -> [f64; 3] {
        let finite: Vec<f64> = x
            .iter()
            .filter(|x| x.is_finite())
            .map(|x| f64::from(*x))
            .collect();
        let n = finite.len() as f64;
        let mean = finite.iter().sum::<f64>() / n;
        let squares = finite.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
        let norm = finite.iter().map(|x| x * x).sum::<f64>().sqrt();
        [mean, (squares / n).sqrt(), norm]
    }

    fn check(m: &Moments, x: &[f32]) -> Result<(), TestCaseError> {
        let stats = m.stats();
        let finite = || x.iter().copied().filter(|x| x.is_finite());
        prop_assert_eq!(stats.count, x.len() as u64);
        prop_assert_eq!(
            stats.nan_count,
            x.iter().filter(|x| x.is_nan()).count() as u64
        );
        prop_assert_eq!(
            stats.inf_count,
            x.iter().filter(|x| x.is_infinite()).count() as u64
        );
        if finite().next().is_none() {
            for x in [stats.min, stats.max, stats.mean, stats.std, stats.l2_norm] {
                prop_assert_eq!(x.to_bits(), f32::NAN.to_bits());
            }
            return Ok(());
        }
        prop_assert_eq!(stats.min, finite().fold(f32::INFINITY, f32::min));
        prop_assert_eq!(stats.max, finite().fold(f32::NEG_INFINITY, f32::max));
        let [mean, std, norm] = reference(x);
        let largest = f64::from(finite().fold(0.0, |a: f32, x| x.abs().max(a)));
        // Of a deviation and a mean that cancel, as much is known as f64 has of the elements.
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs() + 1e-12 * largest;
        prop_assert!(near(m.mean, mean), "{} {}", m.mean, mean);
        prop_assert!(near(m.std(), std), "{} {}", m.std(), std);
        prop_assert!(near(m.l2_norm(), norm), "{} {}", m.l2_norm(), norm);
        let squared = |a: f32, b: f64| ((f64::from(a) - b) / b.abs().max(1.0)).powi(2);
        prop_assert!(squared(stats.mean, mean) < 1e-6 && squared(stats.std, std) < 1e-6);
        prop_assert!(squared(stats.l2_norm, norm.min(f32::MAX.into())) < 1e-6);
        Ok(())
    }

    proptest! {
        #[test]
        fn f250_statistics_match_float64_however_they_are_put_together(
            x in prop::collection::vec(prop_oneof![
                20 => -10.0f32..10.0, 1 => any::<f32>(), 1 => Just(f32::NAN), 1 => Just(f32::INFINITY), 1 => Just(f32::NEG_INFINITY),
            ], 0..300),
            offset in prop_oneof![Just(0.0f32), Just(1e6), Just(-3e7)],
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
            backwards in any::<bool>(),
        ) {
            let x: Vec<f32> = x.into_iter().map(|x| x + offset).collect();
            check(&merged(&x.iter().map(|x| one(*x)).collect::<Vec<_>>()), &x)?;
            let mut cuts: Vec<usize> = cuts.iter().map(|c| c.index(x.len() + 1)).chain([0, x.len()]).collect();
            cuts.sort_unstable();
            let part = |c: &[usize]| merged(&x[c[0]..c[1]].iter().map(|x| one(*x)).collect::<Vec<_>>());
            let mut parts: Vec<Moments> = cuts.windows(2).map(part).collect();
            if backwards {
                parts.reverse();
            }
            check(&merged(&parts), &x)?;
        }
    }

    #[test]
    fn f250_known_vectors() {
        let of = |x: &[f32]| merged(&x.iter().map(|x| one(*x)).collect::<Vec<_>>()).stats();
        let s = of(&[1.0, -2.0, 3.0, f32::NAN, -4.0, f32::NEG_INFINITY]);
        let counts = (s.count, s.nan_count, s.inf_count);
        assert_eq!(counts, (6, 1, 1));
        assert_eq!((s.min, s.max, s.max_abs(), s.mean), (-4.0, 3.0, 4.0, -0.5));
        assert!((s.std - 7.25f32.sqrt()).abs() < 1e-6 && (s.l2_norm - 30f32.sqrt()).abs() < 1e-6);
        assert!(!s.is_finite() && of(&[1.0]).is_finite());
        // Not a number, whatever the processor makes of 0 / 0, and nothing beyond the range of f32.
        let none = of(&[]);
        assert_eq!((none.count, none.std.to_bits()), (0, f32::NAN.to_bits()));
        assert_eq!(of(&[f32::MAX; 4]).l2_norm, f32::MAX);
        // A small deviation on a large offset.
        let far: Vec<f32> = (0..4096).map(|i| 1e6 + (i % 2) as f32).collect();
        assert!((of(&far).std - 0.5).abs() < 1e-6);
    }
}
