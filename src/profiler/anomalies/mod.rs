//! Decoded tokens that took longer than their neighbours, and why.
//!
//! A token is flagged when it ends, by distance from the median in median absolute deviations (Leys et al., "Detecting
//! outliers: do not use standard deviation around the mean, use absolute deviation around the median", J. Exp. Soc.
//! Psychol. 49(4), 2013), after the growth of attention with context is taken out ([`baseline`]). Every few seconds
//! k-means over the tokens' brick times looks at them as groups ([`clusters`]). [`cause`] names the brick and the reason.

mod baseline;
mod cause;
mod clusters;
#[cfg(test)]
mod tests;

use crate::model::brick::BrickId;
use crate::profiler::figures::{Anomaly, TokenTime};
use baseline::{Baseline, Scratch};
use cause::{Found, Typical};
use std::collections::VecDeque;
use std::time::Duration;

/// Tokens kept for the dashboard.
pub const TOKENS: usize = 512;
/// Anomalies kept.
pub const ANOMALIES: usize = 64;
/// Tokens that a token is compared with.
const WINDOW: usize = 128;
/// Tokens before any is judged.
const WARM: usize = 16;
/// From this many tokens on the baseline is renewed every [`RENEW`], before every half of them: within that distance a
/// steady growth stays below the rule's threshold.
const SETTLED: usize = 64;
const RENEW: usize = 32;
/// This many slow tokens in a row are a new level, not anomalies.
const NEW_LEVEL: u32 = 8;
/// Time between two clusterings.
const CLUSTER_EVERY: Duration = Duration::from_secs(2);

/// Watches decoded tokens for slow ones.
#[derive(Debug, Clone)]
pub struct Watch {
    ring: Ring,
    /// Tokens since the sequence started anew or the level changed; the baseline rests on no others.
    fresh: usize,
    baseline: Option<Baseline>,
    /// Value of `fresh` at which the baseline is renewed.
    renew_at: usize,
    /// Slow tokens in a row.
    slow_run: u32,
    found: VecDeque<Found>,
    scratch: Scratch,
    /// When and up to which token clusters were last formed.
    clustered: Option<(Duration, u64)>,
}

impl Watch {
    /// Keeps the newest `tokens` tokens (at least 256, at most 65,536), 128 bytes and a [`TokenTime`] each. Nothing is
    /// allocated later until anomalies are read.
    pub fn new(tokens: usize) -> Self {
        Self {
            ring: Ring::new(tokens.clamp(clusters::TOKENS, 1 << 16)),
            fresh: 0,
            baseline: None,
            renew_at: WARM,
            slow_run: 0,
            found: VecDeque::with_capacity(ANOMALIES + 1),
            scratch: Scratch::new(WINDOW),
            clustered: None,
        }
    }

    /// Forgets everything: a change of configuration, or the user's wish.
    pub fn clear(&mut self) {
        self.ring.clear();
        self.found.clear();
        self.restart();
        (self.baseline, self.clustered) = (None, None);
    }

    /// Takes a decoded token with its time by brick in microseconds; whether it is slow: more than six median absolute
    /// deviations (four standard deviations of normal noise: fewer than 1 in 10,000 tokens of it) and more than 10% above
    /// the median of the 128 tokens before, context growth taken out. The first 16 tokens are not judged; eight slow ones
    /// in a row are taken for a new level. A token without a time is passed over; its `slow` is set here.
    pub fn push(&mut self, token: TokenTime, brick_us: &[f32; BrickId::COUNT]) -> bool {
        if !token.us.is_finite() || token.us <= 0.0 {
            return false;
        }
        let brick_us = brick_us.map(|us| if us.is_finite() { us.max(0.0) } else { 0.0 });
        let last = self.ring.newest().map(|last| last.position);
        if last.is_some_and(|last| token.position <= last) {
            // The old baseline serves until the new sequence has one: its tokens are shorter if anything.
            self.restart();
        }
        let exceeded = self.baseline.filter(|b| b.is_slow(&token));
        let token = TokenTime {
            slow: exceeded.is_some(),
            ..token
        };
        let reason = exceeded.map(|_| self.typical().reason(&token, &brick_us));
        let seq = self.ring.push(token, brick_us);
        if let Some((baseline, reason)) = exceeded.zip(reason) {
            let expected_us = baseline.expected_us(token.position);
            self.keep(Found::new(seq, &token, expected_us, reason, (true, false)));
        }
        self.fresh += 1;
        self.slow_run = if token.slow { self.slow_run + 1 } else { 0 };
        if self.slow_run >= NEW_LEVEL {
            self.restart();
            self.baseline = None;
        }
        self.renew();
        token.slow
    }

    /// The newest token.
    pub fn newest(&self) -> Option<&TokenTime> {
        self.ring.newest()
    }

    /// The newest tokens, oldest first.
    pub fn token_times(&self) -> Vec<TokenTime> {
        self.ring
            .newest_of(self.ring.capacity)
            .map(|(_, t, _)| *t)
            .collect()
    }

