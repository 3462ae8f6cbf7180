//! `cbtop tune validate`: how well rates are foretold of runs that were held out.

use super::runs;
use crate::cli::tune::{ValidateArgs, ValidateFormat};
use anyhow::Context;
use cbtop::tuner::learn::evaluate::{Evaluation, Score, SplitScores, evaluate};
use cbtop::tuner::learn::targets::{Target, targets};
use cbtop::tuner::learn::throughput::TrainOptions;
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;

const FAILED: u8 = 1;

#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    evaluation: &'a Evaluation,
    targets: &'a [Target],
}

/// Runs the command.
pub fn run(args: &ValidateArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let (runs, read) = runs::read(&args.data, args.store.as_deref(), args.all)?;
    eprintln!(
        "{read} runs read, {} of them good enough; every method learns from parts of them.",
        runs.len()
    );
    let options = TrainOptions {
        seed: args.seed,
        ..TrainOptions::default()
    };
    let runs: Vec<_> = runs.iter().collect();
    let evaluation = evaluate(&runs, &options)
        .context("validating; `cbtop tune collect` measures runs, --data names more")?;
    let targets = targets(&evaluation);
    match args.format {
        ValidateFormat::Json => {
            let printed = Printed {
                evaluation: &evaluation,
                targets: &targets,
            };
            serde_json::to_writer_pretty(&mut *out, &printed)?;
            writeln!(out)?;
        }
        ValidateFormat::Md => tables(&evaluation, &targets, out)?,
    }
    let failed = args.check && targets.iter().any(|t| !t.met);
    Ok(if failed {
        ExitCode::from(FAILED)
    } else {
        ExitCode::SUCCESS
    })
}

fn tables(e: &Evaluation, targets: &[Target], out: &mut impl Write) -> anyhow::Result<()> {
    writeln!(
        out,
        "{} runs of {} machines and {} models. Used: {}, the best with {} held out.",
        e.runs,
        e.machines,
        e.models,
        e.chosen.name(),
        e.decided_by
    )?;
    for split in &e.splits {
        table(split, out)?;
    }
    writeln!(out, "\n| criterion | wanted | figure | state |")?;
    writeln!(out, "|---|---|--:|---|")?;
    for t in targets {
        let figure = t.figure.map_or("-".into(), |f| format!("{f:.3}"));
        let state = match (t.figure, t.met) {
            (None, _) => "not measurable with these runs",
            (_, true) => "holds",
            (_, false) => "falls short",
        };
        writeln!(
            out,
            "| {} | {} | {figure} | {state} |",
            t.criterion, t.wanted
        )?;
    }
    Ok(())
}

fn table(split: &SplitScores, out: &mut impl Write) -> anyhow::Result<()> {
    writeln!(out, "\nHeld out: {}, {} folds", split.held_out, split.folds)?;
    writeln!(
        out,
        "\n| method | runs | mean error | median | R2 | R2 of logs | in interval | high / low | confidence | above 2x |"
    )?;
    writeln!(out, "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")?;
    for m in &split.methods {
        let best = if m.method == split.best {
            " (best)"
        } else {
            ""
        };
        writeln!(out, "| {}{best} | {} |", m.method.name(), cells(&m.score))?;
    }
    Ok(())
}

fn cells(s: &Score) -> String {
    let figure = |f: Option<f64>| f.map_or("-".into(), |f| format!("{f:.3}"));
    [
        s.runs.to_string(),
        format!("{:.1}%", s.mape * 100.0),
        format!("{:.1}%", s.median_error * 100.0),
        figure(s.r2),
        figure(s.r2_log),
        format!("{:.1}%", s.coverage * 100.0),
        format!("{:.2}", s.width),
        figure(s.confidence),
        format!("{:.1}%", s.over_2x * 100.0),
    ]
    .join(" | ")
}
