//! The step recorder: thread 0 stamps every brick into preallocated memory; no allocation, no lock, one branch when off.
//!
//! ```
//! # use cbtop::{engine::StepKind, model::{brick::BrickId, work::Work}, profiler::{Clock, StepRecorder}};
//! let mut rec = StepRecorder::new(Clock::modelled(), 1024);
//! rec.begin_step(StepKind::Decode, 0, 1);
//! let t = rec.start();
//! // ... thread 0's part of the work ...
//! let t = rec.worked(t, BrickId::QProj, 0, Work { elements: 64, bytes: 4096, flops: 8192 });
//! // ... the barrier ...
//! let t = rec.synced(t); // also the start of a brick that follows at once
//! rec.worked(t, BrickId::Rope, 0, Work::default());
//! let step = rec.end_step();
//! assert_eq!(step.events().len(), 2);
//! ```
//! The engine's code is the same for measured and modelled clocks: modelled time advances in `worked`, by the cost of
//! the [`Work`] handed over, and stands still otherwise, so barriers cost nothing in it.

mod lane;
mod mean;
mod trace;

pub use lane::{Span, WorkerLane};

use super::clock::Clock;
use crate::engine::{Call, Observer, StepKind, SyncMode, Ticks};
use crate::model::brick::BrickId;
use crate::model::work::Work;
use crate::profiler::counters::{BrickSampler, thread_id};
use crate::profiler::figures::{BrickCounters, StepTrace};
use lane::Cores;
use mean::Sums;

/// Counters are read by brick in one of so many decode steps: a reading is a system call.
const SAMPLE_EVERY: u64 = 64;

/// One timed call. Times are ticks of the record's clock; `start` counts from the start of the step, pauses left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Which brick.
    pub id: BrickId,
    /// Its layer, or [`NO_LAYER`].
    pub layer: u16,
    /// From the start of the step.
    pub start: u64,
    /// Own work.
    pub work_ticks: u64,
    /// Waiting at the barrier after it.
    pub sync_ticks: u64,
    /// What it did, all threads together.
    pub work: Work,
    /// Its place in the plan; `None` for what is not in it.
    pub brick: Option<u32>,
    /// Whether all threads wait for each other after it.
    pub barrier: bool,
    /// Pieces of work that thread 0 took.
    pub pieces: u16,
    /// Of them those that an even split would have given to another thread.
    pub stolen: u16,
    core: u16,
}

/// One step, brick by brick, in the order they ran.
#[derive(Debug, Clone)]
pub struct StepRecord {
    /// Decode or prefill.
    pub kind: StepKind,
    /// Position of the (last) token of the step.
    pub position: u32,
    /// Tokens in the step.
    pub tokens: u32,
    /// Wall time without pauses, ticks; 0 until the step has ended.
    pub wall: u64,
    /// Sum of the events' own work, ticks.
    pub work: u64,
    /// Sum of the events' waiting, ticks.
    pub sync: u64,
    /// Scores, softmax and weighted values inside attention on thread 0, ticks.
    pub attention: [u64; 3],
    /// From the step's begin to its first call: waking the other threads, ticks.
    pub launch: u64,
    /// From the last call of the plan to the one after it: the other threads come to their end, ticks.
    pub join: u64,
    /// Wall time that none of these accounts for, ticks; never negative.
    pub unattributed: u64,
    /// Whether counters were read at its boundaries: its times are then not those of other steps.
    pub sampled: bool,
    /// Calls that did not fit into the memory set aside; their time is in `unattributed`.
    pub dropped: u64,
    clock: Clock,
    begin: u64,
    /// End of the last call and its waiting, from the step's begin.
    last_end: u64,
    cores: Cores,
    events: Vec<Event>,
}

impl Event {
    /// Core (logical CPU) of thread 0 at its end, where the clock tells.
    pub fn core(&self) -> Option<u32> {
        lane::core(self.core)
    }
}

impl StepRecord {
    /// The timed calls in execution order.
    #[inline]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The clock that the ticks belong to.
    #[inline]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Wall time without pauses, microseconds.
    #[inline]
    pub fn wall_us(&self) -> f64 {
        self.clock.us(self.wall)
    }

    /// When the step began, microseconds of the clock, pauses left out.
    pub fn begin_us(&self) -> f64 {
        self.clock.us(self.begin)
    }

    /// Bytes that the step's bricks moved.
    pub fn bytes(&self) -> u64 {
        self.events
            .iter()
            .fold(0, |sum, e| sum.saturating_add(e.work.bytes))
    }

    /// Times that thread 0 was seen on another core than at the brick before.
    pub fn migrations(&self) -> u32 {
        self.cores.migrations()
    }
}

