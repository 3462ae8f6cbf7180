//! Products of the reference path: rows as stored are dequantised one by one, and spread over threads. Every element is
//! the same sum whoever computes it.

use crate::engine::config::cpus;
use crate::engine::cpu::share;
use crate::model::{Matrix, Model};
use crate::quant;
use std::ops::Range;
use std::thread::{Builder, scope};

/// Multiplications that a thread of its own is worth.
const WORTH_A_THREAD: usize = 1 << 18;

/// Row `row` of a matrix in F32, into `out`, `[k]`; NaN where there is no such row.
pub(crate) fn row_into(model: &Model, m: &Matrix, row: usize, out: &mut [f32]) {
    let at = row * m.row_bytes;
    let bytes = model.bytes(m).get(at..at + m.row_bytes);
    // The model checked the type and the row size when it was built.
    if bytes.is_none_or(|b| quant::dequantise_row(m.ty, b, out).is_err()) {
        out.fill(f32::NAN);
    }
}

/// `m x` for every column `x`, `[k]`: `[columns][rows]`.
pub(crate) fn product<C: AsRef<[f32]> + Sync>(
    model: &Model,
    m: &Matrix,
    columns: &[C],
) -> Vec<Vec<f32>> {
    let mut out = vec![vec![0.0; m.rows]; columns.len()];
    let mut place = |rows: Range<usize>, values: Vec<f32>| {
        let by_row = values.chunks_exact(columns.len().max(1));
        for (r, values) in rows.zip(by_row) {
            for (y, v) in out.iter_mut().zip(values) {
                y[r] = *v;
            }
        }
    };
    let work = m.rows * m.k * columns.len();
    let threads = (work / WORTH_A_THREAD).clamp(1, cpus());
    scope(|s| {
        let parts: Vec<_> = (1..threads)
            .map(|t| {
                let rows = share(m.rows, t, threads);
                let part = rows.clone();
                let started =
                    Builder::new().spawn_scoped(s, move || rows_of(model, m, part, columns));
                (rows, started)
            })
            .collect();
        let mine = share(m.rows, 0, threads);
        place(mine.clone(), rows_of(model, m, mine, columns));
        for (rows, started) in parts {
            // A thread that the system refuses is one that this one does the work of.
            let done = started.ok().and_then(|t| t.join().ok());
            let values = done.unwrap_or_else(|| rows_of(model, m, rows.clone(), columns));
            place(rows, values);
        }
    });
    out
}

/// Some rows, `[rows][columns]`.
fn rows_of<C: AsRef<[f32]>>(
    model: &Model,
    m: &Matrix,
    rows: Range<usize>,
    columns: &[C],
) -> Vec<f32> {
    let mut w = vec![0.0; m.k];
    let mut out = Vec::with_capacity(rows.len() * columns.len());
    for r in rows {
        row_into(model, m, r, &mut w);
        out.extend(columns.iter().map(|x| dot(&w, x.as_ref())));
    }
    out
}

/// Inner product with eight partial sums, which keeps the rounding error of long rows small.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; 8];
    let (a8, b8) = (a.chunks_exact(8), b.chunks_exact(8));
    let tail: f32 = a8
        .remainder()
        .iter()
        .zip(b8.remainder())
        .map(|(x, y)| x * y)
        .sum();
    for (x, y) in a8.zip(b8) {
        for i in 0..8 {
            sums[i] += x[i] * y[i];
        }
    }
    sums.iter().sum::<f32>() + tail
}
