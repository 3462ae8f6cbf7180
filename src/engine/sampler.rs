//! Choosing the next token: greedy, or temperature after top-k, top-p and min-p, in llama.cpp's order.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::cmp::Ordering;

/// What cuts and shapes the distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplerConfig {
    /// Divides the logits; 0 or less: greedy.
    pub temperature: f32,
    /// Keep this many of the most probable tokens; 0: all.
    pub top_k: usize,
    /// Keep the fewest tokens whose probability reaches this; 1: all.
    pub top_p: f32,
    /// Drop tokens less probable than this share of the most probable; 0: none.
    pub min_p: f32,
    /// Seed of the random stream.
    pub seed: u64,
}

impl SamplerConfig {
    /// Always the most probable token.
    pub const GREEDY: Self = Self {
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        seed: 0,
    };

    /// Checks ranges; the message names the flag.
    ///
    /// # Errors
    /// A value that is not a number or out of range.
    pub fn check(&self) -> Result<(), String> {
        let unit = |flag: &str, v: f32| {
            if (0.0..=1.0).contains(&v) {
                Ok(())
            } else {
                Err(format!("{flag} is {v}, expected 0 to 1"))
            }
        };
        if !self.temperature.is_finite() || self.temperature > 1e4 {
            return Err(format!(
                "--temp is {}, expected 0 to 10000",
                self.temperature
            ));
        }
        unit("--top-p", self.top_p)?;
        unit("--min-p", self.min_p)
    }
}

impl SamplerConfig {
    /// Whether it always takes the most probable token.
    pub fn is_greedy(&self) -> bool {
        self.temperature <= 0.0
    }

    /// Tokens that top-k leaves of so many.
    fn top_k_of(&self, n: usize) -> usize {
        if self.top_k > 0 { n.min(self.top_k) } else { n }
    }

    /// What each cut leaves of candidates in the [order](sort) of the most probable: all of them, or at least those that
    /// top-k leaves. Nothing is cut where there is no candidate.
    pub fn cuts(&self, sorted: &[Candidate]) -> Cuts {
        let top_k = self.top_k_of(sorted.len());
        let sorted = sorted.get(..top_k).unwrap_or(sorted);
        let Some(best) = sorted.first().map(|c| c.logit) else {
            return Cuts::default();
        };
        let top_p = self.top_p_of(sorted, best);
        let sorted = sorted.get(..top_p).unwrap_or(sorted);
        let floor = f64::from(self.min_p);
        // Sorted, so the survivors are a prefix; the most probable always stays.
        let min_p = sorted.partition_point(|c| weight(c.logit, best, 1.0) >= floor);
        Cuts {
            top_k,
            top_p,
            min_p: min_p.max(1),
        }
    }

    fn top_p_of(&self, sorted: &[Candidate], best: f32) -> usize {
        if self.top_p >= 1.0 {
            return sorted.len();
        }
        let total: f64 = sorted.iter().map(|c| weight(c.logit, best, 1.0)).sum();
        let mut sum = 0.0;
        let enough = sorted.iter().position(|c| {
            sum += weight(c.logit, best, 1.0);
            sum >= f64::from(self.top_p) * total
        });
        enough.map_or(sorted.len(), |last| last + 1)
    }
}

/// Candidates left behind each cut: prefixes of the most probable ones, each no longer than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cuts {
    /// Behind top-k.
    pub top_k: usize,
    /// Behind top-p.
    pub top_p: usize,
    /// Behind min-p: those that are drawn from.
    pub min_p: usize,
}

impl std::fmt::Display for SamplerConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_greedy() {
            return f.write_str("greedy");
        }
        write!(f, "temp {}", self.temperature)?;
        if self.top_k > 0 {
            write!(f, ", top-k {}", self.top_k)?;
        }
        if self.top_p < 1.0 {
            write!(f, ", top-p {}", self.top_p)?;
        }
        if self.min_p > 0.0 {
            write!(f, ", min-p {}", self.min_p)?;
        }
        write!(f, ", seed {}", self.seed)
    }
}

/// A token and its logit, a number above minus infinity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The token.
    pub id: u32,
    /// Its logit.
    pub logit: f32,
}

/// The tokens of a row, `[n_vocab]`, that can be chosen at all, in the order of ids.
pub fn candidates(logits: &[f32]) -> impl Iterator<Item = Candidate> {
    let all = logits.iter().enumerate();
    all.filter(|(_, l)| !l.is_nan() && **l > f32::NEG_INFINITY)
        .map(|(id, &logit)| Candidate {
            id: id as u32,
            logit,
        })
}

