//! Attention of one head: scores against contiguous keys, weighted sum of contiguous values.

use super::KernelSet;
use super::kv::{KvElem, Q8Block};
use half::f16;

/// Attention kernels for one cache element type.
#[derive(Clone, Copy)]
pub struct AttentionOps<E> {
    /// `out[j] = scale * q . k[j]`; `k` is `[out.len()][q.len()]`.
    pub scores: fn(q: &[f32], k: &[E], scale: f32, out: &mut [f32]),
    /// `out += sum_j p[j] * v[j]`; `v` is `[p.len()][out.len()]`.
    pub weighted_sum: fn(p: &[f32], v: &[E], out: &mut [f32]),
}

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

/// Portable kernels; `widen` turns an element into f32.
macro_rules! portable {
    ($widen:expr) => {
        AttentionOps {
            scores: |q, k, scale, out| {
                for (o, k) in out.iter_mut().zip(k.chunks_exact(q.len())) {
                    let s: f32 = q.iter().zip(k).map(|(q, &k)| q * $widen(k)).sum();
                    *o = s * scale;
                }
            },
            weighted_sum: |p, v, out| {
                for (p, v) in p.iter().zip(v.chunks_exact(out.len())) {
                    for (o, &v) in out.iter_mut().zip(v) {
                        *o += p * $widen(v);
                    }
                }
            },
        }
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
            _ => AttentionOps {
                scores: q8_scores,
                weighted_sum: q8_weighted_sum,
            },
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
    AttentionOps {
        scores: super::neon::attention::scores::<E>,
        weighted_sum: super::neon::attention::weighted_sum::<E>,
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use std::arch::x86_64::*;

    /// Eight elements as f32.
    pub(super) trait Load8: KvElem + Into<f32> {
        /// # Safety
        /// Eight elements are readable at `p`, and the CPU has AVX2 and F16C.
        unsafe fn load8(p: *const Self) -> __m256;
    }

    impl Load8 for f16 {
        #[inline(always)]
        unsafe fn load8(p: *const Self) -> __m256 {
            // SAFETY: the caller's promise; unaligned load.
            unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
        }
    }

    impl Load8 for f32 {
        #[inline(always)]
        unsafe fn load8(p: *const Self) -> __m256 {
            // SAFETY: the caller's promise; unaligned load.
            unsafe { _mm256_loadu_ps(p) }
        }
    }

    pub(super) fn ops<E: Load8>() -> AttentionOps<E> {
        AttentionOps {
            scores: |q, k, scale, out| {
                assert!(k.len() >= out.len() * q.len());
                // SAFETY: this table is handed out for kernel sets whose instructions the CPU has; bounds asserted.
                unsafe { scores(q, k, scale, out) }
            },
            weighted_sum: |p, v, out| {
                assert!(v.len() >= p.len() * out.len());
                // SAFETY: as above.
                unsafe { weighted_sum(p, v, out) }
            },
        }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn scores<E: Load8>(q: &[f32], k: &[E], scale: f32, out: &mut [f32]) {
        let n = q.len();
        let wide = n / 8 * 8;
        for (j, o) in out.iter_mut().enumerate() {
            // SAFETY: the caller asserted out.len() rows of n elements.
            unsafe {
                let row = k.as_ptr().add(j * n);
                let mut acc = [_mm256_setzero_ps(); 4];
                let mut i = 0;
                while i + 32 <= n {
                    for (u, acc) in acc.iter_mut().enumerate() {
                        let at = i + 8 * u;
                        *acc = _mm256_fmadd_ps(
                            _mm256_loadu_ps(q.as_ptr().add(at)),
                            E::load8(row.add(at)),
                            *acc,
                        );
                    }
                    i += 32;
                }
                while i < wide {
                    acc[0] = _mm256_fmadd_ps(
                        _mm256_loadu_ps(q.as_ptr().add(i)),
                        E::load8(row.add(i)),
                        acc[0],
                    );
                    i += 8;
                }
                let sum =
                    _mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3]));
                let mut s = horizontal_sum(sum);
                for (i, q) in q.iter().enumerate().skip(wide) {
                    s += q * (*row.add(i)).into();
                }
                *o = s * scale;
            }
        }
    }

    /// # Safety
    /// The CPU has AVX2.
    #[inline(always)]
    unsafe fn horizontal_sum(v: __m256) -> f32 {
        // SAFETY: register operations only.
        unsafe {
            let h = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
            let h = _mm_add_ps(h, _mm_movehl_ps(h, h));
            _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)))
        }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn weighted_sum<E: Load8>(p: &[f32], v: &[E], out: &mut [f32]) {
        let n = out.len();
        let mut d = 0;
        // SAFETY: the caller asserted p.len() rows of n elements; every tile ends at or before n.
        unsafe {
            while d + 64 <= n {
                tile::<E, 8>(p, v.as_ptr().add(d), n, &mut out[d..]);
                d += 64;
            }
            while d + 8 <= n {
                tile::<E, 1>(p, v.as_ptr().add(d), n, &mut out[d..]);
                d += 8;
            }
        }
        for (d, o) in out.iter_mut().enumerate().skip(d) {
            for (j, p) in p.iter().enumerate() {
                *o += p * v[j * n + d].into();
            }
        }
    }

    /// `W * 8` output elements, kept in registers over all positions.
    ///
    /// # Safety
    /// `v` has `p.len()` rows of stride `n` with `W * 8` readable elements each; `out` has as many; the CPU has AVX2.
    #[inline(always)]
    unsafe fn tile<E: Load8, const W: usize>(p: &[f32], v: *const E, n: usize, out: &mut [f32]) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut acc: [__m256; W] =
                std::array::from_fn(|w| _mm256_loadu_ps(out.as_ptr().add(8 * w)));
            for (j, &p) in p.iter().enumerate() {
                let p = _mm256_set1_ps(p);
                let row = v.add(j * n);
                for (w, acc) in acc.iter_mut().enumerate() {
                    *acc = _mm256_fmadd_ps(p, E::load8(row.add(8 * w)), *acc);
                }
            }
            for (w, acc) in acc.iter().enumerate() {
                _mm256_storeu_ps(out.as_mut_ptr().add(8 * w), *acc);
            }
        }
    }

    /// Longest query that [`q8_scores`] holds as integers; longer ones go the portable way.
    const MAX_QUERY: usize = 512;

    pub(super) fn q8_ops() -> AttentionOps<Q8Block> {
        AttentionOps {
            scores: |q, k, scale, out| {
                assert!(k.len() * Q8Block::LEN >= out.len() * q.len());
                if q.len() > MAX_QUERY {
                    return super::q8_scores(q, k, scale, out);
                }
                // SAFETY: this table is handed out for kernel sets whose instructions the CPU has; bounds asserted.
                unsafe { q8_scores(q, k, scale, out) }
            },
            weighted_sum: |p, v, out| {
                assert!(v.len() * Q8Block::LEN >= p.len() * out.len());
                // SAFETY: as above.
                unsafe { q8_weighted_sum(p, v, out) }
            },
        }
    }

    /// The query becomes 16-bit integers with one scale: 1/65534 of its largest element is lost at most, and two
    /// `vpmaddwd` take the place of four conversions and four multiplications in floats.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn q8_scores(q: &[f32], k: &[Q8Block], scale: f32, out: &mut [f32]) {
        let top = q.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        let finite = q.iter().all(|v| v.is_finite());
        let inverse = if top > 0.0 { 32767.0 / top } else { 0.0 };
        let unit = if finite { top / 32767.0 } else { f32::NAN };
        let mut wide = [0i16; MAX_QUERY];
        for (w, q) in wide.iter_mut().zip(q) {
            *w = (q * inverse).round_ties_even() as i16;
        }
        let blocks = q.len() / Q8Block::LEN;
        for (j, o) in out.iter_mut().enumerate() {
            // SAFETY: the caller asserted out.len() rows of `blocks` blocks, and a query that fits.
            unsafe {
                let row = k.as_ptr().add(j * blocks);
                let mut acc = _mm256_setzero_ps();
                for b in 0..blocks {
                    let block = &*row.add(b);
                    let (x, w) = (block.q.as_ptr(), wide.as_ptr().add(b * Q8Block::LEN));
                    let half = |at: usize| {
                        let x = _mm256_cvtepi8_epi16(_mm_loadu_si128(x.add(at).cast()));
                        _mm256_madd_epi16(x, _mm256_loadu_si256(w.add(at).cast()))
                    };
                    let dots = _mm256_cvtepi32_ps(_mm256_add_epi32(half(0), half(16)));
                    acc = _mm256_fmadd_ps(dots, _mm256_set1_ps(to_f32c(block.d)), acc);
                }
                *o = horizontal_sum(acc) * unit * scale;
            }
        }
    }

    /// # Safety
    /// The CPU has F16C.
    #[inline(always)]
    unsafe fn to_f32c(x: f16) -> f32 {
        // SAFETY: register operations only.
        unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(x.to_bits())))) }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn q8_weighted_sum(p: &[f32], v: &[Q8Block], out: &mut [f32]) {
        let blocks = out.len() / Q8Block::LEN;
        let mut b = 0;
        // SAFETY: the caller asserted p.len() rows of `blocks` blocks; every tile ends at or before the last.
        unsafe {
            while b + 2 <= blocks {
                q8_tile::<2>(p, v.as_ptr().add(b), blocks, &mut out[b * Q8Block::LEN..]);
                b += 2;
            }
            if b < blocks {
                q8_tile::<1>(p, v.as_ptr().add(b), blocks, &mut out[b * Q8Block::LEN..]);
            }
        }
    }

    /// `B` blocks of output elements, kept in registers over all positions.
    ///
    /// # Safety
    /// `v` has `p.len()` rows of stride `blocks` with `B` readable blocks each; `out` has as many; the CPU has AVX2.
    #[inline(always)]
    unsafe fn q8_tile<const B: usize>(
        p: &[f32],
        v: *const Q8Block,
        blocks: usize,
        out: &mut [f32],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let at = |b: usize, u: usize| b * Q8Block::LEN + 8 * u;
            let mut acc: [[__m256; 4]; B] = std::array::from_fn(|b| {
                std::array::from_fn(|u| _mm256_loadu_ps(out.as_ptr().add(at(b, u))))
            });
            for (j, p) in p.iter().enumerate() {
                for (b, acc) in acc.iter_mut().enumerate() {
                    let block = &*v.add(j * blocks + b);
                    let f = _mm256_set1_ps(p * to_f32c(block.d));
                    for (u, acc) in acc.iter_mut().enumerate() {
                        let x = _mm_loadl_epi64(block.q.as_ptr().add(8 * u).cast());
                        let x = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x));
                        *acc = _mm256_fmadd_ps(f, x, *acc);
                    }
                }
            }
            for (b, acc) in acc.iter().enumerate() {
                for (u, acc) in acc.iter().enumerate() {
                    _mm256_storeu_ps(out.as_mut_ptr().add(at(b, u)), *acc);
                }
            }
        }
    }
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
        let q: Vec<f32> = (0..n).map(value).collect();
        let kv: Vec<f32> = (0..n * rows).map(|i| value(i * 7 + 3)).collect();
        let mut stored = vec![zero; n * rows / E::LEN];
        E::store(&kv, &mut stored);
        let kv = widen(&stored);
        let p: Vec<f32> = (0..rows).map(|i| value(i * 3).abs()).collect();
        for set in KernelSet::available() {
            let ops = E::ops(set);
            let (mut s, mut o) = (vec![0.0; rows], vec![0.25; n]);
            (ops.scores)(&q, &stored, 0.5, &mut s);
            // In two pieces, as where a ring wraps.
            let cut = rows / 3;
            let (before, after) = stored.split_at(cut * n / E::LEN);
            (ops.weighted_sum)(&p[..cut], before, &mut o);
            (ops.weighted_sum)(&p[cut..], after, &mut o);
            for (j, s) in s.iter().enumerate() {
                let want: f64 = (0..n)
                    .map(|i| f64::from(q[i]) * f64::from(kv[j * n + i]))
                    .sum::<f64>()
                    * 0.5;
                assert!((f64::from(*s) - want).abs() < 5e-4, "{set:?} {s} {want}");
            }
            for (d, o) in o.iter().enumerate() {
                let want: f64 = (0..rows)
                    .map(|j| f64::from(p[j]) * f64::from(kv[j * n + d]))
                    .sum::<f64>()
                    + 0.25;
                assert!((f64::from(*o) - want).abs() < 1e-4, "{set:?} {o} {want}");
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
                (Q8Block::ops(set).scores)(&q, &[block], 1.0, &mut out);
                assert!(!out[0].is_finite(), "{set}");
            }
        }
    }
}
