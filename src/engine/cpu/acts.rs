//! Activations as the quantised kernels want them: int8 with an f32 scale for 4 or 16 elements.

use super::float_ops::{FloatOps, Quantised};

/// Elements for which a scale is stored: one 32-bit lane of integer products.
pub(super) const LANE: usize = 4;

/// With fewer columns than this every [`LANE`] has a scale of its own, and kernels go row by row.
///
/// With more, [`COARSE`] elements share one: the kernels that unpack a tile of weights for many columns
/// would pay for each scale in every column, and this is about where unpacking begins to pay.
pub(super) const FINE_BELOW: usize = 8;

/// Elements that share a scale when columns are many.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(super) const COARSE: usize = 16;

/// Columns of int8 activations with their scales and sums.
///
/// A value is `d * q`. A `d` is stored for every four elements, whether they have a scale of their own
/// or share it with twelve others; [`set_shape`](Self::set_shape) decides that. Each is also there as
/// an integer `step` times a `unit` for 32 elements. Beside the values
/// stand `s32`, the sum of the 32 values of a block, and `s16`, the same for each half: weight formats
/// with a minimum or a constant offset need only these for that part of a dot product.
///
/// The integers and the scales of each column start on a 64-byte line. Threads fill disjoint pieces through `&self`, so everything is
/// reached by the pointers below, never through the vectors that own the memory.
#[derive(Debug)]
pub struct QActs {
    k: usize,
    cols: usize,
    stride: usize,
    fine: bool,
    capacity: usize,
    base: Base,
    qs: Vec<i8>,
    steps: Vec<i16>,
    floats: [Vec<f32>; 4],
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Zeroes with a line to spare: unlike those of an aligned type, their pages cost nothing until written.
fn zeroes<T: Copy + Default>(n: usize) -> Vec<T> {
    vec![T::default(); n + LINE / size_of::<T>()]
}

/// Where the first line begins.
fn first_line<T>(storage: &mut [T]) -> *mut T {
    let at = storage.as_mut_ptr();
    at.wrapping_add(at.align_offset(LINE))
}

/// Where each kind of value begins.
#[derive(Debug, Clone, Copy)]
struct Base {
    q: *mut i8,
    d: *mut f32,
    step: *mut i16,
    unit: *mut f32,
    s32: *mut f32,
    s16: *mut f32,
}

// SAFETY: the pointers go to memory that the struct owns and never resizes; it is written only through `quantise`,
// whose contract keeps pieces written at the same time apart, and through `&mut self`.
unsafe impl Send for QActs {}
// SAFETY: as for Send.
unsafe impl Sync for QActs {}

impl QActs {
    /// Room for `max_cols` columns of `max_k` elements; its shape is that until
    /// [`set_shape`](Self::set_shape) says otherwise.
    ///
    /// # Panics
    /// When `max_k` is not a multiple of 32.
    pub fn new(max_cols: usize, max_k: usize) -> Self {
        let capacity = max_cols * max_k.next_multiple_of(64);
        let mut qs = zeroes(capacity);
        let mut floats = [LANE, 32, 32, 16].map(|group| zeroes(capacity / group));
        let mut steps = zeroes(capacity / 2);
        let [d, unit, s32, s16] = &mut floats;
        let base = Base {
            q: first_line(&mut qs),
            d: first_line(d),
            step: first_line(&mut steps),
            unit: first_line(unit),
            s32: first_line(s32),
            s16: first_line(s16),
        };
        let mut acts = Self {
            k: 0,
            cols: 0,
            stride: 0,
            fine: true,
            capacity,
            base,
            qs,
            steps,
            floats,
        };
        acts.set_shape(max_k, max_cols, max_cols);
        acts
    }

    /// Sets the column length and the number of columns; what was stored is no longer meaningful.
    ///
    /// `tokens` says how many tokens' worth of columns these are: up to seven get a scale for every 4 elements, more one for
    /// every 16.
    ///
    /// # Panics
    /// When `k` is not a multiple of 32, or `cols` columns of `k` elements do not fit.
    pub fn set_shape(&mut self, k: usize, cols: usize, tokens: usize) {
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
        self.fine = tokens < FINE_BELOW;
    }

