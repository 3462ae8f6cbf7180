//! Throughput of a run, from time inside the engine. A rate appears with its second token, never before; unknown is `None`.

use crate::profiler::figures::{Phases, Rates};

/// Tokens in the history.
pub const HISTORY: usize = 256;
/// Tokens that `decode_now` averages over.
pub const RECENT: usize = 16;

/// Collects the times of a run's tokens. Preallocated; feeding it allocates nothing.
#[derive(Debug, Clone)]
pub struct RateMeter {
    /// Times of single tokens, microseconds; a ring that `next` writes to.
    ring: Box<[f64; HISTORY]>,
    next: usize,
    tokens: u64,
    decode_us: f64,
    decode_bytes: u64,
    mean_rate: f64,
    rate_squares: f64,
    prefill_tokens: u64,
    prefill_us: f64,
    ttft_us: Option<f64>,
    /// Time spent on publishing, and the wall time it is of.
    overhead_us: Option<(f64, f64)>,
}

impl Default for RateMeter {
    fn default() -> Self {
        Self {
            ring: Box::new([0.0; HISTORY]),
            next: 0,
            tokens: 0,
            decode_us: 0.0,
            decode_bytes: 0,
            mean_rate: 0.0,
            rate_squares: 0.0,
            prefill_tokens: 0,
            prefill_us: 0.0,
            ttft_us: None,
            overhead_us: None,
        }
    }
}

impl RateMeter {
    /// A meter without samples.
    pub fn new() -> Self {
        Self::default()
    }

    /// A new run: forgets everything.
    pub fn clear(&mut self) {
        self.clear_decode();
        self.clear_prefill();
    }

    /// The configuration changed since the prompt was read: forgets prefill only, as another run begins.
    pub fn clear_prefill(&mut self) {
        (self.prefill_tokens, self.prefill_us, self.ttft_us) = (0, 0.0, None);
    }

    /// The user resets statistics, or the configuration changed, while generation goes on: forgets decode only.
    pub fn clear_decode(&mut self) {
        (self.next, self.tokens, self.decode_us, self.decode_bytes) = (0, 0, 0.0, 0);
        (self.mean_rate, self.rate_squares, self.overhead_us) = (0.0, 0.0, None);
    }

    /// A prefill chunk of `tokens` took `us` microseconds.
    pub fn prefill(&mut self, tokens: u32, us: f64) {
        self.prefill_tokens += u64::from(tokens);
        self.prefill_us += us;
    }

    /// The first token was sampled, `sample_us` after the last prefill chunk ended (time in the engine). Later calls of
    /// a run are ignored.
    pub fn first_token(&mut self, sample_us: f64) {
        if self.ttft_us.is_none() {
            self.ttft_us = Some(self.prefill_us + sample_us);
        }
    }

    /// A decode step took `us` microseconds and moved `bytes` (weights, kv cache so far). A step without time is
    /// ignored: no rate can be had from it.
    pub fn decode(&mut self, us: f64, bytes: u64) {
        if us.is_nan() || us <= 0.0 {
            return;
        }
        self.ring[self.next] = us;
        self.next = (self.next + 1) % HISTORY;
        self.tokens += 1;
        self.decode_us += us;
        self.decode_bytes = self.decode_bytes.saturating_add(bytes);
        let rate = 1e6 / us;
        let distance = rate - self.mean_rate;
        self.mean_rate += distance / self.tokens as f64;
        self.rate_squares += distance * (rate - self.mean_rate);
    }

    /// Of `wall_us` microseconds `us` went to publishing instead of the engine.
    pub fn overhead(&mut self, us: f64, wall_us: f64) {
        let (spent, wall) = self.overhead_us.unwrap_or((0.0, 0.0));
        self.overhead_us = Some((spent + us, wall + wall_us));
    }

    /// Mean time of a token of the prompt, microseconds; `None` before any.
    pub fn prefill_us_per_token(&self) -> Option<f64> {
        (self.prefill_tokens > 0).then(|| self.prefill_us / self.prefill_tokens as f64)
    }

