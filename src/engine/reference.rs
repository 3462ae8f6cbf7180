//! The reference path: the plan of bricks in plain scalar f32 on dequantised weights, one operation after the other.
//!
//! It shares no arithmetic with the fast path, only the plan, and is what the fast path is judged by.

use super::EngineError;
use crate::model::{Buf, GateAct, Hparams, Matrix, Model, Op, RopeStyle, RopeTable, Slots, Span};
use crate::quant;

/// Activations of one step: one vector a token in every buffer.
#[derive(Default)]
struct State {
    x: Vec<Vec<f32>>,
    normed: Vec<Vec<f32>>,
    q: Vec<Vec<f32>>,
    k: Vec<Vec<f32>>,
    v: Vec<Vec<f32>>,
    heads: Vec<Vec<f32>>,
    out: Vec<Vec<f32>>,
    post_normed: Vec<Vec<f32>>,
    gate: Vec<Vec<f32>>,
    up: Vec<Vec<f32>>,
    act: Vec<Vec<f32>>,
    logits: Vec<Vec<f32>>,
}

impl State {
    fn buf(&mut self, b: Buf) -> &mut Vec<Vec<f32>> {
        match b {
            Buf::X => &mut self.x,
            Buf::Normed => &mut self.normed,
            Buf::Q => &mut self.q,
            Buf::K => &mut self.k,
            Buf::V => &mut self.v,
            Buf::Heads => &mut self.heads,
            Buf::Out => &mut self.out,
            Buf::PostNormed => &mut self.post_normed,
            Buf::Gate => &mut self.gate,
            Buf::Up => &mut self.up,
            Buf::Act => &mut self.act,
            Buf::Logits => &mut self.logits,
        }
    }
}

/// Keys and values of one layer, one vector a position.
#[derive(Default, Clone)]
struct LayerCache {
    k: Vec<Vec<f32>>,
    v: Vec<Vec<f32>>,
}

/// A forward pass with its own cache.
pub struct Reference<'m> {
    model: &'m Model,
    cache: Vec<LayerCache>,
    slots: Slots,
    past: usize,
    live: usize,
}

impl<'m> Reference<'m> {
    /// An empty cache.
    pub fn new(model: &'m Model) -> Self {
        Self {
            model,
            cache: vec![LayerCache::default(); model.hparams.n_layers],
            slots: Slots {
                n: usize::MAX,
                keep: 0,
            },
            past: 0,
            live: 0,
        }
    }

    /// An empty cache of which only what `slots` would hold is seen; a call of [`Self::forward`] is a step.
    pub fn with_slots(model: &'m Model, slots: Slots) -> Self {
        Self {
            slots,
            ..Self::new(model)
        }
    }

    /// Runs `ids` after what is in the cache; logits of every one of them, `[ids.len()][n_vocab]`.
    ///
    /// # Errors
    /// No tokens, or one outside the vocabulary.
    pub fn forward(&mut self, ids: &[u32]) -> Result<Vec<Vec<f32>>, EngineError> {
        self.forward_observed(ids, &mut |_, _| {})
    }

    /// As [`Self::forward`]; `observe(layer, residual)` sees the residual stream after every layer, `[ids.len()][n_embd]`.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_observed(
        &mut self,
        ids: &[u32],
        observe: &mut dyn FnMut(usize, &[Vec<f32>]),
    ) -> Result<Vec<Vec<f32>>, EngineError> {
        let n_vocab = self.model.n_vocab;
        if ids.is_empty() {
            return Err(EngineError::Empty);
        }
        if let Some(&id) = ids.iter().find(|&&id| id as usize >= n_vocab) {
            return Err(EngineError::BadToken { id, n_vocab });
        }
        self.live = self.slots.live_after(self.live, self.past + ids.len());
        let mut state = State::default();
        let plan = &self.model.plan;
        for (i, brick) in plan.bricks.iter().enumerate() {
            self.run(&brick.op, brick.layer.unwrap_or(0), ids, &mut state);
            if let Some(layer) = brick.layer
                && plan.layer_starts.get(layer + 1) == Some(&(i + 1))
            {
                observe(layer, &state.x);
            }
        }
        self.past += ids.len();
        Ok(state.logits)
    }

    fn run(&mut self, op: &Op, layer: usize, ids: &[u32], s: &mut State) {
        let hp = &self.model.hparams;
        match op {
            Op::Embed { table, scale } => {
                s.x = ids.iter().map(|&id| self.row(table, id as usize)).collect();
                s.x.iter_mut().flatten().for_each(|v| *v *= scale);
            }
            Op::Norm { src, dst, weight } => {
                let out = s
                    .buf(*src)
                    .iter()
                    .map(|x| rms_norm(x, weight, hp.norm_eps))
                    .collect();
                *s.buf(*dst) = out;
            }
            Op::MatMul { w, bias, src, dst } => {
                let mut out = self.mat_mul(w, s.buf(*src));
                if let Some(bias) = bias {
                    for y in &mut out {
                        y.iter_mut().zip(bias.iter()).for_each(|(y, b)| *y += b);
                    }
                }
                if let (Buf::Logits, Some(cap)) = (dst, hp.logit_softcap) {
                    out.iter_mut().flatten().for_each(|l| *l = softcap(*l, cap));
                }
                *s.buf(*dst) = out;
            }
            Op::QkNorm { q, k } => {
                for (buf, w) in [(Buf::Q, q), (Buf::K, k)] {
                    for head in s
                        .buf(buf)
                        .iter_mut()
                        .flat_map(|x| x.chunks_exact_mut(hp.head_dim_k))
                    {
                        let normed = rms_norm(head, w, hp.norm_eps);
                        head.copy_from_slice(&normed);
                    }
                }
            }
            Op::Rope { table } => {
                let table = &self.model.plan.ropes[*table];
                for buf in [Buf::Q, Buf::K] {
                    for (t, x) in s.buf(buf).iter_mut().enumerate() {
                        rope(x, self.past + t, table, hp);
                    }
                }
            }
            Op::KvWrite => {
                self.cache[layer].k.extend(s.k.iter().cloned());
                self.cache[layer].v.extend(s.v.iter().cloned());
            }
            Op::Attend { window } => {
                let span = Span {
                    seq: 0,
                    past: self.past,
                    tokens: ids.len(),
                    live: self.live,
                };
                let seen = |t| {
                    let (kept, rest) = self.slots.visible(&span, self.past + t, *window);
                    kept.chain(rest).collect::<Vec<_>>()
                };
                s.heads =
                    s.q.iter()
                        .enumerate()
                        .map(|(t, q)| attend(q, &self.cache[layer], &seen(t), hp))
                        .collect();
            }
            // Plain floats have no second form.
            Op::QuantiseHeads => {}
            Op::Gate { act } => {
                let gated = |(g, u): (&Vec<f32>, &Vec<f32>)| {
                    let both = g.iter().zip(u);
                    both.map(|(g, u)| activation(*act, *g) * u).collect()
                };
                s.act = s.gate.iter().zip(&s.up).map(gated).collect();
            }
            Op::Residual { src } => {
                let added = s.buf(*src).clone();
                for (x, o) in s.x.iter_mut().flatten().zip(added.iter().flatten()) {
                    *x += o;
                }
            }
        }
    }

    fn row(&self, m: &Matrix, row: usize) -> Vec<f32> {
        let bytes = &self.model.bytes(m)[row * m.row_bytes..(row + 1) * m.row_bytes];
        let mut out = vec![0.0; m.k];
        // The model checked the type and the row size when it was built, so this cannot fail.
        if quant::dequantise_row(m.ty, bytes, &mut out).is_err() {
            out.fill(f32::NAN);
        }
        out
    }

    fn mat_mul(&self, m: &Matrix, columns: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let mut out = vec![vec![0.0; m.rows]; columns.len()];
        for r in 0..m.rows {
            let w = self.row(m, r);
            for (y, x) in out.iter_mut().zip(columns) {
                y[r] = dot(&w, x);
            }
        }
        out
    }
}

