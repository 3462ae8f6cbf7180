//! Whether the tuner is right about runs that were measured: error of rates, kernels and bottlenecks, and a grade.
//!
//! The score is the mean of what the profiles can show, each out of 100: 100 less the error of the rates in percent, the
//! accuracy of kernels, the accuracy of bottlenecks. What they cannot show is left out and said to be.

use super::learn::logistic;
use super::measure::time_shares;
use super::oracle::Predict;
use super::run::{Subject, Test, Trial};
use super::sweep::CLASS_KNOB;
use crate::profiler::critical::Roof;
use crate::profiler::figures::BrickRow;
use serde::Serialize;

/// Mean error of rates must stay below this share.
pub const MAX_ERROR: f64 = 0.10;
/// Share of kernel recommendations that must be exceeded.
pub const MIN_KERNELS: f64 = 0.80;
/// Share of bottlenecks that must be exceeded.
pub const MIN_BOTTLENECKS: f64 = 0.85;
/// A score from here on passes whatever the targets say.
pub const PASSING_SCORE: f64 = 90.0;
/// Fewer profiles than this show little.
const FEW: usize = 10;

/// A run that was profiled.
#[derive(Debug, Clone, Copy)]
pub struct Profiled<'a> {
    /// What ran: machine, model, and the configuration at its end.
    pub subject: &'a Subject,
    /// Read bandwidth at its number of threads, if it was probed, GB/s.
    pub bandwidth_gbps: Option<f64>,
    /// Generation, tokens a second.
    pub tok_s: f64,
    /// Tokens of the prompt, and generated.
    pub tokens: (u32, u32),
    /// Bricks of its decode steps.
    pub bricks: &'a [BrickRow],
    /// Kernel sets whose rate was measured in the same session, tokens a second.
    pub kernels: &'a [(String, f64)],
}

/// One figure against its target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measure {
    /// What it is.
    pub name: &'static str,
    /// The figure, a share; `None` where the profiles do not show it.
    pub value: Option<f64>,
    /// Of how many comparisons.
    pub of: usize,
    /// The target, a share.
    pub target: f64,
    /// Whether it is met; `None` where there is no figure.
    pub holds: Option<bool>,
    /// Why there is no figure.
    pub missing: Option<&'static str>,
}

/// What was predicted and measured of one profile.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Model, quantisation and kernels.
    pub run: String,
    /// Measured, tokens a second.
    pub measured_tok_s: f64,
    /// Predicted, tokens a second.
    pub predicted_tok_s: Option<f64>,
    /// Difference as a share of what was measured.
    pub error: Option<f64>,
    /// What limits it by the measured roofline.
    pub bottleneck: Option<&'static str>,
    /// What limits it by the model.
    pub predicted_bottleneck: Option<String>,
}

/// The report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Validation {
    /// Profiles compared.
    pub profiles: usize,
    /// What predicted.
    pub method: String,
    /// Throughput, kernels, bottlenecks.
    pub measures: Vec<Measure>,
    /// 0 to 100; `None` where nothing could be compared.
    pub score: Option<f64>,
    /// `A` from 90, `B` from 80, `C` from 70, `D` from 60, else `F`; `-` without a score.
    pub grade: char,
    /// Whether all targets that could be judged are met, or the score is 90 or more.
    pub passed: bool,
    /// What the reader should know.
    pub notes: Vec<String>,
    /// Profile by profile.
    pub rows: Vec<Row>,
}

/// The letter of a score.
pub fn grade(score: Option<f64>) -> char {
    match score {
        Some(s) if s >= 90.0 => 'A',
        Some(s) if s >= 80.0 => 'B',
        Some(s) if s >= 70.0 => 'C',
        Some(s) if s >= 60.0 => 'D',
        Some(_) => 'F',
        None => '-',
    }
}

impl Profiled<'_> {
    /// The question that the tuner is asked about it.
    pub fn trial(&self) -> Trial {
        self.subject.trial(Test {
            prompt: 0,
            generated: self.tokens.1.max(1),
            depth: self.tokens.0,
            batch: 1,
        })
    }

    /// Its kernel set.
    fn kernel_set(&self) -> &str {
        self.subject.setting(CLASS_KNOB).unwrap_or_default()
    }

    /// What limits it, by time under the probed roof; `None` where it is not known of most of the time.
    fn bottleneck(&self) -> Option<&'static str> {
        let roof = Roof::probed(self.bandwidth_gbps);
        let class = logistic::label(&time_shares(self.bricks, roof)?)?;
        Some(logistic::CLASSES[class])
    }

    /// What must be equal for two profiles to differ in their kernels alone.
    fn but_for_kernels(&self) -> String {
        let mut trial = self.trial();
        trial.settings.retain(|s| s.knob != CLASS_KNOB);
        trial.test.generated = 0;
        trial.key()
    }
}

