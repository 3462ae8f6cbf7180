//! What cannot be left to the compiler: a fused multiply-add is one instruction where there is one and a slow library
//! call elsewhere, half precision has its own instructions, and quantising needs its vectors spelt out.

use half::f16;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Adding this to a small float and taking it away again rounds to the nearest even integer, and
/// leaves that integer in the low bits of the sum.
pub(super) const ROUND: f32 = 12_582_912.0;

/// The bits of a magnitude: they order as it does, with infinities and NaN on top.
#[inline(always)]
fn magnitude(x: f32) -> u32 {
    x.to_bits() & 0x7fff_ffff
}

/// The largest [`magnitude`].
#[inline(always)]
pub(super) fn largest(x: &[f32]) -> u32 {
    x.iter().fold(0, |top, v| magnitude(*v).max(top))
}

/// Units in the largest scale of a block. Two sums of a pair of products, each below 2^15, times this
/// still fit 32 bits.
const STEPS: f32 = 16384.0;

/// Below this the reciprocal of a unit overflows; such a block is zero for every purpose.
const LEAST_UNIT: f32 = 1e-36;

/// Arithmetic of an instruction set.
pub(super) trait Arith {
    /// Eight running sums.
    type Sums: Copy;
    fn zero() -> Self::Sums;
    /// `sums + x * y`
    fn dot8(x: &[f32; 8], y: &[f32; 8], sums: Self::Sums) -> Self::Sums;
    fn total(sums: [Self::Sums; 4]) -> f32;
    /// A block with a scale for every `GROUP` elements, 4 or 16: writes integers, scales and steps, and
    /// returns the unit and the sums of the values of both halves; `None` when it is not finite.
    fn quantise32<const GROUP: usize>(
        x: &[f32; 32],
        q: &mut [i8; 32],
        d: &mut [f32; 8],
        step: &mut [i16; 16],
    ) -> Option<(f32, [f32; 2])>;
    fn fma(a: f32, b: f32, c: f32) -> f32;
    fn widen(x: &[f16; 8]) -> [f32; 8];
    fn narrow(x: &[f32; 8]) -> [f16; 8];
}

/// No fused multiply-add, half precision in software.
pub(super) struct Plain;

impl Arith for Plain {
    type Sums = [f32; 8];
    #[inline(always)]
    fn zero() -> [f32; 8] {
        [0.0; 8]
    }
    #[inline(always)]
    fn dot8(x: &[f32; 8], y: &[f32; 8], mut sums: [f32; 8]) -> [f32; 8] {
        for i in 0..8 {
            sums[i] += x[i] * y[i];
        }
        sums
    }
    #[inline(always)]
    fn total(s: [[f32; 8]; 4]) -> f32 {
        (0..8)
            .map(|i| (s[0][i] + s[1][i]) + (s[2][i] + s[3][i]))
            .sum()
    }
    #[inline(always)]
    fn quantise32<const GROUP: usize>(
        x: &[f32; 32],
        q: &mut [i8; 32],
        d: &mut [f32; 8],
        step: &mut [i16; 16],
    ) -> Option<(f32, [f32; 2])> {
        let top = f32::from_bits(largest(x));
        if !top.is_finite() {
            return None;
        }
        let unit = top / (127.0 * STEPS);
        let (unit, factor) = if unit > LEAST_UNIT {
            (unit, STEPS / top)
        } else {
            (0.0, 0.0)
        };
        let groups = x.chunks_exact(GROUP).zip(q.chunks_exact_mut(GROUP));
        let mut fours = [0.0; 8];
        for ((x, q), at) in groups.zip((0..8).step_by(GROUP / 4)) {
            let steps = (f32::from_bits(largest(x)) * factor).ceil().min(STEPS);
            let scale = unit * steps;
            let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
            let pieces = x.as_chunks::<4>().0.iter().zip(q.as_chunks_mut::<4>().0);
            for ((x, q), lane) in pieces.zip(at..) {
                let r = x.map(|x| (x * inverse + ROUND).to_bits() as i32 - ROUND.to_bits() as i32);
                *q = r.map(|r| r as i8);
                d[lane] = scale;
                step[2 * lane..2 * lane + 2].fill(steps as i16);
                fours[lane] = scale * r.iter().sum::<i32>() as f32;
            }
        }
        let [a, b, c, d, e, f, g, h] = fours;
        Some((unit, [(a + b) + (c + d), (e + f) + (g + h)]))
    }
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
    #[inline(always)]
    fn widen(x: &[f16; 8]) -> [f32; 8] {
        x.map(f16::to_f32)
    }
    #[inline(always)]
    fn narrow(x: &[f32; 8]) -> [f16; 8] {
        x.map(f16::from_f32)
    }
}

/// Fused multiply-adds and conversions that every aarch64 CPU has.
#[cfg(target_arch = "aarch64")]
pub(super) struct Neon;

