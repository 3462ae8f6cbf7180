//! The operations as plain loops over small arrays, which the compiler turns into the vectors of
//! whatever instruction set the caller enabled.
//!
//! [`Arith`] is what cannot be left to the compiler: a fused multiply-add is one instruction where
//! there is one and a slow library call elsewhere, and half precision has its own instructions.

use super::Quantised;
use half::f16;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

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

fn same(a: usize, b: usize) {
    assert_eq!(a, b, "slices that belong together differ in length");
}

/// `out[i] = f(a[i], b[i])`.
#[inline(always)]
fn zip2(a: &[f32], b: &[f32], out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    same(a.len(), out.len());
    same(b.len(), out.len());
    for ((a, b), out) in a.iter().zip(b).zip(out) {
        *out = f(*a, *b);
    }
}

/// Sum over pairs of chunks in 32 running sums: enough to keep fused multiply-adds busy.
#[inline(always)]
fn sum32<T: Copy, A: Arith>(
    x: &[f32],
    y: &[T],
    eight: impl Fn(&[T; 8]) -> [f32; 8],
    one: impl Fn(T) -> f32,
) -> f32 {
    same(x.len(), y.len());
    let (xs, x_rest) = x.as_chunks::<32>();
    let (ys, y_rest) = y.as_chunks::<32>();
    let mut sums = [A::zero(); 4];
    for (x, y) in xs.iter().zip(ys) {
        let (x, y) = (x.as_chunks::<8>().0, y.as_chunks::<8>().0);
        for i in 0..4 {
            sums[i] = A::dot8(&x[i], &eight(&y[i]), sums[i]);
        }
    }
    let rest = x_rest.iter().zip(y_rest);
    let rest = rest.fold(0.0, |sum, (x, y)| A::fma(*x, one(*y), sum));
    A::total(sums) + rest
}

#[inline(always)]
pub(super) fn dot_f32<A: Arith>(x: &[f32], y: &[f32]) -> f32 {
    sum32::<f32, A>(x, y, |y| *y, |y| y)
}

#[inline(always)]
pub(super) fn dot_f16<A: Arith>(x: &[f32], y: &[f16]) -> f32 {
    sum32::<f16, A>(x, y, A::widen, one_f16::<A>)
}

#[inline(always)]
fn one_f16<A: Arith>(x: f16) -> f32 {
    A::widen(&[x; 8])[0]
}

#[inline(always)]
pub(super) fn axpy_f32<A: Arith>(a: f32, x: &[f32], acc: &mut [f32]) {
    same(x.len(), acc.len());
    for (x, acc) in x.iter().zip(acc) {
        *acc = A::fma(a, *x, *acc);
    }
}

#[inline(always)]
pub(super) fn axpy_f16<A: Arith>(a: f32, x: &[f16], acc: &mut [f32]) {
    same(x.len(), acc.len());
    let (xs, x_rest) = x.as_chunks::<8>();
    let (accs, acc_rest) = acc.as_chunks_mut::<8>();
    for (x, acc) in xs.iter().zip(accs) {
        let x = A::widen(x);
        for i in 0..8 {
            acc[i] = A::fma(a, x[i], acc[i]);
        }
    }
    for (x, acc) in x_rest.iter().zip(acc_rest) {
        *acc = A::fma(a, one_f16::<A>(*x), *acc);
    }
}

#[inline(always)]
pub(super) fn store_f16<A: Arith>(x: &[f32], out: &mut [f16]) {
    same(x.len(), out.len());
    let (xs, x_rest) = x.as_chunks::<8>();
    let (outs, out_rest) = out.as_chunks_mut::<8>();
    for (x, out) in xs.iter().zip(outs) {
        *out = A::narrow(x);
    }
    for (x, out) in x_rest.iter().zip(out_rest) {
        *out = A::narrow(&[*x; 8])[0];
    }
}

/// The sum of `f(x)` in f64.
#[inline(always)]
fn sum_f64(x: &[f32], f: impl Fn(f64) -> f64) -> f64 {
    let (xs, rest) = x.as_chunks::<16>();
    let mut sums = [0.0f64; 16];
    for x in xs {
        for i in 0..16 {
            sums[i] += f(f64::from(x[i]));
        }
    }
    sums.iter().sum::<f64>() + rest.iter().map(|x| f(f64::from(*x))).sum::<f64>()
}

