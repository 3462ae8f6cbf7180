//! A copy of a file in memory of our own, aligned for direct I/O and for huge pages.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use memmap2::{Advice, MmapMut};

/// What direct I/O wants addresses, offsets and lengths to be multiples of. No file system asks for more.
pub(super) const DIRECT_ALIGNMENT: usize = 4096;
/// A huge page of x86-64, and of aarch64 with pages of 4 KiB.
const HUGE_PAGE: usize = 2 << 20;
/// Bytes of one read: large enough that a call costs nothing, small enough to be interrupted.
const PIECE: usize = 8 << 20;

/// `len` bytes that begin on a huge page's boundary; pages cost nothing until written.
#[derive(Debug)]
pub(super) struct Buffer {
    map: MmapMut,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Zeroes, with room to a multiple of [`DIRECT_ALIGNMENT`] behind them.
    pub fn new(len: usize, huge_pages: bool) -> io::Result<Self> {
        let padded = len
            .checked_next_multiple_of(DIRECT_ALIGNMENT)
            .and_then(|n| n.checked_add(HUGE_PAGE))
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let map = MmapMut::map_anon(padded)?;
        let start = map.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE);
        #[cfg(target_os = "linux")]
        if huge_pages {
            // Best effort: a system without huge pages runs with small ones.
            let _ = map.advise(Advice::HugePage);
        }
        Ok(Self { map, start, len })
    }

    /// The copy.
    pub fn bytes(&self) -> &[u8] {
        self.map
            .get(self.start..self.start + self.len)
            .unwrap_or_default()
    }

    /// The copy and the room behind it.
    fn padded_mut(&mut self) -> &mut [u8] {
        let end = self.start + self.len.next_multiple_of(DIRECT_ALIGNMENT);
        self.map.get_mut(self.start..end).unwrap_or_default()
    }

    /// Reads `len` bytes of a file from its start, in pieces that direct I/O allows.
    ///
    /// # Errors
    /// Those of the file; [`io::ErrorKind::UnexpectedEof`] when it has become shorter.
    pub fn read(file: &File, len: usize, huge_pages: bool) -> io::Result<Self> {
        let mut buffer = Self::new(len, huge_pages)?;
        let mut done = 0;
        while done < len {
            let target = buffer.padded_mut();
            let end = (done + PIECE).min(target.len());
            let piece = target.get_mut(done..end).unwrap_or_default();
            match file.read_at(piece, done as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(buffer)
    }
}

/// Opens a file past the page cache.
///
/// # Errors
/// Those of the system; `EINVAL` where the file system does not do that.
#[cfg(target_os = "linux")]
pub(super) fn open_direct(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
}

/// Opens a file past the page cache: not on this system.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub(super) fn open_direct(_: &Path) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(bytes).expect("written");
        file
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
        #[test]
        fn f157_direct_reads_are_aligned_and_complete(len in 1usize..40_000, huge in any::<bool>()) {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
            let file = file(&bytes);
            let mut ways = vec![File::open(file.path()).expect("opened")];
            // Where the file system has no direct I/O, only the plain read is tested.
            ways.extend(open_direct(file.path()));
            for way in ways {
                let Ok(buffer) = Buffer::read(&way, len, huge) else { continue };
                prop_assert_eq!(buffer.bytes().as_ptr() as usize % DIRECT_ALIGNMENT, 0);
                prop_assert_eq!(buffer.bytes(), &bytes[..]);
            }
            prop_assert_eq!(PIECE % DIRECT_ALIGNMENT, 0);
        }
    }

    #[test]
    fn a_file_that_shrank_is_an_error() {
        let file = file(&[1; 100]);
        let error = Buffer::read(file.as_file(), 101, false).expect_err("too short");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn absurd_lengths_are_refused() {
        assert!(Buffer::new(usize::MAX - 5, false).is_err());
        assert!(Buffer::new(usize::MAX / 2, true).is_err());
    }
}