#[cfg(target_arch = "aarch64")]
impl Arith for Neon {
    type Sums = [f32; 8];
    #[inline(always)]
    fn zero() -> [f32; 8] {
        [0.0; 8]
    }
    #[inline(always)]
    fn dot8(x: &[f32; 8], y: &[f32; 8], mut sums: [f32; 8]) -> [f32; 8] {
        for i in 0..8 {
            sums[i] = x[i].mul_add(y[i], sums[i]);
        }
        sums
    }
    #[inline(always)]
    fn total(s: [[f32; 8]; 4]) -> f32 {
        Plain::total(s)
    }
    #[inline(always)]
    fn quantise32<const GROUP: usize>(
        x: &[f32; 32],
        q: &mut [i8; 32],
        d: &mut [f32; 8],
        step: &mut [i16; 16],
    ) -> Option<(f32, [f32; 2])> {
        Plain::quantise32::<GROUP>(x, q, d, step)
    }
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
    #[inline(always)]
    fn widen(x: &[f16; 8]) -> [f32; 8] {
        use crate::engine::cpu::neon::widen4;
        use std::arch::aarch64::*;
        let mut out = [0.0; 8];
        // SAFETY: NEON is part of every aarch64 this is compiled for; both arrays hold eight elements.
        unsafe {
            let x = x.as_ptr().cast();
            vst1q_f32(out.as_mut_ptr(), widen4(vld1_u16(x)));
            vst1q_f32(out.as_mut_ptr().add(4), widen4(vld1_u16(x.add(4))));
        }
        out
    }
    #[inline(always)]
    fn narrow(x: &[f32; 8]) -> [f16; 8] {
        use crate::engine::cpu::neon::narrow4;
        use std::arch::aarch64::*;
        let mut out = [f16::ZERO; 8];
        // SAFETY: as above; any 16 bits are a half-precision number.
        unsafe {
            let to: *mut u16 = out.as_mut_ptr().cast();
            vst1_u16(to, narrow4(vld1q_f32(x.as_ptr())));
            vst1_u16(to.add(4), narrow4(vld1q_f32(x.as_ptr().add(4))));
        }
        out
    }
}

/// FMA and F16C. Only for functions that enable both.
#[cfg(target_arch = "x86_64")]
pub(super) struct Fused;

#[cfg(target_arch = "x86_64")]
impl Arith for Fused {
    type Sums = __m256;
    #[inline(always)]
    fn zero() -> __m256 {
        // SAFETY: AVX is enabled by the caller.
        unsafe { _mm256_setzero_ps() }
    }
    #[inline(always)]
    fn dot8(x: &[f32; 8], y: &[f32; 8], sums: __m256) -> __m256 {
        // SAFETY: FMA is enabled by the caller; arrays have the size of a vector.
        unsafe {
            _mm256_fmadd_ps(
                _mm256_loadu_ps(x.as_ptr()),
                _mm256_loadu_ps(y.as_ptr()),
                sums,
            )
        }
    }
    #[inline(always)]
    fn total(s: [__m256; 4]) -> f32 {
        // SAFETY: AVX is enabled by the caller.
        unsafe {
            let s = _mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3]));
            let s = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps::<1>(s));
            let s = _mm_add_ps(s, _mm_movehl_ps(s, s));
            _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)))
        }
    }
    #[inline(always)]
    fn quantise32<const GROUP: usize>(
        x: &[f32; 32],
        q: &mut [i8; 32],
        d: &mut [f32; 8],
        step: &mut [i16; 16],
    ) -> Option<(f32, [f32; 2])> {
        // SAFETY: AVX2 is enabled by the caller; every access is to eight floats of `x`, or all of
        // `q`, `d` or `step`.
        unsafe {
            let x = x.as_ptr();
            let v = [
                _mm256_loadu_ps(x),
                _mm256_loadu_ps(x.add(8)),
                _mm256_loadu_ps(x.add(16)),
                _mm256_loadu_ps(x.add(24)),
            ];
            let top = if GROUP == 4 { tops4(v) } else { tops16(v) };
            let infinite = _mm256_cmpgt_epi32(top, _mm256_set1_epi32(f32::MAX.to_bits() as i32));
            if _mm256_movemask_epi8(infinite) != 0 {
                return None;
            }
            let all = _mm256_max_epu32(top, _mm256_permute2x128_si256::<1>(top, top));
            let all = _mm256_max_epu32(all, _mm256_shuffle_epi32::<0b01_00_11_10>(all));
            let all = _mm256_max_epu32(all, _mm256_shuffle_epi32::<0b10_11_00_01>(all));
            let all = _mm256_castsi256_ps(all);
            let most = _mm256_set1_ps(STEPS);
            let unit = _mm256_div_ps(all, _mm256_set1_ps(127.0 * STEPS));
            let used = _mm256_cmp_ps::<_CMP_GT_OQ>(unit, _mm256_set1_ps(LEAST_UNIT));
            let unit = _mm256_and_ps(unit, used);
            let factor = _mm256_and_ps(_mm256_div_ps(most, all), used);
            let steps = _mm256_ceil_ps(_mm256_mul_ps(_mm256_castsi256_ps(top), factor));
            let steps = _mm256_min_ps(steps, most);
            let scale = _mm256_mul_ps(unit, steps);
            let used = _mm256_cmp_ps::<_CMP_GT_OQ>(scale, _mm256_setzero_ps());
            let inverse = _mm256_and_ps(_mm256_div_ps(_mm256_set1_ps(1.0), scale), used);
            let steps = _mm256_cvttps_epi32(steps);
            let twice = _mm256_or_si256(steps, _mm256_slli_epi32::<16>(steps));
            _mm256_storeu_si256(step.as_mut_ptr().cast(), twice);
            let packed = _mm256_packs_epi16(
                _mm256_packs_epi32(rounded::<0>(v[0], inverse), rounded::<1>(v[1], inverse)),
                _mm256_packs_epi32(rounded::<2>(v[2], inverse), rounded::<3>(v[3], inverse)),
            );
            let packed = _mm256_permutevar8x32_epi32(packed, halves_in_order());
            _mm256_storeu_si256(q.as_mut_ptr().cast(), packed);
            _mm256_storeu_ps(d.as_mut_ptr(), scale);
            let pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), packed);
            let fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
            let fours = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(fours));
            let eights = _mm256_hadd_ps(fours, fours);
            let sums = _mm256_hadd_ps(eights, eights);
            let high = _mm256_extractf128_ps::<1>(sums);
            let sums = [_mm256_cvtss_f32(sums), _mm_cvtss_f32(high)];
            Some((_mm256_cvtss_f32(unit), sums))
        }
    }
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
    #[inline(always)]
    fn widen(x: &[f16; 8]) -> [f32; 8] {
        // SAFETY: F16C is enabled by the caller; both arrays have the size of their vector.
        unsafe { std::mem::transmute(_mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast()))) }
    }
    #[inline(always)]
    fn narrow(x: &[f32; 8]) -> [f16; 8] {
        // SAFETY: as above.
        unsafe {
            let v = _mm256_loadu_ps(x.as_ptr());
            std::mem::transmute(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v))
        }
    }
}

