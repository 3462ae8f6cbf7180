//! Attention for x86-64 with AVX2.

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

/// Calls `$f` with `N` the number of queries.
macro_rules! by_count {
    ($n:expr, $f:ident::<$E:ident>($($arg:expr),*)) => {
        match $n {
            0 => {}
            1 => $f::<$E, 1>($($arg),*),
            2 => $f::<$E, 2>($($arg),*),
            3 => $f::<$E, 3>($($arg),*),
            _ => $f::<$E, MANY>($($arg),*),
        }
    };
}

pub(super) fn ops<E: Load8>() -> AttentionOps<E> {
    AttentionOps {
        scores: |q, k, scale, out| {
            assert!(q.len() <= MANY && scale.len() == q.len() && out.len() == q.len());
            for (q, out) in q.iter().zip(&*out) {
                assert!(k.len() >= out.len() * q.len());
            }
            // SAFETY: this table is handed out for kernel sets whose instructions the CPU has; bounds asserted.
            unsafe { by_count!(q.len(), scores::<E>(q, k, scale, out)) }
        },
        weighted_sum: |p, v, out| {
            assert!(p.len() <= MANY && out.len() == p.len());
            for (p, out) in p.iter().zip(&*out) {
                assert!(v.len() >= p.len() * out.len());
            }
            // SAFETY: as above.
            unsafe { by_count!(p.len(), weighted_sum::<E>(p, v, out)) }
        },
    }
}

/// Running sums of one score.
const SUMS: usize = 2;

/// # Safety
/// The CPU has AVX2, FMA and F16C; `N` queries of equal length, as many results, each with a key.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn scores<E: Load8, const N: usize>(
    q: &[&[f32]],
    k: &[E],
    scale: &[f32],
    out: &mut [&mut [f32]],
) {
    let n = q[0].len();
    let wide = n / 8 * 8;
    let from: [*const f32; N] = std::array::from_fn(|c| q[c].as_ptr());
    let to: [*mut f32; N] = std::array::from_fn(|c| out[c].as_mut_ptr());
    for j in 0..out[0].len() {
        // SAFETY: the caller's promise.
        unsafe {
            let row = k.as_ptr().add(j * n);
            // In the same order whatever `N` is: how many queries share a pass depends on the number of threads.
            let mut acc = [[_mm256_setzero_ps(); SUMS]; N];
            let mut i = 0;
            while i + 8 * SUMS <= wide {
                for u in 0..SUMS {
                    let x = E::load8(row.add(i + 8 * u));
                    for (acc, from) in acc.iter_mut().zip(from) {
                        let q = _mm256_loadu_ps(from.add(i + 8 * u));
                        acc[u] = _mm256_fmadd_ps(q, x, acc[u]);
                    }
                }
                i += 8 * SUMS;
            }
            while i < wide {
                let x = E::load8(row.add(i));
                for c in 0..N {
                    acc[c][0] = _mm256_fmadd_ps(_mm256_loadu_ps(from[c].add(i)), x, acc[c][0]);
                }
                i += 8;
            }
            for c in 0..N {
                let mut s = horizontal_sum(_mm256_add_ps(acc[c][0], acc[c][1]));
                for i in wide..n {
                    s += *from[c].add(i) * (*row.add(i)).into();
                }
                *to[c].add(j) = s * scale[c];
            }
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

/// # Safety
/// The CPU has AVX2, FMA and F16C; `N` rows of weights, as many results of equal length, a value for each weight.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn weighted_sum<E: Load8, const N: usize>(p: &[&[f32]], v: &[E], out: &mut [&mut [f32]]) {
    let n = out[0].len();
    let from: [*const f32; N] = std::array::from_fn(|c| p[c].as_ptr());
    let to: [*mut f32; N] = std::array::from_fn(|c| out[c].as_mut_ptr());
    let rows = p[0].len();
    let mut d = 0;
    // SAFETY: the caller's promise; every tile ends at or before n.
    unsafe {
        while N == 1 && d + 64 <= n {
            tile::<E, N, 8>(from, rows, v.as_ptr().add(d), n, to.map(|o| o.add(d)));
            d += 64;
        }
        while d + 16 <= n {
            tile::<E, N, 2>(from, rows, v.as_ptr().add(d), n, to.map(|o| o.add(d)));
            d += 16;
        }
        while d + 8 <= n {
            tile::<E, N, 1>(from, rows, v.as_ptr().add(d), n, to.map(|o| o.add(d)));
            d += 8;
        }
        for d in d..n {
            for c in 0..N {
                for j in 0..rows {
                    *to[c].add(d) += *from[c].add(j) * v[j * n + d].into();
                }
            }
        }
    }
}

/// `W * 8` output elements of `N` results, kept in registers over all positions.
///
/// # Safety
/// `v` has `rows` rows of stride `n` with `W * 8` readable elements each; each `out` has as many, each `p` `rows`; the CPU has
/// AVX2.
#[inline(always)]
unsafe fn tile<E: Load8, const N: usize, const W: usize>(
    p: [*const f32; N],
    rows: usize,
    v: *const E,
    n: usize,
    out: [*mut f32; N],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut acc: [[__m256; W]; N] =
            out.map(|o| std::array::from_fn(|w| _mm256_loadu_ps(o.add(8 * w))));
        for j in 0..rows {
            let row = v.add(j * n);
            let x: [__m256; W] = std::array::from_fn(|w| E::load8(row.add(8 * w)));
            for c in 0..N {
                let p = _mm256_broadcast_ss(&*p[c].add(j));
                for w in 0..W {
                    acc[c][w] = _mm256_fmadd_ps(p, x[w], acc[c][w]);
                }
            }
        }
        for (out, acc) in out.into_iter().zip(acc) {
            for (w, acc) in acc.into_iter().enumerate() {
                _mm256_storeu_ps(out.add(8 * w), acc);
            }
        }
    }
}

/// Longest query that [`q8_scores`] holds as integers; longer ones go the portable way.
const MAX_QUERY: usize = 512;

pub(super) fn q8_ops() -> AttentionOps<Q8Block> {
    one_by_one!(
        |q: &[f32], k: &[Q8Block], scale, out: &mut [f32]| {
            assert!(k.len() * Q8Block::LEN >= out.len() * q.len());
            if q.len() > MAX_QUERY {
                return super::q8_scores(q, k, scale, out);
            }
            // SAFETY: this table is handed out for kernel sets whose instructions the CPU has; bounds asserted.
            unsafe { q8_scores(q, k, scale, out) }
        },
        |p: &[f32], v: &[Q8Block], out: &mut [f32]| {
            assert!(v.len() * Q8Block::LEN >= p.len() * out.len());
            // SAFETY: as above.
            unsafe { q8_weighted_sum(p, v, out) }
        }
    )
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
unsafe fn q8_tile<const B: usize>(p: &[f32], v: *const Q8Block, blocks: usize, out: &mut [f32]) {
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
