//! Attention of a few query heads that see the same slots: scores against contiguous keys, weighted sums of contiguous
//! values.

#[cfg(target_arch = "x86_64")]
mod x86;

use super::KernelSet;
use super::kv::{KvElem, Q8Block};
use half::f16;

/// Most queries of one call.
pub(super) const MANY: usize = 4;

/// See [`AttentionOps::scores`].
pub type ScoresFn<E> = fn(q: &[&[f32]], k: &[E], scale: &[f32], out: &mut [&mut [f32]]);
/// See [`AttentionOps::weighted_sum`].
pub type WeightedSumFn<E> = fn(p: &[&[f32]], v: &[E], out: &mut [&mut [f32]]);

/// Attention kernels for one cache element type; up to [`MANY`] queries a call, which read each key and value once.
#[derive(Clone, Copy)]
pub struct AttentionOps<E> {
    /// `out[c][j] = scale[c] * q[c] . k[j]`; `k` is `[out[c].len()][q[c].len()]`.
    pub scores: ScoresFn<E>,
    /// `out[c] += sum_j p[c][j] * v[j]`; `v` is `[p[c].len()][out[c].len()]`.
    pub weighted_sum: WeightedSumFn<E>,
}

/// Kernels that take one query, called for each.
macro_rules! one_by_one {
    ($scores:expr, $weighted_sum:expr) => {
        AttentionOps {
            scores: |q, k, scale, out| {
                for ((q, scale), out) in q.iter().zip(scale).zip(out) {
                    $scores(q, k, *scale, out);
                }
            },
            weighted_sum: |p, v, out| {
                for (p, out) in p.iter().zip(out) {
                    $weighted_sum(p, v, out);
                }
            },
        }
    };
}
use one_by_one;

/// Elements that have attention kernels.
pub trait AttentionElem: KvElem {
    /// The kernels of a set.
    fn ops(set: KernelSet) -> AttentionOps<Self>;
}

fn to_f32(x: f16) -> f32 {
    x.to_f32()
}

fn same(x: f32) -> f32 {
    x
}

fn scores<E: Copy>(q: &[f32], k: &[E], scale: f32, out: &mut [f32], widen: impl Fn(E) -> f32) {
    for (o, k) in out.iter_mut().zip(k.chunks_exact(q.len())) {
        let s: f32 = q.iter().zip(k).map(|(q, &k)| q * widen(k)).sum();
        *o = s * scale;
    }
}

fn weighted_sum<E: Copy>(p: &[f32], v: &[E], out: &mut [f32], widen: impl Fn(E) -> f32) {
    for (p, v) in p.iter().zip(v.chunks_exact(out.len())) {
        for (o, &v) in out.iter_mut().zip(v) {
            *o += p * widen(v);
        }
    }
}

/// Portable kernels; `widen` turns an element into f32.
macro_rules! portable {
    ($widen:expr) => {
        one_by_one!(
            |q: &[f32], k, scale, out: &mut [f32]| scores(q, k, scale, out, $widen),
            |p: &[f32], v, out: &mut [f32]| weighted_sum(p, v, out, $widen)
        )
    };
}

impl AttentionElem for f16 {
    fn ops(set: KernelSet) -> AttentionOps<Self> {
        match set {
            #[cfg(target_arch = "x86_64")]
            KernelSet::Avx2 | KernelSet::Avx512 => x86::ops::<f16>(),
            #[cfg(target_arch = "aarch64")]
            KernelSet::Neon | KernelSet::Dotprod => neon_ops::<f16>(),
            _ => portable!(to_f32),
        }
    }
}

impl AttentionElem for f32 {
    fn ops(set: KernelSet) -> AttentionOps<Self> {
        match set {
            #[cfg(target_arch = "x86_64")]
            KernelSet::Avx2 | KernelSet::Avx512 => x86::ops::<f32>(),
            #[cfg(target_arch = "aarch64")]
            KernelSet::Neon | KernelSet::Dotprod => neon_ops::<f32>(),
            _ => portable!(same),
        }
    }
}

impl AttentionElem for Q8Block {
    fn ops(set: KernelSet) -> AttentionOps<Self> {
        match set {
            #[cfg(target_arch = "x86_64")]
            KernelSet::Avx2 | KernelSet::Avx512 => x86::q8_ops(),
            _ => one_by_one!(q8_scores, q8_weighted_sum),
        }
    }
}

fn q8_scores(q: &[f32], k: &[Q8Block], scale: f32, out: &mut [f32]) {
    let dot = |q: &[f32], k: &Q8Block| -> f32 {
        let s: f32 = q.iter().zip(k.q).map(|(q, k)| q * f32::from(k)).sum();
        s * k.d.to_f32()
    };
    for (o, k) in out.iter_mut().zip(k.chunks_exact(q.len() / Q8Block::LEN)) {
        let blocks = q.chunks_exact(Q8Block::LEN).zip(k);
        *o = blocks.map(|(q, k)| dot(q, k)).sum::<f32>() * scale;
    }
}