/// Records steps of one engine; used by the thread that drives it.
#[derive(Debug)]
pub struct StepRecorder {
    record: StepRecord,
    /// Those of threads 1, 2 and so on; away while a dispatch runs.
    lanes: Vec<WorkerLane>,
    /// The system's id of the thread that drives the engine, once it has.
    os_thread: Option<i32>,
    mode: SyncMode,
    /// Reads counters at the boundaries of every so many decode steps, where there are counters.
    sampler: Option<BrickSampler>,
    decode_steps: u64,
    sampling: bool,
    /// Sums of decode steps, and whether the step in progress is one.
    mean: Sums,
    summing: bool,
    enabled: bool,
    in_step: bool,
    /// Modelled time so far, ticks.
    virtual_now: u64,
    /// Measured time spent in pauses so far, ticks; taken off every stamp, so that stamps tell time of the step.
    paused: u64,
    paused_since: Option<u64>,
}

impl StepRecorder {
    /// A recorder that holds `max_events_per_step` calls (bricks a layer x layers + those outside layers). Recording is on.
    pub fn new(clock: Clock, max_events_per_step: usize) -> Self {
        let record = StepRecord {
            kind: StepKind::Decode,
            position: 0,
            tokens: 0,
            wall: 0,
            work: 0,
            sync: 0,
            attention: [0; 3],
            launch: 0,
            join: 0,
            unattributed: 0,
            sampled: false,
            dropped: 0,
            clock,
            begin: 0,
            last_end: 0,
            cores: Cores::default(),
            events: Vec::with_capacity(max_events_per_step),
        };
        Self {
            record,
            lanes: Vec::new(),
            os_thread: None,
            mode: SyncMode::Deferred,
            sampler: None,
            decode_steps: 0,
            sampling: false,
            mean: Sums::default(),
            summing: false,
            enabled: true,
            in_step: false,
            virtual_now: 0,
            paused: 0,
            paused_since: None,
        }
    }

    /// How threads are kept in step; with [`SyncMode::None`] bricks are not recorded, steps are timed either way. Takes
    /// effect at once, so call it between steps. A modelled recorder goes on recording: without bricks no time would pass.
    pub fn set_mode(&mut self, mode: SyncMode) {
        self.mode = mode;
        self.enabled = mode != SyncMode::None || self.record.clock.is_modelled();
    }

    /// How threads are kept in step.
    pub fn mode(&self) -> SyncMode {
        self.mode
    }

    /// Stamps taken in the last step, all threads together: two a brick, before and after it; that after a barrier is that
    /// before the next brick. Those inside attention, four for a head or a few, are not among them.
    pub fn stamps(&self) -> u64 {
        let spans = self.lanes.iter().map(|lane| lane.spans().len());
        2 * (self.record.events.len() + spans.sum::<usize>()) as u64
    }

    /// Reads `sampler` at every boundary of thread 0 in one of [`SAMPLE_EVERY`] decode steps.
    pub fn set_sampler(&mut self, sampler: Option<BrickSampler>) {
        self.sampler = sampler;
    }

    /// What was counted by brick; empty without a sampler.
    pub fn sampled_bricks(&self) -> Vec<BrickCounters> {
        self.sampler
            .as_ref()
            .map_or_else(Vec::new, BrickSampler::figures)
    }

    /// What the workers recorded, thread 1 first; empty with modelled time.
    pub fn lanes(&self) -> &[WorkerLane] {
        &self.lanes
    }

    /// Times that any thread was seen on another core in the last step; `None` where the clock does not tell.
    pub fn migrations(&self) -> Option<u32> {
        self.record.cores.known()?;
        let workers = self.lanes.iter().map(WorkerLane::migrations);
        Some(workers.fold(self.record.migrations(), u32::saturating_add))
    }

    /// The system's ids of the threads, that which drives the engine first; those that have not run yet are left out.
    pub fn os_threads(&self) -> Vec<i32> {
        let workers = self.lanes.iter().map(WorkerLane::os_thread);
        std::iter::once(self.os_thread)
            .chain(workers)
            .flatten()
            .collect()
    }

    /// The clock in use.
    #[inline]
    pub fn clock(&self) -> Clock {
        self.record.clock
    }

