//! Loops that do nothing but multiply and add, for the arithmetic peaks of a kernel set.
//!
//! Everything stays in registers, with more sums in flight than two ports of four or five cycles need. The instructions
//! are those that the kernels of the set multiply with, at the widest vectors they come in:
//!
//! | set | floats | int8 |
//! |---|---|---|
//! | scalar | multiply, then add, in the vectors that every CPU of the target has | none: its kernels multiply floats |
//! | avx2 | `vfmadd`, 256 bits | `vpmaddubsw`, summed in 16 bits over four groups, then `vpmaddwd` with ones: the matrix product |
//! | avx512 | `vfmadd`, 512 bits | `vpdpbusd`, 512 bits: the matrix product; dot products of single rows take `vpmaddubsw` and `vpmaddwd` |
//! | neon | `fmla` | `smull`, `saddlp` and additions |
//! | dotprod | `fmla` | `sdot` |
//!
//! The kernels of avx512 use 256-bit vectors, so that a machine with two 512-bit units lets them reach about half of its
//! peak: the peak is what the instructions can do, not what the kernels do with them.

use super::KernelSet;
use std::hint::black_box;

/// What a loop multiplies and adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// Single-precision floats.
    Fp32,
    /// Products of bytes, summed in 32 bits.
    Int8,
}

/// A loop of one kernel set, for a machine that has its instructions.
#[derive(Debug, Clone, Copy)]
pub struct PeakLoop {
    /// Multiply-adds in a round.
    products: u64,
    run: Run,
}

/// `rounds` rounds with every product being `a * b`; the sum of all products.
type Run = unsafe fn(rounds: u32, a: i8, b: i8) -> f64;

impl PeakLoop {
    /// The loop of a kernel set; `None` where this machine lacks the instructions, or where the set's kernels have no such
    /// arithmetic.
    pub fn new(set: KernelSet, arithmetic: Arithmetic) -> Option<Self> {
        use Arithmetic::{Fp32, Int8};
        if !set.is_available() {
            return None;
        }
        let (products, run): (usize, Run) = match (set, arithmetic) {
            #[cfg(target_arch = "x86_64")]
            (KernelSet::Scalar, Fp32) => (x86::FP32_128, x86::fp32_128),
            #[cfg(not(target_arch = "x86_64"))]
            (KernelSet::Scalar, Fp32) => (portable::FP32, portable::fp32),
            #[cfg(target_arch = "x86_64")]
            (KernelSet::Avx2, Fp32) => (x86::FP32_256, x86::fp32_256),
            #[cfg(target_arch = "x86_64")]
            (KernelSet::Avx2, Int8) => (x86::INT8_256, x86::int8_256),
            #[cfg(target_arch = "x86_64")]
            (KernelSet::Avx512, Fp32) => (x86::FP32_512, x86::fp32_512),
            #[cfg(target_arch = "x86_64")]
            (KernelSet::Avx512, Int8) => (x86::INT8_512, x86::int8_512),
            #[cfg(target_arch = "aarch64")]
            (KernelSet::Neon | KernelSet::Dotprod, Fp32) => (arm::FP32, arm::fp32),
            #[cfg(target_arch = "aarch64")]
            (KernelSet::Neon, Int8) => (arm::INT8, arm::int8),
            #[cfg(target_arch = "aarch64")]
            (KernelSet::Dotprod, Int8) => (arm::INT8_DOT, arm::int8_dot),
            _ => return None,
        };
        let products = products as u64;
        Some(Self { products, run })
    }

    /// Operations of `rounds` rounds: a multiplication and an addition a product.
    pub fn ops(&self, rounds: u32) -> u64 {
        2 * self.products * u64::from(rounds)
    }

