//! The ternary formats, 256 elements a block: TQ1_0 and TQ2_0.
//!
//! | type | bytes | layout |
//! |---|---|---|
//! | TQ1_0 | 54 | 48 bytes of five digits, 4 bytes of four digits, `d: f16` |
//! | TQ2_0 | 66 | 64 bytes of four 2-bit digits, `d: f16` |
//!
//! x = d (digit - 1). The digits of a byte are as many elements apart as its group has bytes: 32,
//! then 16 and 4, in TQ1_0, and 32 in TQ2_0. TQ1_0 reads a byte as the fraction byte / 256 in base
//! three: digit n is the whole part of three times what is left after n digits.

use super::half_at;

/// Digit `n` of a byte of TQ1_0, counted from the most significant.
fn digit(byte: u8, n: u32) -> i16 {
    let rest = byte.wrapping_mul(3u8.pow(n));
    (i16::from(rest) * 3) >> 8
}

pub(super) fn tq1_0(b: &[u8; 54], out: &mut [f32; 256]) {
    let d = half_at(b, 52);
    let mut digits =
        [(0, 32, 5), (32, 16, 5), (48, 4, 4)]
            .into_iter()
            .flat_map(|(at, len, count)| {
                let group = &b[at..at + len];
                (0..count).flat_map(move |n| group.iter().map(move |byte| digit(*byte, n)))
            });
    for (out, digit) in out.iter_mut().zip(&mut digits) {
        *out = d * f32::from(digit - 1);
    }
}

pub(super) fn tq2_0(b: &[u8; 66], out: &mut [f32; 256]) {
    let d = half_at(b, 64);
    for (i, out) in out.iter_mut().enumerate() {
        let digit = b[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3;
        *out = d * (f32::from(digit) - 1.0);
    }
}
