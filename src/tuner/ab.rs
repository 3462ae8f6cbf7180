//! What an applied change brought: token times before and after it, compared by medians and their spread.
//!
//! A pure state machine: the session feeds it token times and does what it asks. Both sides are measured back to back on
//! one growing context; over some seventy tokens the growth is well inside the spread.

use crate::tuner::recommendation::RecommendationStatus;

/// Tokens measured on each side.
pub const SAMPLES: usize = 32;
/// Tokens after the change that are not counted: caches, page tables and the branch predictor settle in them.
pub const WARM_UP: usize = 4;

/// What the session does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Generate on and feed the next token.
    Continue,
    /// Make the change now, then generate on.
    Apply,
    /// Nothing more: the outcome is there.
    Done,
}

/// A comparison in progress or done.
#[derive(Debug, Clone)]
pub struct AbTest {
    /// Token times, microseconds.
    before: Vec<f64>,
    after: Vec<f64>,
    to_skip: usize,
    applied: bool,
    outcome: Option<Outcome>,
    undone: bool,
}

/// Medians of both sides and how sure they are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Median rate before, tokens a second.
    pub before_tok_s: f64,
    /// Median rate after, tokens a second.
    pub after_tok_s: f64,
    /// Interquartile range of after / before over all pairs of tokens, as a share of the median ratio.
    pub spread: f64,
}

impl AbTest {
    /// Starts from the times (microseconds, newest last) of tokens already generated with the present configuration.
    /// Asks to apply at once when there are [`SAMPLES`] of them, else first collects the rest.
    pub fn start(recent_us: impl DoubleEndedIterator<Item = f64>) -> (Self, Action) {
        let mut before: Vec<f64> = recent_us
            .rev()
            .filter(|us| usable(*us))
            .take(SAMPLES)
            .collect();
        before.reverse();
        before.reserve_exact(SAMPLES - before.len());
        let after = Vec::with_capacity(SAMPLES);
        let mut test = Self {
            before,
            after,
            to_skip: WARM_UP,
            applied: false,
            outcome: None,
            undone: false,
        };
        let action = test.apply_when_ready();
        (test, action)
    }

    /// The next token took `us` microseconds in the engine. Times of zero or less, or not finite, are not counted.
    pub fn token(&mut self, us: f64) -> Action {
        if self.outcome.is_some() {
            return Action::Done;
        }
        if !usable(us) {
            return Action::Continue;
        }
        if !self.applied {
            self.before.push(us);
            return self.apply_when_ready();
        }
        if self.to_skip > 0 {
            self.to_skip -= 1;
            return Action::Continue;
        }
        self.after.push(us);
        if self.after.len() < SAMPLES {
            return Action::Continue;
        }
        self.outcome = Outcome::of(&self.before, &self.after);
        Action::Done
    }

    /// Generation ended (end of text, token limit) or restarts: settles with what there is. `None`, and the comparison
    /// goes on, with fewer than 8 tokens after the change.
    pub fn settle(&mut self) -> Option<Outcome> {
        const ENOUGH: usize = 8;
        if self.outcome.is_none() && self.after.len() >= ENOUGH {
            self.outcome = Outcome::of(&self.before, &self.after);
        }
        self.outcome
    }

    /// The change was taken back, measured or not.
    pub fn undo(&mut self) {
        self.settle();
        self.undone = true;
    }

    /// Whether the change is in force (asked for and not taken back).
    pub fn is_applied(&self) -> bool {
        self.applied && !self.undone
    }

    /// The result, once there.
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// For the recommendation. A change undone before it was measured is open again.
    pub fn status(&self) -> RecommendationStatus {
        match self.outcome {
            Some(o) if self.undone => RecommendationStatus::Undone {
                with_tok_s: o.after_tok_s,
                without_tok_s: o.before_tok_s,
            },
            Some(o) => o.applied(),
            None if self.undone => RecommendationStatus::Open,
            None => {
                let skipped = WARM_UP - self.to_skip;
                let done = self.before.len() + skipped + self.after.len();
                RecommendationStatus::Measuring {
                    done: done as u32,
                    total: (2 * SAMPLES + WARM_UP) as u32,
                }
            }
        }
    }

