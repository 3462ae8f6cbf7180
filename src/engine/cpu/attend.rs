//! Bricks that write and read the kv cache, one thread's share of each.

use super::FloatOps;
use super::attention::{AttentionElem, MANY};
use super::bricks::Job;
use super::kv::{KvPlanes, Planes};
use crate::engine::Done;
use crate::engine::config::AttentionPasses;
use crate::model::{Buf, Q8_BLOCK};
use std::ops::Range;

/// Runs of slots that a query sees.
const RUNS: usize = 3;

/// A query head of a token and the slots it sees.
#[derive(Clone, Default)]
struct Query {
    token: usize,
    head: usize,
    runs: [Range<usize>; RUNS],
}

/// Up to [`MANY`] queries that read the cache of one kv head of one sequence.
struct Task {
    queries: [Query; MANY],
    n: usize,
}

/// How the queries of a step are dealt out.
enum Deal {
    /// One head of this many tokens at a time: a prompt.
    Tokens(usize),
    /// This many heads of one token at a time.
    Heads(usize),
}

// The safety argument is that of `bricks`.
impl Job<'_> {
    pub(super) fn kv_write(&self, layer: usize, token: usize, slot: usize) {
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
            let v = &b.get(Buf::V).col(token)[h * hp.head_dim_v..][..hp.head_dim_v];
            match &self.exec.cache.planes {
                KvPlanes::F16(p) => p.write(layer, h, at, k, v),
                KvPlanes::F32(p) => p.write(layer, h, at, k, v),
                KvPlanes::Q8_0(p) => p.write(layer, h, at, k, v),
            }
        }
    }

    pub(super) fn attend(
        &self,
        i: usize,
        layer: usize,
        window: Option<usize>,
        sinks: Option<&[f32]>,
        tid: usize,
    ) -> Done {
        let deal = self.deal();
        let mut parts = [0; 3];
        let done = self.pieces(i, tid, self.tasks(&deal), 1, |tasks| {
            for task in tasks {
                let task = self.task(&deal, task, window);
                let times = match &self.exec.cache.planes {
                    KvPlanes::F16(p) => self.attend_task(p, layer, &task, sinks, tid),
                    KvPlanes::F32(p) => self.attend_task(p, layer, &task, sinks, tid),
                    KvPlanes::Q8_0(p) => self.attend_task(p, layer, &task, sinks, tid),
                };
                for (sum, ticks) in parts.iter_mut().zip(times) {
                    *sum += ticks;
                }
            }
        });
        Done {
            attention: parts,
            ..done
        }
    }

    pub(super) fn quantise_heads(&self, tid: usize) {
        for token in self.my_tokens(tid) {
            // SAFETY: this token's column is this thread's; its heads were written before a barrier.
            unsafe { self.quantise(Buf::Heads, token, 0..self.hp.attn_dim()) };
        }
    }

    /// Queries share one pass over the cache, as far as that leaves enough tasks for every thread.
    fn deal(&self) -> Deal {
        let tokens = self.shape.tokens;
        let many = match self.exec.config.attention {
            AttentionPasses::Shared => MANY,
            AttentionPasses::Single => 1,
        };
        if self.step.spans.len() == 1 && tokens >= 2 * MANY {
            return Deal::Tokens(many);
        }
        let (group, pairs) = (
            self.hp.n_head / self.hp.n_head_kv,
            self.hp.n_head_kv * tokens,
        );
        let enough = |heads: &usize| group.div_ceil(*heads) * pairs >= 2 * self.threads;
        let heads = (1..=many.min(group)).rev().find(enough);
        Deal::Heads(heads.unwrap_or(1))
    }

    fn tasks(&self, deal: &Deal) -> usize {
        let (hp, tokens) = (self.hp, self.shape.tokens);
        match deal {
            Deal::Tokens(n) => tokens.div_ceil(*n) * hp.n_head,
            Deal::Heads(n) => (hp.n_head / hp.n_head_kv).div_ceil(*n) * hp.n_head_kv * tokens,
        }
    }

    fn task(&self, deal: &Deal, task: usize, window: Option<usize>) -> Task {
        let hp = self.hp;
        let (tokens, heads) = match deal {
            Deal::Tokens(n) => {
                // Heads inside tokens: those that read the same keys come after each other.
                let (block, head) = (task / hp.n_head * n, task % hp.n_head);
                (block..(block + n).min(self.shape.tokens), head..head + 1)
            }
            Deal::Heads(n) => {
                let group = hp.n_head / hp.n_head_kv;
                let parts = group.div_ceil(*n);
                let (part, rest) = (task % parts, task / parts);
                let (kv_head, token) = (rest % hp.n_head_kv, rest / hp.n_head_kv);
                let first = kv_head * group + part * n;
                let end = (first + n).min((kv_head + 1) * group);
                (token..token + 1, first..end)
            }
        };
        let mut queries: [Query; MANY] = Default::default();
        let mut n = 0;
        for token in tokens {
            let place = self.step.places[token];
            let span = &self.step.spans[place.span];
            for head in heads.clone() {
                queries[n] = Query {
                    token,
                    head,
                    runs: self.shape.slots.runs(span, place.position, window),
                };
                n += 1;
            }
        }
        Task { queries, n }
    }

    /// Returns the ticks that scores, softmax and weighted values took.
    fn attend_task<E: AttentionElem>(
        &self,
        planes: &Planes<E>,
        layer: usize,
        task: &Task,
        sinks: Option<&[f32]>,
        tid: usize,
    ) -> [u64; 3] {
        let began = self.clock.ticks();
        let (scored, weighed);
        let (hp, b, ops) = (self.hp, &self.exec.buffers, self.exec.ops);
        let queries = &task.queries[..task.n];
        let first = &queries[0];
        let kv_head = first.head / (hp.n_head / hp.n_head_kv);
        let span = &self.step.spans[self.step.places[first.token].span];
        let (i_layer, records) = (layer, self.records(layer));
        let layer = self.exec.cache.layer(span.seq, layer);
        let (dim_k, dim_v) = (hp.head_dim_k, hp.head_dim_v);
        let column = |c: usize| tid * MANY + c;
        // SAFETY: output heads are this task's, score columns this thread's and handed out in disjoint parts; queries and
        // cache were written before a barrier.
        unsafe {
            task.segments(|at, n, slots| {
                let keys = planes.k.rows(layer, kv_head, slots.start, slots.end);
                let mut q: [&[f32]; MANY] = [&[]; MANY];
                let mut scale = [0.0; MANY];
                let mut out: [&mut [f32]; MANY] = Default::default();
                for (c, &(query, offset)) in at[..n].iter().enumerate() {
                    let Query { token, head, .. } = queries[query];
                    q[c] = b.get(Buf::Q).part(token, head * dim_k, dim_k);
                    scale[c] = hp.score_scale(self.step.places[token].position);
                    out[c] = b.scores.part_mut(column(query), offset, slots.len());
                }
                (planes.ops.scores)(&q[..n], keys, &scale[..n], &mut out[..n]);
            });
            scored = self.clock.ticks();
            for (c, query) in queries.iter().enumerate() {
                let scores = b.scores.part_mut(column(c), 0, query.seen());
                if let Some(cap) = hp.attn_softcap {
                    (ops.softcap)(scores, cap);
                }
                match sinks {
                    None => (ops.softmax)(scores),
                    Some(sinks) => softmax_beside(ops, scores, sinks[query.head]),
                }
                if records {
                    let which = (query.token, i_layer, query.head);
                    self.weighed(which, &query.runs, scores, sinks.is_some());
                }
                let out = b.get(Buf::Heads);
                out.part_mut(query.token, query.head * dim_v, dim_v)
                    .fill(0.0);
            }
            weighed = self.clock.ticks();
            task.segments(|at, n, slots| {
                let values = planes.v.rows(layer, kv_head, slots.start, slots.end);
                let mut p: [&[f32]; MANY] = [&[]; MANY];
                let mut out: [&mut [f32]; MANY] = Default::default();
                for (c, &(query, offset)) in at[..n].iter().enumerate() {
                    let Query { token, head, .. } = queries[query];
                    p[c] = b.scores.part(column(query), offset, slots.len());
                    out[c] = b.get(Buf::Heads).part_mut(token, head * dim_v, dim_v);
                }
                (planes.ops.weighted_sum)(&p[..n], values, &mut out[..n]);
            });
            for q in queries {
                let heads = b.get(Buf::Heads);
                self.attended(
                    i_layer + 1,
                    q.token,
                    q.head,
                    heads.part_mut(q.token, q.head * dim_v, dim_v),
                );
            }
            if dim_v.is_multiple_of(Q8_BLOCK) {
                for q in queries {
                    self.quantise(Buf::Heads, q.token, q.head * dim_v..(q.head + 1) * dim_v);
                }
            }
        }
        // Saturating: stamps may run backward when the thread changes its CPU.
        let ended = self.clock.ticks();
        [(began, scored), (scored, weighed), (weighed, ended)].map(|(a, b)| b.saturating_sub(a))
    }
}

