//! What single bricks of a step take and give, for whoever compares them with something else. Logits stay the same bit
//! for bit: the step only stands still meanwhile.

use super::{Engine, EngineError, Observer};
use crate::model::{Buf, Hparams, Op};

/// One vector that a brick has written.
#[derive(Debug, Clone, Copy)]
pub struct BrickVector<'a> {
    /// What was written.
    pub buf: Buf,
    /// Its token in the step, from 0.
    pub token: usize,
    /// Its expert, where the brick is of experts.
    pub expert: Option<usize>,
    /// Its values.
    pub output: &'a [f32],
    /// What a matrix was multiplied with; `None` of bricks that are no product.
    pub input: Option<&'a [f32]>,
}

/// What an operation writes as floats, and elements of each vector of it. Attention's cache and the choice of experts are
/// no vectors.
pub(crate) fn written(op: &Op, hp: &Hparams) -> [Option<(Buf, usize)>; 2] {
    let one = |buf, n| [Some((buf, n)), None];
    match op {
        Op::Embed { .. } | Op::Residual { .. } => one(Buf::X, hp.n_embd),
        Op::Norm { dst, weight, .. } => one(*dst, weight.len()),
        Op::Copy { dst, .. } => one(*dst, hp.n_embd),
        Op::MatMul { w, dst, .. } => one(*dst, w.rows),
        Op::QkNorm { .. } | Op::Rope { .. } => {
            [Some((Buf::Q, hp.q_dim())), Some((Buf::K, hp.k_dim()))]
        }
        Op::Attend { .. } => one(Buf::Heads, hp.attn_dim()),
        Op::Activate { dst, n, .. } => one(*dst, *n),
        Op::Dispatch { .. } => one(Buf::ExpertIn, hp.n_embd),
        Op::ExpertMatMul { w, dst, .. } => one(*dst, w.first().map_or(0, |w| w.rows)),
        Op::Combine { .. } => one(Buf::Out, hp.n_embd),
        Op::KvWrite | Op::QuantiseHeads | Op::Route { .. } => [None, None],
    }
}

/// What a product multiplies with, and elements of it.
pub(crate) fn multiplied(op: &Op) -> Option<(Buf, usize)> {
    match op {
        Op::MatMul { w, src, .. } => Some((*src, w.k)),
        Op::ExpertMatMul { w, src, .. } => w.first().map(|w| (*src, w.k)),
        _ => None,
    }
}

impl<O: Observer> Engine<O> {
    /// Runs the step in progress up to and with brick `brick` of the plan, and stands still behind it. `false` where that
    /// brick has run before, or no step is in progress.
    ///
    /// # Errors
    /// [`EngineError::WorkerFailed`].
    pub fn advance_through(&mut self, brick: usize) -> Result<bool, EngineError> {
        let bricks = self.model.plan.bricks.len();
        if brick >= bricks || self.next_brick().is_none_or(|next| next > brick) {
            return Ok(false);
        }
        self.advance_to(brick + 1)?;
        if self.in_step() {
            self.observer.pause();
        }
        Ok(true)
    }

    /// What the brick that ran last has written, of every token in the order of the step (of experts, in the order of
    /// experts). The head has vectors of those tokens only whose logits are wanted. Of another brick than the last, what
    /// later ones left in the same place.
    pub fn vectors(&mut self, brick: usize) -> impl Iterator<Item = BrickVector<'_>> {
        self.exec.vectors(&self.model, &self.input, brick)
    }

    /// Runs the step in progress to its end; `sink` gets every vector of each brick of the plan that is `wanted`, by its
    /// index.
    ///
    /// # Errors
    /// [`EngineError::WorkerFailed`].
    pub fn finish_inspected(
        &mut self,
        wanted: &dyn Fn(usize) -> bool,
        sink: &mut dyn FnMut(usize, BrickVector<'_>),
    ) -> Result<(), EngineError> {
        for brick in 0..self.model.plan.bricks.len() {
            if wanted(brick) && self.advance_through(brick)? {
                self.vectors(brick).for_each(|v| sink(brick, v));
            }
        }
        self.finish()
    }
}
