//! `cbtop tune run`: the stages of a recipe, one after the other.

use super::{collect, runs};
use crate::cli::tune::{CollectArgs, RecipeArgs};
use anyhow::{Context, bail};
use cbtop::tuner::learn::brick_tuner::BrickTuner;
use cbtop::tuner::learn::train::{BrickOptions, Judged, Part, Trained};
use cbtop::tuner::recipe::{Falsify, Learner, MAX_BYTES, Profile, Recipe, Stage, Train, Work};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const FAILED: u8 = 1;
/// Trials whose repetitions take longer are left out, as by `cbtop tune collect`.
const MOST: Duration = Duration::from_secs(4);

/// Reads the recipe and runs it; with `--dry-run` prints what would run.
///
/// # Errors
/// A recipe that cannot be read, and whatever stops a stage, with its name.
pub fn run(args: &RecipeArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let name = args.recipe.display();
    let recipe = Recipe::parse(&text(&args.recipe)?).with_context(|| name.to_string())?;
    let folder = match args.recipe.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    if args.dry_run {
        for line in recipe.plan(folder) {
            writeln!(out, "{line}")?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut runner = Runner {
        folder,
        trained: None,
    };
    for stage in &recipe.stages {
        eprintln!("cbtop: {}: {}", stage.name, stage.sentence(folder));
        let done = runner
            .stage(stage, out)
            .with_context(|| format!("stage '{}'", stage.name))?;
        out.flush()?;
        if !done {
            return Ok(ExitCode::from(FAILED));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn text(path: &Path) -> anyhow::Result<String> {
    let reading = || format!("{}: cannot be read", path.display());
    let file = std::fs::File::open(path).with_context(reading)?;
    let mut text = String::new();
    file.take(MAX_BYTES as u64 + 1)
        .read_to_string(&mut text)
        .with_context(reading)?;
    Ok(text)
}

struct Runner<'a> {
    folder: &'a Path,
    /// Of the last stage that trained.
    trained: Option<Trained>,
}

impl Runner<'_> {
    fn path(&self, path: Option<&PathBuf>) -> Option<PathBuf> {
        path.map(|p| self.folder.join(p))
    }

    /// Whether the recipe goes on.
    fn stage(&mut self, s: &Stage, out: &mut impl Write) -> anyhow::Result<bool> {
        match &s.work {
            Work::Profile(p) => self.profile(p, s, out),
            Work::Train(t) => self.train(t, s, out),
            Work::Falsify(f) => self.falsify(f, out),
        }
    }

    fn profile(&self, p: &Profile, s: &Stage, out: &mut impl Write) -> anyhow::Result<bool> {
        let args = CollectArgs {
            models: p.models.iter().map(|m| self.folder.join(m)).collect(),
            mixtures: 12,
            repetitions: p.repetitions(),
            seed: 0,
            most: MOST,
            time_limit: None,
            store: self.path(s.output.as_ref()),
        };
        collect::run(&args, out)?;
        Ok(true)
    }

    fn train(&mut self, t: &Train, s: &Stage, out: &mut impl Write) -> anyhow::Result<bool> {
        let input = self.path(s.input.as_ref());
        if let Some(path) = input.as_ref().filter(|p| !p.exists()) {
            bail!(
                "{}: there is no such run store; collect first",
                path.display()
            );
        }
        let own = || BrickTuner::default_path();
        let path = self
            .path(s.output.as_ref())
            .or_else(own)
            .context("no folder for the model: HOME is not set; name a file with 'output'")?;
        let before = path.exists().then(|| BrickTuner::load(&path));
        let before = before
            .transpose()
            .context("reading the model that would be replaced")?;
        let (runs, read) = runs::read(&[], input.as_deref(), false)?;
        writeln!(out, "{read} runs read, {} learned from.", runs.len())?;
        let trained = BrickTuner::train(&runs, &options(t, before))?;
        writeln!(out, "{}", judged(&trained))?;
        trained.tuner.save(&path)?;
        writeln!(out, "Model {} in {}", trained.tuner.title(), path.display())?;
        self.trained = Some(trained);
        Ok(true)
    }

    /// Against runs that were held out when the model was trained in this recipe: others it has seen.
    fn falsify(&self, f: &Falsify, out: &mut impl Write) -> anyhow::Result<bool> {
        let score = self.trained.as_ref().and_then(score);
        let passed = score.is_some_and(|s| s >= f.min_score);
        let verdict = if passed { "holds" } else { "falls short" };
        let score = score.map_or("none".into(), |s| format!("{s:.0}"));
        writeln!(
            out,
            "Score on held-out runs: {score} of 100, at least {} wanted: {verdict}",
            f.min_score
        )?;
        Ok(passed)
    }
}

/// Part of the ensemble by its name in recipes.
fn part(l: &Learner) -> Option<Part> {
    match l.name.as_str() {
        "throughput_regressor" => Some(Part::Rates),
        "kernel_classifier" => Some(Part::Kernels),
        "bottleneck_classifier" => Some(Part::Bottleneck),
        _ => None,
    }
}

fn options(t: &Train, before: Option<BrickTuner>) -> BrickOptions {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut o = BrickOptions {
        trained_at: now.map_or(0, |d| d.as_secs() as i64),
        before,
        ..BrickOptions::default()
    };
    for learner in &t.models {
        let whole = |key: &str| learner.params.get(key).map(|v| v.round().max(1.0));
        match part(learner) {
            Some(Part::Rates) => {
                let gbt = &mut o.rates.gbt;
                gbt.trees = whole("n_estimators").map_or(gbt.trees, |v| v as usize);
                gbt.depth = whole("max_depth").map_or(gbt.depth, |v| v as u32);
                gbt.rate = learner
                    .params
                    .get("learning_rate")
                    .copied()
                    .unwrap_or(gbt.rate);
            }
            Some(Part::Kernels) => {
                let forest = &mut o.forest;
                forest.trees = whole("n_estimators").map_or(forest.trees, |v| v as usize);
                forest.depth = whole("max_depth").map_or(forest.depth, |v| v as usize);
            }
            Some(Part::Bottleneck) => {
                o.iterations = whole("max_iter").map_or(o.iterations, |v| v as u64);
            }
            None => {}
        }
        o.only.extend(part(learner));
    }
    o
}

/// Mean error of the chosen method on what is furthest from what it learned; `None` where nothing was held out.
fn error(t: &Trained) -> Option<f64> {
    Some(t.rates.as_ref().ok()?.deciding()?.score.mape)
}

/// The mean of what was judged, as in `cbtop brick-tune`.
fn score(t: &Trained) -> Option<f64> {
    let accuracy = |j: &Judged| match j {
        Judged::Figures(f) => Some(f.report.accuracy),
        Judged::None(_) | Judged::Unmeasured => None,
    };
    let parts = [
        error(t).map(|e| 1.0 - e),
        accuracy(&t.kernels),
        accuracy(&t.bottleneck),
    ];
    let parts: Vec<f64> = parts
        .into_iter()
        .flatten()
        .map(|p| p.clamp(0.0, 1.0))
        .collect();
    (!parts.is_empty()).then(|| 100.0 * parts.iter().sum::<f64>() / parts.len() as f64)
}

fn judged(t: &Trained) -> String {
    let accuracy = |j: &Judged| match j {
        Judged::Figures(f) => format!("{:.0}% right", f.report.accuracy * 100.0),
        Judged::None(why) => format!("none: {why}"),
        Judged::Unmeasured => "not measured".into(),
    };
    let error = error(t).map_or("not judged".into(), |e| format!("{:.1}%", e * 100.0));
    format!(
        "On held-out runs: rates off by {error}; kernels {}; bottlenecks {}",
        accuracy(&t.kernels),
        accuracy(&t.bottleneck)
    )
}
