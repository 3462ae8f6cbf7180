//! Files of runs: what can go wrong with them, and writing them whole.

use super::columns::RowError;
use std::fs::{File, Permissions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Runs that cannot be read from or written to a file.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The system does not let it be.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not what it should be.
    #[error("{path}: {what}")]
    Format {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong, and what to do where that is not plain.
        what: String,
    },
    /// A row is no run.
    #[error("{path}, row {row}: {source}")]
    Row {
        /// The file.
        path: PathBuf,
        /// Row or line, from 1.
        row: u64,
        /// The column.
        source: RowError,
    },
}

impl DataError {
    /// An error of the system at `path`.
    pub(super) fn io(path: &Path) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Io {
            path: path.to_owned(),
            source,
        }
    }

    /// Contents that are not what they should be.
    pub(super) fn format(path: &Path, what: impl Into<String>) -> Self {
        Self::Format {
            path: path.to_owned(),
            what: what.into(),
        }
    }
}

/// Writes a file under another name beside it first: what was there stays whole until the new one is on disk. Others may
/// read it, as far as the user's mask lets them.
///
/// # Errors
/// A folder that cannot be written, or what `write` says.
pub fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> std::io::Result<()>,
) -> std::io::Result<()> {
    // A pipe or a device would be replaced by a file.
    if path.exists() && !path.is_file() {
        return Err(std::io::Error::other("it is no file"));
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    // The leading dot keeps a half-written file out of what reads the folder.
    builder.prefix(".cbtop-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(Permissions::from_mode(0o644));
    }
    let file = builder.tempfile_in(folder).map_err(without_name)?;
    let mut out = BufWriter::new(file.as_file());
    write(&mut out)?;
    out.flush()?;
    drop(out);
    file.as_file().sync_all()?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// The error without the name of the file beside, which says nothing to the user.
fn without_name(e: std::io::Error) -> std::io::Error {
    let inner = std::error::Error::source(&e).and_then(|s| s.downcast_ref::<std::io::Error>());
    let code = inner.and_then(std::io::Error::raw_os_error);
    code.map_or(e, std::io::Error::from_raw_os_error)
}
