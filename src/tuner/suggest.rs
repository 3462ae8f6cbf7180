//! What could be changed, from the table of knobs: every other value of every knob is held against what a model predicts and
//! what was measured on this machine before.

#[cfg(test)]
mod tests;

use super::Change;
use super::recommendation::{Interval, Recommendation, RecommendationStatus};
use super::rules::Advice;
use super::run::{Origin, Run, Trial};
use crate::engine::knobs::{ActsOn, Around, KNOBS, Knob, Numbers, Setting, Setup, knob};
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};

/// An expected gain below this is not worth a change.
pub const WORTHWHILE: f64 = 1.02;
/// A change that was not measured yet is worth a try unless it is expected to lose more than this.
const PLAUSIBLE: f64 = 0.97;
/// Ratios from which on their range is an interval.
const ENOUGH_PAIRS: usize = 5;
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
    /// Nine of ten predicted ratios of a knob are within this much, in logarithms; `None`: as far off as a rate may be.
    pub ratio_error: &'a dyn Fn(&str) -> Option<f64>,
    /// Runs of this machine.
    pub runs: &'a [Run],
    /// What past experiments with a knob taught, in a sentence.
    pub lesson: &'a dyn Fn(&str) -> Option<String>,
}

/// Everything worth a try, that of most expected gain first; what is expected of each is the rate in `expected`.
pub fn suggest(moment: &Moment, grounds: &Grounds) -> Vec<Advice> {
    let of_model = |trial: &Trial| -> Vec<&Run> {
        let alike = |r: &&Run| {
            r.trial.test.is_decode() == trial.test.is_decode()
                && r.trial.model.is_alike(&trial.model)
        };
        grounds.runs.iter().filter(alike).collect()
    };
    let decode = (moment.decode, of_model(moment.decode));
    let prefill = (moment.prefill, of_model(moment.prefill));
    let mut found: Vec<Advice> = KNOBS
        .iter()
        .flat_map(|k| match k.acts_on {
            ActsOn::Prefill => of_knob(moment, grounds, k, &prefill),
            ActsOn::Decode | ActsOn::Both => of_knob(moment, grounds, k, &decode),
        })
        .collect();
    found.sort_by(by_worth(None));
    found.truncate(MOST);
    found
}

/// All values of a knob that are worth a try, for a trial with the runs of its model.
fn of_knob(
    moment: &Moment,
    grounds: &Grounds,
    knob: &'static Knob,
    (trial, of_model): &(&Trial, Vec<&Run>),
) -> Vec<Advice> {
    let now = (knob.get)(moment.setup);
    let values = (knob.values)(moment.around).into_iter();
    let settings: Vec<Setting> = values
        .filter(|v| *v != now && is_offered(knob, v))
        .filter(|v| (knob.has_effect)(moment.around, moment.setup, v))
        .map(|v| Setting::new(knob.name, v))
        .filter(|setting| can_run(moment, setting))
        .collect();
    if settings.is_empty() {
        return Vec::new();
    }
    let past = Past::of(knob.name, of_model, grounds.runs);
    let of = |setting: Setting| {
        let known = past.known(&now, &setting.value);
        advice((moment, trial), grounds, &known, knob, setting)
    };
    settings.into_iter().filter_map(of).collect()
}

/// That of most expected gain first, at a rate of `now`.
fn by_worth(now: Option<f64>) -> impl Fn(&Advice, &Advice) -> Ordering {
    move |a, b| {
        let worth = |a: &Advice| a.recommendation.worth(now);
        worth(b).total_cmp(&worth(a))
    }
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

/// Runs of a model on this machine by all but the value of one knob.
struct Past<'a> {
    /// All runs of this machine, whatever the model.
    runs: &'a [Run],
    knob: &'static str,
    alike: HashMap<String, Vec<&'a Run>>,
}

