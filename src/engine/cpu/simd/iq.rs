//! The codebook formats: IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S.

use super::format::{Format, half, load128, load256};
use super::kquants::{By16, By32, dot_by16, dot_by32, format, store_by16, store_by32};
use crate::engine::cpu::acts::Column;
use crate::quant::grids::{self, EVEN_SIGNS};
use half::f16;
use std::arch::x86_64::*;

/// The four vectors of eight that `code` numbers, in order.
#[inline(always)]
unsafe fn eights<const N: usize>(grid: &[u64; N], code: impl Fn(usize) -> usize) -> __m256i {
    const { assert!(N.is_power_of_two()) };
    let at = |i: usize| grid[code(i) & (N - 1)] as i64;
    _mm256_setr_epi64x(at(0), at(1), at(2), at(3))
}

/// The eight vectors of four that `code` numbers, in order.
#[inline(always)]
unsafe fn fours<const N: usize>(grid: &[u32; N], code: impl Fn(usize) -> usize) -> __m256i {
    const { assert!(N.is_power_of_two()) };
    let at = |i: usize| grid[code(i) & (N - 1)] as i32;
    _mm256_setr_epi32(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7))
}

/// -1 in every byte that bit `i` of a word says is negative.
#[inline(always)]
unsafe fn minus_bits(p: *const u8) -> __m256i {
    let spread = _mm256_setr_epi64x(
        0,
        0x0101010101010101,
        0x0202020202020202,
        0x0303030303030303,
    );
    let bit = _mm256_set1_epi64x(0x8040201008040201u64 as i64);
    let word = _mm256_shuffle_epi8(_mm256_set1_epi32(word(p) as i32), spread);
    _mm256_cmpeq_epi8(_mm256_and_si256(word, bit), bit)
}

/// For each sign code, -1 in every byte that is negative.
static MINUS: [u64; 128] = {
    let mut table = [0; 128];
    let mut i = 0;
    while i < 8 * 128 {
        let bit = (EVEN_SIGNS[i / 8] >> (i % 8)) & 1;
        table[i / 8] |= (bit as u64 * 0xff) << (8 * (i % 8));
        i += 1;
    }
    table
};

/// Negates the bytes where `minus` is -1.
#[inline(always)]
unsafe fn negate(v: __m256i, minus: __m256i) -> __m256i {
    _mm256_sub_epi8(_mm256_xor_si256(v, minus), minus)
}

#[inline(always)]
unsafe fn word(p: *const u8) -> u32 {
    p.cast::<u32>().read_unaligned()
}

#[inline(always)]
unsafe fn half_word(p: *const u8) -> usize {
    usize::from(p.cast::<u16>().read_unaligned())
}

#[inline(always)]
unsafe fn byte(p: *const u8) -> usize {
    usize::from(*p)
}

/// Scales `2 s + 1` of eight bytes of nibbles.
#[inline(always)]
unsafe fn odd_nibbles(p: *const u8) -> __m128i {
    let v = _mm_loadl_epi64(p.cast());
    let four = _mm_set1_epi8(15);
    let low = _mm_and_si128(v, four);
    let high = _mm_and_si128(_mm_srli_epi16::<4>(v), four);
    let s = _mm_unpacklo_epi8(low, high);
    _mm_add_epi8(_mm_add_epi8(s, s), _mm_set1_epi8(1))
}

/// `d (s + 1/2)` for eight integers.
#[inline(always)]
unsafe fn halfway(d: f32, s: __m256i) -> __m256 {
    let s = _mm256_add_ps(_mm256_cvtepi32_ps(s), _mm256_set1_ps(0.5));
    _mm256_mul_ps(_mm256_set1_ps(d), s)
}

