//! The 4-bit non-linear formats: IQ4_NL (32 elements) and IQ4_XS (256 elements).
//!
//! | type | bytes | layout |
//! |---|---|---|
//! | IQ4_NL | 18 | `d: f16`, 16 bytes of nibbles |
//! | IQ4_XS | 136 | `d: f16`, 8 high scale pairs: u16, 8 low scale nibbles, 128 bytes of nibbles |
//!
//! A nibble indexes [`VALUES`]; IQ4_XS has one 6-bit scale, -32..32, for 32 elements.

use super::half_at;

/// The signed levels that the sixteen nibbles stand for.
pub(crate) const VALUES: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

fn level(q: u8) -> f32 {
    f32::from(VALUES[usize::from(q & 15)])
}

fn expand(d: f32, packed: &[u8], out: &mut [f32]) {
    for (i, byte) in packed.iter().enumerate() {
        out[i] = d * level(byte & 15);
        out[i + 16] = d * level(byte >> 4);
    }
}

pub(super) fn iq4_nl(b: &[u8; 18], out: &mut [f32; 32]) {
    expand(half_at(b, 0), &b[2..], out);
}

pub(super) fn iq4_xs(b: &[u8; 136], out: &mut [f32; 256]) {
    let d = half_at(b, 0);
    let high = u16::from_le_bytes([b[2], b[3]]);
    for (sub, out) in out.chunks_exact_mut(32).enumerate() {
        let low = (b[4 + sub / 2] >> (4 * (sub % 2))) & 15;
        let scale = i32::from(low) | (i32::from((high >> (2 * sub)) & 3) << 4);
        expand(d * (scale - 32) as f32, &b[8 + sub * 16..][..16], out);
    }
}
