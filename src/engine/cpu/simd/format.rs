//! What a quantised weight format has to say about itself.

use crate::engine::cpu::acts::Column;
use std::arch::x86_64::*;

/// How the scales of a format are laid out, and what its integers are.
///
/// The value of an element is `scale * q + min`, where `scale` and `min` belong to [`SUB`](Self::SUB)
/// elements. All methods require AVX2, FMA and F16C, and blocks readable in full.
pub(super) trait Format {
    /// Elements in a block: 32 or 256.
    const LEN: usize;
    /// Bytes in a block.
    const BYTES: usize;
    /// Elements that share a scale: 16 or 32.
    const SUB: usize;
    /// Whether the integers are signed bytes, rather than unsigned below 64.
    const SIGNED: bool;
    /// Whether `min` is ever non-zero.
    const MIN: bool;
    /// Groups of four whose `vpmaddubsw` products sum up without leaving 16 bits.
    const RUN: usize;

    /// The integers of elements `32 J .. 32 J + 32` of the block at `w`, in order.
    unsafe fn quants<const J: usize>(w: *const u8) -> __m256i;

    /// The products of [`quants`](Self::quants) with 32 signed bytes, in sums of two.
    #[inline(always)]
    unsafe fn products<const J: usize>(w: *const u8, x: __m256i) -> __m256i {
        // SAFETY: AVX2 and the block by the caller.
        unsafe {
            let q = Self::quants::<J>(w);
            if Self::SIGNED {
                _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(x, q))
            } else {
                _mm256_maddubs_epi16(q, x)
            }
        }
    }

    /// Writes `LEN / SUB` scales and as many minimums of the block at `w`.
    unsafe fn scales(w: *const u8, scale: *mut f32, min: *mut f32);

    /// The dot products of `k` weights at `w` with `C` columns; each column's is the same to the last bit whatever `C` is.
    unsafe fn dots<const C: usize>(w: *const u8, x: [Column; C], k: usize) -> [f32; C];
}

/// Calls `$body` with `$J` a constant from 0 to 7.
macro_rules! each8 {
    ($J:ident => $body:expr) => {{
        each8!(@ $J $body; 0 1 2 3 4 5 6 7);
    }};
    (@ $J:ident $body:expr; $($n:literal)*) => {
        $({ const $J: usize = $n; $body; })*
    };
}
pub(super) use each8;

#[inline(always)]
pub(super) unsafe fn load256(p: *const u8) -> __m256i {
    // SAFETY: 32 readable bytes by the caller.
    unsafe { _mm256_loadu_si256(p.cast()) }
}

#[inline(always)]
pub(super) unsafe fn load128(p: *const u8) -> __m128i {
    // SAFETY: 16 readable bytes by the caller.
    unsafe { _mm_loadu_si128(p.cast()) }
}

/// The half-precision number at `p` as a float.
#[inline(always)]
pub(super) unsafe fn half(p: *const u8) -> f32 {
    // SAFETY: two readable bytes and F16C by the caller.
    unsafe {
        let bits = i32::from(p.cast::<u16>().read_unaligned());
        _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)))
    }
}

/// The sum of eight lanes.
#[inline(always)]
pub(super) unsafe fn sum8(v: __m256) -> f32 {
    // SAFETY: AVX2 by the caller.
    unsafe {
        let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
        _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
    }
}

/// The dot product that two running sums and one of minimums make.
#[inline(always)]
pub(super) unsafe fn total(acc: [__m256; 2], mins: __m256) -> f32 {
    // SAFETY: AVX2 by the caller.
    unsafe { sum8(_mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), mins)) }
}

/// Eight scales in memory, each to be broadcast to a whole vector by [`Splats::at`].
///
/// On AVX2 machines a broadcast load costs no shuffle, and shuffles are what these loops run out of.
pub(super) struct Splats([f32; 8]);

impl Splats {
    #[inline(always)]
    pub(super) unsafe fn new(v: __m256) -> Self {
        let mut lanes = [0.0; 8];
        // SAFETY: AVX2 by the caller.
        unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), v) };
        // SAFETY: no instructions; only keeps the compiler from undoing the trip through memory.
        unsafe {
            std::arch::asm!("/* {} */", in(reg) &raw const lanes, options(nostack, preserves_flags))
        };
        Self(lanes)
    }

    #[inline(always)]
    pub(super) unsafe fn at(&self, j: usize) -> __m256 {
        // SAFETY: AVX2 by the caller.
        unsafe { _mm256_broadcast_ss(&self.0[j]) }
    }
}
