//! `cbtop tune import` and `cbtop tune export`.

use super::open_store;
use crate::cli::tune::{ExportArgs, ExportFormat, ImportArgs};
use anyhow::{Context, bail};
use cbtop::tuner::run::Run;
use cbtop::tuner::store::{dataset, json, parquet, public, quality};
use cbtop::tuner::telemetry;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

fn extension(path: &Path) -> &str {
    path.extension().and_then(|e| e.to_str()).unwrap_or("")
}

fn read(path: &Path) -> anyhow::Result<Vec<Run>> {
    if path.is_dir() {
        return Ok(dataset::read(path)?);
    }
    match extension(path) {
        "parquet" => Ok(parquet::read(path)?),
        _ if json::is_json(path) => Ok(json::read(path)?),
        _ => bail!(
            "{}: runs are in *.jsonl, *.parquet or a folder of *.parquet; give the file such a name",
            path.display()
        ),
    }
}

/// Takes runs into the store; all files are read before anything is kept.
pub fn import(args: &ImportArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let mut runs = Vec::new();
    for path in &args.files {
        let of_file = read(path)?;
        writeln!(out, "{}: {} runs", path.display(), of_file.len())?;
        runs.extend(of_file);
    }
    if let (Some(reports), Some(hardware)) = (&args.public, &args.hardware) {
        let import = public::import(reports, hardware)?;
        writeln!(out, "{}: {import}", reports.display())?;
        runs.extend(import.runs);
    }
    let verdicts = quality::judge(&runs);
    writeln!(out, "{}", quality::summary(&verdicts))?;
    let mut store = open_store(args.store.store.as_deref())?;
    let added = store.insert_all(&runs)?;
    let there = runs.len() - added.min(runs.len());
    let path = store.path().display();
    writeln!(out, "{added} runs added to {path}, {there} were there")?;
    Ok(ExitCode::SUCCESS)
}

/// Writes all runs of the store.
pub fn export(args: &ExportArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let store = open_existing(args.store.store.as_deref())?;
    let runs = store.runs()?;
    let to = args.out.as_path();
    if to.as_os_str() == "-" {
        if args.format.is_some_and(|f| f != ExportFormat::Json) {
            bail!("standard output takes JSON lines only; name a file with --out");
        }
        json::write_to(out, &runs)?;
        return Ok(ExitCode::SUCCESS);
    }
    let by_name = match extension(to) {
        "parquet" => ExportFormat::Parquet,
        _ if json::is_json(to) => ExportFormat::Json,
        _ => ExportFormat::Dataset,
    };
    let format = args.format.unwrap_or(by_name);
    if to.is_file() && format != ExportFormat::Dataset {
        let whole = |path: &Path| path.canonicalize().ok();
        if whole(to).is_some() && whole(to) == whole(store.path()) {
            bail!(
                "{}: is the store that is read; name another file",
                to.display()
            );
        }
        if !args.force {
            bail!("{}: is there already; --force replaces it", to.display());
        }
    }
    match format {
        ExportFormat::Parquet => parquet::write(to, &runs)?,
        ExportFormat::Json => json::write(to, &runs)?,
        ExportFormat::Dataset => dataset::write(to, &runs)?,
        ExportFormat::Anonymous => telemetry::write(to, &runs)?,
    }
    writeln!(out, "{} runs written to {}", runs.len(), to.display())?;
    Ok(ExitCode::SUCCESS)
}

/// A store to read from: one that was named must be there, the user's own may still be empty.
pub(super) fn open_existing(named: Option<&Path>) -> anyhow::Result<cbtop::tuner::store::Store> {
    if let Some(path) = named {
        std::fs::metadata(path).with_context(|| format!("{}", path.display()))?;
    }
    open_store(named)
}
