//! The 3-bit codebook formats, 256 elements a block: IQ3_XXS and IQ3_S.
//!
//! | type | bytes | layout |
//! |---|---|---|
//! | IQ3_XXS | 98 | `d: f16`, 64 8-bit codes, then a u32 for each 32 elements: four 7-bit sign codes and, on top, a 4-bit scale |
//! | IQ3_S | 110 | `d: f16`, 64 bytes of low code bits, 8 bytes of ninth bits, 32 bytes of signs, 4 bytes of scale nibbles |
//!
//! A code names four magnitudes of [`grids`]; a sign code names eight signs of [`EVEN_SIGNS`]. A
//! scale belongs to 32 elements: `d (s + 1/2) / 2` in IQ3_XXS and `d (2 s + 1)` in IQ3_S.

use super::grids::{self, EVEN_SIGNS};
use super::{half_at, u32_at};

/// Two vectors of four magnitudes with their eight signs, times a scale.
fn put8(scale: f32, magnitudes: [u32; 2], signs: u8, out: &mut [f32]) {
    for (i, out) in out.iter_mut().enumerate() {
        let size = f32::from(magnitudes[i / 4].to_le_bytes()[i % 4]);
        *out = scale * if signs >> i & 1 == 1 { -size } else { size };
    }
}

pub(super) fn iq3_xxs(b: &[u8; 98], out: &mut [f32; 256]) {
    let d = half_at(b, 0);
    for (j, out) in out.chunks_exact_mut(8).enumerate() {
        let signs = u32_at(b, 66 + 4 * (j / 4));
        let scale = d * (0.5 + (signs >> 28) as f32) * 0.5;
        let magnitudes = [0, 1].map(|i| grids::IQ3_XXS[usize::from(b[2 + 2 * j + i])]);
        let signs = EVEN_SIGNS[(signs >> (7 * (j % 4)) & 127) as usize];
        put8(scale, magnitudes, signs, out);
    }
}

pub(super) fn iq3_s(b: &[u8; 110], out: &mut [f32; 256]) {
    let d = half_at(b, 0);
    for (j, out) in out.chunks_exact_mut(8).enumerate() {
        let scale = b[106 + j / 8] >> (4 * (j / 4 % 2)) & 15;
        let magnitudes = [2 * j, 2 * j + 1].map(|i| {
            let ninth = usize::from(b[66 + i / 8] >> (i % 8) & 1);
            grids::IQ3_S[usize::from(b[2 + i]) | ninth << 8]
        });
        put8(d * f32::from(1 + 2 * scale), magnitudes, b[74 + j], out);
    }
}
