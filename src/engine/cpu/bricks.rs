//! What each brick computes, one thread's share of it.

use super::buffers::share;
use super::exec::{Executor, StepInput};
use super::pool::Barrier;
use super::{Acts, FloatOps, Input, MatCall};
use crate::engine::config::Schedule;
use crate::engine::{Call, Done, Lane, NO_LAYER, Observer, SyncMode, Ticks};
use crate::model::brick::BrickId;
use crate::model::work::StepShape;
use crate::model::{Act, Brick, Buf, Hparams, Matrix, Model, Op, Plan, Q8_BLOCK, RopeStyle};
use crate::quant;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Rows a thread takes at a time at least: a multiple of every kernel's row tile.
pub(super) const ROW_GRAIN: usize = 16;

/// One dispatch, seen by every thread.
pub(super) struct Job<'a> {
    pub(super) exec: &'a Executor,
    pub(super) model: &'a Model,
    pub(super) hp: &'a Hparams,
    pub(super) plan: &'a Plan,
    pub(super) step: &'a StepInput,
    pub(super) shape: StepShape<'a>,
    pub(super) threads: usize,
    /// For what is timed inside a brick.
    pub(super) clock: &'a dyn Ticks,
    pub(super) sync: SyncMode,
}

// The safety argument of every brick below is the same. Within a brick, threads write disjoint parts: columns, heads, rows or
// element ranges, by `share` or by counters that hand out each piece once. What a brick reads was written either by the
// same thread under the same split, or before a barrier (`Brick::barrier`; the plan's builder says where). A dispatch ends
// with all threads joined.
impl Job<'_> {
    pub(super) fn walk(&self, range: Range<usize>, tid: usize, barrier: Barrier<'_>) {
        for i in range {
            let brick = &self.plan.bricks[i];
            self.run(i, brick, tid);
            if self.waits_after(i) && !barrier.wait() {
                return;
            }
        }
    }

    /// As [`Self::walk`], with a lane that is told of every brick.
    pub(super) fn walk_watched(
        &self,
        range: Range<usize>,
        tid: usize,
        barrier: Barrier<'_>,
        lane: &mut impl Lane,
    ) {
        let mut after_barrier = None;
        for i in range {
            // The stamp behind a barrier is that before the next brick: nothing lies between.
            let start = after_barrier.take().unwrap_or_else(|| lane.start());
            let done = self.run(i, &self.plan.bricks[i], tid);
            let end = lane.worked(start, i as u32, done);
            if self.waits_after(i) {
                if !barrier.wait() {
                    return;
                }
                after_barrier = Some(lane.synced(end));
            }
        }
    }

    /// Whether all threads wait for each other after brick `i`: because others read what it wrote, or because whoever
    /// watches asked for it.
    fn waits_after(&self, i: usize) -> bool {
        let (brick, next) = (&self.plan.bricks[i], self.plan.bricks.get(i + 1));
        brick.barrier
            || match self.sync {
                SyncMode::Immediate => true,
                SyncMode::PerLayer => next.is_none_or(|n| n.layer != brick.layer),
                SyncMode::Deferred | SyncMode::None => false,
            }
    }

    /// As [`Self::walk`] on thread 0, which reports every brick with its own start and end.
    pub(super) fn walk_observed<O: Observer>(
        &self,
        range: Range<usize>,
        barrier: Barrier<'_>,
        observer: &mut O,
    ) {
        let mut after_barrier = None;
        for i in range {
            let brick = &self.plan.bricks[i];
            let start = after_barrier.take().unwrap_or_else(|| observer.start());
            let done = self.run(i, brick, 0);
            let layer = brick.layer.map_or(NO_LAYER, |l| l as u16);
            let shape = match brick.op {
                Op::ExpertMatMul { .. } => StepShape {
                    active_experts: Some(self.routes().active().len()),
                    ..self.shape
                },
                _ => self.shape,
            };
            let call = Call {
                id: brick.id,
                layer,
                brick: Some(i as u32),
                barrier: self.waits_after(i),
                work: brick.work(self.hp, &shape),
                done,
            };
            let end = observer.worked(start, call);
            if call.barrier {
                if !barrier.wait() {
                    return;
                }
                after_barrier = Some(observer.synced(end));
            }
        }
    }

    /// This thread's share of a brick.
    fn run(&self, i: usize, brick: &Brick, tid: usize) -> Done {
        match &brick.op {
            Op::MatMul { w, bias, src, dst } => {
                return self.mat_mul(i, brick, (w, bias.as_deref()), (*src, *dst), tid);
            }
            Op::ExpertMatMul { w, bias, src, dst } => {
                return self.expert_mat_mul(i, (w, bias.as_deref()), (*src, *dst), tid);
            }
            Op::Attend { window, sinks } => {
                let layer = brick.layer.unwrap_or(0);
                return self.attend(i, layer, *window, sinks.as_deref(), tid);
            }
            Op::Embed {
                table,
                scale,
                positions,
            } => self.embed(table, *scale, positions.as_ref(), tid),
            Op::Norm {
                src,
                dst,
                weight,
                bias,
            } => self.norm(brick, (*src, *dst), weight, bias.as_deref(), tid),
            Op::Copy { src, dst } => self.copy(brick, *src, *dst, tid),
            Op::QkNorm { q, k } if q.len() == self.hp.head_dim_k => {
                self.for_heads(tid, |token, slot| {
                    let weight = if slot < self.hp.n_head { q } else { k };
                    // SAFETY: the slot is this thread's.
                    self.norm_in_place(unsafe { self.head(token, slot) }, weight, tid);
                })
            }
            Op::QkNorm { q, k } => {
                for t in self.my_tokens(tid) {
                    for (buf, weight) in [(Buf::Q, q), (Buf::K, k)] {
                        // SAFETY: this token's columns are this thread's.
                        let x = unsafe { self.exec.buffers.get(buf).col_mut(t) };
                        self.norm_in_place(x, weight, tid);
                    }
                }
            }
            Op::Rope { table } => self.for_heads(tid, |token, slot| self.rope(*table, token, slot)),
            Op::KvWrite => {
                let layer = brick.layer.unwrap_or(0);
                self.for_heads(tid, |token, slot| self.kv_write(layer, token, slot));
            }
            Op::QuantiseHeads => self.quantise_heads(tid),
            Op::Activate {
                act,
                gate,
                up,
                dst,
                n,
            } => {
                self.activate(brick, *act, (*gate, *up), *dst, *n, tid);
            }
            Op::Route {
                routing,
                bias,
                scale,
            } => self.route(*routing, bias.as_deref(), *scale, tid),
            Op::Dispatch { src } => self.dispatch(*src, tid),
            Op::Combine { shared, src } => self.combine(brick, shared, *src, tid),
            Op::Residual { src, scale } => self.residual(brick, *src, *scale, tid),
        }
        Done::default()
    }

    pub(super) fn my_tokens(&self, tid: usize) -> Range<usize> {
        share(self.shape.tokens, tid, self.threads)
    }

    /// Adds or writes row `row` of a table.
    fn table_row(&self, table: &Matrix, row: usize, out: &mut [f32]) {
        let bytes = self.model.bytes(table);
        let row = row * table.row_bytes;
        // The model and the step checked type, size and row, so this cannot fail.
        if quant::dequantise_row(table.ty, &bytes[row..row + table.row_bytes], out).is_err() {
            out.fill(f32::NAN);
        }
    }

    fn embed(&self, table: &Matrix, scale: f32, positions: Option<&Matrix>, tid: usize) {
        for t in self.my_tokens(tid) {
            let position = self.step.places[t].position;
            // SAFETY: this token's columns are this thread's.
            unsafe {
                let x = self.exec.buffers.get(Buf::X).col_mut(t);
                self.table_row(table, self.step.ids[t] as usize, x);
                if scale != 1.0 {
                    (self.exec.ops.scale)(x, scale);
                }
                if let Some(positions) = positions {
                    // Nothing reads the normed input before the first layer writes it.
                    let row = self.exec.buffers.get(Buf::Normed).col_mut(t);
                    self.table_row(positions, position, row);
                    (self.exec.ops.add)(x, row);
                }
                self.layer_done(0, t, x, tid);
                for (rope, columns) in self.exec.ropes.iter().zip(&self.exec.buffers.ropes) {
                    let (cos, sin) = columns.col_mut(t).split_at_mut(rope.inv_freq.len());
                    rope.fill(position, cos, sin);
                }
            }
        }
    }

    fn norm(
        &self,
        brick: &Brick,
        (src, dst): (Buf, Buf),
        weight: &[f32],
        bias: Option<&[f32]>,
        tid: usize,
    ) {
        let (b, ops, eps) = (&self.exec.buffers, self.exec.ops, self.hp.norm_eps);
        let columns = brick.columns(self.hp, &self.shape);
        let skip = self.shape.tokens - columns;
        for c in share(columns, tid, self.threads) {
            // SAFETY: column `c` of `dst` is this thread's; `src` was written under the same split or before a barrier.
            unsafe {
                let (x, out) = (b.get(src).col(c + skip), b.get(dst).col_mut(c));
                match bias {
                    Some(bias) => (ops.layer_norm)(x, weight, bias, eps, out),
                    None => (ops.rms_norm)(x, weight, eps, out),
                }
                self.normed(brick, c + skip, out, tid);
                self.quantise(dst, c, 0..weight.len());
            }
        }
    }

    fn copy(&self, brick: &Brick, src: Buf, dst: Buf, tid: usize) {
        let b = &self.exec.buffers;
        for t in self.my_tokens(tid) {
            // SAFETY: as for `norm`.
            unsafe {
                let x = b.get(src).col(t);
                b.get(dst).col_mut(t).copy_from_slice(x);
                self.normed(brick, t, x, tid);
                self.quantise(dst, t, 0..x.len());
            }
        }
    }

    /// Writes the int8 form of elements `range` of column `c`, where a quantised mat-mul will read it.
    ///
    /// # Safety
    /// These elements are this thread's; the range is whole groups.
    pub(super) unsafe fn quantise(&self, buf: Buf, c: usize, range: Range<usize>) {
        let b = &self.exec.buffers;
        if let Some(q8) = b.q8(buf) {
            // SAFETY: the caller's promise.
            unsafe {
                let x = b.get(buf).part(c, range.start, range.len());
                q8.quantise(self.exec.ops, c, range.start, x);
            }
        }
    }

    /// Calls `f` for pieces of `0..total` in multiples of `grain` until none are left for this thread.
    pub(super) fn pieces(
        &self,
        i: usize,
        tid: usize,
        total: usize,
        grain: usize,
        mut f: impl FnMut(Range<usize>),
    ) -> Done {
        let mut done = Done::default();
        let fair = share(total.div_ceil(grain), tid, self.threads);
        match self.exec.config.schedule {
            Schedule::Static => {
                let r = fair.start * grain..(fair.end * grain).min(total);
                if !r.is_empty() {
                    done.pieces = 1;
                    f(r);
                }
            }
            Schedule::Dynamic => {
                // A quarter of a fair share at a time: little to wait for at the end, few trips to the counter.
                let piece = (total / (4 * self.threads))
                    .next_multiple_of(grain)
                    .max(grain);
                loop {
                    let start = self.exec.counters[i].fetch_add(piece, Ordering::Relaxed);
                    if start >= total {
                        break;
                    }
                    done.pieces = done.pieces.saturating_add(1);
                    let elsewhere = !fair.contains(&(start / grain));
                    done.stolen = done.stolen.saturating_add(elsewhere.into());
                    f(start..(start + piece).min(total));
                }
            }
        }
        done
    }

    fn mat_mul(
        &self,
        i: usize,
        brick: &Brick,
        (w, bias): (&Matrix, Option<&[f32]>),
        (src, dst): (Buf, Buf),
        tid: usize,
    ) -> Done {
        let columns = brick.columns(self.hp, &self.shape);
        self.pieces(i, tid, w.rows, ROW_GRAIN, |rows| {
            self.mat_mul_rows(i, (w, bias), (src, dst), 0..columns, rows.clone());
            #[cfg(test)]
            self.spoil(i, brick, dst, &rows);
            match brick.id {
                BrickId::DownProj => self.down_projected(brick, (src, dst), rows),
                BrickId::LmHead => self.logits_done(columns, rows, tid),
                _ => {}
            }
        })
    }

    /// Rows `rows` of a product, for columns `columns` of source and destination.
    pub(super) fn mat_mul_rows(
        &self,
        i: usize,
        (w, bias): (&Matrix, Option<&[f32]>),
        (src, dst): (Buf, Buf),
        columns: Range<usize>,
        rows: Range<usize>,
    ) {
        let Some(kernel) = &self.exec.kernels[i] else {
            return;
        };
        let (b, hp) = (&self.exec.buffers, self.hp);
        let (x, y) = (b.get(src), b.get(dst));
        assert!(w.rows <= y.dim(), "the plan's shapes agree");
        // SAFETY: these rows of these columns of `dst` were handed out once; the weights hold `w.rows` rows of
        // `w.row_bytes`; `src` and its int8 form were written before a barrier.
        unsafe {
            kernel.run(&MatCall {
                w: self.model.bytes(w).as_ptr(),
                row_bytes: w.row_bytes,
                k: w.k,
                rows: rows.clone(),
                acts: match b.q8(src) {
                    Some(q8) if kernel.input == Input::Q8 => Acts::Q8(q8),
                    _ => Acts::F32 {
                        x: x.all(columns.end),
                        stride: x.stride(),
                    },
                },
                cols: columns.clone(),
                y: y.as_mut_ptr(),
                ldy: y.stride(),
            });
            let logits = dst == Buf::Logits;
            if bias.is_none() && !(logits && (hp.logit_scale != 1.0 || hp.logit_softcap.is_some()))
            {
                return;
            }
            for c in columns {
                let part = y.part_mut(c, rows.start, rows.len());
                if let Some(bias) = bias {
                    (self.exec.ops.add)(part, &bias[rows.clone()]);
                }
                if logits && hp.logit_scale != 1.0 {
                    (self.exec.ops.scale)(part, hp.logit_scale);
                }
                if let (true, Some(cap)) = (logits, hp.logit_softcap) {
                    (self.exec.ops.softcap)(part, cap);
                }
            }
        }
    }

    /// Calls `f(token, slot)` for this thread's heads; slots `0..n_head` are queries, then `n_head_kv` keys.
    fn for_heads(&self, tid: usize, f: impl Fn(usize, usize)) {
        let slots = self.hp.n_head + self.hp.n_head_kv;
        for i in share(self.shape.tokens * slots, tid, self.threads) {
            f(i / slots, i % slots);
        }
    }

    /// The query or key head of a slot.
    ///
    /// # Safety
    /// The slot is this thread's, by `for_heads`.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn head(&self, token: usize, slot: usize) -> &mut [f32] {
        let (b, dim, n) = (&self.exec.buffers, self.hp.head_dim_k, self.hp.n_head);
        // SAFETY: the caller's promise.
        unsafe {
            if slot < n {
                b.get(Buf::Q).part_mut(token, slot * dim, dim)
            } else {
                b.get(Buf::K).part_mut(token, (slot - n) * dim, dim)
            }
        }
    }

    fn norm_in_place(&self, x: &mut [f32], weight: &[f32], tid: usize) {
        // SAFETY: the thread's own column.
        let scratch = unsafe { self.exec.buffers.norm_scratch.part_mut(tid, 0, x.len()) };
        scratch.copy_from_slice(x);
        (self.exec.ops.rms_norm)(scratch, weight, self.hp.norm_eps, x);
    }

    fn rope(&self, table: usize, token: usize, slot: usize) {
        let Some(style) = self.hp.arch.rope else {
            return;
        };
        let half = self.exec.ropes[table].inv_freq.len();
        // SAFETY: the slot is this thread's; the angles were written before a barrier.
        let (head, angles) = unsafe {
            (
                self.head(token, slot),
                self.exec.buffers.ropes[table].col(token),
            )
        };
        let (cos, sin) = angles.split_at(half);
        rotate(head, cos, sin, style);
    }

    fn activate(
        &self,
        brick: &Brick,
        act: Act,
        (gate, up): (Buf, Option<Buf>),
        dst: Buf,
        n: usize,
        tid: usize,
    ) {
        let b = &self.exec.buffers;
        let columns = brick.columns(self.hp, &self.shape);
        let unit = if n.is_multiple_of(Q8_BLOCK) {
            Q8_BLOCK
        } else {
            n
        };
        let units = n / unit;
        let mine = share(columns * units, tid, self.threads);
        let mut at = mine.start;
        while at < mine.end {
            let (c, u) = (at / units, at % units);
            let len = (units - u).min(mine.end - at);
            let (first, n) = (u * unit, len * unit);
            // SAFETY: these groups are this thread's; both projections were written before a barrier.
            unsafe {
                let gate = b.get(gate).part(c, first, n);
                let up = up.map(|up| b.get(up).part(c, first, n));
                let out = b.get(dst).part_mut(c, first, n);
                activate(self.exec.ops, act, gate, up, out);
                self.activated(brick, (dst, units * unit), c, first, out);
                self.quantise(dst, c, first..first + n);
            }
            at += len;
        }
    }

    fn residual(&self, brick: &Brick, src: Buf, scale: f32, tid: usize) {
        let b = &self.exec.buffers;
        for t in self.my_tokens(tid) {
            // SAFETY: this token's columns are this thread's; the output was written before a barrier or under the same
            // split, and nothing reads it behind this brick.
            unsafe {
                let (x, y) = (b.get(Buf::X).col_mut(t), b.get(src).col_mut(t));
                if scale != 1.0 {
                    // Scaled in place and then added: what is captured is, bit for bit, what was added.
                    (self.exec.ops.scale)(y, scale);
                }
                self.adding(brick, t, y, tid);
                (self.exec.ops.add)(x, y);
                if brick.id == BrickId::FfnResidual {
                    self.layer_done(brick.layer.map_or(0, |l| l + 1), t, x, tid);
                }
            }
        }
    }
}

