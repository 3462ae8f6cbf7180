//! What a worker thread records: its own stamps in memory of its own, read by others only between two dispatches.

use crate::engine::{Done, Lane};
use crate::profiler::clock::Clock;
use crate::profiler::counters::thread_id;

/// Core of a span where the clock does not tell.
const NO_CORE: u16 = u16::MAX;

/// One worker's share of a brick, in ticks of the recorder's clock without pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Its place in the plan.
    pub brick: u32,
    /// Start.
    pub start: u64,
    /// End of the thread's own work.
    pub end: u64,
    /// End of the barrier after it; `end` where there is none.
    pub synced: u64,
    /// Pieces of work it took.
    pub pieces: u16,
    /// Of them those that an even split would have given to another thread.
    pub stolen: u16,
    core: u16,
}

impl Span {
    /// Core (logical CPU) at its end, where the clock tells.
    pub fn core(&self) -> Option<u32> {
        core(self.core)
    }
}

pub(super) fn core(core: u16) -> Option<u32> {
    (core != NO_CORE).then_some(core.into())
}

/// Counts how often a thread is seen on another core than before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cores {
    last: u16,
    migrations: u32,
}

impl Default for Cores {
    fn default() -> Self {
        Self {
            last: NO_CORE,
            migrations: 0,
        }
    }
}

impl Cores {
    /// The thread is on `core`, if that is known; returns it in the form spans keep.
    #[inline]
    pub(super) fn seen(&mut self, core: Option<u32>) -> u16 {
        let core = core.and_then(|c| u16::try_from(c).ok()).unwrap_or(NO_CORE);
        if core != self.last {
            self.migrations += u32::from(self.last != NO_CORE && core != NO_CORE);
            self.last = core;
        }
        core
    }

    /// The core last seen, if any.
    pub(super) fn known(&self) -> Option<u32> {
        core(self.last)
    }

    /// Moves so far in this step.
    pub(super) fn migrations(&self) -> u32 {
        self.migrations
    }

    /// A new step: the last core stays.
    pub(super) fn clear(&mut self) {
        self.migrations = 0;
    }
}

/// The recorder of one worker thread. On cache lines of its own: neighbours write at the same time.
#[derive(Debug)]
#[repr(align(128))]
pub struct WorkerLane {
    clock: Clock,
    /// Time spent in pauses before this dispatch, ticks.
    pub(super) paused: u64,
    spans: Vec<Span>,
    /// Work of decode steps so far by brick of the plan, ticks: summed here, where the spans are in the cache.
    sums: Vec<u64>,
    summing: bool,
    dropped: u64,
    cores: Cores,
    /// The system's id of the thread, once it has run.
    os_thread: Option<i32>,
}

impl WorkerLane {
    /// Room for `bricks` spans a step.
    pub(super) fn new(clock: Clock, bricks: usize) -> Self {
        Self {
            clock,
            paused: 0,
            spans: Vec::with_capacity(bricks),
            sums: vec![0; bricks],
            summing: false,
            dropped: 0,
            cores: Cores::default(),
            os_thread: None,
        }
    }

    pub(super) fn begin_step(&mut self, summing: bool) {
        self.summing = summing;
        self.spans.clear();
        self.dropped = 0;
        self.cores.clear();
    }

    /// Work of decode steps so far on brick `brick` of the plan, ticks.
    pub(super) fn sum(&self, brick: u32) -> u64 {
        self.sums.get(brick as usize).copied().unwrap_or(0)
    }

    pub(super) fn clear_sums(&mut self) {
        self.sums.fill(0);
    }

    /// The spans of the step in the order they ran.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Spans that did not fit into the memory set aside.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Moves to another core in the step.
    pub fn migrations(&self) -> u32 {
        self.cores.migrations()
    }

    /// The system's id of the thread; `None` until it has run.
    pub fn os_thread(&self) -> Option<i32> {
        self.os_thread
    }
}

impl Lane for WorkerLane {
    #[inline]
    fn start(&mut self) -> u64 {
        if self.os_thread.is_none() {
            self.os_thread = Some(thread_id());
        }
        self.clock.now().saturating_sub(self.paused)
    }

    #[inline]
    fn worked(&mut self, start: u64, brick: u32, done: Done) -> u64 {
        let stamp = self.clock.stamp();
        let end = stamp.ticks.saturating_sub(self.paused);
        if self.summing
            && let Some(sum) = self.sums.get_mut(brick as usize)
        {
            *sum = sum.saturating_add(end.saturating_sub(start));
        }
        if self.spans.len() == self.spans.capacity() {
            self.dropped += 1;
            return end;
        }
        let core = self.cores.seen(stamp.core);
        self.spans.push(Span {
            brick,
            start,
            end: end.max(start),
            synced: end.max(start),
            pieces: done.pieces,
            stolen: done.stolen,
            core,
        });
        end
    }

    #[inline]
    fn synced(&mut self, work_end: u64) -> u64 {
        let now = self.clock.now().saturating_sub(self.paused);
        // When the span did not fit, its waiting must not be charged to the span before it.
        if let Some(last) = self.spans.last_mut().filter(|_| self.dropped == 0) {
            last.synced = now.max(work_end).max(last.end);
        }
        now
    }
}
