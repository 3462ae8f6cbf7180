//! Many columns: unpack a tile of weights once, use it for all of them.
//!
//! A panel is eight rows side by side: vector `g` holds elements `4 g .. 4 g + 4` of each row. One
//! lane then belongs to one row, four activations broadcast to all lanes multiply eight rows, and
//! neither a scale nor a sum ever has to move between lanes.

use super::format::Format;
use super::isa::Isa;
use crate::engine::cpu::acts::{COARSE, Column, LANE, QActs};
use crate::engine::cpu::mat::MatCall;
use std::arch::x86_64::*;

/// Rows in a panel: the `i32` lanes of a vector.
const ROWS: usize = 8;
/// Panels in a tile; with [`DEPTH`] chosen so that a tile stays in the first-level cache.
const PANELS: usize = 4;
/// Elements of a row in a tile.
const DEPTH: usize = 512;
/// Columns that share one load of the weights.
const COLS: usize = 4;

struct Panel {
    q: [__m256i; DEPTH / 4],
    scale: [[f32; ROWS]; DEPTH / 16],
    min: [[f32; ROWS]; DEPTH / 16],
}

#[inline(always)]
pub(super) unsafe fn gemm<I: Isa, F: Format>(call: &MatCall<'_>, acts: &QActs) {
    let mut panels = [const {
        Panel {
            // SAFETY: a vector of integers may be all zero.
            q: [unsafe { std::mem::zeroed() }; DEPTH / 4],
            scale: [[0.0; ROWS]; DEPTH / 16],
            min: [[0.0; ROWS]; DEPTH / 16],
        }
    }; PANELS];
    for tile in call.rows.clone().step_by(PANELS * ROWS) {
        let rows = (call.rows.end - tile).min(PANELS * ROWS);
        for start in (0..call.k).step_by(DEPTH) {
            let depth = (call.k - start).min(DEPTH);
            for (p, panel) in panels.iter_mut().take(rows.div_ceil(ROWS)).enumerate() {
                let row = tile + p * ROWS;
                let at = row * call.row_bytes + start / F::LEN * F::BYTES;
                let valid = (rows - p * ROWS).min(ROWS);
                pack::<F>(call.w.add(at), call.row_bytes, valid, depth, panel);
            }
            let mut col = call.cols.start;
            while col < call.cols.end {
                let n = (call.cols.end - col).min(COLS);
                match n {
                    1 => columns::<I, F, 1>(call, acts, &panels, tile, rows, start, depth, col),
                    2 => columns::<I, F, 2>(call, acts, &panels, tile, rows, start, depth, col),
                    3 => columns::<I, F, 3>(call, acts, &panels, tile, rows, start, depth, col),
                    _ => columns::<I, F, COLS>(call, acts, &panels, tile, rows, start, depth, col),
                }
                col += n;
            }
        }
    }
}

/// Multiplies a tile with `C` columns and adds to the results, or sets them when it is the first.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn columns<I: Isa, F: Format, const C: usize>(
    call: &MatCall<'_>,
    acts: &QActs,
    panels: &[Panel; PANELS],
    tile: usize,
    rows: usize,
    start: usize,
    depth: usize,
    col: usize,
) {
    let x: [Column; C] = std::array::from_fn(|c| acts.column(col + c).offset(start));
    for (p, panel) in panels.iter().take(rows.div_ceil(ROWS)).enumerate() {
        let sums = multiply::<I, F, C>(panel, depth, x);
        let valid = (rows - p * ROWS).min(ROWS);
        for (c, sum) in sums.into_iter().enumerate() {
            let y = call.y.add((col + c) * call.ldy + tile + p * ROWS);
            if valid == ROWS {
                let before = if start == 0 {
                    _mm256_setzero_ps()
                } else {
                    _mm256_loadu_ps(y)
                };
                _mm256_storeu_ps(y, _mm256_add_ps(before, sum));
                continue;
            }
            let mut lanes = [0.0f32; ROWS];
            _mm256_storeu_ps(lanes.as_mut_ptr(), sum);
            for (r, lane) in lanes.iter().enumerate().take(valid) {
                let before = if start == 0 { 0.0 } else { *y.add(r) };
                *y.add(r) = before + lane;
            }
        }
    }
}

/// Eight rows times `C` columns over `depth` elements.
#[inline(always)]
unsafe fn multiply<I: Isa, F: Format, const C: usize>(
    panel: &Panel,
    depth: usize,
    x: [Column; C],
) -> [__m256; C] {
    let mut sums = [_mm256_setzero_ps(); C];
    for sub in 0..depth / F::SUB {
        let mut values = [_mm256_setzero_ps(); C];
        for at in (sub * F::SUB..(sub + 1) * F::SUB).step_by(COARSE) {
            let dots = sixteen::<I, F, C>(panel.q.as_ptr().add(at / 4), x.map(|x| x.q.add(at)));
            for c in 0..C {
                let d = _mm256_broadcast_ss(&*x[c].d.add(at / LANE));
                values[c] = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(dots[c]), values[c]);
            }
        }
        let scale = _mm256_loadu_ps(panel.scale[sub].as_ptr());
        for c in 0..C {
            sums[c] = _mm256_fmadd_ps(scale, values[c], sums[c]);
            if F::MIN {
                let s = if F::SUB == 32 { x[c].s32 } else { x[c].s16 };
                let min = _mm256_loadu_ps(panel.min[sub].as_ptr());
                sums[c] = _mm256_fmadd_ps(min, _mm256_broadcast_ss(&*s.add(sub)), sums[c]);
            }
        }
    }
    sums
}

