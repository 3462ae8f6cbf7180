//! Whether a model still holds: drift of its errors, drift of what it is asked, and errors that grew too large.

use std::collections::VecDeque;

/// What an alarm says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alarm {
    /// Runs are slower than predicted, more and more.
    Slower,
    /// Runs are faster than predicted, more and more.
    Faster,
}

/// Log error an error may wander without counting: noise of repetitions.
const SLACK: f64 = 0.02;
/// Sum of the rest at which the alarm sounds: 25 runs that are off by 4% more than is usual, or 5 that are off by 12%.
const ALARM: f64 = 0.5;
/// Weight of a new error in the usual one, once there are many.
const PACE: f64 = 1.0 / 64.0;

/// Watches logarithms of measured by predicted rates for a change (Page, "Continuous inspection schemes", Biometrika 41,
/// 1954; the mean it is held against follows slowly, so that an error that was always there is none that grew).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ConceptDrift {
    seen: u64,
    usual: f64,
    up: f64,
    down: f64,
}

impl ConceptDrift {
    /// Takes in a run; the alarm sounds once and the watch begins anew. What is no rate is ignored.
    pub fn observe(&mut self, predicted_tok_s: f64, measured_tok_s: f64) -> Option<Alarm> {
        let error = (measured_tok_s / predicted_tok_s).ln();
        if !error.is_finite() {
            return None;
        }
        self.seen += 1;
        let off = error - self.usual;
        self.usual += off * PACE.max(1.0 / self.seen as f64);
        if self.seen == 1 {
            return None;
        }
        self.up = (self.up + off - SLACK).max(0.0);
        self.down = (self.down - off - SLACK).max(0.0);
        let alarm = if self.up > ALARM {
            Alarm::Faster
        } else if self.down > ALARM {
            Alarm::Slower
        } else {
            return None;
        };
        *self = Self::default();
        Some(alarm)
    }
}

/// Bins of the population stability index.
const BINS: usize = 10;
/// From here the index speaks of a shift worth acting on (Siddiqi, "Credit Risk Scorecards", 2006, chapter 10).
pub const SHIFTED: f64 = 0.25;
/// Fewer rows say nothing of a distribution.
const LEAST_ROWS: usize = 30;

/// Population stability index of a column, values from 0 to 1: how far `now` is from `then`. `None` with fewer than 30 rows on
/// a side.
pub fn stability(then: impl Iterator<Item = f32>, now: impl Iterator<Item = f32>) -> Option<f64> {
    let (then, n) = histogram(then);
    let (now, m) = histogram(now);
    if n < LEAST_ROWS || m < LEAST_ROWS {
        return None;
    }
    // Half a row in every bin keeps empty ones from being infinitely unlike.
    let share = |count: usize, of: usize| (count as f64 + 0.5) / (of as f64 + 0.5 * BINS as f64);
    let pairs = then.iter().zip(&now);
    let term = |(a, b): (&usize, &usize)| {
        let (a, b) = (share(*a, n), share(*b, m));
        (b - a) * (b / a).ln()
    };
    Some(pairs.map(term).sum())
}

fn histogram(values: impl Iterator<Item = f32>) -> ([usize; BINS], usize) {
    let mut bins = [0; BINS];
    let mut n = 0;
    for v in values.filter(|v| v.is_finite()) {
        bins[((v.clamp(0.0, 1.0) * BINS as f32) as usize).min(BINS - 1)] += 1;
        n += 1;
    }
    (bins, n)
}

/// Columns whose distribution shifted, with their index, the largest first.
pub fn shifted(then: &[&[f32]], now: &[&[f32]]) -> Vec<(usize, f64)> {
    let columns = then.iter().chain(now).map(|r| r.len()).min().unwrap_or(0);
    let column = |rows: &[&[f32]], c: usize| rows.iter().map(|r| r[c]).collect::<Vec<f32>>();
    let index = |c: usize| {
        let (a, b) = (column(then, c), column(now, c));
        Some((c, stability(a.into_iter(), b.into_iter())?))
    };
    let mut out: Vec<(usize, f64)> = (0..columns)
        .filter_map(index)
        .filter(|(_, i)| *i > SHIFTED)
        .collect();
    out.sort_by(|a, b| b.1.total_cmp(&a.1));
    out
}