/// Compares what is predicted with what was measured.
pub fn validate(profiles: &[Profiled<'_>], predict: Predict<'_>) -> Validation {
    let mut rows = Vec::new();
    let mut method = String::new();
    for p in profiles
        .iter()
        .filter(|p| p.tok_s.is_finite() && p.tok_s > 0.0)
    {
        let said = predict(&p.trial());
        let predicted = said.tok_s.map(|i| i.mid).filter(|v| v.is_finite());
        method = said.method;
        rows.push(Row {
            run: format!(
                "{} {}, {}, {} threads",
                p.subject.model.name,
                p.subject.model.quant,
                p.kernel_set(),
                p.subject.setting("threads").unwrap_or("?")
            ),
            measured_tok_s: p.tok_s,
            predicted_tok_s: predicted,
            error: predicted.map(|v| (v - p.tok_s).abs() / p.tok_s),
            bottleneck: p.bottleneck(),
            predicted_bottleneck: said.bottleneck,
        });
    }
    let measures = vec![
        throughput(&rows),
        kernels(profiles, predict),
        bottlenecks(&rows),
    ];
    let score = score(&measures);
    let judged: Vec<bool> = measures.iter().filter_map(|m| m.holds).collect();
    let all_hold = !judged.is_empty() && judged.iter().all(|h| *h);
    let mut notes = Vec::new();
    match rows.len() {
        0 => {}
        1 => notes.push(
            "one profile shows little: whether the tuner is right here, not how often it is; give several".into(),
        ),
        n if n < FEW => notes.push(format!("{n} profiles show little; give {FEW} or more")),
        _ => {}
    }
    if judged.len() < measures.len() && !judged.is_empty() {
        notes.push("the score is of what these profiles can show".into());
    }
    Validation {
        profiles: rows.len(),
        method,
        measures,
        score,
        grade: grade(score),
        passed: all_hold || score.is_some_and(|s| s >= PASSING_SCORE),
        notes,
        rows,
    }
}

/// The mean of the parts there are; the first is an error, the others are shares that are right.
fn score(measures: &[Measure]) -> Option<f64> {
    let part = |(i, m): (usize, &Measure)| {
        let v = m.value?;
        let right = if i == 0 { 1.0 - v } else { v };
        Some(100.0 * right.clamp(0.0, 1.0))
    };
    let parts: Vec<f64> = measures.iter().enumerate().filter_map(part).collect();
    (!parts.is_empty()).then(|| parts.iter().sum::<f64>() / parts.len() as f64)
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn throughput(rows: &[Row]) -> Measure {
    let errors: Vec<f64> = rows.iter().filter_map(|r| r.error).collect();
    let value = mean(&errors);
    Measure {
        name: "Throughput prediction error",
        value,
        of: errors.len(),
        target: MAX_ERROR,
        holds: value.map(|v| v < MAX_ERROR),
        missing: value
            .is_none()
            .then_some("no rate was predicted for these profiles"),
    }
}

/// What profiles have in common but for their kernels, the first of them, and the rate of every kernel set.
type Group<'a> = (String, &'a Profiled<'a>, Vec<(&'a str, f64)>);

/// The fastest kernel set of every group of profiles alike but for it, against the one recommended.
fn kernels(profiles: &[Profiled<'_>], predict: Predict<'_>) -> Measure {
    let mut groups: Vec<Group> = Vec::new();
    for p in profiles {
        let key = p.but_for_kernels();
        let at = groups.iter().position(|g| g.0 == key).unwrap_or_else(|| {
            groups.push((key, p, Vec::new()));
            groups.len() - 1
        });
        if let Some((_, _, rates)) = groups.get_mut(at) {
            rates.push((p.kernel_set(), p.tok_s));
            rates.extend(p.kernels.iter().map(|(name, rate)| (name.as_str(), *rate)));
        }
    }
    let mut right = Vec::new();
    for (_, p, rates) in &groups {
        let fastest = rates
            .iter()
            .filter(|r| r.1.is_finite())
            .max_by(|a, b| a.1.total_cmp(&b.1));
        let Some((fastest, _)) = fastest else {
            continue;
        };
        let several = rates.iter().any(|(name, _)| name != fastest);
        let said = predict(&p.trial()).kernels;
        // Of those that were measured: whether one that nobody ran would be faster is not known.
        let measured = |k: &&(String, f64)| rates.iter().any(|(name, _)| *name == k.0);
        if let Some((best, _)) = said.iter().find(measured).filter(|_| several) {
            right.push(f64::from(u8::from(best == fastest)));
        }
    }
    let value = mean(&right);
    Measure {
        name: "Kernel recommendation accuracy",
        value,
        of: right.len(),
        target: MIN_KERNELS,
        holds: value.map(|v| v > MIN_KERNELS),
        missing: value.is_none().then_some(
            "no two profiles differ in their kernels alone; profile the same with another --backend",
        ),
    }
}

fn bottlenecks(rows: &[Row]) -> Measure {
    let both = |r: &Row| Some((r.bottleneck?, r.predicted_bottleneck.as_deref()?.to_owned()));
    let pairs: Vec<_> = rows.iter().filter_map(both).collect();
    let right: Vec<f64> = pairs
        .iter()
        .map(|(seen, said)| f64::from(u8::from(seen == said)))
        .collect();
    let value = mean(&right);
    Measure {
        name: "Bottleneck classification",
        value,
        of: right.len(),
        target: MIN_BOTTLENECKS,
        holds: value.map(|v| v > MIN_BOTTLENECKS),
        missing: value.is_none().then_some(
            "these profiles hold no bricks under a probed roof, or nothing was predicted",
        ),
    }
}

#[cfg(test)]
mod tests;
