//! What could be changed, from the table of knobs: every other value of every knob is held against what a model predicts and
//! what was measured on this machine before.

#[cfg(test)]
mod tests;

use super::Change;
use super::recommendation::{Interval, Recommendation, RecommendationStatus};
use super::rules::Advice;
use super::run::{Origin, Run, Trial};
use crate::engine::knobs::{ActsOn, Around, KNOBS, Knob, Numbers, Setting, Setup, knob};
use std::collections::BTreeSet;

/// An expected gain below this is not worth a change.
pub const WORTHWHILE: f64 = 1.02;
/// A change that was not measured yet is worth a try unless it is expected to lose more than this.
const PLAUSIBLE: f64 = 0.97;
/// Suggestions at most: a list that nobody reads to its end helps nobody.
const MOST: usize = 16;

/// The moment that suggestions are for.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    /// Generation as it runs.
    pub decode: &'a Trial,
    /// Reading of the prompt as it ran.
    pub prefill: &'a Trial,
    /// Measured rate of generation, tokens a second.
    pub tok_s: Option<f64>,
    /// The setup in force.
    pub setup: &'a Setup,
    /// What there is to choose from.
    pub around: &'a Around<'a>,
    /// Names of the knobs that the user set.
    pub explicit: &'a BTreeSet<&'static str>,
}

/// What suggestions rest on.
#[derive(Clone, Copy)]
pub struct Grounds<'a> {
    /// Rate of a trial, tokens a second; `None` where it is not known.
    pub predict: &'a dyn Fn(&Trial) -> Option<Interval>,
    /// Runs of this machine.
    pub runs: &'a [Run],
    /// What past experiments with a knob taught, in a sentence.
    pub lesson: &'a dyn Fn(&str) -> Option<String>,
}

/// Everything worth a try, that of most expected gain first; what is expected of each is the rate in `expected`.
pub fn suggest(moment: &Moment, grounds: &Grounds) -> Vec<Advice> {
    let values = |knob: &'static Knob| {
        let now = (knob.get)(moment.setup);
        let values = (knob.values)(moment.around).into_iter();
        values
            .filter(move |v| *v != now && is_offered(knob, v))
            .map(move |v| (knob, Setting::new(knob.name, v)))
    };
    let mut found: Vec<(f64, Advice)> = KNOBS
        .iter()
        .flat_map(values)
        .filter(|(_, setting)| can_run(moment, setting))
        .filter_map(|(knob, setting)| advice(moment, grounds, knob, setting))
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.truncate(MOST);
    found.into_iter().map(|(_, advice)| advice).collect()
}

/// Whether a value is one to suggest: profiling is not given up for speed unasked.
fn is_offered(knob: &Knob, value: &str) -> bool {
    knob.name != "sync-mode" || value == "deferred"
}

fn can_run(moment: &Moment, setting: &Setting) -> bool {
    moment
        .setup
        .with(std::slice::from_ref(setting))
        .is_ok_and(|s| s.config.check_heads(moment.around.hparams).is_ok())
}

/// What was measured of a change on this machine.
#[derive(Debug, Clone, PartialEq, Default)]
struct Known {
    /// Runs with the value.
    runs: usize,
    /// Ratios of rates, with the change by without it, all else being equal.
    ratios: Vec<f64>,
    /// Those of them measured in sessions with this model, oldest first.
    feedback: Vec<f64>,
}

impl Known {
    fn of(trial: &Trial, now: &str, setting: &Setting, runs: &[Run]) -> Self {
        let is = |run: &Run, value: &str| run.trial.setting(&setting.knob) == Some(value);
        let mut known = Self {
            runs: runs.iter().filter(|r| is(r, &setting.value)).count(),
            ..Self::default()
        };
        // Pairs are looked for among the few runs of this model alone.
        let alike = |r: &&Run| {
            r.trial.test.is_decode() == trial.test.is_decode() && r.trial.model.is_alike(&trial.model)
        };
        let of_model: Vec<&Run> = runs.iter().filter(alike).collect();
        let of_value = |value| of_model.iter().filter(move |r| is(r, value));
        for after in of_value(&setting.value) {
            let same = |before: &&&Run| {
                let alike = before.origin == after.origin
                    && before.trial.with(std::slice::from_ref(setting)) == after.trial;
                // Feedback is of one moment: the two sides belong together.
                alike && (after.origin != Origin::Feedback || before.unix_s == after.unix_s)
            };
            let Some(before) = of_value(now).find(same) else {
                continue;
            };
            let ratio = after.tok_s / before.tok_s;
            if !(ratio.is_finite() && ratio > 0.0) {
                continue;
            }
            known.ratios.push(ratio);
            if after.origin == Origin::Feedback {
                known.feedback.push(ratio);
            }
        }
        known
    }

