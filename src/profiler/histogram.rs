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

    /// The occupied buckets, shortest first: lower and upper edge in nanoseconds, and how many durations lie between them,
    /// the upper edge not included. An octave has 16 buckets. What is longer than 4.9 hours is in the last one.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, f64, u64)> {
        let occupied = self.counts.iter().enumerate().filter(|(_, n)| **n > 0);
        occupied.map(|(index, &n)| {
            let (from, to) = edges(index);
            (from, to, u64::from(n))
        })
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

/// Lower and upper edge of a bucket, nanoseconds.
fn edges(bucket: usize) -> (f64, f64) {
    let edge = |i: u64| f64::from_bits((FIRST + i) << SHIFT);
    match bucket.checked_sub(1) {
        None => (0.0, edge(0)),
        Some(above) => (edge(above as u64), edge(above as u64 + 1)),
    }
}

/// Zero for the bucket of what cannot be told from it.
fn middle(bucket: usize) -> f64 {
    match edges(bucket) {
        (0.0, _) => 0.0,
        (from, to) => f64::midpoint(from, to),
    }
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

    #[test]
    fn empty_histograms_have_no_buckets() {
        let mut h = Histogram::default();
        assert_eq!(h.buckets().count(), 0);
        h.add(0.0);
        assert_eq!(h.buckets().collect::<Vec<_>>(), [(0.0, 0.0625, 1)]);
    }

    proptest! {
        #[test]
        fn buckets_hold_their_values_and_count_them_all(
            mut values in prop::collection::vec(prop_oneof![0.0f64..1.0, 1.0f64..1e6, 1e6f64..1e13], 0..200),
        ) {
            let mut h = Histogram::default();
            values.iter().for_each(|v| h.add(*v));
            values.sort_by(f64::total_cmp);
            let mut seen = 0;
            let mut last = 0.0;
            for (from, to, count) in h.buckets() {
                prop_assert!(last <= from && from < to && (from == 0.0 || to / from <= 17.0 / 16.0));
                let held = values[seen..].iter().take_while(|v| **v < to).count();
                prop_assert_eq!(held as u64, count);
                prop_assert!(values[seen] >= from);
                (seen, last) = (seen + held, to);
            }
            prop_assert_eq!(seen, values.len());
        }

        #[test]
        fn middle_of_a_values_bucket_is_within_four_percent(exponent in -3.9f64..43.9) {
            let value = exponent.exp2();
            let near = middle(bucket(value));
            prop_assert!((near / value - 1.0).abs() <= 0.04, "{value} -> {near}");
        }
    }
}
