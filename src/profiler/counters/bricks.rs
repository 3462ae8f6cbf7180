//! Counts by brick: one reading at each boundary between two bricks of a sampled step.

use super::group::{Counted, Group, MAX_EVENTS};
use super::threads::ratio;
use crate::model::brick::BrickId;
use crate::profiler::figures::BrickCounters;
use std::sync::Arc;

/// Adds up what one thread counts in each brick. A boundary costs a system call, which is much for a
/// brick of twenty: so some steps are sampled, not all, and their times are not those of the others. The counts are of user
/// code, so the reading itself adds only some instructions. Nothing is allocated after [`super::ThreadGroups::brick_sampler`].
#[derive(Debug)]
pub struct BrickSampler {
    group: Arc<Group>,
    /// The last boundary; `None` between two sampled steps.
    last: Option<Counted>,
    sums: Box<[Sum; BrickId::COUNT]>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    calls: u64,
    values: [Option<u64>; MAX_EVENTS],
}

impl Sum {
    fn add(&mut self, counted: &Counted) {
        self.calls += 1;
        for (sum, value) in self.values.iter_mut().zip(counted.values) {
            if let Some(value) = value {
                *sum = Some(sum.unwrap_or(0).saturating_add(value));
            }
        }
    }
}

impl BrickSampler {
    pub(super) fn new(group: Arc<Group>) -> Self {
        Self {
            group,
            last: None,
            sums: Box::new([Sum::default(); BrickId::COUNT]),
        }
    }

    /// A sampled step begins, or goes on after a pause: what was counted before belongs to no brick.
    #[inline]
    pub fn start(&mut self) {
        self.last = self.group.read().ok();
    }

    /// What was counted since the last boundary was `id`'s: its work is over, or a barrier for [`BrickId::Sync`]. Without a
    /// [`Self::start`] before it, nothing happens.
    #[inline]
    pub fn boundary(&mut self, id: BrickId) {
        let Some(last) = self.last else { return };
        self.last = self.group.read().ok();
        let counted = self.last.map(|now| now.since(&last));
        // Where the group had no counters, zeroes mean nothing.
        if let Some(counted) = counted.filter(|c| c.running_ns > 0)
            && let Some(sum) = self.sums.get_mut(id as usize)
        {
            sum.add(&counted);
        }
    }

    /// The sampled step is over, or pauses: boundaries count nothing until the next [`Self::start`].
    #[inline]
    pub fn stop(&mut self) {
        self.last = None;
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.last = None;
        self.sums.fill(Sum::default());
    }

    /// Figures of the bricks sampled, in the order they run. The counts of a brick cover the same time, so their ratios need no
    /// scaling.
    pub fn figures(&self) -> Vec<BrickCounters> {
        let row = |(&id, sum): (&BrickId, &Sum)| {
            let [cycles, instructions, _, cache_misses, _, branch_misses] = sum.values;
            let in_a_thousand =
                |misses: Option<u64>| ratio(misses, instructions).map(|share| share * 1e3);
            BrickCounters {
                id,
                calls: sum.calls,
                ipc: ratio(instructions, cycles),
                cache_mpki: in_a_thousand(cache_misses),
                branch_mpki: in_a_thousand(branch_misses),
            }
        };
        let sampled = BrickId::ALL.iter().zip(self.sums.iter());
        sampled.filter(|(_, sum)| sum.calls > 0).map(row).collect()
    }

    /// Calls and sums of one brick.
    #[cfg(test)]
    pub(super) fn sum(&self, id: BrickId) -> (u64, [Option<u64>; MAX_EVENTS]) {
        let sum = self.sums[id as usize];
        (sum.calls, sum.values)
    }

    #[cfg(test)]
    pub(super) fn add(&mut self, id: BrickId, counted: &Counted) {
        self.sums[id as usize].add(counted);
    }
}
