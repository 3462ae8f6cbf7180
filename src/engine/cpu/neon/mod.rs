//! Vector kernels for aarch64: NEON, and NEON with the dot product instruction.
//!
//! [`format`] says how each format's integers and scales are read, [`mat`] multiplies them, [`dense`] the unquantised types,
//! [`attention`] keys and values. Types without a format here run on the portable kernels.
//!
//! One contract holds for every `unsafe fn` below this module, which is why they do not repeat it: the CPU has NEON, and
//! the instructions of the [`Isa`] in use; weight pointers are readable for the rows and elements asked for, result
//! pointers writable for them, and activations as long as they say. [`super::MatKernel::run`] states this to the outside.
#![allow(unsafe_op_in_unsafe_fn)]

pub(super) mod attention;
mod dense;
mod format;
mod mat;

use super::KernelSet;
use super::mat::{MatCall, MatKernel};
use crate::gguf::GgmlType;
use std::arch::aarch64::*;
use std::arch::asm;

/// How 16 products of bytes become four sums of four.
pub(super) trait Isa: Copy {
    /// The sums of each four products.
    unsafe fn dot(a: int8x16_t, b: int8x16_t) -> int32x4_t;
}

/// What every aarch64 CPU has.
#[derive(Clone, Copy)]
pub(super) struct Plain;

impl Isa for Plain {
    #[inline(always)]
    unsafe fn dot(a: int8x16_t, b: int8x16_t) -> int32x4_t {
        let low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
        let high = vmull_high_s8(a, b);
        vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high))
    }
}

/// `sdot`, from ARMv8.2 on.
#[derive(Clone, Copy)]
pub(super) struct Dot;

impl Isa for Dot {
    #[inline(always)]
    unsafe fn dot(a: int8x16_t, b: int8x16_t) -> int32x4_t {
        let mut sums = vdupq_n_s32(0);
        // The intrinsic is not stable.
        asm!(
            "sdot {s:v}.4s, {a:v}.16b, {b:v}.16b",
            s = inout(vreg) sums,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
        sums
    }
}

/// Four half-precision numbers as floats. The instruction is older than half-precision arithmetic; its intrinsic is not
/// stable.
#[inline(always)]
pub(super) unsafe fn widen4(half: uint16x4_t) -> float32x4_t {
    let wide: float32x4_t;
    asm!(
        "fcvtl {w:v}.4s, {h:v}.4h",
        w = lateout(vreg) wide,
        h = in(vreg) half,
        options(pure, nomem, nostack, preserves_flags)
    );
    wide
}

/// Four floats in half precision, rounded to nearest even.
#[inline(always)]
pub(super) unsafe fn narrow4(wide: float32x4_t) -> uint16x4_t {
    let half: uint16x4_t;
    asm!(
        "fcvtn {h:v}.4h, {w:v}.4s",
        h = lateout(vreg) half,
        w = in(vreg) wide,
        options(pure, nomem, nostack, preserves_flags)
    );
    half
}

macro_rules! kernels {
    ($table:ident, $set:ident, $isa:ty, $features:literal, $suffix:literal) => {
        kernels! { @ $table, $set, $features, $suffix;
            F32 "f32" dense::mat::<dense::F32>;
            F16 "f16" dense::mat::<dense::F16>;
            BF16 "bf16" dense::mat::<dense::BF16>;
            Q4_0 "q4_0" mat::quantised::<$isa, format::Q4_0>;
            Q4_1 "q4_1" mat::quantised::<$isa, format::Q4_1>;
            Q5_0 "q5_0" mat::quantised::<$isa, format::Q5_0>;
            Q5_1 "q5_1" mat::quantised::<$isa, format::Q5_1>;
            Q8_0 "q8_0" mat::quantised::<$isa, format::Q8_0>;
            Q2_K "q2_k" mat::quantised::<$isa, format::Q2K>;
            Q3_K "q3_k" mat::quantised::<$isa, format::Q3K>;
            Q4_K "q4_k" mat::quantised::<$isa, format::Q4K>;
            Q5_K "q5_k" mat::quantised::<$isa, format::Q5K>;
            Q6_K "q6_k" mat::quantised::<$isa, format::Q6K>;
            IQ4_NL "iq4_nl" mat::quantised::<$isa, format::Iq4Nl>;
            IQ4_XS "iq4_xs" mat::quantised::<$isa, format::Iq4Xs>;
        }
    };
    (@ $table:ident, $set:ident, $features:literal, $suffix:literal;
     $($ty:ident $name:literal $run:expr;)*) => {
        pub(in crate::engine::cpu) const $table: &[MatKernel] = &[$(
            MatKernel::new(GgmlType::$ty, KernelSet::$set, concat!($name, $suffix), {
                #[target_feature(enable = $features)]
                unsafe fn run(call: &MatCall<'_>) {
                    // SAFETY: the contract of this module; the features are enabled here.
                    unsafe { $run(call) }
                }
                run
            }),
        )*];
    };
}

kernels!(NEON, Neon, Plain, "neon", "/neon");
kernels!(DOTPROD, Dotprod, Dot, "neon,dotprod", "/dotprod");
