//! Runs as JSON lines: one object a line, with the names of [`Run`].

use super::columns;
use super::files::{DataError, write_whole};
use crate::tuner::run::Run;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

/// Longest line, bytes; a run has about one thousand.
const MAX_LINE: u64 = 1 << 20;

/// Whether a file is of JSON lines, by its name.
pub fn is_json(path: &Path) -> bool {
    let ext = path.extension().and_then(|e| e.to_str());
    ext.is_some_and(|e| ["json", "jsonl", "ndjson"].contains(&e))
}

/// Writes runs, a line each.
///
/// # Errors
/// A writer that fails.
pub fn write_to(out: &mut impl Write, runs: &[Run]) -> std::io::Result<()> {
    for run in runs {
        serde_json::to_writer(&mut *out, run)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Writes a file of runs.
///
/// # Errors
/// A file that cannot be written.
pub fn write(path: &Path, runs: &[Run]) -> Result<(), DataError> {
    write_whole(path, |out| write_to(out, runs)).map_err(DataError::io(path))
}

/// Reads a file of runs.
///
/// # Errors
/// A file that cannot be read, or the first line that is no run.
pub fn read(path: &Path) -> Result<Vec<Run>, DataError> {
    let file = File::open(path).map_err(DataError::io(path))?;
    read_from(BufReader::new(file), path)
}

/// Reads runs; `path` is for messages.
///
/// # Errors
/// As [`read`].
pub fn read_from(mut from: impl BufRead, path: &Path) -> Result<Vec<Run>, DataError> {
    let mut runs = Vec::new();
    let mut line = Vec::new();
    for row in 1.. {
        line.clear();
        let mut one = from.by_ref().take(MAX_LINE + 1);
        let read = one.read_until(b'\n', &mut line);
        let length = read.map_err(DataError::io(path))?;
        if length as u64 > MAX_LINE {
            let what =
                format!("line {row} has more than {MAX_LINE} bytes: this is no file of runs");
            return Err(DataError::format(path, what));
        }
        if length == 0 {
            break;
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let run: Run = serde_json::from_slice(&line)
            .map_err(|e| DataError::format(path, format!("line {row} is no run: {e}")))?;
        columns::check(&run).map_err(|source| DataError::Row {
            path: path.to_owned(),
            row,
            source,
        })?;
        runs.push(run);
    }
    Ok(runs)
}
