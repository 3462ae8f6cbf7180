//! `cbtop calibrate`: this machine's peaks and micro-benchmarks, and the model fitted to them.

use super::printable;
use super::tune::collect::{machine, subjects};
use super::tune::open_store;
use crate::cli::calibrate::CalibrateArgs;
use anyhow::{Context, anyhow};
use cbtop::tuner::calibrate::{Calibration, calibrate};
use cbtop::tuner::collect::{Progress, Watcher};
use cbtop::tuner::learn::brick_tuner::BrickTuner;
use cbtop::tuner::learn::correction::LEAST_FIT;
use cbtop::tuner::run::{Hardware, Run};
use cbtop::tuner::store::Store;
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Cells of the progress bar.
const CELLS: usize = 30;

/// Runs the command.
pub fn run(args: &CalibrateArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let target = match &args.out {
        Some(path) => path.clone(),
        None => BrickTuner::default_path().ok_or_else(|| {
            anyhow!("no folder for the model: HOME is not set; name a file with --out")
        })?,
    };
    if args.out.is_some() && target.exists() {
        BrickTuner::load(&target)
            .context("reading the model that would be replaced; name another file with --out")?;
    }
    let mut subjects = subjects(&args.models)?;
    let mut keeper = Keeper {
        store: open_store(args.store.as_deref())?,
        began,
        time: args.time,
        draws: std::io::stderr().is_terminal(),
    };
    keeper.draw("probing peaks");
    let (hardware, bandwidth) = machine();
    let before = before(&target);
    let done = calibrate(
        &before,
        &mut subjects,
        (&hardware, &bandwidth),
        args.time,
        &mut keeper,
    )
    .map_err(|e| anyhow!(e))?;
    keeper.end();
    if let Some(tuner) = &done.tuner {
        tuner.save(&target).context("saving the fitted model")?;
    }
    let took = began.elapsed();
    if args.json {
        let report = report(&hardware, &done, took);
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        print(&hardware, &done, took, out)?;
        match done.tuner {
            Some(_) => writeln!(out, "The fitted model is {}.", target.display())?,
            None => writeln!(out, "{}", not_fitted(&done, &target))?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What the fit starts from: the model that would be replaced, without what an earlier calibration fitted, so that a
/// training stays; the one that comes with cbtop where there is none, or none that can be read.
fn before(target: &Path) -> BrickTuner {
    let model = match target.is_file().then(|| BrickTuner::load(target)) {
        Some(Ok(model)) => model,
        Some(Err(e)) => {
            eprintln!(
                "cbtop: {}: {e}; fitting the model that comes with cbtop instead",
                printable(&target.display())
            );
            BrickTuner::pretrained().clone()
        }
        None => BrickTuner::pretrained().clone(),
    };
    BrickTuner {
        correction: None,
        ..model
    }
}

/// Why there is no fitted model, and what stays.
fn not_fitted(done: &Calibration, target: &Path) -> String {
    let why = match done.runs.len() {
        n if n < LEAST_FIT => format!(
            "{n} runs are too few to fit a model to this machine ({LEAST_FIT} are needed; give more --time, or a machine \
             that is not busy)"
        ),
        _ => {
            "No fit foretells runs that it has not seen better than the model does as it is".into()
        }
    };
    let kept = match target.is_file() {
        true => format!("{} stays as it was", target.display()),
        false => format!("{} was not written", target.display()),
    };
    format!("{why}: {kept}.")
}

fn report(hardware: &Hardware, done: &Calibration, took: Duration) -> serde_json::Value {
    json!({
        "schema_version": 1,
        "hardware": hardware,
        "seconds": took.as_secs_f64(),
        "runs": done.runs.len(),
        "noisy": done.progress.noisy,
        "fitted": done.tuner.is_some(),
        "gain": done.gain.map(|g| json!({
            "learned": g.learned,
            "held_out": g.held_out,
            "median_error_before": g.median_before,
            "median_error_after": g.median_after,
            "mean_error_before": g.mean_before,
            "mean_error_after": g.mean_after,
        })),
    })
}

fn print(
    hardware: &Hardware,
    done: &Calibration,
    took: Duration,
    out: &mut impl Write,
) -> std::io::Result<()> {
    let figure = |value: Option<f64>, unit: &str| {
        value.map_or_else(|| "not known".into(), |v| format!("{v:.1} {unit}"))
    };
    writeln!(out, "machine        {}", hardware.name)?;
    writeln!(out, "fingerprint    {}", hardware.fingerprint)?;
    writeln!(
        out,
        "peaks          read {}, FP32 {}, int8 {}",
        figure(hardware.mem_gbps, "GB/s"),
        figure(hardware.gflops, "GFLOP/s"),
        figure(hardware.int8_gops, "GOP/s"),
    )?;
    writeln!(
        out,
        "runs           {} kept of {} tried, {} of them given up because the machine was busy or the figures scattered, in {:.1} s",
        done.runs.len(),
        done.progress.done,
        done.progress.noisy,
        took.as_secs_f64(),
    )?;
    match done.gain {
        None => writeln!(
            out,
            "gain           not known: too few runs to hold some out"
        ),
        Some(g) => writeln!(
            out,
            "gain           on {} runs held out ({} learned from): median error {:.1}% -> {:.1}%, mean {:.1}% -> {:.1}%",
            g.held_out,
            g.learned,
            g.median_before * 100.0,
            g.median_after * 100.0,
            g.mean_before * 100.0,
            g.mean_after * 100.0,
        ),
    }
}

struct Keeper {
    store: Store,
    began: Instant,
    time: Duration,
    draws: bool,
}

impl Keeper {
    fn draw(&self, what: &str) {
        if !self.draws {
            return;
        }
        let share = self.began.elapsed().as_secs_f64() / self.time.as_secs_f64().max(1e-3);
        let full = ((share * CELLS as f64) as usize).min(CELLS);
        eprint!(
            "\r\x1b[K[{}{}] {:>3.0}% {what}",
            "#".repeat(full),
            ".".repeat(CELLS - full),
            (share * 100.0).min(100.0)
        );
    }

    fn end(&self) {
        if self.draws {
            eprintln!();
        }
    }
}

impl Watcher for Keeper {
    fn knows(&mut self, _: &str) -> Result<bool, String> {
        Ok(false)
    }

    fn keep(&mut self, run: &Run) -> Result<(), String> {
        self.store.insert(run).map_err(|e| e.to_string())
    }

    fn progress(&mut self, p: &Progress) {
        self.draw(&printable(&p.now));
    }
}
