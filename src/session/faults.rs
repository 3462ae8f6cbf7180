//! Page faults of decode steps.

use crate::profiler::os::{FaultCounter, Faults};

/// Counts the faults of single steps. Read once a step, so a step's figure includes what the process did between steps.
pub(super) struct StepFaults {
    counter: Option<FaultCounter>,
    first: Option<Faults>,
    last: Option<Faults>,
    of_last_step: Option<u64>,
}

impl StepFaults {
    /// Counts nothing unless `enabled`.
    pub fn new(enabled: bool) -> Self {
        Self {
            counter: FaultCounter::open().filter(|_| enabled),
            first: None,
            last: None,
            of_last_step: None,
        }
    }

    /// A decode step ended.
    pub fn step(&mut self) {
        let now = self.counter.as_ref().and_then(FaultCounter::read);
        self.of_last_step = now
            .zip(self.last)
            .map(|(n, l)| n.minor.saturating_sub(l.minor));
        self.first = self.first.or(now);
        self.last = now;
    }

    /// Minor faults of the last step, once there were two.
    pub fn minor_last_step(&self) -> Option<u64> {
        self.of_last_step
    }

    /// Major faults since the first decode step: those of loading do not count.
    pub fn decode_major(&self) -> Option<u64> {
        let (last, first) = self.last.zip(self.first)?;
        Some(last.major.saturating_sub(first.major))
    }
}
