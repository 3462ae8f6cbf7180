//! Recordings: the snapshots of a session, saved as it runs and played again.
//!
//! - [`format`]: the bytes of a file: a header, then frames that each carry their length, checksum and time
//! - [`fields`]: a snapshot as named JSON values, and what changed between two
//! - [`Recorder`]: takes snapshots, on a thread of its own writes them; never waits for the disk
//! - [`Recording`]: reads whatever is whole in a file, in any order
//! - [`replay`]: plays one to the dashboard, in the place of a session

mod encode;
pub mod fields;
pub mod format;
mod reader;
pub mod replay;
mod round;
mod writer;

pub use reader::Recording;
pub use writer::{Recorder, Summary, Tap, check};

use std::io;
use std::path::{Path, PathBuf};

/// Why a recording cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The system.
    #[error("{path}: {what}: {source}", path = path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// There is a recording or an empty file already.
    #[error("{0}: there is such a file already; give another name, or --force to replace it")]
    Exists(PathBuf),
    /// There is something else already.
    #[error("{0}: this is no recording, and nothing else is replaced; give another name")]
    NotReplaced(PathBuf),
    /// It does not begin as a recording does.
    #[error("{0}: not a recording of cbtop (it does not begin with cbtoprec)")]
    NotARecording(PathBuf),
    /// A version that this program does not read.
    #[error(
        "{path}: a recording of version {version}; this cbtop reads version {known}",
        path = path.display(),
        known = format::VERSION
    )]
    Version {
        /// Which file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// The header is damaged or cut off.
    #[error("{0}: the header of the recording is damaged; it cannot be replayed")]
    Header(PathBuf),
    /// No frame is whole.
    #[error("{0}: there is no readable frame in this recording")]
    Empty(PathBuf),
    /// A frame cannot be read.
    #[error("frame {frame} cannot be read: {why}")]
    Frame {
        /// Which, from 0.
        frame: usize,
        /// What is wrong with it.
        why: String,
    },
}

impl RecordingError {
    fn io(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, what, source }
    }
}

#[cfg(test)]
mod tests;
