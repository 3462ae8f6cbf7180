//! Recommendations of a session: what is said, in which order, and what became of it.

use super::measure::Measuring;
use super::race::Race;
use super::run::Session;
use super::snapshot::{Recommendation, RecommendationStatus, Snapshot};
use crate::engine::cpu::KernelSet;
use crate::engine::knobs::{Setup, knob};
use crate::profiler::os;
use crate::profiler::probe::Bandwidth;
use crate::tuner::facts::Facts;
use crate::tuner::{Change, rules, suggest};

/// What the session knows of the machine for its rules, read once.
pub(super) struct Surroundings {
    /// Probed bandwidth by thread count.
    pub bandwidth: Vec<Bandwidth>,
    kernels: Vec<&'static str>,
    physical_cores: Option<u32>,
    governor: Option<String>,
}

impl Surroundings {
    pub fn new(bandwidth: Vec<Bandwidth>) -> Self {
        Self {
            bandwidth,
            kernels: KernelSet::available().iter().map(|k| k.name()).collect(),
            physical_cores: os::physical_cores(),
            governor: os::governor(),
        }
    }
}

/// A recommendation with what it would do and did.
pub(super) struct Entry {
    pub shown: Recommendation,
    pub change: Option<Change>,
    /// Set while the change is in force.
    pub in_force: Option<InForce>,
}

pub(super) struct InForce {
    /// The setup before it.
    pub before: Setup,
    /// Changes are taken back in the opposite order of making them: each knows only what came before it.
    turn: u64,
}

impl Entry {
    pub fn is_open(&self) -> bool {
        self.shown.status == RecommendationStatus::Open
    }
}

/// Everything recommended so far: what is open by expected gain, then what was tried.
#[derive(Default)]
pub(super) struct Advice {
    entries: Vec<Entry>,
    /// The comparison in progress.
    pub measuring: Option<Measuring>,
    /// Trying all of it.
    pub race: Option<Race>,
    /// The setup changed since the rules last had figures: what they no longer say is dropped.
    pub stale: bool,
    /// Changes made so far.
    turns: u64,
}

impl Advice {
    /// Takes in what is said now. One that was tried keeps its result. Without figures (`known`) rules are silent about
    /// most things, which does not mean that these are settled.
    fn merge(&mut self, advice: Vec<rules::Advice>, known: bool, now: Option<f64>) {
        let before = self.entries.len();
        let mut other = false;
        if known && std::mem::take(&mut self.stale) {
            let still_said = |e: &Entry| advice.iter().any(|a| a.recommendation.id == e.shown.id);
            self.entries.retain(|e| !e.is_open() || still_said(e));
            other = before != self.entries.len();
        }
        for mut a in advice {
            if let Some(twin) = self.twin(&a) {
                // The rule and the model come to the same change, one after the other: it stays in its place.
                if !twin.is_open() {
                    continue;
                }
                a.recommendation.id.clone_from(&twin.shown.id);
            }
            match self.find(&a.recommendation.id) {
                Some(e) if e.is_open() => (e.shown, e.change) = (a.recommendation, a.change),
                Some(_) => {}
                None => {
                    other = true;
                    self.entries.push(Entry {
                        shown: a.recommendation,
                        change: a.change,
                        in_force: None,
                    });
                }
            }
        }
        // Only then: nothing moves under a cursor because a figure did.
        if other {
            self.rank(now);
        }
    }

    /// Another entry about the same change.
    fn twin(&self, a: &rules::Advice) -> Option<&Entry> {
        a.change.as_ref()?;
        let other = |e: &&Entry| e.shown.id != a.recommendation.id && e.change == a.change;
        self.entries.iter().find(other)
    }

    pub fn rank(&mut self, now: Option<f64>) {
        let worth = |e: &Entry| e.shown.worth(now);
        self.entries.sort_by(|a, b| {
            let tried = a.is_open().cmp(&b.is_open()).reverse();
            let by_gain = || match a.is_open() && b.is_open() {
                true => worth(b).total_cmp(&worth(a)),
                false => std::cmp::Ordering::Equal,
            };
            tried.then_with(by_gain)
        });
    }

    /// What open entries promise at a rate of `now`: ratios age more slowly than rates.
    fn expect(&mut self, now: Option<f64>) {
        let open = self.entries.iter_mut().filter(|e| e.is_open());
        open.for_each(|e| e.shown.expect(now));
    }

    fn shown(&self) -> Vec<Recommendation> {
        self.entries.iter().map(|e| e.shown.clone()).collect()
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub fn find(&mut self, id: &str) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|e| e.shown.id == id)
    }

    /// The change made last that is still in force.
    pub fn last_applied(&mut self) -> Option<&mut Entry> {
        self.entries
            .iter_mut()
            .filter(|e| e.in_force.is_some())
            .max_by_key(|e| e.in_force.as_ref().map(|f| f.turn))
    }

    pub fn in_force(&mut self, before: Setup) -> InForce {
        self.turns += 1;
        InForce {
            before,
            turn: self.turns,
        }
    }
}

impl Session {
    /// What was recommended so far, with what became of it.
    pub fn recommendations(&self) -> impl Iterator<Item = &Recommendation> {
        self.advice.entries.iter().map(|e| &e.shown)
    }

    /// Names of the knobs that the user set.
    pub fn explicit(&self) -> &std::collections::BTreeSet<&'static str> {
        &self.options.explicit
    }

    /// What is to be said of this moment, with what became of earlier advice.
    pub(super) fn advise(&mut self, s: &Snapshot) -> Vec<Recommendation> {
        if self.advice.measuring.is_none() && self.advice.race.is_none() {
            let around = &self.surroundings;
            let facts = Facts {
                machine: &s.machine,
                model: &s.model,
                engine: &s.engine,
                rates: &s.rates,
                bricks: &s.bricks,
                memory: &s.memory,
                bandwidth: &around.bandwidth,
                kernels_available: &around.kernels,
                schedule: Some(self.options.config.schedule.name()),
                physical_cores: around.physical_cores,
                governor: around.governor.as_deref(),
                memory_available: os::memory_available_bytes(),
                prompt_tokens: self.prompt_ids.len() as u32,
                decode_major_faults: self.faults.decode_major(),
                explicit: &self.options.explicit,
            };
            let setup = self.setup();
            let said = self.tuner.as_ref().and_then(|t| t.suggestions(&setup));
            // An answer about another setup says nothing of this one; it is on its way.
            let known =
                s.rates.decode_mean_tok_s.is_some() && (self.tuner.is_none() || said.is_some());
            let now = s.rates.decode_mean_tok_s;
            let mut advice =
                suggest::merge(rules::recommend(&facts), said.unwrap_or_default(), now);
            for a in &mut advice {
                let r = &mut a.recommendation;
                r.left_alone = suggest::left_alone(&r.change, &self.options.explicit);
                r.now = r.change.clone();
                for setting in &mut r.now {
                    if let Some(knob) = knob(&setting.knob) {
                        setting.value = (knob.get)(&setup);
                    }
                }
            }
            self.advice.merge(advice, known, now);
            self.advice.expect(now);
        }
        self.advice.shown()
    }
}
