//! All that the tuner has learned, as one: rates, kernels, bottlenecks, and whether a question is like what they were
//! learned from.

use super::correction::{Correction, Residual};
use super::examples;
use super::forest::KernelForest;
use super::logistic::{self, BottleneckModel};
use super::metrics;
use super::novelty::Novelty;
use super::rates::Rates;
use super::words;
use crate::engine::knobs::knob;
use crate::tuner::features::{Measured, PREDICTORS, TunerFeatures};
use crate::tuner::recommendation::{BottleneckFrame, Interval};
use crate::tuner::run::{Run, Trial};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The model that is part of the program.
const EMBEDDED: &[u8] = include_bytes!("../../../assets/tuner.safetensors");

/// What a model was made from.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct About {
    /// Counts the trainings that were saved over each other.
    pub version: u32,
    /// When, seconds since 1970 UTC.
    pub trained_at: i64,
    /// Runs that the rates were learned from.
    pub samples: usize,
    /// Distinct machines among them.
    pub machines: usize,
    /// Median error of the rates of held-out runs, a share of the rate.
    pub error: Option<f64>,
    /// Nine of ten ratios of held-out runs that differ in a knob alone were predicted within this much, in logarithms, by knob.
    pub ratio_errors: BTreeMap<String, f64>,
}

/// What is said to a question.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// Rate, tokens a second over all sequences; `None` where nothing about the machine is known.
    pub tok_s: Option<Interval>,
    /// What predicted it: `gradient boosting`, `k nearest runs`, `roofline`.
    pub method: &'static str,
    /// Kernel variants with their probability, the likeliest first; empty without a classifier.
    pub kernels: Vec<(String, f64)>,
    /// What limits a token; `None` without a classifier.
    pub bottleneck: Option<BottleneckFrame>,
    /// Why the answer is to be doubted.
    pub warnings: Vec<String>,
    /// Columns that weigh most in the rate, the first one most; empty names are none.
    pub top_features: [&'static str; 5],
}

/// The ensemble.
#[derive(Debug, Clone, PartialEq)]
pub struct BrickTuner {
    /// What predicts rates.
    pub rates: Rates,
    /// Which kernel is fastest.
    pub kernels: Option<KernelForest>,
    /// What limits a token.
    pub bottleneck: Option<BottleneckModel>,
    /// What is new.
    pub novelty: Option<Novelty>,
    /// What one machine does otherwise.
    pub correction: Option<Correction>,
    /// What it was made from.
    pub about: About,
    /// What is wrong with it, said with every answer.
    pub caveats: Vec<String>,
}

impl BrickTuner {
    /// The roofline alone: what can be said without a single run.
    pub fn cold_start() -> Self {
        Self {
            rates: Rates::Untrained,
            kernels: None,
            bottleneck: None,
            novelty: None,
            correction: None,
            about: About::default(),
            caveats: vec!["nothing was learned from: rates are from the roofline alone".into()],
        }
    }

