//! Counters of the threads that run the model: opened once these have run, and again with another engine.

use crate::profiler::StepRecorder;
use crate::profiler::counters::CounterWatch;
use crate::profiler::figures::Counters;

/// Opened when there is something to count.
#[derive(Debug, Default)]
pub(super) struct Counting {
    watch: Option<CounterWatch>,
    /// The engine was replaced: its threads are others.
    stale: bool,
    /// Whether anything has been read.
    read: bool,
}

impl Counting {
    /// The engine's threads are others from here on.
    pub fn engine_changed(&mut self) {
        self.stale = true;
    }

    /// Counts from here on, if the engine's threads have run and are not counted yet.
    pub fn open(&mut self, recorder: &mut StepRecorder) {
        if self.watch.is_some() && !self.stale {
            return;
        }
        let threads = recorder.os_threads();
        if threads.len() < recorder.lanes().len() + 1 {
            return;
        }
        self.stale = false;
        let watch = match self.watch.take() {
            None => CounterWatch::new(&threads),
            Some(mut watch) => {
                watch.watch_threads(&threads);
                watch
            }
        };
        recorder.set_sampler(watch.groups().brick_sampler(0));
        self.watch = Some(watch);
    }

    /// The figures, read at most once a second. `None` before the engine's threads have run.
    pub fn figures(
        &mut self,
        recorder: &mut StepRecorder,
        running: bool,
        throughput_drop: Option<f64>,
    ) -> Option<Counters> {
        self.open(recorder);
        let bricks = || recorder.sampled_bricks();
        let watch = self.watch.as_mut()?;
        // A run that is over before anybody looked was running until now.
        let running = running || !std::mem::replace(&mut self.read, true);
        Some(watch.figures(bricks, running, throughput_drop))
    }
}
