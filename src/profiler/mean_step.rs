//! The mean decode step, thread by thread: what the critical path is found on, so that it does not jump from token to token.

use super::recorder::{StepRecord, StepRecorder, WorkerLane};
use crate::profiler::figures::StepTrace;

/// Sums of the threads' work in decode steps of one shape. Adding a step allocates nothing once the first has been added.
#[derive(Debug, Clone, Default)]
pub struct MeanStep {
    steps: u64,
    /// Bricks of the plan in the steps, as events number them; sampling and the like are theirs, not the threads'.
    shape: Vec<Option<u32>>,
    /// Ticks of work, `[thread][event]`.
    work: Vec<Vec<u64>>,
    wall: u64,
}

impl MeanStep {
    /// Adds the step that `recorder` ended last. One of another shape (another plan, fewer threads) starts afresh.
    pub fn add(&mut self, recorder: &StepRecorder) {
        let (record, lanes) = (recorder.last(), recorder.lanes());
        if !self.has_shape_of(record, lanes) {
            self.start(record, lanes);
        }
        self.steps += 1;
        self.wall = self.wall.saturating_add(record.wall);
        let Some((driver, workers)) = self.work.split_first_mut() else {
            return;
        };
        for (sum, event) in driver.iter_mut().zip(record.events()) {
            *sum = sum.saturating_add(event.work_ticks);
        }
        for (sums, lane) in workers.iter_mut().zip(lanes) {
            let mut at = 0;
            for span in lane.spans() {
                // Both are in the order of the plan.
                let Some(found) = self.shape[at..].iter().position(|b| *b == Some(span.brick))
                else {
                    break;
                };
                at += found;
                sums[at] = sums[at].saturating_add(span.end - span.start);
                at += 1;
            }
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn has_shape_of(&self, record: &StepRecord, lanes: &[WorkerLane]) -> bool {
        self.steps > 0
            && self.work.len() == lanes.len() + 1
            && self.shape.len() == record.events().len()
            && self
                .shape
                .iter()
                .zip(record.events())
                .all(|(b, e)| *b == e.brick)
    }

    fn start(&mut self, record: &StepRecord, lanes: &[WorkerLane]) {
        self.shape = record.events().iter().map(|e| e.brick).collect();
        self.work = vec![vec![0; self.shape.len()]; lanes.len() + 1];
        (self.steps, self.wall) = (0, 0);
    }

    /// The mean step, in the form of `last`, a trace of a step of this shape: its events, with mean times of work, as if
    /// nobody had waited; starts are those of `last`. `None` without steps or for a trace of another shape.
    pub fn trace(&self, last: &StepTrace, us_per_tick: f64) -> Option<StepTrace> {
        let fits = self.steps > 0
            && last.threads.len() == self.work.len()
            && last.events.len() == self.shape.len();
        if !fits {
            return None;
        }
        let mean = |sum: u64| sum as f64 * us_per_tick / self.steps as f64;
        let mut trace = last.clone();
        trace.wall_us = mean(self.wall);
        for (event, sum) in trace.events.iter_mut().zip(&self.work[0]) {
            event.work_us = mean(*sum);
        }
        for (thread, sums) in trace.threads.iter_mut().zip(&self.work) {
            for span in &mut thread.spans {
                span.work_us = sums.get(span.event as usize).copied().map_or(0.0, mean);
            }
            thread.work_us = thread.spans.iter().map(|s| s.work_us).sum();
        }
        Some(trace)
    }
}
