//! Portable kernels: expand a block with the reference routine, multiply in floats.

use super::KernelSet;
use super::acts::LANE;
use super::mat::{Acts, MatCall, MatKernel};
use crate::gguf::GgmlType;
use crate::quant::dequantise_row;

macro_rules! kernels {
    ($($ty:ident $name:literal)*) => {
        pub(super) const KERNELS: &[MatKernel] = &[$(
            MatKernel::new(GgmlType::$ty, KernelSet::Scalar, concat!($name, "/scalar"), {
                unsafe fn run(call: &MatCall<'_>) {
                    // SAFETY: same contract.
                    unsafe { mat(GgmlType::$ty, call) }
                }
                run
            }),
        )*];
    };
}

kernels! {
    F32 "f32" F16 "f16" BF16 "bf16"
    Q4_0 "q4_0" Q4_1 "q4_1" Q5_0 "q5_0" Q5_1 "q5_1" Q8_0 "q8_0"
    Q2_K "q2_k" Q3_K "q3_k" Q4_K "q4_k" Q5_K "q5_k" Q6_K "q6_k"
    IQ1_S "iq1_s" IQ1_M "iq1_m" IQ2_XXS "iq2_xxs" IQ2_XS "iq2_xs" IQ2_S "iq2_s"
    IQ3_XXS "iq3_xxs" IQ3_S "iq3_s" IQ4_NL "iq4_nl" IQ4_XS "iq4_xs"
    TQ1_0 "tq1_0" TQ2_0 "tq2_0" MXFP4 "mxfp4"
}

/// Most elements expanded at a time.
const CHUNK: usize = 256;

/// # Safety
/// As [`MatKernel::run`], activations checked.
unsafe fn mat(ty: GgmlType, call: &MatCall<'_>) {
    let mut buffer = [0.0f32; CHUNK];
    let mut values = [0.0f32; CHUNK];
    for row in call.rows.clone() {
        for col in call.cols.clone() {
            // SAFETY: the caller vouches for `y`.
            unsafe { *call.y.add(col * call.ldy + row) = 0.0 };
        }
        for start in (0..call.k).step_by(CHUNK) {
            let n = CHUNK.min(call.k - start);
            let bytes = n / ty.block_len() * ty.block_bytes();
            let at = row * call.row_bytes + start / ty.block_len() * ty.block_bytes();
            // SAFETY: the caller vouches for the weights of every row.
            let src = unsafe { std::slice::from_raw_parts(call.w.add(at), bytes) };
            let w = &mut buffer[..n];
            if dequantise_row(ty, src, w).is_err() {
                // The table above holds supported types only and `run` checked whole blocks.
                unreachable!("{ty} blocks of a checked length");
            }
            for col in call.cols.clone() {
                let sum = match call.acts {
                    Acts::F32 { x, stride } => dot(w, &x[col * stride + start..][..n]),
                    Acts::Q8(a) => {
                        // SAFETY: `start + n` lies in the column, and nobody writes to it meanwhile.
                        let (qs, ds) = unsafe {
                            let c = a.column(col).offset(start);
                            let qs = std::slice::from_raw_parts(c.q, n);
                            (qs, std::slice::from_raw_parts(c.d, n / LANE))
                        };
                        let x = &mut values[..n];
                        let lanes = x.as_chunks_mut::<LANE>().0.iter_mut();
                        for ((x, q), d) in lanes.zip(qs.as_chunks::<LANE>().0).zip(ds) {
                            *x = q.map(|q| d * f32::from(q));
                        }
                        dot(w, x)
                    }
                };
                // SAFETY: as above.
                unsafe { *call.y.add(col * call.ldy + row) += sum };
            }
        }
    }
}

/// Eight running sums, so that the compiler may use whatever vectors the target has.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a8, a_rest) = a.as_chunks::<8>();
    let (b8, b_rest) = b.as_chunks::<8>();
    let mut sums = [0.0f32; 8];
    for (a, b) in a8.iter().zip(b8) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}
