//! A fixed-size logarithmic histogram of durations, for percentiles within 4% without keeping samples.

/// Buckets in an octave. The middle of a bucket is off by at most half its width: 1/32 = 3.1% of the value.
const SUB_BITS: u32 = 4;
/// Smallest value told apart from zero: 2^-4 ns.
const MIN_EXPONENT: i64 = -4;
/// Values of 2^44 ns (4.9 hours) and more share the last bucket.
const MAX_EXPONENT: i64 = 44;
/// One bucket for zero, then those of each octave.
const BUCKETS: usize = 1 + ((MAX_EXPONENT - MIN_EXPONENT) as usize) * (1 << SUB_BITS);

/// The bucket is the exponent and the top mantissa bits of the IEEE 754 double, so finding it costs one shift.
const SHIFT: u32 = f64::MANTISSA_DIGITS - 1 - SUB_BITS;
const BIAS: i64 = 1023;
const FIRST: u64 = ((MIN_EXPONENT + BIAS) as u64) << SUB_BITS;

/// Counts of durations, by size. 3 KiB.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Box<[u32; BUCKETS]>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
            total: 0,
        }
    }
}

impl Histogram {
    /// Counts one duration in nanoseconds; negative and NaN count as zero.
    #[inline]
    pub fn add(&mut self, ns: f64) {
        let count = &mut self.counts[bucket(ns)];
        *count = count.saturating_add(1);
        self.total += 1;
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.total = 0;
    }

    /// The duration in nanoseconds at nearest rank `ceil(q * n)`, within 4% between 2^-4 ns and 2^44 ns; `None` when empty.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        if self.total == 0 {
            return None;
        }
        let rank = ((q.clamp(0.0, 1.0) * self.total as f64).ceil() as u64).clamp(1, self.total);
        let mut seen = 0;
        let index = self.counts.iter().position(|&n| {
            seen += u64::from(n);
            seen >= rank
        });
        Some(middle(index.unwrap_or(BUCKETS - 1)))
    }
}

#[inline]
fn bucket(ns: f64) -> usize {
    // `max` also turns NaN into zero.
    let bits = ns.max(0.0).to_bits() >> SHIFT;
    match bits.checked_sub(FIRST) {
        None => 0,
        Some(above) => (above as usize + 1).min(BUCKETS - 1),
    }
}

fn middle(bucket: usize) -> f64 {
    let Some(above) = bucket.checked_sub(1) else {
        return 0.0;
    };
    let edge = |i: u64| f64::from_bits((FIRST + i) << SHIFT);
    f64::midpoint(edge(above as u64), edge(above as u64 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn odd_values_find_a_bucket() {
        let mut h = Histogram::default();
        assert_eq!(h.quantile(0.5), None);
        for v in [0.0, -0.0, -1.0, f64::NAN, f64::MIN_POSITIVE] {
            h.add(v);
            assert_eq!(h.quantile(1.0), Some(0.0), "{v}");
        }
        h.add(f64::INFINITY);
        assert!(h.quantile(1.0).is_some_and(|v| v > 1e13));
        h.clear();
        assert_eq!(h.quantile(0.5), None);
    }

    proptest! {
        #[test]
        fn middle_of_a_values_bucket_is_within_four_percent(exponent in -3.9f64..43.9) {
            let value = exponent.exp2();
            let near = middle(bucket(value));
            prop_assert!((near / value - 1.0).abs() <= 0.04, "{value} -> {near}");
        }
    }
}
