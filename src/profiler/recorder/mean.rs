//! The mean decode step, thread by thread: what the critical path is found on, so that it does not jump from token to token.
//! Every thread sums its own work as it records, where the figures are at hand.

use super::StepRecorder;
use crate::engine::StepKind;
use crate::profiler::figures::StepTrace;

/// Thread 0's sums over decode steps, ticks.
#[derive(Debug, Default)]
pub(super) struct Sums {
    steps: u64,
    wall: u64,
    /// By brick of the plan.
    bricks: Vec<u64>,
    /// What is not in the plan: sampling.
    outside: u64,
}

impl Sums {
    pub(super) fn new(bricks: usize) -> Self {
        Self {
            bricks: vec![0; bricks],
            ..Self::default()
        }
    }

    #[inline]
    pub(super) fn add(&mut self, brick: Option<u32>, ticks: u64) {
        let sum = match brick {
            Some(brick) => self.bricks.get_mut(brick as usize),
            None => Some(&mut self.outside),
        };
        if let Some(sum) = sum {
            *sum = sum.saturating_add(ticks);
        }
    }

    pub(super) fn end_step(&mut self, wall: u64) {
        self.steps += 1;
        self.wall = self.wall.saturating_add(wall);
    }

    fn of(&self, brick: Option<u32>) -> u64 {
        match brick {
            Some(brick) => self.bricks.get(brick as usize).copied().unwrap_or(0),
            None => self.outside,
        }
    }
}

impl StepRecorder {
    /// Forgets the decode steps that the mean is of.
    pub fn clear_mean(&mut self) {
        self.mean = Sums::new(self.mean.bricks.len());
        for lane in &mut self.lanes {
            lane.clear_sums();
        }
    }

    /// The mean decode step so far, in the form of `last`, the trace of one: its events, with mean times of work, as if nobody
    /// had waited; starts are those of `last`. `None` without decode steps, or where `last` is another kind of step.
    pub fn mean_trace(&self, last: &StepTrace) -> Option<StepTrace> {
        let steps = self.mean.steps;
        if steps == 0 || last.kind != StepKind::Decode || last.threads.len() != self.lanes.len() + 1
        {
            return None;
        }
        let clock = self.record.clock;
        let mean = |sum: u64| clock.us(sum) / steps as f64;
        let mut trace = last.clone();
        trace.wall_us = mean(self.mean.wall);
        for event in &mut trace.events {
            event.work_us = mean(self.mean.of(event.brick));
        }
        for (number, thread) in trace.threads.iter_mut().enumerate() {
            let lane = number.checked_sub(1).and_then(|i| self.lanes.get(i));
            for span in &mut thread.spans {
                let brick = last.events.get(span.event as usize).and_then(|e| e.brick);
                span.work_us = mean(match (lane, brick) {
                    (Some(lane), Some(brick)) => lane.sum(brick),
                    _ => self.mean.of(brick),
                });
            }
            thread.work_us = thread.spans.iter().map(|s| s.work_us).sum();
        }
        Some(trace)
    }
}
