//! `cbtop brick-tune`: whether the tuner is right about runs that were measured.

use super::{diff, printable};
use crate::cli::BrickTuneArgs;
use anyhow::bail;
use cbtop::session::snapshot::{Snapshot, Subject};
use cbtop::tuner::brick_tune::{Measure, Profiled, Validation, validate};
use cbtop::tuner::learn::brick_tuner::BrickTuner;
use std::io::Write;
use std::process::ExitCode;

const FAILED: u8 = 1;

/// Compares, prints, and with `--validate` judges.
///
/// # Errors
/// A file that is no report, or one without a measured rate.
pub fn run(args: &BrickTuneArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let runs = args.input.iter().map(|path| diff::load(path));
    let runs = runs.collect::<anyhow::Result<Vec<Snapshot>>>()?;
    let arms: Vec<Vec<(String, f64)>> = runs.iter().map(arms).collect();
    let mut profiles = Vec::new();
    for ((s, path), arms) in runs.iter().zip(&args.input).zip(&arms) {
        if s.engine.clock != "measured" {
            bail!(
                "{}: its times are modelled, not measured; make the report without --deterministic",
                path.display()
            );
        }
        let Some(subject) = &s.subject else {
            bail!(
                "{}: an older cbtop wrote it, without the machine's peaks and all settings; make the report again",
                path.display()
            );
        };
        let Some(profile) = profiled(s, subject, arms) else {
            bail!(
                "{}: nothing was generated in it; make the report with -n 2 or more",
                path.display()
            );
        };
        profiles.push(profile);
    }
    let tuner = BrickTuner::of_this_machine();
    let report = validate(&profiles, &|trial| tuner.predict(trial, None).into());
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        print(&report, out)?;
    }
    Ok(if args.validate && !report.passed {
        ExitCode::from(FAILED)
    } else {
        ExitCode::SUCCESS
    })
}

fn arms(s: &Snapshot) -> Vec<(String, f64)> {
    let bandit = s.tuner.as_deref().and_then(|t| t.bandit.as_ref());
    let arms = bandit.map_or(&[][..], |b| &b.arms).iter();
    arms.filter_map(|a| Some((a.name.clone(), a.tok_s?)))
        .collect()
}

fn profiled<'a>(
    s: &'a Snapshot,
    subject: &'a Subject,
    kernels: &'a [(String, f64)],
) -> Option<Profiled<'a>> {
    let rate = s.rates.decode_mean_tok_s;
    let generated = u32::try_from(s.generated).unwrap_or(u32::MAX);
    Some(Profiled {
        subject,
        bandwidth_gbps: s.machine.read_bandwidth_gbps,
        tok_s: rate.filter(|r| r.is_finite() && *r > 0.0)?,
        tokens: (s.context_used.saturating_sub(generated), generated),
        bricks: &s.bricks,
        kernels,
    })
}

fn print(v: &Validation, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "BrickTuner Validation Report")?;
    writeln!(out, "============================")?;
    for (i, m) in v.measures.iter().enumerate() {
        writeln!(out, "{}", line(m, if i == 0 { '<' } else { '>' }))?;
    }
    writeln!(out)?;
    match v.score {
        Some(score) => writeln!(out, "Overall score: {score:.0}/100 (Grade: {})", v.grade)?,
        None => writeln!(out, "Overall score: none, nothing could be compared")?,
    }
    writeln!(out, "Predicted by {} of {} profiles:", v.method, v.profiles)?;
    for r in &v.rows {
        let predicted = r.predicted_tok_s.map_or("-".into(), |p| format!("{p:.1}"));
        let error = r.error.map_or("-".into(), |e| format!("{:.1}%", e * 100.0));
        let seen = r.bottleneck.unwrap_or("not known");
        let said = r.predicted_bottleneck.as_deref().unwrap_or("nothing");
        writeln!(
            out,
            "  {}: {:.1} tok/s measured, {predicted} predicted, {error} off; limited by {seen}, predicted {said}",
            printable(&r.run),
            r.measured_tok_s
        )?;
    }
    for note in &v.notes {
        writeln!(out, "Note: {note}.")?;
    }
    Ok(())
}

fn line(m: &Measure, than: char) -> String {
    let name = format!("{}:", m.name);
    let target = format!("(target: {than}{:.0}%)", m.target * 100.0);
    match (m.value, m.missing) {
        (Some(v), _) => {
            let holds = if m.holds == Some(true) {
                "holds"
            } else {
                "falls short"
            };
            let of = match m.of {
                1 => "1 comparison".into(),
                n => format!("{n} comparisons"),
            };
            format!("{name:<32}{:>6.1}%  {target}  {holds}, {of}", v * 100.0)
        }
        (None, why) => format!(
            "{name:<32}{:>7}  {target}  {}",
            "-",
            why.unwrap_or("not known")
        ),
    }
}
