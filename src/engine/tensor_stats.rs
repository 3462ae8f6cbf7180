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
        let known = |x: f32| if self.n == 0 { f32::NAN } else { x.clamp(f32::MIN, f32::MAX) };
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
