//! What predicts rates: the models of a file fitted to this machine, or those of the program; they learn on from every
//! measured change.

use super::super::snapshot::{Interval, TunerFrame};
use crate::tuner::features::Measured;
use crate::tuner::five_whys::{self, Outcome};
use crate::tuner::learn::brick_tuner::BrickTuner;
use crate::tuner::learn::online::{BATCH, Learned, OnlineTuner};
use crate::tuner::run::{Origin, Run, Trial};
use std::path::Path;


/// Results of former sessions that are learned from again at the start.
const MOST_RESULTS: usize = 256;

/// The models in use.
pub struct Predictor {
    online: OnlineTuner,
    /// Results that were learned from.
    learned: usize,
}

impl Predictor {
    /// Those of a file, if it is there and whole, or of the program, with what the runs of this machine teach.
    pub fn open(model: Option<&Path>, machine: &str, runs: &[Run]) -> Self {
        let tuner = BrickTuner::fitted(model);
        let (results, old): (Vec<&Run>, Vec<&Run>) =
            runs.iter().partition(|r| r.origin == Origin::Feedback);
        let mut this = Self {
            online: OnlineTuner::new(tuner, machine, &old),
            learned: 0,
        };
        let newest = results.len().saturating_sub(MOST_RESULTS);
        results[newest..].iter().for_each(|run| this.observe(run));
        this
    }

    /// Learns from a result.
    pub fn observe(&mut self, run: &Run) {
        if matches!(self.online.observe(run), Learned::Updated { .. }) {
            self.learned += BATCH;
        }
    }

    /// Rate of a trial, tokens a second.
    pub fn rate(&self, trial: &Trial) -> Option<Interval> {
        self.online.tuner().predict(trial, None).tok_s
    }

    /// What is said of a moment.
    pub fn frame(&self, trial: &Trial, tok_s: Option<f64>) -> TunerFrame {
        let measured = tok_s.map(|tok_s| Measured { tok_s });
        let answer = self.online.predict(trial, measured.as_ref());
        let title = self.online.tuner().title();
        TunerFrame {
            model: match self.learned {
                0 => title,
                n => format!("{title} + {n} results here"),
            },
            method: answer.method.into(),
            predicted: answer.tok_s,
            bottleneck: answer.bottleneck,
            kernels: answer.kernels,
            warnings: answer.warnings,
            ..TunerFrame::default()
        }
    }
}

/// What past experiments with a knob taught: the first one of the archive.
pub fn lesson(knob: &str) -> Option<String> {
    let a = five_whys::about(knob).next()?;
    let held = match a.outcome {
        Outcome::Success => "held",
        Outcome::Failure => "did not hold",
    };
    let stop = |text: &str| text.trim_end_matches('.').to_owned();
    Some(format!(
        "tried before: \"{}\" {held}: {} ({})",
        stop(&a.hypothesis),
        stop(&a.root_cause),
        a.source
    ))
}
