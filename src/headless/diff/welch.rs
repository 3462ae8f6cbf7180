//! Whether two means differ: Welch's t interval (B. L. Welch, "The generalization of 'Student's' problem when several different
//! population variances are involved", Biometrika 34, 1947), with degrees of freedom after Satterthwaite (1946).

use serde::Serialize;

/// Probability that an interval holds the true difference.
pub const CONFIDENCE: f64 = 0.95;

/// What was measured of a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Mean.
    pub mean: f64,
    /// Standard deviation, as estimated from the sample; at least two measurements.
    pub stddev: f64,
    /// Measurements.
    pub count: u64,
}

impl Sample {
    /// `None` unless all of it is usable: two measurements or more, finite figures.
    pub fn new(mean: f64, stddev: Option<f64>, count: u64) -> Option<Self> {
        let stddev = stddev.filter(|s| s.is_finite() && *s >= 0.0)?;
        (mean.is_finite() && count >= 2).then_some(Self {
            mean,
            stddev,
            count,
        })
    }

    /// Variance of the mean, times `scale` squared.
    fn variance(&self, scale: f64) -> f64 {
        (self.stddev * scale).powi(2) / self.count as f64
    }
}

/// Bounds of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Lower.
    pub low: f64,
    /// Upper.
    pub high: f64,
}

/// The interval that holds `b - scale * a` with probability `confidence`.
pub fn difference(a: Sample, b: Sample, scale: f64, confidence: f64) -> Interval {
    let (va, vb) = (a.variance(scale), b.variance(1.0));
    let mid = b.mean - scale * a.mean;
    let squares = |v: f64, s: Sample| v * v / (s.count - 1) as f64;
    let freedom = (va + vb).powi(2) / (squares(va, a) + squares(vb, b));
    let half = if freedom.is_finite() {
        (va + vb).sqrt() * student_quantile(0.5 + confidence / 2.0, freedom)
    } else if va + vb == 0.0 {
        // Nothing varied.
        0.0
    } else {
        // More than numbers hold: anything is possible.
        f64::MAX
    };
    Interval {
        low: mid - half,
        high: mid + half,
    }
}

/// Quantile `p`, 0.5 to below 1, of Student's distribution with `freedom` degrees of freedom, one or more.
pub fn student_quantile(p: f64, freedom: f64) -> f64 {
    // From here on it differs from the normal distribution's in the eighth digit.
    let freedom = freedom.clamp(1.0, 1e7);
    let mut high = 1.0;
    while student_cdf(high, freedom) < p && high < 1e12 {
        high *= 2.0;
    }
    let mut low = 0.0;
    for _ in 0..80 {
        let mid = (low + high) / 2.0;
        if student_cdf(mid, freedom) < p {
            low = mid;
        } else {
            high = mid;
        }
    }
    (low + high) / 2.0
}

/// Distribution function of Student's distribution for `t` of zero or more.
fn student_cdf(t: f64, freedom: f64) -> f64 {
    let x = freedom / (freedom + t * t);
    1.0 - 0.5 * incomplete_beta(x, freedom / 2.0, 0.5)
}

/// The regularised incomplete beta function (DLMF 8.17).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let scale = ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p();
    if x < (a + 1.0) / (a + b + 2.0) {
        scale.exp() * beta_fraction(x, a, b) / a
    } else {
        1.0 - scale.exp() * beta_fraction(1.0 - x, b, a) / b
    }
}

