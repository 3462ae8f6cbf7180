//! What a row of logits says: candidates, rank, probability, entropy, divergence.

/// Softmax of a row, kept as what every figure is computed from. All sums in f64.
#[derive(Debug, Clone)]
pub struct Distribution {
    logits: Vec<f32>,
    log_sum_exp: f64,
}

/// Where one token stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standing {
    /// 1 + number of tokens with a strictly larger probability.
    pub rank: u32,
    /// Probability.
    pub prob: f64,
    /// Logit.
    pub logit: f64,
}

impl Distribution {
    /// Of a row, `[n_vocab]`.
    pub fn new(logits: &[f32]) -> Self {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let top = f64::from(max);
        let sum: f64 = logits.iter().map(|l| (f64::from(*l) - top).exp()).sum();
        Self {
            logits: logits.to_vec(),
            log_sum_exp: top + sum.ln(),
        }
    }

    /// The row.
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// Whether it is one: logits may be no numbers.
    pub fn is_valid(&self) -> bool {
        self.log_sum_exp.is_finite()
    }

    /// Probability of a token; 0 outside the vocabulary.
    pub fn prob(&self, id: u32) -> f64 {
        self.logits
            .get(id as usize)
            .map_or(0.0, |l| (f64::from(*l) - self.log_sum_exp).exp())
    }

    /// Rank, probability and logit of a token.
    pub fn standing(&self, id: u32) -> Standing {
        let logit = self.logits.get(id as usize).copied().unwrap_or(f32::NAN);
        Standing {
            rank: rank(&self.logits, id),
            prob: self.prob(id),
            logit: logit.into(),
        }
    }

    /// The `k` most probable tokens, the most probable first; of equals the one with the lower id.
    pub fn top(&self, k: usize) -> Vec<(u32, f64)> {
        let logit = |id: &u32| self.logits.get(*id as usize).copied().unwrap_or(f32::NAN);
        let ids = 0..self.logits.len() as u32;
        // What is not a number is no candidate.
        let mut order: Vec<u32> = ids.filter(|id| !logit(id).is_nan()).collect();
        let by = |a: &u32, b: &u32| logit(b).total_cmp(&logit(a)).then(a.cmp(b));
        let k = k.min(order.len());
        if k == 0 {
            return Vec::new();
        }
        if k < order.len() {
            order.select_nth_unstable_by(k - 1, by);
            order.truncate(k);
        }
        order.sort_unstable_by(by);
        order.into_iter().map(|id| (id, self.prob(id))).collect()
    }

    /// Entropy, nats.
    pub fn entropy(&self) -> f64 {
        let weigh = |l: &f32| {
            let log_p = f64::from(*l) - self.log_sum_exp;
            term(log_p, -log_p)
        };
        self.logits.iter().map(weigh).sum()
    }

    /// Kullback-Leibler divergence from this distribution to `other`, nats: what it costs to take `other` for this one.
    pub fn kl(&self, other: &Self) -> f64 {
        let pairs = self.logits.iter().zip(&other.logits);
        let sum: f64 = pairs
            .map(|(p, q)| {
                let log_p = f64::from(*p) - self.log_sum_exp;
                let log_q = f64::from(*q) - other.log_sum_exp;
                term(log_p, log_p - log_q)
            })
            .sum();
        // Rounding of equal ones may leave less than nothing.
        if sum < 0.0 { 0.0 } else { sum }
    }
}

/// 1 + the number of tokens with a strictly larger logit. Nothing is larger than what is not a number, which is no reason to
/// put it first: it is last.
pub fn rank(logits: &[f32], id: u32) -> u32 {
    let logit = logits.get(id as usize).copied().unwrap_or(f32::NAN);
    if logit.is_nan() {
        return logits.len().max(1) as u32;
    }
    // Counted in 32 bits: as many in a vector as logits.
    1 + logits.iter().map(|l| u32::from(*l > logit)).sum::<u32>()
}

/// `exp(log_p) * x`, nothing where there is no probability.
fn term(log_p: f64, x: f64) -> f64 {
    if log_p == f64::NEG_INFINITY {
        0.0
    } else {
        log_p.exp() * x
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_not_a_number_is_shown_as_such_and_last() {
        let d = Distribution::new(&[1.0, f32::NAN, 2.0]);
        assert!(d.prob(0).is_nan());
        assert_eq!(d.standing(1).rank, 3);
        assert!(!d.is_valid());
        assert_eq!(d.top(3).iter().map(|t| t.0).collect::<Vec<_>>(), [2, 0]);
        assert_eq!(Distribution::new(&[]).top(3), []);
    }

    proptest! {
        #[test]
        fn figures_agree_with_their_definitions(
            a in prop::collection::vec(-30f32..30.0, 2..40),
            shift in -50f32..50.0,
        ) {
            let b: Vec<f32> = a.iter().rev().map(|l| l * 0.5).collect();
            let (p, q) = (Distribution::new(&a), Distribution::new(&b));
            let probs: Vec<f64> = (0..a.len() as u32).map(|i| p.prob(i)).collect();
            prop_assert!((probs.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            let top = p.top(a.len());
            prop_assert!(top.windows(2).all(|w| w[0].1 >= w[1].1));
            for (i, prob) in probs.iter().enumerate() {
                let above = probs.iter().filter(|o| *o > prob).count();
                prop_assert_eq!(p.standing(i as u32).rank as usize, 1 + above);
            }
            let entropy: f64 = probs.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum();
            prop_assert!((p.entropy() - entropy).abs() < 1e-9);
            prop_assert!(p.entropy() <= (a.len() as f64).ln() + 1e-9);
            prop_assert!(p.kl(&q) >= 0.0 && p.kl(&p) < 1e-12);
            let moved: Vec<f32> = a.iter().map(|l| l + shift).collect();
            prop_assert!(p.kl(&Distribution::new(&moved)) < 1e-5);
        }
    }
}
