//! Recommendations of a session: kept as shown, applied on demand, measured, undone.

use super::run::{Session, SessionError};
use super::snapshot::{Recommendation, RecommendationStatus, Snapshot};
use crate::engine::cpu::KernelSet;
use crate::engine::{Config, EngineError};
use crate::profiler::os;
use crate::profiler::probe::Bandwidth;
use crate::tuner::ab::{AbTest, Action, Outcome};
use crate::tuner::facts::Facts;
use crate::tuner::{Change, rules};

/// Prompts run on each side of a change that shows in prefill only.
const PREFILL_ROUNDS: usize = 5;
/// Context a comparison needs from its first token to its last, with some to spare.
const ROOM_TO_MEASURE: usize = 80;

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
struct Entry {
    shown: Recommendation,
    change: Option<Change>,
    test: Option<AbTest>,
    /// The configuration before it was applied.
    before: Option<Config>,
}

impl Entry {
    fn is_open(&self) -> bool {
        self.shown.status == RecommendationStatus::Open
    }

    fn is_measuring(&self) -> bool {
        matches!(self.shown.status, RecommendationStatus::Measuring { .. })
    }
}

/// Everything recommended so far, in the order it came.
#[derive(Default)]
pub(super) struct Advice {
    entries: Vec<Entry>,
    /// The configuration changed since the rules last spoke: what they no longer say is dropped.
    stale: bool,
}

impl Advice {
    /// Takes in what the rules say now. Entries stay in place; one that was tried keeps its result.
    fn merge(&mut self, advice: Vec<rules::Advice>) {
        if std::mem::take(&mut self.stale) {
            let still_said = |e: &Entry| advice.iter().any(|a| a.recommendation.id == e.shown.id);
            self.entries.retain(|e| !e.is_open() || still_said(e));
        }
        for a in advice {
            match self
                .entries
                .iter_mut()
                .find(|e| e.shown.id == a.recommendation.id)
            {
                Some(e) if e.is_open() => (e.shown, e.change) = (a.recommendation, a.change),
                Some(_) => {}
                None => self.entries.push(Entry {
                    shown: a.recommendation,
                    change: a.change,
                    test: None,
                    before: None,
                }),
            }
        }
    }

    fn shown(&self) -> Vec<Recommendation> {
        self.entries.iter().map(|e| e.shown.clone()).collect()
    }

    fn find(&mut self, id: &str) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|e| e.shown.id == id)
    }

    fn measuring(&mut self) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|e| e.is_measuring())
    }

    /// The change made last that is still in force.
    fn last_applied(&mut self) -> Option<&mut Entry> {
        self.entries.iter_mut().rev().find(|e| e.before.is_some())
    }
}

/// A configuration with one change made.
fn changed(config: &Config, change: &Change) -> Result<Config, EngineError> {
    let mut c = config.clone();
    let refuse = |e: String| EngineError::Config(e);
    match change {
        Change::Threads(n) => c.threads = *n,
        Change::Kernels(name) => {
            c.kernels = name
                .parse()
                .map_err(|e: crate::engine::cpu::KernelSetError| refuse(e.to_string()))?;
        }
        Change::KvType(name) => c.kv_type = name.parse().map_err(refuse)?,
        Change::Chunk(n) => c.chunk = *n,
        Change::Schedule(name) => c.schedule = name.parse().map_err(refuse)?,
    }
    c.check()?;
    Ok(c)
}

impl Session {
    /// What the rules say of this moment, with what became of earlier advice.
    pub(super) fn advise(&mut self, s: &Snapshot) -> Vec<Recommendation> {
        if self.advice.measuring().is_none() {
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
            self.advice.merge(rules::recommend(&facts));
        }
        self.advice.shown()
    }

    /// Applies a recommendation: at once, then measured against the tokens before it.
    pub(super) fn apply(&mut self, id: &str) {
        if self.advice.measuring().is_some() {
            self.complain("a change is being measured; wait for its result");
            return;
        }
        let Some(entry) = self.advice.find(id) else {
            self.complain(format!("there is no recommendation '{id}'"));
            return;
        };
        if entry.before.is_some() {
            self.complain("it is applied already; undo it first");
            return;
        }
        let Some(change) = entry.change.clone() else {
            self.complain("this is for you to do outside cbtop; its text says how");
            return;
        };
        let done = if change.affects_decode() {
            self.begin_measurement(id)
        } else {
            self.apply_to_prefill(id, &change)
        };
        if let Err(e) = done {
            self.complain(e.to_string());
        }
    }

