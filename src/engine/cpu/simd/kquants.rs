//! The 256-element formats: the k-quants.

use super::format::{Format, Splats, each8, half, load128, load256, total};
use super::legacy::product;
use crate::engine::cpu::acts::Column;
use std::arch::x86_64::*;

/// Formats with a scale, and perhaps a minimum, for each 32 of 256 elements.
pub(super) trait By32: Format {
    /// The eight scales, and the eight minimums when [`Format::MIN`].
    unsafe fn scales8(w: *const u8) -> (__m256, __m256);
}

/// Formats with a signed 8-bit scale for each 16 of 256 elements.
///
/// Their minimum, when [`Format::MIN`], is a number common to the block times a second signed byte.
pub(super) trait By16: Format {
    /// Sixteen scales, the factor they share; sixteen minimums, the factor they share.
    unsafe fn scales16(w: *const u8) -> (__m128i, f32, __m128i, f32);
}

#[inline(always)]
pub(super) unsafe fn dot_by32<F: By32, const C: usize>(
    w: *const u8,
    x: [Column; C],
    k: usize,
) -> [f32; C] {
    let mut acc = [[_mm256_setzero_ps(); 2]; C];
    let mut mins = [_mm256_setzero_ps(); C];
    for b in 0..k / 256 {
        let w = w.add(b * F::BYTES);
        let x = x.map(|x| x.offset(b * 256));
        super::prefetch::<F>(w);
        let (scale, min) = F::scales8(w);
        if F::MIN {
            for c in 0..C {
                mins[c] = _mm256_fmadd_ps(min, _mm256_loadu_ps(x[c].s32), mins[c]);
            }
        }
        let scales = x.map(|x| Splats::new(_mm256_mul_ps(scale, _mm256_loadu_ps(x.unit))));
        each8!(J => {
            for c in 0..C {
                let dot = product::<F, J>(w, x[c].offset(32 * J));
                acc[c][J % 2] = _mm256_fmadd_ps(scales[c].at(J), dot, acc[c][J % 2]);
            }
        });
    }
    std::array::from_fn(|c| total(acc[c], mins[c]))
}

#[inline(always)]
pub(super) unsafe fn dot_by16<F: By16, const C: usize>(
    w: *const u8,
    x: [Column; C],
    k: usize,
) -> [f32; C] {
    let mut acc = [[_mm256_setzero_ps(); 2]; C];
    let mut mins = [_mm256_setzero_ps(); C];
    for b in 0..k / 256 {
        let w = w.add(b * F::BYTES);
        let x = x.map(|x| x.offset(b * 256));
        super::prefetch::<F>(w);
        let (scale, d, min, dmin) = F::scales16(w);
        if F::MIN {
            let (low, high) = (float8(min), float8(_mm_srli_si128::<8>(min)));
            for c in 0..C {
                let low = _mm256_mul_ps(low, _mm256_loadu_ps(x[c].s16));
                let both = _mm256_fmadd_ps(high, _mm256_loadu_ps(x[c].s16.add(8)), low);
                mins[c] = _mm256_fmadd_ps(_mm256_set1_ps(dmin), both, mins[c]);
            }
        }
        let split = split(scale);
        let mut block = [[_mm256_setzero_ps(); 2]; C];
        each8!(J => {
            for c in 0..C {
                let pairs = F::products::<J>(w, load256(x[c].q.add(32 * J).cast()));
                // The integer scale takes the place of the ones that `vpmaddwd` would need anyway.
                let dot = _mm256_madd_epi16(pairs, halves::<J>(split));
                let lanes = _mm256_loadu_ps(x[c].d.add(8 * J));
                block[c][J % 2] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), lanes, block[c][J % 2]);
            }
        });
        let d = _mm256_set1_ps(d);
        for c in 0..C {
            for i in 0..2 {
                acc[c][i] = _mm256_fmadd_ps(d, block[c][i], acc[c][i]);
            }
        }
    }
    std::array::from_fn(|c| total(acc[c], mins[c]))
}

/// Scales as 16-bit lanes, even ones in the low half and odd ones in the high half.
#[inline(always)]
unsafe fn split(scales: __m128i) -> __m256i {
    let order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    _mm256_cvtepi8_epi16(_mm_shuffle_epi8(scales, order))
}

