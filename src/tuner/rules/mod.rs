//! The rules. Each looks at the facts and either stays silent or says what to change, why, and what to expect.
//!
//! Adding one: a type with [`Rule`] in a file here, and a place in [`RULES`]. Order is the order in the panel.

mod bandwidth;
mod chunk;
mod kernels;
mod kv_type;
mod sync;
mod system;
#[cfg(test)]
mod tests;
mod threads;

use super::Change;
use super::facts::{Expected, Facts};
use super::recommendation::Recommendation;
use crate::engine::knobs::{ActsOn, knob};

/// One rule.
pub trait Rule: Sync {
    /// Stable name.
    fn id(&self) -> &'static str;

    /// Whether it rests on measured times or on the real machine; it then stays silent under the modelled clock.
    fn needs_measurement(&self) -> bool {
        true
    }

    /// `None` where nothing is to be changed or a figure it needs is not known.
    fn check(&self, facts: &Facts) -> Option<Finding>;
}

/// What a rule found.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// What to do.
    pub title: String,
    /// Why, with figures; sentences without the last full stop.
    pub why: String,
    /// The rate to expect, where it can be estimated.
    pub expected: Option<Expected>,
    /// What the session can do about it; `None` where only the user can.
    pub change: Option<Change>,
}

/// A recommendation and the change behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// As shown, status `Open`.
    pub recommendation: Recommendation,
    /// What `a` applies.
    pub change: Option<Change>,
}

/// All rules in the order their advice is shown.
pub const RULES: &[&dyn Rule] = &[
    &threads::MoreThreads,
    &threads::FewerThreads,
    &kernels::BetterKernels,
    &sync::Waiting,
    &kv_type::HalfKv,
    &chunk::LargerChunk,
    &system::Governor,
    &system::MajorFaults,
    &bandwidth::FewerBytes,
];

/// What the rules have to say, in the order of [`RULES`]; every recommendation is open. Rules look at the moment: the
/// session keeps what it has shown, so that a figure near its threshold does not flicker.
pub fn recommend(facts: &Facts) -> Vec<Advice> {
    let measured = facts.measured();
    RULES
        .iter()
        .filter(|rule| measured || !rule.needs_measurement())
        .filter_map(|rule| Some(advice(rule.id(), rule.check(facts)?, facts)))
        .collect()
}

fn advice(id: &str, finding: Finding, facts: &Facts) -> Advice {
    let Finding {
        title,
        why,
        expected,
        change,
    } = finding;
    let mut sentences = vec![why];
    sentences.extend(expected.as_ref().map(|e| e.how.clone()));
    let set_by_user = change
        .iter()
        .flat_map(|change| &change.0)
        .filter_map(|s| knob(&s.knob))
        .filter(|knob| facts.explicit.contains(knob.name));
    sentences.extend(set_by_user.map(|knob| {
        format!(
            "You set {}; it stays as it is unless you apply this",
            knob.flag
        )
    }));
    let settings = change.as_ref().map_or(Vec::new(), |c| c.0.clone());
    let risks: Vec<&str> = settings
        .iter()
        .filter_map(|s| knob(&s.knob))
        .map(|k| k.risk)
        .collect();
    let acts = settings
        .iter()
        .filter_map(|s| knob(&s.knob))
        .map(|k| k.acts_on);
    let of_prompts = !settings.is_empty() && acts.clone().all(|a| a == ActsOn::Prefill);
    let recommendation = Recommendation {
        of_prompts,
        id: id.to_owned(),
        title,
        why: sentences.join(". ") + ".",
        expected_tok_s: expected.map(|e| e.tok_s),
        risk: risks.join("; "),
        change: settings,
        applicable: change.is_some(),
        ..Recommendation::default()
    };
    Advice {
        recommendation,
        change,
    }
}
