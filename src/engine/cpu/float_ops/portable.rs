//! The operations as plain loops over small arrays, which the compiler turns into the vectors of
//! whatever instruction set the caller enabled.
//!
//! [`Arith`] is what cannot be left to the compiler: a fused multiply-add is one instruction where
//! there is one and a slow library call elsewhere, and half precision has its own instructions.

use half::f16;

pub(super) trait Arith {
    fn fma(a: f32, b: f32, c: f32) -> f32;
    fn widen(x: &[f16; 8]) -> [f32; 8];
    fn narrow(x: &[f32; 8]) -> [f16; 8];
}

/// No fused multiply-add, half precision in software.
pub(super) struct Plain;

impl Arith for Plain {
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
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
    #[inline(always)]
    fn widen(x: &[f16; 8]) -> [f32; 8] {
        use std::arch::x86_64::*;
        // SAFETY: F16C is enabled by the caller; both arrays have the size of their vector.
        unsafe { std::mem::transmute(_mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast()))) }
    }
    #[inline(always)]
    fn narrow(x: &[f32; 8]) -> [f16; 8] {
        use std::arch::x86_64::*;
        // SAFETY: as above.
        unsafe {
            let v = _mm256_loadu_ps(x.as_ptr());
            std::mem::transmute(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v))
        }
    }
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
    let mut sums = [[0.0f32; 8]; 4];
    for (x, y) in xs.iter().zip(ys) {
        let pairs = x.as_chunks::<8>().0.iter().zip(y.as_chunks::<8>().0);
        for (sum, (x, y)) in sums.iter_mut().zip(pairs) {
            let y = eight(y);
            for i in 0..8 {
                sum[i] = A::fma(x[i], y[i], sum[i]);
            }
        }
    }
    let mut total = [0.0f32; 8];
    for i in 0..8 {
        total[i] = (sums[0][i] + sums[1][i]) + (sums[2][i] + sums[3][i]);
    }
    let rest = x_rest.iter().zip(y_rest);
    let rest = rest.fold(0.0, |sum, (x, y)| A::fma(*x, one(*y), sum));
    total.iter().sum::<f32>() + rest
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
pub(super) fn quantise<A: Arith>(
    x: &[f32],
    qs: &mut [i8],
    d: &mut [f32],
    s32: &mut [f32],
    s16: &mut [f32],
) {
    same(x.len(), qs.len());
    same(x.len(), 32 * d.len());
    same(x.len(), 32 * s32.len());
    same(x.len(), 16 * s16.len());
    let blocks = x.as_chunks::<32>().0.iter().zip(qs.as_chunks_mut::<32>().0);
    let sums = s32.iter_mut().zip(s16.as_chunks_mut::<2>().0);
    for (((x, q), d), (s32, s16)) in blocks.zip(d).zip(sums) {
        // Bits of a magnitude order as the magnitude does, with infinities and NaN on top.
        let mut top = [0u32; 8];
        for x in x.as_chunks::<8>().0 {
            for i in 0..8 {
                top[i] = top[i].max(x[i].to_bits() & 0x7fff_ffff);
            }
        }
        let top = f32::from_bits(top.into_iter().fold(0, u32::max));
        if !top.is_finite() {
            *q = [0; 32];
            (*d, *s32, *s16) = (f32::NAN, f32::NAN, [f32::NAN; 2]);
            continue;
        }
        let scale = top / 127.0;
        // Below this the reciprocal overflows; such a block is zero for every purpose.
        let (scale, inverse) = if scale > 1e-36 {
            (scale, 127.0 / top)
        } else {
            (0.0, 0.0)
        };
        let mut sums = [0i32; 2];
        let halves = x.as_chunks::<16>().0.iter().zip(q.as_chunks_mut::<16>().0);
        for ((x, q), sum) in halves.zip(&mut sums) {
            let mut rounded = [0i32; 16];
            for i in 0..16 {
                let v = x[i] * inverse + ROUND;
                rounded[i] = v.to_bits() as i32 - ROUND.to_bits() as i32;
            }
            for i in 0..16 {
                q[i] = rounded[i] as i8;
                *sum += rounded[i];
            }
        }
        *d = scale;
        *s16 = [scale * sums[0] as f32, scale * sums[1] as f32];
        *s32 = scale * (sums[0] + sums[1]) as f32;
    }
}

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
    let (chunks, rest) = x.as_chunks_mut::<16>();
    let mut sums = [0.0f64; 16];
    for x in chunks {
        for i in 0..16 {
            x[i] = exp::<A>(x[i] - top);
            sums[i] += f64::from(x[i]);
        }
    }
    let mut sum: f64 = sums.iter().sum();
    for x in rest {
        *x = exp::<A>(*x - top);
        sum += f64::from(*x);
    }
    scale::<A>(x, (1.0 / sum) as f32);
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
    x.iter().position(|v| *v == top).unwrap_or(0)
}
