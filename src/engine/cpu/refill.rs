//! Keys and values from a stream that is there already: what runs of a layer is what leads from the stream to the cache.

use super::exec::{Executor, StepInput};
use super::pool::{Poisoned, Pool};
use crate::engine::Unobserved;
use crate::model::{Buf, Model, Op};

impl Executor {
    /// Runs the embedding of a step alone, which leaves the angles of its positions too; `[n_embd]` of every token in turn
    /// goes to `each(token, x)`. Nothing is captured.
    ///
    /// # Errors
    /// [`Poisoned`] when a thread panicked.
    pub fn embed(
        &mut self,
        model: &Model,
        pool: &mut Pool,
        step: &StepInput,
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), Poisoned> {
        let first = model.plan.layer_starts.first().copied().unwrap_or(0);
        // What the last step has left is not to be mixed with this.
        let tap = self.tap.take();
        let done = self.run(model, pool, 0..first, step, &mut Unobserved);
        self.tap = tap;
        done?;
        for t in 0..step.ids.len() {
            // SAFETY: `&mut self`: no job is running.
            each(t, unsafe { self.buffers.get(Buf::X).col(t) });
        }
        Ok(())
    }

    /// Writes keys and values of one layer for a step whose [embedding](Self::embed) has run. `stream(token, x)` writes the
    /// stream before the layer.
    ///
    /// # Errors
    /// [`Poisoned`] when a thread panicked.
    pub fn refill(
        &mut self,
        model: &Model,
        pool: &mut Pool,
        layer: usize,
        step: &StepInput,
        stream: &mut dyn FnMut(usize, &mut [f32]),
    ) -> Result<(), Poisoned> {
        for t in 0..step.ids.len() {
            // SAFETY: `&mut self`: no job is running and no other reference exists.
            stream(t, unsafe { self.buffers.get(Buf::X).col_mut(t) });
        }
        let plan = &model.plan;
        let (Some(&start), Some(&end)) = (
            plan.layer_starts.get(layer),
            plan.layer_starts.get(layer + 1),
        ) else {
            return Ok(());
        };
        let write = (start..end).find(|&i| matches!(plan.bricks[i].op, Op::KvWrite));
        match write {
            Some(write) => self.run(model, pool, start..write + 1, step, &mut Unobserved),
            None => Ok(()),
        }
    }
}
