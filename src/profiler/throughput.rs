//! Whether decode slows down during a run: heat, other programs, or a context that grows.

/// Tokens that a median is of. Odd, so that it is one of them.
const WINDOW: usize = 17;

/// The median rate of a run's first tokens against that of its newest. Preallocated; feeding it allocates nothing.
#[derive(Debug, Clone, Default)]
pub struct ThroughputDrop {
    first: [f64; WINDOW],
    last: [f64; WINDOW],
    tokens: usize,
    highest: Option<f64>,
}

impl ThroughputDrop {
    /// Adds a decoded token, which took `us` microseconds inside the engine. What is no time is left out.
    pub fn add(&mut self, us: f64) {
        if !us.is_finite() || us <= 0.0 {
            return;
        }
        match self.first.get_mut(self.tokens) {
            Some(slot) => *slot = us,
            None => self.last[self.tokens % WINDOW] = us,
        }
        self.tokens = self.tokens.saturating_add(1);
        if self.tokens >= 2 * WINDOW {
            let drop = 1.0 - median(self.first) / median(self.last);
            self.highest = Some(self.highest.unwrap_or(0.0).max(drop));
        }
    }

    /// The highest drop of the run so far, 0 to 1; `None` before there are two windows of tokens to compare.
    pub fn highest(&self) -> Option<f64> {
        self.highest
    }

    /// A new run begins.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

fn median(mut us: [f64; WINDOW]) -> f64 {
    us.sort_unstable_by(f64::total_cmp);
    us[WINDOW / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(us: impl IntoIterator<Item = f64>) -> Option<f64> {
        let mut drop = ThroughputDrop::default();
        us.into_iter().for_each(|us| drop.add(us));
        drop.highest()
    }

    #[test]
    fn nothing_is_known_before_two_windows() {
        assert_eq!(after(vec![10.0; 2 * WINDOW - 1]), None);
        assert_eq!(after(vec![10.0; 2 * WINDOW]), Some(0.0));
        assert_eq!(after(vec![f64::NAN; 100]), None);
        assert_eq!(after(vec![0.0; 100]), None);
    }

    #[test]
    fn a_rate_halved_is_a_drop_of_half_and_stays() {
        let halved = vec![10.0; 50].into_iter().chain(vec![20.0; 50]);
        assert_eq!(after(halved.clone()), Some(0.5));
        assert_eq!(after(halved.chain(vec![10.0; 50])), Some(0.5));
    }

    #[test]
    fn neither_growth_nor_a_slow_token_is_a_drop() {
        assert_eq!(
            after(vec![20.0; 50].into_iter().chain(vec![10.0; 50])),
            Some(0.0)
        );
        let hiccups = (0..200).map(|i| if i % 5 == 0 { 900.0 } else { 10.0 });
        assert_eq!(after(hiccups), Some(0.0));
        let mut drop = ThroughputDrop::default();
        (0..40).for_each(|_| drop.add(1.0));
        drop.clear();
        assert_eq!(drop.highest(), None);
    }
}
