//! What predicts rates: the model that won on held-out runs, or the roofline where nothing was learned.

use super::arrays::Arrays;
use super::file::{ModelFileError, Places};
use crate::tuner::features::TunerFeatures;
use crate::tuner::recommendation::Interval;
use crate::tuner::roofline;
use crate::tuner::run::Trial;

/// Shares of the roofline that generation reaches: the 5th, 50th and 95th percentile of the public runs at batch 1, at most
/// 12 of each machine.
const GENERATION: [f64; 3] = [0.35, 0.70, 1.0];
/// And prompts, whose roof assumes the fastest arithmetic that any kernel could use.
const PROMPTS: [f64; 3] = [0.02, 0.07, 1.0];

/// A predicted rate.
#[derive(Debug, Clone, PartialEq)]
pub struct Rate {
    /// Tokens a second over all sequences.
    pub tok_s: Interval,
    /// Columns that weigh most, with their share.
    pub top_features: Vec<(&'static str, f64)>,
}

/// What predicts rates.
#[derive(Debug, Clone, PartialEq)]
pub enum Rates {
    /// A usual share of what the machine's peaks allow.
    Roofline,
}

impl Rates {
    /// Name as in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Roofline => "roofline",
        }
    }

    /// The rate of a trial, whose columns are `features`; `None` where nothing about the machine is known.
    pub fn predict(&self, trial: &Trial, features: &TunerFeatures) -> Option<Rate> {
        let _ = features;
        match self {
            Self::Roofline => by_roofline(trial),
        }
    }
}

/// What is usual under the roofline.
pub fn by_roofline(trial: &Trial) -> Option<Rate> {
    let bound = roofline::roofline_tok_s(trial)?;
    let [low, mid, high] = if trial.test.is_decode() {
        GENERATION
    } else {
        PROMPTS
    };
    Some(Rate {
        tok_s: Interval {
            low: low * bound,
            mid: mid * bound,
            high: high * bound,
        },
        top_features: vec![("roofline", 1.0)],
    })
}

impl Rates {
    /// Adds what it learned to a model's arrays.
    pub(super) fn write(&self, a: &mut Arrays) {
        a.header.insert("rates".into(), self.name().into());
    }

    /// Reads it back.
    pub(super) fn read(a: &Arrays, places: &Places) -> Result<Self, ModelFileError> {
        let _ = places;
        match a.text("rates")? {
            "roofline" => Ok(Self::Roofline),
            _ => Err(ModelFileError::Damaged("what predicts rates is not known")),
        }
    }
}