impl Query {
    /// How many slots it sees.
    fn seen(&self) -> usize {
        self.runs.iter().map(ExactSizeIterator::len).sum()
    }

    /// How many it sees before run `r`.
    fn before(&self, r: usize) -> usize {
        self.runs[..r].iter().map(ExactSizeIterator::len).sum()
    }
}

impl Task {
    /// Calls `f(queries, n, slots)` for pieces of the cache that together are what the queries see: `n` queries see all of
    /// `slots`, each given by its index and how many slots it saw before.
    fn segments(&self, mut f: impl FnMut(&[(usize, usize); MANY], usize, Range<usize>)) {
        let queries = &self.queries[..self.n];
        for r in 0..RUNS {
            let start = queries.iter().map(|q| q.runs[r].start).max().unwrap_or(0);
            let end = queries.iter().map(|q| q.runs[r].end).min().unwrap_or(0);
            let shared = start..end.max(start);
            for (c, q) in queries.iter().enumerate() {
                let run = &q.runs[r];
                let head = if shared.is_empty() {
                    run.clone()
                } else {
                    run.start..shared.start
                };
                if !head.is_empty() {
                    f(&[(c, q.before(r)); MANY], 1, head);
                }
            }
            if shared.is_empty() {
                continue;
            }
            let mut at = [(0, 0); MANY];
            for (c, q) in queries.iter().enumerate() {
                at[c] = (c, q.before(r) + shared.start - q.runs[r].start);
            }
            f(&at, self.n, shared.clone());
            for (c, q) in queries.iter().enumerate() {
                let run = &q.runs[r];
                if shared.end < run.end {
                    let seen = q.before(r) + shared.end - run.start;
                    f(&[(c, seen); MANY], 1, shared.end..run.end);
                }
            }
        }
    }
}

