//! A training recipe: stages that collect runs, train on them and check what came out, in a YAML file.
//!
//! Reading and planning only; the commands run it. Keys and stages that are not known are errors with their line: a key
//! with a typing error in it would otherwise be a setting that is silently not made.

use super::learn::brick_tuner::BrickTuner;
use super::measure::Patience;
use super::store::quality::MIN_REPETITIONS;
use serde::Deserialize;
use serde_saphyr::Spanned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Bytes of a recipe at most.
pub const MAX_BYTES: usize = 1 << 20;
/// Stages, models and list entries at most.
const MAX_ITEMS: usize = 256;
/// Repetitions of a configuration at most.
const MOST_REPETITIONS: u32 = 100;

/// A recipe that cannot be read, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the recipe{}: {what}", .line.map_or_else(String::new, |l| format!(", line {l}")))]
pub struct RecipeError {
    /// Line, from 1, where there is one.
    pub line: Option<u64>,
    /// What is wrong there and what would be right.
    pub what: String,
}

/// A recipe.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    /// Its name.
    pub name: String,
    /// Its version, as given.
    pub version: String,
    /// In the order they run.
    pub stages: Vec<Stage>,
}

/// One stage; paths are relative to the recipe's folder.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// Where it stands, from 1.
    pub line: u64,
    /// What it does.
    pub work: Work,
    /// Runs it reads.
    pub input: Option<PathBuf>,
    /// What it writes.
    pub output: Option<PathBuf>,
}

/// What a stage does.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// `type: profile`: measures models on this machine.
    Profile(Profile),
    /// `type: ml`: trains the tuner's models.
    Train(Train),
    /// `type: falsify`: checks a trained model.
    Falsify(Falsify),
}

/// What is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// GGUF files, relative to the recipe's folder.
    pub models: Vec<PathBuf>,
    /// Sequences run together, as the recipe has them: the sweep chooses its own.
    pub batch_sizes: Vec<u32>,
    /// Kernel sets, as the recipe has them: the sweep takes all that this machine has.
    pub kernels: Vec<String>,
    /// Measured repetitions of a configuration.
    pub runs_per_config: Option<u32>,
    /// Repetitions before them, as the recipe has them: the sweep warms up once.
    pub warmup_runs: Option<u32>,
}

impl Profile {
    /// Repetitions that are measured: as many as the recipe has, at least those that tell of their spread.
    pub fn repetitions(&self) -> u32 {
        let usual = Patience::default().repetitions;
        self.runs_per_config
            .unwrap_or(usual)
            .clamp(MIN_REPETITIONS, MOST_REPETITIONS)
    }

    /// Keys of the recipe that the sweep does not go by.
    fn unused(&self) -> Vec<&'static str> {
        let keys = [
            ("batch_sizes", !self.batch_sizes.is_empty()),
            ("kernels", !self.kernels.is_empty()),
            ("warmup_runs", self.warmup_runs.is_some()),
        ];
        let unused = keys.into_iter().filter(|(_, given)| *given);
        unused.map(|(key, _)| key).collect()
    }

    fn sentence(&self, models: &[String], to: &str) -> String {
        let unused = match self.unused().as_slice() {
            [] => String::new(),
            some => format!(" (the recipe's {} are not used)", some.join(", ")),
        };
        format!(
            "sweep over {} as cbtop tune collect does, with its batches and every kernel set of this machine, {} \
             repetitions each after a warm-up{unused}; runs go to {to}",
            models.join(", "),
            self.repetitions()
        )
    }
}

/// What is trained.
#[derive(Debug, Clone, PartialEq)]
pub struct Train {
    /// What trains: `cbtop`.
    pub framework: String,
    /// Models in order.
    pub models: Vec<Learner>,
}

/// A model to train.
#[derive(Debug, Clone, PartialEq)]
pub struct Learner {
    /// `throughput_regressor`, `kernel_classifier` or `bottleneck_classifier`.
    pub name: String,
    /// `GradientBoostedRegressor`, `RandomForestClassifier` or `LogisticRegression`.
    pub kind: String,
    /// Numbers it is trained with: `n_estimators`, `max_depth`, `learning_rate`, `max_iter`.
    pub params: BTreeMap<String, f64>,
}

/// What is checked: the model that a stage before it trained, against runs held out there.
#[derive(Debug, Clone, PartialEq)]
pub struct Falsify {
    /// Least score of 100.
    pub min_score: f64,
}

