//! `cbtop --recommend --headless`: what the tuner says of a run, tried and saved where that is asked for.

use super::printable;
use crate::cli::{AdviceArgs, Format, TunerArgs};
use anyhow::{Context, bail};
use cbtop::headless::recommend::{RecommendReport, outcome};
use cbtop::session::Session;
use cbtop::session::snapshot::{Command, Recommendation, RecommendationStatus, RunState};
use cbtop::session::tuner::TunerOptions;
use cbtop::tuner::learn::brick_tuner::BrickTuner;
use cbtop::tuner::profile::{self, Profile};
use cbtop::tuner::store::Store;
use cbtop::tuner::telemetry;
use std::io::Write;

/// What the tuner of a session works with.
pub fn tuner(args: &TunerArgs) -> TunerOptions {
    TunerOptions {
        store: if args.no_store {
            None
        } else {
            Store::default_path()
        },
        model: BrickTuner::default_path(),
        telemetry: args.telemetry.clone(),
    }
}

/// Refuses flags that do not go together and a profile that could not be saved, before a model is loaded for nothing.
pub fn check(
    args: &AdviceArgs,
    tuner: &TunerArgs,
    format: Format,
    modelled: bool,
) -> anyhow::Result<()> {
    let given = args.apply || args.save.is_some();
    if given && !matches!(format, Format::Text | Format::Json) {
        bail!("--apply and --save print recommendations: as --format text or json");
    }
    if modelled && args.save.is_some() {
        bail!("--deterministic runs a modelled machine: its settings are none to save");
    }
    // Before everything is measured for nothing.
    if let Some(path) = &tuner.telemetry {
        telemetry::check(path).with_context(|| format!("--telemetry {}", path.display()))?;
    }
    match &args.save {
        Some(path) => Ok(profile::check_target(path, args.force)?),
        None => Ok(()),
    }
}

/// Whether it is recommendations that are printed.
pub fn is_wanted(recommend: bool, format: Format) -> bool {
    recommend && matches!(format, Format::Text | Format::Json)
}

/// Prints what there is to change about a session that has run.
pub fn print(
    args: &AdviceArgs,
    session: &mut Session,
    format: Format,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    session.await_tuner();
    let before = session.setup();
    // The answer becomes recommendations as it is looked at.
    let mut snapshot = session.snapshot();
    if args.apply {
        session.obey(Command::TryAll);
        let mut told = 0;
        while session.is_racing() && !matches!(session.state(), RunState::Failed { .. }) {
            session.tick();
            tell(session.recommendations(), &mut told);
        }
        let message = session.message().cloned();
        tell(session.recommendations(), &mut told);
        // Figures before the first change: those of a mixture of setups say nothing.
        let rates = snapshot.rates.clone();
        snapshot = session.snapshot();
        (snapshot.message, snapshot.rates) = (message, rates);
        if session.setup() != before {
            snapshot.rates.decode_mean_tok_s = None;
        }
    }
    let setup = session.setup();
    let explicit = session.explicit().iter().map(|k| (*k).to_owned()).collect();
    let report = RecommendReport::new(&snapshot, &setup, explicit, args.apply.then_some(&before));
    match format {
        Format::Json => report.write(out)?,
        _ => out.write_all(report.to_string().as_bytes())?,
    }
    if let Some(path) = &args.save {
        let profile = Profile::of(&setup, report.measured());
        profile.write(path, args.force)?;
        eprintln!("cbtop: the settings are in {}", printable(&path.display()));
        let (flags, without) = profile::llama_cpp(&profile.settings);
        eprintln!("cbtop: as flags of llama.cpp: {}", flags.join(" "));
        if !without.is_empty() {
            eprintln!("cbtop: llama.cpp has none for: {}", without.join(", "));
        }
    }
    Ok(())
}

/// Says on standard error what was measured since `told` results.
fn tell<'a>(recommendations: impl Iterator<Item = &'a Recommendation>, told: &mut usize) {
    let done: Vec<String> = recommendations
        .filter(|r| r.status != RecommendationStatus::Open)
        .filter_map(|r| Some(format!("{}: {}", r.title, outcome(r)?)))
        .collect();
    if done.len() > *told {
        for line in done.iter().skip(*told) {
            eprintln!("cbtop: {}", printable(line));
        }
        *told = done.len();
    }
}