/// A format of magnitudes with signs beside them.
macro_rules! codebook {
    ($name:ident, $dot:ident, $store:ident, $bytes:literal, sub $sub:literal, run $run:literal,
     |$J:ident, $w:ident| $sizes:expr, $minus:expr) => {
        pub(super) struct $name;
        impl Format for $name {
            const LEN: usize = 256;
            const BYTES: usize = $bytes;
            const SUB: usize = $sub;
            const SIGNED: bool = true;
            const MIN: bool = false;
            const RUN: usize = $run;
            #[inline(always)]
            unsafe fn quants<const $J: usize>($w: *const u8) -> __m256i {
                negate($sizes, $minus)
            }
            #[inline(always)]
            unsafe fn products<const $J: usize>($w: *const u8, x: __m256i) -> __m256i {
                _mm256_maddubs_epi16($sizes, negate(x, $minus))
            }
            #[inline(always)]
            unsafe fn scales(w: *const u8, scale: *mut f32, min: *mut f32) {
                $store::<Self>(w, scale, min)
            }
            #[inline(always)]
            unsafe fn dots<const C: usize>(w: *const u8, x: [Column; C], k: usize) -> [f32; C] {
                $dot::<Self, C>(w, x, k)
            }
        }
    };
}

// Magnitudes are at most 43, 62 and 15: `RUN` follows.
codebook!(Iq2Xxs, dot_by32, store_by32, 66, sub 32, run 2, |J, w|
    eights(&grids::IQ2_XXS, |i| byte(w.add(2 + 8 * J + i))),
    eights(&MINUS, |i| word(w.add(6 + 8 * J)) as usize >> (7 * i)));
codebook!(Iq2Xs, dot_by16, store_by16, 74, sub 16, run 2, |J, w|
    eights(&grids::IQ2_XS, |i| half_word(w.add(2 + 8 * J + 2 * i))),
    eights(&MINUS, |i| half_word(w.add(2 + 8 * J + 2 * i)) >> 9));
codebook!(Iq2S, dot_by16, store_by16, 82, sub 16, run 2, |J, w|
    eights(&grids::IQ2_S, |i| {
        byte(w.add(2 + 4 * J + i)) | (byte(w.add(66 + J)) << (8 - 2 * i)) & 0x300
    }),
    minus_bits(w.add(34 + 4 * J)));
codebook!(Iq3Xxs, dot_by32, store_by32, 98, sub 32, run 2, |J, w|
    fours(&grids::IQ3_XXS, |i| byte(w.add(2 + 8 * J + i))),
    eights(&MINUS, |i| word(w.add(66 + 4 * J)) as usize >> (7 * i)));
codebook!(Iq3S, dot_by32, store_by32, 110, sub 32, run 4, |J, w|
    fours(&grids::IQ3_S, |i| {
        byte(w.add(2 + 8 * J + i)) | (byte(w.add(66 + J)) << (8 - i)) & 0x100
    }),
    minus_bits(w.add(74 + 4 * J)));

// The codebook holds values one higher: 0, 1, 2. Eight times that leaves room for IQ1_M's shift of
// one eighth up or down, which would not fit the minimum: 8 v + 8 -+ 1, as 0 to 18, is 9 too high.
format!(Iq1S, dot_by32, store_by32, 50, sub 32, signed false, min true, run 4, |J, w| {
    let high = half_word(w.add(34 + 2 * J));
    eights(&grids::IQ1, |i| {
        byte(w.add(2 + 4 * J + i)) | high << 8 >> (3 * i) & 0x700
    })
});
format!(Iq1M, dot_by16, store_by16, 56, sub 16, signed false, min true, run 4, |J, w| {
    let high = half_word(w.add(32 + 2 * J));
    let values = eights(&grids::IQ1, |i| {
        byte(w.add(4 * J + i)) | high << 8 >> (4 * i) & 0x700
    });
    let down = _mm256_setr_epi64x(0x8, 0x80, 0x800, 0x8000);
    let down = _mm256_and_si256(_mm256_set1_epi64x(high as i64), down);
    let up = _mm256_cmpeq_epi64(down, _mm256_setzero_si256());
    let shift = _mm256_and_si256(up, _mm256_set1_epi8(2));
    _mm256_add_epi8(_mm256_slli_epi16::<3>(values), shift)
});

