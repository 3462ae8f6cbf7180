//! The critical path of a step straight from its threads' stamps, for every snapshot: the same as
//! [`super::ExecutionGraph::schedule`] finds in the graph of the step, without making it.
//!
//! Between two barriers a thread is a chain of shares, and the longest chain counts; the step's path is the sum of these.
//! Only work makes the path. Waiting and gaps are what the stamps say, and are named beside it.

use super::node::GraphError;
use super::path::scale;
use super::step::{lanes, nanos};
use crate::model::brick::BrickId;
use crate::profiler::figures::{StepTrace, ThreadSpan, ThreadTrace};

/// The critical path of a step. `length_us + barrier_us + gap_us` is the step's wall time.
#[derive(Debug, Clone, PartialEq)]
pub struct StepPath {
    /// Work on the longest chain, microseconds.
    pub length_us: f64,
    /// Waiting of the threads on it after their own work: what the barriers themselves take, microseconds.
    pub barrier_us: f64,
    /// The rest of the wall time: before and between the shares on the path, and after the last, microseconds. Below 0 where
    /// shares of two threads on the path overlap by their stamps.
    pub gap_us: f64,
    /// Bricks that ran, in the order of [`BrickId`].
    pub bricks: Vec<BrickPath>,
    /// By thread and span, in their order; with a trace that has no threads, one thread with the events.
    pub spans: Vec<Vec<SpanPath>>,
}

/// A brick and the critical path of a step, microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BrickPath {
    /// Which brick.
    pub id: BrickId,
    /// Its time on the path.
    pub path_us: f64,
    /// Slack of its shares, summed over threads and calls.
    pub slack_us: f64,
    /// How much longer its calls could take on every thread without making the step longer: of each call the share with
    /// the least slack, summed over calls.
    pub call_slack_us: f64,
    /// Length of the path if each of its shares took half its time.
    pub length_if_half_us: f64,
}

/// A share and the critical path.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SpanPath {
    /// How much longer it could have taken without making the path longer, microseconds.
    pub slack_us: f64,
    /// Whether the path goes through it. A share that is not on it may have no slack either, where two chains are equal.
    pub on_path: bool,
}

/// The critical path of a step. O(threads x (events + bricks)).
///
/// # Errors
///
/// [`GraphError::NoEvent`] and [`GraphError::OutOfOrder`].
pub fn threads_critical_path(trace: &StepTrace) -> Result<StepPath, GraphError> {
    let lanes = lanes(trace)?;
    let mut walk = Walk::new(trace, &lanes);
    let barriers = trace.events.iter().enumerate().filter(|(_, e)| e.barrier);
    for (event, _) in barriers {
        walk.segment(event);
    }
    walk.segment(usize::MAX);
    Ok(walk.finish())
}

/// As [`threads_critical_path`], and writes the slack of every span into the trace.
///
/// # Errors
///
/// As there; the trace stays as it was then.
pub fn fill_slack(trace: &mut StepTrace) -> Result<StepPath, GraphError> {
    let path = threads_critical_path(trace)?;
    for (lane, found) in trace.threads.iter_mut().zip(&path.spans) {
        for (span, found) in lane.spans.iter_mut().zip(found) {
            span.slack_us = found.slack_us;
        }
    }
    Ok(path)
}

/// Times of one brick, nanoseconds.
#[derive(Clone, Copy, Default)]
struct Sums {
    ran: bool,
    path: u64,
    slack: u64,
    call_slack: u64,
    /// What the path loses if the brick takes half.
    saved: u64,
}

struct Walk<'a> {
    trace: &'a StepTrace,
    lanes: &'a [ThreadTrace],
    /// By thread: its first span that no segment had yet.
    next: Vec<usize>,
    spans: Vec<Vec<SpanPath>>,
    /// By event: least slack of its shares.
    least: Vec<Option<u64>>,
    bricks: [Sums; BrickId::COUNT],
    length: u64,
    barrier_us: f64,
    /// By thread, of the segment at hand: its spans, their work, and what halving each brick takes off it.
    shares: Vec<Share>,
    /// Bricks of the segment at hand.
    present: Vec<usize>,
}

#[derive(Clone)]
struct Share {
    work: u64,
    halves: [u64; BrickId::COUNT],
    spans: std::ops::Range<usize>,
}

