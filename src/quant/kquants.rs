//! The 256-element k-quants: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K.
//!
//! | type | bytes | layout |
//! |---|---|---|
//! | Q2_K | 84 | 16 bytes (low nibble scale, high nibble minimum), 64 bytes of 2-bit, `d`, `dmin` |
//! | Q3_K | 110 | 32 bytes of high bits, 64 bytes of 2-bit, 12 bytes of 6-bit scales, `d` |
//! | Q4_K | 144 | `d`, `dmin`, 12 bytes of 6-bit scales and minimums, 128 bytes of nibbles |
//! | Q5_K | 176 | `d`, `dmin`, 12 bytes of scales, 32 bytes of high bits, 128 bytes of nibbles |
//! | Q6_K | 210 | 128 bytes of low nibbles, 64 bytes of high pairs, 16 signed scales, `d` |
//!
//! Scales belong to 32 elements in Q4_K and Q5_K and to 16 in the others; `d`, `dmin` are f16.

use super::half_at;

/// The eight 6-bit scales and eight 6-bit minimums that Q4_K and Q5_K pack into 12 bytes.
fn scales_mins_k4(b: &[u8]) -> ([u8; 8], [u8; 8]) {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    for j in 0..4 {
        scales[j] = b[j] & 63;
        mins[j] = b[j + 4] & 63;
        scales[j + 4] = (b[j + 8] & 15) | ((b[j] >> 6) << 4);
        mins[j + 4] = (b[j + 8] >> 4) | ((b[j + 4] >> 6) << 4);
    }
    (scales, mins)
}

/// The sixteen scales, each -32..32, that Q3_K packs into 12 bytes.
fn q3_k_scales(b: &[u8]) -> [i8; 16] {
    std::array::from_fn(|j| {
        let low = if j < 8 { b[j] & 15 } else { b[j - 8] >> 4 };
        let high = (b[8 + j % 4] >> (2 * (j / 4))) & 3;
        (low | (high << 4)) as i8 - 32
    })
}

pub(super) fn q2_k(b: &[u8; 84], out: &mut [f32; 256]) {
    let (d, dmin) = (half_at(b, 80), half_at(b, 82));
    for (i, out) in out.iter_mut().enumerate() {
        let (half, group, at) = (i / 128, (i / 32) % 4, i % 32);
        let q = (b[16 + half * 32 + at] >> (2 * group)) & 3;
        let scale = b[i / 16];
        *out = d * f32::from(scale & 15) * f32::from(q) - dmin * f32::from(scale >> 4);
    }
}

pub(super) fn q3_k(b: &[u8; 110], out: &mut [f32; 256]) {
    let d = half_at(b, 108);
    let scales = q3_k_scales(&b[96..108]);
    for (i, out) in out.iter_mut().enumerate() {
        let (half, group, at) = (i / 128, (i / 32) % 4, i % 32);
        let low = (b[32 + half * 32 + at] >> (2 * group)) & 3;
        let high = (b[at] >> (i / 32)) & 1;
        let q = (low | (high << 2)) as i8 - 4;
        *out = d * f32::from(scales[i / 16]) * f32::from(q);
    }
}

pub(super) fn q4_k(b: &[u8; 144], out: &mut [f32; 256]) {
    let (d, dmin) = (half_at(b, 0), half_at(b, 2));
    let (scales, mins) = scales_mins_k4(&b[4..16]);
    for (i, out) in out.iter_mut().enumerate() {
        let sub = i / 32;
        let q = (b[16 + (sub / 2) * 32 + i % 32] >> (4 * (sub % 2))) & 15;
        *out = d * f32::from(scales[sub]) * f32::from(q) - dmin * f32::from(mins[sub]);
    }
}

pub(super) fn q5_k(b: &[u8; 176], out: &mut [f32; 256]) {
    let (d, dmin) = (half_at(b, 0), half_at(b, 2));
    let (scales, mins) = scales_mins_k4(&b[4..16]);
    for (i, out) in out.iter_mut().enumerate() {
        let sub = i / 32;
        let low = (b[48 + (sub / 2) * 32 + i % 32] >> (4 * (sub % 2))) & 15;
        let high = (b[16 + i % 32] >> sub) & 1;
        let q = low | (high << 4);
        *out = d * f32::from(scales[sub]) * f32::from(q) - dmin * f32::from(mins[sub]);
    }
}

pub(super) fn q6_k(b: &[u8; 210], out: &mut [f32; 256]) {
    let d = half_at(b, 208);
    for (i, out) in out.iter_mut().enumerate() {
        let (half, group, at) = (i / 128, (i / 32) % 4, i % 32);
        let low = (b[half * 64 + (group % 2) * 32 + at] >> (4 * (group / 2))) & 15;
        let high = (b[128 + half * 32 + at] >> (2 * group)) & 3;
        let q = (low | (high << 4)) as i8 - 32;
        let scale = b[192 + i / 16] as i8;
        *out = d * f32::from(scale) * f32::from(q);
    }
}
