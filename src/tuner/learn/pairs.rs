//! How well changes of one knob are foretold: ratios of rates are surer than rates, for what a model is wrong by about a
//! machine it is wrong by on both sides.

use super::evaluate::Outcome;
use super::stats::quantile;
use crate::engine::knobs::{KNOBS, Knob, Setting};
use crate::tuner::run::Run;
use std::collections::{BTreeMap, HashMap};

/// Share of the ratios within the error.
const COVERAGE: f64 = 0.9;
/// Fewer pairs tell nothing.
const LEAST: usize = 30;

/// Nine of ten ratios of rates, of runs held out together that differ in a knob alone, are predicted within this much, in
/// logarithms: by the knob's name, where enough differ in it.
pub fn ratio_errors(runs: &[&Run], folds: &[Vec<Outcome>]) -> BTreeMap<String, f64> {
    let of = |knob: &Knob| {
        let folds = folds.iter();
        let errors: Vec<f64> = folds.flat_map(|f| of_knob(runs, f, knob.name)).collect();
        let enough = (errors.len() >= LEAST).then_some(errors)?;
        let error = quantile(&enough, COVERAGE).filter(|e| e.is_finite())?;
        Some((knob.name.to_owned(), error))
    };
    KNOBS.iter().filter_map(of).collect()
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
        let right = ratio_errors(&runs, &[twice]);
        assert!(
            right.len() == 2 && right.values().all(|e| *e < 1e-9),
            "{right:?}"
        );
        // Threads are thought to bring nothing: two to ten of them are wrong by their number.
        let flat = ratio_errors(&runs, &[outcomes(&|_| 10.0)]);
        assert!(
            flat["threads"] > 5.0f64.ln() && flat["threads"] <= 10.0f64.ln(),
            "{flat:?}"
        );
        assert!(flat["chunk"] < 1e-9, "{flat:?}");
        assert!(ratio_errors(&runs, &[]).is_empty());
        let few = outcomes(&|_| 1.0).into_iter().take(3).collect();
        assert!(ratio_errors(&runs, &[few]).is_empty());
    }
}