/// Eight rows times `C` columns over [`COARSE`] elements, in integers.
#[inline(always)]
unsafe fn sixteen<I: Isa, F: Format, const C: usize>(
    q: *const __m256i,
    x: [*const i8; C],
) -> [__m256i; C] {
    const GROUPS: usize = COARSE / 4;
    let run = if I::WIDE { GROUPS } else { F::RUN.min(GROUPS) };
    let mut dots = [_mm256_setzero_si256(); C];
    for first in (0..GROUPS).step_by(run) {
        let mut part = [_mm256_setzero_si256(); C];
        for g in first..first + run {
            let w = *q.add(g);
            let size = if F::SIGNED { _mm256_abs_epi8(w) } else { w };
            for c in 0..C {
                let four = x[c].add(4 * g).cast::<i32>().read_unaligned();
                let four = _mm256_set1_epi32(four);
                let four = if F::SIGNED {
                    _mm256_sign_epi8(four, w)
                } else {
                    four
                };
                part[c] = I::add(part[c], size, four);
            }
        }
        for c in 0..C {
            dots[c] = _mm256_add_epi32(dots[c], I::lanes(part[c]));
        }
    }
    dots
}

/// Unpacks `depth` elements of eight rows; the last of the `valid` rows stands in for missing ones.
#[inline(always)]
unsafe fn pack<F: Format>(
    w: *const u8,
    row_bytes: usize,
    valid: usize,
    depth: usize,
    panel: &mut Panel,
) {
    let row = |r: usize| w.add(r.min(valid - 1) * row_bytes);
    for block in 0..depth / F::LEN {
        let at = block * F::BYTES;
        let mut scale = [[0.0f32; 16]; ROWS];
        let mut min = [[0.0f32; 16]; ROWS];
        for r in 0..ROWS {
            F::scales(row(r).add(at), scale[r].as_mut_ptr(), min[r].as_mut_ptr());
        }
        let subs = F::LEN / F::SUB;
        for s in 0..subs {
            panel.scale[block * subs + s] = std::array::from_fn(|r| scale[r][s]);
            panel.min[block * subs + s] = std::array::from_fn(|r| min[r][s]);
        }
        let q = panel.q.as_mut_ptr().add(block * F::LEN / 4);
        interleave::<F, 0>(row, at, q);
        if F::LEN == 256 {
            interleave::<F, 1>(row, at, q.add(8));
            interleave::<F, 2>(row, at, q.add(16));
            interleave::<F, 3>(row, at, q.add(24));
            interleave::<F, 4>(row, at, q.add(32));
            interleave::<F, 5>(row, at, q.add(40));
            interleave::<F, 6>(row, at, q.add(48));
            interleave::<F, 7>(row, at, q.add(56));
        }
    }
}

/// Transposes 32 elements of eight rows, in groups of four.
#[inline(always)]
unsafe fn interleave<F: Format, const J: usize>(
    row: impl Fn(usize) -> *const u8,
    at: usize,
    out: *mut __m256i,
) {
    // A loop: a closure with a long body would stay a function of its own, compiled without AVX2.
    let mut v = [_mm256_setzero_si256(); ROWS];
    for (r, v) in v.iter_mut().enumerate() {
        *v = F::quants::<J>(row(r).add(at));
    }
    let pair = |a: usize, b: usize| {
        (
            _mm256_unpacklo_epi32(v[a], v[b]),
            _mm256_unpackhi_epi32(v[a], v[b]),
        )
    };
    let (a0, a1) = pair(0, 1);
    let (a2, a3) = pair(2, 3);
    let (a4, a5) = pair(4, 5);
    let (a6, a7) = pair(6, 7);
    let quads = |a: __m256i, b: __m256i| (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    let (b0, b1) = quads(a0, a2);
    let (b2, b3) = quads(a1, a3);
    let (b4, b5) = quads(a4, a6);
    let (b6, b7) = quads(a5, a7);
    for (g, (low, high)) in [(b0, b4), (b1, b5), (b2, b6), (b3, b7)]
        .into_iter()
        .enumerate()
    {
        _mm256_store_si256(out.add(g), _mm256_permute2x128_si256::<0x20>(low, high));
        _mm256_store_si256(out.add(g + 4), _mm256_permute2x128_si256::<0x31>(low, high));
    }
}