    /// The middle ratio and the range of all; what sessions measured goes first.
    fn ratio(&self) -> Option<Interval> {
        let of = if self.feedback.is_empty() {
            &self.ratios
        } else {
            &self.feedback
        };
        let mut sorted = of.clone();
        sorted.sort_by(f64::total_cmp);
        Some(Interval {
            low: *sorted.first()?,
            mid: *sorted.get(sorted.len() / 2)?,
            high: *sorted.last()?,
        })
    }

    fn sentences(&self, now: &str, setting: &Setting) -> Vec<String> {
        let Setting { knob, value } = setting;
        let mut said = Vec::new();
        if self.runs > 0 {
            said.push(format!(
                "{} on this machine with {knob} {value}",
                times(self.runs, "run")
            ));
        }
        let (pairs, tried) = (self.ratios.len(), self.feedback.len());
        if let Some(r) = self.ratio().filter(|_| pairs > tried && tried == 0) {
            said.push(format!(
                "beside {now}, all else being equal, {} with this model: x{:.2} in the middle, x{:.2} to x{:.2}",
                times(pairs, "pair"),
                r.mid,
                r.low,
                r.high
            ));
        }
        if let Some(last) = self.feedback.last() {
            said.push(format!(
                "this very change was measured here {} with this model, x{last:.2} the last time",
                times(tried, "time")
            ));
        }
        said
    }
}

fn times(n: usize, what: &str) -> String {
    if n == 1 {
        format!("1 {what}")
    } else {
        format!("{n} {what}s")
    }
}

fn advice(
    moment: &Moment,
    grounds: &Grounds,
    knob: &Knob,
    setting: Setting,
) -> Option<(f64, Advice)> {
    let prompts = knob.acts_on == ActsOn::Prefill;
    let trial = if prompts {
        moment.prefill
    } else {
        moment.decode
    };
    let now = (knob.get)(moment.setup);
    let known = Known::of(trial, &now, &setting, grounds.runs);
    let predicted = ratio(trial, &setting, grounds.predict);
    let measured = known.ratio();
    let worth = match (measured, predicted) {
        // What was measured counts for more than what is thought.
        (Some(m), _) => m.mid > WORTHWHILE,
        (None, Some(p)) => p.mid > PLAUSIBLE,
        (None, None) => true,
    };
    let expected = measured.or(predicted);
    if !worth {
        return None;
    }
    let gain = expected.map_or(1.0, |e| e.mid);
    let mut evidence = known.sentences(&now, &setting);
    evidence.extend((grounds.lesson)(knob.name));
    let what = if prompts { "prompts" } else { "tokens" };
    let mut why = vec![match (measured, predicted) {
        (Some(m), _) => format!(
            "Measured on this machine: {what} at x{:.2} of the rate",
            m.mid
        ),
        (None, Some(p)) if p.mid > WORTHWHILE => {
            format!("Predicted: {what} at x{:.2} of the rate", p.mid)
        }
        (None, Some(p)) => format!(
            "Not measured on this machine yet; predicted: {what} at x{:.2} of the rate, too little to tell",
            p.mid
        ),
        (None, None) => "Not measured on this machine yet, and no model knows".into(),
    }];
    if moment.explicit.contains(knob.name) {
        why.push(format!(
            "You set {}; it stays as it is unless you apply this",
            knob.flag
        ));
    }
    let rate = moment.tok_s.filter(|_| !prompts).zip(expected);
    let expected = rate.map(|(rate, e)| Interval {
        low: rate * e.low,
        mid: rate * e.mid,
        high: rate * e.high,
    });
    let recommendation = Recommendation {
        id: format!("{}={}", setting.knob, setting.value),
        title: format!("Set {} to {} instead of {now}", setting.knob, setting.value),
        why: why.join(". ") + ".",
        expected_tok_s: expected.map(|e| e.mid),
        expected,
        evidence: evidence.join("; "),
        risk: knob.risk.into(),
        change: vec![setting.clone()],
        now: vec![Setting::new(knob.name, now)],
        applicable: true,
        status: RecommendationStatus::Open,
    };
    // Prompts are a part of a session's time only.
    let weight = if prompts { 0.5 } else { 1.0 };
    let change = Some(Change(vec![setting]));
    Some((
        1.0 + (gain - 1.0) * weight,
        Advice {
            recommendation,
            change,
        },
    ))
}

