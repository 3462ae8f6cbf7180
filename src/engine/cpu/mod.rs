//! CPU kernels: portable scalar; AVX2 and AVX-512 on x86-64; NEON, with and without dot products, on aarch64.
//!
//! Weights stay as stored in the GGUF file. Activations for quantised weights are int8 with a
//! scale for 4 or 16 elements ([`QActs`]); for F32, F16 and BF16 weights they are plain floats.
//! Every format is written once over a small instruction trait (`simd`) and compiled for each
//! vector set; [`crate::quant::dequantise_row`] is what all of them are tested against.
#![allow(unsafe_code)]

mod activations;
mod acts;
mod attend;
mod attention;
pub mod binding;
mod bricks;
mod buffers;
pub mod exec;
mod experts;
#[cfg(test)]
pub(crate) mod fault;
mod float_ops;
mod inspect;
pub mod kernel_use;
pub mod kv;
mod mat;
#[cfg(target_arch = "aarch64")]
mod neon;
mod pages;
pub mod peak;
pub mod pool;
pub mod prefetch;
mod probe;
mod refill;
mod routing;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod simd;
mod tap;
mod trial;
mod watch;

pub use acts::QActs;
pub use buffers::share;
pub use float_ops::{FloatOps, float_ops};
pub use mat::{Acts, Input, MatCall, MatKernel, mat_kernel};
pub(in crate::engine) use probe::Attention as AttentionStore;
pub use trial::rejected as rejected_kernels;

use std::str::FromStr;

/// A family of kernels compiled for one level of the instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelSet {
    /// Portable code; runs on every machine.
    Scalar,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, VL and DQ with VNNI.
    Avx512,
    /// NEON, which every aarch64 CPU has.
    Neon,
    /// NEON with the dot product instruction (ARMv8.2 and later).
    Dotprod,
}

/// A kernel set that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernelSetError {
    /// The name is not that of a kernel set.
    #[error("no kernel set is called `{name}`; this machine can run {}", list())]
    Unknown {
        /// The name as given.
        name: String,
    },
    /// The machine lacks the instructions.
    #[error(
        "this machine lacks the instructions of kernel set {set}; it can run {}",
        list()
    )]
    Unavailable {
        /// The kernel set that was asked for.
        set: KernelSet,
    },
}

fn list() -> String {
    let names: Vec<_> = KernelSet::available().iter().map(|s| s.name()).collect();
    names.join(", ")
}

impl KernelSet {
    /// Every kernel set, those of one architecture slowest first.
    pub const ALL: [KernelSet; 5] = [
        KernelSet::Scalar,
        KernelSet::Avx2,
        KernelSet::Avx512,
        KernelSet::Neon,
        KernelSet::Dotprod,
    ];

    /// `scalar`, `avx2`, `avx512`, `neon` or `dotprod`.
    pub fn name(self) -> &'static str {
        match self {
            KernelSet::Scalar => "scalar",
            KernelSet::Avx2 => "avx2",
            KernelSet::Avx512 => "avx512",
            KernelSet::Neon => "neon",
            KernelSet::Dotprod => "dotprod",
        }
    }

    /// Whether this machine has the instructions, asked of the CPU at run time.
    pub fn is_available(self) -> bool {
        match self {
            KernelSet::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            KernelSet::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            KernelSet::Avx512 => {
                KernelSet::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(target_arch = "aarch64")]
            KernelSet::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            #[cfg(target_arch = "aarch64")]
            KernelSet::Dotprod => {
                KernelSet::Neon.is_available() && std::arch::is_aarch64_feature_detected!("dotprod")
            }
            #[allow(unreachable_patterns)]
            _ => false,
        }
    }

    /// The kernel sets this machine can run, slowest first.
    pub fn available() -> Vec<KernelSet> {
        let mut sets = Self::ALL.to_vec();
        sets.retain(|s| s.is_available());
        sets
    }

    /// The fastest kernel set this machine can run; one that computes wrongly here is passed over.
    pub fn best() -> KernelSet {
        trial::best()
    }
}

impl std::fmt::Display for KernelSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for KernelSet {
    type Err = KernelSetError;

    /// Accepts the name of a kernel set that this machine can run.
    fn from_str(name: &str) -> Result<Self, KernelSetError> {
        match Self::ALL.into_iter().find(|s| s.name() == name) {
            Some(set) if set.is_available() => Ok(set),
            Some(set) => Err(KernelSetError::Unavailable { set }),
            None => Err(KernelSetError::Unknown { name: name.into() }),
        }
    }
}

#[cfg(test)]
mod tests;
