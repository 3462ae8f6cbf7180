//! The reference path: the plan of bricks in plain scalar f32 on dequantised weights, one operation after the other.
//!
//! It shares no arithmetic with the fast path, only the plan, and is what the fast path is judged by.

mod look;
pub(crate) mod product;

use super::capture::{Captured, Part};
use super::edit::{Edits, Site};
use super::inspect::BrickVector;
use super::{Config, EngineError};
use crate::model::arch::{Gating, Routing};
use crate::model::brick::BrickId;
use crate::model::{
    Act, Brick, Buf, Hparams, Matrix, Model, Op, RopeStyle, RopeTable, SharedExpert, Slots, Span,
};
use product::{dot, product, row_into};
use std::sync::Arc;

/// Activations of one step: one vector a token in every buffer, or one a pair of token and expert.
struct State {
    bufs: Vec<Vec<Vec<f32>>>,
    /// Expert and weight of every pair, for every token.
    routes: Vec<Vec<(usize, f32)>>,
}

impl State {
    fn new() -> Self {
        Self {
            bufs: vec![Vec::new(); Buf::ALL.len()],
            routes: Vec::new(),
        }
    }

    fn buf(&mut self, b: Buf) -> &mut Vec<Vec<f32>> {
        &mut self.bufs[b as usize]
    }

    fn get(&self, b: Buf) -> &[Vec<f32>] {
        &self.bufs[b as usize]
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
    ropes: Vec<&'m RopeTable>,
    cache: Vec<LayerCache>,
    slots: Slots,
    past: usize,
    live: usize,
    edits: Option<Arc<Edits>>,
}

/// Hears what a forward pass writes.
type Sink<'a> = dyn FnMut(Captured<'_>) + 'a;

/// Looks at what a brick has written.
type Look<'a, E> = dyn FnMut(usize, &[BrickVector<'_>]) -> Result<(), E> + 'a;

impl<'m> Reference<'m> {
    /// An empty cache, for the context length that an engine allocates by default.
    pub fn new(model: &'m Model) -> Self {
        Self::for_context(model, Config::for_context(model.hparams.n_ctx_train).n_ctx)
    }

    /// An empty cache that stands for one of `n_ctx` tokens, by which some models choose their rotary frequencies.
    pub fn for_context(model: &'m Model, n_ctx: usize) -> Self {
        let ropes = model.plan.ropes.iter();
        Self {
            model,
            ropes: ropes.map(|r| r.for_context(n_ctx)).collect(),
            cache: vec![LayerCache::default(); model.hparams.n_layers],
            slots: Slots {
                n: usize::MAX,
                keep: 0,
            },
            past: 0,
            live: 0,
            edits: None,
        }
    }

    /// What the passes from now on change in the stream.
    pub fn set_edits(&mut self, edits: Option<Arc<Edits>>) {
        self.edits = edits;
    }

    /// Empties the cache.
    pub fn clear(&mut self) {
        self.cache.fill(LayerCache::default());
        (self.past, self.live) = (0, 0);
    }

