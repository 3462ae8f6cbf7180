//! Runs to a [`BrickTuner`], with what it shows on runs it has not seen.

use super::brick_tuner::BrickTuner;
use super::evaluate::{Evaluation, Method, evaluate};
use super::examples::{self, Examples, KernelGroup};
use super::forest::{ClassifierError, ForestOptions, KernelForest};
use super::logistic::{self, BottleneckModel};
use super::metrics::{self, ClassReport, Scored};
use super::novelty::Novelty;
use super::rates::Rates;
use super::throughput::TrainOptions;
use crate::tuner::run::Run;
use std::collections::{BTreeMap, BTreeSet};

/// Rows of a kind that a classifier is not trained from.
const LEAST_ROWS: usize = 20;
/// Prototypes and folds of what is new are found over this many rows at most.
const MOST_PLAIN: usize = 8192;

/// A part of the ensemble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// What predicts rates.
    Rates,
    /// Which kernel is fastest.
    Kernels,
    /// What limits a token.
    Bottleneck,
}

/// How to train.
#[derive(Debug, Clone, PartialEq)]
pub struct BrickOptions {
    /// The forest.
    pub forest: ForestOptions,
    /// What to train: all parts if empty.
    pub only: Vec<Part>,
    /// Iterations of the bottlenecks' solver at most.
    pub iterations: u64,
    /// The rates; its seed is that of all parts.
    pub rates: TrainOptions,
    /// When, seconds since 1970 UTC: given, so that the same runs give the same file.
    pub trained_at: i64,
    /// The model whose other parts stay, and whose version is followed; without one, the model that is part of the program
    /// where only some parts are trained.
    pub before: Option<BrickTuner>,
}

impl Default for BrickOptions {
    fn default() -> Self {
        Self {
            forest: ForestOptions::default(),
            only: Vec::new(),
            iterations: logistic::ITERATIONS,
            rates: TrainOptions::default(),
            trained_at: 0,
            before: None,
        }
    }
}

/// No model could be trained.
#[derive(Debug, thiserror::Error)]
pub enum BrickError {
    /// No runs.
    #[error("there are no runs to learn from; collect some with cbtop tune collect")]
    NoRuns,
}

/// How a classifier did on held-out groups, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub enum Judged {
    /// Its figures.
    Figures(Figures),
    /// Why there is none.
    None(String),
    /// It was learned, but no group of runs could be held out to see how well.
    Unmeasured,
}

/// Figures of a classifier on held-out groups.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// Names of the classes, in the order of the report.
    pub classes: Vec<String>,
    /// The figures.
    pub report: ClassReport,
    /// Time lost by following it, as a share of the time of the fastest choice; `None` where that has no meaning.
    pub regret: Option<f64>,
    /// Rows that were left out for being undecided.
    pub undecided: usize,
    /// The baseline: the commonest class for every row, its accuracy and the time lost by it.
    pub commonest: Option<(f64, f64)>,
}

/// A model with what it showed.
#[derive(Debug, Clone)]
pub struct Trained {
    /// The model.
    pub tuner: BrickTuner,
    /// All methods for rates on the same held-out runs, or why there are no figures.
    pub rates: Result<Evaluation, String>,
    /// Its choice of kernels.
    pub kernels: Judged,
    /// Its bottlenecks.
    pub bottleneck: Judged,
}

impl BrickTuner {
    /// Learns from runs.
    ///
    /// # Errors
    /// No runs. A part that the runs do not carry is left out, and the report says why.
    pub fn train(runs: &[Run], options: &BrickOptions) -> Result<Trained, BrickError> {
        let usable = |r: &&Run| r.tok_s.is_finite() && r.tok_s > 0.0;
        let runs: Vec<&Run> = runs.iter().filter(usable).collect();
        if runs.is_empty() {
            return Err(BrickError::NoRuns);
        }
        let wanted = |p: Part| options.only.is_empty() || options.only.contains(&p);
        let mut tuner = match &options.before {
            Some(before) => before.clone(),
            None if options.only.is_empty() => BrickTuner::cold_start(),
            None => BrickTuner::pretrained().clone(),
        };
        let not_asked = || Judged::None("not asked for".into());
        let (mut kernels, mut bottleneck) = (not_asked(), not_asked());
        let mut rates = Err("not asked for".into());
        // What is told of the runs is told of those that the rates rest on.
        if wanted(Part::Rates) {
            tuner.correction = None;
            (tuner.rates, rates) = train_rates(&runs, &options.rates);
            let reached = rates.as_ref().ok().and_then(Evaluation::deciding);
            tuner.about.error = reached.map(|m| m.score.median_error);
            tuner.about.ratio_errors =
                reached.map_or_else(BTreeMap::new, |m| m.ratio_errors.clone());
            tuner.caveats.clear();
            if tuner.rates == Rates::Untrained {
                let caveat = "too few runs to learn rates from: they are from the roofline alone";
                tuner.caveats.push(caveat.into());
            }
        }
        if wanted(Part::Rates) || tuner.about.samples == 0 {
            tuner.novelty = train_novelty(&runs);
            tuner.about.samples = runs.len();
            tuner.about.machines = machines(&runs);
        }
        if wanted(Part::Kernels) {
            (tuner.kernels, kernels) = train_kernels(&runs, options);
        }
        if wanted(Part::Bottleneck) {
            (tuner.bottleneck, bottleneck) = train_bottleneck(&runs, options.iterations);
        }
        tuner.about.version = tuner.about.version.saturating_add(1);
        tuner.about.trained_at = options.trained_at;
        Ok(Trained {
            tuner,
            rates,
            kernels,
            bottleneck,
        })
    }
}