/// Softmax over `x` and one more logit, whose share is dropped.
fn softmax_beside(ops: &FloatOps, x: &mut [f32], sink: f32) {
    let max = (ops.max)(x).max(sink);
    let own = (ops.exp_sum)(x, max);
    let all = own + f64::from(sink - max).exp();
    (ops.softmax)(x);
    (ops.scale)(x, (own / all) as f32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run() -> impl Strategy<Value = Range<usize>> {
        (0usize..20, 0usize..20).prop_map(|(start, n)| start..start + n)
    }

    proptest! {
        /// Every query sees each of its slots once, in the place where its scores are.
        #[test]
        fn segments_are_what_every_query_sees(
            runs in prop::collection::vec([run(), run(), run()], 1..=MANY),
        ) {
            let mut task = Task { queries: Default::default(), n: runs.len() };
            for (query, runs) in task.queries.iter_mut().zip(&runs) {
                query.runs = runs.clone();
            }
            let mut seen: Vec<Vec<Option<usize>>> =
                task.queries.iter().map(|q| vec![None; q.seen()]).collect();
            task.segments(|at, n, slots| {
                for &(query, offset) in &at[..n] {
                    for (i, slot) in slots.clone().enumerate() {
                        assert!(seen[query][offset + i].replace(slot).is_none());
                    }
                }
            });
            for (seen, runs) in seen.iter().zip(&runs) {
                let want: Vec<_> = runs.iter().cloned().flatten().map(Some).collect();
                prop_assert_eq!(seen, &want);
            }
        }
    }
}
