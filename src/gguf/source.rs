//! Where a file's bytes live: mapped, embedded in the program, or on the heap.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

use memmap2::{Advice, Mmap};

use super::error::GgufError;

#[derive(Debug)]
pub(super) enum Source {
    Map(Mmap),
    Static(&'static [u8]),
    Owned(Vec<u8>),
}

impl Source {
    pub fn map(path: &Path) -> Result<Self, GgufError> {
        let io = |source: std::io::Error| match source.kind() {
            ErrorKind::NotFound => GgufError::NotFound {
                path: path.to_owned(),
            },
            _ => GgufError::Io {
                path: path.to_owned(),
                source,
            },
        };
        // Asked before opening: opening a named pipe would wait for its writer.
        let kind = fs::metadata(path).map_err(io)?;
        if kind.is_dir() {
            return Err(GgufError::Directory {
                path: path.to_owned(),
            });
        }
        if !kind.is_file() {
            return Err(GgufError::NotRegular {
                path: path.to_owned(),
            });
        }
        if kind.len() == 0 {
            return Err(GgufError::Empty {
                file: path.display().to_string(),
            });
        }
        let file = File::open(path).map_err(io)?;
        // SAFETY: the mapping is private and read-only, and is only ever read as plain bytes, for which any content is
        // valid. What no program can rule out is another process changing the file meanwhile: changed weights give
        // wrong numbers, and a file truncated below a page in use ends the program with SIGBUS, as it does every
        // program that maps its model. All lengths are checked once, at open, against the length of this mapping.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        Ok(Source::Map(map))
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            Source::Map(map) => map,
            Source::Static(bytes) => bytes,
            Source::Owned(bytes) => bytes,
        }
    }

    /// Best effort: advice that the system refuses changes speed, not results.
    pub fn advise(&self, advice: Advice) {
        if let Source::Map(map) = self {
            let _ = map.advise(advice);
        }
    }
}