impl<'a> Past<'a> {
    fn of(knob: &'static str, of_model: &[&'a Run], runs: &'a [Run]) -> Self {
        let mut alike: HashMap<String, Vec<&Run>> = HashMap::new();
        for run in of_model.iter().copied() {
            let rest = run.trial.with(&[Setting::new(knob, "")]).key();
            // The two sides of a comparison belong together, and no others: a machine is now fast, now slow.
            let moment = match run.origin {
                Origin::Feedback => run.source.clone(),
                of => of.name().to_owned(),
            };
            alike
                .entry(format!("{moment}|{rest}"))
                .or_default()
                .push(run);
        }
        Self { runs, knob, alike }
    }

    /// What was measured of turning the knob from `now` to `value`.
    fn known(&self, now: &str, value: &str) -> Known {
        let is = |run: &Run, value: &str| run.trial.setting(self.knob) == Some(value);
        let mut pairs: Vec<(&Run, f64)> = Vec::new();
        for alike in self.alike.values() {
            let Some(before) = alike.iter().find(|r| is(r, now)) else {
                continue;
            };
            let after = alike.iter().filter(|r| is(r, value));
            let of = |after: &&'a Run| (*after, after.tok_s / before.tok_s);
            pairs.extend(after.map(of));
        }
        pairs.retain(|(_, ratio)| ratio.is_finite() && *ratio > 0.0);
        pairs.sort_by_key(|(run, _)| run.unix_s);
        let feedback = pairs.iter().filter(|(r, _)| r.origin == Origin::Feedback);
        Known {
            runs: self.runs.iter().filter(|r| is(r, value)).count(),
            feedback: feedback.map(|p| p.1).collect(),
            ratios: pairs.iter().map(|p| p.1).collect(),
        }
    }
}

