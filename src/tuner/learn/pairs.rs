//! How well changes of one knob are foretold: ratios of rates are surer than rates, for what a model is wrong by about a
//! machine it is wrong by on both sides.

use super::evaluate::Outcome;
use super::stats::quantile;
use crate::engine::knobs::{KNOBS, Setting};
use crate::tuner::run::Run;
use std::collections::HashMap;

/// Share of the ratios within the error.
const COVERAGE: f64 = 0.9;
/// Fewer pairs tell nothing.
const LEAST: usize = 30;

/// Nine of ten ratios of rates, of runs held out together that differ in one knob, are predicted within this much, in
/// logarithms. `None` where too few differ in one.
pub fn ratio_error(runs: &[&Run], folds: &[Vec<Outcome>]) -> Option<f64> {
    let mut errors = Vec::new();
    for fold in folds {
        for knob in KNOBS {
            errors.extend(of_knob(runs, fold, knob.name));
        }
    }
    if errors.len() < LEAST {
        return None;
    }
    quantile(&errors, COVERAGE).filter(|e| e.is_finite())
}

/// Errors of the ratios to the first run of every group that differs in one knob.
fn of_knob(runs: &[&Run], fold: &[Outcome], knob: &str) -> Vec<f64> {
    let mut first: HashMap<String, (&str, &Outcome)> = HashMap::new();
    let mut errors = Vec::new();
    for outcome in fold {
        let Some(run) = runs.get(outcome.run) else {
            continue;
        };
        let Some(value) = run.trial.setting(knob) else {
            continue;
        };
        let rest = run.trial.with(&[Setting::new(knob, "")]).key();
        match first.get(&rest) {
            None => {
                first.insert(rest, (value, outcome));
            }
            Some((other, _)) if *other == value => {}
            Some((_, base)) => errors.push(error(base, outcome)),
        }
    }
    errors
}

fn error(a: &Outcome, b: &Outcome) -> f64 {
    let log = |x: f64, y: f64| (x.max(1e-9) / y.max(1e-9)).ln();
    (log(b.predicted.mid, a.predicted.mid) - log(b.actual, a.actual)).abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuner::recommendation::Interval;
    use crate::tuner::run::{Hardware, ModelShape, Origin, Test, Trial};

    fn run(threads: usize, chunk: usize) -> Run {
        Run {
            trial: Trial {
                hardware: Hardware::default(),
                model: ModelShape::default(),
                backend: "cbtop cpu".into(),
                test: Test {
                    prompt: 0,
                    generated: 16,
                    depth: 0,
                    batch: 1,
                },
                settings: vec![
                    Setting::new("threads", threads.to_string()),
                    Setting::new("chunk", chunk.to_string()),
                ],
            },
            origin: Origin::Collect,
            source: "test".into(),
            unix_s: None,
            tok_s: 10.0 * threads as f64,
            stddev: None,
            repetitions: 3,
            warm: Some(true),
            background: None,
            shares: None,
        }
    }

    #[test]
    fn a_bias_of_the_whole_is_none_of_ratios_and_a_wrong_ratio_is_one() {
        let runs: Vec<Run> = (1..=10)
            .flat_map(|threads| (1..=5).map(move |chunk| run(threads, chunk)))
            .collect();
        let runs: Vec<&Run> = runs.iter().collect();
        let outcomes = |rate: &dyn Fn(&Run) -> f64| -> Vec<Outcome> {
            let of = |(i, r): (usize, &&Run)| Outcome {
                run: i,
                predicted: Interval {
                    low: 0.0,
                    mid: rate(r),
                    high: 1e9,
                },
                actual: r.tok_s,
            };
            runs.iter().enumerate().map(of).collect()
        };
        let twice = outcomes(&|r| 2.0 * r.tok_s);
        assert!(ratio_error(&runs, &[twice]).expect("pairs") < 1e-9);
        // Threads are thought to bring nothing: two to ten of them are wrong by their number.
        let flat = ratio_error(&runs, &[outcomes(&|_| 10.0)]).expect("pairs");
        assert!(flat > 5.0f64.ln() && flat <= 10.0f64.ln(), "{flat}");
        assert_eq!(ratio_error(&runs, &[]), None);
        let few = outcomes(&|_| 1.0).into_iter().take(3).collect();
        assert_eq!(ratio_error(&runs, &[few]), None);
    }
}
