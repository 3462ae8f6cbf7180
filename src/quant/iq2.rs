//! The 2-bit codebook formats, 256 elements a block: IQ2_XXS, IQ2_XS, IQ2_S.
//!
//! | type | bytes | layout |
//! |---|---|---|
//! | IQ2_XXS | 66 | `d: f16`, then for each 32 elements: four 8-bit codes, a u32 of four 7-bit sign codes and, on top, a 4-bit scale |
//! | IQ2_XS | 74 | `d: f16`, 32 u16 (9-bit code, 7-bit sign code), 8 bytes of scale nibbles |
//! | IQ2_S | 82 | `d: f16`, 32 bytes of low code bits, 32 bytes of signs, 8 bytes of four high code pairs, 8 bytes of scale nibbles |
//!
//! A code names eight magnitudes of [`grids`]; a sign code names eight signs of
//! [`EVEN_SIGNS`], bit i for element i. A scale `s` stands for `d (s + 1/2) / 4` and belongs to 32
//! elements in IQ2_XXS and to 16, low nibble first, in the others.

use super::grids::{self, EVEN_SIGNS};
use super::{half_at, u16_at, u32_at};

/// Eight magnitudes with their signs, times a scale.
fn put8(scale: f32, magnitudes: u64, signs: u8, out: &mut [f32]) {
    for (i, (out, size)) in out.iter_mut().zip(magnitudes.to_le_bytes()).enumerate() {
        let size = f32::from(size);
        *out = scale * if signs >> i & 1 == 1 { -size } else { size };
    }
}

fn scale_of(d: f32, s: u8) -> f32 {
    d * (0.5 + f32::from(s)) * 0.25
}

pub(super) fn iq2_xxs(b: &[u8; 66], out: &mut [f32; 256]) {
    let d = half_at(b, 0);
    for (sub, out) in out.chunks_exact_mut(32).enumerate() {
        let at = 2 + 8 * sub;
        let signs = u32_at(b, at + 4);
        let scale = scale_of(d, (signs >> 28) as u8);
        for (j, out) in out.chunks_exact_mut(8).enumerate() {
            let magnitudes = grids::IQ2_XXS[usize::from(b[at + j])];
            let signs = EVEN_SIGNS[(signs >> (7 * j) & 127) as usize];
            put8(scale, magnitudes, signs, out);
        }
    }
}

pub(super) fn iq2_xs(b: &[u8; 74], out: &mut [f32; 256]) {
    let d = half_at(b, 0);
    for (j, out) in out.chunks_exact_mut(8).enumerate() {
        let code = usize::from(u16_at(b, 2 + 2 * j));
        let scale = b[66 + j / 4] >> (4 * (j / 2 % 2)) & 15;
        let signs = EVEN_SIGNS[code >> 9];
        put8(scale_of(d, scale), grids::IQ2_XS[code & 511], signs, out);
    }
}

pub(super) fn iq2_s(b: &[u8; 82], out: &mut [f32; 256]) {
    let d = half_at(b, 0);
    for (j, out) in out.chunks_exact_mut(8).enumerate() {
        let high = b[66 + j / 4] >> (2 * (j % 4)) & 3;
        let code = usize::from(b[2 + j]) | usize::from(high) << 8;
        let scale = b[74 + j / 4] >> (4 * (j / 2 % 2)) & 15;
        put8(scale_of(d, scale), grids::IQ2_S[code], b[34 + j], out);
    }
}
