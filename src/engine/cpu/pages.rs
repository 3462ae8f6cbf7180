//! Zeroed memory that costs nothing until it is written, aligned to cache lines.
//!
//! Large pieces come from the system itself: the allocator clears what it hands out a second time, and once a large piece
//! was freed it keeps large pieces on its heap, so that a kv cache of 8,192 tokens would be resident for a prompt of five.

use memmap2::MmapMut;
use std::io;

/// Bytes of a cache line.
const LINE: usize = 64;
/// From this size on memory comes from the system.
const LARGE: usize = 64 << 10;

/// `n` zeroes.
#[derive(Debug)]
pub(super) struct Zeroes<T> {
    memory: Memory<T>,
    n: usize,
}

#[derive(Debug)]
enum Memory<T> {
    Pages(MmapMut),
    /// With a line to spare.
    Heap(Vec<T>),
}

impl<T: Copy + Default> Zeroes<T> {
    /// Asks for `n` of them.
    ///
    /// # Errors
    /// The system does not have that much.
    pub fn try_new(n: usize) -> io::Result<Self> {
        let bytes = n
            .checked_mul(size_of::<T>())
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = if bytes >= LARGE {
            Memory::Pages(MmapMut::map_anon(bytes)?)
        } else {
            Memory::Heap(vec![T::default(); n + LINE / size_of::<T>()])
        };
        Ok(Self { memory, n })
    }

    /// `n` of them; where the system has no such piece, the allocator decides.
    pub fn new(n: usize) -> Self {
        Self::try_new(n).unwrap_or_else(|_| Self {
            memory: Memory::Heap(vec![T::default(); n + LINE / size_of::<T>()]),
            n,
        })
    }

    /// The first element, on a cache line. Stays where it is.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        match &mut self.memory {
            Memory::Pages(map) => map.as_mut_ptr().cast(),
            Memory::Heap(storage) => {
                let at = storage.as_mut_ptr();
                at.wrapping_add(at.align_offset(LINE))
            }
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Bytes of all elements.
    pub fn bytes(&self) -> usize {
        self.n * size_of::<T>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zero_aligned_and_as_long_as_asked_for() {
        for n in [0, 1, 15, 16, 17, 1000, LARGE / 4 - 1, LARGE / 4, 1 << 20] {
            let mut zeroes = Zeroes::<f32>::try_new(n).expect("enough memory");
            let at = zeroes.as_mut_ptr();
            assert_eq!(at as usize % LINE, 0);
            assert_eq!((zeroes.len(), zeroes.bytes()), (n, 4 * n));
            // SAFETY: `n` elements from `at`, which nobody else uses.
            let all = unsafe { std::slice::from_raw_parts_mut(at, n) };
            assert!(all.iter().all(|v| *v == 0.0));
            all.fill(1.0);
            assert_eq!(zeroes.as_mut_ptr(), at);
        }
    }

    #[test]
    fn too_much_is_an_error() {
        assert!(Zeroes::<f32>::try_new(usize::MAX).is_err());
        assert!(Zeroes::<f32>::try_new(usize::MAX / 8).is_err());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn untouched_memory_is_not_resident() {
        let resident = || crate::profiler::os::resident_bytes();
        let before = resident();
        let mut zeroes = Zeroes::<f32>::new(64 << 20);
        let after = resident();
        std::hint::black_box(zeroes.as_mut_ptr());
        if let (Some(before), Some(after)) = (before, after) {
            // Other tests run beside this one; 256 MiB are more than they use.
            assert!(after < before + (128 << 20), "{before} {after}");
        }
    }
}