    /// Starts a step; one that is still open is dropped. `position` is that of the step's last token.
    pub fn begin_step(&mut self, kind: StepKind, position: u32, tokens: u32) {
        self.resume();
        self.in_step = true;
        if self.os_thread.is_none() {
            self.os_thread = Some(thread_id());
        }
        self.decode_steps += u64::from(kind == StepKind::Decode);
        self.sampling = false;
        self.record.sampled = false;
        if let Some(sampler) = self.sampler.as_mut().filter(|_| {
            kind == StepKind::Decode
                && self.enabled
                && self.decode_steps.is_multiple_of(SAMPLE_EVERY)
        }) {
            self.sampling = true;
            self.record.sampled = true;
            sampler.start();
        }
        self.summing = kind == StepKind::Decode && !self.sampling;
        for lane in &mut self.lanes {
            lane.begin_step(self.summing);
        }
        let begin = self.now();
        let record = &mut self.record;
        record.events.clear();
        record.cores.clear();
        (record.launch, record.join, record.last_end) = (0, 0, 0);
        record.attention = [0; 3];
        (record.kind, record.position, record.tokens) = (kind, position, tokens);
        (
            record.wall,
            record.work,
            record.sync,
            record.unattributed,
            record.dropped,
        ) = (0, 0, 0, 0, 0);
        record.begin = begin;
    }

    /// Ticks now, pauses left out; stands still while paused.
    #[inline]
    pub fn now(&self) -> u64 {
        if self.record.clock.is_modelled() {
            return self.virtual_now;
        }
        self.paused_since
            .unwrap_or_else(|| self.record.clock.now())
            .saturating_sub(self.paused)
    }

    /// Stamp before a brick; 0 with recording off.
    #[inline]
    pub fn start(&self) -> u64 {
        if self.enabled { self.now() } else { 0 }
    }

    /// Stamp after thread 0's own part of brick `id`, which began at `start` and is not in any plan. Returns the end of the
    /// work.
    #[inline]
    pub fn worked(&mut self, start: u64, id: BrickId, layer: u16, work: Work) -> u64 {
        self.called(start, Call::outside(id, layer, work))
    }

    /// Stamp after thread 0's own part of a call, which began at `start`. Returns the end of the work.
    #[inline]
    pub fn called(&mut self, start: u64, call: Call) -> u64 {
        if !self.enabled {
            return 0;
        }
        let clock = self.record.clock;
        let (end, core) = if clock.is_modelled() {
            let cost = Clock::modelled_cost(call.work.bytes);
            self.virtual_now = self.virtual_now.saturating_add(cost);
            (self.virtual_now, None)
        } else {
            let stamp = clock.stamp();
            (stamp.ticks.saturating_sub(self.paused), stamp.core)
        };
        self.push(call, start, end, end, core);
        self.count(call.id);
        end
    }

    #[inline]
    fn count(&mut self, id: BrickId) {
        if self.sampling
            && let Some(sampler) = &mut self.sampler
        {
            sampler.boundary(id);
        }
    }

    /// Stamp after the barrier that followed the brick last recorded, whose work ended at `work_end`. Returns the
    /// barrier's end, which may serve as the next brick's start.
    #[inline]
    pub fn synced(&mut self, work_end: u64) -> u64 {
        if !self.enabled {
            return 0;
        }
        let end = self.now();
        self.count(BrickId::Sync);
        // When the call did not fit, its waiting must not be charged to the call before it.
        if let Some(last) = self
            .record
            .events
            .last_mut()
            .filter(|_| self.record.dropped == 0)
        {
            let ticks = end.saturating_sub(work_end);
            last.sync_ticks = last.sync_ticks.saturating_add(ticks);
            self.record.sync = self.record.sync.saturating_add(ticks);
            self.record.last_end = end.saturating_sub(self.record.begin);
        }
        end
    }

    /// Records a call from stamps taken with [`StepRecorder::now`]; for code that cannot use `worked` and `synced`.
    /// Advances no modelled time.
    #[inline]
    pub fn record(
        &mut self,
        id: BrickId,
        layer: u16,
        start: u64,
        work_end: u64,
        sync_end: u64,
        work: Work,
    ) {
        if self.enabled {
            let call = Call::outside(id, layer, work);
            self.push(call, start, work_end, sync_end, None);
        }
    }

    #[inline]
    fn push(&mut self, call: Call, start: u64, work_end: u64, sync_end: u64, core: Option<u32>) {
        let record = &mut self.record;
        if record.events.len() == record.events.capacity() {
            record.dropped += 1;
            return;
        }
        // Saturating: stamps of a measured clock may run backward when the thread changes its CPU.
        let work_ticks = work_end.saturating_sub(start);
        let sync_ticks = sync_end.saturating_sub(work_end);
        let start = start.saturating_sub(record.begin);
        let gap = start.saturating_sub(record.last_end);
        match (record.events.last(), call.brick) {
            (None, _) => record.launch = gap,
            (Some(last), None) if last.brick.is_some() => record.join += gap,
            _ => {}
        }
        record.last_end = start.saturating_add(work_ticks).saturating_add(sync_ticks);
        record.work = record.work.saturating_add(work_ticks);
        record.sync = record.sync.saturating_add(sync_ticks);
        let core = record.cores.seen(core);
        if call.id == BrickId::Attention {
            for (sum, ticks) in record.attention.iter_mut().zip(call.done.attention) {
                *sum = sum.saturating_add(ticks);
            }
        }
        if self.summing {
            self.mean.add(call.brick, work_ticks);
        }
        record.events.push(Event {
            id: call.id,
            layer: call.layer,
            start,
            work_ticks,
            sync_ticks,
            work: call.work,
            brick: call.brick,
            barrier: call.barrier,
            pieces: call.done.pieces,
            stolen: call.done.stolen,
            core,
        });
    }

