//! Which expert each token of a step goes to, and in which order the experts are computed.

use crate::model::Hparams;
use crate::model::arch::{Gating, Routing};
use std::ops::Range;

/// Sum of weights below which normalising would divide by nothing: the least normal half, as in llama.cpp.
const LEAST_SUM: f32 = 6.103_515_6e-5;

/// The pairs of token and expert of one step in one layer. Pair `token * n_used + slot`; columns are pairs sorted by expert.
pub(super) struct Routes {
    n_used: usize,
    experts: Vec<u32>,
    weights: Vec<f32>,
    /// Pair of a column.
    pairs: Vec<u32>,
    /// Column of a pair.
    columns: Vec<u32>,
    /// First column of every expert, and the number of columns.
    starts: Vec<u32>,
    /// Experts with a column.
    active: Vec<u32>,
    n_active: usize,
    /// Probabilities of one token's experts.
    probs: Vec<f32>,
}

impl Routes {
    /// Room for `tokens` tokens.
    pub(super) fn new(hp: &Hparams, tokens: usize) -> Self {
        let (n, n_used) = hp.experts.map_or((0, 0), |e| (e.n, e.n_used));
        let pairs = tokens * n_used;
        Self {
            n_used,
            experts: vec![0; pairs],
            weights: vec![0.0; pairs],
            pairs: vec![0; pairs],
            columns: vec![0; pairs],
            starts: vec![0; n + 1],
            active: vec![0; n],
            n_active: 0,
            probs: vec![0.0; n],
        }
    }

    /// Chooses the experts of `token` by its router logits, `[n]`.
    pub(super) fn choose(
        &mut self,
        token: usize,
        logits: &[f32],
        bias: Option<&[f32]>,
        how: Routing,
        scale: f32,
    ) {
        let at = token * self.n_used..(token + 1) * self.n_used;
        let (experts, weights) = (&mut self.experts[at.clone()], &mut self.weights[at]);
        let probs = &mut self.probs[..];
        probs.copy_from_slice(logits);
        match how.gating {
            Gating::Softmax => softmax(probs),
            Gating::Sigmoid => probs
                .iter_mut()
                .for_each(|p| *p = 1.0 / (1.0 + (-*p).exp())),
            Gating::SoftmaxSelected => {}
        }
        for (slot, weight) in weights.iter_mut().enumerate() {
            let (taken, rest) = experts.split_at_mut(slot);
            let mut best: Option<(usize, f32)> = None;
            for (e, p) in probs.iter().enumerate() {
                let by = p + bias.map_or(0.0, |b| b[e]);
                // The comparison with the first keeps NaN from choosing an expert twice.
                if !taken.contains(&(e as u32)) && best.is_none_or(|(_, b)| by > b) {
                    best = Some((e, by));
                }
            }
            let e = best.map_or(0, |(e, _)| e);
            rest[0] = e as u32;
            *weight = probs[e];
        }
        if how.gating == Gating::SoftmaxSelected {
            softmax(weights);
        }
        if how.normalise {
            let sum = weights.iter().sum::<f32>().max(LEAST_SUM);
            weights.iter_mut().for_each(|w| *w /= sum);
        }
        weights.iter_mut().for_each(|w| *w *= scale);
    }

    /// Orders the pairs of the first `tokens` tokens by expert, tokens in order within an expert.
    pub(super) fn order(&mut self, tokens: usize) {
        let pairs = &self.experts[..tokens * self.n_used];
        self.starts.fill(0);
        for &e in pairs {
            self.starts[e as usize + 1] += 1;
        }
        self.n_active = 0;
        for e in 0..self.active.len() {
            if self.starts[e + 1] > 0 {
                self.active[self.n_active] = e as u32;
                self.n_active += 1;
            }
            self.starts[e + 1] += self.starts[e];
        }
        for (pair, &e) in pairs.iter().enumerate() {
            let column = self.starts[e as usize];
            self.starts[e as usize] += 1;
            self.pairs[column as usize] = pair as u32;
            self.columns[pair] = column;
        }
        // Every start has moved to its expert's end, which is where the next one starts.
        let n = self.active.len();
        self.starts.copy_within(0..n, 1);
        self.starts[0] = 0;
    }

    /// The token of a column.
    pub(super) fn token(&self, column: usize) -> usize {
        self.pairs[column] as usize / self.n_used
    }

    /// Column and weight of every expert of a token.
    pub(super) fn of_token(&self, token: usize) -> impl Iterator<Item = (usize, f32)> {
        let at = token * self.n_used..(token + 1) * self.n_used;
        let columns = self.columns[at.clone()].iter().map(|&c| c as usize);
        columns.zip(self.weights[at].iter().copied())
    }