/// Scale `2 J` in the eight low 16-bit lanes and scale `2 J + 1` in the eight high ones.
#[inline(always)]
unsafe fn halves<const J: usize>(split: __m256i) -> __m256i {
    let index = ((2 * J + 1) << 8 | (2 * J)) as i16;
    _mm256_shuffle_epi8(split, _mm256_set1_epi16(index))
}

/// The low eight signed bytes as floats.
#[inline(always)]
unsafe fn float8(bytes: __m128i) -> __m256 {
    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))
}

#[inline(always)]
pub(super) unsafe fn store_by16<F: By16>(w: *const u8, scale: *mut f32, min: *mut f32) {
    let (s, d, m, dmin) = F::scales16(w);
    for (to, bytes, d) in [(scale, s, d), (min, m, dmin)] {
        let d = _mm256_set1_ps(d);
        _mm256_storeu_ps(to, _mm256_mul_ps(d, float8(bytes)));
        let high = float8(_mm_srli_si128::<8>(bytes));
        _mm256_storeu_ps(to.add(8), _mm256_mul_ps(d, high));
    }
}

#[inline(always)]
pub(super) unsafe fn store_by32<F: By32>(w: *const u8, scale: *mut f32, min: *mut f32) {
    let (s, m) = F::scales8(w);
    _mm256_storeu_ps(scale, s);
    _mm256_storeu_ps(min, m);
}

/// Unpacks the twelve bytes of 6-bit scales and minimums that Q4_K and Q5_K share.
#[inline(always)]
unsafe fn scales8_k4(w: *const u8) -> (__m256, __m256) {
    let low = w.add(4).cast::<u32>().read_unaligned();
    let mid = w.add(8).cast::<u32>().read_unaligned();
    let high = w.add(12).cast::<u32>().read_unaligned();
    const SIX: u32 = 0x3f3f3f3f;
    const FOUR: u32 = 0x0f0f0f0f;
    const TOP: u32 = 0x30303030;
    let scales = u64::from(low & SIX) | u64::from((high & FOUR) | ((low >> 2) & TOP)) << 32;
    let mins = u64::from(mid & SIX) | u64::from(((high >> 4) & FOUR) | ((mid >> 2) & TOP)) << 32;
    let d = _mm_cvtph_ps(_mm_loadu_si32(w));
    let dmin = _mm_sub_ps(_mm_setzero_ps(), _mm_movehdup_ps(d));
    (
        _mm256_mul_ps(
            _mm256_broadcastss_ps(d),
            float8(_mm_set_epi64x(0, scales as i64)),
        ),
        _mm256_mul_ps(
            _mm256_broadcastss_ps(dmin),
            float8(_mm_set_epi64x(0, mins as i64)),
        ),
    )
}

/// Bits `SHIFT` and up of every byte, under `mask`.
#[inline(always)]
unsafe fn bits<const SHIFT: i32>(v: __m256i, mask: i8) -> __m256i {
    _mm256_and_si256(_mm256_srli_epi16::<SHIFT>(v), _mm256_set1_epi8(mask))
}

/// Two-bit fields: field `J % 4` of the 32 bytes at `w + 32 (J / 4)`.
#[inline(always)]
pub(super) unsafe fn pairs<const J: usize>(w: *const u8) -> __m256i {
    let v = load256(w.add(J / 4 * 32));
    match J % 4 {
        0 => bits::<0>(v, 3),
        1 => bits::<2>(v, 3),
        2 => bits::<4>(v, 3),
        _ => bits::<6>(v, 3),
    }
}

/// Nibbles in the order of Q4_K and Q5_K: low then high ones of 32 bytes.
#[inline(always)]
unsafe fn nibbles<const J: usize>(w: *const u8) -> __m256i {
    let v = load256(w.add(J / 2 * 32));
    if J.is_multiple_of(2) {
        bits::<0>(v, 15)
    } else {
        bits::<4>(v, 15)
    }
}

/// Bit `J` of every one of 32 bytes, moved to bit `TO`.
#[inline(always)]
unsafe fn plane<const J: usize, const TO: usize>(w: *const u8) -> __m256i {
    let v = _mm256_and_si256(load256(w), _mm256_set1_epi8((1u8 << J) as i8));
    // A shift of 16-bit lanes cannot carry into a neighbour: only bit `J` of each byte is set.
    if J > TO {
        _mm256_srl_epi16(v, _mm_cvtsi32_si128((J - TO) as i32))
    } else {
        _mm256_sll_epi16(v, _mm_cvtsi32_si128((TO - J) as i32))
    }
}