    /// The model.
    pub fn model(&self) -> &'m Model {
        self.model
    }

    /// The logit lens: vectors of the stream, `[n][n_embd]`, through final norm and head; `[n][n_vocab]`.
    pub fn lens(&mut self, residuals: Vec<Vec<f32>>) -> Vec<Vec<f32>> {
        let mut state = State::new();
        *state.buf(Buf::X) = residuals;
        for brick in self.model.plan.bricks.iter().filter(|b| b.layer.is_none()) {
            if !matches!(brick.op, Op::Embed { .. }) {
                self.run(&brick.op, 0, &[], &mut state);
            }
        }
        std::mem::take(state.buf(Buf::Logits))
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
        self.forward_captured(ids, &mut |_| {})
    }

    /// As [`Self::forward`]; `sink` gets every vector of the stream and of heads and keys, at every layer and position.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_captured(
        &mut self,
        ids: &[u32],
        sink: &mut Sink<'_>,
    ) -> Result<Vec<Vec<f32>>, EngineError> {
        self.pass::<EngineError>(ids, sink, None)
    }

    /// As [`Self::forward`]; after every brick of the plan `look` gets its index and what it has written, tokens in order.
    /// The cache is to be cleared when `look` has stopped the pass.
    ///
    /// # Errors
    /// As [`Self::forward`], and what `look` returns.
    pub fn forward_inspected<E: From<EngineError>>(
        &mut self,
        ids: &[u32],
        look: &mut Look<'_, E>,
    ) -> Result<Vec<Vec<f32>>, E> {
        self.pass(ids, &mut |_| {}, Some(look))
    }

    fn pass<E: From<EngineError>>(
        &mut self,
        ids: &[u32],
        sink: &mut Sink<'_>,
        mut look: Option<&mut Look<'_, E>>,
    ) -> Result<Vec<Vec<f32>>, E> {
        self.check(ids)?;
        self.live = self.slots.live_after(self.live, self.past + ids.len());
        let mut state = State::new();
        for (i, brick) in self.model.plan.bricks.iter().enumerate() {
            if let Op::Residual { src, scale } = brick.op {
                self.add_delta(brick, (src, scale), &mut state, sink);
            } else {
                self.run(&brick.op, brick.layer.unwrap_or(0), ids, &mut state);
                self.watch(brick, &mut state, sink);
            }
            if let Some(look) = &mut look {
                look(i, &state.vectors(&brick.op, &self.model.hparams))?;
            }
        }
        self.past += ids.len();
        Ok(std::mem::take(state.buf(Buf::Logits)))
    }

    fn check(&self, ids: &[u32]) -> Result<(), EngineError> {
        let n_vocab = self.model.n_vocab;
        if ids.is_empty() {
            return Err(EngineError::Empty);
        }
        if let Some(&id) = ids.iter().find(|&&id| id as usize >= n_vocab) {
            return Err(EngineError::BadToken { id, n_vocab });
        }
        let needed = self.past + ids.len();
        match self.model.max_context() {
            Some(n_ctx) if needed > n_ctx => Err(EngineError::ContextFull { needed, n_ctx }),
            _ => Ok(()),
        }
    }

    fn run(&mut self, op: &Op, layer: usize, ids: &[u32], s: &mut State) {
        let hp = &self.model.hparams;
        match op {
            Op::Embed {
                table,
                scale,
                positions,
            } => {
                let rows = ids.iter().enumerate().map(|(t, &id)| {
                    let mut x = self.row(table, id as usize);
                    x.iter_mut().for_each(|v| *v *= scale);
                    if let Some(positions) = positions {
                        add(&mut x, &self.row(positions, self.past + t), 1.0);
                    }
                    x
                });
                *s.buf(Buf::X) = rows.collect();
            }
            Op::Norm {
                src,
                dst,
                weight,
                bias,
            } => {
                let norm = |x: &Vec<f32>| match bias {
                    Some(bias) => layer_norm(x, weight, bias, hp.norm_eps),
                    None => rms_norm(x, weight, hp.norm_eps),
                };
                *s.buf(*dst) = s.get(*src).iter().map(norm).collect();
            }
            Op::Copy { src, dst } => *s.buf(*dst) = s.get(*src).to_vec(),
            Op::MatMul { w, bias, src, dst } => {
                let mut out = product(self.model, w, s.get(*src));
                if let Some(bias) = bias {
                    out.iter_mut().for_each(|y| add(y, bias, 1.0));
                }
                if *dst == Buf::Logits {
                    for l in out.iter_mut().flatten() {
                        *l *= hp.logit_scale;
                        *l = hp.logit_softcap.map_or(*l, |cap| softcap(*l, cap));
                    }
                }
                *s.buf(*dst) = out;
            }
            Op::QkNorm { q, k } => {
                for (buf, w) in [(Buf::Q, q), (Buf::K, k)] {
                    for part in s
                        .buf(buf)
                        .iter_mut()
                        .flat_map(|x| x.chunks_exact_mut(w.len()))
                    {
                        let normed = rms_norm(part, w, hp.norm_eps);
                        part.copy_from_slice(&normed);
                    }
                }
            }
            Op::Rope { table } => {
                let table = self.ropes[*table];
                for buf in [Buf::Q, Buf::K] {
                    for (t, x) in s.buf(buf).iter_mut().enumerate() {
                        rope(x, self.past + t, table, hp);
                    }
                }
            }
            Op::KvWrite => {
                self.cache[layer].k.extend(s.get(Buf::K).iter().cloned());
                self.cache[layer].v.extend(s.get(Buf::V).iter().cloned());
            }
            Op::Attend { window, sinks } => {
                let span = Span {
                    seq: 0,
                    past: self.past,
                    tokens: ids.len(),
                    live: self.live,
                };
                let heads = |(t, q): (usize, &Vec<f32>)| {
                    let position = self.past + t;
                    let (kept, rest) = self.slots.visible(&span, position, *window);
                    let seen: Vec<usize> = kept.chain(rest).collect();
                    attend(q, position, &self.cache[layer], &seen, sinks.as_deref(), hp)
                };
                *s.buf(Buf::Heads) = s.get(Buf::Q).iter().enumerate().map(heads).collect();
            }
            // Plain floats have no second form.
            Op::QuantiseHeads => {}
            Op::Activate {
                act, gate, up, dst, ..
            } => {
                let out = s.get(*gate).iter().enumerate().map(|(c, gate)| {
                    let up = up.map(|up| &s.get(up)[c]);
                    let at = |(i, &g): (usize, &f32)| activation(*act, g, up.map(|up| up[i]));
                    gate.iter().enumerate().map(at).collect()
                });
                *s.buf(*dst) = out.collect();
            }
            Op::Route {
                routing,
                bias,
                scale,
            } => {
                let n = hp.n_expert_used();
                let choose =
                    |logits: &Vec<f32>| route(logits, bias.as_deref(), *routing, n, *scale);
                s.routes = s.get(Buf::Router).iter().map(choose).collect();
            }
            Op::Dispatch { src } => {
                let tokens = s.get(*src).iter().zip(&s.routes);
                *s.buf(Buf::ExpertIn) = tokens
                    .flat_map(|(x, routes)| vec![x.clone(); routes.len()])
                    .collect();
            }
            Op::ExpertMatMul { w, bias, src, dst } => {
                let experts: Vec<usize> = s.routes.iter().flatten().map(|r| r.0).collect();
                let mut out = vec![Vec::new(); experts.len()];
                for (e, w) in w.iter().enumerate() {
                    let mine = || (0..experts.len()).filter(|&c| experts[c] == e);
                    let inputs: Vec<_> = mine().map(|c| s.get(*src)[c].clone()).collect();
                    for (c, mut y) in mine().zip(product(self.model, w, &inputs)) {
                        if let Some(bias) = bias {
                            add(&mut y, &bias[e * w.rows..][..w.rows], 1.0);
                        }
                        out[c] = y;
                    }
                }
                *s.buf(*dst) = out;
            }
            Op::Combine { shared, src } => {
                let mut columns = s.get(Buf::ExpertOut).iter();
                let mut out = Vec::with_capacity(s.routes.len());
                for (t, routes) in s.routes.iter().enumerate() {
                    let mut y = match shared {
                        SharedExpert::None => vec![0.0; hp.n_embd],
                        _ => s.get(Buf::Out)[t].clone(),
                    };
                    if let SharedExpert::Gated(gate) = shared {
                        let g = sigmoid(dot(&s.get(*src)[t], gate));
                        y.iter_mut().for_each(|y| *y *= g);
                    }
                    for ((_, weight), x) in routes.iter().zip(&mut columns) {
                        add(&mut y, x, *weight);
                    }
                    out.push(y);
                }
                *s.buf(Buf::Out) = out;
            }
            // See `add_delta`.
            Op::Residual { .. } => {}
        }
    }

    /// What a block adds to the stream, changed and told on the way.
    fn add_delta(
        &self,
        brick: &Brick,
        (src, scale): (Buf, f32),
        s: &mut State,
        sink: &mut Sink<'_>,
    ) {
        let layer = brick.layer.map_or(0, |l| l + 1);
        let (site, part) = match brick.id {
            BrickId::AttnResidual => (Site::Attention, Part::AttnDelta),
            _ => (Site::Ffn, Part::FfnDelta),
        };
        let mut deltas = s.get(src).to_vec();
        for (t, delta) in deltas.iter_mut().enumerate() {
            delta.iter_mut().for_each(|v| *v *= scale);
            self.change(layer, site, t, delta);
            self.tell((layer, part, t), delta, sink);
        }
        for (t, (x, delta)) in s.buf(Buf::X).iter_mut().zip(deltas).enumerate() {
            add(x, &delta, 1.0);
            if brick.id == BrickId::FfnResidual {
                self.change(layer, Site::Residual, t, x);
                self.tell((layer, Part::Residual, t), x, sink);
            }
        }
    }

    /// Changes and tells what a brick has written.
    fn watch(&self, brick: &Brick, s: &mut State, sink: &mut Sink<'_>) {
        let hp = &self.model.hparams;
        let layer = brick.layer.map_or(0, |l| l + 1);
        let experts = brick.layer.is_some() && Edits::has_experts(self.model, layer);
        match &brick.op {
            Op::Embed { .. } => {
                for (t, x) in s.buf(Buf::X).iter_mut().enumerate() {
                    self.change(0, Site::Residual, t, x);
                    self.tell((0, Part::Residual, t), x, sink);
                    let zeros = vec![0.0; x.len()];
                    for part in [Part::AttnDelta, Part::FfnDelta] {
                        self.tell((0, part, t), &zeros, sink);
                    }
                }
            }
            Op::Attend { .. } => {
                for (t, x) in s.buf(Buf::Heads).iter_mut().enumerate() {
                    for (h, head) in x.chunks_exact_mut(hp.head_dim_v).enumerate() {
                        self.change(layer, Site::Head(h), t, head);
                    }
                    self.tell((layer, Part::Heads, t), x, sink);
                }
            }
            Op::Activate { dst, n, .. } if dst.is_paired() => {
                let pairs = s.pairs();
                for ((t, expert), x) in pairs.into_iter().zip(s.buf(*dst)) {
                    self.change_neurons(layer, t, expert * n, x);
                }
            }
            Op::Activate { dst, .. } if !experts => {
                for (t, x) in s.buf(*dst).iter_mut().enumerate() {
                    self.change_neurons(layer, t, 0, x);
                    self.tell((layer, Part::Key, t), x, sink);
                }
            }
            Op::MatMul { src, dst, .. } if brick.id == BrickId::DownProj && !experts => {
                let inputs = s.get(*src).to_vec();
                for (x, out) in inputs.iter().zip(s.buf(*dst)) {
                    self.add_rank_one(layer, x, out);
                }
            }
            Op::Combine { src, .. } => {
                let inputs = s.get(*src).to_vec();
                for (t, (x, out)) in inputs.iter().zip(s.buf(Buf::Out)).enumerate() {
                    self.add_rank_one(layer, x, out);
                    self.tell((layer, Part::Key, t), x, sink);
                }
            }
            _ => {}
        }
    }

    fn change(&self, layer: usize, site: Site, token: usize, x: &mut [f32]) {
        if let Some(edits) = &self.edits {
            edits.change(layer, site, self.past + token, x);
        }
    }

    fn change_neurons(&self, layer: usize, token: usize, first: usize, x: &mut [f32]) {
        if let Some(edits) = &self.edits {
            edits.change_neurons(layer, self.past + token, first, x);
        }
    }

    fn add_rank_one(&self, layer: usize, input: &[f32], out: &mut [f32]) {
        for change in self.edits.iter().flat_map(|e| e.of_layer(layer)) {
            add(out, &change.value, dot(input, &change.key));
        }
    }

    fn tell(&self, (layer, part, token): (usize, Part, usize), data: &[f32], sink: &mut Sink<'_>) {
        sink(Captured {
            layer,
            part,
            position: self.past + token,
            data,
        });
    }

    fn row(&self, m: &Matrix, row: usize) -> Vec<f32> {
        let mut out = vec![0.0; m.k];
        row_into(self.model, m, row, &mut out);
        out
    }
}

