//! Reads what a brick has written, while no job runs.

use super::exec::{Executor, StepInput};
use crate::engine::inspect::{BrickVector, multiplied, written};
use crate::model::{Brick, Model, Op};

impl Executor {
    /// See [`crate::engine::Engine::vectors`].
    pub fn vectors<'a>(
        &'a mut self,
        model: &'a Model,
        step: &'a StepInput,
        brick: usize,
    ) -> impl Iterator<Item = BrickVector<'a>> {
        // Exclusive for as long as any vector of it lives: no job can be started.
        let exec = &*self;
        let brick = model.plan.bricks.get(brick);
        brick.into_iter().flat_map(move |brick| {
            let parts = written(&brick.op, &model.hparams).into_iter().flatten();
            parts.flat_map(move |(buf, n)| {
                let tokens = step.ids.len();
                let columns = if buf.is_paired() {
                    tokens * model.hparams.n_expert_used()
                } else if is_head(brick) {
                    // A rebuilt cache has logits without a step.
                    step.logit_rows.min(tokens)
                } else {
                    tokens
                };
                let input = multiplied(&brick.op);
                (0..columns).map(move |c| {
                    let (token, expert) = if buf.is_paired() {
                        // SAFETY: written by jobs only, and none runs.
                        let routes = unsafe { &*exec.routes.get() };
                        (routes.token(c), Some(routes.expert(c)))
                    } else {
                        (tokens - columns + c, None)
                    };
                    // SAFETY: no job runs while `self` is borrowed, so nobody writes.
                    unsafe {
                        BrickVector {
                            buf,
                            token,
                            expert,
                            output: exec.buffers.get(buf).part(c, 0, n),
                            input: input.map(|(src, k)| exec.buffers.get(src).part(c, 0, k)),
                        }
                    }
                })
            })
        })
    }
}

/// Whether a brick computes only the tokens whose logits are wanted.
fn is_head(brick: &Brick) -> bool {
    brick.layer.is_none() && !matches!(brick.op, Op::Embed { .. })
}
