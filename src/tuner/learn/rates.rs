//! What predicts rates: the method that won on held-out runs, or the roofline where nothing was learned.

use super::arrays::{Array, Arrays};
use super::baselines::{Formula, Nearest};
use super::evaluate::{Fitted, Method};
use super::file::{ModelFileError, Places, put_trees};
use super::throughput::{RegressorParts, ThroughputRegressor};
use crate::tuner::recommendation::Interval;
use crate::tuner::roofline;
use crate::tuner::run::Trial;
use serde_json::Value;

/// Shares of the roofline that generation reaches, low, usual and high, where nothing was learned.
const GENERATION: [f64; 3] = [0.25, 0.65, 1.0];
/// And prompts, whose roof assumes the fastest arithmetic that any kernel could use.
const PROMPTS: [f64; 3] = [0.02, 0.1, 0.6];

/// A predicted rate.
#[derive(Debug, Clone, PartialEq)]
pub struct Rate {
    /// Tokens a second over all sequences.
    pub tok_s: Interval,
    /// Columns that weigh most, the first one most.
    pub top_features: [&'static str; 5],
}

/// What predicts rates.
#[derive(Debug, Clone, PartialEq)]
pub enum Rates {
    /// A usual share of what the machine's peaks allow.
    Untrained,
    /// A method that learned from runs.
    Learned(Method, Fitted),
}

impl Rates {
    /// Name as in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Untrained => Method::Roofline.name(),
            Self::Learned(method, _) => method.name(),
        }
    }

    /// The rate of a trial; `None` where nothing was learned and nothing about the machine is known.
    pub fn predict(&self, trial: &Trial) -> Option<Rate> {
        let roofline = ["roofline", "", "", "", ""];
        match self {
            Self::Untrained => Some(Rate {
                tok_s: by_roofline(trial)?,
                top_features: roofline,
            }),
            Self::Learned(_, Fitted::GradientBoosting(m)) => {
                let p = m.predict(trial);
                Some(Rate {
                    tok_s: p.tok_s,
                    top_features: p.top_features,
                })
            }
            Self::Learned(_, fitted) => Some(Rate {
                tok_s: fitted.predict(trial),
                top_features: roofline,
            }),
        }
    }

    /// Adds what it learned to a model's arrays.
    pub(super) fn write(&self, a: &mut Arrays) {
        let (name, fitted) = match self {
            Self::Untrained => ("untrained", None),
            Self::Learned(method, fitted) => (method.name(), Some(fitted)),
        };
        a.header.insert("rates".into(), name.into());
        match fitted {
            None => {}
            Some(Fitted::GradientBoosting(m)) => write_trees(&m.parts(), a),
            Some(Fitted::Formula(f)) => {
                let parts = f.parts().to_vec();
                a.header.insert("rates.formula".into(), parts.into());
            }
            Some(Fitted::Nearest(n)) => {
                let (rows, shares, scale, width) = n.parts();
                a.header
                    .insert("rates.shares".into(), shares.to_vec().into());
                a.header.insert("rates.width".into(), width.into());
                a.put("rates.rows", Array::F32(rows));
                a.put("rates.scale", Array::F32(scale.to_vec()));
            }
        }
    }

    /// Reads it back.
    pub(super) fn read(a: &Arrays, places: &Places) -> Result<Self, ModelFileError> {
        let damaged = ModelFileError::Damaged("what predicts rates is not whole");
        let name = a.text("rates")?;
        if name == "untrained" {
            return Ok(Self::Untrained);
        }
        let method = Method::ALL.into_iter().find(|m| m.name() == name);
        let Some(method) = method else {
            return Err(ModelFileError::Damaged("what predicts rates is not known"));
        };
        let fitted = match method {
            Method::GradientBoosting => {
                let parts = read_trees(a, places)?;
                let model = ThroughputRegressor::from_parts(parts).map_err(|_| damaged)?;
                Fitted::GradientBoosting(Box::new(model))
            }
            Method::Nearest => {
                let shares = a.numbers("rates.shares")?;
                let rows = places.spread(a.f32_of("rates.rows", shares.len() * places.count())?);
                let scale = places.spread(a.f32_of("rates.scale", places.count())?);
                let width = a.number("rates.width")?;
                let nearest = Nearest::from_parts(&rows, shares, &scale, width).ok_or(damaged)?;
                Fitted::Nearest(Box::new(nearest))
            }
            Method::Roofline | Method::Heuristic => {
                let parts = a.numbers("rates.formula")?.try_into().ok();
                Fitted::Formula(parts.and_then(Formula::from_parts).ok_or(damaged)?)
            }
        };
        Ok(Self::Learned(method, fitted))
    }
}

/// What is usual under the roofline.
fn by_roofline(trial: &Trial) -> Option<Interval> {
    let bound = roofline::roofline_tok_s(trial)?;
    let [low, mid, high] = if trial.test.is_decode() {
        GENERATION
    } else {
        PROMPTS
    };
    Some(Interval {
        low: low * bound,
        mid: mid * bound,
        high: high * bound,
    })
}

fn write_trees(parts: &RegressorParts, a: &mut Arrays) {
    let mut put = |name: &str, numbers: &[f64]| {
        let numbers: Value = numbers.to_vec().into();
        a.header.insert(format!("rates.{name}"), numbers);
    };
    put("lines", &parts.lines);
    put("bases", &parts.bases);
    put("widths", &parts.widths);
    put("gain", &parts.rate_gain);
    put("error_gain", &parts.error_gain);
    put_trees(a, "rates", parts.rate.clone());
    put_trees(a, "rates.error", parts.error.clone());
}

fn read_trees(a: &Arrays, places: &Places) -> Result<RegressorParts, ModelFileError> {
    let damaged = ModelFileError::Damaged("what predicts rates is not whole");
    let some = |name: &str| a.numbers(&format!("rates.{name}"));
    let gain = |name: &str| {
        let gain = some(name)?;
        if gain.len() != places.count() {
            return Err(ModelFileError::Damaged("columns and their weights differ"));
        }
        Ok(places.spread(&gain))
    };
    let (Ok(lines), Ok(bases), Ok(widths)) = (
        some("lines")?.try_into(),
        some("bases")?.try_into(),
        some("widths")?.try_into(),
    ) else {
        return Err(damaged);
    };
    Ok(RegressorParts {
        lines,
        bases,
        widths,
        rate: places.trees(a, "rates")?.arrays(),
        rate_gain: gain("gain")?,
        error: places.trees(a, "rates.error")?.arrays(),
        error_gain: gain("error_gain")?,
    })
}
