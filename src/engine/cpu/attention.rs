//! Attention of one head: scores against contiguous keys, weighted sum of contiguous values.

use super::KernelSet;
use super::kv::KvElem;
use half::f16;

/// Attention kernels for one cache element type.
#[derive(Clone, Copy)]
pub struct AttentionOps<E> {
    /// `out[j] = scale * q . k[j]`; `k` is `[out.len()][q.len()]`.
    pub scores: fn(q: &[f32], k: &[E], scale: f32, out: &mut [f32]),
    /// `out = sum_j p[j] * v[j]`; `v` is `[p.len()][out.len()]`.
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
                out.fill(0.0);
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
            *o = p
                .iter()
                .enumerate()
                .map(|(j, p)| p * v[j * n + d].into())
                .sum();
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
            let mut acc = [_mm256_setzero_ps(); W];
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check<E: AttentionElem>(
        make: fn(f32) -> E,
        widen: fn(E) -> f32,
        n: usize,
        rows: usize,
        seed: u32,
    ) {
        let value = |i: usize| ((i as f32 + seed as f32) * 0.731).sin();
        let q: Vec<f32> = (0..n).map(value).collect();
        let kv: Vec<E> = (0..n * rows).map(|i| make(value(i * 7 + 3))).collect();
        let p: Vec<f32> = (0..rows).map(|i| value(i * 3).abs()).collect();
        for set in KernelSet::available() {
            let ops = E::ops(set);
            let (mut s, mut o) = (vec![0.0; rows], vec![0.0; n]);
            (ops.scores)(&q, &kv, 0.5, &mut s);
            (ops.weighted_sum)(&p, &kv, &mut o);
            for (j, s) in s.iter().enumerate() {
                let want: f64 = (0..n)
                    .map(|i| f64::from(q[i]) * f64::from(widen(kv[j * n + i])))
                    .sum::<f64>()
                    * 0.5;
                assert!((f64::from(*s) - want).abs() < 1e-4, "{set:?} {s} {want}");
            }
            for (d, o) in o.iter().enumerate() {
                let want: f64 = (0..rows)
                    .map(|j| f64::from(p[j]) * f64::from(widen(kv[j * n + d])))
                    .sum();
                assert!((f64::from(*o) - want).abs() < 1e-4, "{set:?} {o} {want}");
            }
        }
    }

    proptest! {
        #[test]
        fn every_set_equals_the_plain_sum(n in 1usize..200, rows in 1usize..20, seed in 0u32..1000) {
            check::<f16>(f16::from_f32, to_f32, n, rows, seed);
            check::<f32>(same, same, n, rows, seed);
        }
    }
}
