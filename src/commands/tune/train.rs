//! `cbtop tune train`: runs in, a model and its report out.

use super::runs;
use crate::cli::tune::TrainArgs;
use anyhow::anyhow;
use cbtop::tuner::features::{self, TunerFeatures};
use cbtop::tuner::learn::brick_tuner::BrickTuner;
use cbtop::tuner::learn::drift;
use cbtop::tuner::learn::evaluate::Evaluation;
use cbtop::tuner::learn::split::by_time;
use cbtop::tuner::learn::throughput::TrainOptions;
use cbtop::tuner::learn::train::{BrickOptions, Judged, Trained};
use cbtop::tuner::run::Run;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Share of the runs that features of the older ones are held against.
const NEWEST: f64 = 0.2;
/// Columns that shifted which are told.
const MOST_SHIFTS: usize = 5;

/// Runs the command.
pub fn run(args: &TrainArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let target = target(args)?;
    let (runs, read) = runs::read(&args.data, args.store.as_deref(), args.all)?;
    writeln!(out, "{read} runs read, {} learned from.", runs.len())?;
    let options = BrickOptions {
        only: args.only.iter().map(|p| (*p).into()).collect(),
        rates: TrainOptions {
            seed: args.seed,
            ..TrainOptions::default()
        },
        trained_at: newest(&runs).unwrap_or_else(now),
        before: before(&target),
        ..BrickOptions::default()
    };
    let trained = BrickTuner::train(&runs, &options)?;
    report(&trained, out)?;
    shifts(&runs, out)?;
    trained.tuner.save(&target)?;
    let bytes = std::fs::metadata(&target).map_or(0, |m| m.len());
    writeln!(
        out,
        "Model {} written to {}, {bytes} bytes.",
        trained.tuner.title(),
        target.display()
    )?;
    Ok(ExitCode::SUCCESS)
}

fn target(args: &TrainArgs) -> anyhow::Result<PathBuf> {
    if let Some(path) = &args.out {
        return Ok(path.clone());
    }
    BrickTuner::default_path()
        .ok_or_else(|| anyhow!("no folder for the model: HOME is not set; name a file with --out"))
}

/// The model that is to be replaced. A damaged one is no reason not to replace it.
fn before(target: &Path) -> Option<BrickTuner> {
    if !target.exists() {
        return None;
    }
    let damaged = |e| {
        eprintln!("cbtop: the model that is replaced cannot be read, nothing is kept of it: {e}");
    };
    BrickTuner::load(target).map_err(damaged).ok()
}

/// The time of the newest run: the same runs give the same model.
fn newest(runs: &[Run]) -> Option<i64> {
    runs.iter().filter_map(|r| r.unix_s).max()
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| d.as_secs() as i64)
}

fn report(trained: &Trained, out: &mut impl Write) -> anyhow::Result<()> {
    match &trained.rates {
        Ok(evaluation) => rates(evaluation, out)?,
        Err(why) => writeln!(out, "Rates: {why}.")?,
    }
    judged("Kernels", &trained.kernels, out)?;
    judged("Bottleneck", &trained.bottleneck, out)
}

fn rates(evaluation: &Evaluation, out: &mut impl Write) -> anyhow::Result<()> {
    writeln!(
        out,
        "Rates: {} runs of {} machines and {} models; held out in five folds:",
        evaluation.runs, evaluation.machines, evaluation.models
    )?;
    for split in &evaluation.splits {
        writeln!(out, "  {}:", split.held_out)?;
        for m in &split.methods {
            let s = &m.score;
            writeln!(
                out,
                "    {:<18} mean error {:6.1}%, median {:5.1}%, R2 of logs {:6.3}, in the interval {:3.0}%{}",
                m.method.name(),
                s.mape * 100.0,
                s.median_error * 100.0,
                s.r2_log.unwrap_or(f64::NAN),
                s.coverage * 100.0,
                if m.method == split.best { ", best" } else { "" }
            )?;
        }
    }
    writeln!(
        out,
        "  used: {}, the best with {} held out.",
        evaluation.chosen.name(),
        evaluation.decided_by
    )?;
    let errors = evaluation.deciding().map(|m| &m.ratio_errors);
    let within: Vec<String> = errors
        .into_iter()
        .flatten()
        .map(|(knob, error)| format!("{knob} {:.1}%", error.exp_m1() * 100.0))
        .collect();
    if !within.is_empty() {
        writeln!(
            out,
            "  nine of ten ratios of runs that differ in one setting are within: {}.",
            within.join(", ")
        )?;
    }
    Ok(())
}

/// Columns of features that the newest runs have otherwise than the older ones: what was learned may not be about them.
fn shifts(runs: &[Run], out: &mut impl Write) -> std::io::Result<()> {
    let all: Vec<&Run> = runs.iter().collect();
    let fold = by_time(&all, NEWEST);
    let rows = |at: &[usize]| -> Vec<TunerFeatures> {
        let of = at.iter().map(|&i| TunerFeatures::of(&runs[i].trial, None));
        of.collect()
    };
    let (then, now) = (rows(&fold.train), rows(&fold.test));
    let then: Vec<&[f32]> = then.iter().map(TunerFeatures::predictors).collect();
    let now: Vec<&[f32]> = now.iter().map(TunerFeatures::predictors).collect();
    let shifted: Vec<String> = drift::shifted(&then, &now)
        .into_iter()
        .take(MOST_SHIFTS)
        .filter_map(|(column, index)| {
            Some(format!("{} ({index:.1})", features::names().get(column)?))
        })
        .collect();
    if !shifted.is_empty() {
        writeln!(
            out,
            "The newest fifth of the runs is unlike the older ones in (population stability index, above {} told): {}.",
            drift::SHIFTED,
            shifted.join(", ")
        )?;
    }
    Ok(())
}

fn judged(what: &str, judged: &Judged, out: &mut impl Write) -> anyhow::Result<()> {
    let figures = match judged {
        Judged::None(why) => {
            writeln!(out, "{what}: none, {why}.")?;
            return Ok(());
        }
        Judged::Unmeasured => {
            writeln!(
                out,
                "{what}: learned but not measured, too few groups of runs to hold one out."
            )?;
            return Ok(());
        }
        Judged::Figures(figures) => figures,
    };
    let r = &figures.report;
    writeln!(
        out,
        "{what}: accuracy {:.1}%, among the first three {:.1}%, calibration error {:.3}, on held-out groups:",
        r.accuracy * 100.0,
        r.top3 * 100.0,
        r.ece
    )?;
    if let Some(regret) = figures.regret {
        writeln!(
            out,
            "  time lost against the fastest {:.2}%; {} trials within noise left out",
            regret * 100.0,
            figures.undecided
        )?;
    }
    if let Some((accuracy, lost)) = figures.commonest {
        writeln!(
            out,
            "  the commonest named every time: accuracy {:.1}%, time lost {:.2}%",
            accuracy * 100.0,
            lost * 100.0
        )?;
    }
    let percent = |v: Option<f64>| v.map_or_else(|| "-".into(), |v| format!("{:.1}%", v * 100.0));
    for (name, class) in figures.classes.iter().zip(&r.classes) {
        writeln!(
            out,
            "  {name:<24} {:>5} rows, precision {}, recall {}, F1 {:.3}",
            class.count,
            percent(class.precision),
            percent(class.recall),
            class.f1()
        )?;
    }
    Ok(())
}
