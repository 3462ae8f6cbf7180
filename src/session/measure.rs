//! A change measured while tokens are generated: two engines take turns, the faster one stays.

use super::change::Rival;
use super::run::{Gate, Session};
use super::snapshot::RecommendationStatus;
use crate::engine::EngineError;
use crate::engine::knobs::Setup;
use crate::tuner::Change;
use crate::tuner::ab::{AbTest, Action, Outcome, Side};

/// Context that a comparison needs to begin in: two groups of blocks.
const ROOM: usize = 48;
/// Chunks of a prompt that are read to compare two sizes of them, of the larger size.
const CHUNKS: usize = 2;

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// Tokens as they are generated.
    Tokens,
    /// So many tokens of the prompt, again and again.
    Prompt(usize),
}

/// A comparison in progress.
pub(super) struct Measuring {
    id: String,
    test: AbTest,
    /// The engine that is not in use.
    rival: Rival,
    /// Which side is in use.
    side: Side,
    before: Setup,
    after: Setup,
    what: What,
    /// Tokens in the cache when it began.
    depth: u32,
}

/// A comparison that came to its end, for the store.
pub(super) struct Finished {
    pub before: Setup,
    pub after: Setup,
    pub outcome: Outcome,
    /// Tokens in the cache when it began.
    pub depth: u32,
    /// Tokens of the prompt that was read, if prompts were compared.
    pub prompt: Option<u32>,
}

impl Session {
    /// Applies a recommendation: measured against the present setup, and kept where it is faster.
    pub(super) fn apply(&mut self, id: &str) {
        if self.advice.race.is_some() {
            self.complain("all suggestions are being tried; wait, or undo to stop that");
            return;
        }
        if let Err(e) = self.begin_measuring(id) {
            self.complain(e);
        }
    }

    /// Begins to measure the change of an entry.
    ///
    /// # Errors
    /// Why it cannot be, in one line; nothing has changed then.
    pub(super) fn begin_measuring(&mut self, id: &str) -> Result<(), String> {
        if self.has_failed() {
            return Err("the session has failed; restart it first".into());
        }
        if self.advice.measuring.is_some() {
            return Err("a change is being measured; wait for its result".into());
        }
        if self.is_bandit_on() {
            return Err("the bandit is choosing kernels; switch it off first".into());
        }
        let Some(entry) = self.advice.find(id) else {
            return Err(format!("there is no recommendation '{id}'"));
        };
        if entry.in_force.is_some() {
            return Err("it is applied already; undo it first".into());
        }
        let Some(change) = entry.change.clone() else {
            return Err("this is for you to do outside cbtop; its text says how".into());
        };
        // Before anything else: the token may end the run.
        self.leave_token();
        if self.has_failed() {
            return Err("the session has failed; restart it first".into());
        }
        self.begin(id, &change)
    }

    fn begin(&mut self, id: &str, change: &Change) -> Result<(), String> {
        let before = self.setup();
        let after = before.with(&change.0)?;
        if after == before {
            return Err("it is set like that already".into());
        }
        let what = if change.affects_decode() {
            What::Tokens
        } else {
            let chunk = before.config.chunk.max(after.config.chunk);
            let most = chunk.saturating_mul(CHUNKS);
            What::Prompt(self.prompt_ids.len().min(most))
        };
        if what == What::Prompt(0) {
            return Err("there is no prompt to measure it on".into());
        }
        let rival = self.rival(&after)?;
        let test = match what {
            What::Tokens => AbTest::of_tokens(),
            What::Prompt(_) => AbTest::of_prompts(),
        };
        if what != What::Tokens || self.is_over() || self.engine.room() < ROOM {
            self.start_run();
        }
        self.resume();
        if let Some(entry) = self.advice.find(id) {
            entry.shown.status = test.status();
        }
        self.advice.measuring = Some(Measuring {
            id: id.into(),
            test,
            rival,
            side: Side::Present,
            before,
            after,
            what,
            // A run that has just begun reads its prompt before anything is timed.
            depth: self.engine.past().max(self.prompt_ids.len()) as u32,
        });
        self.forget_figures();
        Ok(())
    }

    /// Figures of one setup, or a mixture, say nothing of another.
    pub(super) fn forget_figures(&mut self) {
        self.clear_profile();
        self.rates.clear_decode();
        self.prefill_stale = true;
        self.advice.stale = true;
    }

    /// A token has been decoded.
    pub(super) fn follow_measurement(&mut self, us: f64) {
        if matches!(&self.advice.measuring, Some(m) if m.what == What::Tokens) {
            self.feed_measurement(us);
        }
        self.follow_bandit(us);
    }

