//! Weights times activations: one kernel a weight type and kernel set.

use super::acts::QActs;
use super::{KernelSet, scalar};
use crate::gguf::GgmlType;
use std::ops::Range;

/// What a kernel multiplies the weights with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Input {
    /// int8 activations: [`Acts::Q8`].
    Q8,
    /// Plain floats: [`Acts::F32`].
    F32,
}

/// Activations, one column a token.
#[derive(Debug, Clone, Copy)]
pub enum Acts<'a> {
    /// int8 columns.
    Q8(&'a QActs),
    /// Float columns: element `i` of column `c` is `x[c * stride + i]`.
    F32 {
        /// All columns.
        x: &'a [f32],
        /// Floats from one column to the next.
        stride: usize,
    },
}

/// One product: `y[col * ldy + row] = sum over i of w[row][i] * x[col][i]`.
#[derive(Debug, Clone)]
pub struct MatCall<'a> {
    /// First byte of row 0 of the weights, as stored in the file; any alignment.
    pub w: *const u8,
    /// Bytes from one row to the next.
    pub row_bytes: usize,
    /// Elements in a row: whole blocks of the weight type.
    pub k: usize,
    /// Rows to compute.
    pub rows: Range<usize>,
    /// Activations.
    pub acts: Acts<'a>,
    /// Columns to compute.
    pub cols: Range<usize>,
    /// Where the result of row 0, column 0 goes.
    pub y: *mut f32,
    /// Floats from one column of results to the next.
    pub ldy: usize,
}

pub(super) type MatFn = unsafe fn(&MatCall<'_>);

/// A routine that multiplies weights of one type.
#[derive(Debug, Clone, Copy)]
pub struct MatKernel {
    /// The weight type.
    pub ty: GgmlType,
    /// The kernel set it belongs to.
    pub set: KernelSet,
    /// Its name in reports, for example `q4_k/avx2`.
    pub name: &'static str,
    /// The activations it wants.
    pub input: Input,
    f: MatFn,
}

impl MatKernel {
    pub(super) const fn new(ty: GgmlType, set: KernelSet, name: &'static str, f: MatFn) -> Self {
        Self {
            ty,
            set,
            name,
            input: input(ty),
            f,
        }
    }

    /// Computes the rows and columns of `call`; few columns and many take
    /// different paths inside.
    ///
    /// # Panics
    /// When `k` is not whole blocks of the type, or the activations are of the wrong kind or too
    /// short for `k` and `cols`.
    ///
    /// # Safety
    /// - The machine must have the instructions of `self.set`.
    /// - `call.w` must be readable for every row in `call.rows`: `k` elements from `row * row_bytes`.
    /// - `call.y` must be writable at `col * ldy + row` for every row and column of the call, and
    ///   no other thread may touch those elements meanwhile. Threads may share `y` with disjoint rows.
    pub unsafe fn run(&self, call: &MatCall<'_>) {
        if call.rows.is_empty() || call.cols.is_empty() {
            return;
        }
        let k = call.k;
        assert!(
            k.is_multiple_of(self.ty.block_len()),
            "{k} elements are not whole {} blocks",
            self.ty
        );
        match (self.input, call.acts) {
            (Input::Q8, Acts::Q8(a)) => {
                assert!(a.k() == k && call.cols.end <= a.cols(), "activations");
            }
            (Input::F32, Acts::F32 { x, stride }) => {
                let last = (call.cols.end - 1).checked_mul(stride);
                let end = last.and_then(|l| l.checked_add(k));
                assert!(end.is_some_and(|e| e <= x.len()), "activations");
            }
            _ => panic!("kernel {} wants {:?} activations", self.name, self.input),
        }
        // SAFETY: the caller vouches for instructions, weights and results; the activations were
        // checked above.
        unsafe { (self.f)(call) }
    }
}

const fn input(ty: GgmlType) -> Input {
    match ty {
        GgmlType::F32 | GgmlType::F16 | GgmlType::BF16 => Input::F32,
        _ => Input::Q8,
    }
}

/// The kernel of `set` for weights of type `ty`; `None` when the type is not one that
/// [`crate::quant::is_supported`] names, or the set does not exist on this architecture.
///
/// Whether the machine can run the set is a separate question: [`KernelSet::is_available`].
pub fn mat_kernel(set: KernelSet, ty: GgmlType) -> Option<MatKernel> {
    let table: &[MatKernel] = match set {
        KernelSet::Scalar => scalar::KERNELS,
        #[cfg(target_arch = "x86_64")]
        KernelSet::Avx2 => super::simd::AVX2,
        #[cfg(target_arch = "x86_64")]
        KernelSet::Avx512 => super::simd::AVX512,
        #[cfg(target_arch = "aarch64")]
        KernelSet::Neon => super::neon::NEON,
        #[cfg(target_arch = "aarch64")]
        KernelSet::Dotprod => super::neon::DOTPROD,
        #[allow(unreachable_patterns)]
        _ => &[],
    };
    let found = table.iter().find(|k| k.ty == ty);
    #[cfg(target_arch = "aarch64")]
    // Rare types have no vector form there.
    let found = found.or_else(|| {
        let mut portable = scalar::KERNELS.iter().filter(|_| !table.is_empty());
        portable.find(|k| k.ty == ty)
    });
    found.copied()
}