    fn apply_when_ready(&mut self) -> Action {
        if self.before.len() < SAMPLES {
            return Action::Continue;
        }
        self.applied = true;
        Action::Apply
    }
}

fn usable(us: f64) -> bool {
    us.is_finite() && us > 0.0
}

impl Outcome {
    /// `None` when a side is empty. Times are microseconds, finite and positive.
    pub fn of(before: &[f64], after: &[f64]) -> Option<Self> {
        let before_us = quantile(&mut before.to_vec(), 0.5)?;
        let after_us = quantile(&mut after.to_vec(), 0.5)?;
        // Rates are inverse times: after / before in rates is before / after in times.
        let mut ratios: Vec<f64> = before
            .iter()
            .flat_map(|b| after.iter().map(move |a| b / a))
            .collect();
        let range = quantile(&mut ratios, 0.75)? - quantile(&mut ratios, 0.25)?;
        Some(Self {
            before_tok_s: 1e6 / before_us,
            after_tok_s: 1e6 / after_us,
            spread: range / quantile(&mut ratios, 0.5)?,
        })
    }

    /// For a recommendation whose change is in force.
    pub fn applied(&self) -> RecommendationStatus {
        RecommendationStatus::Applied {
            before_tok_s: self.before_tok_s,
            after_tok_s: self.after_tok_s,
            spread: self.spread,
            significant: self.significant(),
        }
    }

    /// Rate after over rate before.
    pub fn ratio(&self) -> f64 {
        self.after_tok_s / self.before_tok_s
    }

    /// Whether the difference, gain or loss, is larger than the spread.
    pub fn significant(&self) -> bool {
        (self.ratio() - 1.0).abs() > self.spread
    }

    /// One sentence for the user.
    pub fn sentence(&self) -> String {
        let Self {
            before_tok_s: before,
            after_tok_s: after,
            spread,
        } = self;
        let figures = format!(
            "{before:.1} -> {after:.1} tok/s ({:+.1}%, spread {:.1}%)",
            (self.ratio() - 1.0) * 100.0,
            spread * 100.0
        );
        if !self.significant() {
            format!("{figures}: no difference beyond the spread")
        } else if self.ratio() > 1.0 {
            format!("{figures}: faster")
        } else {
            format!("{figures}: slower, undo it")
        }
    }
}

