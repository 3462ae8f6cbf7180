//! Runs of many machines in a folder: `origin=collect/machine=<fingerprint>/part-<hash>.parquet`.
//!
//! Names of the form `key=value` are what DuckDB and Spark call hive partitions. Folders of several machines are put
//! together by copying them over each other: parts have a hash of their content in their name, and a run that is in
//! several of them is read once.

use super::files::{DataError, write_whole};
use super::parquet;
use crate::profiler::graph::fnv1a_64;
use crate::tuner::run::Run;
use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};

/// How deep folders are followed.
const MAX_DEPTH: usize = 16;
/// Most files of a data set.
const MAX_FILES: usize = 100_000;
/// Longest name of a machine's folder.
const MAX_NAME: usize = 200;

/// Writes runs into a folder, a file for every origin and machine. What is there already stays.
///
/// # Errors
/// A run that may not be kept, or a folder that cannot be written.
pub fn write(dir: &Path, runs: &[Run]) -> Result<(), DataError> {
    let mut parts: BTreeMap<(&str, &str), Vec<Run>> = BTreeMap::new();
    for run in runs {
        let key = (run.origin.name(), run.trial.hardware.fingerprint.as_str());
        parts.entry(key).or_default().push(run.clone());
    }
    for ((origin, fingerprint), runs) in parts {
        let folder = dir
            .join(format!("origin={origin}"))
            .join(format!("machine={}", folder_name(fingerprint)));
        let bytes = parquet::to_bytes(&folder, &runs)?;
        std::fs::create_dir_all(&folder).map_err(DataError::io(&folder))?;
        let file = folder.join(format!("part-{:016x}.parquet", fnv1a_64(&bytes)));
        write_whole(&file, |out| out.write_all(&bytes)).map_err(DataError::io(&file))?;
    }
    Ok(())
}

/// `name` with what may not be in a folder's name as `%xx`, as hive writes it.
fn folder_name(name: &str) -> String {
    let mut safe = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                safe.push(char::from(byte));
            }
            _ => safe.push_str(&format!("%{byte:02X}")),
        }
    }
    if safe.len() > MAX_NAME {
        safe = format!("{:016x}", fnv1a_64(name.as_bytes()));
    }
    safe
}

/// Reads all runs of the `*.parquet` files at or below a path, each once, in the order of the files' names. Names that
/// begin with a dot or an underscore are left out, and so are links.
///
/// # Errors
/// A folder without such files, or a file that is no file of runs.
pub fn read(path: &Path) -> Result<Vec<Run>, DataError> {
    let meta = std::fs::metadata(path).map_err(DataError::io(path))?;
    let mut files = Vec::new();
    if meta.is_dir() {
        find(path, 0, &mut files)?;
    } else {
        files.push(path.to_owned());
    }
    if files.is_empty() {
        let what = "no *.parquet file below it; `cbtop tune export` writes them";
        return Err(DataError::format(path, what));
    }
    let mut runs = Vec::new();
    for file in files {
        runs.extend(parquet::read(&file)?);
    }
    Ok(each_once(runs))
}

/// The runs without those that are there before: the same in trial, origin, source, time and rate.
pub fn each_once(mut runs: Vec<Run>) -> Vec<Run> {
    let mut seen = HashSet::new();
    runs.retain(|r| {
        let rate = r.tok_s.to_bits();
        seen.insert((r.trial.key(), r.origin, r.source.clone(), r.unix_s, rate))
    });
    runs
}

fn find(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), DataError> {
    let io = DataError::io(folder);
    if depth > MAX_DEPTH {
        let what = format!("folders deeper than {MAX_DEPTH} are not followed");
        return Err(DataError::format(folder, what));
    }
    let entries = std::fs::read_dir(folder).map_err(&io)?;
    let mut entries = entries.collect::<Result<Vec<_>, _>>().map_err(&io)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let hidden = matches!(name.as_encoded_bytes().first(), Some(b'.' | b'_'));
        let kind = entry.file_type().map_err(&io)?;
        let path = entry.path();
        if hidden || kind.is_symlink() {
            continue;
        }
        if kind.is_dir() {
            find(&path, depth + 1, files)?;
        } else if kind.is_file() && path.extension().is_some_and(|e| e == "parquet") {
            if files.len() == MAX_FILES {
                let what = format!("more than {MAX_FILES} files; put them together first");
                return Err(DataError::format(folder, what));
            }
            files.push(path);
        }
    }
    Ok(())
}
