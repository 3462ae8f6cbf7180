//! One brick's time a step: its spread over steps, and how it went lately.

/// Groups of steps remembered.
const GROUPS: usize = 32;
/// Steps in a group: a group is a point of a sparkline, and single steps jump about.
const GROUP: u32 = 4;

/// Sums one brick's calls into steps. Allocates nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct StepTimes {
    /// Of the step in progress, nanoseconds.
    open: f64,
    last: f64,
    count: u64,
    mean: f64,
    /// Sum of squared distances from the mean (Welford 1962).
    squares: f64,
    groups: [f32; GROUPS],
    /// Groups finished so far.
    finished: usize,
    group_sum: f64,
    group_steps: u32,
}

impl StepTimes {
    #[inline]
    pub(super) fn add(&mut self, ns: f64) {
        self.open += ns;
    }

    #[inline]
    pub(super) fn end_step(&mut self) {
        self.last = std::mem::take(&mut self.open);
        self.count += 1;
        let distance = self.last - self.mean;
        self.mean += distance / self.count as f64;
        self.squares += distance * (self.last - self.mean);
        self.group_sum += self.last;
        self.group_steps += 1;
        if self.group_steps == GROUP {
            self.groups[self.finished % GROUPS] = (self.group_sum / f64::from(GROUP)) as f32;
            self.finished += 1;
            (self.group_sum, self.group_steps) = (0.0, 0);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Of the step last ended, nanoseconds.
    pub(super) fn last_ns(&self) -> f64 {
        self.last
    }

    /// Sample standard deviation over steps, nanoseconds; `None` with fewer than two.
    pub(super) fn stddev_ns(&self) -> Option<f64> {
        (self.count > 1).then(|| (self.squares.max(0.0) / (self.count - 1) as f64).sqrt())
    }

    /// Means of the newest groups of steps, microseconds, newest last.
    pub(super) fn history_us(&self) -> Vec<f64> {
        let kept = self.finished.min(GROUPS);
        (self.finished - kept..self.finished)
            .map(|i| f64::from(self.groups[i % GROUPS]) * 1e-3)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_summed_into_steps() {
        let mut t = StepTimes::default();
        assert_eq!((t.stddev_ns(), t.history_us()), (None, vec![]));
        for step in 0..3 {
            t.add(1000.0);
            t.add(1000.0 + 1000.0 * f64::from(step));
            t.end_step();
        }
        assert_eq!(t.last_ns(), 4000.0);
        assert!((t.stddev_ns().unwrap_or(0.0) - 1000.0).abs() < 1e-9);
    }

    #[test]
    fn history_keeps_the_newest_groups() {
        let mut t = StepTimes::default();
        for step in 0..GROUP * (GROUPS as u32 + 3) {
            t.add(f64::from(step / GROUP) * 1000.0);
            t.end_step();
        }
        let history = t.history_us();
        assert_eq!(history.len(), GROUPS);
        assert_eq!(
            (history[0], history[GROUPS - 1]),
            (3.0, GROUPS as f64 + 2.0)
        );
    }
}