/// Inner product with eight partial sums, which keeps the rounding error of long rows small.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; 8];
    let (a8, b8) = (a.chunks_exact(8), b.chunks_exact(8));
    let tail: f32 = a8
        .remainder()
        .iter()
        .zip(b8.remainder())
        .map(|(x, y)| x * y)
        .sum();
    for (x, y) in a8.zip(b8) {
        for i in 0..8 {
            sums[i] += x[i] * y[i];
        }
    }
    sums.iter().sum::<f32>() + tail
}

fn rms_norm(x: &[f32], w: &[f32], eps: f32) -> Vec<f32> {
    let mean = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / x.len() as f64;
    let scale = (1.0 / (mean + f64::from(eps)).sqrt()) as f32;
    x.iter().zip(w).map(|(v, w)| v * scale * w).collect()
}

fn rope(x: &mut [f32], position: usize, table: &RopeTable, hp: &Hparams) {
    let half = table.inv_freq.len();
    let (mut cos, mut sin) = (vec![0.0; half], vec![0.0; half]);
    table.fill(position, &mut cos, &mut sin);
    for head in x.chunks_exact_mut(hp.head_dim_k) {
        for i in 0..half {
            let (a, b) = match hp.rope_style {
                RopeStyle::Adjacent => (2 * i, 2 * i + 1),
                RopeStyle::Halves => (i, i + half),
            };
            let (u, v) = (head[a], head[b]);
            head[a] = u * cos[i] - v * sin[i];
            head[b] = u * sin[i] + v * cos[i];
        }
    }
}

fn attend(q: &[f32], cache: &LayerCache, seen: &[usize], hp: &Hparams) -> Vec<f32> {
    let group = hp.n_head / hp.n_head_kv;
    let mut out = vec![0.0; hp.attn_dim()];
    for (h, out) in out.chunks_exact_mut(hp.head_dim_v).enumerate() {
        let q = &q[h * hp.head_dim_k..][..hp.head_dim_k];
        let (k_at, v_at) = (h / group * hp.head_dim_k, h / group * hp.head_dim_v);
        let mut scores: Vec<f32> = seen
            .iter()
            .map(|&position| {
                let k = &cache.k[position];
                let s = dot(q, &k[k_at..][..hp.head_dim_k]) * hp.attn_scale;
                hp.attn_softcap.map_or(s, |cap| softcap(s, cap))
            })
            .collect();
        softmax(&mut scores);
        for (p, v) in scores.iter().zip(seen.iter().map(|&p| &cache.v[p])) {
            out.iter_mut()
                .zip(&v[v_at..])
                .for_each(|(o, v)| *o += p * v);
        }
    }
    out
}

fn softmax(x: &mut [f32]) {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    x.iter_mut().for_each(|v| *v = (*v - max).exp());
    let sum: f32 = x.iter().sum();
    x.iter_mut().for_each(|v| *v /= sum);
}

fn softcap(x: f32, cap: f32) -> f32 {
    cap * (x / cap).tanh()
}

fn activation(act: GateAct, x: f32) -> f32 {
    match act {
        GateAct::Silu => x / (1.0 + (-x).exp()),
        GateAct::GeluTanh => {
            let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
    }
}
