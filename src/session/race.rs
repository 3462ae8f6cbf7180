//! Trying all suggestions, one by one, each against what was best until then.

use super::run::Session;
use super::snapshot::{RaceFrame, Recommendation};
use crate::tuner::ab::Outcome;
use crate::tuner::suggest;
use std::collections::VecDeque;

/// Suggestions that are tried in turn.
pub(super) struct Race {
    /// Those to come.
    queue: VecDeque<String>,
    done: u32,
    total: u32,
    kept: u32,
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
        let open = self.advice.entries().iter();
        let open: Vec<&Recommendation> = open
            .filter(|e| e.is_open() && e.change.is_some())
            .map(|e| &e.shown)
            .collect();
        let mut left = Vec::new();
        let mut queue = VecDeque::new();
        for r in open {
            match suggest::left_alone(&r.change, &self.options.explicit) {
                None => queue.push_back(r.id.clone()),
                Some(why) => left.push(why),
            }
        }
        left.dedup();
        self.advice.race = Some(Race {
            total: queue.len() as u32,
            queue,
            done: 0,
            kept: 0,
            gain: 1.0,
            left,
        });
        self.next_of_race();
    }

    /// Whether suggestions are being tried.
    pub fn is_racing(&self) -> bool {
        self.advice.race.is_some()
    }

    /// A change has been measured, or could not be.
    pub(super) fn race_on(&mut self, outcome: Option<Outcome>) {
        let Some(race) = &mut self.advice.race else {
            return;
        };
        race.done += 1;
        if let Some(o) = outcome.filter(|o| o.kept) {
            race.kept += 1;
            race.gain *= o.ratio();
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
                Err(_) => {
                    if let Some(race) = &mut self.advice.race {
                        race.done += 1;
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
        self.note(match (race.total, race.kept) {
            (0, _) => format!("there is nothing to try{left}"),
            (n, 0) => format!("{n} tried, none made it faster{left}"),
            (n, kept) => format!(
                "{n} tried, {kept} kept: {:+.1}% in all{left}",
                (race.gain - 1.0) * 100.0
            ),
        });
    }
}
