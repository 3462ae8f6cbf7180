//! The bandit over kernel sets: engines side by side, and turning over to another now and then while tokens are generated.

use super::change::Rival;
use super::run::Session;
use super::snapshot::BanditFrame;
use crate::engine::cpu::KernelSet;
use crate::tuner::bandit::{BOUND, Bandit};
use std::time::Instant;

/// Tokens between two choices: reading what an engine has missed is worth that many.
const TOKENS: u32 = 16;
/// Of them those right after a switch, which are not counted.
const SETTLE: u32 = 2;
/// The bandit has one half of the bound for slow kernels, switching the other.
const HALF: f64 = BOUND / 2.0;
const SEED: u64 = 42;

/// Kernel sets as arms.
pub(super) struct KernelBandit {
    bandit: Bandit,
    /// Arms that are not in use.
    rivals: Vec<(String, Rival)>,
    current: String,
    /// Time of the tokens since the last choice, microseconds, and how many.
    us: f64,
    tokens: u32,
    to_skip: u32,
    /// Time of all tokens, and that spent on switching, microseconds.
    total_us: f64,
    switch_us: f64,
}

impl KernelBandit {
    /// What is shown: its observations are of several tokens each.
    pub fn frame(&self) -> BanditFrame {
        let mut frame = self.bandit.frame();
        for arm in &mut frame.arms {
            arm.tokens *= u64::from(TOKENS - SETTLE);
        }
        frame.current.clone_from(&self.current);
        frame.bound = BOUND;
        frame.regret_share += self.switch_us / self.total_us.max(1.0);
        frame
    }
}

impl Session {
    /// Lets kernel sets be chosen as tokens are generated, or no longer.
    pub(super) fn switch_bandit(&mut self, on: bool) {
        if !on {
            if self.bandit.take().is_some() {
                self.forget_figures();
                self.settle_in();
                self.note(format!(
                    "kernels are no longer chosen; {} stay",
                    self.options.config.kernels.name()
                ));
            }
            return;
        }
        if self.bandit.is_some() {
            return;
        }
        if self.advice.measuring.is_some() || self.advice.race.is_some() {
            self.complain("a change is being measured; wait for its result");
            return;
        }
        if self.options.explicit.contains("backend") {
            self.complain("you set --backend: kernels are left to you");
            return;
        }
        match self.start_bandit() {
            Ok(bandit) => self.bandit = Some(bandit),
            Err(e) => self.complain(e),
        }
    }

    fn start_bandit(&mut self) -> Result<KernelBandit, String> {
        self.leave_token();
        let setup = self.setup();
        let current = setup.config.kernels;
        let others = KernelSet::available()
            .into_iter()
            .filter(|set| *set != current && *set != KernelSet::Scalar);
        let mut rivals = Vec::new();
        for set in others {
            let mut other = setup.clone();
            other.config.kernels = set;
            rivals.push((set.name().to_owned(), self.rival(&other)?));
        }
        if rivals.is_empty() {
            return Err(format!(
                "there is nothing to choose from: this CPU has the {} kernels alone",
                current.name()
            ));
        }
        let names = rivals.iter().map(|(name, _)| name.clone());
        let names = std::iter::once(current.name().to_owned()).chain(names);
        let bandit = Bandit::new(names, HALF, SEED).ok_or("there is nothing to choose from")?;
        Ok(KernelBandit {
            bandit,
            rivals,
            current: current.name().into(),
            us: 0.0,
            tokens: 0,
            to_skip: SETTLE,
            total_us: 0.0,
            switch_us: 0.0,
        })
    }

    /// Whether kernels are being chosen.
    pub(super) fn is_bandit_on(&self) -> bool {
        self.bandit.is_some()
    }

    /// A token has been decoded.
    pub(super) fn follow_bandit(&mut self, us: f64) {
        let Some(b) = &mut self.bandit else { return };
        if !(us.is_finite() && us > 0.0) {
            return;
        }
        b.total_us += us;
        if b.to_skip > 0 {
            b.to_skip -= 1;
            return;
        }
        b.us += us;
        b.tokens += 1;
        if b.tokens < TOKENS - SETTLE {
            return;
        }
        let mean = b.us / f64::from(b.tokens);
        (b.us, b.tokens) = (0.0, 0);
        let current = b.current.clone();
        b.bandit.observe(&current, mean);
        let chosen = b.bandit.choose().to_owned();
        if chosen != current {
            self.turn_to(&chosen);
        }
    }

    /// Turns over to an arm, if switching to it and back stays within its share of the bound.
    fn turn_to(&mut self, name: &str) {
        let each = self.rates.prefill_us_per_token();
        let past = self.engine.past();
        let Some(mut b) = self.bandit.take() else {
            return;
        };
        let Some(at) = b.rivals.iter().position(|(arm, _)| arm == name) else {
            self.bandit = Some(b);
            return;
        };
        let (arm, rival) = &mut b.rivals[at];
        let missed = past.saturating_sub(rival.past()) + TOKENS as usize;
        let cost = each.map(|us| us * missed as f64);
        let in_bound =
            cost.is_some_and(|us| b.total_us > 0.0 && b.switch_us + us <= HALF * (b.total_us + us));
        // The way back was reserved on the way out: staying with slow kernels would cost more.
        if !in_bound && b.bandit.best() != name {
            self.bandit = Some(b);
            return;
        }
        let began = Instant::now();
        match self.exchange(rival) {
            Ok(()) => {
                std::mem::swap(arm, &mut b.current);
                b.switch_us += began.elapsed().as_secs_f64() * 1e6;
                b.to_skip = SETTLE;
                self.bandit = Some(b);
                self.advice.stale = true;
            }
            Err(e) => self.complain(format!("kernels are no longer chosen: {e}")),
        }
    }

    /// A run begins, and all caches are empty.
    pub(super) fn bandit_starts_run(&mut self) {
        if let Some(b) = &mut self.bandit {
            b.rivals.iter_mut().for_each(|(_, r)| r.start_run());
            (b.us, b.tokens, b.to_skip) = (0.0, 0, SETTLE);
        }
    }
}
