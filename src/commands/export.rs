//! What a headless run can be written as besides a frame and a report: traces for Perfetto, and the execution graph.

use crate::cli::Format;
use anyhow::Context;
use cbtop::profiler::figures::StepTrace;
use cbtop::profiler::graph::chrome::{
    ChromeTrace, CounterSample, LIMIT_BYTES, TraceStep, chrome_trace,
};
use cbtop::profiler::graph::{DOT_NODES, from_step};
use cbtop::session::Session;
use cbtop::session::snapshot::Snapshot;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Writes what `write` writes to a file: whole or not at all, compressed with gzip where its name ends in `.gz`.
pub fn to_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let what = || format!("writing {}", path.display());
    let folder = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(what)?;
    let gzip = path
        .extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("gz"));
    {
        let mut out = BufWriter::new(file.as_file_mut());
        if gzip {
            let mut gz = GzEncoder::new(&mut out, Compression::default());
            write(&mut gz)?;
            gz.finish().with_context(what)?;
        } else {
            write(&mut out)?;
        }
        out.flush().with_context(what)?;
    }
    readable_by_others(file.as_file()).with_context(what)?;
    file.as_file().sync_all().with_context(what)?;
    file.persist(path).map_err(|e| e.error).with_context(what)?;
    Ok(())
}

/// A temporary file is its owner's alone; one that was asked for is as any other file.
#[cfg(unix)]
fn readable_by_others(file: &File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn readable_by_others(_: &File) -> std::io::Result<()> {
    Ok(())
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

/// Writes the last step of a session: a trace, or its execution graph.
pub fn last_step(snapshot: &Snapshot, format: Format, out: &mut dyn Write) -> anyhow::Result<()> {
    let step = snapshot
        .last_step
        .as_ref()
        .context("no step was timed brick by brick: leave out --sync-mode none")?;
    if format == Format::Chrome {
        let steps = [TraceStep {
            trace: step,
            start_us: 0.0,
        }];
        chrome_trace(out, &steps, &snapshot.kernels, &[], LIMIT_BYTES)?;
        return Ok(());
    }
    let graph = from_step(step, &snapshot.kernels)?;
    match format {
        Format::Dot => out.write_all(graph.to_dot(DOT_NODES).as_bytes())?,
        Format::Tree => {
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
