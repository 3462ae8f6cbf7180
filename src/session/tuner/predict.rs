//! What predicts rates: the models of a file fitted to this machine, or those of the program.

use super::super::snapshot::{Interval, TunerFrame};
use crate::tuner::features::Measured;
use crate::tuner::five_whys::{self, Outcome};
use crate::tuner::learn::brick_tuner::BrickTuner;
use crate::tuner::run::Trial;
use std::path::Path;

/// A larger file holds no models, bytes.
const MOST: u64 = 64 << 20;

/// The models in use.
pub struct Predictor(BrickTuner);

impl Predictor {
    /// Those of a file, if it is there and whole, or of the program; `notes` gets why a file is not used.
    pub fn open(model: Option<&Path>, notes: &mut Vec<String>) -> Self {
        let fitted = model.and_then(|path| match read(path)? {
            Ok(tuner) => Some(tuner),
            Err(e) => {
                notes.push(format!(
                    "{} is not used: {e}; cbtop calibrate writes it anew",
                    path.display()
                ));
                None
            }
        });
        Self(fitted.unwrap_or_else(|| BrickTuner::pretrained().clone()))
    }

    /// Rate of a trial, tokens a second.
    pub fn rate(&self, trial: &Trial) -> Option<Interval> {
        self.0.predict(trial, None).tok_s
    }

    /// What is said of a moment.
    pub fn frame(&self, trial: &Trial, tok_s: Option<f64>) -> TunerFrame {
        let measured = tok_s.map(|tok_s| Measured { tok_s });
        let answer = self.0.predict(trial, measured.as_ref());
        TunerFrame {
            model: self.0.title(),
            method: answer.method.into(),
            predicted: answer.tok_s,
            bottleneck: answer.bottleneck,
            kernels: answer.kernels,
            warnings: answer.warnings,
            ..TunerFrame::default()
        }
    }
}

/// The models of a file; `None` where there is none.
fn read(path: &Path) -> Option<Result<BrickTuner, String>> {
    let meta = std::fs::metadata(path).ok()?;
    if !meta.is_file() || meta.len() > MOST {
        return Some(Err("it holds no models".into()));
    }
    let bytes = std::fs::read(path).map_err(|e| e.to_string());
    Some(bytes.and_then(|b| BrickTuner::from_bytes(&b).map_err(|e| e.to_string())))
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