impl<'a> Walk<'a> {
    fn new(trace: &'a StepTrace, lanes: &'a [ThreadTrace]) -> Self {
        let share = Share {
            work: 0,
            halves: [0; BrickId::COUNT],
            spans: 0..0,
        };
        Self {
            trace,
            lanes,
            next: vec![0; lanes.len()],
            spans: lanes
                .iter()
                .map(|l| Vec::with_capacity(l.spans.len()))
                .collect(),
            least: vec![None; trace.events.len()],
            bricks: [Sums::default(); BrickId::COUNT],
            length: 0,
            barrier_us: 0.0,
            shares: vec![share; lanes.len()],
            present: Vec::with_capacity(BrickId::COUNT),
        }
    }

    fn brick(&self, span: &ThreadSpan) -> usize {
        self.trace.events[span.event as usize].id as usize
    }

    /// Takes the spans up to the event that ends the segment.
    fn segment(&mut self, last_event: usize) {
        self.present.clear();
        for thread in 0..self.lanes.len() {
            self.take(thread, last_event);
        }
        let longest = self.shares.iter().map(|s| s.work).max().unwrap_or(0);
        let critical = self.shares.iter().position(|s| s.work == longest);
        self.length = self.length.saturating_add(longest);
        for thread in 0..self.lanes.len() {
            self.judge(thread, longest, critical == Some(thread));
        }
        for &brick in &self.present {
            let left = |s: &Share| s.work - s.halves[brick];
            let longest_then = self.shares.iter().map(left).max().unwrap_or(0);
            let sums = &mut self.bricks[brick];
            sums.ran = true;
            sums.saved = sums.saved.saturating_add(longest - longest_then);
        }
    }

    fn take(&mut self, thread: usize, last_event: usize) {
        let spans = &self.lanes[thread].spans;
        let from = self.next[thread];
        let in_segment = |s: &ThreadSpan| s.event as usize <= last_event;
        let count = spans[from..].iter().take_while(|s| in_segment(s)).count();
        self.next[thread] = from + count;
        let share = &mut self.shares[thread];
        share.spans = from..from + count;
        share.work = 0;
        for i in from..from + count {
            let span = &spans[i];
            let brick = self.brick(span);
            if !self.present.contains(&brick) {
                self.present.push(brick);
                // What an earlier segment left there.
                for share in &mut self.shares {
                    share.halves[brick] = 0;
                }
            }
            let work = nanos(span.work_us);
            let share = &mut self.shares[thread];
            share.work = share.work.saturating_add(work);
            share.halves[brick] = share.halves[brick].saturating_add(work - scale(work, 0.5));
        }
    }

    fn judge(&mut self, thread: usize, longest: u64, on_path: bool) {
        let slack = longest - self.shares[thread].work;
        let found = SpanPath {
            slack_us: slack as f64 * 1e-3,
            on_path,
        };
        for i in self.shares[thread].spans.clone() {
            let span = &self.lanes[thread].spans[i];
            self.spans[thread].push(found);
            let least = &mut self.least[span.event as usize];
            *least = Some(least.map_or(slack, |l| l.min(slack)));
            let brick = self.brick(span);
            let sums = &mut self.bricks[brick];
            sums.slack = sums.slack.saturating_add(slack);
            if on_path {
                sums.path = sums.path.saturating_add(nanos(span.work_us));
                self.barrier_us += span.wait_us;
            }
        }
    }

    fn finish(mut self) -> StepPath {
        for (event, least) in self.trace.events.iter().zip(&self.least) {
            let sums = &mut self.bricks[event.id as usize];
            sums.call_slack = sums.call_slack.saturating_add(least.unwrap_or(0));
        }
        let us = |ns: u64| ns as f64 * 1e-3;
        let bricks = BrickId::ALL
            .iter()
            .zip(&self.bricks)
            .filter(|(_, sums)| sums.ran)
            .map(|(&id, sums)| BrickPath {
                id,
                path_us: us(sums.path),
                slack_us: us(sums.slack),
                call_slack_us: us(sums.call_slack),
                length_if_half_us: us(self.length - sums.saved),
            })
            .collect();
        StepPath {
            length_us: us(self.length),
            barrier_us: self.barrier_us,
            gap_us: self.trace.wall_us - us(self.length) - self.barrier_us,
            bricks,
            spans: self.spans,
        }
    }
}
