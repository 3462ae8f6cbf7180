//! What predictions of rates are asked for, and whether an evaluation shows it.

use super::evaluate::{Evaluation, Score};
use super::split::By;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A figure that is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Target {
    /// Its criterion, `F001`.
    pub criterion: String,
    /// What it is, with what is wanted, in words.
    pub wanted: String,
    /// The figure; `None` where it could not be measured.
    pub figure: Option<f64>,
    /// Whether it is as wanted.
    pub met: bool,
}

/// A criterion: on which split, what is taken of the score, and what it must be below or above.
struct Criterion {
    name: &'static str,
    by: By,
    what: &'static str,
    of: fn(&Score) -> Option<f64>,
    must: Must,
}

#[derive(Clone, Copy)]
enum Must {
    BeBelow(f64),
    BeAbove(f64),
}

const CRITERIA: &[Criterion] = &[
    Criterion {
        name: "F001",
        by: By::Trial,
        what: "mean error of trials held out, below 10%",
        of: |s| Some(s.mape),
        must: Must::BeBelow(0.1),
    },
    Criterion {
        name: "F002",
        by: By::Trial,
        what: "R2 of rates held out, above 0.85",
        of: |s| s.r2,
        must: Must::BeAbove(0.85),
    },
    Criterion {
        name: "F013",
        by: By::Trial,
        what: "rank correlation of interval and error, above 0.5",
        of: |s| s.confidence,
        must: Must::BeAbove(0.5),
    },
    Criterion {
        name: "F014",
        by: By::Trial,
        what: "share of predictions above twice the measurement, none",
        of: |s| Some(s.over_2x),
        must: Must::BeBelow(f64::MIN_POSITIVE),
    },
    Criterion {
        name: "F020",
        by: By::Trial,
        what: "spread of the folds' errors, below 5%",
        of: |s| s.fold_cv,
        must: Must::BeBelow(0.05),
    },
    Criterion {
        name: "F082",
        by: By::Machine,
        what: "mean error on new machines, below 15%",
        of: |s| Some(s.mape),
        must: Must::BeBelow(0.15),
    },
    Criterion {
        name: "F083",
        by: By::Model,
        what: "mean error on new models, below 15%",
        of: |s| Some(s.mape),
        must: Must::BeBelow(0.15),
    },
    Criterion {
        name: "F084",
        by: By::Quant,
        what: "mean error on new quantisations, below 20%",
        of: |s| Some(s.mape),
        must: Must::BeBelow(0.2),
    },
    Criterion {
        name: "coverage",
        by: By::New,
        what: "share of measurements within their intervals, above 85%",
        of: |s| Some(s.coverage),
        must: Must::BeAbove(0.85),
    },
];

/// The targets, with what the chosen method reached.
pub fn targets(evaluation: &Evaluation) -> Vec<Target> {
    let target = |c: &Criterion| {
        let figure = evaluation.score(c.by.name()).and_then(c.of);
        let met = figure.is_some_and(|f| match c.must {
            Must::BeBelow(limit) => f < limit,
            Must::BeAbove(limit) => f > limit,
        });
        Target {
            criterion: c.name.into(),
            wanted: c.what.into(),
            figure,
            met,
        }
    };
    CRITERIA.iter().map(target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuner::learn::evaluate::{Method, MethodScore, SplitScores};

    #[test]
    fn what_was_not_measured_is_not_met() {
        let score = Score {
            runs: 9,
            mape: 0.05,
            median_error: 0.05,
            r2: Some(0.5),
            r2_log: Some(0.9),
            confidence: None,
            coverage: 0.9,
            width: 1.2,
            over_2x: 0.0,
            fold_cv: Some(0.1),
        };
        let evaluation = Evaluation {
            runs: 9,
            machines: 1,
            models: 1,
            splits: vec![SplitScores {
                held_out: By::Trial.name().into(),
                folds: 5,
                methods: vec![MethodScore {
                    method: Method::Nearest,
                    score,
                    ratio_errors: Default::default(),
                }],
                best: Method::Nearest,
            }],
            chosen: Method::Nearest,
            decided_by: By::Trial.name().into(),
        };
        let met: Vec<(String, bool)> = targets(&evaluation)
            .into_iter()
            .map(|t| (t.criterion, t.met))
            .collect();
        let of = |name: &str| met.iter().find(|m| m.0 == name).map(|m| m.1);
        assert_eq!(of("F001"), Some(true));
        assert_eq!(of("F002"), Some(false));
        assert_eq!(of("F014"), Some(true));
        assert_eq!(of("F082"), Some(false));
    }
}
