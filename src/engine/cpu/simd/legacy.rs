//! The 32-element formats, and the 4-bit non-linear ones.

use super::format::{Format, Splats, each8, half, load128, load256, total};
use super::kquants::{By32, dot_by32, format, store_by32};
use crate::engine::cpu::acts::Column;
use crate::quant::{IQ4_VALUES, MXFP4_VALUES, mxfp4_half_scale};
use std::arch::x86_64::*;

/// Formats with a scale, and perhaps a minimum, in every block of 32 elements.
trait Block: Format {
    /// Scales and minimums of the `N` blocks from `w` on, 4 or 8; zero in the lanes above.
    unsafe fn scales_of<const N: usize>(w: *const u8) -> (__m256, __m256);
}

/// Running sums of a dot product.
#[derive(Clone, Copy)]
struct Sums {
    acc: [__m256; 2],
    mins: __m256,
}

/// `N` blocks whose scales are converted together.
#[inline(always)]
unsafe fn blocks<F: Block, const N: usize, const C: usize>(
    w: *const u8,
    x: [Column; C],
    sums: &mut [Sums; C],
) {
    let load = |p: *const f32| {
        if N == 8 {
            _mm256_loadu_ps(p)
        } else {
            _mm256_zextps128_ps256(_mm_loadu_ps(p))
        }
    };
    let (scale, min) = F::scales_of::<N>(w);
    if F::MIN {
        for c in 0..C {
            sums[c].mins = _mm256_fmadd_ps(min, load(x[c].s32), sums[c].mins);
        }
    }
    let scales = x.map(|x| Splats::new(_mm256_mul_ps(scale, load(x.unit))));
    each8!(J => {
        if J < N {
            for c in 0..C {
                let dot = product::<F, 0>(w.add(J * F::BYTES), x[c].offset(32 * J));
                let acc = &mut sums[c].acc[J % 2];
                *acc = _mm256_fmadd_ps(scales[c].at(J), dot, *acc);
            }
        }
    });
}

/// The products of elements `32 J .. 32 J + 32` with the 32 values at `x`, in sums of four and in units of `x`.
#[inline(always)]
pub(super) unsafe fn product<F: Format, const J: usize>(w: *const u8, x: Column) -> __m256 {
    let step = load256(x.step.cast());
    let pairs = F::products::<J>(w, load256(x.q.cast()));
    // The steps take the place of the ones that `vpmaddwd` would need anyway.
    _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, step))
}

/// Eight blocks at a time, then four, then one.
#[inline(always)]
unsafe fn dot_blocks<F: Block, const C: usize>(w: *const u8, x: [Column; C], k: usize) -> [f32; C] {
    let zero = _mm256_setzero_ps();
    let mut sums = [Sums {
        acc: [zero; 2],
        mins: zero,
    }; C];
    let mut at = 0;
    while at + 256 <= k {
        let w = w.add(at / 32 * F::BYTES);
        super::prefetch::<F>(w);
        blocks::<F, 8, C>(w, x.map(|x| x.offset(at)), &mut sums);
        at += 256;
    }
    if at + 128 <= k {
        let w = w.add(at / 32 * F::BYTES);
        blocks::<F, 4, C>(w, x.map(|x| x.offset(at)), &mut sums);
        at += 128;
    }
    let mut rest = [0.0; C];
    while at < k {
        let w = w.add(at / 32 * F::BYTES);
        let (mut scale, mut min) = (0.0, 0.0);
        F::scales(w, &mut scale, &mut min);
        for c in 0..C {
            let x = x[c].offset(at);
            let dot = product::<F, 0>(w, x);
            let acc = &mut sums[c].acc[0];
            *acc = _mm256_fmadd_ps(_mm256_set1_ps(scale * *x.unit), dot, *acc);
            if F::MIN {
                rest[c] += min * *x.s32;
            }
        }
        at += 32;
    }
    std::array::from_fn(|c| {
        let s = &sums[c];
        rest[c] + total(s.acc, s.mins)
    })
}

