//! Runs bricks on the pool: every thread walks the same list and does its share of each brick.

use super::attention::{AttentionElem, AttentionOps};
use super::buffers::{Columns, share};
use super::kv::{KvCache, Planes};
use super::pool::{Barrier, Poisoned, Pool};
use super::{Acts, FloatOps, Input, KernelSet, MatCall, MatKernel, QActs, float_ops, mat_kernel};
use crate::engine::config::Schedule;
use crate::engine::sampler::Sampler;
use crate::engine::{Choice, Config, EngineError, NO_LAYER, Observer};
use crate::model::work::StepShape;
use crate::model::{Brick, Buf, GateAct, Hparams, Matrix, Model, Op, Plan, RopeStyle};
use crate::quant;
use half::f16;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Rows a thread takes at a time at least: a multiple of every kernel's row tile.
const ROW_GRAIN: usize = 16;
/// Elements an int8 activation group has.
const GROUP: usize = 32;

/// What is being computed: the tokens of one step.
#[derive(Debug, Default)]
pub struct StepInput {
    /// Token ids, at most a chunk.
    pub ids: Vec<u32>,
    /// Positions in the cache before them.
    pub past: usize,
    /// How many of the last tokens' logits are wanted.
    pub logit_rows: usize,
}

/// Buffers, cache and kernels of one sequence.
pub struct Executor {
    config: Config,
    ops: &'static FloatOps,
    attention_f16: AttentionOps<f16>,
    attention_f32: AttentionOps<f32>,
    /// The kernel of every mat-mul brick, by brick index.
    kernels: Vec<Option<MatKernel>>,
    buffers: Buffers,
    cache: KvCache,
    /// Next free row or task of every brick, for dynamic schedules.
    counters: Vec<AtomicUsize>,
}

/// Activations of one step.
struct Buffers {
    x: Columns,
    normed: Columns,
    q: Columns,
    k: Columns,
    v: Columns,
    heads: Columns,
    out: Columns,
    post_normed: Columns,
    gate: Columns,
    up: Columns,
    act: Columns,
    logits: Columns,
    /// int8 forms of those that feed quantised mat-muls.
    normed_q8: Option<QActs>,
    heads_q8: Option<QActs>,
    act_q8: Option<QActs>,
    /// Cosines, then sines, of every rotary table, one column a token.
    ropes: Vec<Columns>,
    /// Scores of one head over the context, one column a thread.
    scores: Columns,
    /// One head being normed, one column a thread.
    head_scratch: Columns,
}

impl Buffers {
    fn new(model: &Model, c: &Config) -> Self {
        let hp = &model.hparams;
        let cols = |dim| Columns::new(dim, c.chunk);
        let feeds_quantised = |buf: Buf| {
            model.plan.bricks.iter().any(|b| {
                matches!(&b.op, Op::MatMul { w, src, .. } if *src == buf && mat_kernel(c.kernels, w.ty).is_some_and(|k| k.input == Input::Q8))
            })
        };
        let writes = |buf: Buf| {
            model
                .plan
                .bricks
                .iter()
                .any(|b| matches!(&b.op, Op::Norm { dst, .. } if *dst == buf))
        };
        let q8 = |buf, k| feeds_quantised(buf).then(|| QActs::new(c.chunk, k));
        Self {
            x: cols(hp.n_embd),
            normed: cols(hp.n_embd),
            q: cols(hp.q_dim()),
            k: cols(hp.k_dim()),
            v: cols(hp.v_dim()),
            heads: cols(hp.attn_dim()),
            out: cols(hp.n_embd),
            post_normed: cols(if writes(Buf::PostNormed) {
                hp.n_embd
            } else {
                0
            }),
            gate: cols(hp.n_ff),
            up: cols(hp.n_ff),
            act: cols(hp.n_ff),
            logits: Columns::new(model.n_vocab, c.logit_rows),
            normed_q8: q8(Buf::Normed, hp.n_embd),
            heads_q8: q8(Buf::Heads, hp.attn_dim()),
            act_q8: q8(Buf::Act, hp.n_ff),
            ropes: model
                .plan
                .ropes
                .iter()
                .map(|r| cols(2 * r.inv_freq.len()))
                .collect(),
            scores: Columns::new(c.n_ctx, c.threads),
            head_scratch: Columns::new(hp.head_dim_k, c.threads),
        }
    }

