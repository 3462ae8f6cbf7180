//! The operations as plain loops over small arrays, which the compiler turns into the vectors of
//! whatever instruction set the caller enabled.

use super::arith::{Arith, ROUND, largest};
use super::{Quantised, WeightSums};
use crate::engine::tensor_stats::Moments;
use half::f16;

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

#[inline(always)]
pub(super) fn moments<A: Arith>(x: &[f32]) -> Moments {
    if largest(x) >= f32::INFINITY.to_bits() {
        return finite_moments(x);
    }
    let (mut min, mut max) = ([f32::INFINITY; 16], [f32::NEG_INFINITY; 16]);
    let mut sums = [0.0f64; 16];
    let (chunks, rest) = x.as_chunks::<16>();
    for x in chunks {
        for i in 0..16 {
            min[i] = if x[i] < min[i] { x[i] } else { min[i] };
            max[i] = if x[i] > max[i] { x[i] } else { max[i] };
            sums[i] += f64::from(x[i]);
        }
    }
    let n = x.len() as f64;
    let sum: f64 = sums
        .into_iter()
        .chain(rest.iter().map(|x| (*x).into()))
        .sum();
    let mean = if x.is_empty() { 0.0 } else { sum / n };
    let mut squares = [0.0f64; 16];
    for x in chunks {
        for i in 0..16 {
            let d = f64::from(x[i]) - mean;
            squares[i] += d * d;
        }
    }
    let rest_squares = rest.iter().map(|x| (f64::from(*x) - mean).powi(2));
    Moments {
        n: x.len() as u64,
        min: min
            .iter()
            .chain(rest)
            .copied()
            .fold(f32::INFINITY, f32::min),
        max: max
            .iter()
            .chain(rest)
            .copied()
            .fold(f32::NEG_INFINITY, f32::max),
        mean,
        m2: squares.into_iter().chain(rest_squares).sum(),
        ..Moments::default()
    }
}

/// As [`moments`], where something is not finite.
#[cold]
fn finite_moments(x: &[f32]) -> Moments {
    let mut all = Moments::default();
    let finite = || x.iter().filter(|x| x.is_finite());
    all.n = finite().count() as u64;
    all.nan = x.iter().filter(|x| x.is_nan()).count() as u64;
    all.inf = x.len() as u64 - all.n - all.nan;
    all.min = finite().copied().fold(f32::INFINITY, f32::min);
    all.max = finite().copied().fold(f32::NEG_INFINITY, f32::max);
    if all.n > 0 {
        all.mean = finite().map(|x| f64::from(*x)).sum::<f64>() / all.n as f64;
        all.m2 = finite().map(|x| (f64::from(*x) - all.mean).powi(2)).sum();
    }
    all
}

/// Natural logarithm of what is positive and normal, to about two units in the last place (Cephes' `logf`). Of zero it is
/// some finite number.
#[inline(always)]
fn ln<A: Arith>(x: f32) -> f32 {
    const HALF_ROOT: u32 = 0x3f35_04f3;
    // The exponent counts from the square root of a half, so that the mantissa lies around 1.
    let shifted = x.to_bits().wrapping_sub(HALF_ROOT);
    let e = ((shifted as i32) >> 23) as f32;
    let m = f32::from_bits((shifted & 0x007f_ffff).wrapping_add(HALF_ROOT)) - 1.0;
    let z = m * m;
    let mut y = 7.037_683_6e-2;
    for c in [
        -1.151_461e-1,
        1.167_699_9e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_7e-1,
        2.000_071_5e-1,
        -2.499_999_4e-1,
        3.333_333e-1,
    ] {
        y = A::fma(y, m, c);
    }
    y = y * m * z;
    y = A::fma(e, -2.121_944_4e-4, y);
    y = A::fma(z, -0.5, y);
    A::fma(e, 0.693_359_4, m + y)
}

#[inline(always)]
pub(super) fn weights<A: Arith>(
    p: &[f32],
    threshold: f32,
    positions: &mut [u32],
    weights: &mut [f32],
) -> WeightSums {
    same(positions.len(), weights.len());
    let (chunks, rest) = p.as_chunks::<16>();
    let (mut sums, mut logs) = ([0.0f64; 16], [0.0f64; 16]);
    let mut top = Top {
        positions,
        weights,
        n: 0,
        floor: threshold,
    };
    for (i, p) in chunks.iter().enumerate() {
        add_weights::<A>(p, &mut sums, &mut logs);
        // By the bits, which order as weights do: a maximum of floats would be found one after the other.
        if f32::from_bits(largest(p)) >= top.floor {
            top.take(16 * i, p);
        }
    }
    // Zeros add nothing to either sum.
    let mut last = [0.0; 16];
    last[..rest.len()].copy_from_slice(rest);
    add_weights::<A>(&last, &mut sums, &mut logs);
    top.take(16 * chunks.len(), rest);
    WeightSums {
        sum: sums.into_iter().sum(),
        p_ln_p: logs.into_iter().sum(),
        n_top: top.n,
    }
}

/// Adds weights and their `p ln p` to running sums.
#[inline(always)]
fn add_weights<A: Arith>(p: &[f32; 16], sums: &mut [f64; 16], logs: &mut [f64; 16]) {
    let mut terms = [0.0f32; 16];
    for j in 0..16 {
        terms[j] = p[j] * ln::<A>(p[j]);
    }
    for j in 0..16 {
        sums[j] += f64::from(p[j]);
        logs[j] += f64::from(terms[j]);
    }
}

/// The largest weights so far.
struct Top<'a> {
    positions: &'a mut [u32],
    weights: &'a mut [f32],
    n: usize,
    /// Nothing below this gets in.
    floor: f32,
}

impl Top<'_> {
    fn take(&mut self, first: usize, p: &[f32]) {
        for (i, &p) in p.iter().enumerate() {
            if p >= self.floor {
                self.put(first + i, p);
            }
        }
    }

    fn put(&mut self, index: usize, p: f32) {
        let room = self.weights.len();
        if self.n == room && (room == 0 || p <= self.weights[room - 1]) {
            return;
        }
        // Behind its equals: the first of them stays first.
        let mut at = self.n.min(room - 1);
        while at > 0 && self.weights[at - 1] < p {
            self.weights[at] = self.weights[at - 1];
            self.positions[at] = self.positions[at - 1];
            at -= 1;
        }
        (self.weights[at], self.positions[at]) = (p, index as u32);
        self.n = (self.n + 1).min(room);
        if self.n == room {
            self.floor = self.weights[room - 1];
        }
    }
}