    /// The expert of a column.
    pub(super) fn expert(&self, column: usize) -> usize {
        self.experts[self.pairs[column] as usize] as usize
    }

    /// Experts that have a column.
    pub(super) fn active(&self) -> &[u32] {
        &self.active[..self.n_active]
    }

    /// Columns of an expert.
    pub(super) fn columns(&self, expert: usize) -> Range<usize> {
        self.starts[expert] as usize..self.starts[expert + 1] as usize
    }
}

fn softmax(x: &mut [f32]) {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    x.iter_mut().for_each(|v| *v = (*v - max).exp());
    let sum: f32 = x.iter().sum();
    x.iter_mut().for_each(|v| *v /= sum);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn routes(n: usize, n_used: usize, tokens: usize) -> Routes {
        Routes {
            n_used,
            experts: vec![0; tokens * n_used],
            weights: vec![0.0; tokens * n_used],
            pairs: vec![0; tokens * n_used],
            columns: vec![0; tokens * n_used],
            starts: vec![0; n + 1],
            active: vec![0; n],
            n_active: 0,
            probs: vec![0.0; n],
        }
    }

    const GATINGS: [Gating; 3] = [Gating::Softmax, Gating::Sigmoid, Gating::SoftmaxSelected];

    proptest! {
        #[test]
        fn every_pair_has_one_column_in_the_order_of_experts(
            n in 1usize..12,
            used in 1usize..12,
            tokens in 1usize..20,
            gating in 0usize..3,
            values in prop::collection::vec(
                prop_oneof![-4f32..4.0, Just(f32::NAN), Just(f32::INFINITY)], 240),
        ) {
            let used = used.min(n);
            let how = Routing { gating: GATINGS[gating], normalise: true };
            let mut r = routes(n, used, tokens);
            for t in 0..tokens {
                r.choose(t, &values[t * n..(t + 1) * n], None, how, 1.0);
            }
            r.order(tokens);
            let mut seen = vec![false; tokens * used];
            let mut next = 0;
            for &e in r.active() {
                let columns = r.columns(e as usize);
                prop_assert_eq!(columns.start, next);
                prop_assert!(!columns.is_empty());
                next = columns.end;
                for c in columns {
                    let t = r.token(c);
                    let pair = r.pairs[c] as usize;
                    prop_assert_eq!(r.experts[pair], e);
                    prop_assert!(r.of_token(t).any(|(column, _)| column == c));
                    prop_assert!(!std::mem::replace(&mut seen[pair], true));
                }
            }
            prop_assert_eq!(next, tokens * used);
            for t in 0..tokens {
                let mut of: Vec<u32> = r.experts[t * used..(t + 1) * used].to_vec();
                of.sort_unstable();
                of.dedup();
                prop_assert_eq!(of.len(), used);
            }
        }
    }

    #[test]
    fn weights_are_those_of_the_gating() {
        let logits = [1.0f32, 3.0, 2.0];
        let mut r = routes(3, 2, 1);
        let mut weights = |gating, normalise, scale| {
            r.choose(0, &logits, None, Routing { gating, normalise }, scale);
            assert_eq!(r.experts, [1, 2]);
            r.weights.clone()
        };
        let near = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6);
        let sum: f32 = logits.iter().map(|l| l.exp()).sum();
        let (a, b) = (3f32.exp(), 2f32.exp());
        assert!(near(
            &weights(Gating::Softmax, false, 2.0),
            &[2.0 * a / sum, 2.0 * b / sum]
        ));
        assert!(near(
            &weights(Gating::Softmax, true, 1.0),
            &[a / (a + b), b / (a + b)]
        ));
        assert!(near(
            &weights(Gating::SoftmaxSelected, false, 1.0),
            &[a / (a + b), b / (a + b)]
        ));
        let s = |x: f32| 1.0 / (1.0 + (-x).exp());
        assert!(near(
            &weights(Gating::Sigmoid, false, 1.0),
            &[s(3.0), s(2.0)]
        ));
    }

    #[test]
    fn a_bias_chooses_but_does_not_weigh() {
        let mut r = routes(3, 1, 1);
        let how = Routing {
            gating: Gating::Sigmoid,
            normalise: false,
        };
        r.choose(0, &[1.0, 3.0, 2.0], Some(&[9.0, 0.0, 0.0]), how, 1.0);
        assert_eq!(r.experts, [0]);
        assert!((r.weights[0] - 1.0 / (1.0 + (-1f32).exp())).abs() < 1e-6);
    }
}