/// Runs a degradation is judged by.
const WINDOW: usize = 20;
/// How many times its error of training a model may err.
const WORSE: f64 = 2.0;

/// Watches the error of the newest runs against the one that the model was trained with.
#[derive(Debug, Clone, PartialEq)]
pub struct Degradation {
    expected: f64,
    newest: VecDeque<f64>,
}

impl Degradation {
    /// A watch over a model whose held-out median error is `expected`, a share of the rate.
    pub fn new(expected: f64) -> Self {
        Self {
            expected: if expected.is_finite() {
                expected.max(0.01)
            } else {
                0.1
            },
            newest: VecDeque::with_capacity(WINDOW),
        }
    }

    /// Takes in a run. The median error of the newest 20, a share of the rate, if it is more than twice what was expected.
    pub fn observe(&mut self, predicted_tok_s: f64, measured_tok_s: f64) -> Option<f64> {
        let error = (predicted_tok_s - measured_tok_s).abs() / measured_tok_s;
        if !error.is_finite() {
            return None;
        }
        if self.newest.len() == WINDOW {
            self.newest.pop_front();
        }
        self.newest.push_back(error);
        let mut sorted: Vec<f64> = self.newest.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let median = sorted.get(WINDOW / 2).copied()?;
        let full = self.newest.len() == WINDOW;
        (full && median > WORSE * self.expected).then_some(median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Deterministic noise of 1.5%.
    fn noise(i: usize) -> f64 {
        0.015 * ((i * 7919 % 1000) as f64 / 500.0 - 1.0)
    }

    #[test]
    fn f087_a_machine_that_slows_down_sounds_the_alarm() {
        let mut watch = ConceptDrift::default();
        let mut rate = |i: usize, slower: f64| watch.observe(100.0, 80.0 * slower * noise(i).exp());
        // A model that is always 20% too high is not drifting.
        assert!((0..500).all(|i| rate(i, 1.0).is_none()));
        let first = (0..500).find_map(|i| rate(i, 0.9).map(|a| (i, a)));
        println!("F087: 10% slower, told after {first:?} runs");
        assert!(matches!(first, Some((0..=20, Alarm::Slower))), "{first:?}");
        let mut watch = ConceptDrift::default();
        (0..50).for_each(|i| assert_eq!(watch.observe(100.0, 100.0 + noise(i)), None));
        let faster = (0..50).find_map(|_| watch.observe(100.0, 115.0));
        assert_eq!(faster, Some(Alarm::Faster));
    }

    #[test]
    fn f089_columns_that_shift_are_named() {
        let rows = |second: f32| -> Vec<Vec<f32>> {
            (0..200).map(|i| vec![i as f32 / 200.0, second]).collect()
        };
        let (then, now) = (rows(0.5), rows(0.9));
        let a: Vec<&[f32]> = then.iter().map(Vec::as_slice).collect();
        let b: Vec<&[f32]> = now.iter().map(Vec::as_slice).collect();
        assert_eq!(shifted(&a, &a), []);
        let found = shifted(&a, &b);
        println!("F089: index of the column that moved: {found:?}");
        assert_eq!(found.iter().map(|f| f.0).collect::<Vec<_>>(), [1]);
        assert_eq!(shifted(&a, &b[..10]), []);
        assert_eq!(shifted(&[], &[]), []);
    }

    #[test]
    fn f090_errors_that_doubled_are_told() {
        let mut watch = Degradation::new(0.1);
        assert!((0..100).all(|_| watch.observe(110.0, 100.0).is_none()));
        let told = (0..30).find_map(|i| watch.observe(130.0, 100.0).map(|e| (i, e)));
        println!("F090: errors of 30% where 10% were expected, told after {told:?}");
        assert!(matches!(told, Some((0..=15, e)) if (e - 0.3).abs() < 1e-9));
    }

    proptest! {
        #[test]
        fn no_rate_can_break_a_watch(rates in prop::collection::vec((prop::num::f64::ANY, prop::num::f64::ANY), 0..60)) {
            let (mut a, mut b) = (ConceptDrift::default(), Degradation::new(0.1));
            for (p, m) in rates {
                let _ = a.observe(p, m);
                prop_assert!(b.observe(p, m).is_none_or(|e| e.is_finite()));
            }
        }
    }
}
