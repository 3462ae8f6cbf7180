//! Headers: fields at fixed places, little endian, sealed by a checksum in the last four bytes from version 2 on.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::error::{Problem, StoreError};

/// Bytes of a header. Places given to its methods are constants of the layouts and lie inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head<const N: usize>(pub [u8; N]);

impl<const N: usize> Head<N> {
    pub fn new(magic: [u8; 4], version: u32) -> Self {
        let mut head = Self([0; N]);
        head.put(0, &magic);
        head.put_u32(4, version);
        head
    }

    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub fn put_u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    pub fn put_u64(&mut self, at: usize, value: u64) {
        self.put(at, &value.to_le_bytes());
    }

    pub fn get<const K: usize>(&self, at: usize) -> [u8; K] {
        let mut bytes = [0; K];
        bytes.copy_from_slice(&self.0[at..at + K]);
        bytes
    }

    pub fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.get(at))
    }

    pub fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.get(at))
    }

    pub fn version(&self) -> u32 {
        self.u32(4)
    }

    /// The checksum of all bytes before it, and of what belongs to the header but stands after it.
    fn checksum(&self, more: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.0[..N - 4]);
        hasher.update(more);
        hasher.finalize()
    }

    pub fn seal(mut self, more: &[u8]) -> Self {
        let sum = self.checksum(more);
        self.put_u32(N - 4, sum);
        self
    }

    pub fn check_seal(&self, more: &[u8]) -> Result<(), Problem> {
        if self.u32(N - 4) == self.checksum(more) {
            Ok(())
        } else {
            Err(Problem::HeaderChecksum)
        }
    }

    /// Bytes that no version up to this one uses.
    pub fn check_unused(&self, from: usize, to: usize) -> Result<(), Problem> {
        match self.0[from..to].iter().find(|&&b| b != 0) {
            None => Ok(()),
            Some(&b) => Err(Problem::Field {
                field: "unused bytes",
                value: b.into(),
                must: "0",
            }),
        }
    }

    /// A count or size that is not 0.
    pub fn positive(&self, at: usize, field: &'static str) -> Result<u32, Problem> {
        match self.u32(at) {
            0 => Err(Problem::Field {
                field,
                value: 0,
                must: "1 or more",
            }),
            n => Ok(n),
        }
    }
}

/// Opens a regular file for reading; `write` to change it in place.
pub(in crate::trace) fn open_file(path: &Path, write: bool) -> Result<File, StoreError> {
    if cfg!(target_endian = "big") {
        return Err(StoreError::new(path, Problem::BigEndian));
    }
    let not_there = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => StoreError::new(path, Problem::NotFound),
        _ => StoreError::io(path, "opening")(e),
    };
    // Asked before opening: opening a named pipe would wait for its writer.
    if !fs::metadata(path).map_err(not_there)?.is_file() {
        return Err(StoreError::new(path, Problem::NotRegular));
    }
    File::options()
        .read(true)
        .write(write)
        .open(path)
        .map_err(not_there)
}

/// The header of an open file with the file's length; magic and version are checked, the seal is not.
pub(super) fn read_head<const N: usize>(
    file: &File,
    path: &Path,
    magic: [u8; 4],
    wanted: &'static str,
) -> Result<(Head<N>, u64), StoreError> {
    let fail = |problem| StoreError::new(path, problem);
    let mut head = Head([0; N]);
    let mut filled = 0;
    while let Some(rest) = head.0.get_mut(filled..).filter(|r| !r.is_empty()) {
        match file.read_at(rest, filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(StoreError::io(path, "reading the header")(e)),
        }
    }
    // The length after the header: a writer that appends makes the file longer before the header says so.
    let len = file
        .metadata()
        .map_err(StoreError::io(path, "looking at its length"))?
        .len();
    if filled < 4 {
        return Err(fail(Problem::TooShort {
            len,
            needed: N as u64,
        }));
    }
    if head.get(0) != magic {
        let found = head.0[..4].escape_ascii().to_string();
        return Err(fail(Problem::Magic { found, wanted }));
    }
    if filled < N {
        return Err(fail(Problem::TooShort {
            len,
            needed: N as u64,
        }));
    }
    match head.version() {
        1 | 2 => Ok((head, len)),
        other => Err(fail(Problem::Version(other))),
    }
}

/// Reads again where the file was caught between two states of a writer that appends to it.
pub(super) fn settled<T>(mut read: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    for _ in 0..4 {
        match read() {
            Err(StoreError {
                problem: Problem::HeaderChecksum | Problem::TooShort { .. },
                ..
            }) => thread::sleep(Duration::from_millis(1)),
            other => return other,
        }
    }
    read()
}