/// `out = act(gate) * up`, or `act(gate)` without `up`.
fn activate(ops: &FloatOps, act: Act, gate: &[f32], up: Option<&[f32]>, out: &mut [f32]) {
    match (act, up) {
        (Act::Silu, Some(up)) => (ops.silu_mul)(gate, up, out),
        (Act::GeluTanh, Some(up)) => (ops.gelu_tanh_mul)(gate, up, out),
        (Act::GeluTanh, None) => {
            out.copy_from_slice(gate);
            (ops.gelu_tanh)(out);
        }
        (Act::SwigluOai, Some(up)) => {
            for ((g, u), o) in gate.iter().zip(up).zip(out) {
                let (g, u) = (g.min(7.0), u.clamp(-7.0, 7.0));
                *o = g / (1.0 + (-1.702 * g).exp()) * (u + 1.0);
            }
        }
        (act, up) => {
            for (g, o) in gate.iter().zip(&mut *out) {
                *o = match act {
                    Act::Relu2 => g.max(0.0).powi(2),
                    _ => g / (1.0 + (-g).exp()),
                };
            }
            if let Some(up) = up {
                out.iter_mut().zip(up).for_each(|(o, u)| *o *= u);
            }
        }
    }
}

fn rotate(head: &mut [f32], cos: &[f32], sin: &[f32], style: RopeStyle) {
    match style {
        RopeStyle::Adjacent => {
            for ((pair, c), s) in head.chunks_exact_mut(2).zip(cos).zip(sin) {
                let (u, v) = (pair[0], pair[1]);
                pair[0] = u * c - v * s;
                pair[1] = u * s + v * c;
            }
        }
        RopeStyle::Halves => {
            let (a, b) = head.split_at_mut(cos.len());
            for (((u, v), c), s) in a.iter_mut().zip(b).zip(cos).zip(sin) {
                (*u, *v) = (*u * c - *v * s, *u * s + *v * c);
            }
        }
    }
}