    fn feed_measurement(&mut self, us: f64) {
        let Some(m) = &mut self.advice.measuring else {
            return;
        };
        let action = m.test.feed(us);
        let (id, status) = (m.id.clone(), m.test.status());
        if let Some(entry) = self.advice.find(&id) {
            entry.shown.status = status;
        }
        self.act(action);
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Continue => {}
            Action::Use(side) => {
                if let Err(e) = self.use_side(side) {
                    self.break_off(&e);
                }
            }
            Action::Done => self.decide(),
        }
    }

    /// Turns over to a side of the comparison, where it is not in use already.
    fn use_side(&mut self, side: Side) -> Result<(), String> {
        let Some(mut m) = self.advice.measuring.take() else {
            return Ok(());
        };
        let done = if m.side == side {
            Ok(())
        } else {
            self.exchange(&mut m.rival)
        };
        if done.is_ok() {
            m.side = side;
        }
        self.advice.measuring = Some(m);
        done
    }

    /// The comparison is done: one side stays.
    fn decide(&mut self) {
        let outcome = self
            .advice
            .measuring
            .as_ref()
            .and_then(|m| m.test.outcome());
        let Some(outcome) = outcome else { return };
        let side = if outcome.kept {
            Side::Changed
        } else {
            Side::Present
        };
        if let Err(e) = self.use_side(side) {
            self.break_off(&e);
            return;
        }
        let Some(m) = self.advice.measuring.take() else {
            return;
        };
        let in_force = outcome.kept.then(|| self.advice.in_force(m.before.clone()));
        if let Some(entry) = self.advice.find(&m.id) {
            entry.shown.status = outcome.status();
            entry.in_force = in_force;
        }
        let prompt = match m.what {
            What::Tokens => None,
            What::Prompt(n) => Some(n as u32),
        };
        let of = if prompt.is_some() {
            "prefill of the prompt: "
        } else {
            ""
        };
        self.note(format!("{of}{}", outcome.sentence()));
        // The other engine's memory before anything else.
        drop(m.rival);
        self.forget_figures();
        if outcome.kept {
            self.forget_measurement();
        }
        self.settle_in();
        if prompt.is_some() {
            // The cache is not that of the run any more.
            self.start_run();
        }
        self.keep_feedback(Finished {
            before: m.before,
            after: m.after,
            outcome,
            depth: m.depth,
            prompt,
        });
        self.race_on(Some(outcome), prompt.is_some());
    }

    /// Breaks off the comparison in progress, if there is one, with what was before.
    pub(super) fn break_off(&mut self, why: &str) {
        let back = self.use_side(Side::Present);
        let Some(m) = self.advice.measuring.take() else {
            return;
        };
        let stays = back.is_err() && m.side == Side::Changed;
        let in_force = stays.then(|| self.advice.in_force(m.before.clone()));
        if let Some(entry) = self.advice.find(&m.id) {
            entry.shown.status = RecommendationStatus::Open;
            entry.in_force = in_force;
        }
        let prompts = m.what != What::Tokens;
        drop(m.rival);
        self.forget_figures();
        self.settle_in();
        if prompts {
            self.start_run();
        }
        match back {
            Ok(()) => self.complain(format!("the change was not measured: {why}")),
            Err(e) => self.complain(format!("the change was not measured, and stays: {e}")),
        }
        self.race_on(None, prompts);
    }

    /// The engine has failed: the comparison ends with it, and what was before is what a restart builds.
    pub(super) fn drop_measurement(&mut self) {
        self.advice.race = None;
        let Some(mut m) = self.advice.measuring.take() else {
            return;
        };
        if m.side == Side::Changed {
            self.swap(&mut m.rival);
        }
        if let Some(entry) = self.advice.find(&m.id) {
            entry.shown.status = RecommendationStatus::Open;
        }
    }

    /// Whether generation has to go on for a comparison though the run has ended.
    pub(super) fn measurement_needs_more(&self) -> bool {
        matches!(&self.advice.measuring, Some(m) if m.what == What::Tokens)
    }

    /// A run begins, and both caches are empty.
    pub(super) fn measurement_starts_run(&mut self) {
        let Some(m) = &mut self.advice.measuring else {
            return;
        };
        m.rival.start_run();
        let action = m.test.interrupt();
        self.act(action);
    }

    /// Whether prompts are read again and again at the moment.
    pub(super) fn is_timing_prompts(&self) -> bool {
        matches!(&self.advice.measuring, Some(m) if m.what != What::Tokens)
    }

    /// Reads the prompt once, for the comparison in progress.
    pub(super) fn time_prompt(&mut self) -> Result<(), EngineError> {
        let Some(Measuring {
            what: What::Prompt(tokens),
            ..
        }) = self.advice.measuring
        else {
            return Ok(());
        };
        self.engine.truncate(0);
        let us = self.time_prefill(tokens)?;
        self.engine.truncate(0);
        self.feed_measurement(us / tokens as f64);
        if matches!(self.gate, Gate::OneToken | Gate::OneLayer) {
            self.gate = Gate::Paused;
        }
        Ok(())
    }

    /// Breaks off what is being measured or tried, or takes back the last change that was kept.
    pub(super) fn undo(&mut self) {
        self.leave_token();
        let racing = self.advice.race.take().is_some();
        if self.advice.measuring.is_some() {
            self.break_off("it was broken off");
            self.note(if racing {
                "trying all suggestions is broken off; what was kept so far stays"
            } else {
                "the measurement is broken off; nothing was changed"
            });
            return;
        }
        if self.is_bandit_on() {
            self.complain("the bandit is choosing kernels; switch it off first");
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
        if let Err(e) = self.rebuild(&before) {
            self.complain(e);
            return;
        }
        self.forget_figures();
        let Some(entry) = self.advice.last_applied() else {
            return;
        };
        entry.in_force = None;
        entry.shown.status = match entry.shown.status {
            RecommendationStatus::Applied {
                before_tok_s,
                after_tok_s,
                ..
            } => RecommendationStatus::Undone {
                with_tok_s: after_tok_s,
                without_tok_s: before_tok_s,
            },
            // In force without a result: it could not be taken back then.
            _ => RecommendationStatus::Open,
        };
        let title = entry.shown.title.clone();
        self.note(format!("undone: {title}"));
    }
}