fn rms_norm(x: &[f32], w: &[f32], eps: f32) -> Vec<f32> {
    let mean = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / x.len() as f64;
    let scale = (1.0 / (mean + f64::from(eps)).sqrt()) as f32;
    x.iter().zip(w).map(|(v, w)| v * scale * w).collect()
}

fn layer_norm(x: &[f32], w: &[f32], b: &[f32], eps: f32) -> Vec<f32> {
    let n = x.len() as f64;
    let mean = x.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
    let var = x
        .iter()
        .map(|v| (f64::from(*v) - mean).powi(2))
        .sum::<f64>()
        / n;
    let scale = 1.0 / (var + f64::from(eps)).sqrt();
    let normed = x.iter().map(|v| ((f64::from(*v) - mean) * scale) as f32);
    normed.zip(w).zip(b).map(|((v, w), b)| v * w + b).collect()
}

/// `x += y * scale`
fn add(x: &mut [f32], y: &[f32], scale: f32) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y * scale);
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// The experts of a token and their weights.
fn route(
    logits: &[f32],
    bias: Option<&[f32]>,
    how: Routing,
    n: usize,
    scale: f32,
) -> Vec<(usize, f32)> {
    let mut probs = logits.to_vec();
    match how.gating {
        Gating::Softmax => softmax(&mut probs),
        Gating::Sigmoid => probs.iter_mut().for_each(|p| *p = sigmoid(*p)),
        Gating::SoftmaxSelected => {}
    }
    let by = |e: usize| probs[e] + bias.map_or(0.0, |b| b[e]);
    let mut order: Vec<usize> = (0..probs.len()).collect();
    order.sort_by(|&a, &b| by(b).total_cmp(&by(a)));
    order.truncate(n);
    let mut weights: Vec<f32> = order.iter().map(|&e| probs[e]).collect();
    if how.gating == Gating::SoftmaxSelected {
        softmax(&mut weights);
    }
    // llama.cpp's least sum: the smallest normal half.
    let sum = weights
        .iter()
        .sum::<f32>()
        .max(f32::from(half::f16::MIN_POSITIVE));
    let norm = if how.normalise { sum } else { 1.0 };
    let weights = weights.iter().map(|w| w / norm * scale);
    order.into_iter().zip(weights).collect()
}

