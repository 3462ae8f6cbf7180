//! The ternary formats: TQ1_0 and TQ2_0. Digits stay unsigned; the scale is the minimum too.

use super::format::{Format, half, load128, load256};
use super::kquants::{By32, dot_by32, format, pairs, store_by32};
use crate::engine::cpu::acts::Column;
use std::arch::x86_64::*;

/// Every byte times three, modulo 256: the next digit of TQ1_0 moves to the front.
#[inline(always)]
unsafe fn thrice(v: __m256i) -> __m256i {
    _mm256_add_epi8(v, _mm256_add_epi8(v, v))
}

/// The whole part of three times each byte as a fraction of 256.
#[inline(always)]
unsafe fn digit(v: __m256i) -> __m256i {
    let from = |low: u8| {
        let low = _mm256_set1_epi8(low as i8);
        _mm256_cmpeq_epi8(_mm256_max_epu8(v, low), v)
    };
    let minus = _mm256_add_epi8(from(86), from(171));
    _mm256_sub_epi8(_mm256_setzero_si256(), minus)
}

format!(Tq1, dot_by32, store_by32, 54, sub 32, signed false, min true, run 4, |J, w| {
    if J < 5 {
        // 32 bytes, one digit of each.
        let mut v = load256(w);
        for _ in 0..J {
            v = thrice(v);
        }
        return digit(v);
    }
    // 16 bytes, two digits of each, or the last of each and four of four more.
    let v = _mm256_broadcastsi128_si256(load128(w.add(32)));
    let v = match J {
        5 => _mm256_blend_epi32::<0xf0>(v, thrice(v)),
        6 => {
            let v = thrice(thrice(v));
            _mm256_blend_epi32::<0xf0>(v, thrice(v))
        }
        _ => {
            let last = _mm256_set1_epi32(w.add(48).cast::<i32>().read_unaligned());
            let low = thrice(thrice(thrice(thrice(v))));
            let v = _mm256_blend_epi32::<0xf0>(low, last);
            let v = _mm256_blend_epi32::<0xe0>(v, thrice(v));
            let v = _mm256_blend_epi32::<0xc0>(v, thrice(v));
            _mm256_blend_epi32::<0x80>(v, thrice(v))
        }
    };
    digit(v)
});
format!(Tq2, dot_by32, store_by32, 66, sub 32, signed false, min true, run 4,
    |J, w| pairs::<J>(w));

#[inline(always)]
unsafe fn uniform(p: *const u8) -> (__m256, __m256) {
    let d = half(p);
    (_mm256_set1_ps(d), _mm256_set1_ps(-d))
}

impl By32 for Tq1 {
    #[inline(always)]
    unsafe fn scales8(w: *const u8) -> (__m256, __m256) {
        uniform(w.add(52))
    }
}

impl By32 for Tq2 {
    #[inline(always)]
    unsafe fn scales8(w: *const u8) -> (__m256, __m256) {
        uniform(w.add(64))
    }
}
