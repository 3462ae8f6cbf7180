//! Quantised weights times int8 columns.

use super::Isa;
use super::format::Format;
use crate::engine::cpu::acts::{Column, LANE, QActs};
use crate::engine::cpu::mat::{Acts, MatCall};
use std::arch::aarch64::*;

/// From this many columns on a row is unpacked once for all of them.
const UNPACK_FROM: usize = 3;
/// Elements of a row unpacked at a time: with their scales they stay in the first-level cache.
const DEPTH: usize = 512;
/// Columns that share one load of the weights.
const COLS: usize = 4;

#[inline(always)]
pub(super) unsafe fn quantised<I: Isa, F: Format>(call: &MatCall<'_>) {
    let Acts::Q8(acts) = call.acts else {
        return;
    };
    if call.cols.len() >= UNPACK_FROM {
        return many::<I, F>(call, acts);
    }
    for row in call.rows.clone() {
        for col in call.cols.clone() {
            let w = call.w.add(row * call.row_bytes);
            *call.y.add(col * call.ldy + row) = dot::<I, F>(w, acts.column(col), call.k);
        }
    }
}

/// The dot product of `k` weights at `w` with a column.
#[inline(always)]
unsafe fn dot<I: Isa, F: Format>(w: *const u8, x: Column, k: usize) -> f32 {
    let mut acc = [vdupq_n_f32(0.0); 2];
    let mut mins = 0.0;
    let (mut scale, mut min) = ([0.0; 16], [0.0; 16]);
    for block in 0..k / F::LEN {
        let w = w.add(block * F::BYTES);
        F::scales(w, &mut scale, &mut min);
        for j in 0..F::LEN / 32 {
            let x = x.offset(block * F::LEN + 32 * j);
            let q = F::quants(w, j);
            for h in 0..2 {
                let sums = I::dot(q[h], vld1q_s8(x.q.add(16 * h)));
                let values = vmulq_f32(vcvtq_f32_s32(sums), vld1q_f32(x.d.add(4 * h)));
                let at = if F::SUB == 32 { j } else { 2 * j + h };
                acc[h] = vfmaq_n_f32(acc[h], values, scale[at]);
                if F::MIN && F::SUB == 16 {
                    mins += min[at] * *x.s16.add(h);
                }
            }
            if F::MIN && F::SUB == 32 {
                mins += min[j] * *x.s32;
            }
        }
    }
    mins + vaddvq_f32(vaddq_f32(acc[0], acc[1]))
}

/// A part of one row, unpacked: integers, and the scale and minimum of every 16.
struct Unpacked {
    q: [int8x16_t; DEPTH / 16],
    scale: [f32; DEPTH / 16],
    min: [f32; DEPTH / 16],
}

#[inline(always)]
unsafe fn many<I: Isa, F: Format>(call: &MatCall<'_>, acts: &QActs) {
    let mut part = Unpacked {
        q: [vdupq_n_s8(0); DEPTH / 16],
        scale: [0.0; DEPTH / 16],
        min: [0.0; DEPTH / 16],
    };
    for row in call.rows.clone() {
        for start in (0..call.k).step_by(DEPTH) {
            let depth = (call.k - start).min(DEPTH);
            let w = call.w.add(row * call.row_bytes + start / F::LEN * F::BYTES);
            unpack::<F>(w, depth, &mut part);
            let mut col = call.cols.start;
            while col < call.cols.end {
                let n = (call.cols.end - col).min(COLS);
                let y = call.y.add(col * call.ldy + row);
                match n {
                    1 => columns::<I, F, 1>(&part, depth, acts, start, col, y, call.ldy),
                    2 => columns::<I, F, 2>(&part, depth, acts, start, col, y, call.ldy),
                    3 => columns::<I, F, 3>(&part, depth, acts, start, col, y, call.ldy),
                    _ => columns::<I, F, COLS>(&part, depth, acts, start, col, y, call.ldy),
                }
                col += n;
            }
        }
    }
}

#[inline(always)]
unsafe fn unpack<F: Format>(w: *const u8, depth: usize, part: &mut Unpacked) {
    let (mut scale, mut min) = ([0.0; 16], [0.0; 16]);
    for block in 0..depth / F::LEN {
        let w = w.add(block * F::BYTES);
        F::scales(w, &mut scale, &mut min);
        for j in 0..F::LEN / 32 {
            let at = block * F::LEN / 16 + 2 * j;
            let q = F::quants(w, j);
            for h in 0..2 {
                let sub = if F::SUB == 32 { j } else { 2 * j + h };
                part.q[at + h] = q[h];
                part.scale[at + h] = scale[sub];
                part.min[at + h] = min[sub];
            }
        }
    }
}

/// A part of a row times `C` columns: sets the results, or adds to them when it is not the first part.
#[inline(always)]
unsafe fn columns<I: Isa, F: Format, const C: usize>(
    part: &Unpacked,
    depth: usize,
    acts: &QActs,
    start: usize,
    col: usize,
    y: *mut f32,
    ldy: usize,
) {
    let x: [Column; C] = std::array::from_fn(|c| acts.column(col + c).offset(start));
    let mut acc = [vdupq_n_f32(0.0); C];
    let mut mins = [0.0; C];
    for at in 0..depth / 16 {
        for c in 0..C {
            let sums = I::dot(part.q[at], vld1q_s8(x[c].q.add(16 * at)));
            let d = vmulq_n_f32(vld1q_f32(x[c].d.add(16 / LANE * at)), part.scale[at]);
            acc[c] = vfmaq_f32(acc[c], vcvtq_f32_s32(sums), d);
            if F::MIN {
                mins[c] += part.min[at] * *x[c].s16.add(at);
            }
        }
    }
    for c in 0..C {
        let y = y.add(c * ldy);
        let before = if start == 0 { 0.0 } else { *y };
        *y = before + mins[c] + vaddvq_f32(acc[c]);
    }
}