macro_rules! format {
    ($name:ident, $dot:ident, $store:ident, $bytes:literal, sub $sub:literal, signed $signed:literal,
     min $min:literal, run $run:literal, |$J:ident, $w:ident| $quants:expr) => {
        pub(super) struct $name;
        impl Format for $name {
            const LEN: usize = 256;
            const BYTES: usize = $bytes;
            const SUB: usize = $sub;
            const SIGNED: bool = $signed;
            const MIN: bool = $min;
            const RUN: usize = $run;
            #[inline(always)]
            unsafe fn quants<const $J: usize>($w: *const u8) -> __m256i {
                $quants
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
pub(super) use format;

format!(Q4K, dot_by32, store_by32, 144, sub 32, signed false, min true, run 8,
    |J, w| nibbles::<J>(w.add(16)));
format!(Q5K, dot_by32, store_by32, 176, sub 32, signed false, min true, run 4,
    |J, w| _mm256_or_si256(nibbles::<J>(w.add(48)), plane::<J, 4>(w.add(16))));
format!(Q6K, dot_by16, store_by16, 210, sub 16, signed false, min true, run 2,
|J, w| {
    let low = load256(w.add(J / 4 * 64 + J % 2 * 32));
    let low = if J % 4 < 2 { bits::<0>(low, 15) } else { bits::<4>(low, 15) };
    let high = load256(w.add(128 + J / 4 * 32));
    let mask = _mm256_set1_epi8(0x30);
    let high = match J % 4 {
        0 => _mm256_slli_epi16::<4>(high),
        1 => _mm256_slli_epi16::<2>(high),
        2 => high,
        _ => _mm256_srli_epi16::<2>(high),
    };
    _mm256_or_si256(low, _mm256_and_si256(high, mask))
});
format!(Q3K, dot_by16, store_by16, 110, sub 16, signed false, min true, run 4,
    |J, w| _mm256_or_si256(pairs::<J>(w.add(32)), plane::<J, 2>(w)));
format!(Q2K, dot_by16, store_by16, 84, sub 16, signed false, min true, run 4,
    |J, w| pairs::<J>(w.add(16)));

impl By32 for Q4K {
    #[inline(always)]
    unsafe fn scales8(w: *const u8) -> (__m256, __m256) {
        scales8_k4(w)
    }
}

impl By32 for Q5K {
    #[inline(always)]
    unsafe fn scales8(w: *const u8) -> (__m256, __m256) {
        scales8_k4(w)
    }
}

impl By16 for Q6K {
    #[inline(always)]
    unsafe fn scales16(w: *const u8) -> (__m128i, f32, __m128i, f32) {
        let (scales, d) = (load128(w.add(192)), half(w.add(208)));
        (scales, d, scales, -32.0 * d)
    }
}

impl By16 for Q3K {
    #[inline(always)]
    unsafe fn scales16(w: *const u8) -> (__m128i, f32, __m128i, f32) {
        let word = |i: usize| w.add(96 + 4 * i).cast::<u32>().read_unaligned();
        let (first, second, high) = (word(0), word(1), word(2));
        let low = _mm_setr_epi32(
            first as i32,
            second as i32,
            (first >> 4) as i32,
            (second >> 4) as i32,
        );
        let high = _mm_srlv_epi32(_mm_set1_epi32(high as i32), _mm_setr_epi32(0, 2, 4, 6));
        let low = _mm_and_si128(low, _mm_set1_epi8(15));
        let high = _mm_slli_epi16::<4>(_mm_and_si128(high, _mm_set1_epi8(3)));
        let scales = _mm_sub_epi8(_mm_or_si128(low, high), _mm_set1_epi8(32));
        let d = half(w.add(108));
        (scales, d, scales, -4.0 * d)
    }
}

impl By16 for Q2K {
    #[inline(always)]
    unsafe fn scales16(w: *const u8) -> (__m128i, f32, __m128i, f32) {
        let (packed, four) = (load128(w), _mm_set1_epi8(15));
        let scales = _mm_and_si128(packed, four);
        let mins = _mm_and_si128(_mm_srli_epi16::<4>(packed), four);
        (scales, half(w.add(80)), mins, -half(w.add(82)))
    }
}
