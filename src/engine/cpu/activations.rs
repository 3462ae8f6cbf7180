//! The activations of one step, every buffer that bricks read and write.

use super::attention::MANY;
use super::buffers::Columns;
use super::{Input, QActs, mat_kernel};
use crate::engine::{Config, EngineError};
use crate::model::{Buf, Model, Op};

/// Activations of one step.
pub(super) struct Buffers {
    /// By the buffer's place in [`Buf::ALL`].
    floats: Vec<Columns>,
    /// int8 forms of those that feed quantised mat-muls; in the same places.
    q8: Vec<Option<QActs>>,
    /// Columns a token in buffers of pairs.
    n_used: usize,
    /// Cosines, then sines, of every rotary table, one column a token.
    pub(super) ropes: Vec<Columns>,
    /// Scores of a query head over the context, [`MANY`] columns a thread.
    pub(super) scores: Columns,
    /// Queries or keys being normed, one column a thread.
    pub(super) norm_scratch: Columns,
}

/// Columns of a buffer when a step has `tokens` tokens, each with `n_used` experts.
fn columns(buf: Buf, tokens: usize, n_used: usize) -> usize {
    if buf.is_paired() {
        tokens * n_used
    } else {
        tokens
    }
}

/// Elements of a column of what [`Op::QkNorm`] copies aside.
fn norm_scratch(model: &Model) -> usize {
    let norms = model.plan.bricks.iter().filter_map(|b| match &b.op {
        Op::QkNorm { q, k } => Some(q.len().max(k.len())),
        _ => None,
    });
    norms.max().unwrap_or(0)
}

impl Buffers {
    /// Zeroed buffers for steps of a chunk.
    ///
    /// # Errors
    /// [`EngineError::OutOfMemory`].
    pub(super) fn new(model: &Model, c: &Config) -> Result<Self, EngineError> {
        let plan = &model.plan;
        let n_used = model.hparams.n_expert_used();
        let cols = |buf| match buf {
            Buf::Logits => c.rows(),
            _ => columns(buf, c.chunk, n_used),
        };
        let feeds_quantised = |buf: Buf| {
            plan.matrices().any(|(w, src)| {
                src == buf
                    && mat_kernel(c.kernels_of(w.ty), w.ty).is_some_and(|k| k.input == Input::Q8)
            })
        };
        check_memory(model, c, cols)?;
        Ok(Self {
            floats: Buf::ALL
                .iter()
                .map(|&b| Columns::new(plan.dim(b), cols(b)))
                .collect(),
            q8: Buf::ALL
                .iter()
                .map(|&b| feeds_quantised(b).then(|| QActs::new(cols(b), plan.dim(b))))
                .collect(),
            n_used,
            ropes: plan
                .ropes
                .iter()
                .map(|r| Columns::new(2 * r.short.inv_freq.len(), c.chunk))
                .collect(),
            scores: Columns::new(c.n_ctx, MANY * c.threads),
            norm_scratch: Columns::new(norm_scratch(model), c.threads),
        })
    }

    /// More rows of logits; those that are there stay.
    ///
    /// # Errors
    /// [`EngineError::OutOfMemory`].
    pub(super) fn set_logit_rows(&mut self, rows: usize) -> Result<(), EngineError> {
        let old = &mut self.floats[Buf::Logits as usize];
        let bytes = old.stride() * rows * size_of::<f32>();
        let mut probe: Vec<u8> = Vec::new();
        probe
            .try_reserve_exact(bytes)
            .map_err(|_| EngineError::OutOfMemory {
                what: "rows of logits",
                bytes: bytes as u64,
            })?;
        let new = Columns::new(old.dim(), rows);
        for c in 0..old.cols().min(rows) {
            // SAFETY: `&mut self`: no job is running, and the new columns are nobody else's yet.
            unsafe { new.col_mut(c).copy_from_slice(old.col(c)) };
        }
        *old = new;
        Ok(())
    }

    pub(super) fn get(&self, b: Buf) -> &Columns {
        &self.floats[b as usize]
    }

    pub(super) fn q8(&self, b: Buf) -> Option<&QActs> {
        self.q8[b as usize].as_ref()
    }

    /// Gives every int8 form the shape of a step, and scales as a step of `like` tokens has them.
    pub(super) fn set_tokens(&mut self, tokens: usize, like: usize) {
        for (&buf, q8) in Buf::ALL.iter().zip(&mut self.q8) {
            if let Some(q8) = q8 {
                q8.set_shape(q8.k(), columns(buf, tokens, self.n_used), like);
            }
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        let floats = self.floats.iter().chain(&self.ropes);
        let own = [&self.scores, &self.norm_scratch];
        let floats: u64 = floats.chain(own).map(Columns::bytes).sum();
        let q8: u64 = self.q8.iter().flatten().map(QActs::bytes).sum();
        floats + q8
    }
}

/// Asks the allocator for all of it at once, and gives it back: the vectors themselves would abort the process.
fn check_memory(model: &Model, c: &Config, cols: impl Fn(Buf) -> usize) -> Result<(), EngineError> {
    // Floats and int8 forms; the latter take a little less than a float an element. The knobs and sizes are bounded, so
    // nothing overflows.
    let buffers: usize = Buf::ALL
        .iter()
        .map(|&b| 2 * model.plan.dim(b) * cols(b))
        .sum();
    let angles = 4 * model.hparams.rope_dims * c.chunk;
    let floats = buffers + angles + MANY * c.n_ctx * c.threads;
    let bytes = floats * size_of::<f32>();
    let mut probe: Vec<u8> = Vec::new();
    probe
        .try_reserve_exact(bytes)
        .map_err(|_| EngineError::OutOfMemory {
            what: "activation buffers",
            bytes: bytes as u64,
        })
}