#[inline(always)]
pub(super) fn rms_norm<A: Arith>(x: &[f32], w: &[f32], eps: f32, out: &mut [f32]) {
    let mean = sum_f64(x, |v| v * v) / x.len().max(1) as f64;
    let r = (1.0 / (mean + f64::from(eps)).sqrt()) as f32;
    zip2(x, w, out, |x, w| x * r * w);
}

#[inline(always)]
pub(super) fn layer_norm<A: Arith>(x: &[f32], w: &[f32], b: &[f32], eps: f32, out: &mut [f32]) {
    let n = x.len().max(1) as f64;
    let mean = sum_f64(x, |v| v) / n;
    let var = sum_f64(x, |v| (v - mean) * (v - mean)) / n;
    let r = (1.0 / (var + f64::from(eps)).sqrt()) as f32;
    let mean = mean as f32;
    zip2(x, w, out, |x, w| (x - mean) * r * w);
    add::<A>(out, b);
}

/// Adding this to a small float and taking it away again rounds to the nearest even integer, and
/// leaves that integer in the low bits of the sum.
const ROUND: f32 = 12_582_912.0;

#[inline(always)]
pub(super) fn quantise4<A: Arith>(x: &[f32], out: Quantised<'_>) {
    quantise::<A, 4>(x, out);
}

#[inline(always)]
pub(super) fn quantise16<A: Arith>(x: &[f32], out: Quantised<'_>) {
    quantise::<A, 16>(x, out);
}

#[inline(always)]
fn quantise<A: Arith, const GROUP: usize>(x: &[f32], out: Quantised<'_>) {
    let n = x.len();
    same(n, out.q.len());
    same(n, 4 * out.d.len());
    same(n, 2 * out.step.len());
    same(n, 32 * out.unit.len());
    same(n, 32 * out.s32.len());
    same(n, 16 * out.s16.len());
    let blocks = x.as_chunks::<32>().0.iter();
    let blocks = blocks.zip(out.q.as_chunks_mut::<32>().0);
    let scales = out.d.as_chunks_mut::<8>().0.iter_mut();
    let scales = scales.zip(out.step.as_chunks_mut::<16>().0).zip(out.unit);
    let sums = out.s32.iter_mut().zip(out.s16.as_chunks_mut::<2>().0);
    for (((x, q), ((d, step), unit)), (s32, s16)) in blocks.zip(scales).zip(sums) {
        let Some((size, sums)) = A::quantise32::<GROUP>(x, q, d, step) else {
            (*q, *step) = ([0; 32], [0; 16]);
            (*d, *unit) = ([f32::NAN; 8], f32::NAN);
            (*s32, *s16) = (f32::NAN, [f32::NAN; 2]);
            continue;
        };
        *unit = size;
        (*s32, *s16) = (sums[0] + sums[1], sums);
    }
}

/// The bits of a magnitude: they order as it does, with infinities and NaN on top.
#[inline(always)]
fn magnitude(x: f32) -> u32 {
    x.to_bits() & 0x7fff_ffff
}

/// The largest [`magnitude`].
#[inline(always)]
fn largest(x: &[f32]) -> u32 {
    x.iter().fold(0, |top, v| magnitude(*v).max(top))
}

/// Units in the largest scale of a block. Two sums of a pair of products, each below 2^15, times this
/// still fit 32 bits.
const STEPS: f32 = 16384.0;

/// Below this the reciprocal of a unit overflows; such a block is zero for every purpose.
const LEAST_UNIT: f32 = 1e-36;

/// `exp(x)` to about an ulp; 0 below -87.3, and `exp(88.3)` above that.
#[inline(always)]
fn exp<A: Arith>(x: f32) -> f32 {
    let low = x < -87.3;
    // Not `clamp`: a NaN has to stay one.
    let x = if x > 88.3 { 88.3 } else { x };
    let x = if low { -87.3 } else { x };
    let shifted = A::fma(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    // ln 2 in two parts, the first short enough for `n` times it to be exact.
    let r = A::fma(n, -0.693_359_4, x);
    let r = A::fma(n, 2.121_944_4e-4, r);
    let mut p = 1.0 / 5040.0;
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5] {
        p = A::fma(p, r, c);
    }
    let p = A::fma(p * r, r, r) + 1.0;
    let exponent = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let power = f32::from_bits(exponent.wrapping_add(127).wrapping_shl(23) as u32);
    if low { 0.0 } else { p * power }
}

