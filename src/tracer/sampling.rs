//! What the sampler makes of a distribution: what top-k, top-p and min-p each cut, and what temperature then does.

use super::figures::{SampledCandidate, SamplingCut, SamplingView};
use crate::engine::sampler::{Candidate, Cuts, SamplerConfig, candidates, sort, weight};
use crate::tokenizer::Tokenizer;
use crate::trace::answer;

/// Candidates that a view shows.
pub const SHOWN: usize = 10;

/// A row of logits as the sampler takes it: the same order, the same cuts, the same weights.
#[derive(Debug, Clone)]
pub struct Shaped {
    config: SamplerConfig,
    /// The most probable first.
    sorted: Vec<Candidate>,
    cuts: Cuts,
    /// Sum of all weights at temperature 1.
    total: f64,
    /// Sum of the weights of those that are drawn from, at the sampler's temperature.
    drawn_total: f64,
}

impl Shaped {
    /// Of a row, `[n_vocab]`; what is not a number is no candidate.
    pub fn new(config: &SamplerConfig, logits: &[f32]) -> Self {
        let mut sorted: Vec<Candidate> = candidates(logits).collect();
        sort(&mut sorted);
        let cuts = if config.is_greedy() {
            let one = sorted.len().min(1);
            Cuts {
                top_k: one,
                top_p: one,
                min_p: one,
            }
        } else {
            config.cuts(&sorted)
        };
        let mut shaped = Self {
            config: *config,
            cuts,
            total: 0.0,
            drawn_total: 0.0,
            sorted,
        };
        shaped.total = shaped.mass(0, shaped.sorted.len());
        let kept = 0..cuts.min_p;
        shaped.drawn_total = kept.map(|i| shaped.drawn_weight(i)).sum();
        shaped
    }

    /// All candidates, the most probable first.
    pub fn sorted(&self) -> &[Candidate] {
        &self.sorted
    }

    /// How many of them each cut leaves.
    pub fn cuts(&self) -> Cuts {
        self.cuts
    }

    fn best(&self) -> f32 {
        self.sorted.first().map_or(f32::NAN, |c| c.logit)
    }

    /// Weights at temperature 1 of candidates `from..to`, the largest being 1.
    fn mass(&self, from: usize, to: usize) -> f64 {
        let best = self.best();
        let part = self.sorted.get(from..to).unwrap_or(&[]).iter();
        part.map(|c| weight(c.logit, best, 1.0)).sum()
    }

    fn drawn_weight(&self, i: usize) -> f64 {
        match self.sorted.get(i) {
            Some(_) if self.config.is_greedy() => 1.0,
            Some(c) => weight(c.logit, self.best(), self.config.temperature),
            None => 0.0,
        }
    }

    /// Probability of candidate `i` by the model.
    pub fn model_prob(&self, i: usize) -> f64 {
        let weight = |c: &Candidate| weight(c.logit, self.best(), 1.0) / self.total;
        self.sorted.get(i).map_or(0.0, weight)
    }

    /// Probability that candidate `i` is drawn; 0 for one that was cut.
    pub fn drawn_prob(&self, i: usize) -> f64 {
        if i < self.cuts.min_p {
            self.drawn_weight(i) / self.drawn_total
        } else {
            0.0
        }
    }

    /// The cuts in their order: name, setting, candidates before and behind.
    fn steps(&self) -> Vec<(&'static str, String, usize, usize)> {
        let (n, c, cuts) = (self.sorted.len(), &self.config, self.cuts);
        if c.is_greedy() {
            return vec![("temperature", "0".into(), n, cuts.min_p)];
        }
        let setting = |on: bool, value: String| if on { value } else { "off".into() };
        vec![
            (
                "top-k",
                setting(c.top_k > 0, c.top_k.to_string()),
                n,
                cuts.top_k,
            ),
            (
                "top-p",
                setting(c.top_p < 1.0, c.top_p.to_string()),
                cuts.top_k,
                cuts.top_p,
            ),
            (
                "min-p",
                setting(c.min_p > 0.0, c.min_p.to_string()),
                cuts.top_p,
                cuts.min_p,
            ),
            // It weighs what is left and cuts nothing.
            (
                "temperature",
                c.temperature.to_string(),
                cuts.min_p,
                cuts.min_p,
            ),
        ]
    }

    /// All of it, with the texts of tokens.
    pub fn view(&self, tokenizer: &Tokenizer) -> SamplingView {
        let steps = self.steps();
        let text = |i: usize| {
            let candidate = self.sorted.get(i)?;
            Some(answer::text(tokenizer, candidate.id))
        };
        let cuts = steps.iter().map(|(name, setting, before, behind)| {
            let cut = before - behind;
            let mass = self.mass(0, *before);
            SamplingCut {
                name: (*name).into(),
                setting: setting.clone(),
                left: *behind as u32,
                cut: cut as u32,
                cut_mass: match cut {
                    0 => 0.0,
                    _ => self.mass(*behind, *before) / mass,
                },
                first_cut: (cut > 0).then(|| text(*behind)).flatten(),
            }
        });
        let cut_by = |i: usize| {
            let by = steps.iter().find(|s| i >= s.3);
            by.map(|s| s.0.to_owned())
        };
        let shown = (0..self.sorted.len().min(SHOWN)).filter_map(|i| {
            Some(SampledCandidate {
                token: text(i)?,
                model_prob: self.model_prob(i),
                drawn_prob: self.drawn_prob(i),
                cut_by: cut_by(i),
            })
        });
        SamplingView {
            sampler: self.config.to_string(),
            cuts: cuts.collect(),
            candidates: shown.collect(),
            model_entropy: entropy((0..self.sorted.len()).map(|i| self.model_prob(i))),
            drawn_entropy: entropy((0..self.cuts.min_p).map(|i| self.drawn_prob(i))),
        }
    }
}

/// Entropy of probabilities, nats.
fn entropy(probs: impl Iterator<Item = f64>) -> f64 {
    let terms = probs.filter(|p| *p > 0.0).map(|p| -p * p.ln());
    // A single certain one gives minus zero, and so do none.
    terms.sum::<f64>() + 0.0
}

#[cfg(test)]
#[path = "sampling_tests.rs"]
mod tests;