    /// Runs `rounds` rounds and returns the sum of all products, each `a * b`: `ops(rounds) / 2 * a * b` as long as no
    /// sum of one lane passes 2^24 (float) or 2^31, and no product passes 4095 (int8).
    pub fn run(&self, rounds: u32, a: u8, b: i8) -> f64 {
        // Bytes of weights are unsigned where the instructions want them so; 127 is enough for both.
        let a = black_box(a.min(127)) as i8;
        // SAFETY: `new` asked the CPU for the instructions.
        unsafe { (self.run)(rounds, a, black_box(b)) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod portable {
    use std::hint::black_box;

    /// Twelve vectors where they hold four floats.
    pub(super) const FP32: usize = 48;

    pub(super) fn fp32(rounds: u32, a: i8, b: i8) -> f64 {
        // Times one plus a product: with `sum + a * b` the compiler would multiply once, outside the loop.
        let (one, product) = (black_box(1.0f32), f32::from(a) * f32::from(b));
        let mut sums = black_box([0.0f32; FP32]);
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = *sum * one + product;
            }
        }
        sums.iter().map(|s| f64::from(*s)).sum()
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::*;
    use std::hint::black_box;

    /// Two operands and twelve sums fit the sixteen registers.
    const SUMS_128: usize = 12;
    /// As many.
    const SUMS_256: usize = 12;
    /// Of 32 registers.
    const SUMS_512: usize = 24;
    /// Groups summed in 16 bits, as many as the matrix product of the common formats takes.
    const GROUPS: usize = 4;
    /// Sums of the int8 loop of AVX2; the rest of the registers hold operands and groups.
    const SUMS_WIDENED: usize = 4;

    pub(super) const FP32_128: usize = SUMS_128 * 4;
    pub(super) const FP32_256: usize = SUMS_256 * 8;
    pub(super) const FP32_512: usize = SUMS_512 * 16;
    pub(super) const INT8_256: usize = SUMS_WIDENED * GROUPS * 32;
    pub(super) const INT8_512: usize = SUMS_512 * 64;

    fn floats(lanes: &[f32]) -> f64 {
        lanes.iter().map(|v| f64::from(*v)).sum()
    }

    fn integers(lanes: &[i32]) -> f64 {
        lanes.iter().map(|v| f64::from(*v)).sum()
    }

    /// SSE, which the compiler may use in portable code; spelt out, since it does not always find it.
    pub(super) fn fp32_128(rounds: u32, a: i8, b: i8) -> f64 {
        // SAFETY: SSE belongs to x86-64; both ends of the transmutation are plain floats of the same size.
        unsafe {
            // Times one plus a product: with `sum + a * b` the compiler would multiply once, outside the loop.
            let one = _mm_set1_ps(black_box(1.0));
            let product = _mm_set1_ps(f32::from(a) * f32::from(b));
            let mut sums = black_box([_mm_setzero_ps(); SUMS_128]);
            for _ in 0..rounds {
                for sum in &mut sums {
                    *sum = _mm_add_ps(_mm_mul_ps(*sum, one), product);
                }
            }
            floats(&std::mem::transmute::<[__m128; SUMS_128], [f32; FP32_128]>(
                sums,
            ))
        }
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn fp32_256(rounds: u32, a: i8, b: i8) -> f64 {
        let (a, b) = (_mm256_set1_ps(a.into()), _mm256_set1_ps(b.into()));
        let mut sums = black_box([_mm256_setzero_ps(); SUMS_256]);
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(a, b, *sum);
            }
        }
        // SAFETY: both are plain floats of the same size.
        floats(&unsafe { std::mem::transmute::<[__m256; SUMS_256], [f32; FP32_256]>(sums) })
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn fp32_512(rounds: u32, a: i8, b: i8) -> f64 {
        let (a, b) = (_mm512_set1_ps(a.into()), _mm512_set1_ps(b.into()));
        let mut sums = black_box([_mm512_setzero_ps(); SUMS_512]);
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(a, b, *sum);
            }
        }
        // SAFETY: both are plain floats of the same size.
        floats(&unsafe { std::mem::transmute::<[__m512; SUMS_512], [f32; FP32_512]>(sums) })
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn int8_256(rounds: u32, a: i8, b: i8) -> f64 {
        let (mut a, mut b) = ([_mm256_set1_epi8(a); GROUPS], _mm256_set1_epi8(b));
        let ones = _mm256_set1_epi16(1);
        let mut sums = black_box([_mm256_setzero_si256(); SUMS_WIDENED]);
        for _ in 0..rounds {
            for sum in &mut sums {
                for a in &mut a {
                    // SAFETY: no instruction. The compiler must take the operand for a new one, or it would multiply once.
                    unsafe {
                        asm!(
                            "/* {0} */",
                            inout(ymm_reg) * a,
                            options(nomem, nostack, preserves_flags)
                        );
                    }
                }
                // SAFETY: as above.
                unsafe {
                    asm!("/* {0} */", inout(ymm_reg) b, options(nomem, nostack, preserves_flags));
                }
                let mut pairs = _mm256_maddubs_epi16(a[0], b);
                for a in &a[1..] {
                    pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(*a, b));
                }
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
            }
        }
        // SAFETY: both are plain integers of the same size.
        integers(&unsafe { std::mem::transmute::<[__m256i; SUMS_WIDENED], [i32; 32]>(sums) })
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn int8_512(rounds: u32, a: i8, b: i8) -> f64 {
        let (a, b) = (_mm512_set1_epi8(a), _mm512_set1_epi8(b));
        let mut sums = black_box([_mm512_setzero_si512(); SUMS_512]);
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, a, b);
            }
        }
        // SAFETY: both are plain integers of the same size.
        integers(&unsafe { std::mem::transmute::<[__m512i; SUMS_512], [i32; SUMS_512 * 16]>(sums) })
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use crate::engine::cpu::neon::{Isa, Plain};
    use std::arch::aarch64::*;
    use std::arch::asm;
    use std::hint::black_box;

    /// Of 32 registers; wide cores have four ports of four cycles.
    const SUMS: usize = 24;
    /// Sums of the loop without dot products, whose steps take registers of their own.
    const SUMS_PLAIN: usize = 8;

    pub(super) const FP32: usize = SUMS * 4;
    pub(super) const INT8: usize = SUMS_PLAIN * 16;
    pub(super) const INT8_DOT: usize = SUMS * 16;

    fn integers(lanes: &[i32]) -> f64 {
        lanes.iter().map(|v| f64::from(*v)).sum()
    }

    #[target_feature(enable = "neon")]
    pub(super) fn fp32(rounds: u32, a: i8, b: i8) -> f64 {
        let (a, b) = (vdupq_n_f32(a.into()), vdupq_n_f32(b.into()));
        let mut sums = black_box([vdupq_n_f32(0.0); SUMS]);
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = vfmaq_f32(*sum, a, b);
            }
        }
        // SAFETY: both are plain floats of the same size.
        let lanes = unsafe { std::mem::transmute::<[float32x4_t; SUMS], [f32; FP32]>(sums) };
        lanes.iter().map(|v| f64::from(*v)).sum()
    }

    #[target_feature(enable = "neon")]
    pub(super) fn int8(rounds: u32, a: i8, b: i8) -> f64 {
        let (a, mut b) = (vdupq_n_s8(a), vdupq_n_s8(b));
        let mut sums = black_box([vdupq_n_s32(0); SUMS_PLAIN]);
        for _ in 0..rounds {
            for sum in &mut sums {
                // SAFETY: no instruction. The compiler must take the operand for a new one, or it would multiply once.
                unsafe {
                    asm!("/* {0:v} */", inout(vreg) b, options(nomem, nostack, preserves_flags));
                }
                // SAFETY: NEON is enabled here.
                *sum = vaddq_s32(*sum, unsafe { Plain::dot(a, b) });
            }
        }
        // SAFETY: both are plain integers of the same size.
        integers(&unsafe {
            std::mem::transmute::<[int32x4_t; SUMS_PLAIN], [i32; SUMS_PLAIN * 4]>(sums)
        })
    }

    #[target_feature(enable = "neon,dotprod")]
    pub(super) fn int8_dot(rounds: u32, a: i8, b: i8) -> f64 {
        let (a, b) = (vdupq_n_s8(a), vdupq_n_s8(b));
        let mut sums = black_box([vdupq_n_s32(0); SUMS]);
        for _ in 0..rounds {
            for sum in &mut sums {
                // SAFETY: the instruction is enabled here and touches registers only; its intrinsic is not stable.
                unsafe {
                    asm!(
                        "sdot {s:v}.4s, {a:v}.16b, {b:v}.16b",
                        s = inout(vreg) *sum,
                        a = in(vreg) a,
                        b = in(vreg) b,
                        options(pure, nomem, nostack, preserves_flags)
                    );
                }
            }
        }
        // SAFETY: both are plain integers of the same size.
        integers(&unsafe { std::mem::transmute::<[int32x4_t; SUMS], [i32; SUMS * 4]>(sums) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loops() -> Vec<(KernelSet, Arithmetic, PeakLoop)> {
        let mut all = Vec::new();
        for set in KernelSet::ALL {
            for arithmetic in [Arithmetic::Fp32, Arithmetic::Int8] {
                all.extend(PeakLoop::new(set, arithmetic).map(|l| (set, arithmetic, l)));
            }
        }
        all
    }

    #[test]
    fn loops_compute_as_many_products_as_they_claim() {
        for (set, arithmetic, l) in loops() {
            for (rounds, a, b) in [
                (0, 1, 1),
                (1, 1, 1),
                (1, 127, -32),
                (1000, 3, -5),
                (4096, 1, 1),
            ] {
                let products = f64::from(a) * f64::from(b) * l.ops(rounds) as f64 / 2.0;
                assert_eq!(
                    l.run(rounds, a, b),
                    products,
                    "{set} {arithmetic:?} {rounds} {a} {b}"
                );
            }
        }
    }

    #[test]
    fn every_available_set_has_a_float_loop_and_vector_sets_an_int8_loop() {
        for set in KernelSet::ALL {
            let has = |arithmetic| PeakLoop::new(set, arithmetic).is_some();
            assert_eq!(has(Arithmetic::Fp32), set.is_available(), "{set}");
            let int8 = set.is_available() && set != KernelSet::Scalar;
            assert_eq!(has(Arithmetic::Int8), int8, "{set}");
        }
    }
}