/// Each four lanes of `v` times one lane of `f`, `2 I` for the low and `2 I + 1` for the high ones.
///
/// # Safety
/// The CPU has AVX2.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn rounded<const I: i32>(v: __m256, f: __m256) -> __m256i {
    // SAFETY: AVX2 by the caller.
    unsafe {
        let lane = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
        let lane = _mm256_add_epi32(lane, _mm256_set1_epi32(2 * I));
        // Rounds to nearest even, the mode every Rust program runs in.
        _mm256_cvtps_epi32(_mm256_mul_ps(v, _mm256_permutevar8x32_ps(f, lane)))
    }
}

/// The largest [`magnitude`] of every four of 32 floats, in order.
///
/// # Safety
/// The CPU has AVX2.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn tops4(v: [__m256; 4]) -> __m256i {
    // SAFETY: AVX2 by the caller.
    unsafe {
        let (a, b) = (magnitudes(v[0]), magnitudes(v[1]));
        let (c, d) = (magnitudes(v[2]), magnitudes(v[3]));
        let ab = _mm256_max_epu32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let cd = _mm256_max_epu32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
        let even = _mm256_unpacklo_epi64(ab, cd);
        let top = _mm256_max_epu32(even, _mm256_unpackhi_epi64(ab, cd));
        // Lanes 0 to 3 now belong to the low halves of the four vectors, the others to the high halves.
        _mm256_permutevar8x32_epi32(top, halves_in_order())
    }
}

/// The largest [`magnitude`] of every sixteen of 32 floats, each four times.
///
/// # Safety
/// The CPU has AVX2.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn tops16(v: [__m256; 4]) -> __m256i {
    // SAFETY: AVX2 by the caller.
    unsafe {
        let low = _mm256_max_epu32(magnitudes(v[0]), magnitudes(v[1]));
        let high = _mm256_max_epu32(magnitudes(v[2]), magnitudes(v[3]));
        let both = _mm256_max_epu32(
            _mm256_permute2x128_si256::<0x20>(low, high),
            _mm256_permute2x128_si256::<0x31>(low, high),
        );
        let twos = _mm256_max_epu32(both, _mm256_shuffle_epi32::<0b01_00_11_10>(both));
        _mm256_max_epu32(twos, _mm256_shuffle_epi32::<0b10_11_00_01>(twos))
    }
}

/// [`magnitude`] of eight floats.
///
/// # Safety
/// The CPU has AVX2.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn magnitudes(v: __m256) -> __m256i {
    // SAFETY: AVX2 by the caller.
    unsafe { _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fff_ffff)) }
}

/// Alternates the lanes of the low and the high half: undoes what packing within halves does.
///
/// # Safety
/// The CPU has AVX2.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn halves_in_order() -> __m256i {
    // SAFETY: AVX2 by the caller.
    unsafe { _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7) }
}
