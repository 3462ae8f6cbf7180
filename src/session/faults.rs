//! Page faults of decode steps.

use crate::profiler::os::{FaultCounter, Faults};
use std::time::{Duration, Instant};

/// Least time between two readings: one costs some 5 us, a token of a small model takes 280.
const READ_EVERY: Duration = Duration::from_millis(100);

/// Counts the faults of decode steps from readings now and then, so that a figure includes what else the process did
/// between the steps.
pub(super) struct StepFaults {
    counter: Option<FaultCounter>,
    /// The reading that steps are counted from; `None` while no step is to be counted.
    base: Option<(Faults, Instant)>,
    /// Decode steps since `base`.
    steps: u64,
    minor_per_step: Option<f64>,
    major: Option<u64>,
}

impl StepFaults {
    /// Counts nothing unless `enabled`.
    pub fn new(enabled: bool) -> Self {
        Self {
            counter: FaultCounter::open().filter(|_| enabled),
            base: None,
            steps: 0,
            minor_per_step: None,
            major: None,
        }
    }

    /// A decode step ended. The first one after an interruption is where counting starts.
    pub fn step(&mut self) {
        if self.base.is_some() {
            self.steps += 1;
        } else if let Some(counter) = &self.counter {
            self.base = counter.read().zip(Some(Instant::now()));
        }
    }

    /// Something else than decode steps comes (another prompt, another engine): its faults do not count.
    pub fn interrupt(&mut self) {
        self.read();
        (self.base, self.steps) = (None, 0);
    }

    /// Statistics start afresh; major faults are kept, they tell of the whole session.
    pub fn clear(&mut self) {
        self.interrupt();
        self.minor_per_step = None;
    }

    /// Reads the counter if the last reading is old enough.
    pub fn refresh(&mut self) {
        let due = |at: Instant| self.minor_per_step.is_none() || at.elapsed() >= READ_EVERY;
        if self.base.is_some_and(|(_, at)| due(at)) {
            self.read();
        }
    }

    /// Minor faults of a decode step: the mean of those between the last two readings.
    pub fn minor_per_step(&self) -> Option<f64> {
        self.minor_per_step
    }

    /// Major faults of all decode steps: those of loading do not count.
    pub fn decode_major(&self) -> Option<u64> {
        self.major
    }

    fn read(&mut self) {
        let (Some(counter), Some((base, _))) = (&self.counter, self.base) else {
            return;
        };
        let Some(now) = counter.read() else { return };
        if self.steps > 0 {
            let minor = now.minor.saturating_sub(base.minor);
            self.minor_per_step = Some(minor as f64 / self.steps as f64);
            let major = now.major.saturating_sub(base.major);
            self.major = Some(self.major.unwrap_or(0) + major);
        }
        (self.base, self.steps) = (Some((now, Instant::now())), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::StepFaults;

    #[test]
    fn faults_are_a_mean_over_the_steps_since_the_last_reading() {
        let mut faults = StepFaults::new(true);
        if faults.counter.is_none() {
            return;
        }
        faults.step();
        faults.refresh();
        assert_eq!(
            (faults.minor_per_step(), faults.decode_major()),
            (None, None)
        );
        // A page touched for the first time is a fault.
        let pages = std::hint::black_box(vec![1u8; 64 << 12]);
        faults.step();
        faults.step();
        faults.refresh();
        drop(pages);
        assert!(
            faults
                .minor_per_step()
                .is_some_and(|f| f.is_finite() && f >= 0.0)
        );
        assert!(faults.decode_major().is_some());
        faults.clear();
        assert_eq!(faults.minor_per_step(), None);
        assert!(faults.decode_major().is_some());
    }

    #[test]
    fn modelled_time_counts_none() {
        let mut faults = StepFaults::new(false);
        (0..3).for_each(|_| faults.step());
        faults.refresh();
        assert_eq!(
            (faults.minor_per_step(), faults.decode_major()),
            (None, None)
        );
    }
}
