//! MXFP4 of the OCP Microscaling specification 1.0: 32 elements in 17 bytes.
//!
//! Byte 0 is the exponent `e` of the shared scale, 2^(e - 127); 16 bytes of nibbles follow, low ones
//! for elements 0..16 and high ones for elements 16..32. A nibble is a 4-bit float (E2M1); [`VALUES`]
//! holds them doubled, as integers, so the scale here is half of the stored one. The specification
//! makes `e` = 255 a NaN; like llama.cpp we read it as the next power of two.

/// Twice the value that each nibble stands for.
pub(crate) const VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// 2^(e - 128): half the scale whose exponent is stored as `e`.
pub(crate) fn half_scale(e: u8) -> f32 {
    // The two smallest are subnormal.
    f32::from_bits(match e {
        0 | 1 => 0x0020_0000 << e,
        _ => (u32::from(e) - 1) << 23,
    })
}

pub(super) fn mxfp4(b: &[u8; 17], out: &mut [f32; 32]) {
    let d = half_scale(b[0]);
    for (i, byte) in b[1..].iter().enumerate() {
        out[i] = d * f32::from(VALUES[usize::from(byte & 15)]);
        out[i + 16] = d * f32::from(VALUES[usize::from(byte >> 4)]);
    }
}