    /// Elements in a column.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Whether every four elements have a scale of their own, rather than every sixteen.
    pub fn is_fine(&self) -> bool {
        self.fine
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> u64 {
        let floats = self
            .floats
            .iter()
            .map(|lines| size_of_val(lines.as_slice()));
        let integers = size_of_val(self.qs.as_slice()) + size_of_val(self.steps.as_slice());
        (integers + floats.sum::<usize>()) as u64
    }

    /// Quantises all of column `col` from `x`, `k` floats.
    ///
    /// # Panics
    /// When `col` or the length of `x` does not agree with the shape.
    pub fn set_column(&mut self, ops: &FloatOps, col: usize, x: &[f32]) {
        assert_eq!(x.len(), self.k, "a column has {} elements", self.k);
        // SAFETY: `self` is borrowed mutably: nothing else reads or writes.
        unsafe { self.quantise(ops, col, 0, x) }
    }

    /// Quantises `x` into column `col` from element `start` on.
    ///
    /// # Safety
    /// No other thread may read or write an overlapping piece of the same column at the same time.
    ///
    /// # Panics
    /// When `start` or the length of `x` is not a multiple of 32, or the piece leaves the column.
    pub unsafe fn quantise(&self, ops: &FloatOps, col: usize, start: usize, x: &[f32]) {
        let n = x.len();
        assert!(start.is_multiple_of(32) && n.is_multiple_of(32));
        assert!(start + n <= self.k, "piece leaves column");
        let at = self.at(col) + start;
        let base = self.base;
        let op = if self.fine {
            ops.quantise4
        } else {
            ops.quantise16
        };
        // SAFETY: `at + n` lies within the buffers by the assertions and `set_shape`; the caller
        // guarantees that nobody else touches this piece.
        unsafe {
            let out = Quantised {
                q: std::slice::from_raw_parts_mut(base.q.add(at), n),
                d: std::slice::from_raw_parts_mut(base.d.add(at / LANE), n / LANE),
                step: std::slice::from_raw_parts_mut(base.step.add(at / 2), n / 2),
                unit: std::slice::from_raw_parts_mut(base.unit.add(at / 32), n / 32),
                s32: std::slice::from_raw_parts_mut(base.s32.add(at / 32), n / 32),
                s16: std::slice::from_raw_parts_mut(base.s16.add(at / 16), n / 16),
            };
            op(x, out);
        }
    }

    fn at(&self, col: usize) -> usize {
        assert!(col < self.cols, "column {col} of {}", self.cols);
        col * self.stride
    }

    /// Where the kernels read column `col` from.
    pub(super) fn column(&self, col: usize) -> Column {
        let (at, base) = (self.at(col), self.base);
        // SAFETY: `at` is the start of a column, inside the buffers by `set_shape`.
        unsafe {
            Column {
                q: base.q.add(at),
                d: base.d.add(at / LANE),
                step: base.step.add(at / 2),
                unit: base.unit.add(at / 32),
                s32: base.s32.add(at / 32),
                s16: base.s16.add(at / 16),
            }
        }
    }
}

/// For tests: the values of a column, while nobody writes.
#[cfg(test)]
impl QActs {
    /// The integers, `k` of them.
    pub(super) fn qs(&self, col: usize) -> &[i8] {
        // SAFETY: a column is inside the buffers; tests write through `&mut self` or have joined their threads.
        unsafe { std::slice::from_raw_parts(self.column(col).q, self.k) }
    }

    /// The scales, one for 4 elements.
    pub(super) fn d(&self, col: usize) -> &[f32] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.column(col).d, self.k / LANE) }
    }

    /// The sum of each 32 values.
    pub(super) fn s32(&self, col: usize) -> &[f32] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.column(col).s32, self.k / 32) }
    }

    /// The sum of each 16 values.
    pub(super) fn s16(&self, col: usize) -> &[f32] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.column(col).s16, self.k / 16) }
    }
}

/// One column of [`QActs`] as raw pointers.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(super) struct Column {
    pub(super) q: *const i8,
    pub(super) d: *const f32,
    /// Two for every [`LANE`].
    pub(super) step: *const i16,
    pub(super) unit: *const f32,
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
                d: self.d.add(at / LANE),
                step: self.step.add(at / 2),
                unit: self.unit.add(at / 32),
                s32: self.s32.add(at / 32),
                s16: self.s16.add(at / 16),
            }
        }
    }
}
