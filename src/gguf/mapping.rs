//! The one place where files are memory-mapped.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use memmap2::{Advice, Mmap, MmapOptions};

/// The first bytes of a file, mapped read-only. They begin at a page, so at an address that any number type is aligned
/// to. Cheap to share between threads by reference.
#[derive(Debug)]
pub struct Mapping(Mmap);

impl Mapping {
    /// Maps a regular file from its beginning to its present end.
    ///
    /// # Errors
    /// The system refuses the mapping, as it does for a pipe.
    pub fn whole(file: &File) -> io::Result<Self> {
        // SAFETY: as below; without a length the system's own is taken.
        unsafe { Mmap::map(file) }.map(Self)
    }

    /// Maps the first `len` bytes of a regular file, which has to be that long.
    ///
    /// # Errors
    /// The file is shorter, or the system refuses the mapping.
    pub fn first(file: &File, len: usize) -> io::Result<Self> {
        if file.metadata()?.len() < len as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: the mapping is read-only, and is only ever read as plain bytes, for which any content is valid. What
        // no program can rule out is another process changing the file meanwhile: changed bytes give wrong numbers, and
        // a file truncated below a page in use ends the program with SIGBUS, as it does every program that maps its
        // files. Readers check all lengths once, at open, against the length of this mapping.
        unsafe { MmapOptions::new().len(len).map(file) }.map(Self)
    }

    /// The bytes mapped.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Best effort: advice that the system refuses changes speed, not results.
    pub(super) fn advise(&self, advice: Advice) -> bool {
        self.0.advise(advice).is_ok()
    }
}
