//! The few instructions in which the vector sets differ.
//!
//! Everything else is AVX2, FMA and F16C, which every AVX-512 machine has too. A type that
//! implements [`Isa`] only says how groups of four bytes are multiplied and summed.
//!
//! The methods are `inline(always)` and carry no target feature: they are instantiated inside
//! entry functions that enable one, which is what makes the intrinsics inline.

use std::arch::x86_64::*;

pub(super) trait Isa: Copy {
    /// `acc` plus the products of a group of four bytes, in lanes only [`Isa::lanes`] can read.
    ///
    /// # Safety
    /// The CPU has the instructions; unless [`Isa::WIDE`], no more groups are added than keep a pair of products times their number
    /// below 2^15.
    unsafe fn add(acc: __m256i, u: __m256i, s: __m256i) -> __m256i;

    /// Whether [`Isa::add`] sums in 32 bits, so that any number of groups fit.
    const WIDE: bool;

    /// The `i32` lanes of what [`Isa::add`] summed.
    ///
    /// # Safety
    /// The CPU has the instructions.
    unsafe fn lanes(acc: __m256i) -> __m256i;
}

/// `vpmaddubsw` and `vpmaddwd`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Avx2;

impl Isa for Avx2 {
    const WIDE: bool = false;

    #[inline(always)]
    unsafe fn add(acc: __m256i, u: __m256i, s: __m256i) -> __m256i {
        // SAFETY: AVX2 by the caller.
        unsafe { _mm256_add_epi16(acc, _mm256_maddubs_epi16(u, s)) }
    }

    #[inline(always)]
    unsafe fn lanes(acc: __m256i) -> __m256i {
        // SAFETY: AVX2 by the caller.
        unsafe { _mm256_madd_epi16(acc, _mm256_set1_epi16(1)) }
    }
}

/// `vpdpbusd` on 256-bit vectors: wide enough to keep up with memory, and free of the lower clock
/// that 512-bit vectors cost on some machines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Avx512;

impl Isa for Avx512 {
    const WIDE: bool = true;

    #[inline(always)]
    unsafe fn add(acc: __m256i, u: __m256i, s: __m256i) -> __m256i {
        // SAFETY: AVX512VNNI and AVX512VL by the caller.
        unsafe { _mm256_dpbusd_epi32(acc, u, s) }
    }

    #[inline(always)]
    unsafe fn lanes(acc: __m256i) -> __m256i {
        acc
    }
}

/// `vpdpbusd` as Intel's manual defines it, in plain Rust: lets every machine with AVX2 test the
/// code paths of the AVX-512 set.
#[cfg(test)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Emulated;

#[cfg(test)]
pub(super) fn dpbusd(acc: [i32; 8], u: [u8; 32], s: [i8; 32]) -> [i32; 8] {
    std::array::from_fn(|lane| {
        (4 * lane..4 * lane + 4).fold(acc[lane], |sum, i| {
            sum.wrapping_add(i32::from(u[i]) * i32::from(s[i]))
        })
    })
}

#[cfg(test)]
impl Isa for Emulated {
    const WIDE: bool = true;

    unsafe fn add(acc: __m256i, u: __m256i, s: __m256i) -> __m256i {
        let (mut sums, mut us, mut ss) = ([0; 8], [0; 32], [0; 32]);
        // SAFETY: AVX by the caller; the arrays have the size of a vector.
        unsafe {
            _mm256_storeu_si256(sums.as_mut_ptr().cast(), acc);
            _mm256_storeu_si256(us.as_mut_ptr().cast(), u);
            _mm256_storeu_si256(ss.as_mut_ptr().cast(), s);
            let sums = dpbusd(sums, us, ss);
            _mm256_loadu_si256(sums.as_ptr().cast())
        }
    }

    unsafe fn lanes(acc: __m256i) -> __m256i {
        acc
    }
}
