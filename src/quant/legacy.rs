//! The 32-element formats: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.
//!
//! | type | bytes | layout |
//! |---|---|---|
//! | Q4_0 | 18 | `d: f16`, 16 bytes of nibbles; x = d (q - 8) |
//! | Q4_1 | 20 | `d: f16`, `m: f16`, nibbles; x = d q + m |
//! | Q5_0 | 22 | `d: f16`, 32 high bits, nibbles; x = d (q - 16) |
//! | Q5_1 | 24 | `d: f16`, `m: f16`, 32 high bits, nibbles; x = d q + m |
//! | Q8_0 | 34 | `d: f16`, 32 signed bytes; x = d q |
//!
//! Low nibbles are elements 0..16 and high nibbles elements 16..32; high bit i belongs to element i.

use super::{QuantError, check_length, half_at};
use crate::gguf::GgmlType;
use half::f16;

fn nibbles(packed: &[u8], each: impl Fn(usize, u8) -> f32, out: &mut [f32; 32]) {
    for (i, byte) in packed.iter().enumerate() {
        out[i] = each(i, byte & 15);
        out[i + 16] = each(i + 16, byte >> 4);
    }
}

fn high_bits(b: &[u8]) -> u32 {
    u32::from_le_bytes([b[0], b[1], b[2], b[3]])
}

fn fifth(bits: u32, i: usize, q: u8) -> i32 {
    i32::from(q) | (((bits >> i) & 1) << 4) as i32
}

pub(super) fn q4_0(b: &[u8; 18], out: &mut [f32; 32]) {
    let d = half_at(b, 0);
    nibbles(&b[2..], |_, q| d * (f32::from(q) - 8.0), out);
}

pub(super) fn q4_1(b: &[u8; 20], out: &mut [f32; 32]) {
    let (d, m) = (half_at(b, 0), half_at(b, 2));
    nibbles(&b[4..], |_, q| d * f32::from(q) + m, out);
}

pub(super) fn q5_0(b: &[u8; 22], out: &mut [f32; 32]) {
    let (d, bits) = (half_at(b, 0), high_bits(&b[2..]));
    nibbles(&b[6..], |i, q| d * (fifth(bits, i, q) - 16) as f32, out);
}

pub(super) fn q5_1(b: &[u8; 24], out: &mut [f32; 32]) {
    let (d, m, bits) = (half_at(b, 0), half_at(b, 2), high_bits(&b[4..]));
    nibbles(&b[8..], |i, q| d * fifth(bits, i, q) as f32 + m, out);
}

pub(super) fn q8_0(b: &[u8; 34], out: &mut [f32; 32]) {
    let d = half_at(b, 0);
    for (q, out) in b[2..].iter().zip(out) {
        *out = d * f32::from(*q as i8);
    }
}

/// Packs `src` as Q8_0: the largest magnitude of a block becomes 127.
///
/// # Errors
/// [`QuantError::Length`] unless `dst` has room for exactly `src.len()` elements in whole blocks.
pub fn quantise_q8_0(src: &[f32], dst: &mut [u8]) -> Result<(), QuantError> {
    pack(GgmlType::Q8_0, src, dst, |x, out: &mut [u8; 34]| {
        let d = largest(x).abs() / 127.0;
        put_half(out, 0, d);
        for (q, x) in out[2..].iter_mut().zip(x) {
            *q = (x * inverse(d)).round().clamp(-127.0, 127.0) as i8 as u8;
        }
    })
}

/// Packs `src` as Q4_0: the element of largest magnitude becomes -8.
///
/// # Errors
/// As [`quantise_q8_0`].
pub fn quantise_q4_0(src: &[f32], dst: &mut [u8]) -> Result<(), QuantError> {
    pack(GgmlType::Q4_0, src, dst, |x, out: &mut [u8; 18]| {
        let d = largest(x) / -8.0;
        put_half(out, 0, d);
        let q = levels(x, 0.0, d, 8.0, 15.0);
        put_nibbles(&mut out[2..], &q);
    })
}

/// Packs `src` as Q4_1: the smallest element becomes 0 and the largest 15.
///
/// # Errors
/// As [`quantise_q8_0`].
pub fn quantise_q4_1(src: &[f32], dst: &mut [u8]) -> Result<(), QuantError> {
    pack(GgmlType::Q4_1, src, dst, |x, out: &mut [u8; 20]| {
        let (d, m) = spread(x, 15.0);
        put_half(out, 0, d);
        put_half(out, 2, m);
        let q = levels(x, m, d, 0.0, 15.0);
        put_nibbles(&mut out[4..], &q);
    })
}

/// Packs `src` as Q5_0: the element of largest magnitude becomes -16.
///
/// # Errors
/// As [`quantise_q8_0`].
pub fn quantise_q5_0(src: &[f32], dst: &mut [u8]) -> Result<(), QuantError> {
    pack(GgmlType::Q5_0, src, dst, |x, out: &mut [u8; 22]| {
        let d = largest(x) / -16.0;
        put_half(out, 0, d);
        let q = levels(x, 0.0, d, 16.0, 31.0);
        put_high_bits(&mut out[2..6], &q);
        put_nibbles(&mut out[6..], &q);
    })
}

/// Packs `src` as Q5_1: the smallest element becomes 0 and the largest 31.
///
/// # Errors
/// As [`quantise_q8_0`].
pub fn quantise_q5_1(src: &[f32], dst: &mut [u8]) -> Result<(), QuantError> {
    pack(GgmlType::Q5_1, src, dst, |x, out: &mut [u8; 24]| {
        let (d, m) = spread(x, 31.0);
        put_half(out, 0, d);
        put_half(out, 2, m);
        let q = levels(x, m, d, 0.0, 31.0);
        put_high_bits(&mut out[4..8], &q);
        put_nibbles(&mut out[8..], &q);
    })
}

fn pack<const B: usize>(
    ty: GgmlType,
    src: &[f32],
    dst: &mut [u8],
    block: impl Fn(&[f32; 32], &mut [u8; B]),
) -> Result<(), QuantError> {
    check_length(ty, dst.len(), src.len())?;
    let (xs, _) = src.as_chunks::<32>();
    let (outs, _) = dst.as_chunks_mut::<B>();
    for (x, out) in xs.iter().zip(outs) {
        block(x, out);
    }
    Ok(())
}

fn largest(x: &[f32; 32]) -> f32 {
    x.iter()
        .fold(0.0, |m: f32, v| if v.abs() > m.abs() { *v } else { m })
}

fn spread(x: &[f32; 32], steps: f32) -> (f32, f32) {
    let low = x.iter().copied().fold(f32::INFINITY, f32::min);
    let high = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    ((high - low) / steps, low)
}

fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

fn levels(x: &[f32; 32], low: f32, d: f32, zero: f32, top: f32) -> [u8; 32] {
    let id = inverse(d);
    x.map(|v| ((v - low) * id + zero).round().clamp(0.0, top) as u8)
}

fn put_half(out: &mut [u8], at: usize, v: f32) {
    out[at..at + 2].copy_from_slice(&f16::from_f32(v).to_le_bytes());
}

fn put_nibbles(out: &mut [u8], q: &[u8; 32]) {
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = (q[i] & 15) | ((q[i + 16] & 15) << 4);
    }
}

fn put_high_bits(out: &mut [u8], q: &[u8; 32]) {
    let bits = (0..32).fold(0u32, |bits, i| bits | (u32::from(q[i] >> 4) << i));
    out.copy_from_slice(&bits.to_le_bytes());
}
