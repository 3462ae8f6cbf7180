//! What a headless run can be written as besides a frame and a report: traces for Perfetto, and the execution graph.

use crate::cli::Format;
use anyhow::Context;
use cbtop::profiler::figures::{StepEvent, StepTrace};
use cbtop::profiler::graph::chrome::{ChromeTrace, CounterSample, LIMIT_BYTES, TraceStep};
use cbtop::profiler::graph::{DOT_NODES, from_step};
use cbtop::session::Session;
use cbtop::session::snapshot::Snapshot;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Writes what `write` writes to a file: whole or not at all, compressed with gzip where its name ends in `.gz`. What is
/// there and is no file (a device, a pipe) is written to as it is; behind a link its target is replaced.
pub fn to_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let what = || format!("writing {}", path.display());
    let gzip = path
        .extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("gz"));
    let there = std::fs::metadata(path).ok();
    if there.as_ref().is_some_and(|m| !m.is_file()) {
        let file = File::options().write(true).open(path).with_context(what)?;
        return packed(&file, gzip, write);
    }
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let folder = match target.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    let mut file = temporary(folder).map_err(bare).with_context(what)?;
    packed(file.as_file_mut(), gzip, write)?;
    if let Some(there) = there {
        let permissions = file.as_file().set_permissions(there.permissions());
        permissions.with_context(what)?;
    }
    file.as_file().sync_all().with_context(what)?;
    file.persist(&target)
        .map_err(|e| e.error)
        .with_context(what)?;
    Ok(())
}

fn packed(
    file: &File,
    gzip: bool,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut out = BufWriter::new(file);
    if gzip {
        let mut gz = GzEncoder::new(&mut out, Compression::default());
        write(&mut gz)?;
        gz.finish()?;
    } else {
        write(&mut out)?;
    }
    out.flush()?;
    Ok(())
}

/// A temporary file that others may do with what the user's mask lets them: it becomes one that was asked for.
fn temporary(folder: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}

/// The error without the temporary file's name, which says nothing to the user.
fn bare(e: std::io::Error) -> std::io::Error {
    let code = std::error::Error::source(&e)
        .and_then(|s| s.downcast_ref::<std::io::Error>())
        .and_then(std::io::Error::raw_os_error);
    code.or(e.raw_os_error()).map_or(
        std::io::Error::from(e.kind()),
        std::io::Error::from_raw_os_error,
    )
}

/// Runs the session to its end and writes a trace of all its steps.
pub fn chrome(session: &mut Session, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut trace = ChromeTrace::new(out, LIMIT_BYTES)?;
    let kernels = session.kernels();
    let mut first_us = None;
    while !session.is_over() {
        session.tick();
        let Some((begin_us, step)) = session.step() else {
            continue;
        };
        let start_us = begin_us - *first_us.get_or_insert(begin_us);
        trace.step(
            TraceStep {
                trace: &step,
                start_us,
            },
            &kernels,
        )?;
        for (name, value) in counters(session, &step) {
            trace.counter(CounterSample {
                at_us: start_us,
                name,
                value,
            })?;
        }
    }
    let (size, _) = trace.finish()?;
    if size.left_out > 0 {
        eprintln!(
            "cbtop: the trace was cut at {} MB, {} events are left out: viewers show longer ones blank; give fewer tokens (-n)",
            LIMIT_BYTES / 1_000_000,
            size.left_out
        );
    }
    Ok(())
}

/// Values from this step on.
fn counters(session: &Session, step: &StepTrace) -> Vec<(&'static str, f64)> {
    let mut values = vec![("tok/s", f64::from(step.tokens) * 1e6 / step.wall_us)];
    if let Some(token) = session
        .newest_token()
        .filter(|t| t.position == step.position)
    {
        let counts = [
            ("minor page faults", token.minor_faults),
            ("major page faults", token.major_faults),
            ("preemptions", token.preempted),
            ("migrations", token.migrations),
        ];
        values.extend(
            counts
                .into_iter()
                .filter_map(|(name, n)| Some((name, f64::from(n?)))),
        );
    }
    values
}

/// Writes the execution graph of the last step of a session.
pub fn last_step(snapshot: &Snapshot, format: Format, out: &mut dyn Write) -> anyhow::Result<()> {
    let step = snapshot
        .last_step
        .as_ref()
        .context("no step has been timed brick by brick (with --sync-mode none none is)")?;
    let graph = from_step(step, &snapshot.kernels)?;
    match format {
        Format::Dot => out.write_all(graph.to_dot(DOT_NODES).as_bytes())?,
        Format::Tree => {
            let sum = |f: fn(&StepEvent) -> f64| step.events.iter().map(f).sum::<f64>();
            let (work, wait) = (sum(|e| e.work_us), sum(|e| e.sync_us));
            writeln!(
                out,
                "wall time {:.1} us: work {work:.1}, waiting {wait:.1}, launch, join and gaps {:.1} (thread 0)\n",
                step.wall_us,
                step.wall_us - work - wait
            )?;
            out.write_all(graph.to_ascii_tree().as_bytes())?;
            writeln!(out, "\n{}", graph.critical_path_summary()?)?;
        }
        Format::Csr => json(
            &Rows {
                nodes: graph.nodes(),
                csr: graph.to_csr(),
            },
            out,
        )?,
        _ => json(&graph, out)?,
    }
    Ok(())
}

/// Nodes with their edges by row.
#[derive(Serialize)]
struct Rows<'a> {
    nodes: &'a [cbtop::profiler::graph::Node],
    csr: cbtop::profiler::graph::Csr,
}

fn json<T: Serialize>(value: &T, out: &mut dyn Write) -> anyhow::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    writeln!(out)?;
    Ok(())
}
