//! What a brick of the reference path has written, vector by vector.

use super::State;
use crate::engine::inspect::{BrickVector, multiplied, written};
use crate::model::{Hparams, Op};

impl State {
    pub(super) fn vectors(&self, op: &Op, hp: &Hparams) -> Vec<BrickVector<'_>> {
        let input = multiplied(op);
        let parts = written(op, hp).into_iter().flatten();
        let all = parts.flat_map(|(buf, _)| {
            let pairs = buf.is_paired().then(|| self.pairs());
            self.get(buf).iter().enumerate().map(move |(c, output)| {
                let pair = pairs.as_ref().and_then(|p| p.get(c));
                BrickVector {
                    buf,
                    token: pair.map_or(c, |p| p.0),
                    expert: pair.map(|p| p.1),
                    output,
                    input: input.and_then(|(src, _)| self.get(src).get(c).map(|x| &x[..])),
                }
            })
        });
        all.collect()
    }

    /// Token and expert of every column of pairs.
    pub(super) fn pairs(&self) -> Vec<(usize, usize)> {
        let tokens = self.routes.iter().enumerate();
        tokens
            .flat_map(|(t, routes)| routes.iter().map(move |r| (t, r.0)))
            .collect()
    }
}
