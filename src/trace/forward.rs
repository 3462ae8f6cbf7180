//! What can run a text and let its residual stream be read: the engine, or the scalar reference.

use super::TraceError;
use crate::engine::capture::{Capture, Captured, Which};
use crate::engine::edit::Edits;
use crate::engine::reference::Reference;
use crate::engine::{Engine, EngineError, Logits, Observer, StepKind};
use crate::model::Model;
use std::sync::Arc;

/// A forward pass whose residual stream is captured, changed and projected.
pub trait Forward {
    /// The model.
    fn model(&self) -> &Model;

    /// What the passes from now on change in the stream.
    fn set_edits(&mut self, edits: Option<Arc<Edits>>);

    /// Runs `ids` on an empty cache; `sink` gets what `capture` asks for, or more. Returns the logits of the last one,
    /// `[n_vocab]`.
    ///
    /// # Errors
    /// No tokens, more than fit, or one outside the vocabulary.
    fn run(
        &mut self,
        ids: &[u32],
        capture: Capture,
        sink: &mut dyn FnMut(Captured<'_>),
    ) -> Result<Vec<f32>, TraceError>;

    /// As [`Self::run`], under changes that are in force for this run alone.
    ///
    /// # Errors
    /// As [`Self::run`].
    fn run_under(
        &mut self,
        edits: Option<Arc<Edits>>,
        ids: &[u32],
        capture: Capture,
        sink: &mut dyn FnMut(Captured<'_>),
    ) -> Result<Vec<f32>, TraceError> {
        self.set_edits(edits);
        let logits = self.run(ids, capture, sink);
        self.set_edits(None);
        logits
    }

    /// The logit lens: vectors of the stream, `[n][n_embd]`, through final norm and head; `each(i, logits)`.
    ///
    /// # Errors
    /// As the engine's.
    fn lens(
        &mut self,
        residuals: &[f32],
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), TraceError>;
}

impl<O: Observer> Forward for Engine<O> {
    fn model(&self) -> &Model {
        Engine::model(self)
    }

    fn set_edits(&mut self, edits: Option<Arc<Edits>>) {
        Engine::set_edits(self, edits);
    }

    fn run(
        &mut self,
        ids: &[u32],
        capture: Capture,
        sink: &mut dyn FnMut(Captured<'_>),
    ) -> Result<Vec<f32>, TraceError> {
        let n_ctx = self.config().n_ctx;
        if ids.len() > n_ctx {
            // Before anything runs or is written.
            let needed = ids.len();
            return Err(EngineError::ContextFull { needed, n_ctx }.into());
        }
        self.truncate(0);
        self.set_capture(Some(capture))?;
        let done = run_captured(self, ids, capture.which, sink);
        self.set_capture(None)?;
        done?;
        Ok(self.logits(0).to_vec())
    }

    fn lens(
        &mut self,
        residuals: &[f32],
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), TraceError> {
        Ok(Engine::lens(self, residuals, each)?)
    }
}

/// Runs a text in chunks; of the last token alone, only its own chunk is handed on.
fn run_captured<O: Observer>(
    engine: &mut Engine<O>,
    ids: &[u32],
    which: Which,
    sink: &mut dyn FnMut(Captured<'_>),
) -> Result<(), EngineError> {
    let chunk = engine.config().chunk;
    let mut rest = ids;
    loop {
        let (part, after) = rest.split_at(rest.len().min(chunk));
        let last = after.is_empty();
        let logits = if last { Logits::Last } else { Logits::None };
        engine.begin(part, logits, StepKind::Prefill)?;
        if last || which == Which::All {
            engine.finish_captured(sink)?;
        } else {
            engine.finish()?;
        }
        engine.end_step();
        if last {
            return Ok(());
        }
        rest = after;
    }
}

impl Forward for Reference<'_> {
    fn model(&self) -> &Model {
        Reference::model(self)
    }

    fn set_edits(&mut self, edits: Option<Arc<Edits>>) {
        Reference::set_edits(self, edits);
    }

    fn run(
        &mut self,
        ids: &[u32],
        _: Capture,
        sink: &mut dyn FnMut(Captured<'_>),
    ) -> Result<Vec<f32>, TraceError> {
        self.clear();
        let mut logits = self.forward_captured(ids, sink)?;
        Ok(logits.pop().unwrap_or_default())
    }

    fn lens(
        &mut self,
        residuals: &[f32],
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), TraceError> {
        let n_embd = Reference::model(self).hparams.n_embd;
        let columns = residuals.chunks(n_embd).map(<[f32]>::to_vec).collect();
        for (i, logits) in Reference::lens(self, columns).iter().enumerate() {
            each(i, logits);
        }
        Ok(())
    }
}