impl By32 for Iq2Xxs {
    #[inline(always)]
    unsafe fn scales8(w: *const u8) -> (__m256, __m256) {
        let a = _mm256_castsi256_ps(load256(w.add(2)));
        let b = _mm256_castsi256_ps(load256(w.add(34)));
        // The upper words of each pair: those of blocks 0 1 4 5 and 2 3 6 7.
        let words = _mm256_castps_si256(_mm256_shuffle_ps::<0xdd>(a, b));
        let words = _mm256_permute4x64_epi64::<0xd8>(words);
        let scales = halfway(0.25 * half(w), _mm256_srli_epi32::<28>(words));
        (scales, _mm256_setzero_ps())
    }
}

impl By32 for Iq3Xxs {
    #[inline(always)]
    unsafe fn scales8(w: *const u8) -> (__m256, __m256) {
        let s = _mm256_srli_epi32::<28>(load256(w.add(66)));
        (halfway(0.5 * half(w), s), _mm256_setzero_ps())
    }
}

impl By32 for Iq3S {
    #[inline(always)]
    unsafe fn scales8(w: *const u8) -> (__m256, __m256) {
        let shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
        let s = _mm256_srlv_epi32(_mm256_set1_epi32(word(w.add(106)) as i32), shifts);
        let s = _mm256_and_si256(s, _mm256_set1_epi32(15));
        (halfway(2.0 * half(w), s), _mm256_setzero_ps())
    }
}

impl By32 for Iq1S {
    #[inline(always)]
    unsafe fn scales8(w: *const u8) -> (__m256, __m256) {
        let words = _mm256_cvtepu16_epi32(load128(w.add(34)));
        let s = _mm256_and_si256(_mm256_srli_epi32::<12>(words), _mm256_set1_epi32(7));
        let scale = halfway(2.0 * half(w), s);
        // -1 for the codebook, and the shift: the top bit of a word says down.
        let down = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words));
        let (up, down) = (
            _mm256_set1_ps(-0.875),
            _mm256_blendv_ps(_mm256_setzero_ps(), _mm256_set1_ps(-0.25), down),
        );
        (scale, _mm256_mul_ps(scale, _mm256_add_ps(up, down)))
    }
}

impl By16 for Iq2Xs {
    #[inline(always)]
    unsafe fn scales16(w: *const u8) -> (__m128i, f32, __m128i, f32) {
        let scales = odd_nibbles(w.add(66));
        (scales, 0.125 * half(w), _mm_setzero_si128(), 0.0)
    }
}

impl By16 for Iq2S {
    #[inline(always)]
    unsafe fn scales16(w: *const u8) -> (__m128i, f32, __m128i, f32) {
        let scales = odd_nibbles(w.add(74));
        (scales, 0.125 * half(w), _mm_setzero_si128(), 0.0)
    }
}

impl By16 for Iq1M {
    #[inline(always)]
    unsafe fn scales16(w: *const u8) -> (__m128i, f32, __m128i, f32) {
        let words = w.add(48).cast::<u64>().read_unaligned();
        let d = (0..4).fold(0, |d, i| {
            d | (words >> (12 + 12 * i)) as u16 & (15 << (4 * i))
        });
        let d = 0.125 * f16::from_bits(d).to_f32();
        // Each word four times, its fields moved up to bit 9.
        let spread = _mm256_setr_epi64x(
            0x0100010001000100,
            0x0302030203020302,
            0x0504050405040504,
            0x0706070607060706,
        );
        let words = _mm256_shuffle_epi8(_mm256_set1_epi64x(words as i64), spread);
        let up = _mm256_set1_epi64x(0x0001_0008_0040_0200);
        let s = _mm256_srli_epi16::<9>(_mm256_mullo_epi16(words, up));
        let s = _mm256_and_si256(s, _mm256_set1_epi16(7));
        let s = _mm_packs_epi16(_mm256_castsi256_si128(s), _mm256_extracti128_si256::<1>(s));
        let scales = _mm_add_epi8(_mm_add_epi8(s, s), _mm_set1_epi8(1));
        (scales, d, scales, -9.0 * d)
    }
}
