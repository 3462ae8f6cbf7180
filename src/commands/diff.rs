//! `cbtop diff`: two runs compared, for people and for CI.

use super::printable;
use crate::cli::DiffArgs;
use anyhow::{Context, anyhow, bail};
use cbtop::headless::Report;
use cbtop::headless::diff::text::{self, Style};
use cbtop::headless::diff::{Check, Diff, compare};
use cbtop::headless::report::SCHEMA_VERSION;
use cbtop::recording::{Recording, format::MAGIC};
use cbtop::session::snapshot::Snapshot;
use cbtop::tui;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;

/// Largest report read.
const MAX_REPORT: u64 = 256 << 20;
const FAILED: u8 = 1;

#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    diff: &'a Diff,
    /// Of `--fail-above`.
    check: Option<&'a Check>,
}

/// Compares, prints, and with `--fail-above` judges.
pub fn run(args: &DiffArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let (a, b) = (load(&args.before)?, load(&args.after)?);
    let diff = compare(&a, &b);
    let check = match args.fail_above {
        None => None,
        Some(above) => Some(diff.check(above).ok_or_else(|| unjudged(&diff))?),
    };
    if args.json {
        let check = check.as_ref();
        serde_json::to_writer_pretty(&mut *out, &Printed { diff: &diff, check })?;
        writeln!(out)?;
    } else {
        let style = Style {
            colour: std::io::stdout().is_terminal()
                && !tui::no_colour(|name| std::env::var(name).ok()),
        };
        let [a, b] = [&args.before, &args.after].map(|p| p.display().to_string());
        write!(out, "{}", text::render(&diff, [&a, &b], style))?;
        if let Some(check) = &check {
            write!(out, "\n{}", text::verdict(check, style))?;
        }
    }
    Ok(match check {
        Some(check) if !check.passed => ExitCode::from(FAILED),
        _ => ExitCode::SUCCESS,
    })
}

fn unjudged(diff: &Diff) -> anyhow::Error {
    let why = match diff.notes.as_slice() {
        [] => "no step was measured twice".into(),
        notes => notes.join("; "),
    };
    anyhow!(
        "--fail-above cannot judge these runs: {why}; make both reports with this version and -n 2 or more"
    )
}

/// The run in a report, or the last frame of a recording.
pub(super) fn load(path: &Path) -> anyhow::Result<Snapshot> {
    let name = path.display();
    let mut file = File::open(path).with_context(|| format!("{name}: cannot be opened"))?;
    let mut bytes = Vec::new();
    let reading = || format!("{name}: cannot be read");
    let start = MAGIC.len() as u64;
    (&mut file)
        .take(start)
        .read_to_end(&mut bytes)
        .with_context(reading)?;
    if bytes == MAGIC {
        let mut recording = Recording::open(path)?;
        for note in recording.take_notes() {
            eprintln!("cbtop: {}: {note}", printable(&name));
        }
        let last = recording.frame(recording.frames() - 1)?;
        return Ok(Snapshot::clone(&last));
    }
    file.take(MAX_REPORT)
        .read_to_end(&mut bytes)
        .with_context(reading)?;
    if bytes.len() as u64 >= MAX_REPORT {
        bail!("{name}: larger than any report");
    }
    report(&bytes).map_err(|e| anyhow!("{name}: {e}"))
}

fn report(json: &[u8]) -> Result<Snapshot, String> {
    #[derive(Deserialize)]
    struct Version {
        schema_version: u32,
    }
    let neither = |e: serde_json::Error| {
        format!("neither a report of --headless --format json nor a recording: {e}")
    };
    let version: Version = serde_json::from_slice(json).map_err(neither)?;
    if version.schema_version != SCHEMA_VERSION {
        return Err(format!(
            "a report of schema version {}; this cbtop reads version {SCHEMA_VERSION}",
            version.schema_version
        ));
    }
    let report: Report = serde_json::from_slice(json).map_err(neither)?;
    Ok(report.snapshot)
}
