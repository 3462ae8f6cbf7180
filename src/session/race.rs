//! Trying all suggestions, one by one, each against what was best until then.

use super::run::Session;
use super::snapshot::RaceFrame;
use crate::tuner::ab::Outcome;
use std::collections::VecDeque;

/// Suggestions that are tried in turn.
pub(super) struct Race {
    /// Those to come.
    queue: VecDeque<String>,
    done: u32,
    total: u32,
    kept: u32,
    /// Those that could not be measured, and why the first one could not.
    failed: u32,
    why: Option<String>,
    /// Product of the ratios of what was kept.
    gain: f64,
    /// What it leaves alone, and why.
    left: Vec<String>,
}

impl Race {
    pub fn frame(&self) -> RaceFrame {
        RaceFrame {
            done: self.done,
            total: self.total,
            kept: self.kept,
        }
    }
}

impl Session {
    /// Begins to try all open suggestions, those of most expected gain first; or stops doing so.
    pub(super) fn try_all(&mut self) {
        if self.advice.race.is_some() {
            self.undo();
            return;
        }
        if self.has_failed() {
            self.complain("the session has failed; restart it first");
            return;
        }
        if self.advice.measuring.is_some() {
            self.complain("a change is being measured; wait for its result");
            return;
        }
        if self.is_bandit_on() {
            self.complain("the bandit is choosing kernels; switch it off first");
            return;
        }
        // In the order in which they promise most now.
        self.advice.rank(self.rates.rates().decode_mean_tok_s);
        let open = self.advice.entries().iter();
        let mut left = Vec::new();
        let mut queue = VecDeque::new();
        for r in open.filter(|e| e.is_open()).map(|e| &e.shown) {
            match &r.left_alone {
                _ if !r.applicable => {}
                None => queue.push_back(r.id.clone()),
                Some(why) => left.push(why.clone()),
            }
        }
        left.dedup();
        self.advice.race = Some(Race {
            total: queue.len() as u32,
            queue,
            done: 0,
            kept: 0,
            failed: 0,
            why: None,
            gain: 1.0,
            left,
        });
        self.next_of_race();
    }

    /// Whether suggestions are being tried.
    pub fn is_racing(&self) -> bool {
        self.advice.race.is_some()
    }

    /// A change has been measured on tokens or on the prompt, or could not be.
    pub(super) fn race_on(&mut self, outcome: Option<Outcome>, of_prompt: bool) {
        let Some(race) = &mut self.advice.race else {
            return;
        };
        race.done += 1;
        match outcome {
            Some(o) if o.kept => {
                race.kept += 1;
                if !of_prompt {
                    race.gain *= o.ratio();
                }
            }
            Some(_) => {}
            None => {
                race.failed += 1;
                let said = self.message.as_ref().map(|m| m.text.clone());
                race.why = race.why.take().or(said);
            }
        }
        self.next_of_race();
    }

    fn next_of_race(&mut self) {
        while let Some(race) = &mut self.advice.race {
            let Some(id) = race.queue.pop_front() else {
                break;
            };
            // One that what was kept has made pointless is none to try.
            match self.begin_measuring(&id) {
                Ok(()) => return,
                Err(e) => {
                    if let Some(race) = &mut self.advice.race {
                        race.done += 1;
                        race.failed += 1;
                        race.why.get_or_insert(e);
                    }
                }
            }
        }
        let Some(race) = self.advice.race.take() else {
            return;
        };
        let left = match race.left.as_slice() {
            [] => String::new(),
            left => format!("; left alone: {}", left.join(", ")),
        };
        let failed = match (race.failed, race.why) {
            (0, _) => String::new(),
            (n, why) => format!("; {n} could not be tried: {}", why.unwrap_or_default()),
        };
        let tried = race.done - race.failed;
        self.note(match (tried, race.kept) {
            (0, _) if race.total == 0 => format!("there is nothing to try{left}"),
            (0, _) => format!("none was tried{failed}{left}"),
            (n, 0) => format!("{n} tried, none made it faster{failed}{left}"),
            (n, kept) => format!(
                "{n} tried, {kept} kept: {:+.1}% for generated tokens{failed}{left}",
                (race.gain - 1.0) * 100.0
            ),
        });
    }
}
