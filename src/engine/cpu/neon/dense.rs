//! Unquantised weights: F32, F16 and BF16 times float columns.

use super::format::half;
use super::widen4;
use crate::engine::cpu::mat::{Acts, MatCall};
use std::arch::aarch64::*;

/// An unquantised element type.
pub(super) trait Dense {
    const BYTES: usize;
    unsafe fn four(p: *const u8) -> float32x4_t;
    unsafe fn one(p: *const u8) -> f32;
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct BF16;

impl Dense for F32 {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn four(p: *const u8) -> float32x4_t {
        vreinterpretq_f32_u8(vld1q_u8(p))
    }
    #[inline(always)]
    unsafe fn one(p: *const u8) -> f32 {
        p.cast::<f32>().read_unaligned()
    }
}

impl Dense for F16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn four(p: *const u8) -> float32x4_t {
        widen4(vreinterpret_u16_u8(vld1_u8(p)))
    }
    #[inline(always)]
    unsafe fn one(p: *const u8) -> f32 {
        half(p)
    }
}

impl Dense for BF16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn four(p: *const u8) -> float32x4_t {
        vreinterpretq_f32_u32(vshll_n_u16::<16>(vreinterpret_u16_u8(vld1_u8(p))))
    }
    #[inline(always)]
    unsafe fn one(p: *const u8) -> f32 {
        f32::from_bits(u32::from(p.cast::<u16>().read_unaligned()) << 16)
    }
}

/// Columns that share one load of the weights.
const COLS: usize = 4;

#[inline(always)]
pub(super) unsafe fn mat<D: Dense>(call: &MatCall<'_>) {
    let Acts::F32 { x, stride } = call.acts else {
        return;
    };
    for row in call.rows.clone() {
        let mut col = call.cols.start;
        while col < call.cols.end {
            let n = if call.cols.end - col >= COLS { COLS } else { 1 };
            let x = x.as_ptr().add(col * stride);
            if n == COLS {
                columns::<D, COLS>(call, x, stride, row, col);
            } else {
                columns::<D, 1>(call, x, stride, row, col);
            }
            col += n;
        }
    }
}

#[inline(always)]
unsafe fn columns<D: Dense, const C: usize>(
    call: &MatCall<'_>,
    x: *const f32,
    stride: usize,
    row: usize,
    col: usize,
) {
    let w = call.w.add(row * call.row_bytes);
    let mut acc = [[vdupq_n_f32(0.0); 2]; C];
    let whole = call.k / 8 * 8;
    for i in (0..whole).step_by(8) {
        for h in 0..2 {
            let at = i + 4 * h;
            let w = D::four(w.add(at * D::BYTES));
            for (c, acc) in acc.iter_mut().enumerate() {
                acc[h] = vfmaq_f32(acc[h], w, vld1q_f32(x.add(c * stride + at)));
            }
        }
    }
    for (c, acc) in acc.iter().enumerate() {
        let x = x.add(c * stride);
        let rest =
            (whole..call.k).fold(0.0, |sum, i| sum + D::one(w.add(i * D::BYTES)) * *x.add(i));
        *call.y.add((col + c) * call.ldy + row) = vaddvq_f32(vaddq_f32(acc[0], acc[1])) + rest;
    }
}