fn q8_weighted_sum(p: &[f32], v: &[Q8Block], out: &mut [f32]) {
    for (p, v) in p.iter().zip(v.chunks_exact(out.len() / Q8Block::LEN)) {
        for (o, v) in out.chunks_exact_mut(Q8Block::LEN).zip(v) {
            let f = p * v.d.to_f32();
            o.iter_mut()
                .zip(v.q)
                .for_each(|(o, q)| *o += f * f32::from(q));
        }
    }
}

#[cfg(target_arch = "aarch64")]
fn neon_ops<E: super::neon::attention::Load4>() -> AttentionOps<E> {
    one_by_one!(
        super::neon::attention::scores::<E>,
        super::neon::attention::weighted_sum::<E>
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `widen` gives the elements of what is stored.
    fn check<E: AttentionElem>(
        widen: fn(&[E]) -> Vec<f32>,
        zero: E,
        n: usize,
        rows: usize,
        seed: u32,
    ) {
        let value = |i: usize| ((i as f32 + seed as f32) * 0.731).sin();
        let kv: Vec<f32> = (0..n * rows).map(|i| value(i * 7 + 3)).collect();
        let mut stored = vec![zero; n * rows / E::LEN];
        E::store(&kv, &mut stored);
        let kv = widen(&stored);
        for (set, count) in KernelSet::available()
            .into_iter()
            .flat_map(|s| (1..=MANY).map(move |c| (s, c)))
        {
            let ops = E::ops(set);
            let column = |c: usize, n: usize| -> Vec<f32> {
                (0..n).map(|i| value(i * 3 + 100 * c)).collect()
            };
            let q: Vec<Vec<f32>> = (0..count).map(|c| column(c, n)).collect();
            let p: Vec<Vec<f32>> = (0..count).map(|c| column(c, rows)).collect();
            let scale = &[0.5, 0.25, 1.0, 2.0][..count];
            let (mut s, mut o) = (vec![vec![0.0; rows]; count], vec![vec![0.25; n]; count]);
            let queries: Vec<&[f32]> = q.iter().map(|q| &q[..]).collect();
            let mut to: Vec<&mut [f32]> = s.iter_mut().map(|s| &mut s[..]).collect();
            (ops.scores)(&queries, &stored, scale, &mut to);
            // In two pieces, as where a ring wraps.
            let cut = rows / 3;
            let (before, after) = stored.split_at(cut * n / E::LEN);
            for (part, v) in [(0..cut, before), (cut..rows, after)] {
                let p: Vec<&[f32]> = p.iter().map(|p| &p[part.clone()]).collect();
                let mut to: Vec<&mut [f32]> = o.iter_mut().map(|o| &mut o[..]).collect();
                (ops.weighted_sum)(&p, v, &mut to);
            }
            for c in 0..count {
                for (j, s) in s[c].iter().enumerate() {
                    let products = (0..n).map(|i| f64::from(q[c][i]) * f64::from(kv[j * n + i]));
                    let want = products.sum::<f64>() * f64::from(scale[c]);
                    assert!((f64::from(*s) - want).abs() < 1e-3, "{set:?} {s} {want}");
                }
                for (d, o) in o[c].iter().enumerate() {
                    let products = (0..rows).map(|j| f64::from(p[c][j]) * f64::from(kv[j * n + d]));
                    let want = products.sum::<f64>() + 0.25;
                    assert!((f64::from(*o) - want).abs() < 1e-4, "{set:?} {o} {want}");
                }
            }
        }
    }

    fn q8_widen(blocks: &[Q8Block]) -> Vec<f32> {
        let one = |b: &Q8Block| b.q.map(|q| b.d.to_f32() * f32::from(q));
        blocks.iter().flat_map(one).collect()
    }

    proptest! {
        #[test]
        fn every_set_equals_the_plain_sum(n in 1usize..200, rows in 1usize..20, seed in 0u32..1000) {
            check::<f16>(|x| x.iter().copied().map(to_f32).collect(), f16::ZERO, n, rows, seed);
            check::<f32>(<[f32]>::to_vec, 0.0, n, rows, seed);
        }

        #[test]
        fn every_set_equals_the_plain_sum_in_blocks(blocks in 1usize..20, rows in 1usize..20, seed in 0u32..1000) {
            let zero = Q8Block { d: f16::ZERO, q: [0; 32] };
            check::<Q8Block>(q8_widen, zero, 32 * blocks, rows, seed);
        }
    }

    #[test]
    fn what_is_not_a_number_stays_so_in_blocks() {
        let block = Q8Block {
            d: f16::ONE,
            q: [1; 32],
        };
        for set in KernelSet::available() {
            for bad in [f32::NAN, f32::INFINITY] {
                let mut q = [1.0; 32];
                q[9] = bad;
                let mut out = [0.0];
                (Q8Block::ops(set).scores)(&[&q], &[block], &[1.0], &mut [&mut out]);
                assert!(!out[0].is_finite(), "{set}");
            }
        }
    }
}
