//! Bricks of a feed-forward block made of experts, one thread's share of each.

use super::bricks::{Job, ROW_GRAIN};
use super::buffers::share;
use super::routing::Routes;
use crate::engine::Done;
use crate::model::arch::Routing;
use crate::model::{Brick, Buf, Matrix, SharedExpert};

// The safety argument is that of `bricks`.
impl Job<'_> {
    /// Who goes where; valid from the barrier behind [`Self::route`] on.
    pub(super) fn routes(&self) -> &Routes {
        // SAFETY: written by `route` alone, on thread 0, between two barriers.
        unsafe { &*self.exec.routes.get() }
    }

    pub(super) fn route(&self, how: Routing, bias: Option<&[f32]>, scale: f32, tid: usize) {
        if tid != 0 {
            return;
        }
        let logits = self.exec.buffers.get(Buf::Router);
        // SAFETY: other threads wait at the barrier behind this brick; the logits were written before the one in front.
        unsafe {
            let routes = &mut *self.exec.routes.get();
            for t in 0..self.shape.tokens {
                routes.choose(t, logits.col(t), bias, how, scale);
            }
            routes.order(self.shape.tokens);
        }
    }

    pub(super) fn dispatch(&self, src: Buf, tid: usize) {
        let (b, routes) = (&self.exec.buffers, self.routes());
        let pairs = self.shape.tokens * self.hp.n_expert_used();
        for c in share(pairs, tid, self.threads) {
            // SAFETY: column `c` is this thread's; `src` was written before a barrier.
            unsafe {
                let x = b.get(src).col(routes.token(c));
                b.get(Buf::ExpertIn).col_mut(c).copy_from_slice(x);
                self.quantise(Buf::ExpertIn, c, 0..x.len());
            }
        }
    }

    pub(super) fn expert_mat_mul(
        &self,
        i: usize,
        (w, bias): (&[Matrix], Option<&[f32]>),
        (src, dst): (Buf, Buf),
        tid: usize,
    ) -> Done {
        let Some(rows) = w.first().map(|w| w.rows) else {
            return Done::default();
        };
        let active = self.routes().active();
        // Experts one after the other, each in whole pieces.
        let padded = rows.next_multiple_of(ROW_GRAIN);
        self.pieces(i, tid, active.len() * padded, ROW_GRAIN, |piece| {
            let mut at = piece.start;
            while at < piece.end {
                let (a, first) = (at / padded, at % padded);
                let end = (first + piece.end - at).min(padded);
                at += end - first;
                let e = active[a] as usize;
                let part = first..end.min(rows);
                let bias = bias.map(|b| &b[e * rows..(e + 1) * rows]);
                let columns = self.routes().columns(e);
                self.mat_mul_rows(i, (&w[e], bias), (src, dst), columns, part);
            }
        })
    }

    pub(super) fn combine(&self, brick: &Brick, shared: &SharedExpert, src: Buf, tid: usize) {
        let b = &self.exec.buffers;
        for t in self.my_tokens(tid) {
            // SAFETY: this token's columns are this thread's; experts were written before a barrier, the shared one too.
            unsafe {
                let out = b.get(Buf::Out).col_mut(t);
                match shared {
                    SharedExpert::None => out.fill(0.0),
                    SharedExpert::Added => {}
                    SharedExpert::Gated(gate) => {
                        let logit = (self.exec.ops.dot_f32)(b.get(src).col(t), gate);
                        (self.exec.ops.scale)(out, 1.0 / (1.0 + (-logit).exp()));
                    }
                }
                for (c, weight) in self.routes().of_token(t) {
                    (self.exec.ops.axpy_f32)(weight, b.get(Buf::ExpertOut).col(c), out);
                }
                self.combined(brick, t, b.get(src).col(t), out);
            }
        }
    }
}
