//! Which code runs each brick: name, variant, source, tiles.

use super::bricks::ROW_GRAIN;
use super::exec::Executor;
use crate::gguf::GgmlType;
use crate::model::{Brick, Matrix, Model, Op};

/// The code that runs one brick of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelUse {
    /// Name, for example `q4_1/avx2` or `softmax attention`.
    pub name: &'static str,
    /// Kernel set it is compiled for.
    pub variant: &'static str,
    /// File with its source.
    pub source: Source,
    /// Weights `[rows, columns]` of a matrix product; of one expert where there are several.
    pub shape: Option<(usize, usize)>,
    /// Rows that a thread takes at a time at least, where rows are dealt out.
    pub tile_rows: Option<usize>,
}

/// A source file of this crate, as it was compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// Path relative to the repository.
    pub path: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! source {
    ($file:literal) => {
        Source {
            path: concat!("src/engine/cpu/", $file),
            text: include_str!($file),
        }
    };
}

impl Executor {
    /// The code of every brick, in the order of the plan.
    pub fn kernel_uses(&self, model: &Model) -> Vec<KernelUse> {
        let with_kernel = model.plan.bricks.iter().zip(&self.kernels);
        with_kernel
            .map(|(brick, kernel)| {
                let variant = kernel.map_or(self.config.kernels, |k| k.set).name();
                let plain = |name, source| KernelUse {
                    name,
                    variant,
                    source,
                    shape: None,
                    tile_rows: None,
                };
                match (weights(brick), kernel) {
                    (Some(w), Some(kernel)) => KernelUse {
                        shape: Some((w.rows, w.k)),
                        tile_rows: Some(ROW_GRAIN),
                        ..plain(kernel.name, product_source(variant, kernel.ty))
                    },
                    _ => {
                        let (name, source) = other(brick);
                        plain(name, source)
                    }
                }
            })
            .collect()
    }
}

fn weights(brick: &Brick) -> Option<&Matrix> {
    match &brick.op {
        Op::MatMul { w, .. } => Some(w),
        Op::ExpertMatMul { w, .. } => w.first(),
        _ => None,
    }
}

fn other(brick: &Brick) -> (&'static str, Source) {
    let arith = source!("float_ops/arith.rs");
    match &brick.op {
        Op::Embed { .. } => ("embedding rows", source!("bricks.rs")),
        Op::Norm { bias: None, .. } => ("rms norm", arith),
        Op::Norm { .. } => ("layer norm", arith),
        Op::QkNorm { .. } => ("rms norm of heads", arith),
        Op::Copy { .. } => ("copy", source!("bricks.rs")),
        Op::Rope { .. } => ("rotary embedding", source!("bricks.rs")),
        Op::KvWrite => ("kv cache write", source!("kv.rs")),
        Op::Attend { .. } => ("softmax attention", source!("attend.rs")),
        Op::QuantiseHeads => ("int8 activations", source!("acts.rs")),
        Op::Activate { .. } => ("gating activation", arith),
        Op::Route { .. } => ("choice of experts", source!("routing.rs")),
        Op::Dispatch { .. } => ("tokens to experts", source!("experts.rs")),
        Op::Combine { .. } => ("weighted experts", source!("experts.rs")),
        Op::Residual { .. } => ("residual add", arith),
        Op::MatMul { .. } | Op::ExpertMatMul { .. } => ("matrix product", source!("mat.rs")),
    }
}

fn product_source(variant: &str, ty: GgmlType) -> Source {
    use GgmlType as T;
    match (variant, ty) {
        ("scalar", _) => source!("scalar.rs"),
        ("neon" | "dotprod", T::F32 | T::F16 | T::BF16) => source!("neon/dense.rs"),
        ("neon" | "dotprod", _) => source!("neon/format.rs"),
        (_, T::F32 | T::F16 | T::BF16) => source!("simd/dense.rs"),
        (_, T::Q2_K | T::Q3_K | T::Q4_K | T::Q5_K | T::Q6_K) => source!("simd/kquants.rs"),
        (_, T::TQ1_0 | T::TQ2_0) => source!("simd/ternary.rs"),
        (_, T::IQ1_S | T::IQ1_M | T::IQ2_XXS | T::IQ2_XS | T::IQ2_S | T::IQ3_XXS | T::IQ3_S) => {
            source!("simd/iq.rs")
        }
        _ => source!("simd/legacy.rs"),
    }
}
