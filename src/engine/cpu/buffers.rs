//! Activation buffers that the pool's threads share, each writing its own part.

use super::pages::Zeroes;

/// Floats in a cache line.
const LINE: usize = 16;

/// `cols` columns of `dim` floats, column by column, each starting on a cache line.
pub struct Columns {
    storage: Zeroes<f32>,
    base: *mut f32,
    dim: usize,
    stride: usize,
    cols: usize,
}

// SAFETY: `base` points into `storage`, which is never resized; access through `&self` is by the unsafe methods below, whose
// callers keep writers apart.
unsafe impl Send for Columns {}
// SAFETY: as above.
unsafe impl Sync for Columns {}

impl Columns {
    /// Zeroed columns.
    pub fn new(dim: usize, cols: usize) -> Self {
        let stride = dim.next_multiple_of(LINE);
        let mut storage = Zeroes::new(stride * cols);
        let base = storage.as_mut_ptr();
        Self {
            storage,
            base,
            dim,
            stride,
            cols,
        }
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> u64 {
        self.storage.bytes() as u64
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Floats of a column.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Floats from one column to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Pointer to the first column.
    pub fn as_mut_ptr(&self) -> *mut f32 {
        self.base
    }

    /// Column `c`, `[dim]`, for reading.
    ///
    /// # Safety
    /// No thread writes to this column meanwhile.
    pub unsafe fn col(&self, c: usize) -> &[f32] {
        assert!(c < self.cols);
        // SAFETY: in bounds by the assertion; no writer by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.base.add(c * self.stride), self.dim) }
    }

    /// The first `cols` columns with what lies between them, `[cols * stride]`.
    ///
    /// # Safety
    /// No thread writes to these columns meanwhile.
    pub unsafe fn all(&self, cols: usize) -> &[f32] {
        assert!(cols <= self.cols);
        // SAFETY: in bounds by the assertion; no writer by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.base, cols * self.stride) }
    }

    /// Elements `start..start + len` of column `c`, for reading.
    ///
    /// # Safety
    /// No thread writes to these elements meanwhile.
    pub unsafe fn part(&self, c: usize, start: usize, len: usize) -> &[f32] {
        assert!(c < self.cols && start + len <= self.dim);
        // SAFETY: in bounds by the assertion; no writer by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.base.add(c * self.stride + start), len) }
    }

    /// Elements `start..start + len` of column `c`, for writing.
    ///
    /// # Safety
    /// No other thread reads or writes these elements meanwhile, and the caller holds no other reference to them.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn part_mut(&self, c: usize, start: usize, len: usize) -> &mut [f32] {
        assert!(c < self.cols && start + len <= self.dim);
        // SAFETY: in bounds by the assertion; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(c * self.stride + start), len) }
    }

    /// The whole column `c`, for writing.
    ///
    /// # Safety
    /// As [`Self::part_mut`].
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn col_mut(&self, c: usize) -> &mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { self.part_mut(c, 0, self.dim) }
    }
}

/// The even share `part` of `parts` of `0..n`, sizes differing by at most one: what oneDNN calls balance211. Of no parts
/// there is one.
pub fn share(n: usize, part: usize, parts: usize) -> std::ops::Range<usize> {
    let parts = parts.max(1);
    let (base, extra) = (n / parts, n % parts);
    let start = part * base + part.min(extra);
    start..(start + base + usize::from(part < extra)).min(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn f160_shares_cover_everything_evenly(n in prop_oneof![0usize..500, any::<u32>().prop_map(|n| n as usize)], parts in 0usize..600) {
            let mut next = 0;
            let (mut lo, mut hi) = (usize::MAX, 0);
            for p in 0..parts.max(1) {
                let r = share(n, p, parts);
                prop_assert_eq!(r.start, next);
                next = r.end;
                lo = lo.min(r.len());
                hi = hi.max(r.len());
            }
            prop_assert_eq!(next, n);
            prop_assert!(hi - lo <= 1);
        }
    }

    #[test]
    fn columns_are_aligned_and_apart() {
        let c = Columns::new(17, 3);
        assert_eq!(c.as_mut_ptr() as usize % 64, 0);
        assert_eq!(c.stride(), 32);
        // SAFETY: one thread.
        unsafe {
            c.col_mut(1).fill(1.0);
            assert!(c.col(0).iter().chain(c.col(2)).all(|&v| v == 0.0));
        }
    }
}
