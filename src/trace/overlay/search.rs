//! How large a change must be: doubled until it does what it should, then halved back to the smallest that does.

use crate::trace::readout::Standing;

/// Largest number of doublings, from a tenth of what the block adds anyway: to 400 times that.
const DOUBLINGS: u32 = 12;
/// Halvings of the last interval: the size is then within a 16th of it.
const HALVINGS: u32 = 4;
/// Sizes in a row that do worse than the best so far, after which larger ones are not tried.
const FALLS: u32 = 3;

/// What a change is to do to a token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Goal {
    /// Rank 1 with at least this probability.
    Say(f64),
    /// Any other rank, with at most this probability.
    Silence(f64),
}

impl Goal {
    /// Whether it is reached.
    pub fn met(self, s: &Standing) -> bool {
        match self {
            Self::Say(prob) => s.rank == 1 && s.prob >= prob,
            Self::Silence(prob) => s.rank > 1 && s.prob <= prob,
        }
    }

    /// Whether what matters of it is reached: the rank.
    pub fn ranked(self, s: &Standing) -> bool {
        // Not a number has no larger ones above it.
        s.prob.is_finite()
            && match self {
                Self::Say(_) => s.rank == 1,
                Self::Silence(_) => s.rank > 1,
            }
    }

    /// The larger, the nearer.
    pub fn score(self, s: &Standing) -> f64 {
        if !s.prob.is_finite() {
            return f64::NEG_INFINITY;
        }
        let rank = if self.ranked(s) { 1.0 } else { 0.0 };
        match self {
            Self::Say(_) => rank + s.prob,
            Self::Silence(_) => rank - s.prob,
        }
    }
}

/// A size that was tried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tried {
    pub size: f64,
    pub standing: Standing,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Next {
    /// Try this size, and tell.
    Try(f64),
    /// The search is over.
    Over,
}

/// A search along one direction.
#[derive(Debug, Clone)]
pub(super) struct Search {
    goal: Goal,
    next: f64,
    doublings: u32,
    halvings: u32,
    falls: u32,
    /// The largest size that did not do and the smallest that did.
    low: f64,
    high: Option<Tried>,
    best: Option<Tried>,
}

impl Search {
    /// From a first size, larger than 0.
    pub fn new(goal: Goal, first: f64) -> Self {
        Self {
            goal,
            next: first,
            doublings: 0,
            halvings: 0,
            falls: 0,
            low: 0.0,
            high: None,
            best: None,
        }
    }

    /// The size to try.
    pub fn next(&self) -> Next {
        let over = match self.high {
            Some(_) => self.halvings > HALVINGS,
            None => self.doublings > DOUBLINGS || self.falls >= FALLS,
        };
        if over || !self.next.is_finite() {
            Next::Over
        } else {
            Next::Try(self.next)
        }
    }

    /// Takes in where the token stands with the size just tried.
    pub fn tell(&mut self, standing: Standing) {
        let tried = Tried {
            size: self.next,
            standing,
        };
        let score = self.goal.score(&standing);
        let best = self.best.map(|best| self.goal.score(&best.standing));
        match best {
            Some(best) if score < best => self.falls += 1,
            // A probability of 1 may stay 1 for a while.
            Some(best) if score == best => {}
            _ => {
                self.falls = 0;
                self.best = Some(tried);
            }
        }
        if self.goal.met(&standing) {
            self.high = Some(tried);
        } else {
            self.low = tried.size;
        }
        match self.high {
            Some(high) => {
                self.halvings += 1;
                self.next = f64::midpoint(self.low, high.size);
            }
            None => {
                self.doublings += 1;
                self.next *= 2.0;
            }
        }
    }

    /// The smallest size that did it, else the best one; `None` where none was sound.
    pub fn found(&self) -> Option<Tried> {
        let sound = |t: &Tried| t.standing.prob.is_finite();
        self.high.or(self.best).filter(sound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn standing(rank: u32, prob: f64) -> Standing {
        Standing {
            rank,
            prob,
            logit: 0.0,
        }
    }

    fn run(search: &mut Search, f: impl Fn(f64) -> Standing) -> u32 {
        let mut passes = 0;
        while let Next::Try(size) = search.next() {
            search.tell(f(size));
            passes += 1;
        }
        passes
    }

    #[test]
    fn a_goal_out_of_reach_leaves_the_best() {
        let mut search = Search::new(Goal::Say(0.9), 1.0);
        // Rises to 0.5 at 8 and falls behind it.
        let f = |s: f64| standing(if s > 4.0 { 1 } else { 3 }, 0.5 - (s - 8.0).abs() / 1e3);
        let passes = run(&mut search, f);
        assert_eq!(search.found().expect("the best").size, 8.0);
        assert_eq!(passes, 7);
        let mut search = Search::new(Goal::Say(0.9), 1.0);
        run(&mut search, |_| standing(1, f64::NAN));
        assert!(search.found().is_none());
    }

    #[test]
    fn not_a_number_reaches_nothing() {
        let nan = standing(1, f64::NAN);
        for goal in [Goal::Say(0.9), Goal::Silence(0.01)] {
            assert!(!goal.met(&nan) && !goal.ranked(&nan));
            assert_eq!(goal.score(&nan), f64::NEG_INFINITY);
        }
    }

    proptest! {
        #[test]
        fn the_smallest_size_that_does_is_found(at in 0.5f64..3000.0) {
            let mut search = Search::new(Goal::Silence(0.01), 1.0);
            let f = |s: f64| if s >= at { standing(2, 0.005) } else { standing(1, 0.9) };
            let passes = run(&mut search, f);
            let found = search.found().expect("found");
            prop_assert!(found.size >= at && found.size <= (at * 1.07).max(1.0));
            prop_assert!(passes <= DOUBLINGS + HALVINGS + 2);
        }
    }
}
