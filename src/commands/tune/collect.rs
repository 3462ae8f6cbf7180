//! `cbtop tune collect`: sweeps on this machine, into the store.

use super::open_store;
use crate::cli::tune::CollectArgs;
use crate::commands::printable;
use anyhow::{Context, anyhow, bail};
use cbtop::engine::config::cpus;
use cbtop::engine::cpu::KernelSet;
use cbtop::engine::knobs::Cost;
use cbtop::gguf::LoadOptions;
use cbtop::profiler::figures::PeakKind;
use cbtop::profiler::probe::{self, Bandwidth};
use cbtop::session::{Loaded, Source};
use cbtop::tuner::collect::{Progress, Subject, Sweep, Watcher, collect};
use cbtop::tuner::fingerprint::this_machine;
use cbtop::tuner::measure::Patience;
use cbtop::tuner::run::{Hardware, Origin, Run};
use cbtop::tuner::store::Store;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two lines of progress where they do not replace each other.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// Between two where they do.
const DRAW_EVERY: Duration = Duration::from_millis(200);
/// Most files of one sweep.
const MOST_MODELS: usize = 1000;

/// Runs the command.
pub fn run(args: &CollectArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let mut subjects = subjects(&args.models)?;
    let store = open_store(args.store.as_deref())?;
    let (hardware, bandwidth) = machine();
    let sweep = Sweep {
        hardware,
        bandwidth,
        origin: Origin::Collect,
        most_cost: Cost::Reload,
        mixtures: args.mixtures,
        seed: args.seed,
        patience: Patience {
            repetitions: args.repetitions,
            most: args.most,
            ..Patience::default()
        },
        limit: args.time_limit,
    };
    let mut keeper = Keeper {
        store,
        said: None,
        draws: std::io::stderr().is_terminal(),
    };
    let progress = collect(&mut subjects, &sweep, &mut keeper).map_err(|e| anyhow!(e))?;
    keeper.end();
    let Progress {
        done,
        total,
        kept,
        noisy,
        slow,
        failed,
        ..
    } = progress;
    writeln!(
        out,
        "{done} of {total} trials are done: {kept} runs kept now, {noisy} given up because the machine was busy or \
         the figures scattered, {slow} because they would have taken too long, {failed} could not run."
    )?;
    if let Some(reason) = progress.reason {
        writeln!(out, "The newest that could not run: {}", printable(&reason))?;
    }
    if done < total {
        writeln!(out, "The same command goes on from here.")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// This machine with its probed peaks.
pub fn machine() -> (Hardware, Vec<Bandwidth>) {
    let mut counts: Vec<usize> = (0..).map(|i| 1 << i).take_while(|n| *n < cpus()).collect();
    counts.push(cpus());
    let bandwidth = probe::read_bandwidth(&counts);
    let peaks = probe::peaks(&bandwidth, KernelSet::best(), cpus());
    let peak = |kind| {
        peaks
            .iter()
            .find(|p| p.kind == kind && p.in_use)
            .map(|p| p.value)
    };
    let hardware = this_machine(
        peak(PeakKind::Memory),
        peak(PeakKind::Fp32),
        peak(PeakKind::Int8),
    );
    (hardware, bandwidth)
}

/// The models of files and folders, the demo where there are none.
pub fn subjects(paths: &[PathBuf]) -> anyhow::Result<Vec<Subject<'static>>> {
    sources(paths)?.into_iter().map(subject).collect()
}

/// The files, those of folders in the order of their names.
fn sources(paths: &[PathBuf]) -> anyhow::Result<Vec<Source>> {
    if paths.is_empty() {
        return Ok(vec![Source::Demo]);
    }
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries =
            std::fs::read_dir(path).with_context(|| format!("reading {}", path.display()))?;
        let gguf = |p: &PathBuf| p.extension().is_some_and(|e| e == "gguf");
        let mut found: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(gguf).collect();
        if found.is_empty() {
            bail!("{} holds no .gguf file", path.display());
        }
        found.sort();
        files.append(&mut found);
    }
    if files.len() > MOST_MODELS {
        bail!(
            "{} models are too many for one sweep; give at most {MOST_MODELS}",
            files.len()
        );
    }
    Ok(files.into_iter().map(Source::File).collect())
}

fn subject(source: Source) -> anyhow::Result<Subject<'static>> {
    // A file that cannot run is said before this machine is probed.
    let name = subject_name(&Loaded::open(source.clone())?);
    let load = move |how: LoadOptions| {
        Loaded::open_with(source.clone(), Some(how))
            .map(|l| Arc::clone(&l.model))
            .map_err(|e| e.to_string())
    };
    Ok(Subject {
        name,
        load: Box::new(load),
    })
}

/// The file's name, since models of one family often have the same one within; of the demo its own.
fn subject_name(loaded: &Loaded) -> String {
    let file = match &loaded.source {
        Source::File(path) => path.file_stem().map(|s| s.to_string_lossy().into_owned()),
        Source::Demo => None,
    };
    file.unwrap_or_else(|| loaded.name())
}

struct Keeper {
    store: Store,
    said: Option<Instant>,
    draws: bool,
}

impl Keeper {
    fn end(&self) {
        if self.draws {
            eprintln!();
        }
    }
}

impl Watcher for Keeper {
    fn knows(&mut self, key: &str) -> Result<bool, String> {
        self.store
            .contains(key, Origin::Collect)
            .map_err(|e| e.to_string())
    }

    fn keep(&mut self, run: &Run) -> Result<(), String> {
        self.store.insert(run).map_err(|e| e.to_string())
    }

    fn progress(&mut self, p: &Progress) {
        let every = if self.draws { DRAW_EVERY } else { SAY_EVERY };
        if p.done < p.total && self.said.is_some_and(|at| at.elapsed() < every) {
            return;
        }
        self.said = Some(Instant::now());
        let left = p
            .left
            .map_or_else(String::new, |left| format!(", {} left", minutes(left)));
        let rate = p
            .tok_s
            .map_or_else(String::new, |r| format!(", {r:.1} tok/s"));
        let line = format!(
            "{:>5}/{} trials, {} kept, {} noisy{left}: {}{rate}",
            p.done,
            p.total,
            p.kept,
            p.noisy,
            printable(&p.now)
        );
        if self.draws {
            eprint!("\r\x1b[K{line}");
        } else {
            eprintln!("{line}");
        }
    }
}

/// `3 min` or `40 s`.
fn minutes(time: Duration) -> String {
    match time.as_secs() {
        s if s < 100 => format!("{s} s"),
        s => format!("{} min", s.div_ceil(60)),
    }
}
