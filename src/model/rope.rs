//! Rotary frequencies: one angle per pair of elements and unit of position.

use super::RopeScaling;
use std::f64::consts::PI;

/// Rotary embedding of one kind of layer.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeTable {
    /// Angle per position of pair `i`, radians; `rope_dims / 2` of them.
    pub inv_freq: Vec<f64>,
    /// Multiplier of sine and cosine (YaRN's attention temperature).
    pub magnitude: f64,
}

impl RopeTable {
    /// Frequencies for `dims` rotated elements.
    ///
    /// `factors` are the file's `rope_freqs` divisors (Llama 3), one a pair. The mixture of YaRN follows
    /// <https://arxiv.org/abs/2309.00071>, section 3.2, its temperature section 3.4.
    /// `attn_factor` multiplies the temperature.
    pub fn new(
        dims: usize,
        base: f64,
        scaling: RopeScaling,
        attn_factor: f64,
        factors: Option<&[f32]>,
    ) -> Self {
        let half = dims / 2;
        let mut magnitude = attn_factor;
        let extrapolated = (0..half).map(|i| {
            let divisor = factors
                .and_then(|f| f.get(i))
                .map_or(1.0, |&f| f64::from(f));
            base.powf(-2.0 * i as f64 / dims as f64) / divisor
        });
        let inv_freq = match scaling {
            RopeScaling::None => extrapolated.collect(),
            RopeScaling::Linear { factor } => extrapolated.map(|f| f / factor).collect(),
            RopeScaling::Yarn {
                factor,
                original_context,
                beta_fast,
                beta_slow,
                log_multiplier,
            } => {
                let temperature = |part: f64| 1.0 + 0.1 * part * factor.ln();
                magnitude *= temperature(1.0) / temperature(log_multiplier);
                let correction = |beta: f64| {
                    dims as f64 * (original_context / (beta * 2.0 * PI)).ln() / (2.0 * base.ln())
                };
                let low = correction(beta_fast).floor().max(0.0);
                let high = correction(beta_slow).ceil().min(dims as f64 - 1.0);
                extrapolated
                    .enumerate()
                    .map(|(i, f)| {
                        let ramp = ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                        f / factor * ramp + f * (1.0 - ramp)
                    })
                    .collect()
            }
        };
        Self {
            inv_freq,
            magnitude,
        }
    }

    /// Writes `(cos, sin)` of every pair at `position`; both slices have `inv_freq.len()` elements.
    pub fn fill(&self, position: usize, cos: &mut [f32], sin: &mut [f32]) {
        for ((f, c), s) in self.inv_freq.iter().zip(cos).zip(sin) {
            let (si, co) = (position as f64 * f).sin_cos();
            *c = (co * self.magnitude) as f32;
            *s = (si * self.magnitude) as f32;
        }
    }
}

/// A rotary table that may depend on how long the context is (Phi 3's longrope).
#[derive(Debug, Clone, PartialEq)]
pub struct ContextRope {
    /// Context length, tokens, above which `long` holds.
    pub original_context: usize,
    /// For contexts up to that, or for all.
    pub short: RopeTable,
    /// For longer contexts.
    pub long: Option<RopeTable>,
}

impl ContextRope {
    /// The same for every context.
    pub fn plain(table: RopeTable) -> Self {
        Self {
            original_context: 0,
            short: table,
            long: None,
        }
    }

    /// The table for a context of `n_ctx` tokens; as llama.cpp, by the length allocated, so that a cache stays valid while
    /// it fills.
    pub fn for_context(&self, n_ctx: usize) -> &RopeTable {
        match &self.long {
            Some(long) if n_ctx > self.original_context => long,
            _ => &self.short,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_frequencies_are_powers_of_the_base() {
        let t = RopeTable::new(4, 100.0, RopeScaling::None, 1.0, None);
        assert_eq!(t.inv_freq.len(), 2);
        assert!((t.inv_freq[0] - 1.0).abs() < 1e-12);
        assert!((t.inv_freq[1] - 0.1).abs() < 1e-12);
        let (mut c, mut s) = ([0.0; 2], [0.0; 2]);
        t.fill(0, &mut c, &mut s);
        assert_eq!((c, s), ([1.0; 2], [0.0; 2]));
    }

    #[test]
    fn linear_scaling_and_factors_divide() {
        let t = RopeTable::new(
            4,
            100.0,
            RopeScaling::Linear { factor: 4.0 },
            1.0,
            Some(&[1.0, 2.0]),
        );
        assert!((t.inv_freq[0] - 0.25).abs() < 1e-12);
        assert!((t.inv_freq[1] - 0.0125).abs() < 1e-12);
    }

    #[test]
    fn yarn_keeps_fast_pairs_and_interpolates_slow_ones() {
        let yarn = RopeScaling::Yarn {
            factor: 4.0,
            original_context: 128.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            log_multiplier: 0.0,
        };
        let plain = RopeTable::new(64, 10_000.0, RopeScaling::None, 1.0, None);
        let t = RopeTable::new(64, 10_000.0, yarn, 1.0, None);
        assert!((t.inv_freq[0] - plain.inv_freq[0]).abs() < 1e-12);
        assert!((t.inv_freq[31] - plain.inv_freq[31] / 4.0).abs() < 1e-12);
        assert!((t.magnitude - (1.0 + 0.1 * 4f64.ln())).abs() < 1e-12);
    }
}