    fn get(&self, b: Buf) -> &Columns {
        match b {
            Buf::X => &self.x,
            Buf::Normed => &self.normed,
            Buf::Q => &self.q,
            Buf::K => &self.k,
            Buf::V => &self.v,
            Buf::Heads => &self.heads,
            Buf::Out => &self.out,
            Buf::PostNormed => &self.post_normed,
            Buf::Gate => &self.gate,
            Buf::Up => &self.up,
            Buf::Act => &self.act,
            Buf::Logits => &self.logits,
        }
    }

    fn q8(&self, b: Buf) -> Option<&QActs> {
        match b {
            Buf::Normed => self.normed_q8.as_ref(),
            Buf::Heads => self.heads_q8.as_ref(),
            Buf::Act => self.act_q8.as_ref(),
            _ => None,
        }
    }

    fn all_q8_mut(&mut self) -> impl Iterator<Item = &mut QActs> {
        [&mut self.normed_q8, &mut self.heads_q8, &mut self.act_q8]
            .into_iter()
            .flatten()
    }

    fn bytes(&self) -> u64 {
        let fixed = [
            &self.x,
            &self.normed,
            &self.q,
            &self.k,
            &self.v,
            &self.heads,
            &self.out,
            &self.post_normed,
            &self.gate,
            &self.up,
            &self.act,
            &self.logits,
            &self.scores,
            &self.head_scratch,
        ];
        let floats: u64 = fixed
            .into_iter()
            .chain(&self.ropes)
            .map(Columns::bytes)
            .sum();
        let q8: u64 = [&self.normed_q8, &self.heads_q8, &self.act_q8]
            .into_iter()
            .flatten()
            .map(QActs::bytes)
            .sum();
        floats + q8
    }
}

impl Executor {
    /// Allocates everything a sequence needs.
    ///
    /// # Errors
    /// A tensor type without kernels, or not enough memory.
    pub fn new(model: &Model, config: &Config) -> Result<Self, EngineError> {
        let mut kernels = Vec::with_capacity(model.plan.bricks.len());
        for brick in &model.plan.bricks {
            kernels.push(match &brick.op {
                Op::MatMul { w, .. } => {
                    Some(mat_kernel(config.kernels, w.ty).ok_or_else(|| {
                        EngineError::Config(format!(
                            "kernels '{}' cannot run {} weights",
                            config.kernels.name(),
                            w.ty
                        ))
                    })?)
                }
                _ => None,
            });
        }
        Ok(Self {
            ops: float_ops(config.kernels),
            attention_f16: f16::ops(config.kernels),
            attention_f32: f32::ops(config.kernels),
            kernels,
            buffers: Buffers::new(model, config),
            cache: KvCache::new(&model.hparams, config.n_ctx, config.kv_type)?,
            counters: model
                .plan
                .bricks
                .iter()
                .map(|_| AtomicUsize::new(0))
                .collect(),
            config: config.clone(),
        })
    }

    /// Bytes of activation buffers.
    pub fn scratch_bytes(&self) -> u64 {
        self.buffers.bytes()
    }

    /// Logits of row `row` of the last finished step, `[n_vocab]`.
    pub fn logits(&mut self, row: usize) -> &mut [f32] {
        // SAFETY: `&mut self`: no job is running and no other reference exists.
        unsafe { self.buffers.logits.col_mut(row) }
    }

    /// Samples from row `row` of the logits.
    pub fn sample(&mut self, row: usize, sampler: &mut Sampler) -> Choice {
        let ops = self.ops;
        let logits = &*self.logits(row);
        let id = sampler.sample(logits);
        let max = (ops.max)(logits);
        let mass = (ops.exp_sum)(logits, max);
        let prob = logits
            .get(id as usize)
            .map_or(f64::NAN, |l| f64::from(l - max).exp() / mass) as f32;
        Choice { id, prob }
    }