    fn begin_measurement(&mut self, id: &str) -> Result<(), SessionError> {
        if self.is_over() || self.engine.room() < ROOM_TO_MEASURE {
            // Both sides are to be measured on one run.
            self.start_run();
        }
        self.resume();
        let (test, action) = AbTest::start(self.run_times());
        if let Some(entry) = self.advice.find(id) {
            entry.shown.status = test.status();
            entry.test = Some(test);
        }
        if action == Action::Apply {
            self.make_measured_change()?;
        }
        Ok(())
    }

    /// Makes the change of the entry being measured.
    fn make_measured_change(&mut self) -> Result<(), SessionError> {
        let before = self.options.config.clone();
        let Some(entry) = self.advice.measuring() else {
            return Ok(());
        };
        let made = match &entry.change {
            Some(change) => changed(&before, change),
            None => return Ok(()),
        };
        let made = made.and_then(|config| self.reconfigure(config));
        let Some(entry) = self.advice.measuring() else {
            return Ok(());
        };
        match made {
            Ok(()) => entry.before = Some(before),
            Err(_) => {
                entry.test = None;
                entry.shown.status = RecommendationStatus::Open;
            }
        }
        Ok(made?)
    }

    /// Feeds the comparison in progress, if there is one.
    pub(super) fn follow_measurement(&mut self, us: f64) {
        let Some(entry) = self.advice.measuring() else {
            return;
        };
        let Some(test) = &mut entry.test else { return };
        let action = test.token(us);
        entry.shown.status = test.status();
        match action {
            Action::Continue => {}
            Action::Apply => {
                if let Err(e) = self.make_measured_change() {
                    self.complain(e.to_string());
                }
            }
            Action::Done => {
                if let Some(outcome) = test.outcome() {
                    self.note(outcome.sentence());
                }
            }
        }
    }

    /// Generation ended while a change was being measured: settles, or says that it goes on in another run.
    pub(super) fn measurement_needs_more(&mut self) -> bool {
        let Some(entry) = self.advice.measuring() else {
            return false;
        };
        let settled = entry.test.as_mut().and_then(AbTest::settle);
        if let Some(test) = &entry.test {
            entry.shown.status = test.status();
        }
        match settled {
            Some(outcome) => {
                self.note(outcome.sentence());
                false
            }
            None => true,
        }
    }

    fn apply_to_prefill(&mut self, id: &str, change: &Change) -> Result<(), SessionError> {
        let before = self.options.config.clone();
        let after = changed(&before, change)?;
        let slow = self.prefill_times()?;
        self.reconfigure(after)?;
        let fast = self.prefill_times()?;
        self.start_run();
        let Some(outcome) = Outcome::of(&slow, &fast) else {
            return Ok(());
        };
        if let Some(entry) = self.advice.find(id) {
            entry.before = Some(before);
            entry.shown.status = outcome.applied();
        }
        self.note(format!("prefill of the prompt: {}", outcome.sentence()));
        Ok(())
    }

    /// Time a prompt token takes, several times over; leaves the cache empty.
    fn prefill_times(&mut self) -> Result<Vec<f64>, SessionError> {
        let mut times = Vec::with_capacity(PREFILL_ROUNDS);
        // One more: the first warms caches and is not counted.
        for round in 0..=PREFILL_ROUNDS {
            self.engine.truncate(0);
            let us = self.time_prefill()?;
            if round > 0 {
                times.push(us / self.prompt_ids.len() as f64);
            }
        }
        self.engine.truncate(0);
        Ok(times)
    }

    /// Takes back the last change.
    pub(super) fn undo(&mut self) {
        let Some(entry) = self.advice.last_applied() else {
            self.complain("nothing to undo");
            return;
        };
        let Some(before) = entry.before.take() else {
            return;
        };
        entry.shown.status = match &mut entry.test {
            Some(test) => {
                test.undo();
                test.status()
            }
            None => RecommendationStatus::Open,
        };
        let title = entry.shown.title.clone();
        match self.reconfigure(before) {
            Ok(()) => self.note(format!("undone: {title}")),
            Err(e) => self.complain(e.to_string()),
        }
    }

    /// Another configuration from here on; figures of the old one are cleared.
    fn reconfigure(&mut self, config: Config) -> Result<(), EngineError> {
        self.rebuild(config)?;
        self.stats.clear();
        self.rates.clear_decode();
        self.advice.stale = true;
        Ok(())
    }
}
