//! Tokens as groups: k-means (Lloyd, "Least squares quantization in PCM", IEEE Trans. Inf. Theory 28(2), 1982) over their
//! times by brick into fast, normal and slow ones.

use super::Ring;
use super::baseline::{Baseline, MARGIN};
use crate::model::brick::BrickId;
use crate::profiler::figures::TokenTime;
use linfa::DatasetBase;
use linfa::traits::{Fit, Predict};
use linfa_clustering::{KMeans, KMeansInit};
use ndarray::{Array2, Axis};

/// Tokens looked at.
pub(super) const TOKENS: usize = 256;
/// Fewer form no groups.
const FEWEST: usize = 64;
/// Fast, normal, slow.
const GROUPS: usize = 3;
const ITERATIONS: u64 = 20;
/// A group of more than this share of the tokens is how they are, not an exception.
const EXCEPTION: f64 = 0.125;
/// How far from the median a group must lie, median absolute deviations of single tokens.
const GROUP_DEVIATIONS: f64 = 5.0;
/// And each of its tokens that is flagged.
const MEMBER_DEVIATIONS: f64 = 3.0;

/// The numbers of the tokens in small groups that lie far above what is expected; `None` with fewer than 64 tokens, or
/// where no groups could be formed.
pub(super) fn slow_tokens(ring: &Ring, baseline: &Baseline) -> Option<Vec<u64>> {
    let tokens: Vec<(u64, &TokenTime)> =
        ring.newest_of(TOKENS).map(|(seq, t, _)| (seq, t)).collect();
    if tokens.len() < FEWEST {
        return None;
    }
    let features = features(ring, baseline, tokens.len());
    let groups = groups(features, &tokens, baseline)?;
    let mut slow = Vec::new();
    for group in 0..GROUPS {
        let members = || {
            tokens
                .iter()
                .zip(&groups)
                .filter(|(_, g)| **g == group)
                .map(|(t, _)| *t)
        };
        let n = members().count();
        if n == 0 || n as f64 > EXCEPTION * tokens.len() as f64 {
            continue;
        }
        let excesses = members().map(|(_, t)| baseline.excess(t));
        let (deviations, relative) = excesses.fold((0.0, 0.0), |a, e| (a.0 + e.0, a.1 + e.1));
        if deviations / n as f64 <= GROUP_DEVIATIONS || relative / n as f64 <= MARGIN {
            continue;
        }
        slow.extend(members().filter_map(|(seq, t)| {
            let (deviations, relative) = baseline.excess(t);
            (deviations > MEMBER_DEVIATIONS && relative > MARGIN).then_some(seq)
        }));
    }
    Some(slow)
}

/// A row a token: its times by brick as shares of what a token is expected to take, growth of attention taken out.
fn features(ring: &Ring, baseline: &Baseline, n: usize) -> Array2<f64> {
    let mut features = Array2::zeros((n, BrickId::COUNT));
    for ((_, token, bricks), mut row) in ring.newest_of(n).zip(features.axis_iter_mut(Axis(0))) {
        let expected = baseline.expected_us(token.position).max(f64::MIN_POSITIVE);
        let grown = expected - baseline.expected_us(0);
        for ((id, us), to) in BrickId::ALL.iter().zip(bricks).zip(&mut row) {
            let grown = if *id == BrickId::Attention {
                grown
            } else {
                0.0
            };
            *to = (f64::from(*us) - grown) / expected;
        }
    }
    features
}

/// The group of every token. Starting from the fastest, the middle and the slowest token, the result depends on nothing
/// but the tokens.
fn groups(
    features: Array2<f64>,
    tokens: &[(u64, &TokenTime)],
    baseline: &Baseline,
) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..tokens.len()).collect();
    let excess = |i: &usize| tokens.get(*i).map_or(0.0, |(_, t)| baseline.excess(t).1);
    order.sort_by(|a, b| excess(a).total_cmp(&excess(b)));
    let starts = [
        *order.first()?,
        *order.get(order.len() / 2)?,
        *order.last()?,
    ];
    let starts = features.select(Axis(0), &starts);
    let data = DatasetBase::from(features);
    let model = KMeans::params(GROUPS)
        .init_method(KMeansInit::Precomputed(starts))
        .n_runs(1)
        .max_n_iterations(ITERATIONS)
        .fit(&data)
        .ok()?;
    Some(model.predict(&data.records).to_vec())
}