/// The learners there are: name, type, parameters.
const LEARNERS: [(&str, &str, &[&str]); 3] = [
    (
        "throughput_regressor",
        "GradientBoostedRegressor",
        &["n_estimators", "max_depth", "learning_rate"],
    ),
    (
        "kernel_classifier",
        "RandomForestClassifier",
        &["n_estimators", "max_depth"],
    ),
    ("bottleneck_classifier", "LogisticRegression", &["max_iter"]),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRecipe {
    name: String,
    version: String,
    stages: Vec<RawStage>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStage {
    name: Spanned<String>,
    #[serde(rename = "type")]
    kind: Spanned<String>,
    #[serde(default)]
    config: RawConfig,
    input: Option<Spanned<String>>,
    output: Option<Spanned<String>>,
}

/// The keys of all types together; which of them fit a type is checked after.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    models: Option<Vec<RawModel>>,
    batch_sizes: Option<Vec<Spanned<u32>>>,
    kernels: Option<Vec<Spanned<String>>>,
    runs_per_config: Option<Spanned<u32>>,
    warmup_runs: Option<Spanned<u32>>,
    framework: Option<Spanned<String>>,
    checklist: Option<Spanned<String>>,
    min_score: Option<Spanned<f64>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawModel {
    File(String),
    Learner(RawLearner),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLearner {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    params: BTreeMap<String, f64>,
}

fn at(line: u64, what: impl Into<String>) -> RecipeError {
    RecipeError {
        line: (line > 0).then_some(line),
        what: what.into(),
    }
}

impl Recipe {
    /// Reads a recipe.
    ///
    /// # Errors
    /// Text that is not YAML or too much of it, keys, types and values that are not known, with their line.
    pub fn parse(text: &str) -> Result<Self, RecipeError> {
        if text.len() > MAX_BYTES {
            return Err(at(0, format!("it has more than {MAX_BYTES} bytes")));
        }
        let raw: RawRecipe = serde_saphyr::from_str(text).map_err(|e| {
            let message = e.without_snippet().to_string();
            // One line; the parser's own place is in ours.
            let what = message.lines().next().unwrap_or_default().to_owned();
            at(e.location().map_or(0, |l| l.line()), what)
        })?;
        let n = raw.stages.len();
        if n == 0 || n > MAX_ITEMS {
            let what = format!("it has {n} stages; give 1 to {MAX_ITEMS}");
            return Err(at(0, what));
        }
        let stages = raw.stages.into_iter().map(stage);
        let stages = stages.collect::<Result<Vec<_>, _>>()?;
        for (i, s) in stages.iter().enumerate() {
            if stages.iter().take(i).any(|other| other.name == s.name) {
                return Err(at(s.line, format!("there are two stages '{}'", s.name)));
            }
        }
        check_scored(&stages)?;
        Ok(Self {
            name: raw.name,
            version: raw.version,
            stages,
        })
    }

    /// What each stage will do, in words, a line each; `folder` is that of the recipe.
    pub fn plan(&self, folder: &Path) -> Vec<String> {
        let lines = self.stages.iter().enumerate();
        lines
            .map(|(i, s)| format!("{}. {}: {}", i + 1, s.name, s.sentence(folder)))
            .collect()
    }
}

impl Stage {
    /// What it will do, with its paths as they are from `folder`.
    pub fn sentence(&self, folder: &Path) -> String {
        let path = |p: &PathBuf| folder.join(p).display().to_string();
        let output = self.output.as_ref().map(path);
        let input = self.input.as_ref().map(path);
        match &self.work {
            Work::Profile(p) => {
                let models: Vec<String> = p.models.iter().map(path).collect();
                p.sentence(&models, output.as_deref().unwrap_or("the run store"))
            }
            Work::Train(t) => {
                let names: Vec<&str> = t.models.iter().map(|m| m.name.as_str()).collect();
                let own = || BrickTuner::default_path().map(|p| p.display().to_string());
                format!(
                    "train {} on {}; the model goes to {}",
                    names.join(", "),
                    input.as_deref().unwrap_or("the run store"),
                    output
                        .or_else(own)
                        .as_deref()
                        .unwrap_or("no folder, because HOME is not set: name a file with 'output'")
                )
            }
            Work::Falsify(f) => format!(
                "score {} on runs held out when it was trained; at least {} of 100",
                input.as_deref().unwrap_or("the model trained last"),
                f.min_score
            ),
        }
    }
}

fn stage(raw: RawStage) -> Result<Stage, RecipeError> {
    let line = raw.name.defined.line();
    if raw.name.value.trim().is_empty() {
        return Err(at(line, "a stage has no name"));
    }
    let mut config = raw.config;
    let work = match raw.kind.value.as_str() {
        "profile" => Work::Profile(profile(&mut config, line)?),
        "ml" => Work::Train(train(&mut config, line)?),
        "falsify" => Work::Falsify(falsify(&mut config)?),
        other => {
            let what = format!("there is no stage type '{other}'; these are: profile, ml, falsify");
            return Err(at(raw.kind.defined.line(), what));
        }
    };
    if let Some((key, line)) = left_over(&config, line) {
        let what = format!("a stage of type '{}' has no '{key}'", raw.kind.value);
        return Err(at(line, what));
    }
    let useless = match &work {
        Work::Profile(_) => raw.input.as_ref().map(|s| (s, "input")),
        Work::Train(_) => None,
        Work::Falsify(_) => raw.output.as_ref().map(|s| (s, "output")),
    };
    if let Some((at_key, key)) = useless {
        let what = format!("a stage of type '{}' has no '{key}'", raw.kind.value);
        return Err(at(at_key.defined.line(), what));
    }
    Ok(Stage {
        name: raw.name.value,
        line,
        work,
        input: raw.input.map(path).transpose()?,
        output: raw.output.map(path).transpose()?,
    })
}

/// Only of a model that was trained in the recipe is it known which runs it has not seen: another one cannot be scored.
fn check_scored(stages: &[Stage]) -> Result<(), RecipeError> {
    let mut trained: Option<&Stage> = None;
    for s in stages {
        match &s.work {
            Work::Profile(_) => {}
            Work::Train(_) => trained = Some(s),
            Work::Falsify(_) => {
                let Some(trained) = trained else {
                    let what = format!(
                        "no stage before '{}' trains, so that no runs are held out; add one of type 'ml'",
                        s.name
                    );
                    return Err(at(s.line, what));
                };
                if s.input.is_some() && s.input != trained.output {
                    let what = format!(
                        "'input' of '{}' is not the 'output' of '{}': only the model that was trained last can be scored on \
                         runs it has not seen",
                        s.name, trained.name
                    );
                    return Err(at(s.line, what));
                }
            }
        }
    }
    Ok(())
}

/// A key that no one took.
fn left_over(c: &RawConfig, line: u64) -> Option<(&'static str, u64)> {
    let of = |key, span: Option<u64>| span.map(|l| (key, l));
    of("models", c.models.as_ref().map(|_| line))
        .or(of(
            "batch_sizes",
            c.batch_sizes
                .as_ref()
                .map(|v| v.first().map_or(line, |s| s.defined.line())),
        ))
        .or(of(
            "kernels",
            c.kernels
                .as_ref()
                .map(|v| v.first().map_or(line, |s| s.defined.line())),
        ))
        .or(of(
            "runs_per_config",
            c.runs_per_config.as_ref().map(|s| s.defined.line()),
        ))
        .or(of(
            "warmup_runs",
            c.warmup_runs.as_ref().map(|s| s.defined.line()),
        ))
        .or(of(
            "framework",
            c.framework.as_ref().map(|s| s.defined.line()),
        ))
        .or(of(
            "checklist",
            c.checklist.as_ref().map(|s| s.defined.line()),
        ))
        .or(of(
            "min_score",
            c.min_score.as_ref().map(|s| s.defined.line()),
        ))
}

/// A path that stays what it says on every machine: no control characters, not empty.
fn path(raw: Spanned<String>) -> Result<PathBuf, RecipeError> {
    if raw.value.is_empty() || raw.value.chars().any(char::is_control) {
        return Err(at(raw.defined.line(), "this is no path"));
    }
    Ok(raw.value.into())
}

fn bounded<T>(items: Vec<T>, key: &str, line: u64) -> Result<Vec<T>, RecipeError> {
    let n = items.len();
    if n == 0 || n > MAX_ITEMS {
        return Err(at(
            line,
            format!("'{key}' has {n} entries; give 1 to {MAX_ITEMS}"),
        ));
    }
    Ok(items)
}

fn between(raw: Spanned<u32>, key: &str, from: u32, to: u32) -> Result<u32, RecipeError> {
    let v = raw.value;
    if (from..=to).contains(&v) {
        Ok(v)
    } else {
        let what = format!("'{key}' is {v}; give {from} to {to}");
        Err(at(raw.defined.line(), what))
    }
}

fn profile(c: &mut RawConfig, line: u64) -> Result<Profile, RecipeError> {
    let Some(models) = c.models.take() else {
        return Err(at(
            line,
            "a stage of type 'profile' needs 'models': GGUF files",
        ));
    };
    let models = bounded(models, "models", line)?.into_iter();
    let models = models.map(|m| match m {
        RawModel::File(f) if !f.is_empty() && !f.chars().any(char::is_control) => Ok(f.into()),
        _ => Err(at(
            line,
            "'models' of a stage of type 'profile' are paths of GGUF files",
        )),
    });
    let batches = c.batch_sizes.take().unwrap_or_default().into_iter();
    let batches = batches.map(|b| between(b, "batch_sizes", 1, 1024));
    let kernels = c.kernels.take().unwrap_or_default().into_iter();
    let kernels = kernels.map(|k| k.value);
    let number =
        |raw: Option<Spanned<u32>>, key, from| raw.map(|v| between(v, key, from, 1000)).transpose();
    Ok(Profile {
        models: models.collect::<Result<_, _>>()?,
        batch_sizes: batches.take(MAX_ITEMS).collect::<Result<_, _>>()?,
        kernels: kernels.take(MAX_ITEMS).collect(),
        runs_per_config: number(c.runs_per_config.take(), "runs_per_config", 1)?,
        warmup_runs: number(c.warmup_runs.take(), "warmup_runs", 0)?,
    })
}

fn train(c: &mut RawConfig, line: u64) -> Result<Train, RecipeError> {
    let framework = c.framework.take();
    if let Some(f) = framework.as_ref().filter(|f| f.value != "cbtop") {
        let what = format!(
            "there is no framework '{}'; this program trains with 'cbtop'",
            f.value
        );
        return Err(at(f.defined.line(), what));
    }
    let models = match c.models.take() {
        None => LEARNERS
            .map(|(name, kind, _)| Learner::plain(name, kind))
            .to_vec(),
        Some(models) => {
            let models = bounded(models, "models", line)?.into_iter();
            models.map(|m| learner(m, line)).collect::<Result<_, _>>()?
        }
    };
    Ok(Train {
        framework: "cbtop".into(),
        models,
    })
}

impl Learner {
    fn plain(name: &str, kind: &str) -> Self {
        Self {
            name: name.into(),
            kind: kind.into(),
            params: BTreeMap::new(),
        }
    }
}

fn learner(raw: RawModel, line: u64) -> Result<Learner, RecipeError> {
    let RawModel::Learner(raw) = raw else {
        let what = "'models' of a stage of type 'ml' have a name, a type and params each";
        return Err(at(line, what));
    };
    let Some((name, kind, params)) = LEARNERS.iter().find(|l| l.0 == raw.name) else {
        let names = LEARNERS.map(|l| l.0).join(", ");
        let what = format!(
            "there is no model '{}' to train; these are: {names}",
            raw.name
        );
        return Err(at(line, what));
    };
    if raw.kind != *kind {
        let what = format!("'{name}' is a {kind}, not a {}", raw.kind);
        return Err(at(line, what));
    }
    for (key, value) in &raw.params {
        if !params.contains(&key.as_str()) {
            let what = format!("{kind} has no '{key}'; it has: {}", params.join(", "));
            return Err(at(line, what));
        }
        if !(value.is_finite() && *value > 0.0 && *value <= 1e5) {
            return Err(at(
                line,
                format!("'{key}' is {value}; give more than 0, at most 100000"),
            ));
        }
    }
    Ok(Learner {
        name: raw.name,
        kind: raw.kind,
        params: raw.params,
    })
}

fn falsify(c: &mut RawConfig) -> Result<Falsify, RecipeError> {
    if let Some(list) = &c.checklist {
        let what = "a recipe cannot run a 'checklist': its criteria are tests of the program; leave the key out";
        return Err(at(list.defined.line(), what));
    }
    let min_score = c.min_score.take().map_or(Ok(90.0), |s| {
        let v = s.value;
        if (0.0..=100.0).contains(&v) {
            Ok(v)
        } else {
            Err(at(
                s.defined.line(),
                format!("'min_score' is {v}; give 0 to 100"),
            ))
        }
    })?;
    Ok(Falsify { min_score })
}

#[cfg(test)]
mod tests;