/// Predicted rate with a setting by that without it. A model is wrong about a machine in the same way with and without it,
/// so that the interval of the ratio is that of one rate at most.
fn ratio(
    trial: &Trial,
    setting: &Setting,
    predict: &dyn Fn(&Trial) -> Option<Interval>,
) -> Option<Interval> {
    let now = predict(trial).filter(|i| i.mid > 0.0 && i.mid.is_finite())?;
    let then = predict(&trial.with(std::slice::from_ref(setting)))?;
    let all = [then.low, then.mid, then.high].map(|rate| rate / now.mid);
    let [low, mid, high] = all;
    all.iter()
        .all(|r| r.is_finite() && *r > 0.0)
        .then_some(Interval { low, mid, high })
}

/// Rules and suggestions together: where both are about the same change, the rule says why and the suggestion what to
/// expect. That of most expected gain comes first, rules before suggestions of the same.
pub fn merge(rules: Vec<Advice>, mut suggestions: Vec<Advice>) -> Vec<Advice> {
    let mut all = Vec::with_capacity(rules.len() + suggestions.len());
    for mut rule in rules {
        let same = |s: &Advice| s.change.is_some() && s.change == rule.change;
        if let Some(at) = suggestions.iter().position(same) {
            let said = suggestions.remove(at).recommendation;
            let r = &mut rule.recommendation;
            r.evidence = said.evidence;
            r.expected = said.expected;
            r.expected_tok_s = said.expected_tok_s.or(r.expected_tok_s);
        }
        all.push(rule);
    }
    all.extend(suggestions);
    let gain = |a: &Advice| a.recommendation.expected_tok_s.unwrap_or(0.0);
    all.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
    all
}

/// Why a change is not for a program to make by itself, naming the knob; `None` where it is.
pub fn left_alone(change: &[Setting], explicit: &BTreeSet<&'static str>) -> Option<String> {
    change.iter().find_map(|s| {
        let knob = knob(&s.knob)?;
        if explicit.contains(knob.name) {
            Some(format!("{} (you set {})", knob.name, knob.flag))
        } else if knob.numbers == Numbers::Precision {
            Some(format!("{} (answers may differ)", knob.name))
        } else {
            None
        }
    })
}

/// What the open suggestions promise, in a sentence; that nothing helps where there are none.
pub fn verdict(open: &[Recommendation], tok_s: Option<f64>) -> String {
    let changes = open
        .iter()
        .filter(|r| r.applicable && r.status == RecommendationStatus::Open);
    let (mut n, mut best) = (0, 0.0f64);
    for r in changes {
        n += 1;
        let gain = r.expected_tok_s.zip(tok_s).map_or(0.0, |(e, t)| e / t);
        best = best.max(gain);
    }
    let gain = format!("{:.0}%", (WORTHWHILE - 1.0) * 100.0);
    match n {
        0 => format!(
            "Nothing to change: no setting is expected to bring more than {gain}, and those that could not be told were measured"
        ),
        _ if best > WORTHWHILE => format!(
            "{} worth a try, the best is expected to bring {:+.0}%",
            times(n, "change"),
            (best - 1.0) * 100.0
        ),
        _ => format!(
            "No change is expected to bring more than {gain}; {} not measured here yet could",
            times(n, "change")
        ),
    }
}