    /// The residual stream of token `col` of the last step, `[n_embd]`, as of the last brick that ran.
    pub fn residual(&mut self, col: usize) -> &[f32] {
        // SAFETY: `&mut self`: no job is running.
        unsafe { self.buffers.x.col(col) }
    }

    /// Runs bricks `range` of the plan on every thread of the pool. Thread 0 reports each of them.
    ///
    /// # Errors
    /// [`Poisoned`] when a thread panicked.
    pub fn run<O: Observer>(
        &mut self,
        model: &Model,
        pool: &mut Pool,
        range: Range<usize>,
        step: &StepInput,
        observer: &mut O,
    ) -> Result<(), Poisoned> {
        for c in &self.counters[range.clone()] {
            c.store(0, Ordering::Relaxed);
        }
        let tokens = step.ids.len();
        for q8 in self.buffers.all_q8_mut() {
            q8.set_shape(q8.k(), tokens);
        }
        let observer = OnThread0(UnsafeCell::new(observer));
        let job = Job {
            exec: self,
            model,
            hp: &model.hparams,
            plan: &model.plan,
            step,
            shape: StepShape {
                tokens,
                past: step.past,
                logit_rows: step.logit_rows,
                kv_bytes: self.config.kv_type.bytes(),
            },
            threads: pool.threads(),
        };
        pool.run(&|tid, barrier| {
            if tid == 0 {
                // SAFETY: only thread 0 comes here, once a dispatch.
                let observer = unsafe { observer.get() };
                job.walk_observed(range.clone(), barrier, *observer);
            } else {
                job.walk(range.clone(), tid, barrier);
            }
        })
    }
}

/// A value that only thread 0 touches.
struct OnThread0<T>(UnsafeCell<T>);

// SAFETY: `get` is called by thread 0 alone.
unsafe impl<T> Sync for OnThread0<T> {}

impl<T> OnThread0<T> {
    /// # Safety
    /// Called by one thread only, and the reference is dropped before the next call.
    #[allow(clippy::mut_from_ref)]
    unsafe fn get(&self) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.0.get() }
    }
}

/// One dispatch, seen by every thread.
struct Job<'a> {
    exec: &'a Executor,
    model: &'a Model,
    hp: &'a Hparams,
    plan: &'a Plan,
    step: &'a StepInput,
    shape: StepShape,
    threads: usize,
}

