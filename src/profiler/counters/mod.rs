//! What processor and kernel count for each of the model's threads, through perf_event_open(2).
//!
//! A thread has two groups, opened from outside by its number, so that one thread opens them for all: a hardware group (cycles,
//! instructions, cache, branches; user code only, which needs the fewest rights) and a software group (time on a CPU, page
//! faults, context switches, migrations). A group is one file; reading it is one system call that allocates nothing, and its
//! counts cover the same stretch of time, so that their ratios hold even where the kernel shares the counters out in turns.
//!
//! - [`ThreadGroups`]: the groups of all threads; what cannot be had says why and what to set
//! - [`BrickSampler`]: counts between brick boundaries of one thread
//! - [`CounterWatch`]: threads, bricks and system as [`Counters`], at a bounded cost

mod bricks;
mod group;
mod proc_task;
mod reading;
mod support;
mod threads;

pub use bricks::BrickSampler;
pub use group::{Counted, HARDWARE, Kind, MAX_EVENTS, SOFTWARE, thread_id};
pub use threads::ThreadGroups;

use super::figures::{BrickCounters, Counters};
use super::os::system::{Run, SystemSampler};
use std::time::{Duration, Instant};

/// Least time between two readings of all counters: the system's part opens a few files a CPU and a thread.
const INTERVAL: Duration = Duration::from_secs(1);

/// Threads, bricks and system together.
#[derive(Debug)]
pub struct CounterWatch {
    groups: ThreadGroups,
    system: SystemSampler,
    latest: Option<(Instant, Counters)>,
}

impl CounterWatch {
    /// Counts from now on for the threads `tids`, thread 0 of the engine's pool first.
    pub fn new(tids: &[i32]) -> Self {
        Self {
            groups: ThreadGroups::open(tids),
            system: SystemSampler::new(),
            latest: None,
        }
    }

    /// The threads of a new engine: their counts start afresh, the system's figures go on.
    pub fn watch_threads(&mut self, tids: &[i32]) {
        self.groups = ThreadGroups::open(tids);
        self.latest = None;
    }

    /// The groups, for instance to sample bricks with.
    pub fn groups(&self) -> &ThreadGroups {
        &self.groups
    }

    /// The figures, read at most once a second; in between the last ones. `throughput_drop` is that of the run, see
    /// [`super::throughput::ThroughputDrop`]; `running` tells whether the model works, since an idle machine's low frequency is
    /// nothing to warn of. `bricks` is asked only when there is a new reading.
    pub fn figures(
        &mut self,
        bricks: impl FnOnce() -> Vec<BrickCounters>,
        running: bool,
        throughput_drop: Option<f64>,
    ) -> Counters {
        if let Some((at, latest)) = &self.latest
            && at.elapsed() < INTERVAL
        {
            return latest.clone();
        }
        let counters = self.read(bricks(), running, throughput_drop);
        self.latest = Some((Instant::now(), counters.clone()));
        counters
    }

    fn read(
        &mut self,
        bricks: Vec<BrickCounters>,
        running: bool,
        throughput_drop: Option<f64>,
    ) -> Counters {
        let threads = self.groups.read();
        let cores: Vec<u32> = threads.iter().filter_map(|t| t.core).collect();
        let run = running.then_some(Run {
            cores: &cores,
            throughput_drop,
        });
        let mut counters = Counters {
            hardware: self.groups.hardware().clone(),
            software: self.groups.software().clone(),
            threads,
            bricks,
            system: self.system.figures(run.as_ref()),
            reading: String::new(),
        };
        counters.reading = reading::of(&counters);
        counters
    }
}

#[cfg(test)]
mod tests;
