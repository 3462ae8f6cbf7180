//! Recommendations of a session: kept as shown, applied on demand, measured, undone.

use super::run::{Session, SessionError};
use super::snapshot::{Recommendation, RecommendationStatus, Snapshot};
use crate::engine::cpu::KernelSet;
use crate::engine::knobs::Setup;
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
/// Prefill time spent on each side of such a change, microseconds: commands wait meanwhile.
const PREFILL_BUDGET_US: f64 = 5e6;

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
    /// Set while the change is in force.
    in_force: Option<InForce>,
}

struct InForce {
    /// The configuration before it.
    before: Config,
    /// Changes are taken back in the opposite order of making them: each knows only what came before it.
    turn: u64,
}

impl Entry {
    fn is_open(&self) -> bool {
        self.shown.status == RecommendationStatus::Open
    }

    fn is_measuring(&self) -> bool {
        matches!(self.shown.status, RecommendationStatus::Measuring { .. })
    }

    /// The comparison is broken off, with nothing changed.
    fn reopen(&mut self) {
        self.test = None;
        self.shown.status = RecommendationStatus::Open;
    }
}

/// Everything recommended so far, in the order it came.
#[derive(Default)]
pub(super) struct Advice {
    entries: Vec<Entry>,
    /// The configuration changed since the rules last had figures: what they no longer say is dropped.
    stale: bool,
    /// Changes made so far.
    turns: u64,
}

impl Advice {
    /// Takes in what the rules say now. Entries stay in place; one that was tried keeps its result. Without figures
    /// (`known`) rules are silent about most things, which does not mean that these are settled.
    fn merge(&mut self, advice: Vec<rules::Advice>, known: bool) {
        if known && std::mem::take(&mut self.stale) {
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
                    in_force: None,
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
        self.entries
            .iter_mut()
            .filter(|e| e.in_force.is_some())
            .max_by_key(|e| e.in_force.as_ref().map(|f| f.turn))
    }

    fn in_force(&mut self, before: Config) -> InForce {
        self.turns += 1;
        InForce {
            before,
            turn: self.turns,
        }
    }
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
            let known = s.rates.decode_mean_tok_s.is_some();
            self.advice.merge(rules::recommend(&facts), known);
        }
        self.advice.shown()
    }

    /// Applies a recommendation: at once, then measured against the tokens before it.
    pub(super) fn apply(&mut self, id: &str) {
        if self.has_failed() {
            self.complain("the session has failed; restart it first");
            return;
        }
        if self.advice.measuring().is_some() {
            self.complain("a change is being measured; wait for its result");
            return;
        }
        let Some(entry) = self.advice.find(id) else {
            self.complain(format!("there is no recommendation '{id}'"));
            return;
        };
        if entry.in_force.is_some() {
            self.complain("it is applied already; undo it first");
            return;
        }
        let Some(change) = entry.change.clone() else {
            self.complain("this is for you to do outside cbtop; its text says how");
            return;
        };
        // Before anything else: the token may end the run.
        self.leave_token();
        if self.has_failed() {
            return;
        }
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
        let change = self.advice.measuring().and_then(|e| e.change.clone());
        let Some(change) = change else { return Ok(()) };
        let made = self
            .changed(&change)
            .and_then(|config| self.reconfigure(config));
        let in_force = self.advice.in_force(before);
        if let Some(entry) = self.advice.measuring() {
            match made {
                Ok(()) => entry.in_force = Some(in_force),
                Err(_) => entry.reopen(),
            }
        }
        Ok(made?)
    }

    /// The configuration with a change made.
    fn changed(&self, change: &Change) -> Result<Config, EngineError> {
        let setup = Setup {
            config: self.options.config.clone(),
            load: self.loaded.outcome.options,
            sync_mode: self.options.sync_mode,
        };
        let setup = setup.with(&change.0).map_err(EngineError::Config)?;
        Ok(setup.config)
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

    /// Breaks off the comparison in progress, if there is one: kept where it has enough tokens, else taken back.
    pub(super) fn give_up_measuring(&mut self, why: &str) {
        if !self.measurement_needs_more() {
            return;
        }
        let Some(entry) = self.advice.measuring() else {
            return;
        };
        let in_force = entry.in_force.take();
        entry.reopen();
        self.complain(format!("the change was not measured: {why}"));
        if let Some(f) = in_force
            && let Err(e) = self.reconfigure(f.before)
        {
            self.complain(e.to_string());
        }
    }

    fn apply_to_prefill(&mut self, id: &str, change: &Change) -> Result<(), SessionError> {
        let before = self.options.config.clone();
        let after = self.changed(change)?;
        let times = self.compare_prefill(&before, after);
        // The cache is not that of the run any more, whatever came of it.
        self.start_run();
        let (slow, fast) = times?;
        let in_force = self.advice.in_force(before);
        let Some(entry) = self.advice.find(id) else {
            return Ok(());
        };
        entry.in_force = Some(in_force);
        if let Some(outcome) = Outcome::of(&slow, &fast) {
            entry.shown.status = outcome.applied();
            self.note(format!("prefill of the prompt: {}", outcome.sentence()));
        }
        Ok(())
    }

    /// Prefill times with both configurations; the second stays in force unless it fails.
    fn compare_prefill(
        &mut self,
        before: &Config,
        after: Config,
    ) -> Result<(Vec<f64>, Vec<f64>), SessionError> {
        let slow = self.prefill_times()?;
        self.reconfigure(after)?;
        let fast = self.prefill_times();
        if fast.is_err() {
            self.reconfigure(before.clone())?;
        }
        Ok((slow, fast?))
    }

    /// Time a prompt token takes, several times over; leaves the cache empty.
    fn prefill_times(&mut self) -> Result<Vec<f64>, SessionError> {
        let mut times = Vec::with_capacity(PREFILL_ROUNDS);
        let mut spent = 0.0;
        // One more: the first warms caches and is not counted.
        for round in 0..=PREFILL_ROUNDS {
            self.engine.truncate(0);
            let us = self.time_prefill()?;
            spent += us;
            if round > 0 {
                times.push(us / self.prompt_ids.len() as f64);
                if spent > PREFILL_BUDGET_US {
                    break;
                }
            }
        }
        self.engine.truncate(0);
        Ok(times)
    }

    /// Takes back the last change, or breaks off a comparison that has not made its change yet.
    pub(super) fn undo(&mut self) {
        self.leave_token();
        if let Some(entry) = self.advice.measuring()
            && entry.in_force.is_none()
        {
            entry.reopen();
            self.note("nothing was changed yet; the measurement is broken off");
            return;
        }
        let before = self.advice.last_applied().and_then(|e| {
            let f = e.in_force.as_ref()?;
            Some(f.before.clone())
        });
        let Some(before) = before else {
            self.complain("nothing to undo");
            return;
        };
        if let Err(e) = self.reconfigure(before) {
            self.complain(e.to_string());
            return;
        }
        let Some(entry) = self.advice.last_applied() else {
            return;
        };
        entry.in_force = None;
        match &mut entry.test {
            Some(test) => {
                test.undo();
                entry.shown.status = test.status();
            }
            None => entry.reopen(),
        }
        let title = entry.shown.title.clone();
        self.note(format!("undone: {title}"));
    }

    /// Another configuration from here on; figures of the old one are cleared.
    fn reconfigure(&mut self, config: Config) -> Result<(), EngineError> {
        self.rebuild(config)?;
        self.clear_profile();
        self.rates.clear_decode();
        self.prefill_stale = true;
        self.advice.stale = true;
        Ok(())
    }
}