/// The most probable first, of equals the one with the lower id.
pub fn sort(candidates: &mut [Candidate]) {
    candidates.sort_unstable_by(by_logit);
}

/// Draws tokens; allocates only when built.
pub struct Sampler {
    config: SamplerConfig,
    rng: ChaCha8Rng,
    candidates: Vec<Candidate>,
}

impl Sampler {
    /// A sampler for a vocabulary of `n_vocab` tokens.
    pub fn new(config: SamplerConfig, n_vocab: usize) -> Self {
        let room = if config.is_greedy() { 0 } else { n_vocab };
        Self {
            config,
            rng: ChaCha8Rng::seed_from_u64(config.seed),
            candidates: Vec::with_capacity(room),
        }
    }

    /// The same random stream again.
    pub fn reset(&mut self) {
        self.rng = ChaCha8Rng::seed_from_u64(self.config.seed);
    }

    /// What it was built with.
    pub fn config(&self) -> &SamplerConfig {
        &self.config
    }

    /// The next token for `logits` (`[n_vocab]`). A logit that is not a number is never chosen; when none is a number, 0.
    pub fn sample(&mut self, logits: &[f32]) -> u32 {
        if self.config.is_greedy() {
            return argmax(logits);
        }
        self.candidates.clear();
        self.candidates.extend(candidates(logits));
        let k = self.config.top_k_of(self.candidates.len());
        if (1..self.candidates.len()).contains(&k) {
            // Only what top-k leaves is put in order.
            self.candidates.select_nth_unstable_by(k - 1, by_logit);
            self.candidates.truncate(k);
        }
        sort(&mut self.candidates);
        let cuts = self.config.cuts(&self.candidates);
        self.candidates.truncate(cuts.min_p);
        match self.candidates.first() {
            Some(best) => self.draw(best.logit),
            None => 0,
        }
    }

    fn draw(&mut self, best: f32) -> u32 {
        let t = self.config.temperature;
        let total: f64 = self
            .candidates
            .iter()
            .map(|c| weight(c.logit, best, t))
            .sum();
        // 53 random bits: uniform in [0, 1).
        let unit = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let mut rest = unit * total;
        for c in &self.candidates {
            rest -= weight(c.logit, best, t);
            if rest < 0.0 {
                return c.id;
            }
        }
        self.candidates.last().map_or(0, |c| c.id)
    }
}

/// Descending logit, ascending id: one order on every machine.
fn by_logit(a: &Candidate, b: &Candidate) -> Ordering {
    // Adding zero makes -0 and 0 equals.
    (b.logit + 0.0)
        .total_cmp(&(a.logit + 0.0))
        .then(a.id.cmp(&b.id))
}

/// Probability beside that of the most probable token, whose logit is `best`.
pub fn weight(logit: f32, best: f32, temperature: f32) -> f64 {
    // An infinite logit takes all the mass.
    if logit == best {
        1.0
    } else {
        (f64::from(logit - best) / f64::from(temperature)).exp()
    }
}

/// Index of the largest logit, the first of equals; numbers only.
pub fn argmax(logits: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (i, &l) in logits.iter().enumerate() {
        if l > best.1 {
            best = (i, l);
        }
    }
    best.0 as u32
}

/// Natural logarithm of the sum of exponentials.
pub fn logsumexp(logits: &[f32]) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if !max.is_finite() {
        return f64::from(max);
    }
    let sum: f64 = logits.iter().map(|&l| f64::from(l - max).exp()).sum();
    f64::from(max) + sum.ln()
}

