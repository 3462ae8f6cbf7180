//! Everything of a forward pass that is not a product with weights, one table a kernel set.

mod arith;
mod portable;
#[cfg(test)]
mod tests;

use super::KernelSet;
use crate::engine::tensor_stats::Moments;
use half::f16;

/// Where a quantising operation writes: int8 forms of whole blocks of 32 elements.
///
/// The value of an element is `d * q`, and `d` is `unit * step`: kernels that multiply integers with
/// the step need one float for 32 elements only.
#[derive(Debug)]
pub struct Quantised<'a> {
    /// The integers, one an element.
    pub q: &'a mut [i8],
    /// The scales, one for 4 elements.
    pub d: &'a mut [f32],
    /// The scales in units, 0 to 16384: one for 2 elements, so that they pair up with 16-bit products.
    pub step: &'a mut [i16],
    /// The units, one for 32 elements.
    pub unit: &'a mut [f32],
    /// The sums of each 32 values.
    pub s32: &'a mut [f32],
    /// The sums of each 16 values.
    pub s16: &'a mut [f32],
}

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*) => {
        /// Vector operations of one kernel set.
        ///
        /// All of them panic when slices that belong together differ in length.
        #[derive(Debug, Clone, Copy)]
        pub struct FloatOps {
            /// The kernel set it belongs to.
            pub set: KernelSet,
            $($(#[$doc])* pub $name: fn($($arg: $ty),*) $(-> $ret)?,)*
        }

        static SCALAR: FloatOps = FloatOps {
            set: KernelSet::Scalar,
            $($name: {
                fn run($($arg: $ty),*) $(-> $ret)? {
                    portable::$name::<arith::Plain>($($arg),*)
                }
                run
            },)*
        };

        ops! { @ "x86_64", Fused, AVX2, Avx2, "avx2,fma,f16c"; $($name($($arg: $ty),*) $(-> $ret)?;)* }
        ops! { @ "x86_64", Fused, AVX512, Avx512, "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq";
            $($name($($arg: $ty),*) $(-> $ret)?;)* }
        ops! { @ "aarch64", Neon, NEON, Neon, "neon"; $($name($($arg: $ty),*) $(-> $ret)?;)* }
        ops! { @ "aarch64", Neon, DOTPROD, Dotprod, "neon"; $($name($($arg: $ty),*) $(-> $ret)?;)* }
    };
    (@ $arch:literal, $arith:ident, $table:ident, $set:ident, $features:literal;
     $($name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*) => {
        #[cfg(target_arch = $arch)]
        static $table: FloatOps = FloatOps {
            set: KernelSet::$set,
            $($name: {
                fn run($($arg: $ty),*) $(-> $ret)? {
                    #[target_feature(enable = $features)]
                    fn inner($($arg: $ty),*) $(-> $ret)? {
                        portable::$name::<arith::$arith>($($arg),*)
                    }
                    // SAFETY: the table is only reachable through `float_ops`, which asks the CPU.
                    unsafe { inner($($arg),*) }
                }
                run
            },)*
        };
    };
}

ops! {
    /// `out = x / sqrt(mean(x^2) + eps) * w`; the mean is taken in f64.
    rms_norm(x: &[f32], w: &[f32], eps: f32, out: &mut [f32]);
    /// `out = (x - mean) / sqrt(var + eps) * w + b`; mean and variance are taken in f64.
    layer_norm(x: &[f32], w: &[f32], b: &[f32], eps: f32, out: &mut [f32]);
    /// int8 with a scale for 4 elements. `|x - d q| <= d / 2`. A block of 32 that holds a NaN or an
    /// infinity becomes zeros with scales, unit and sums NaN, so that whatever is computed from it is
    /// NaN too.
    quantise4(x: &[f32], out: Quantised<'_>);
    /// As `quantise4`, but 16 elements share a scale, which stands four times in `d`.
    quantise16(x: &[f32], out: Quantised<'_>);
    /// Sum of products.
    dot_f16(x: &[f32], y: &[f16]) -> f32;
    /// `acc += a * x`.
    axpy_f16(a: f32, x: &[f16], acc: &mut [f32]);
    /// Sum of products.
    dot_f32(x: &[f32], y: &[f32]) -> f32;
    /// `acc += a * x`.
    axpy_f32(a: f32, x: &[f32], acc: &mut [f32]);
    /// Rounds to half precision, to nearest even.
    store_f16(x: &[f32], out: &mut [f16]);
    /// `out = gate / (1 + exp(-gate)) * up`.
    silu_mul(gate: &[f32], up: &[f32], out: &mut [f32]);
    /// `out = gelu(gate) * up`, the tanh form of gelu.
    gelu_tanh_mul(gate: &[f32], up: &[f32], out: &mut [f32]);
    /// The tanh form of gelu, in place.
    gelu_tanh(x: &mut [f32]);
    /// `exp(x - max)` over its sum, in place. An empty slice stays empty; -inf becomes 0; where the
    /// largest is not finite the result is NaN.
    softmax(x: &mut [f32]);
    /// Sum of `exp(x - max)`, taken in f64.
    exp_sum(x: &[f32], max: f32) -> f64;
    /// `x += y`.
    add(x: &mut [f32], y: &[f32]);
    /// `x *= f`.
    scale(x: &mut [f32], f: f32);
    /// `x = cap * tanh(x / cap)`.
    softcap(x: &mut [f32], cap: f32);
    /// The largest element; NaN is passed over; -inf when there is none.
    max(x: &[f32]) -> f32;
    /// The first place of the largest element; NaN is passed over; 0 when there is none.
    argmax(x: &[f32]) -> usize;
    /// Counts, extremes, mean and squared deviations of the finite elements, in f64 and two passes.
    moments(x: &[f32]) -> Moments;
    /// What a query's weights come to. The largest of at least `threshold` go to `positions` (their indexes) and `weights`,
    /// largest first, of equals the first.
    weights(p: &[f32], threshold: f32, positions: &mut [u32], weights: &mut [f32]) -> WeightSums;
}

/// What the weights of a query come to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WeightSums {
    /// Sum of the weights.
    pub sum: f64,
    /// Sum of `p ln p`.
    pub p_ln_p: f64,
    /// Weights written to the top.
    pub n_top: usize,
}

/// The operations of a kernel set.
///
/// # Panics
/// When this machine cannot run the set: [`KernelSet::is_available`].
pub fn float_ops(set: KernelSet) -> &'static FloatOps {
    assert!(set.is_available(), "this machine cannot run {set}");
    match set {
        #[cfg(target_arch = "x86_64")]
        KernelSet::Avx2 => &AVX2,
        #[cfg(target_arch = "x86_64")]
        KernelSet::Avx512 => &AVX512,
        #[cfg(target_arch = "aarch64")]
        KernelSet::Neon => &NEON,
        #[cfg(target_arch = "aarch64")]
        KernelSet::Dotprod => &DOTPROD,
        _ => &SCALAR,
    }
}
