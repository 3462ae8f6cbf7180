//! Block layouts of quantised tensors: reference dequantise and quantise, one scalar routine a type.
//!
//! These routines are the definition that every fast kernel in [`crate::engine::cpu`] is tested
//! against, so they are written to be read, not to be quick. Layouts follow the GGML block
//! formats of the GGUF specification; each file names its blocks byte by byte.

pub(crate) mod grids;
mod iq1;
mod iq2;
mod iq3;
mod iq4;
mod kquants;
mod legacy;
mod mxfp4;
mod ternary;

pub(crate) use iq4::VALUES as IQ4_VALUES;
pub use legacy::{quantise_q4_0, quantise_q4_1, quantise_q5_0, quantise_q5_1, quantise_q8_0};
#[cfg(target_arch = "x86_64")]
pub(crate) use mxfp4::{VALUES as MXFP4_VALUES, half_scale as mxfp4_half_scale};

use crate::gguf::GgmlType;
use half::{bf16, f16};

/// What a quantise or dequantise call was given that it cannot use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantError {
    /// No routine reads this element type.
    #[error(
        "tensors of type {ty} cannot be read; use a file whose tensors are one of {}",
        names(supported())
    )]
    Unsupported {
        /// The type that was asked for.
        ty: GgmlType,
    },
    /// The byte slice and the float slice do not describe the same number of elements.
    #[error(
        "{elements} elements of {ty} do not fit {bytes} bytes; blocks are {} elements in {} bytes",
        ty.block_len(),
        ty.block_bytes()
    )]
    Length {
        /// The element type.
        ty: GgmlType,
        /// Bytes given.
        bytes: usize,
        /// Elements given.
        elements: usize,
    },
}

const SUPPORTED: &[GgmlType] = &[
    GgmlType::F32,
    GgmlType::F16,
    GgmlType::BF16,
    GgmlType::Q4_0,
    GgmlType::Q4_1,
    GgmlType::Q5_0,
    GgmlType::Q5_1,
    GgmlType::Q8_0,
    GgmlType::Q2_K,
    GgmlType::Q3_K,
    GgmlType::Q4_K,
    GgmlType::Q5_K,
    GgmlType::Q6_K,
    GgmlType::IQ1_S,
    GgmlType::IQ1_M,
    GgmlType::IQ2_XXS,
    GgmlType::IQ2_XS,
    GgmlType::IQ2_S,
    GgmlType::IQ3_XXS,
    GgmlType::IQ3_S,
    GgmlType::IQ4_NL,
    GgmlType::IQ4_XS,
    GgmlType::TQ1_0,
    GgmlType::TQ2_0,
    GgmlType::MXFP4,
];

/// Every element type that [`dequantise_row`] reads.
pub fn supported() -> &'static [GgmlType] {
    SUPPORTED
}

/// Whether [`dequantise_row`] reads this element type.
pub fn is_supported(ty: GgmlType) -> bool {
    SUPPORTED.contains(&ty)
}

fn names(types: &[GgmlType]) -> String {
    let names: Vec<_> = types.iter().map(|t| t.name()).collect();
    names.join(", ")
}

/// Expands `src`, as stored in a GGUF file, into `dst.len()` floats.
///
/// # Errors
/// [`QuantError::Unsupported`] for a type outside [`supported`]; [`QuantError::Length`] unless
/// `src.len()` is exactly `ty.bytes_for(dst.len())`.
pub fn dequantise_row(ty: GgmlType, src: &[u8], dst: &mut [f32]) -> Result<(), QuantError> {
    if !is_supported(ty) {
        return Err(QuantError::Unsupported { ty });
    }
    check_length(ty, src.len(), dst.len())?;
    match ty {
        GgmlType::F32 => words(src, dst, f32::from_le_bytes),
        GgmlType::F16 => words(src, dst, |b| f16::from_le_bytes(b).to_f32()),
        GgmlType::BF16 => words(src, dst, |b| bf16::from_le_bytes(b).to_f32()),
        GgmlType::Q4_0 => blocks(src, dst, legacy::q4_0),
        GgmlType::Q4_1 => blocks(src, dst, legacy::q4_1),
        GgmlType::Q5_0 => blocks(src, dst, legacy::q5_0),
        GgmlType::Q5_1 => blocks(src, dst, legacy::q5_1),
        GgmlType::Q8_0 => blocks(src, dst, legacy::q8_0),
        GgmlType::Q2_K => blocks(src, dst, kquants::q2_k),
        GgmlType::Q3_K => blocks(src, dst, kquants::q3_k),
        GgmlType::Q4_K => blocks(src, dst, kquants::q4_k),
        GgmlType::Q5_K => blocks(src, dst, kquants::q5_k),
        GgmlType::Q6_K => blocks(src, dst, kquants::q6_k),
        GgmlType::IQ1_S => blocks(src, dst, iq1::iq1_s),
        GgmlType::IQ1_M => blocks(src, dst, iq1::iq1_m),
        GgmlType::IQ2_XXS => blocks(src, dst, iq2::iq2_xxs),
        GgmlType::IQ2_XS => blocks(src, dst, iq2::iq2_xs),
        GgmlType::IQ2_S => blocks(src, dst, iq2::iq2_s),
        GgmlType::IQ3_XXS => blocks(src, dst, iq3::iq3_xxs),
        GgmlType::IQ3_S => blocks(src, dst, iq3::iq3_s),
        GgmlType::IQ4_NL => blocks(src, dst, iq4::iq4_nl),
        GgmlType::IQ4_XS => blocks(src, dst, iq4::iq4_xs),
        GgmlType::TQ1_0 => blocks(src, dst, ternary::tq1_0),
        GgmlType::TQ2_0 => blocks(src, dst, ternary::tq2_0),
        GgmlType::MXFP4 => blocks(src, dst, mxfp4::mxfp4),
        _ => return Err(QuantError::Unsupported { ty }),
    }
    Ok(())
}

fn check_length(ty: GgmlType, bytes: usize, elements: usize) -> Result<(), QuantError> {
    if ty.bytes_for(elements as u64) == Some(bytes as u64) {
        Ok(())
    } else {
        Err(QuantError::Length {
            ty,
            bytes,
            elements,
        })
    }
}

fn words<const B: usize>(src: &[u8], dst: &mut [f32], read: impl Fn([u8; B]) -> f32) {
    let (words, _) = src.as_chunks::<B>();
    for (word, out) in words.iter().zip(dst) {
        *out = read(*word);
    }
}

fn blocks<const B: usize, const N: usize>(
    src: &[u8],
    dst: &mut [f32],
    expand: impl Fn(&[u8; B], &mut [f32; N]),
) {
    let (blocks, _) = src.as_chunks::<B>();
    let (outs, _) = dst.as_chunks_mut::<N>();
    for (block, out) in blocks.iter().zip(outs) {
        expand(block, out);
    }
}

/// The little-endian half-precision number at byte `at` of a block.
pub(crate) fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from(u16_at(block, at)) | u32::from(u16_at(block, at + 2)) << 16
}

#[cfg(test)]
mod tests;
