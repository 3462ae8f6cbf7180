//! What predicts rates: the roofline.

use super::super::snapshot::{Interval, TunerFrame};
use crate::tuner::roofline::roofline_tok_s;
use crate::tuner::run::Trial;
use std::path::Path;

/// Share of the roofline's rate that a program reaches at least.
const LEAST: f64 = 0.1;

/// The models in use.
pub struct Predictor;

impl Predictor {
    /// Those of a file, or of the program.
    pub fn open(_model: Option<&Path>, _notes: &mut Vec<String>) -> Self {
        Self
    }

    /// Rate of a trial, tokens a second.
    pub fn rate(&self, trial: &Trial) -> Option<Interval> {
        let bound = roofline_tok_s(trial)?;
        Some(Interval {
            low: bound * LEAST,
            mid: bound,
            high: bound,
        })
    }

    /// What is said of a moment.
    pub fn frame(&self, trial: &Trial, _tok_s: Option<f64>) -> TunerFrame {
        TunerFrame {
            model: "none".into(),
            method: "roofline".into(),
            predicted: self.rate(trial),
            ..TunerFrame::default()
        }
    }
}

/// What past experiments with a knob taught.
pub fn lesson(_knob: &str) -> Option<String> {
    None
}