/// The 16-bit words at `w`, `w + STRIDE`, ... of `N` blocks, then zeros.
#[inline(always)]
unsafe fn words<const STRIDE: usize, const N: usize>(w: *const u8) -> __m128i {
    let at = |i: usize| {
        if i < N {
            w.add(i * STRIDE).cast::<i16>().read_unaligned()
        } else {
            0
        }
    };
    _mm_setr_epi16(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7))
}

/// `d` and `m` of `N` blocks that start with the two.
#[inline(always)]
unsafe fn both<const STRIDE: usize, const N: usize>(w: *const u8) -> (__m256, __m256) {
    let at = |i: usize| {
        if i < N {
            w.add(i * STRIDE).cast::<i32>().read_unaligned()
        } else {
            0
        }
    };
    // 0 1 4 5 and 2 3 6 7, so that the two in-lane shuffles below leave the blocks in order.
    let a = _mm256_cvtph_ps(_mm_setr_epi32(at(0), at(1), at(4), at(5)));
    let b = _mm256_cvtph_ps(_mm_setr_epi32(at(2), at(3), at(6), at(7)));
    (
        _mm256_shuffle_ps::<0x88>(a, b),
        _mm256_shuffle_ps::<0xdd>(a, b),
    )
}

/// Sixteen bytes of nibbles: low ones in the low half, high ones in the high half.
#[inline(always)]
unsafe fn nibbles(w: *const u8) -> __m256i {
    let v = _mm256_broadcastsi128_si256(load128(w));
    let v = _mm256_srlv_epi32(v, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
    _mm256_and_si256(v, _mm256_set1_epi8(15))
}

/// Bit `i` of the word at `w` as 16 in byte `i`.
#[inline(always)]
unsafe fn sixteens(w: *const u8) -> __m256i {
    let word = _mm256_set1_epi32(w.cast::<i32>().read_unaligned());
    let spread = _mm256_setr_epi64x(
        0,
        0x0101010101010101,
        0x0202020202020202,
        0x0303030303030303,
    );
    let bit = _mm256_set1_epi64x(0x8040201008040201u64 as i64);
    let bits = _mm256_and_si256(_mm256_shuffle_epi8(word, spread), bit);
    _mm256_and_si256(_mm256_cmpeq_epi8(bits, bit), _mm256_set1_epi8(16))
}

/// The levels that nibbles stand for.
#[inline(always)]
unsafe fn levels(levels: &[i8; 16], w: *const u8) -> __m256i {
    let table = _mm256_broadcastsi128_si256(load128(levels.as_ptr().cast()));
    _mm256_shuffle_epi8(table, nibbles(w))
}

/// The scales of `N` blocks of MXFP4: [`mxfp4_half_scale`] in vectors.
#[inline(always)]
unsafe fn exponents<const N: usize>(w: *const u8) -> (__m256, __m256) {
    let at = |i: usize| if i < N { i32::from(*w.add(17 * i)) } else { 0 };
    let e = _mm256_setr_epi32(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
    let one = _mm256_set1_epi32(1);
    let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(e, one));
    let subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x0020_0000), e);
    let bits = _mm256_blendv_epi8(subnormal, normal, _mm256_cmpgt_epi32(e, one));
    let scales = _mm256_castsi256_ps(bits);
    let scales = if N == 8 {
        scales
    } else {
        // The missing exponents would be subnormal scales, slow to multiply with.
        _mm256_zextps128_ps256(_mm256_castps256_ps128(scales))
    };
    (scales, _mm256_setzero_ps())
}