    /// The model that is part of the program; the roofline, and a warning, where it is damaged.
    pub fn pretrained() -> &'static Self {
        static MODEL: LazyLock<BrickTuner> = LazyLock::new(|| {
            BrickTuner::from_bytes(EMBEDDED).unwrap_or_else(|e| {
                let mut cold = BrickTuner::cold_start();
                cold.caveats
                    .push(format!("the embedded model cannot be used: {e}"));
                cold
            })
        });
        &MODEL
    }

    /// Bytes of the model that is part of the program.
    pub fn embedded() -> &'static [u8] {
        EMBEDDED
    }

    /// Version, runs, machines and day, as `3, 5,120 runs of 68 machines, 2026-11-30`; `none` with the roofline alone.
    pub fn title(&self) -> String {
        let about = &self.about;
        if about.samples == 0 {
            return "none".into();
        }
        format!(
            "{}, {} runs of {} machines, {}",
            about.version,
            grouped(about.samples),
            grouped(about.machines),
            day(about.trained_at)
        )
    }

    /// Answers a question; `measured` is what the same configuration showed in this session, if it ran.
    pub fn predict(&self, trial: &Trial, measured: Option<&Measured>) -> Answer {
        let features = TunerFeatures::of(trial, None);
        let mut answer = Answer {
            method: self.rates.name(),
            warnings: self.caveats.clone(),
            ..Answer::default()
        };
        if let Some(p) = self.rates.predict(trial) {
            answer.tok_s = Some(self.corrected(p.tok_s, trial, &features));
            answer.top_features = p.top_features;
        }
        if let Some(forest) = &self.kernels {
            answer.kernels = self.rank_kernels(forest, &features);
        }
        if let Some(model) = &self.bottleneck {
            answer.bottleneck = Some(bottleneck(model, &features));
        }
        self.warn(trial, &features, &mut answer.warnings);
        if let (Some(m), Some(expected)) = (measured, answer.tok_s) {
            let outside = m.tok_s < expected.low / 1.5 || m.tok_s > expected.high * 1.5;
            if outside {
                answer.warnings.push(format!(
                    "measured {:.1} tok/s is far outside what was predicted; calibrate this machine",
                    m.tok_s
                ));
            }
        }
        answer
    }

    /// The rate without what was learned about one machine; `None` as in [`Answer::tok_s`].
    pub fn base_rate(&self, trial: &Trial) -> Option<f64> {
        let rate = self.rates.predict(trial)?.tok_s.mid;
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }

    /// The rate; `None` as in [`Answer::tok_s`].
    pub fn rate(&self, trial: &Trial) -> Option<f64> {
        let features = TunerFeatures::of(trial, None);
        let predicted = self.rates.predict(trial)?;
        let rate = self.corrected(predicted.tok_s, trial, &features).mid;
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }

    /// A run as what the rates without correction leave unexplained; `None` where they say nothing.
    pub fn residual(&self, run: &Run) -> Option<Residual> {
        let log_ratio = (run.tok_s / self.base_rate(&run.trial)?).ln();
        log_ratio.is_finite().then(|| Residual {
            x: TunerFeatures::of(&run.trial, None).predictors().to_vec(),
            decode: run.trial.test.is_decode(),
            log_ratio,
            group: examples::group_of(&run.trial),
        })
    }

    /// Whether the three models agree on a trial: the kernel that is likeliest the fastest is also, within 3%, the one of the
    /// highest rate, and what is said to limit a token fits the share of the machine's peaks that the rate needs. `None`
    /// without all three.
    pub fn agrees(&self, trial: &Trial) -> Option<bool> {
        let forest = self.kernels.as_ref()?;
        let model = self.bottleneck.as_ref()?;
        let features = TunerFeatures::of(trial, None);
        let ranked = self.rank_kernels(forest, &features);
        let rate = |name: &str| self.rate(&examples::with_variant(trial, name));
        let rates: Vec<f64> = ranked.iter().filter_map(|(name, _)| rate(name)).collect();
        let best = rates.iter().copied().fold(0.0, f64::max);
        let kernels = rates.first()? * 1.03 >= best;
        let measured = Measured {
            tok_s: self.rate(trial)?,
        };
        let needed = TunerFeatures::of(trial, Some(&measured));
        let use_of = |name| needed.get(name).unwrap_or(0.0);
        let (memory, compute) = (use_of("bandwidth_use"), use_of("compute_use"));
        let class = metrics::likeliest(&model.probabilities(features.predictors()))?;
        let limits = match logistic::CLASSES[class] {
            "memory" | "attention" => memory >= compute,
            "compute" => compute >= memory,
            _ => memory.max(compute) < 0.5,
        };
        Some(kernels && limits)
    }

    /// This fitted to one machine by a few of its runs: a factor, one for prompts and generation each, or a slope for every
    /// column, whichever predicts held-out runs of them best. `None` if nothing does better than this as it is, or with
    /// runs of several machines.
    pub fn transfer(&self, local: &[&Run]) -> Option<Self> {
        let machine = &local.first()?.trial.hardware.fingerprint;
        if local
            .iter()
            .any(|r| r.trial.hardware.fingerprint != *machine)
        {
            return None;
        }
        let rows: Vec<Residual> = local.iter().filter_map(|r| self.residual(r)).collect();
        let (correction, _) = Correction::fit(machine, &rows)?;
        Some(Self {
            correction: Some(correction),
            ..self.clone()
        })
    }

    fn corrected(&self, rate: Interval, trial: &Trial, features: &TunerFeatures) -> Interval {
        let Some(c) = &self.correction else {
            return rate;
        };
        if c.fingerprint != trial.hardware.fingerprint {
            return rate;
        }
        let factor = c
            .log_ratio(features.predictors(), trial.test.is_decode())
            .exp();
        let mid = rate.mid * factor;
        match c.half_width {
            Some(half) => {
                let wide = f64::from(half).exp();
                Interval {
                    low: mid / wide,
                    mid,
                    high: mid * wide,
                }
            }
            None => Interval {
                low: rate.low * factor,
                mid,
                high: rate.high * factor,
            },
        }
    }

    fn rank_kernels(&self, forest: &KernelForest, features: &TunerFeatures) -> Vec<(String, f64)> {
        let shares = forest.probabilities(&examples::kernel_columns(features));
        let ranked = metrics::ranked(&shares);
        let named = |at: usize| Some((forest.classes().get(at)?.clone(), f64::from(shares[at])));
        ranked.into_iter().filter_map(named).collect()
    }

    fn warn(&self, trial: &Trial, features: &TunerFeatures, warnings: &mut Vec<String>) {
        let new = self.novelty.as_ref();
        if let Some(unlike) = new.and_then(|n| n.unlike(features.predictors())) {
            warnings.push(format!(
                "unlike all that was learned from, by {:.1} times what is usual: {}",
                unlike.times,
                words::of(unlike.column, unlike.high)
            ));
        }
        let kernels = trial.setting("backend").filter(|set| !known_kernels(set));
        if let Some(set) = kernels {
            warnings.push(format!(
                "kernel set '{set}' is not known: it counts as none in particular"
            ));
        }
    }
}