impl Known {
    /// The middle ratio and the range of all; what sessions measured goes first. The range of few says little: theirs is as
    /// wide as that of what is predicted.
    fn ratio(&self, predicted: Option<Interval>) -> Option<Interval> {
        let of = if self.feedback.is_empty() {
            &self.ratios
        } else {
            &self.feedback
        };
        let mut sorted = of.clone();
        sorted.sort_by(f64::total_cmp);
        let range = Interval {
            low: *sorted.first()?,
            mid: *sorted.get(sorted.len() / 2)?,
            high: *sorted.last()?,
        };
        let few = predicted.filter(|_| sorted.len() < ENOUGH_PAIRS);
        Some(few.map_or(range, |p| Interval {
            low: range.low.min(range.mid * p.low / p.mid),
            mid: range.mid,
            high: range.high.max(range.mid * p.high / p.mid),
        }))
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
        if let Some(r) = self.ratio(None).filter(|_| pairs > tried && tried == 0) {
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
    (moment, trial): (&Moment, &Trial),
    grounds: &Grounds,
    known: &Known,
    knob: &Knob,
    setting: Setting,
) -> Option<Advice> {
    let prompts = knob.acts_on == ActsOn::Prefill;
    let now = (knob.get)(moment.setup);
    let predicted = ratio(trial, &setting, grounds);
    let measured = known.ratio(predicted);
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
    let mut evidence = known.sentences(&now, &setting);
    evidence.extend((grounds.lesson)(knob.name));
    let what = if prompts { "prompts" } else { "tokens" };
    let mut why = vec![match (measured, predicted) {
        (Some(m), _) => format!(
            "Measured on this machine: {what} at x{:.2} of the rate",
            m.mid
        ),
        (None, Some(p)) if p.mid > WORTHWHILE && p.low > 1.0 => {
            format!("Predicted: {what} at x{:.2} of the rate", p.mid)
        }
        (None, Some(p)) => format!(
            "Not measured on this machine yet; predicted: {what} at x{:.2} of the rate, no more than such predictions are off by",
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
    let recommendation = Recommendation {
        id: format!("{}={}", setting.knob, setting.value),
        title: format!("Set {} to {} instead of {now}", setting.knob, setting.value),
        why: why.join(". ") + ".",
        gain: expected,
        of_prompts: prompts,
        evidence: evidence.join("; "),
        risk: knob.risk.into(),
        change: vec![setting.clone()],
        now: vec![Setting::new(knob.name, now)],
        applicable: true,
        ..Recommendation::default()
    };
    Some(Advice {
        recommendation,
        change: Some(Change(vec![setting])),
    })
}

/// Predicted rate with a setting by that without it. A model is wrong about a machine in the same way with and without it,
/// so that the interval of the ratio is that of one rate at most.
fn ratio(trial: &Trial, setting: &Setting, grounds: &Grounds) -> Option<Interval> {
    let now = (grounds.predict)(trial).filter(|i| i.mid > 0.0 && i.mid.is_finite())?;
    let then = (grounds.predict)(&trial.with(std::slice::from_ref(setting)))?;
    let mut all = [then.low, then.mid, then.high].map(|rate| rate / now.mid);
    if let Some(error) = (grounds.ratio_error)(&setting.knob) {
        (all[0], all[2]) = (all[1] * (-error).exp(), all[1] * error.exp());
    }
    let [low, mid, high] = all;
    all.iter()
        .all(|r| r.is_finite() && *r > 0.0)
        .then_some(Interval { low, mid, high })
}

/// Rules and suggestions together: where both are about the same change, the rule says why and the suggestion what to
/// expect. That of most expected gain at a rate of `now` comes first, rules before suggestions of the same.
pub fn merge(rules: Vec<Advice>, mut suggestions: Vec<Advice>, now: Option<f64>) -> Vec<Advice> {
    let mut all = Vec::with_capacity(rules.len() + suggestions.len());
    for mut rule in rules {
        let same = |s: &Advice| s.change.is_some() && s.change == rule.change;
        if let Some(at) = suggestions.iter().position(same) {
            let said = suggestions.remove(at).recommendation;
            let r = &mut rule.recommendation;
            r.evidence = said.evidence;
            r.gain = said.gain.or(r.gain);
        }
        all.push(rule);
    }
    all.extend(suggestions);
    all.sort_by(by_worth(now));
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

/// The rate to expect at a rate of `now` with the most promising change of every knob that trying all would try, as if they
/// were independent. `None` where none promises anything: a prediction whose interval holds 1 promises nothing, for where it
/// was followed on held-out models it lost to the settings that the engine has by itself (F280).
pub fn with_all<'a>(
    open: impl IntoIterator<Item = &'a Recommendation>,
    now: Option<f64>,
) -> Option<Interval> {
    let rate = now.filter(|n| *n > 0.0)?;
    let mut promising: Vec<(&Recommendation, Interval)> = open
        .into_iter()
        .filter(|r| r.is_for_all() && !r.of_prompts)
        .filter_map(|r| {
            let mid = r.ratio(now)?;
            let point = Interval {
                low: mid,
                mid,
                high: mid,
            };
            Some((r, r.gain.unwrap_or(point)))
        })
        .filter(|(_, gain)| gain.mid > WORTHWHILE && gain.low > 1.0 && gain.high.is_finite())
        .collect();
    promising.sort_by(|a, b| b.1.mid.total_cmp(&a.1.mid));
    let mut turned: BTreeSet<&str> = BTreeSet::new();
    let (mut mid, mut below, mut above) = (1.0, 0.0, 0.0);
    for (r, gain) in promising {
        if r.change.iter().any(|s| turned.contains(s.knob.as_str())) {
            continue;
        }
        turned.extend(r.change.iter().map(|s| s.knob.as_str()));
        mid *= gain.mid;
        below += (gain.mid / gain.low).ln().powi(2);
        above += (gain.high / gain.mid).ln().powi(2);
    }
    (!turned.is_empty()).then(|| Interval {
        low: rate * mid * (-f64::sqrt(below)).exp(),
        mid: rate * mid,
        high: rate * mid * f64::sqrt(above).exp(),
    })
}

/// What the open suggestions promise, in a sentence; that nothing helps where there are none.
pub fn verdict<'a>(
    open: impl IntoIterator<Item = &'a Recommendation>,
    tok_s: Option<f64>,
) -> String {
    let sure = |r: &Recommendation| match r.gain {
        Some(gain) if gain.low <= 1.0 => 1.0,
        _ => r.ratio(tok_s).unwrap_or(1.0),
    };
    let ratios: Vec<f64> = open
        .into_iter()
        .filter(|r| r.applicable && r.status == RecommendationStatus::Open)
        .map(sure)
        .collect();
    let (n, best) = (ratios.len(), ratios.iter().copied().fold(0.0, f64::max));
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
            "No change is sure to bring more than {gain}; {} not measured here yet could",
            times(n, "change")
        ),
    }
}