#[inline(always)]
fn silu<A: Arith>(x: f32) -> f32 {
    x / (1.0 + exp::<A>(-x))
}

/// `x / 2 (1 + tanh u)`, written as the logistic function of `2 u`, which loses no digits.
#[inline(always)]
fn gelu<A: Arith>(x: f32) -> f32 {
    const TWICE: f32 = 2.0 * 0.797_884_6;
    let u = x * A::fma(0.044_715 * x, x, 1.0);
    x / (1.0 + exp::<A>(-TWICE * u))
}

#[inline(always)]
fn tanh<A: Arith>(x: f32) -> f32 {
    let s = x * x;
    let mut p = -1382.0 / 155_925.0;
    for c in [62.0 / 2835.0, -17.0 / 315.0, 2.0 / 15.0, -1.0 / 3.0] {
        p = A::fma(p, s, c);
    }
    let small = A::fma(p * s, x, x);
    let large = 1.0 - 2.0 / (exp::<A>(2.0 * x.abs()) + 1.0);
    if s < 0.09 { small } else { large.copysign(x) }
}

#[inline(always)]
pub(super) fn silu_mul<A: Arith>(gate: &[f32], up: &[f32], out: &mut [f32]) {
    zip2(gate, up, out, |g, u| silu::<A>(g) * u);
}

#[inline(always)]
pub(super) fn gelu_tanh_mul<A: Arith>(gate: &[f32], up: &[f32], out: &mut [f32]) {
    zip2(gate, up, out, |g, u| gelu::<A>(g) * u);
}

#[inline(always)]
pub(super) fn gelu_tanh<A: Arith>(x: &mut [f32]) {
    for x in x {
        *x = gelu::<A>(*x);
    }
}

#[inline(always)]
pub(super) fn softmax<A: Arith>(x: &mut [f32]) {
    let top = max::<A>(x);
    for x in x.iter_mut() {
        *x = exp::<A>(*x - top);
    }
    let sum = sum_f64(x, |v| v);
    scale::<A>(x, (1.0 / sum) as f32);
}

#[inline(always)]
pub(super) fn exp_sum<A: Arith>(x: &[f32], top: f32) -> f64 {
    let (chunks, rest) = x.as_chunks::<16>();
    let mut sums = [0.0f64; 16];
    for x in chunks {
        for i in 0..16 {
            sums[i] += f64::from(exp::<A>(x[i] - top));
        }
    }
    let tail = rest.iter().map(|x| f64::from(exp::<A>(x - top)));
    sums.into_iter().chain(tail).sum()
}

#[inline(always)]
pub(super) fn add<A: Arith>(x: &mut [f32], y: &[f32]) {
    same(x.len(), y.len());
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

#[inline(always)]
pub(super) fn scale<A: Arith>(x: &mut [f32], f: f32) {
    for x in x {
        *x *= f;
    }
}

#[inline(always)]
pub(super) fn softcap<A: Arith>(x: &mut [f32], cap: f32) {
    let inverse = 1.0 / cap;
    for x in x {
        *x = cap * tanh::<A>(*x * inverse);
    }
}

#[inline(always)]
pub(super) fn max<A: Arith>(x: &[f32]) -> f32 {
    let (xs, rest) = x.as_chunks::<32>();
    let mut tops = [f32::NEG_INFINITY; 32];
    for x in xs {
        for i in 0..32 {
            tops[i] = if x[i] > tops[i] { x[i] } else { tops[i] };
        }
    }
    let all = tops.iter().chain(rest);
    all.fold(f32::NEG_INFINITY, |m, v| if *v > m { *v } else { m })
}

#[inline(always)]
pub(super) fn argmax<A: Arith>(x: &[f32]) -> usize {
    let top = max::<A>(x);
    // Whole chunks first, without leaving early within one, so that they compare as vectors.
    let chunks = x.as_chunks::<32>().0.iter();
    let found = |chunk: &[f32; 32]| chunk.iter().fold(false, |any, v| any | (*v == top));
    let start = chunks.take_while(|chunk| !found(chunk)).count() * 32;
    let rest = x[start..].iter().position(|v| *v == top);
    rest.map_or(0, |at| start + at)
}