    /// The user stops between two layers: time stands still until [`StepRecorder::resume`]. Calls do not nest.
    pub fn pause(&mut self) {
        if self.paused_since.is_none() {
            self.paused_since = Some(self.record.clock.now());
            // What is counted while time stands still is no brick's.
            self.sampling = false;
        }
    }

    /// Ends a pause, if one is open.
    pub fn resume(&mut self) {
        if let Some(since) = self.paused_since.take() {
            self.paused += self.record.clock.now().saturating_sub(since);
        }
    }

    /// Ends the step and returns it; without a step open, the last one again.
    pub fn end_step(&mut self) -> &StepRecord {
        self.resume();
        if self.in_step {
            self.in_step = false;
            let end = self.now();
            let record = &mut self.record;
            record.wall = end.saturating_sub(record.begin);
            record.unattributed = [record.work, record.sync, record.launch, record.join]
                .into_iter()
                .fold(record.wall, u64::saturating_sub);
            if self.summing {
                self.mean.end_step(self.record.wall);
            }
        }
        &self.record
    }

    /// The step in progress or, between steps, the last one.
    pub fn last(&self) -> &StepRecord {
        &self.record
    }

    /// The step in progress (its wall time so far) or the last one, for showing; `None` before the first brick.
    /// Allocates: for publishing a snapshot, not for the token loop.
    pub fn trace(&self) -> Option<StepTrace> {
        if self.record.events.is_empty() {
            return None;
        }
        let wall = if self.in_step {
            self.now().saturating_sub(self.record.begin)
        } else {
            self.record.wall
        };
        Some(
            self.record
                .trace(wall, (!self.in_step).then_some(&self.lanes)),
        )
    }
}

/// The recorder's clock for what is timed inside a brick; stands still with recording off.
#[derive(Debug, Clone, Copy)]
pub struct InnerClock(Option<Clock>);

impl Ticks for InnerClock {
    #[inline]
    fn ticks(&self) -> u64 {
        self.0.map_or(0, |clock| clock.now())
    }
}

impl Observer for StepRecorder {
    type Lane = WorkerLane;
    type Ticks = InnerClock;

    fn prepare(&mut self, threads: usize, bricks: usize) {
        let clock = self.record.clock;
        // Modelled time knows of one thread only.
        let workers = if clock.is_modelled() {
            0
        } else {
            threads.saturating_sub(1)
        };
        self.mean = Sums::new(bricks);
        self.lanes = (0..workers)
            .map(|_| WorkerLane::new(clock, bricks))
            .collect();
    }

    fn sync_mode(&self) -> SyncMode {
        self.mode
    }

    fn clock(&self) -> InnerClock {
        InnerClock(self.enabled.then_some(self.record.clock))
    }

    fn take_lanes(&mut self) -> Vec<WorkerLane> {
        // Once at least, so that the threads are known.
        let known = |lane: &WorkerLane| lane.os_thread().is_some();
        if !self.enabled && self.lanes.iter().all(known) {
            return Vec::new();
        }
        for lane in &mut self.lanes {
            lane.paused = self.paused;
        }
        std::mem::take(&mut self.lanes)
    }

    fn put_lanes(&mut self, lanes: Vec<WorkerLane>) {
        if !lanes.is_empty() {
            self.lanes = lanes;
        }
    }

    fn begin_step(&mut self, kind: StepKind, position: u32, tokens: u32) {
        self.begin_step(kind, position, tokens);
    }

    #[inline]
    fn start(&self) -> u64 {
        self.start()
    }

    #[inline]
    fn worked(&mut self, start: u64, call: Call) -> u64 {
        self.called(start, call)
    }

    #[inline]
    fn synced(&mut self, work_end: u64) -> u64 {
        self.synced(work_end)
    }

    fn pause(&mut self) {
        self.pause();
    }

    fn resume(&mut self) {
        self.resume();
    }

    fn end_step(&mut self) {
        self.end_step();
    }
}

#[cfg(test)]
mod tests;