    /// Decode tokens counted.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Times of the newest tokens, newest last, microseconds; at most [`HISTORY`].
    pub fn recent_us(&self) -> impl DoubleEndedIterator<Item = f64> + '_ {
        let kept = usize::try_from(self.tokens).unwrap_or(HISTORY).min(HISTORY);
        (0..kept).map(move |i| self.ring[(self.next + HISTORY - kept + i) % HISTORY])
    }

    /// The figures for a snapshot.
    pub fn rates(&self) -> Rates {
        let known = self.tokens >= 2;
        Rates {
            decode_now_tok_s: known.then(|| self.recent_rate()),
            decode_mean_tok_s: known.then(|| self.tokens as f64 * 1e6 / self.decode_us),
            decode_stddev_tok_s: known
                .then(|| (self.rate_squares.max(0.0) / (self.tokens - 1) as f64).sqrt()),
            prefill_tok_s: (self.prefill_tokens >= 2 && self.prefill_us > 0.0)
                .then(|| self.prefill_tokens as f64 * 1e6 / self.prefill_us),
            ttft_s: self.ttft_us.map(|us| us * 1e-6),
            // Bytes a microsecond are MB/s (10^6).
            decode_gbps: (known && self.decode_bytes > 0)
                .then(|| self.decode_bytes as f64 / self.decode_us * 1e-3),
            history_tok_s: self.recent_us().map(|us| 1e6 / us).collect(),
            overhead_share: self
                .overhead_us
                .filter(|(_, wall)| known && *wall > 0.0)
                .map(|(us, wall)| (us / wall).min(1.0)),
        }
    }

    /// Times of the phases; loading is for the caller to add.
    pub fn phases(&self) -> Phases {
        Phases {
            prefill_ms: self.prefill_us * 1e-3,
            prefill_tokens: self.prefill_tokens,
            decode_ms: self.decode_us * 1e-3,
            decode_tokens: self.tokens,
            first_token_ms: self.ttft_us.map(|us| us * 1e-3),
            ..Phases::default()
        }
    }

    fn recent_rate(&self) -> f64 {
        let (count, us) = self
            .recent_us()
            .rev()
            .take(RECENT)
            .fold((0u32, 0.0), |(n, sum), us| (n + 1, sum + us));
        f64::from(count) * 1e6 / us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_known_before_two_tokens() {
        let mut m = RateMeter::new();
        assert_eq!(m.rates(), Rates::default());
        m.decode(1000.0, 10);
        m.overhead(1.0, 10.0);
        let r = m.rates();
        assert_eq!(
            (
                r.decode_now_tok_s,
                r.decode_mean_tok_s,
                r.decode_stddev_tok_s
            ),
            (None, None, None)
        );
        assert_eq!(
            (r.decode_gbps, r.overhead_share, r.prefill_tok_s),
            (None, None, None)
        );
        m.prefill(1, 100.0);
        assert_eq!(m.rates().prefill_tok_s, None);
    }

    #[test]
    fn rates_are_tokens_over_time() {
        let mut m = RateMeter::new();
        m.prefill(100, 20_000.0);
        m.prefill(50, 10_000.0);
        m.first_token(500.0);
        m.first_token(900.0);
        m.decode(1000.0, 2_000_000);
        m.decode(3000.0, 2_000_000);
        m.overhead(40.0, 4040.0);
        let r = m.rates();
        let near = |a: Option<f64>, b: f64| a.is_some_and(|a| (a / b - 1.0).abs() < 1e-12);
        assert!(near(r.prefill_tok_s, 5000.0) && near(r.ttft_s, 0.0305));
        // 2 tokens in 4 ms, not the mean of 1000 and 333 tokens a second.
        assert!(near(r.decode_mean_tok_s, 500.0) && near(r.decode_now_tok_s, 500.0));
        assert!(near(r.decode_gbps, 1.0), "{:?}", r.decode_gbps);
        assert!(near(r.overhead_share, 40.0 / 4040.0));
        assert!(near(
            r.decode_stddev_tok_s,
            (1000.0 - 1000.0 / 3.0) / 2f64.sqrt()
        ));
    }

    #[test]
    fn f159_phases_are_the_time_behind_the_rates() {
        let mut m = RateMeter::new();
        m.prefill(100, 20_000.0);
        m.first_token(500.0);
        m.decode(1000.0, 1);
        m.decode(3000.0, 1);
        let (p, r) = (m.phases(), m.rates());
        assert_eq!((p.prefill_tokens, p.decode_tokens), (100, 2));
        assert_eq!((p.prefill_ms, p.decode_ms), (20.0, 4.0));
        assert_eq!(p.first_token_ms, Some(20.5));
        assert_eq!(r.decode_mean_tok_s, Some(1e3 * 2.0 / p.decode_ms));
        assert_eq!(r.prefill_tok_s, Some(1e3 * 100.0 / p.prefill_ms));
        assert_eq!(RateMeter::new().phases(), Phases::default());
    }

    #[test]
    fn now_follows_the_last_sixteen_and_history_keeps_256() {
        let mut m = RateMeter::new();
        for _ in 0..300 {
            m.decode(1000.0, 0);
        }
        for _ in 0..RECENT {
            m.decode(500.0, 0);
        }
        let r = m.rates();
        assert!(
            r.decode_now_tok_s
                .is_some_and(|v| (v - 2000.0).abs() < 1e-9)
        );
        assert_eq!(r.history_tok_s.len(), HISTORY);
        assert!(
            (r.history_tok_s[HISTORY - 1] - 2000.0).abs() < 1e-9
                && (r.history_tok_s[0] - 1000.0).abs() < 1e-9
        );
        assert_eq!((r.decode_gbps, m.tokens()), (None, 316));
    }

    #[test]
    fn clearing_decode_keeps_the_prompts_figures() {
        let mut m = RateMeter::new();
        m.prefill(10, 100.0);
        m.first_token(1.0);
        m.decode(10.0, 1);
        m.decode(10.0, 1);
        m.clear_decode();
        let r = m.rates();
        assert!(r.prefill_tok_s.is_some() && r.ttft_s.is_some() && r.decode_mean_tok_s.is_none());
        assert!(r.history_tok_s.is_empty());
        m.clear();
        assert_eq!(m.rates(), Rates::default());
    }

    #[test]
    fn steps_without_time_give_no_infinite_rate() {
        let mut m = RateMeter::new();
        for us in [0.0, -1.0, f64::NAN] {
            m.decode(us, 1);
        }
        assert_eq!(m.rates(), Rates::default());
    }
}
