//! The last step once more, brick by brick, to find where something in it came from.

use super::inspect::BrickVector;
use super::{Engine, EngineError, Observer, Unobserved};

impl<O: Observer> Engine<O> {
    /// Tokens of the last step, or of the one in progress.
    pub fn step_tokens(&self) -> usize {
        self.input.ids.len()
    }

    /// Positions of the tokens of the last step in the order of its columns; `usize::MAX` for tokens of other sequences
    /// than `seq`.
    pub fn step_places(&self, seq: usize) -> Vec<usize> {
        let spans = &self.input.spans;
        let position = |p: &super::cpu::exec::Place| match spans.get(p.span) {
            Some(span) if span.seq == seq => p.position,
            _ => usize::MAX,
        };
        self.input.places.iter().map(position).collect()
    }

    /// Runs the last step again on the same slots of the cache, which get the same keys and values, and gives `sink` every
    /// vector of each brick, by its index in the plan, until it returns `false`. Nobody watches, and nothing is recorded.
    ///
    /// # Errors
    /// A step in progress; [`EngineError::WorkerFailed`].
    pub fn rerun(
        &mut self,
        sink: &mut dyn FnMut(usize, BrickVector<'_>) -> bool,
    ) -> Result<(), EngineError> {
        if self.in_step() {
            return Err(EngineError::Edit(
                "a step cannot be run again before it has ended; finish it first".into(),
            ));
        }
        if self.input.ids.is_empty() {
            return Ok(());
        }
        let probe = self.exec.take_probe();
        let done = self.rerun_unrecorded(sink);
        self.exec.put_probe(probe);
        done
    }

    fn rerun_unrecorded(
        &mut self,
        sink: &mut dyn FnMut(usize, BrickVector<'_>) -> bool,
    ) -> Result<(), EngineError> {
        let starts = &self.model.plan.layer_starts;
        let bricks = match (self.input.logit_rows, starts.last()) {
            // Without wanted logits the head has nothing to do.
            (0, Some(&head)) => head,
            _ => self.model.plan.bricks.len(),
        };
        for brick in 0..bricks {
            self.exec
                .run(
                    &self.model,
                    &mut self.pool,
                    brick..brick + 1,
                    &self.input,
                    &mut Unobserved,
                )
                .map_err(|_| EngineError::WorkerFailed)?;
            for vector in self.vectors(brick) {
                if !sink(brick, vector) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