fn rope(x: &mut [f32], position: usize, table: &RopeTable, hp: &Hparams) {
    let half = table.inv_freq.len();
    let (mut cos, mut sin) = (vec![0.0; half], vec![0.0; half]);
    table.fill(position, &mut cos, &mut sin);
    for head in x.chunks_exact_mut(hp.head_dim_k) {
        for i in 0..half {
            let (a, b) = match hp.arch.rope {
                Some(RopeStyle::Adjacent) => (2 * i, 2 * i + 1),
                _ => (i, i + half),
            };
            let (u, v) = (head[a], head[b]);
            head[a] = u * cos[i] - v * sin[i];
            head[b] = u * sin[i] + v * cos[i];
        }
    }
}

fn attend(
    q: &[f32],
    position: usize,
    cache: &LayerCache,
    seen: &[usize],
    sinks: Option<&[f32]>,
    hp: &Hparams,
) -> Vec<f32> {
    let group = hp.n_head / hp.n_head_kv;
    let mut out = vec![0.0; hp.attn_dim()];
    for (h, out) in out.chunks_exact_mut(hp.head_dim_v).enumerate() {
        let q = &q[h * hp.head_dim_k..][..hp.head_dim_k];
        let (k_at, v_at) = (h / group * hp.head_dim_k, h / group * hp.head_dim_v);
        let mut scores: Vec<f32> = seen
            .iter()
            .map(|&at| {
                let k = &cache.k[at];
                let s = dot(q, &k[k_at..][..hp.head_dim_k]) * hp.score_scale(position);
                hp.attn_softcap.map_or(s, |cap| softcap(s, cap))
            })
            .collect();
        // A sink takes part in the softmax; the sum below, over positions, leaves its share out.
        scores.extend(sinks.map(|s| s[h]));
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

fn activation(act: Act, g: f32, up: Option<f32>) -> f32 {
    let activated = match act {
        Act::Silu => g * sigmoid(g),
        Act::GeluTanh => {
            let inner = (2.0 / std::f32::consts::PI).sqrt() * (g + 0.044_715 * g * g * g);
            0.5 * g * (1.0 + inner.tanh())
        }
        Act::Relu2 => g.max(0.0).powi(2),
        Act::SwigluOai => g.min(7.0) * sigmoid(1.702 * g.min(7.0)),
    };
    match (act, up) {
        (Act::SwigluOai, Some(up)) => activated * (up.clamp(-7.0, 7.0) + 1.0),
        (_, Some(up)) => activated * up,
        (_, None) => activated,
    }
}
