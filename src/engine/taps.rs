//! The residual stream of an engine: captured, changed on its way, and read through the head.

use super::capture::{Capture, Captured};
use super::edit::Edits;
use super::{Engine, EngineError, Observer};
use std::sync::Arc;

impl<O: Observer> Engine<O> {
    /// What the steps from now on leave behind for [`Self::finish_captured`]; `None`: nothing. Logits are the same.
    ///
    /// # Errors
    /// [`EngineError::OutOfMemory`].
    pub fn set_capture(&mut self, capture: Option<Capture>) -> Result<(), EngineError> {
        let (model, chunk) = (Arc::clone(&self.model), self.config.chunk);
        self.exec.set_capture(&model, capture, chunk)
    }

    /// What steps leave behind.
    pub fn capture(&self) -> Option<Capture> {
        self.exec.capture()
    }

    /// What the last step has left, as far as it is still held: all of it where only the last token is captured.
    pub fn captured(&mut self, sink: &mut dyn FnMut(Captured<'_>)) {
        let n_layers = self.model.hparams.n_layers;
        let held = self.exec.held().unwrap_or(0);
        let model = Arc::clone(&self.model);
        let layers = (n_layers + 1).saturating_sub(held)..n_layers + 1;
        self.exec.hand_on(&model, layers, &self.input, sink);
    }

    /// What the steps from now on change in the stream; the cache keeps what was computed before.
    pub fn set_edits(&mut self, edits: Option<Arc<Edits>>) {
        self.exec.set_edits(edits);
    }

    /// The changes in force.
    pub fn edits(&self) -> Option<&Arc<Edits>> {
        self.exec.edits()
    }

    /// Runs the step in progress to its end; `sink` gets every captured vector: of a few layers at a time, in them token by
    /// token, so that memory is bounded.
    ///
    /// # Errors
    /// [`EngineError::WorkerFailed`].
    pub fn finish_captured(
        &mut self,
        sink: &mut dyn FnMut(Captured<'_>),
    ) -> Result<(), EngineError> {
        let Some(held) = self.exec.held() else {
            return self.finish();
        };
        let n_layers = self.model.hparams.n_layers;
        let mut first = 0;
        while first <= n_layers {
            let end = (first + held).min(n_layers + 1);
            if end > n_layers {
                self.finish()?;
            } else {
                // Waypoint `end - 1` is there when layer `end` begins.
                self.advance_to(self.model.plan.layer_starts[end - 1])?;
                self.observer.pause();
            }
            let model = Arc::clone(&self.model);
            self.exec.hand_on(&model, first..end, &self.input, sink);
            first = end;
        }
        Ok(())
    }

    /// Makes room for more rows of logits, at most a chunk: the lens reads so many vectors with one pass over the head.
    ///
    /// # Errors
    /// A step in progress, or [`EngineError::OutOfMemory`].
    pub fn reserve_logit_rows(&mut self, rows: usize) -> Result<(), EngineError> {
        let rows = rows.min(self.config.chunk);
        if rows <= self.config.rows() {
            return Ok(());
        }
        if self.in_step() {
            return Err(EngineError::Edit(
                "rows of logits cannot be added inside a token; finish it first".into(),
            ));
        }
        self.exec.set_logit_rows(rows)?;
        self.config.logit_rows = rows;
        Ok(())
    }

    /// The logit lens: each of `residuals`, `[n][n_embd]`, through the final norm, whose scale is computed for it, and the
    /// head. `each(i, logits)` gets `[n_vocab]` for every one. Activations are rounded as in the last step: a vector that
    /// comes alone gives, bit for bit, the logits that it had there; several share the weights,
    /// [`Config::rows`](super::Config::rows) at a time.
    ///
    /// # Errors
    /// A step in progress, whose stream this would overwrite; [`EngineError::WorkerFailed`].
    pub fn lens(
        &mut self,
        residuals: &[f32],
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        if self.in_step() {
            return Err(EngineError::Edit(
                "the lens cannot be used inside a token; finish it first".into(),
            ));
        }
        let n_embd = self.model.hparams.n_embd;
        let rows = self.config.rows();
        let like = self.input.ids.len().max(1);
        for (i, part) in residuals.chunks(rows * n_embd).enumerate() {
            let n = part.len() / n_embd;
            self.exec
                .project(&self.model, &mut self.pool, part, like, &mut self.next)
                .map_err(|_| EngineError::WorkerFailed)?;
            for row in 0..n {
                each(i * rows + row, self.exec.logits(row));
            }
        }
        Ok(())
    }
}
