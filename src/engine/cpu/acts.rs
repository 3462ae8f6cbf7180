//! Activations as the quantised kernels want them: int8 with one f32 scale for 32 elements.

use super::float_ops::FloatOps;
use std::marker::PhantomData;

/// Columns of int8 activations with their scales and sums.
///
/// A value is `d * q`. Beside the values stand `s32`, `d` times the sum of the 32 integers of a
/// block, and `s16`, the same for each half: weight formats with a minimum or a constant offset
/// need only these for that part of a dot product.
///
/// Each column starts on a 64-byte line.
#[derive(Debug)]
pub struct QActs {
    k: usize,
    cols: usize,
    stride: usize,
    capacity: usize,
    qs: Vec<Line>,
    d: Vec<f32>,
    s32: Vec<f32>,
    s16: Vec<f32>,
}

#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Line([i8; 64]);

impl QActs {
    /// Room for `max_cols` columns of `max_k` elements; its shape is that until
    /// [`set_shape`](Self::set_shape) says otherwise.
    ///
    /// # Panics
    /// When `max_k` is not a multiple of 32.
    pub fn new(max_cols: usize, max_k: usize) -> Self {
        let capacity = max_cols * max_k.next_multiple_of(64);
        let mut acts = Self {
            k: 0,
            cols: 0,
            stride: 0,
            capacity,
            qs: vec![Line([0; 64]); capacity / 64],
            d: vec![0.0; capacity / 32],
            s32: vec![0.0; capacity / 32],
            s16: vec![0.0; capacity / 16],
        };
        acts.set_shape(max_k, max_cols);
        acts
    }

    /// Sets the column length and the number of columns; what was stored is no longer meaningful.
    ///
    /// # Panics
    /// When `k` is not a multiple of 32, or `cols` columns of `k` elements do not fit.
    pub fn set_shape(&mut self, k: usize, cols: usize) {
        assert!(
            k.is_multiple_of(32),
            "column length {k} is not whole blocks"
        );
        let stride = k.next_multiple_of(64);
        let needed = stride.checked_mul(cols);
        assert!(
            needed.is_some_and(|n| n <= self.capacity),
            "{cols} columns of {k} elements do not fit {}",
            self.capacity
        );
        (self.k, self.cols, self.stride) = (k, cols, stride);
    }

    /// Elements in a column.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The integers of a column, `k` of them.
    pub fn qs(&self, col: usize) -> &[i8] {
        &self.qs.as_flattened_bytes()[self.at(col)..][..self.k]
    }

    /// The scales of a column, one for 32 elements.
    pub fn d(&self, col: usize) -> &[f32] {
        &self.d[self.at(col) / 32..][..self.k / 32]
    }

    /// Scale times the sum of the integers, for each 32 elements of a column.
    pub fn s32(&self, col: usize) -> &[f32] {
        &self.s32[self.at(col) / 32..][..self.k / 32]
    }

    /// Scale times the sum of the integers, for each 16 elements of a column.
    pub fn s16(&self, col: usize) -> &[f32] {
        &self.s16[self.at(col) / 16..][..self.k / 16]
    }

    fn at(&self, col: usize) -> usize {
        assert!(col < self.cols, "column {col} of {}", self.cols);
        col * self.stride
    }

    /// Quantises all of column `col` from `x`, `k` floats.
    ///
    /// # Panics
    /// When `col` or the length of `x` does not agree with the shape.
    pub fn set_column(&mut self, ops: &FloatOps, col: usize, x: &[f32]) {
        assert_eq!(x.len(), self.k, "a column has {} elements", self.k);
        // SAFETY: the writer borrows `self` mutably and nothing else writes.
        unsafe { self.writer().quantise(ops, col, 0, x) }
    }

    /// A handle through which several threads may fill disjoint pieces at the same time.
    pub fn writer(&mut self) -> QActsWriter<'_> {
        QActsWriter {
            k: self.k,
            cols: self.cols,
            stride: self.stride,
            qs: self.qs.as_mut_ptr().cast(),
            d: self.d.as_mut_ptr(),
            s32: self.s32.as_mut_ptr(),
            s16: self.s16.as_mut_ptr(),
            borrow: PhantomData,
        }
    }

    /// Where the kernels read column `col` from.
    ///
    /// # Safety
    /// `col` must be a column of the shape.
    #[inline(always)]
    pub(super) unsafe fn column(&self, col: usize) -> Column {
        let start = Column {
            q: self.qs.as_ptr().cast(),
            d: self.d.as_ptr(),
            s32: self.s32.as_ptr(),
            s16: self.s16.as_ptr(),
        };
        // SAFETY: the caller names a column, and all of them fit the buffers.
        unsafe { start.offset(col * self.stride) }
    }
}

trait Flat {
    fn as_flattened_bytes(&self) -> &[i8];
}

impl Flat for Vec<Line> {
    fn as_flattened_bytes(&self) -> &[i8] {
        // SAFETY: a Line is 64 bytes of i8 without padding.
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast(), self.len() * 64) }
    }
}

/// One column of [`QActs`] as raw pointers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub(super) q: *const i8,
    pub(super) d: *const f32,
    pub(super) s32: *const f32,
    pub(super) s16: *const f32,
}

impl Column {
    /// The same column from element `at`, a multiple of 32, on.
    ///
    /// # Safety
    /// `at` must not lie past the end of the column.
    #[inline(always)]
    pub(super) unsafe fn offset(self, at: usize) -> Self {
        // SAFETY: the caller keeps `at` within the column.
        unsafe {
            Self {
                q: self.q.add(at),
                d: self.d.add(at / 32),
                s32: self.s32.add(at / 32),
                s16: self.s16.add(at / 16),
            }
        }
    }
}

/// Writes pieces of a [`QActs`] from several threads.
#[derive(Debug, Clone, Copy)]
pub struct QActsWriter<'a> {
    k: usize,
    cols: usize,
    stride: usize,
    qs: *mut i8,
    d: *mut f32,
    s32: *mut f32,
    s16: *mut f32,
    borrow: PhantomData<&'a mut QActs>,
}

// SAFETY: the pointers are only written through `quantise`, whose contract is that pieces written at
// the same time are disjoint.
unsafe impl Send for QActsWriter<'_> {}
// SAFETY: as for Send.
unsafe impl Sync for QActsWriter<'_> {}

impl QActsWriter<'_> {
    /// Quantises `x` into column `col` from element `start` on.
    ///
    /// # Safety
    /// No other thread may write an overlapping piece of the same column at the same time.
    ///
    /// # Panics
    /// When `start` or the length of `x` is not a multiple of 32, or the piece leaves the column.
    pub unsafe fn quantise(&self, ops: &FloatOps, col: usize, start: usize, x: &[f32]) {
        let n = x.len();
        assert!(start.is_multiple_of(32) && n.is_multiple_of(32));
        assert!(
            col < self.cols && start + n <= self.k,
            "piece leaves column"
        );
        let at = col * self.stride + start;
        // SAFETY: `at + n` lies within the buffers by the assertions and `set_shape`; the caller
        // guarantees that nobody else touches this piece.
        unsafe {
            (ops.quantise)(
                x,
                std::slice::from_raw_parts_mut(self.qs.add(at), n),
                std::slice::from_raw_parts_mut(self.d.add(at / 32), n / 32),
                std::slice::from_raw_parts_mut(self.s32.add(at / 32), n / 32),
                std::slice::from_raw_parts_mut(self.s16.add(at / 16), n / 16),
            );
        }
    }
}