/// The continued fraction DLMF 8.17.22, by Lentz's method.
fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    let least = |v: f64| if v.abs() < 1e-300 { 1e-300 } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / least(1.0 - (a + b) * x / (a + 1.0));
    let mut value = d;
    for m in 1..20_000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = value;
        for term in [even, odd] {
            d = 1.0 / least(1.0 + term * d);
            c = least(1.0 + term / c);
            value *= c * d;
        }
        if (value / before - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

/// Logarithm of the gamma function for positive `x` (Lanczos' approximation, g = 7, n = 9).
fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let sum: f64 = TERMS
        .iter()
        .zip(1..)
        .map(|(c, i)| c / (x + f64::from(i)))
        .sum();
    let t = x + 7.5;
    0.5 * std::f64::consts::TAU.ln() + (x + 0.5) * t.ln() - t + (0.999_999_999_999_809_9 + sum).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        // NIST/SEMATECH e-Handbook 1.3.6.7.2 and R's qt(0.975, df).
        for (freedom, t) in [
            (1.0, 12.706_204_736_174_694),
            (2.0, 4.302_652_729_749_464),
            (3.0, 3.182_446_305_283_71),
            (5.0, 2.570_581_835_636_315),
            (10.0, 2.228_138_851_986_274),
            (30.0, 2.042_272_456_301_238),
            (100.0, 1.983_971_518_523_552),
            (1e9, 1.959_963_984_540_054),
        ] {
            let got = student_quantile(0.975, freedom);
            assert!((got - t).abs() < 2e-6, "{freedom}: {got}, not {t}");
        }
        // Closed forms: Cauchy, and (2p - 1) / sqrt(2 p (1 - p)).
        let p = 0.9f64;
        let cauchy = (std::f64::consts::PI * (p - 0.5)).tan();
        assert!((student_quantile(p, 1.0) - cauchy).abs() < 1e-10);
        let two = (2.0 * p - 1.0) / (2.0 * p * (1.0 - p)).sqrt();
        assert!((student_quantile(p, 2.0) - two).abs() < 1e-10);
    }

    #[test]
    fn a_worked_example() {
        // Two samples of the book: means 20.8 and 23.0, variances 7.9 and 1.15, 15 each: df 17.9, |t| 2.83.
        let sample = |mean: f64, variance: f64| {
            Sample::new(mean, Some(variance.sqrt()), 15).expect("usable")
        };
        let i = difference(sample(20.8, 7.9), sample(23.0, 1.15), 1.0, CONFIDENCE);
        let half = (9.05f64 / 15.0).sqrt() * student_quantile(0.975, 17.987_8);
        assert!(
            (i.low - (2.2 - half)).abs() < 1e-3 && (i.high - (2.2 + half)).abs() < 1e-3,
            "{i:?}"
        );
    }

    #[test]
    fn what_did_not_vary_has_no_width() {
        let fixed = |mean| Sample::new(mean, Some(0.0), 9).expect("usable");
        let i = difference(fixed(10.0), fixed(12.0), 1.05, CONFIDENCE);
        assert_eq!((i.low, i.high), (1.5, 1.5));
    }

    #[test]
    fn useless_samples_are_none() {
        for (mean, stddev, count) in [
            (1.0, None, 9),
            (1.0, Some(1.0), 1),
            (1.0, Some(f64::NAN), 9),
            (1.0, Some(-1.0), 9),
            (f64::NAN, Some(1.0), 9),
        ] {
            assert_eq!(Sample::new(mean, stddev, count), None);
        }
    }

    proptest! {
        #[test]
        fn distribution_and_quantile_are_inverse(p in 0.5f64..0.999, freedom in 1.0f64..1e5) {
            let back = student_cdf(student_quantile(p, freedom), freedom);
            prop_assert!((back - p).abs() < 1e-7, "{} {}", back, p);
        }

        #[test]
        fn intervals_hold_the_difference_and_swap_with_the_sides(
            a in 1.0f64..1e4, b in 1.0f64..1e4, sa in 0.0f64..100.0, sb in 0.0f64..100.0, n in 2u64..5000, m in 2u64..5000,
        ) {
            let (a, b) = (Sample::new(a, Some(sa), n).unwrap(), Sample::new(b, Some(sb), m).unwrap());
            let (i, j) = (difference(a, b, 1.0, CONFIDENCE), difference(b, a, 1.0, CONFIDENCE));
            prop_assert!(i.low <= b.mean - a.mean && b.mean - a.mean <= i.high);
            prop_assert!((i.low + j.high).abs() < 1e-6 && (i.high + j.low).abs() < 1e-6);
        }
    }
}