/// The `n` largest logits, largest first, smaller id first among equals; those that are no numbers are left out.
pub fn top(logits: &[f32], n: usize) -> Vec<(u32, f32)> {
    let mut all: Vec<Candidate> = logits
        .iter()
        .enumerate()
        .filter(|(_, l)| !l.is_nan())
        .map(|(id, &logit)| Candidate {
            id: id as u32,
            logit,
        })
        .collect();
    if n < all.len() && n > 0 {
        all.select_nth_unstable_by(n - 1, by_logit);
    }
    all.truncate(n);
    all.sort_unstable_by(by_logit);
    all.into_iter().map(|c| (c.id, c.logit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn config(temperature: f32, top_k: usize, top_p: f32, min_p: f32) -> SamplerConfig {
        SamplerConfig {
            temperature,
            top_k,
            top_p,
            min_p,
            seed: 7,
        }
    }

    #[test]
    fn greedy_takes_the_first_of_equals_and_skips_nan() {
        let mut s = Sampler::new(SamplerConfig::GREEDY, 4);
        assert_eq!(s.sample(&[f32::NAN, 1.0, 3.0, 3.0]), 2);
        assert_eq!(s.sample(&[f32::NAN; 4]), 0);
    }

    #[test]
    fn the_same_seed_draws_the_same_tokens() {
        let logits: Vec<f32> = (0..50).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
        let mut s = Sampler::new(config(0.8, 40, 0.95, 0.05), 50);
        let a: Vec<u32> = (0..30).map(|_| s.sample(&logits)).collect();
        s.reset();
        let b: Vec<u32> = (0..30).map(|_| s.sample(&logits)).collect();
        assert_eq!(a, b);
        assert!(a.iter().any(|t| *t != a[0]));
    }

    #[test]
    fn draws_follow_the_distribution() {
        let logits = [0.0f32, 1.0, 2.0];
        let mut s = Sampler::new(config(1.0, 0, 1.0, 0.0), 3);
        let n = 20_000;
        let mut counts = [0f64; 3];
        for _ in 0..n {
            counts[s.sample(&logits) as usize] += 1.0;
        }
        let z = logsumexp(&logits);
        for (c, l) in counts.iter().zip(logits) {
            let p = (f64::from(l) - z).exp();
            assert!((c / f64::from(n) - p).abs() < 0.015, "{c} {p}");
        }
    }

    #[test]
    fn cuts_keep_what_they_say() {
        let p = [0.5f32, 0.3, 0.15, 0.05];
        let logits = p.map(f32::ln);
        let drawn = |c: SamplerConfig| {
            let mut s = Sampler::new(c, 4);
            let mut seen = [false; 4];
            for _ in 0..2000 {
                seen[s.sample(&logits) as usize] = true;
            }
            seen
        };
        assert_eq!(drawn(config(1.0, 2, 1.0, 0.0)), [true, true, false, false]);
        assert_eq!(drawn(config(1.0, 0, 0.79, 0.0)), [true, true, false, false]);
        assert_eq!(drawn(config(1.0, 0, 1.0, 0.2)), [true, true, true, false]);
        assert_eq!(drawn(config(1.0, 0, 0.0, 0.0)), [true, false, false, false]);
    }

    proptest! {
        #[test]
        fn any_logits_give_a_token_of_the_vocabulary(
            logits in prop::collection::vec(prop::num::f32::ANY, 1..200),
            t in 0f32..3.0, k in 0usize..50, p in 0f32..=1.0, m in 0f32..=1.0,
        ) {
            let mut s = Sampler::new(config(t, k, p, m), logits.len());
            let id = s.sample(&logits) as usize;
            prop_assert!(id < logits.len());
            let any_number = logits.iter().any(|l| *l > f32::NEG_INFINITY);
            prop_assert!(!any_number || !logits[id].is_nan());
        }

        /// Against the rules applied one after the other to probabilities that are computed anew for each.
        #[test]
        fn a_draw_follows_the_rules_in_their_order(
            logits in prop::collection::vec(-8f32..8.0, 1..120),
            t in 0.05f32..3.0, k in 0usize..60, p in 0f32..=1.0, m in 0f32..=1.0, seed in any::<u64>(),
        ) {
            let config = SamplerConfig { seed, ..config(t, k, p, m) };
            let mut left: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
            left.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            if k > 0 {
                left.truncate(k);
            }
            let best = left[0].1;
            let share = |l: f32, t: f32| (f64::from(l - best) / f64::from(t)).exp();
            let total: f64 = left.iter().map(|c| share(c.1, 1.0)).sum();
            let mut sum = 0.0;
            let mut keep = 0;
            while keep < left.len() && (keep == 0 || p >= 1.0 || sum < f64::from(p) * total) {
                sum += share(left[keep].1, 1.0);
                keep += 1;
            }
            left.truncate(keep);
            left.retain(|c| c.1 == best || share(c.1, 1.0) >= f64::from(m));
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut sampler = Sampler::new(config, logits.len());
            for _ in 0..10 {
                let mut rest = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
                    * left.iter().map(|c| share(c.1, t)).sum::<f64>();
                let drawn = left.iter().find(|c| {
                    rest -= share(c.1, t);
                    rest < 0.0
                });
                let want = drawn.or(left.last()).expect("one at least").0;
                prop_assert_eq!(sampler.sample(&logits), want);
            }
        }

        #[test]
        fn top_is_sorted_and_largest(logits in prop::collection::vec(-5f32..5.0, 1..100), n in 1usize..30) {
            let t = top(&logits, n);
            prop_assert_eq!(t.len(), n.min(logits.len()));
            prop_assert!(t.windows(2).all(|w| w[0].1 >= w[1].1));
            prop_assert_eq!(t[0].0, argmax(&logits));
        }
    }
}
