//! The 32-element formats, and the 4-bit non-linear ones.

use super::format::{Format, each8, half, load128, load256, splat, sum8};
use super::isa::Isa;
use super::kquants::{By32, dot_by32, format, store_by32};
use crate::engine::cpu::acts::Column;
use crate::quant::IQ4_VALUES;
use std::arch::x86_64::*;

/// Where a 32-element format keeps its numbers.
trait Block: Format {
    /// Eight scales and minimums of eight blocks from `w` on.
    unsafe fn scales_of_8(w: *const u8) -> (__m256, __m256);
}

/// Eight blocks at a time, so that their scales are converted together; then one at a time.
#[inline(always)]
unsafe fn dot_blocks<F: Block, I: Isa>(w: *const u8, x: Column, k: usize) -> f32 {
    unsafe {
        let mut acc = [_mm256_setzero_ps(); 2];
        let mut mins = _mm256_setzero_ps();
        let mut at = 0;
        while at + 256 <= k {
            let w = w.add(at / 32 * F::BYTES);
            let x = x.offset(at);
            super::prefetch::<F>(w);
            let (scale, min) = F::scales_of_8(w);
            if F::MIN {
                mins = _mm256_fmadd_ps(min, _mm256_loadu_ps(x.s32), mins);
            }
            let mut scales = [0.0f32; 8];
            _mm256_storeu_ps(
                scales.as_mut_ptr(),
                _mm256_mul_ps(scale, _mm256_loadu_ps(x.d)),
            );
            each8!(J => {
                let q = F::quants::<0>(w.add(J * F::BYTES));
                let x = load256(x.q.add(32 * J).cast());
                let dot = if F::SIGNED { I::dot_signed(q, x) } else { I::dot(q, x) };
                acc[J % 2] = _mm256_fmadd_ps(splat(&scales, J), _mm256_cvtepi32_ps(dot), acc[J % 2]);
            });
            at += 256;
        }
        let mut rest = 0.0;
        while at < k {
            let w = w.add(at / 32 * F::BYTES);
            let x = x.offset(at);
            let (mut scale, mut min) = (0.0, 0.0);
            F::scales(w, &mut scale, &mut min);
            let q = F::quants::<0>(w);
            let xq = load256(x.q.cast());
            let dot = if F::SIGNED {
                I::dot_signed(q, xq)
            } else {
                I::dot(q, xq)
            };
            let d = _mm256_set1_ps(scale * *x.d);
            acc[0] = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(dot), acc[0]);
            if F::MIN {
                rest += min * *x.s32;
            }
            at += 32;
        }
        rest + sum8(_mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), mins))
    }
}

/// The 16-bit words at `w`, `w + STRIDE`, ... of eight blocks.
#[inline(always)]
unsafe fn words8<const STRIDE: usize>(w: *const u8) -> __m128i {
    unsafe {
        let at = |i: usize| w.add(i * STRIDE).cast::<i16>().read_unaligned();
        _mm_setr_epi16(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7))
    }
}

/// `d` and `m` of eight blocks that start with the two.
#[inline(always)]
unsafe fn both8<const STRIDE: usize>(w: *const u8) -> (__m256, __m256) {
    unsafe {
        let at = |i: usize| w.add(i * STRIDE).cast::<i32>().read_unaligned();
        // 0 1 4 5 and 2 3 6 7, so that the two in-lane shuffles below leave the blocks in order.
        let a = _mm256_cvtph_ps(_mm_setr_epi32(at(0), at(1), at(4), at(5)));
        let b = _mm256_cvtph_ps(_mm_setr_epi32(at(2), at(3), at(6), at(7)));
        (
            _mm256_shuffle_ps::<0x88>(a, b),
            _mm256_shuffle_ps::<0xdd>(a, b),
        )
    }
}

/// Sixteen bytes of nibbles: low ones in the low half, high ones in the high half.
#[inline(always)]
unsafe fn nibbles(w: *const u8) -> __m256i {
    unsafe {
        let v = _mm256_broadcastsi128_si256(load128(w));
        let v = _mm256_srlv_epi32(v, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
        _mm256_and_si256(v, _mm256_set1_epi8(15))
    }
}

/// Bit `i` of the word at `w` as 16 in byte `i`.
#[inline(always)]
unsafe fn sixteens(w: *const u8) -> __m256i {
    unsafe {
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
}

/// The levels that the nibbles of IQ4_NL and IQ4_XS stand for.
#[inline(always)]
unsafe fn levels(w: *const u8) -> __m256i {
    unsafe {
        let table = _mm256_broadcastsi128_si256(load128(IQ4_VALUES.as_ptr().cast()));
        _mm256_shuffle_epi8(table, nibbles(w))
    }
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
                unsafe { $quants }
            }
            #[inline(always)]
            unsafe fn scales($w: *const u8, scale: *mut f32, min: *mut f32) {
                unsafe { (*scale, *min) = $one }
            }
            #[inline(always)]
            unsafe fn dot<I: Isa>(w: *const u8, x: Column, k: usize) -> f32 {
                unsafe { dot_blocks::<Self, I>(w, x, k) }
            }
        }
        impl Block for $name {
            #[inline(always)]
            unsafe fn scales_of_8($w: *const u8) -> (__m256, __m256) {
                unsafe { $eight }
            }
        }
    };
}

/// Scales of eight blocks whose minimum is `factor` times the scale.
#[inline(always)]
unsafe fn offset8<const STRIDE: usize>(w: *const u8, factor: f32) -> (__m256, __m256) {
    unsafe {
        let d = _mm256_cvtph_ps(words8::<STRIDE>(w));
        (d, _mm256_mul_ps(d, _mm256_set1_ps(factor)))
    }
}

block!(Q4_0, 18, signed false, min true, run 8, |w| nibbles(w.add(2)),
    scales (half(w), -8.0 * half(w)), offset8::<18>(w, -8.0));
block!(Q4_1, 20, signed false, min true, run 8, |w| nibbles(w.add(4)),
    scales (half(w), half(w.add(2))), both8::<20>(w));
block!(Q5_0, 22, signed false, min true, run 4,
    |w| _mm256_or_si256(nibbles(w.add(6)), sixteens(w.add(2))),
    scales (half(w), -16.0 * half(w)), offset8::<22>(w, -16.0));
block!(Q5_1, 24, signed false, min true, run 4,
    |w| _mm256_or_si256(nibbles(w.add(8)), sixteens(w.add(4))),
    scales (half(w), half(w.add(2))), both8::<24>(w));
block!(Q8_0, 34, signed true, min false, run 1, |w| load256(w.add(2)),
    scales (half(w), 0.0), offset8::<34>(w, 0.0));
block!(Iq4Nl, 18, signed true, min false, run 1, |w| levels(w.add(2)),
    scales (half(w), 0.0), offset8::<18>(w, 0.0));

format!(Iq4Xs, dot_by32::<Self, I>, store_by32, 136, sub 32, signed true, min false, run 1,
    |J, w| levels(w.add(8 + 16 * J)));

impl By32 for Iq4Xs {
    #[inline(always)]
    unsafe fn scales8(w: *const u8) -> (__m256, __m256) {
        unsafe {
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
}