/// Whether a kernel set has a column.
fn known_kernels(set: &str) -> bool {
    knob("backend").is_some_and(|k| {
        let mut columns = [0.0; 16];
        let Some(columns) = columns.get_mut(..k.columns.len()) else {
            return true;
        };
        (k.encode)(set, columns);
        columns.iter().any(|c| *c > 0.0)
    })
}

fn bottleneck(model: &BottleneckModel, features: &TunerFeatures) -> BottleneckFrame {
    let x = features.predictors();
    let shares = model.probabilities(x);
    let class = metrics::likeliest(&shares).unwrap_or(0);
    let mut why = String::new();
    for reason in model.reasons(x, class, 3) {
        if !why.is_empty() {
            why.push_str(", ");
        }
        why.push_str(&words::of(reason.column, reason.high));
    }
    BottleneckFrame {
        class: logistic::CLASSES[class].into(),
        confidence: f64::from(shares[class]),
        why,
    }
}

/// `5120` as `5,120`.
fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, c) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A time as its day, UTC (Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`).
fn day(unix_s: i64) -> String {
    let z = unix_s.div_euclid(86_400) + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{:02}", doy - (153 * mp + 2) / 5 + 1)
}

/// Columns of the vector that knobs have, in order: what a saved model is matched by.
pub(super) fn columns() -> &'static [&'static str] {
    &crate::tuner::features::names()[..PREDICTORS]
}

#[cfg(test)]
#[path = "brick_tuner/tests.rs"]
mod tests;
