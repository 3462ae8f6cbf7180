//! Attention of one head: scores against contiguous keys, weighted sum of contiguous values.

use super::widen4;
use crate::engine::cpu::kv::KvElem;
use half::f16;
use std::arch::aarch64::*;

/// Four elements of the cache as floats.
pub(in crate::engine::cpu) trait Load4: KvElem + Into<f32> {
    unsafe fn load4(p: *const Self) -> float32x4_t;
}

impl Load4 for f16 {
    #[inline(always)]
    unsafe fn load4(p: *const Self) -> float32x4_t {
        widen4(vld1_u16(p.cast()))
    }
}

impl Load4 for f32 {
    #[inline(always)]
    unsafe fn load4(p: *const Self) -> float32x4_t {
        vld1q_f32(p)
    }
}

/// `out[j] = scale * q . k[j]`; `k` is `[out.len()][q.len()]`.
///
/// # Panics
/// When `k` is too short.
pub(in crate::engine::cpu) fn scores<E: Load4>(q: &[f32], k: &[E], scale: f32, out: &mut [f32]) {
    assert!(k.len() >= out.len() * q.len());
    let n = q.len();
    let whole = n / 8 * 8;
    for (j, o) in out.iter_mut().enumerate() {
        // SAFETY: NEON is part of every aarch64 this is compiled for; all reads lie in the `n` elements of row `j`.
        unsafe {
            let row = k.as_ptr().add(j * n);
            let mut acc = [vdupq_n_f32(0.0); 2];
            for i in (0..whole).step_by(8) {
                for (h, acc) in acc.iter_mut().enumerate() {
                    let at = i + 4 * h;
                    *acc = vfmaq_f32(*acc, vld1q_f32(q.as_ptr().add(at)), E::load4(row.add(at)));
                }
            }
            let mut sum = vaddvq_f32(vaddq_f32(acc[0], acc[1]));
            for (i, q) in q.iter().enumerate().skip(whole) {
                sum += q * (*row.add(i)).into();
            }
            *o = sum * scale;
        }
    }
}

/// `out += sum_j p[j] * v[j]`; `v` is `[p.len()][out.len()]`.
///
/// # Panics
/// When `v` is too short.
pub(in crate::engine::cpu) fn weighted_sum<E: Load4>(p: &[f32], v: &[E], out: &mut [f32]) {
    assert!(v.len() >= p.len() * out.len());
    let n = out.len();
    let mut d = 0;
    // SAFETY: NEON is part of every aarch64 this is compiled for; tiles end at or before `n`.
    unsafe {
        while d + 32 <= n {
            tile::<E, 8>(p, v.as_ptr().add(d), n, &mut out[d..]);
            d += 32;
        }
        while d + 4 <= n {
            tile::<E, 1>(p, v.as_ptr().add(d), n, &mut out[d..]);
            d += 4;
        }
    }
    for (d, o) in out.iter_mut().enumerate().skip(d) {
        *o += p
            .iter()
            .enumerate()
            .map(|(j, p)| p * v[j * n + d].into())
            .sum::<f32>();
    }
}

/// `W * 4` output elements, kept in registers over all positions: `v` has `p.len()` rows of stride `n` with as many
/// readable elements each, and `out` has them too.
#[inline(always)]
unsafe fn tile<E: Load4, const W: usize>(p: &[f32], v: *const E, n: usize, out: &mut [f32]) {
    let mut acc: [float32x4_t; W] = std::array::from_fn(|w| vld1q_f32(out.as_ptr().add(4 * w)));
    for (j, &p) in p.iter().enumerate() {
        let row = v.add(j * n);
        for (w, acc) in acc.iter_mut().enumerate() {
            *acc = vfmaq_n_f32(*acc, E::load4(row.add(4 * w)), p);
        }
    }
    for (w, acc) in acc.iter().enumerate() {
        vst1q_f32(out.as_mut_ptr().add(4 * w), *acc);
    }
}
