//! The runs that a command of the tuner was given.

use super::store::open_existing;
use anyhow::Context;
use cbtop::tuner::run::Run;
use cbtop::tuner::store::{dataset, json, quality};
use std::path::{Path, PathBuf};

/// The runs of all that was named, each once; of the user's own store where nothing was. Those that break a rule of quality
/// are left out unless `all`. Beside them the number that was read.
pub fn read(
    data: &[PathBuf],
    store: Option<&Path>,
    all: bool,
) -> anyhow::Result<(Vec<Run>, usize)> {
    let mut runs = Vec::new();
    for path in data {
        let of_path = if json::is_json(path) {
            json::read(path)?
        } else {
            dataset::read(path)?
        };
        runs.extend(of_path);
    }
    if store.is_some() || data.is_empty() {
        let store = open_existing(store)?;
        runs.extend(store.runs().context("reading the run store")?);
    }
    let mut runs = dataset::each_once(runs);
    let read = runs.len();
    if !all {
        let verdicts = quality::judge(&runs);
        let mut verdicts = verdicts.iter();
        runs.retain(|_| verdicts.next().is_some_and(quality::Verdict::accepted));
    }
    Ok((runs, read))
}