macro_rules! block {
    ($name:ident, $bytes:literal, signed $signed:literal, min $min:literal, run $run:literal,
     |$w:ident| $quants:expr, scales $one:expr, $eight:expr) => {
        pub(super) struct $name;
        impl Format for $name {
            const LEN: usize = 32;
            const BYTES: usize = $bytes;
            const SUB: usize = 32;
            const SIGNED: bool = $signed;
            const MIN: bool = $min;
            const RUN: usize = $run;
            #[inline(always)]
            unsafe fn quants<const J: usize>($w: *const u8) -> __m256i {
                $quants
            }
            #[inline(always)]
            unsafe fn scales($w: *const u8, scale: *mut f32, min: *mut f32) {
                (*scale, *min) = $one
            }
            #[inline(always)]
            unsafe fn dots<const C: usize>(w: *const u8, x: [Column; C], k: usize) -> [f32; C] {
                dot_blocks::<Self, C>(w, x, k)
            }
        }
        impl Block for $name {
            #[inline(always)]
            unsafe fn scales_of<const N: usize>($w: *const u8) -> (__m256, __m256) {
                $eight
            }
        }
    };
}

/// Scales of `N` blocks whose minimum is `factor` times the scale.
#[inline(always)]
unsafe fn offset<const STRIDE: usize, const N: usize>(
    w: *const u8,
    factor: f32,
) -> (__m256, __m256) {
    let d = _mm256_cvtph_ps(words::<STRIDE, N>(w));
    (d, _mm256_mul_ps(d, _mm256_set1_ps(factor)))
}

block!(Q4_0, 18, signed false, min true, run 8, |w| nibbles(w.add(2)),
    scales (half(w), -8.0 * half(w)), offset::<18, N>(w, -8.0));
block!(Q4_1, 20, signed false, min true, run 8, |w| nibbles(w.add(4)),
    scales (half(w), half(w.add(2))), both::<20, N>(w));
block!(Q5_0, 22, signed false, min true, run 4,
    |w| _mm256_or_si256(nibbles(w.add(6)), sixteens(w.add(2))),
    scales (half(w), -16.0 * half(w)), offset::<22, N>(w, -16.0));
block!(Q5_1, 24, signed false, min true, run 4,
    |w| _mm256_or_si256(nibbles(w.add(8)), sixteens(w.add(4))),
    scales (half(w), half(w.add(2))), both::<24, N>(w));
block!(Q8_0, 34, signed true, min false, run 1, |w| load256(w.add(2)),
    scales (half(w), 0.0), offset::<34, N>(w, 0.0));
block!(Iq4Nl, 18, signed true, min false, run 1, |w| levels(&IQ4_VALUES, w.add(2)),
    scales (half(w), 0.0), offset::<18, N>(w, 0.0));
block!(Mxfp4, 17, signed true, min false, run 4, |w| levels(&MXFP4_VALUES, w.add(1)),
    scales (mxfp4_half_scale(*w), 0.0), exponents::<N>(w));

format!(Iq4Xs, dot_by32, store_by32, 136, sub 32, signed true, min false, run 1,
    |J, w| levels(&IQ4_VALUES, w.add(8 + 16 * J)));

impl By32 for Iq4Xs {
    #[inline(always)]
    unsafe fn scales8(w: *const u8) -> (__m256, __m256) {
        let high = i32::from(w.add(2).cast::<u16>().read_unaligned());
        let low = w.add(4).cast::<i32>().read_unaligned();
        let low = _mm256_srlv_epi32(
            _mm256_set1_epi32(low),
            _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28),
        );
        let high = _mm256_srlv_epi32(
            _mm256_set1_epi32(high),
            _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14),
        );
        let low = _mm256_and_si256(low, _mm256_set1_epi32(15));
        let high = _mm256_and_si256(high, _mm256_set1_epi32(3));
        let six = _mm256_or_si256(low, _mm256_slli_epi32::<4>(high));
        let scales = _mm256_cvtepi32_ps(_mm256_sub_epi32(six, _mm256_set1_epi32(32)));
        let d = _mm256_set1_ps(half(w));
        (_mm256_mul_ps(d, scales), _mm256_setzero_ps())
    }
}
