//! What each brick computes, one thread's share of it.

use super::attention::AttentionElem;
use super::buffers::share;
use super::exec::{Executor, StepInput};
use super::kv::{KvPlanes, Planes};
use super::pool::Barrier;
use super::{Acts, Input, MatCall};
use crate::engine::config::Schedule;
use crate::engine::{NO_LAYER, Observer};
use crate::model::work::StepShape;
use crate::model::{Brick, Buf, GateAct, Hparams, Matrix, Model, Op, Plan, Q8_BLOCK, RopeStyle};
use crate::quant;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Rows a thread takes at a time at least: a multiple of every kernel's row tile.
const ROW_GRAIN: usize = 16;

/// One dispatch, seen by every thread.
pub(super) struct Job<'a> {
    pub(super) exec: &'a Executor,
    pub(super) model: &'a Model,
    pub(super) hp: &'a Hparams,
    pub(super) plan: &'a Plan,
    pub(super) step: &'a StepInput,
    pub(super) shape: StepShape<'a>,
    pub(super) threads: usize,
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
            if brick.barrier && !barrier.wait() {
                return;
            }
        }
    }

    /// As [`Self::walk`] on thread 0, which reports every brick with its own start and end.
    pub(super) fn walk_observed<O: Observer>(
        &self,
        range: Range<usize>,
        barrier: Barrier<'_>,
        observer: &mut O,
    ) {
        for i in range {
            let brick = &self.plan.bricks[i];
            let start = observer.start();
            self.run(i, brick, 0);
            let layer = brick.layer.map_or(NO_LAYER, |l| l as u16);
            let end = observer.worked(start, brick.id, layer, brick.work(self.hp, &self.shape));
            if brick.barrier {
                if !barrier.wait() {
                    return;
                }
                observer.synced(end);
            }
        }
    }

    /// This thread's share of a brick.
    fn run(&self, i: usize, brick: &Brick, tid: usize) {
        match &brick.op {
            Op::Embed { table, scale } => self.embed(table, *scale, tid),
            Op::Norm { src, dst, weight } => self.norm(brick, *src, *dst, weight, tid),
            Op::MatMul { w, bias, src, dst } => {
                self.mat_mul(i, brick, (w, bias.as_deref()), (*src, *dst), tid)
            }
            Op::QkNorm { q, k } => {
                self.for_heads(tid, |token, slot| self.qk_norm(q, k, tid, token, slot))
            }
            Op::Rope { table } => self.for_heads(tid, |token, slot| self.rope(*table, token, slot)),
            Op::KvWrite => {
                let layer = brick.layer.unwrap_or(0);
                self.for_heads(tid, |token, slot| self.kv_write(layer, token, slot));
            }
            Op::Attend { window } => self.attend(i, brick.layer.unwrap_or(0), *window, tid),
            Op::QuantiseHeads => self.quantise_heads(tid),
            Op::Gate { act } => self.gate(*act, tid),
            Op::Residual { src } => self.residual(*src, tid),
        }
    }

    fn my_tokens(&self, tid: usize) -> Range<usize> {
        share(self.shape.tokens, tid, self.threads)
    }

    fn embed(&self, table: &Matrix, scale: f32, tid: usize) {
        let bytes = self.model.bytes(table);
        for t in self.my_tokens(tid) {
            let row = self.step.ids[t] as usize * table.row_bytes;
            // SAFETY: this token's columns are this thread's.
            unsafe {
                let x = self.exec.buffers.x.col_mut(t);
                // The model and the step checked type, size and id, so this cannot fail.
                if quant::dequantise_row(table.ty, &bytes[row..row + table.row_bytes], x).is_err() {
                    x.fill(f32::NAN);
                }
                if scale != 1.0 {
                    (self.exec.ops.scale)(x, scale);
                }
                for (rope, columns) in self.plan.ropes.iter().zip(&self.exec.buffers.ropes) {
                    let (cos, sin) = columns.col_mut(t).split_at_mut(rope.inv_freq.len());
                    rope.fill(self.step.places[t].position, cos, sin);
                }
            }
        }
    }

    fn norm(&self, brick: &Brick, src: Buf, dst: Buf, weight: &[f32], tid: usize) {
        let b = &self.exec.buffers;
        let columns = brick.columns(&self.shape);
        let skip = self.shape.tokens - columns;
        for c in share(columns, tid, self.threads) {
            // SAFETY: column `c` of `dst` is this thread's; `src` was written under the same split or before a barrier.
            unsafe {
                let x = b.get(src).col(c + skip);
                (self.exec.ops.rms_norm)(x, weight, self.hp.norm_eps, b.get(dst).col_mut(c));
                self.quantise(dst, c, 0..weight.len());
            }
        }
    }

    /// Writes the int8 form of elements `range` of column `c`, where a quantised mat-mul will read it.
    ///
    /// # Safety
    /// These elements are this thread's; the range is whole groups.
    unsafe fn quantise(&self, buf: Buf, c: usize, range: Range<usize>) {
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
    fn pieces(
        &self,
        i: usize,
        tid: usize,
        total: usize,
        grain: usize,
        mut f: impl FnMut(Range<usize>),
    ) {
        match self.exec.config.schedule {
            Schedule::Static => {
                let units = share(total.div_ceil(grain), tid, self.threads);
                let r = units.start * grain..(units.end * grain).min(total);
                if !r.is_empty() {
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
                        return;
                    }
                    f(start..(start + piece).min(total));
                }
            }
        }
    }

    fn mat_mul(
        &self,
        i: usize,
        brick: &Brick,
        (w, bias): (&Matrix, Option<&[f32]>),
        (src, dst): (Buf, Buf),
        tid: usize,
    ) {
        let Some(kernel) = &self.exec.kernels[i] else {
            return;
        };
        let b = &self.exec.buffers;
        let columns = brick.columns(&self.shape);
        let (x, y) = (b.get(src), b.get(dst));
        assert!(w.rows <= y.dim(), "the plan's shapes agree");
        let bytes = self.model.bytes(w);
        self.pieces(i, tid, w.rows, ROW_GRAIN, |rows| {
            // SAFETY: these rows of `dst` were handed out once; the weights hold `w.rows` rows of `w.row_bytes`; `src` and
            // its int8 form were written before a barrier.
            unsafe {
                kernel.run(&MatCall {
                    w: bytes.as_ptr(),
                    row_bytes: w.row_bytes,
                    k: w.k,
                    rows: rows.clone(),
                    acts: match b.q8(src) {
                        Some(q8) if kernel.input == Input::Q8 => Acts::Q8(q8),
                        _ => Acts::F32 {
                            x: x.all(columns),
                            stride: x.stride(),
                        },
                    },
                    cols: 0..columns,
                    y: y.as_mut_ptr(),
                    ldy: y.stride(),
                });
                if bias.is_none() && (dst != Buf::Logits || self.hp.logit_softcap.is_none()) {
                    return;
                }
                for c in 0..columns {
                    let part = y.part_mut(c, rows.start, rows.len());
                    if let Some(bias) = bias {
                        (self.exec.ops.add)(part, &bias[rows.clone()]);
                    }
                    if let (Buf::Logits, Some(cap)) = (dst, self.hp.logit_softcap) {
                        (self.exec.ops.softcap)(part, cap);
                    }
                }
            }
        });
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
    unsafe fn head(&self, token: usize, slot: usize) -> &mut [f32] {
        let (b, dim, n) = (&self.exec.buffers, self.hp.head_dim_k, self.hp.n_head);
        // SAFETY: the caller's promise.
        unsafe {
            if slot < n {
                b.q.part_mut(token, slot * dim, dim)
            } else {
                b.k.part_mut(token, (slot - n) * dim, dim)
            }
        }
    }

    fn qk_norm(&self, q: &[f32], k: &[f32], tid: usize, token: usize, slot: usize) {
        let weight = if slot < self.hp.n_head { q } else { k };
        // SAFETY: the slot and the thread's scratch column are this thread's.
        let (head, scratch) = unsafe {
            (
                self.head(token, slot),
                self.exec.buffers.head_scratch.col_mut(tid),
            )
        };
        scratch.copy_from_slice(head);
        (self.exec.ops.rms_norm)(scratch, weight, self.hp.norm_eps, head);
    }

    fn rope(&self, table: usize, token: usize, slot: usize) {
        let half = self.plan.ropes[table].inv_freq.len();
        // SAFETY: the slot is this thread's; the angles were written before a barrier.
        let (head, angles) = unsafe {
            (
                self.head(token, slot),
                self.exec.buffers.ropes[table].col(token),
            )
        };
        let (cos, sin) = angles.split_at(half);
        rotate(head, cos, sin, self.hp.rope_style);
    }

    fn kv_write(&self, layer: usize, token: usize, slot: usize) {
        let hp = self.hp;
        if slot < hp.n_head {
            return;
        }
        let h = slot - hp.n_head;
        let place = self.step.places[token];
        let layer = self
            .exec
            .cache
            .layer(self.step.spans[place.span].seq, layer);
        let at = self.shape.slots.slot(place.position);
        let b = &self.exec.buffers;
        // SAFETY: the key head is this thread's since the rotation; values were written before a barrier; the cache
        // slot of this head is written by this thread alone (no two tokens of a step share one) and read after a barrier.
        unsafe {
            let k = self.head(token, slot);
            let v = &b.v.col(token)[h * hp.head_dim_v..][..hp.head_dim_v];
            match &self.exec.cache.planes {
                KvPlanes::F16(p) => p.write(layer, h, at, k, v),
                KvPlanes::F32(p) => p.write(layer, h, at, k, v),
                KvPlanes::Q8_0(p) => p.write(layer, h, at, k, v),
            }
        }
    }

    fn attend(&self, i: usize, layer: usize, window: Option<usize>, tid: usize) {
        let hp = self.hp;
        let dim = hp.head_dim_v;
        let inline_quantise = dim.is_multiple_of(Q8_BLOCK);
        self.pieces(i, tid, self.shape.tokens * hp.n_head, 1, |tasks| {
            for task in tasks {
                let (token, h) = (task / hp.n_head, task % hp.n_head);
                let at = (layer, token, h);
                match &self.exec.cache.planes {
                    KvPlanes::F16(p) => self.attend_head(p, at, window, tid),
                    KvPlanes::F32(p) => self.attend_head(p, at, window, tid),
                    KvPlanes::Q8_0(p) => self.attend_head(p, at, window, tid),
                }
                if inline_quantise {
                    // SAFETY: this head's output is this thread's.
                    unsafe { self.quantise(Buf::Heads, token, h * dim..(h + 1) * dim) };
                }
            }
        });
    }

    fn quantise_heads(&self, tid: usize) {
        for token in self.my_tokens(tid) {
            // SAFETY: this token's column is this thread's; its heads were written before a barrier.
            unsafe { self.quantise(Buf::Heads, token, 0..self.hp.attn_dim()) };
        }
    }

    fn attend_head<E: AttentionElem>(
        &self,
        planes: &Planes<E>,
        (layer, token, h): (usize, usize, usize),
        window: Option<usize>,
        tid: usize,
    ) {
        let hp = self.hp;
        let kv_head = h / (hp.n_head / hp.n_head_kv);
        let place = self.step.places[token];
        let span = &self.step.spans[place.span];
        let layer = self.exec.cache.layer(span.seq, layer);
        let slots = self.shape.slots;
        let seen = slots.seen(span, place.position, window);
        let runs = slots.runs(span, place.position, window);
        let b = &self.exec.buffers;
        // SAFETY: the output head is this task's, the score column this thread's; queries and cache were written before
        // a barrier.
        unsafe {
            let q = &b.q.col(token)[h * hp.head_dim_k..][..hp.head_dim_k];
            let scores = b.scores.part_mut(tid, 0, seen);
            let mut rest = &mut *scores;
            for run in runs.iter().filter(|r| !r.is_empty()) {
                let (part, after) = rest.split_at_mut(run.len());
                rest = after;
                let keys = planes.k.rows(layer, kv_head, run.start, run.end);
                (planes.ops.scores)(q, keys, hp.attn_scale, part);
            }
            if let Some(cap) = hp.attn_softcap {
                (self.exec.ops.softcap)(scores, cap);
            }
            (self.exec.ops.softmax)(scores);
            let out = b.heads.part_mut(token, h * hp.head_dim_v, hp.head_dim_v);
            out.fill(0.0);
            let mut rest = &*scores;
            for run in runs.iter().filter(|r| !r.is_empty()) {
                let (part, after) = rest.split_at(run.len());
                rest = after;
                let values = planes.v.rows(layer, kv_head, run.start, run.end);
                (planes.ops.weighted_sum)(part, values, out);
            }
        }
    }

    fn gate(&self, act: GateAct, tid: usize) {
        let (b, n) = (&self.exec.buffers, self.hp.n_ff);
        let unit = if n.is_multiple_of(Q8_BLOCK) {
            Q8_BLOCK
        } else {
            n
        };
        let units = n / unit;
        let mine = share(self.shape.tokens * units, tid, self.threads);
        let mut at = mine.start;
        while at < mine.end {
            let (token, u) = (at / units, at % units);
            let len = (units - u).min(mine.end - at);
            let range = u * unit..(u + len) * unit;
            // SAFETY: these groups are this thread's; both projections were written before a barrier.
            unsafe {
                let gate = &b.gate.col(token)[range.clone()];
                let up = &b.up.col(token)[range.clone()];
                let out = b.act.part_mut(token, range.start, range.len());
                match act {
                    GateAct::Silu => (self.exec.ops.silu_mul)(gate, up, out),
                    GateAct::GeluTanh => (self.exec.ops.gelu_tanh_mul)(gate, up, out),
                }
                self.quantise(Buf::Act, token, range);
            }
            at += len;
        }
    }

    fn residual(&self, src: Buf, tid: usize) {
        let b = &self.exec.buffers;
        for t in self.my_tokens(tid) {
            // SAFETY: this token's columns are this thread's; the output was written before a barrier or under the same
            // split.
            unsafe { (self.exec.ops.add)(b.x.col_mut(t), b.get(src).col(t)) };
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