fn machines(runs: &[&Run]) -> usize {
    let of = runs.iter().map(|r| r.trial.hardware.fingerprint.as_str());
    of.collect::<BTreeSet<&str>>().len()
}

/// The method that does best on held-out runs, trained on all of them; the one with the most to learn where none can be held
/// out.
fn train_rates(runs: &[&Run], options: &TrainOptions) -> (Rates, Result<Evaluation, String>) {
    let evaluation = evaluate(runs, options);
    let method = match &evaluation {
        Ok(evaluation) => evaluation.chosen,
        Err(_) => Method::GradientBoosting,
    };
    match method.train(runs, options) {
        Ok(fitted) => {
            let unmeasured = |e| format!("{}, but not measured: {e}", method.name());
            let judged = evaluation.map_err(unmeasured);
            (Rates::Learned(method, fitted), judged)
        }
        Err(e) => (Rates::Untrained, Err(format!("not learned: {e}"))),
    }
}

fn train_kernels(runs: &[&Run], options: &BrickOptions) -> (Option<KernelForest>, Judged) {
    let groups = examples::kernel_groups(runs);
    let examples = examples::kernel_examples(&groups);
    let rows = examples.rows();
    if rows.len() < LEAST_ROWS {
        return (
            None,
            Judged::None(too_few(&rows.len(), "trials with several kernels")),
        );
    }
    let forest = ForestOptions {
        seed: options.rates.seed,
        ..options.forest
    };
    match KernelForest::train(examples.classes.clone(), &rows, &forest) {
        Ok(grown) => {
            let decided: Vec<&KernelGroup> = groups.iter().filter(|g| g.decided()).collect();
            let regret = regret(&decided, &examples.classes, &grown.held_out);
            let undecided = groups.len() - decided.len();
            let commonest = commonest(&decided, &examples, &grown.held_out);
            let lost = Some((regret, commonest));
            let figures = figures(&examples, &grown.held_out, lost, undecided);
            (Some(grown.forest), figures)
        }
        Err(e) => (None, why_not(&e)),
    }
}

fn train_bottleneck(runs: &[&Run], iterations: u64) -> (Option<BottleneckModel>, Judged) {
    let examples = examples::bottleneck_examples(runs);
    let rows = examples.rows();
    if rows.len() < LEAST_ROWS {
        return (
            None,
            Judged::None(too_few(&rows.len(), "runs timed by brick")),
        );
    }
    match BottleneckModel::train_in(&rows, iterations) {
        Ok(fitted) => {
            let figures = figures(&examples, &fitted.held_out, None, 0);
            (Some(fitted.model), figures)
        }
        Err(e) => (None, why_not(&e)),
    }
}

fn train_novelty(runs: &[&Run]) -> Option<Novelty> {
    let step = runs.len().div_ceil(MOST_PLAIN).max(1);
    let some: Vec<&Run> = runs.iter().step_by(step).copied().collect();
    Novelty::train(&examples::plain_examples(&some).rows())
}

fn figures(
    examples: &Examples,
    held_out: &[Scored],
    lost: Option<(f64, (f64, f64))>,
    undecided: usize,
) -> Judged {
    if held_out.is_empty() {
        return Judged::Unmeasured;
    }
    Judged::Figures(Figures {
        classes: examples.classes.clone(),
        report: metrics::report(held_out, examples.classes.len()),
        regret: lost.map(|l| l.0),
        undecided,
        commonest: lost.map(|l| l.1),
    })
}

/// What naming the commonest class every time comes to: accuracy, and time lost.
fn commonest(groups: &[&KernelGroup], examples: &Examples, held_out: &[Scored]) -> (f64, f64) {
    let counts = examples.counts();
    let most = (0..counts.len()).max_by_key(|c| counts[*c]).unwrap_or(0);
    let mut certain = vec![0.0; counts.len()];
    certain.iter_mut().skip(most).take(1).for_each(|p| *p = 1.0);
    let named = |s: &Scored| Scored {
        probabilities: certain.clone(),
        ..s.clone()
    };
    let named: Vec<Scored> = held_out.iter().map(named).collect();
    let right = named.iter().filter(|s| s.class == most).count();
    let accuracy = right as f64 / named.len().max(1) as f64;
    (accuracy, regret(groups, &examples.classes, &named))
}

/// Time lost by running the likeliest kernel, or the next likely one that was measured, instead of the fastest.
fn regret(groups: &[&KernelGroup], classes: &[String], held_out: &[Scored]) -> f64 {
    let one = |scored: &Scored| {
        let group = groups.get(scored.row)?;
        let fastest = group.rates.first()?.1;
        let measured = |at: usize| {
            let name = classes.get(at)?;
            let rate = group.rates.iter().find(|(n, _)| n == name)?.1;
            Some(fastest / rate - 1.0)
        };
        metrics::ranked(&scored.probabilities)
            .into_iter()
            .find_map(measured)
    };
    let lost: Vec<f64> = held_out.iter().filter_map(one).collect();
    lost.iter().sum::<f64>() / lost.len().max(1) as f64
}

fn too_few(n: &usize, what: &str) -> String {
    format!("{n} {what} are too few, {LEAST_ROWS} are needed; collect more with cbtop tune collect")
}

fn why_not(e: &ClassifierError) -> Judged {
    Judged::None(e.to_string())
}
