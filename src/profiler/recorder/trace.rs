//! A finished step as plain data, thread by thread.

use super::{Event, StepRecord, WorkerLane};
use crate::engine::NO_LAYER;
use crate::profiler::figures::{StepEvent, StepTrace, ThreadSpan, ThreadTrace};

impl StepRecord {
    /// The step with what thread 0 did and, where they are given, the workers' lanes; `wall` ticks long.
    pub(super) fn trace(&self, wall: u64, lanes: Option<&Vec<WorkerLane>>) -> StepTrace {
        let event = |e: &Event| StepEvent {
            id: e.id,
            layer: (e.layer != NO_LAYER).then_some(u32::from(e.layer)),
            start_us: self.clock.us(e.start),
            work_us: self.clock.us(e.work_ticks),
            sync_us: self.clock.us(e.sync_ticks),
            brick: e.brick,
            barrier: e.barrier,
        };
        let wall_us = self.clock.us(wall);
        let mut threads = Vec::new();
        if let Some(lanes) = lanes {
            threads.push(self.driver(wall_us));
            let workers = lanes.iter().zip(1..);
            threads.extend(workers.map(|(lane, thread)| self.worker(lane, thread, wall_us)));
        }
        StepTrace {
            kind: self.kind,
            position: self.position,
            tokens: self.tokens,
            wall_us,
            events: self.events.iter().map(event).collect(),
            threads,
        }
    }

    fn driver(&self, wall_us: f64) -> ThreadTrace {
        // Modelled time knows nothing of how work was dealt out.
        let dealt = |n: u16| {
            if self.clock.is_modelled() {
                0
            } else {
                n.into()
            }
        };
        let span = |(e, event): (&Event, u32)| ThreadSpan {
            event,
            start_us: self.clock.us(e.start),
            work_us: self.clock.us(e.work_ticks),
            wait_us: self.clock.us(e.sync_ticks),
            core: e.core(),
            pieces: dealt(e.pieces),
            stolen: dealt(e.stolen),
            slack_us: 0.0,
        };
        let spans = self.events.iter().zip(0..).map(span).collect();
        thread(0, spans, self.migrations(), wall_us)
    }

    fn worker(&self, lane: &WorkerLane, number: u32, wall_us: f64) -> ThreadTrace {
        let mut events = self.events.iter().zip(0u32..);
        let spans = lane
            .spans()
            .iter()
            .filter_map(|s| {
                // Both are in the order of the plan.
                let (_, event) = events.find(|(e, _)| e.brick == Some(s.brick))?;
                Some(ThreadSpan {
                    event,
                    start_us: self.clock.us(s.start.saturating_sub(self.begin)),
                    work_us: self.clock.us(s.end - s.start),
                    wait_us: self.clock.us(s.synced - s.end),
                    core: s.core(),
                    pieces: s.pieces.into(),
                    stolen: s.stolen.into(),
                    slack_us: 0.0,
                })
            })
            .collect();
        thread(number, spans, lane.migrations(), wall_us)
    }
}

fn thread(thread: u32, spans: Vec<ThreadSpan>, migrations: u32, wall_us: f64) -> ThreadTrace {
    let sum = |f: fn(&ThreadSpan) -> f64| spans.iter().map(f).sum::<f64>();
    let (work_us, wait_us) = (sum(|s| s.work_us), sum(|s| s.wait_us));
    ThreadTrace {
        thread,
        work_us,
        wait_us,
        idle_us: (wall_us - work_us - wait_us).max(0.0),
        pieces: spans.iter().map(|s| s.pieces).sum(),
        stolen: spans.iter().map(|s| s.stolen).sum(),
        migrations,
        spans,
    }
}
