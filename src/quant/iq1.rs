//! The codebook formats below two bits, 256 elements a block: IQ1_S and IQ1_M.
//!
//! | type | bytes | layout |
//! |---|---|---|
//! | IQ1_S | 50 | `d: f16`, 32 bytes of low code bits, then a u16 for each 32 elements: four times three high code bits, a 3-bit scale, the sign of the shift |
//! | IQ1_M | 56 | 32 bytes of low code bits, 32 nibbles (three high code bits, the sign of the shift), four u16 that each hold four 3-bit scales and, on top, four bits of `d` |
//!
//! A code names eight values, -1, 0 or 1, of [`grids::IQ1`]; the shift, 1/8 up or down, is added to
//! all that share it: 32 elements in IQ1_S, 8 in IQ1_M. A scale stands for `d (2 s + 1)` and belongs
//! to 32 elements in IQ1_S and to 16 in IQ1_M, whose `d` is an f16 cut up, lowest bits first.

use super::{grids, half_at, u16_at};
use half::f16;

const SHIFT: f32 = 0.125;

fn put8(scale: f32, code: usize, down: bool, out: &mut [f32]) {
    let shift = if down { -SHIFT } else { SHIFT };
    for (out, value) in out.iter_mut().zip(grids::IQ1[code].to_le_bytes()) {
        *out = scale * (f32::from(value) - 1.0 + shift);
    }
}

pub(super) fn iq1_s(b: &[u8; 50], out: &mut [f32; 256]) {
    let d = half_at(b, 0);
    for (j, out) in out.chunks_exact_mut(8).enumerate() {
        let word = u16_at(b, 34 + 2 * (j / 4));
        let high = usize::from(word >> (3 * (j % 4)) & 7);
        let scale = d * f32::from(2 * (word >> 12 & 7) + 1);
        let code = usize::from(b[2 + j]) | high << 8;
        put8(scale, code, word >> 15 == 1, out);
    }
}

pub(super) fn iq1_m(b: &[u8; 56], out: &mut [f32; 256]) {
    let word = |i: usize| u16_at(b, 48 + 2 * i);
    let bits = (0..4).fold(0, |bits, i| bits | (word(i) >> 12) << (4 * i));
    let d = f16::from_bits(bits).to_f32();
    for (j, out) in out.chunks_exact_mut(8).enumerate() {
        let nibble = usize::from(b[32 + j / 2] >> (4 * (j % 2)) & 15);
        let scale = word(j / 8) >> (3 * (j / 2 % 4)) & 7;
        let code = usize::from(b[j]) | (nibble & 7) << 8;
        put8(d * f32::from(2 * scale + 1), code, nibble >> 3 == 1, out);
    }
}