    /// The slow tokens, oldest first, at most 64.
    pub fn anomalies(&self) -> Vec<Anomaly> {
        self.found.iter().map(Found::anomaly).collect()
    }

    /// Looks at the newest 256 tokens as groups, and flags those of a small slow one. Does nothing within two seconds of
    /// the last time, without a new token, or with fewer than 64; whether it did. `now` is a time from any fixed moment.
    /// Takes about a millisecond and allocates: call it when publishing, between two tokens.
    pub fn cluster(&mut self, now: Duration) -> bool {
        let newest = self.ring.next;
        let due = self
            .clustered
            .is_none_or(|(then, seq)| seq != newest && now.saturating_sub(then) >= CLUSTER_EVERY);
        let Some(baseline) = self.baseline.filter(|_| due) else {
            return false;
        };
        let slow = clusters::slow_tokens(&self.ring, &baseline);
        let Some(slow) = slow else {
            return false;
        };
        self.clustered = Some((now, newest));
        for seq in slow {
            self.flag_by_clusters(seq, &baseline);
        }
        true
    }

    fn flag_by_clusters(&mut self, seq: u64, baseline: &Baseline) {
        if let Some(found) = self.found.iter_mut().find(|f| f.seq == seq) {
            found.by_clusters = true;
            return;
        }
        let Some((&token, brick_us)) = self.ring.get(seq) else {
            return;
        };
        let brick_us = *brick_us;
        let reason = self.typical().reason(&token, &brick_us);
        self.ring.mark_slow(seq);
        let by = (false, true);
        self.keep(Found::new(
            seq,
            &token,
            baseline.expected_us(token.position),
            reason,
            by,
        ));
    }

    /// In the order of tokens; the oldest go.
    fn keep(&mut self, found: Found) {
        let at = self.found.partition_point(|f| f.seq < found.seq);
        self.found.insert(at, found);
        if self.found.len() > ANOMALIES {
            self.found.pop_front();
        }
    }

    fn restart(&mut self) {
        (self.fresh, self.renew_at, self.slow_run) = (0, WARM, 0);
    }

    fn renew(&mut self) {
        if self.fresh < self.renew_at {
            return;
        }
        let window = self.ring.newest_of(self.fresh.min(WINDOW));
        self.baseline = Some(Baseline::of(window, &mut self.scratch));
        let ahead = if self.fresh < SETTLED {
            self.fresh / 2
        } else {
            RENEW
        };
        self.renew_at = self.fresh + ahead;
    }

    /// What the tokens before the next one usually take, by brick.
    fn typical(&mut self) -> Typical {
        let n = if self.fresh >= WARM {
            self.fresh
        } else {
            WINDOW
        };
        let window = self.ring.newest_of(n.min(WINDOW));
        Typical::of(
            window,
            self.baseline.map_or(0.0, |b| b.slope),
            &mut self.scratch,
        )
    }
}

/// The newest tokens with their brick times.
#[derive(Debug, Clone)]
struct Ring {
    capacity: usize,
    tokens: Vec<TokenTime>,
    bricks: Vec<[f32; BrickId::COUNT]>,
    /// Number of the next token; token `seq` lies at `seq % capacity`.
    next: u64,
}

impl Ring {
    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            tokens: Vec::with_capacity(capacity),
            bricks: Vec::with_capacity(capacity),
            next: 0,
        }
    }

    fn clear(&mut self) {
        self.tokens.clear();
        self.bricks.clear();
        self.next = 0;
    }

    /// Returns the token's number.
    fn push(&mut self, token: TokenTime, brick_us: [f32; BrickId::COUNT]) -> u64 {
        let seq = self.next;
        if self.tokens.len() < self.capacity {
            self.tokens.push(token);
            self.bricks.push(brick_us);
        } else {
            let at = self.place(seq);
            (self.tokens[at], self.bricks[at]) = (token, brick_us);
        }
        self.next += 1;
        seq
    }

    fn place(&self, seq: u64) -> usize {
        (seq % self.capacity as u64) as usize
    }

    fn first(&self) -> u64 {
        self.next - self.tokens.len() as u64
    }

    fn get(&self, seq: u64) -> Option<(&TokenTime, &[f32; BrickId::COUNT])> {
        if !(self.first()..self.next).contains(&seq) {
            return None;
        }
        let at = self.place(seq);
        self.tokens.get(at).zip(self.bricks.get(at))
    }

    fn newest(&self) -> Option<&TokenTime> {
        self.get(self.next.checked_sub(1)?).map(|(token, _)| token)
    }

    fn mark_slow(&mut self, seq: u64) {
        let at = self.place(seq);
        if let Some(token) = self.tokens.get_mut(at) {
            token.slow = true;
        }
    }

    /// The newest `n` tokens, oldest first, with their numbers and brick times.
    fn newest_of(
        &self,
        n: usize,
    ) -> impl Iterator<Item = (u64, &TokenTime, &[f32; BrickId::COUNT])> + Clone {
        let first = self.first().max(self.next.saturating_sub(n as u64));
        (first..self.next).filter_map(|seq| self.get(seq).map(|(t, b)| (seq, t, b)))
    }
}
