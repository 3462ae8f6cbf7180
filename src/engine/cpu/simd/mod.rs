//! Vector kernels for x86-64.
//!
//! [`isa`] holds the instructions in which AVX2 and AVX-512 differ, [`legacy`], [`kquants`], [`iq`] and
//! [`ternary`] the formats, [`gemm`] the product with many columns, [`dense`] the unquantised types.
//!
//! One contract holds for every `unsafe fn` below this module, which is why they do not repeat it:
//! the CPU has AVX2, FMA and F16C, and the instructions of the [`isa::Isa`] in use; weight pointers
//! are readable for the rows and elements asked for, result pointers writable for them, and
//! activations as long as they say. [`super::MatKernel::run`] states this to the outside.
#![allow(unsafe_op_in_unsafe_fn)]

mod dense;
mod format;
mod gemm;
mod iq;
mod isa;
mod kquants;
mod legacy;
mod ternary;

use super::KernelSet;
use super::acts::{Column, QActs};
use super::mat::{Acts, MatCall, MatKernel};
use crate::gguf::GgmlType;
use format::Format;
use isa::{Avx2, Avx512, Isa};

/// Fewer columns than this are computed one at a time even when their scales are coarse: repacking a
/// tile costs about as much as two dot products with it.
const REPACK_FROM: usize = 3;

/// Asks for the cache lines of the 256 weights that follow as far ahead as the knob says.
#[inline(always)]
unsafe fn prefetch<F: Format>(w: *const u8) {
    let bytes = F::BYTES * (256 / F::LEN);
    let now = super::prefetch::now();
    for line in 0..bytes.div_ceil(64) {
        super::prefetch::line(now, w.wrapping_add(64 * line));
    }
}

#[inline(always)]
unsafe fn quantised<I: Isa, F: Format>(call: &MatCall<'_>) {
    let Acts::Q8(acts) = call.acts else {
        return;
    };
    if !acts.is_fine() && call.cols.len() >= REPACK_FROM {
        return gemm::gemm::<I, F>(call, acts);
    }
    for row in call.rows.clone() {
        let mut col = call.cols.start;
        while col < call.cols.end {
            col += match call.cols.end - col {
                1 => dots::<F, 1>(call, acts, row, col),
                2 | 3 => dots::<F, 2>(call, acts, row, col),
                _ => dots::<F, 4>(call, acts, row, col),
            };
        }
    }
}

/// One row with `C` columns, which share its unpacking; returns `C`.
#[inline(always)]
unsafe fn dots<F: Format, const C: usize>(
    call: &MatCall<'_>,
    acts: &QActs,
    row: usize,
    col: usize,
) -> usize {
    let x: [Column; C] = std::array::from_fn(|c| acts.column(col + c));
    let y = F::dots(call.w.add(row * call.row_bytes), x, call.k);
    for (c, y) in y.into_iter().enumerate() {
        *call.y.add((col + c) * call.ldy + row) = y;
    }
    C
}

macro_rules! kernels {
    ($table:ident, $set:ident, $isa:ty, $features:literal, $suffix:literal) => {
        kernels! { @ $table, $set, $features, $suffix;
            F32 "f32" dense::mat::<dense::F32>;
            F16 "f16" dense::mat::<dense::F16>;
            BF16 "bf16" dense::mat::<dense::BF16>;
            Q4_0 "q4_0" quantised::<$isa, legacy::Q4_0>;
            Q4_1 "q4_1" quantised::<$isa, legacy::Q4_1>;
            Q5_0 "q5_0" quantised::<$isa, legacy::Q5_0>;
            Q5_1 "q5_1" quantised::<$isa, legacy::Q5_1>;
            Q8_0 "q8_0" quantised::<$isa, legacy::Q8_0>;
            Q2_K "q2_k" quantised::<$isa, kquants::Q2K>;
            Q3_K "q3_k" quantised::<$isa, kquants::Q3K>;
            Q4_K "q4_k" quantised::<$isa, kquants::Q4K>;
            Q5_K "q5_k" quantised::<$isa, kquants::Q5K>;
            Q6_K "q6_k" quantised::<$isa, kquants::Q6K>;
            IQ1_S "iq1_s" quantised::<$isa, iq::Iq1S>;
            IQ1_M "iq1_m" quantised::<$isa, iq::Iq1M>;
            IQ2_XXS "iq2_xxs" quantised::<$isa, iq::Iq2Xxs>;
            IQ2_XS "iq2_xs" quantised::<$isa, iq::Iq2Xs>;
            IQ2_S "iq2_s" quantised::<$isa, iq::Iq2S>;
            IQ3_XXS "iq3_xxs" quantised::<$isa, iq::Iq3Xxs>;
            IQ3_S "iq3_s" quantised::<$isa, iq::Iq3S>;
            IQ4_NL "iq4_nl" quantised::<$isa, legacy::Iq4Nl>;
            IQ4_XS "iq4_xs" quantised::<$isa, legacy::Iq4Xs>;
            TQ1_0 "tq1_0" quantised::<$isa, ternary::Tq1>;
            TQ2_0 "tq2_0" quantised::<$isa, ternary::Tq2>;
            MXFP4 "mxfp4" quantised::<$isa, legacy::Mxfp4>;
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

kernels!(AVX2, Avx2, Avx2, "avx2,fma,f16c", "/avx2");
kernels!(
    AVX512,
    Avx512,
    Avx512,
    "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni",
    "/avx512"
);
// The AVX-512 paths with `vpdpbusd` emulated, for machines that lack it.
#[cfg(test)]
kernels!(
    EMULATED,
    Avx512,
    isa::Emulated,
    "avx2,fma,f16c",
    "/emulated"
);

#[cfg(test)]
mod tests;