/// Linear interpolation between order statistics; sorts `values`. `None` when empty.
fn quantile(values: &mut [f64], q: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let at = q * values.len().checked_sub(1)? as f64;
    let (low, high) = (
        *values.get(at.floor() as usize)?,
        *values.get(at.ceil() as usize)?,
    );
    Some(low + (high - low) * at.fract())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Times around `mean`, up to `noise` away, in a fixed pattern.
    fn times(mean: f64, noise: f64) -> impl DoubleEndedIterator<Item = f64> + Clone {
        (0..SAMPLES as u32).map(move |i| mean * (1.0 + noise * (f64::from(i * 7 % 16) / 7.5 - 1.0)))
    }

    fn measure(
        before: impl DoubleEndedIterator<Item = f64>,
        after: impl Iterator<Item = f64>,
    ) -> AbTest {
        let (mut test, action) = AbTest::start(before);
        assert_eq!(action, Action::Apply);
        for _ in 0..WARM_UP {
            // A thousand times slower: it would show if it were counted.
            assert_eq!(test.token(1e7), Action::Continue);
        }
        let actions: Vec<_> = after.map(|us| test.token(us)).collect();
        assert_eq!(actions.last(), Some(&Action::Done));
        assert!(actions.iter().rev().skip(1).all(|a| *a == Action::Continue));
        test
    }

    #[test]
    fn a_clear_gain_is_significant() {
        let test = measure(times(1000.0, 0.02), times(600.0, 0.02));
        let o = test.outcome().expect("measured");
        assert!(
            (o.ratio() - 1.0 / 0.6).abs() < 0.02 && o.significant(),
            "{o:?}"
        );
        assert!(o.sentence().ends_with(": faster"), "{}", o.sentence());
        assert!(matches!(
            test.status(),
            RecommendationStatus::Applied {
                significant: true,
                ..
            }
        ));
    }

    #[test]
    fn no_gain_and_a_loss_are_said_as_they_are() {
        let o = measure(times(1000.0, 0.05), times(990.0, 0.05))
            .outcome()
            .expect("measured");
        assert!(!o.significant());
        assert!(
            o.sentence().ends_with("no difference beyond the spread"),
            "{}",
            o.sentence()
        );
        let o = measure(times(1000.0, 0.01), times(1300.0, 0.01))
            .outcome()
            .expect("measured");
        assert!(o.significant());
        assert_eq!(
            o.sentence(),
            "1000.0 -> 769.2 tok/s (-23.1%, spread 1.3%): slower, undo it"
        );
    }

    #[test]
    fn missing_samples_are_collected_before_the_change() {
        let (mut test, action) = AbTest::start([1000.0; 10].into_iter());
        assert_eq!(action, Action::Continue);
        assert!(!test.is_applied());
        assert_eq!(
            test.status(),
            RecommendationStatus::Measuring {
                done: 10,
                total: 68
            }
        );
        for _ in 0..SAMPLES - 11 {
            assert_eq!(test.token(1000.0), Action::Continue);
        }
        assert_eq!(test.token(1000.0), Action::Apply);
        assert!(test.is_applied());
        assert_eq!(
            test.status(),
            RecommendationStatus::Measuring {
                done: 32,
                total: 68
            }
        );
        for i in 0..WARM_UP + SAMPLES {
            let last = i + 1 == WARM_UP + SAMPLES;
            assert_eq!(
                test.token(1000.0),
                if last { Action::Done } else { Action::Continue }
            );
        }
        assert_eq!(test.token(1.0), Action::Done);
        assert!(
            test.outcome()
                .is_some_and(|o| o.ratio() == 1.0 && o.spread == 0.0 && !o.significant())
        );
    }

    #[test]
    fn only_the_newest_samples_count() {
        let old = [9000.0; 40].into_iter();
        let test = measure(old.chain(times(1000.0, 0.0)), times(500.0, 0.0));
        assert!(
            test.outcome()
                .is_some_and(|o| (o.before_tok_s - 1000.0).abs() < 1e-9)
        );
    }

    #[test]
    fn undoing_keeps_what_was_measured() {
        let mut test = measure(times(1000.0, 0.0), times(500.0, 0.0));
        test.undo();
        assert_eq!(
            test.status(),
            RecommendationStatus::Undone {
                with_tok_s: 2000.0,
                without_tok_s: 1000.0
            }
        );
        assert!(!test.is_applied());

        let (mut early, _) = AbTest::start(times(1000.0, 0.0));
        early.token(1.0);
        early.undo();
        assert_eq!(early.status(), RecommendationStatus::Open);
    }

    #[test]
    fn an_early_end_settles_with_eight_tokens_and_not_with_seven() {
        let (mut test, _) = AbTest::start(times(1000.0, 0.0));
        for _ in 0..WARM_UP + 7 {
            test.token(500.0);
        }
        assert_eq!(test.settle(), None);
        test.token(500.0);
        assert!(test.settle().is_some_and(|o| o.after_tok_s == 2000.0));
    }

    #[test]
    fn useless_times_are_not_counted() {
        let bad = [0.0, -1.0, f64::NAN, f64::INFINITY];
        let (mut test, _) = AbTest::start(bad.into_iter());
        bad.iter()
            .for_each(|us| assert_eq!(test.token(*us), Action::Continue));
        assert_eq!(
            test.status(),
            RecommendationStatus::Measuring { done: 0, total: 68 }
        );
    }

    proptest! {
        #[test]
        fn figures_are_finite_and_the_ratio_is_of_medians(
            before in prop::collection::vec(1.0f64..1e6, SAMPLES),
            after in prop::collection::vec(1.0f64..1e6, SAMPLES),
        ) {
            let o = measure(before.iter().copied(), after.iter().copied()).outcome().unwrap();
            prop_assert!(o.before_tok_s.is_finite() && o.after_tok_s.is_finite());
            prop_assert!(o.spread.is_finite() && o.spread >= 0.0);
            prop_assert!(before.iter().any(|us| 1e6 / us <= o.before_tok_s) && before.iter().any(|us| 1e6 / us >= o.before_tok_s));
        }
    }
}
