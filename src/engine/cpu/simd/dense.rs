//! Unquantised weights: F32, F16 and BF16 times float columns.

use super::format::{half, load128, sum8};
use crate::engine::cpu::mat::{Acts, MatCall};
use crate::engine::cpu::prefetch;
use std::arch::x86_64::*;

/// An unquantised element type.
pub(super) trait Dense {
    const BYTES: usize;
    unsafe fn eight(p: *const u8) -> __m256;
    unsafe fn one(p: *const u8) -> f32;
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct BF16;

impl Dense for F32 {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn eight(p: *const u8) -> __m256 {
        _mm256_loadu_ps(p.cast())
    }
    #[inline(always)]
    unsafe fn one(p: *const u8) -> f32 {
        p.cast::<f32>().read_unaligned()
    }
}

impl Dense for F16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn eight(p: *const u8) -> __m256 {
        _mm256_cvtph_ps(load128(p))
    }
    #[inline(always)]
    unsafe fn one(p: *const u8) -> f32 {
        half(p)
    }
}

impl Dense for BF16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn eight(p: *const u8) -> __m256 {
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(load128(p))))
    }
    #[inline(always)]
    unsafe fn one(p: *const u8) -> f32 {
        f32::from_bits(u32::from(p.cast::<u16>().read_unaligned()) << 16)
    }
}

/// One row at a time for a single column, tiles of two rows and four columns for many.
#[inline(always)]
pub(super) unsafe fn mat<D: Dense>(call: &MatCall<'_>) {
    let Acts::F32 { x, stride } = call.acts else {
        return;
    };
    let x = x.as_ptr();
    let mut row = call.rows.start;
    while row < call.rows.end {
        let rows = if call.cols.len() > 1 {
            (call.rows.end - row).min(2)
        } else {
            1
        };
        let mut col = call.cols.start;
        while col < call.cols.end {
            let cols = (call.cols.end - col).min(4);
            let x = x.add(col * stride);
            match (rows, cols) {
                (1, 1) => single::<D>(call, x, row, col),
                (_, 4) if rows == 2 => tile::<D, 2, 4>(call, x, stride, row, col),
                (_, 4) => tile::<D, 1, 4>(call, x, stride, row, col),
                _ => {
                    for (r, c) in (0..rows).flat_map(|r| (0..cols).map(move |c| (r, c))) {
                        single::<D>(call, x.add(c * stride), row + r, col + c);
                    }
                }
            }
            col += cols;
        }
        row += rows;
    }
}

#[inline(always)]
unsafe fn single<D: Dense>(call: &MatCall<'_>, x: *const f32, row: usize, col: usize) {
    let w = call.w.add(row * call.row_bytes);
    let mut acc = [_mm256_setzero_ps(); 4];
    let mut i = 0;
    let now = prefetch::now();
    while i + 32 <= call.k {
        prefetch::line(now, w.wrapping_add(i * D::BYTES));
        for (a, acc) in acc.iter_mut().enumerate() {
            let at = i + 8 * a;
            *acc = _mm256_fmadd_ps(
                D::eight(w.add(at * D::BYTES)),
                _mm256_loadu_ps(x.add(at)),
                *acc,
            );
        }
        i += 32;
    }
    while i + 8 <= call.k {
        acc[0] = _mm256_fmadd_ps(
            D::eight(w.add(i * D::BYTES)),
            _mm256_loadu_ps(x.add(i)),
            acc[0],
        );
        i += 8;
    }
    let sums = _mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3]));
    *call.y.add(col * call.ldy + row) = sum8(sums) + rest::<D>(w, x, i, call.k);
}

#[inline(always)]
unsafe fn tile<D: Dense, const R: usize, const C: usize>(
    call: &MatCall<'_>,
    x: *const f32,
    stride: usize,
    row: usize,
    col: usize,
) {
    let mut acc = [[_mm256_setzero_ps(); C]; R];
    let whole = call.k / 8 * 8;
    for i in (0..whole).step_by(8) {
        for (r, acc) in acc.iter_mut().enumerate() {
            let w = D::eight(call.w.add((row + r) * call.row_bytes + i * D::BYTES));
            for (c, acc) in acc.iter_mut().enumerate() {
                *acc = _mm256_fmadd_ps(w, _mm256_loadu_ps(x.add(c * stride + i)), *acc);
            }
        }
    }
    for (r, acc) in acc.iter().enumerate() {
        let w = call.w.add((row + r) * call.row_bytes);
        for (c, acc) in acc.iter().enumerate() {
            let tail = rest::<D>(w, x.add(c * stride), whole, call.k);
            *call.y.add((col + c) * call.ldy + row + r) = sum8(*acc) + tail;
        }
    }
}

#[inline(always)]
unsafe fn rest<D: Dense>(w: *const u8, x: *const f32, from: usize, k: usize) -> f32 {
    (from..k).fold(0.0, |sum, i| sum + D::one(w.add(i * D::BYTES)) * *x.add(i))
}
