//! What a mat-mul brick would have given with F32 weights: of the file itself, dequantised, or of another file.

use crate::engine::edit::RankOne;
use crate::engine::reference::product::{dot, product, row_into};
use crate::model::brick::BrickId;
use crate::model::{Brick, Buf, Matrix, Model, Op};

/// A mat-mul brick of a model, to be computed in F32.
#[derive(Clone, Copy)]
pub(super) struct Product<'m> {
    model: &'m Model,
    brick: &'m Brick,
}

impl<'m> Product<'m> {
    /// `None` of a brick that is no product.
    pub(super) fn of(model: &'m Model, brick: usize) -> Option<Self> {
        let brick = model.plan.bricks.get(brick)?;
        matches!(brick.op, Op::MatMul { .. } | Op::ExpertMatMul { .. })
            .then_some(Self { model, brick })
    }

    /// The weights of an expert, or of all tokens where there is none.
    fn matrix(&self, expert: Option<usize>) -> Option<&'m Matrix> {
        match &self.brick.op {
            Op::MatMul { w, .. } => Some(w),
            Op::ExpertMatMul { w, .. } => w.get(expert?),
            _ => None,
        }
    }

    /// What stands behind the product of row `row`: bias, and of logits scale and soft cap.
    fn finished(&self, expert: Option<usize>, row: usize, mut y: f32) -> f32 {
        let (bias, dst) = match &self.brick.op {
            Op::MatMul { bias, dst, .. } => (bias.as_ref().and_then(|b| b.get(row)), *dst),
            Op::ExpertMatMul { w, bias, dst, .. } => {
                let rows = w.first().map_or(0, |w| w.rows);
                let at = expert.unwrap_or(0) * rows + row;
                (bias.as_ref().and_then(|b| b.get(at)), *dst)
            }
            _ => return y,
        };
        y += bias.copied().unwrap_or(0.0);
        if dst == Buf::Logits {
            let hp = &self.model.hparams;
            y *= hp.logit_scale;
            y = hp.logit_softcap.map_or(y, |cap| cap * (y / cap).tanh());
        }
        y
    }

    /// All rows for every input, `[inputs][rows]`; the inputs are of one expert.
    pub(super) fn all(&self, expert: Option<usize>, inputs: &[&[f32]]) -> Vec<Vec<f32>> {
        let Some(w) = self.matrix(expert) else {
            return Vec::new();
        };
        let mut out = product(self.model, w, inputs);
        for y in &mut out {
            for (row, y) in y.iter_mut().enumerate() {
                *y = self.finished(expert, row, *y);
            }
        }
        out
    }

    /// Row `row` for one input; `scratch` has room for a row of weights.
    pub(super) fn row(
        &self,
        expert: Option<usize>,
        row: usize,
        input: &[f32],
        scratch: &mut [f32],
    ) -> Option<f32> {
        let w = self.matrix(expert)?;
        let scratch = scratch.get_mut(..w.k)?;
        row_into(self.model, w, row, scratch);
        Some(self.finished(expert, row, dot(scratch, input)))
    }
}

/// Rows and columns of the matrix of a brick.
pub(super) fn shape(op: &Op) -> Option<(usize, usize)> {
    let w = match op {
        Op::MatMul { w, .. } => w,
        Op::ExpertMatMul { w, .. } => w.first()?,
        _ => return None,
    };
    Some((w.rows, w.k))
}

/// What facts in force add to row `row` of a dense block's output.
pub(super) fn added(brick: &Brick, facts: &[RankOne], row: usize, input: &[f32]) -> f32 {
    if brick.id != BrickId::DownProj {
        return 0.0;
    }
    let layer = brick.layer.map_or(0, |l| l + 1);
    let here = facts.iter().filter(|f| f.layer == layer);
    let each = here.map(|f| dot(input, &f.key) * f.value.get(row).copied().unwrap_or(0.0));
    each.sum()
}

/// Type of the weights of a brick, as files name it; empty for one without a matrix.
pub(super) fn weight_type(brick: &Brick) -> String {
    let w = match &brick.op {
        Op::MatMul { w, .. } => Some(w),
        Op::ExpertMatMul { w, .. } => w.first(),
        Op::Embed { table, .. } => Some(table),
        _ => None,
    };
    w.map(|w| w.ty.to_string()).unwrap_or_default()
}