// The safety argument of every brick below is the same. Within a brick, threads write disjoint parts: columns, heads, rows or
// element ranges, by `share` or by counters that hand out each piece once. What a brick reads was written either by the
// same thread under the same split, or before a barrier (`Brick::barrier`; the plan's builder says where). A dispatch ends
// with all threads joined.
impl Job<'_> {
    fn walk(&self, range: Range<usize>, tid: usize, barrier: Barrier<'_>) {
        for i in range {
            let brick = &self.plan.bricks[i];
            if !self.run(i, brick, tid, barrier) || (brick.barrier && !barrier.wait()) {
                return;
            }
        }
    }

    fn walk_observed<O: Observer>(
        &self,
        range: Range<usize>,
        barrier: Barrier<'_>,
        observer: &mut O,
    ) {
        for i in range {
            let brick = &self.plan.bricks[i];
            let start = observer.start();
            if !self.run(i, brick, 0, barrier) {
                return;
            }
            let layer = brick.layer.map_or(NO_LAYER, |l| l as u16);
            let worked = observer.worked(start, brick.id, layer, brick.work(self.hp, &self.shape));
            if brick.barrier {
                if !barrier.wait() {
                    return;
                }
                observer.synced(worked);
            }
        }
    }

    /// This thread's share of a brick; `false` when another thread panicked.
    fn run(&self, i: usize, brick: &Brick, tid: usize, barrier: Barrier<'_>) -> bool {
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
            Op::Attend { window } => {
                return self.attend(i, brick.layer.unwrap_or(0), *window, tid, barrier);
            }
            Op::Gate { act } => self.gate(*act, tid),
            Op::Residual { src } => self.residual(*src, tid),
        }
        true
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
                    rope.fill(self.step.past + t, cos, sin);
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
                q8.quantise(
                    self.exec.ops,
                    c,
                    range.start,
                    &b.get(buf).col(c)[range.clone()],
                );
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
        let (h, position) = (slot - hp.n_head, self.step.past + token);
        let b = &self.exec.buffers;
        // SAFETY: the key head is this thread's since the rotation; values were written before a barrier; the cache
        // position of this head is written by this thread alone and read after a barrier.
        unsafe {
            let k = self.head(token, slot);
            let v = &b.v.col(token)[h * hp.head_dim_v..][..hp.head_dim_v];
            match &self.exec.cache {
                KvCache::F16(p) => {
                    p.k.write(layer, h, position, k);
                    p.v.write(layer, h, position, v);
                }
                KvCache::F32(p) => {
                    p.k.write(layer, h, position, k);
                    p.v.write(layer, h, position, v);
                }
            }
        }
    }

    fn attend(
        &self,
        i: usize,
        layer: usize,
        window: Option<usize>,
        tid: usize,
        barrier: Barrier<'_>,
    ) -> bool {
        let hp = self.hp;
        let dim = hp.head_dim_v;
        let inline_quantise = dim % GROUP == 0;
        self.pieces(i, tid, self.shape.tokens * hp.n_head, 1, |tasks| {
            for task in tasks {
                let (token, h) = (task / hp.n_head, task % hp.n_head);
                match &self.exec.cache {
                    KvCache::F16(p) => self.attend_head(
                        p,
                        &self.exec.attention_f16,
                        (layer, token, h),
                        window,
                        tid,
                    ),
                    KvCache::F32(p) => self.attend_head(
                        p,
                        &self.exec.attention_f32,
                        (layer, token, h),
                        window,
                        tid,
                    ),
                }
                if inline_quantise {
                    // SAFETY: this head's output is this thread's.
                    unsafe { self.quantise(Buf::Heads, token, h * dim..(h + 1) * dim) };
                }
            }
        });
        if !inline_quantise && self.exec.buffers.heads_q8.is_some() {
            // A group spans heads of different threads.
            if !barrier.wait() {
                return false;
            }
            for token in self.my_tokens(tid) {
                // SAFETY: this token's column is this thread's after the barrier.
                unsafe { self.quantise(Buf::Heads, token, 0..hp.attn_dim()) };
            }
        }
        true
    }

    fn attend_head<E: AttentionElem>(
        &self,
        planes: &Planes<E>,
        ops: &AttentionOps<E>,
        (layer, token, h): (usize, usize, usize),
        window: Option<usize>,
        tid: usize,
    ) {
        let hp = self.hp;
        let kv_head = h / (hp.n_head / hp.n_head_kv);
        let end = self.step.past + token + 1;
        let first = window.map_or(0, |w| end.saturating_sub(w));
        let b = &self.exec.buffers;
        // SAFETY: the output head is this task's, the score column this thread's; queries and cache were written before
        // a barrier.
        unsafe {
            let q = &b.q.col(token)[h * hp.head_dim_k..][..hp.head_dim_k];
            let scores = b.scores.part_mut(tid, 0, end - first);
            (ops.scores)(
                q,
                planes.k.rows(layer, kv_head, first, end),
                hp.attn_scale,
                scores,
            );
            if let Some(cap) = hp.attn_softcap {
                (self.exec.ops.softcap)(scores, cap);
            }
            (self.exec.ops.softmax)(scores);
            let out = b.heads.part_mut(token, h * hp.head_dim_v, hp.head_dim_v);
            (ops.weighted_sum)(scores, planes.v.rows(layer, kv_head, first, end), out);
        }
    }

    fn gate(&self, act: GateAct, tid: usize) {
        let (b, n) = (&self.exec.buffers, self.hp.n_ff);
        let unit = if n % GROUP == 0 { GROUP } else { n };
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

/// Kernel sets that can run every matrix of a model here.
pub fn runnable_sets(model: &Model) -> Vec<KernelSet> {
    KernelSet::available()
        .iter()
        .copied()
        .filter(|&set| {
            model.plan.bricks.iter().all(|b| match &b.op {
                Op::MatMul { w, .. } => mat_kernel(set, w.ty).is_some(),
                _ => true,
            })
        })
        .collect()
}
