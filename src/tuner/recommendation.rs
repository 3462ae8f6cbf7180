//! What the tuner says and what became of it, as plain data.

use crate::engine::knobs::Setting;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A rate with the interval that holds it nine times out of ten, tokens a second.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Expected.
    pub mid: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// All of it times a factor above 0.
    pub fn times(self, factor: f64) -> Self {
        Self {
            low: self.low * factor,
            mid: self.mid * factor,
            high: self.high * factor,
        }
    }
}

/// Something to change.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Recommendation {
    /// Stable name of the rule, for example `threads`, or of the knob and its value.
    pub id: String,
    /// What to do, for example `Use 2 threads instead of 1`.
    pub title: String,
    /// Why, with the figures that led to it.
    pub why: String,
    /// Expected ratio of the rates with the change and without it, with its interval: of generation, or of reading the prompt
    /// where `of_prompts`. `None` if it cannot be estimated.
    #[serde(default)]
    pub gain: Option<Interval>,
    /// Whether it shows in reading prompts alone: what is measured of it are tokens of the prompt.
    #[serde(default)]
    pub of_prompts: bool,
    /// Expected rate of generation after the change, tokens a second: `gain` times the rate now; `None` if it cannot be
    /// estimated.
    pub expected_tok_s: Option<f64>,
    /// The same with its interval.
    #[serde(default)]
    pub expected: Option<Interval>,
    /// What the estimate rests on: runs of the store, past measurements of this change, the roofline; empty for a rule
    /// whose `why` says it all.
    #[serde(default)]
    pub evidence: String,
    /// What may become worse; empty where nothing.
    #[serde(default)]
    pub risk: String,
    /// The exact change: knobs and their new values.
    #[serde(default)]
    pub change: Vec<Setting>,
    /// The values these knobs have now, in the same order.
    #[serde(default)]
    pub now: Vec<Setting>,
    /// Whether `a` can apply it in this session.
    pub applicable: bool,
    /// Why trying all leaves it alone; `None` where it does not.
    #[serde(default)]
    pub left_alone: Option<String>,
    /// What became of it.
    pub status: RecommendationStatus,
}

impl Recommendation {
    /// Sets the rate to expect at a rate of `now`, where the gain is known and is one of generation.
    pub fn expect(&mut self, now: Option<f64>) {
        let Some((gain, now)) = self.gain.zip(now).filter(|_| !self.of_prompts) else {
            return;
        };
        self.expected = Some(gain.times(now));
        self.expected_tok_s = Some(gain.mid * now);
    }

    /// Whether trying all tries it.
    pub fn is_for_all(&self) -> bool {
        self.applicable && self.status == RecommendationStatus::Open && self.left_alone.is_none()
    }

    /// Expected ratio of rates at a rate of `now`; older recordings tell the rate alone.
    pub fn ratio(&self, now: Option<f64>) -> Option<f64> {
        let rate = self.expected.map(|i| i.mid).or(self.expected_tok_s);
        let of_rate = || Some(rate? / now.filter(|n| *n > 0.0)?);
        self.gain.map(|g| g.mid).or_else(of_rate)
    }

    /// What it is worth, to rank by: the expected ratio, that of prompts by half for they are a part of a session's time
    /// only; what is not known is behind what promises something.
    pub fn worth(&self, now: Option<f64>) -> f64 {
        let weight = if self.of_prompts { 0.5 } else { 1.0 };
        let ratio = self.ratio(now).filter(|r| r.is_finite());
        ratio.map_or(1.0, |r| 1.0 + (r - 1.0) * weight)
    }
}

/// What became of a recommendation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum RecommendationStatus {
    /// Not tried.
    #[default]
    Open,
    /// Being measured: `done` of `total` tokens, or prompts.
    Measuring {
        /// Tokens measured.
        done: u32,
        /// Tokens to measure.
        total: u32,
    },
    /// Applied, measured and kept.
    Applied {
        /// Median rate before, tokens a second.
        before_tok_s: f64,
        /// Median rate after, tokens a second.
        after_tok_s: f64,
        /// From the ratio `after / before` to that end of its 95% confidence interval which is nearer to 1, as a share of the
        /// ratio.
        spread: f64,
        /// Whether the interval leaves out 1.
        significant: bool,
    },
    /// Applied, measured and taken back by itself: it brought nothing, or made it slower.
    Reverted {
        /// Median rate before, tokens a second.
        before_tok_s: f64,
        /// Median rate with the change, tokens a second.
        after_tok_s: f64,
        /// As in `Applied`.
        spread: f64,
        /// Whether the interval leaves out 1: the change made it slower.
        significant: bool,
    },
    /// Applied, measured, then undone by the user.
    Undone {
        /// Median rate with the change, tokens a second.
        with_tok_s: f64,
        /// Median rate without it, tokens a second.
        without_tok_s: f64,
    },
}

/// What the models say of the moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TunerFrame {
    /// Version of the model, what it learned from and when: `3, 5,120 runs of 68 machines, 2026-11-30`; `none` with the
    /// roofline alone.
    pub model: String,
    /// What predicts: `gradient boosting`, `k nearest runs`, `roofline`.
    pub method: String,
    /// Rate measured in this session, tokens a second.
    pub current_tok_s: Option<f64>,
    /// Rate predicted for the configuration in force.
    pub predicted: Option<Interval>,
    /// Rate to expect with the most promising change of every knob that trying all would try, as if they were independent.
    pub with_changes: Option<Interval>,
    /// What limits a token, by the classifier.
    pub bottleneck: Option<BottleneckFrame>,
    /// What limits it as measured: the class with most of the time under the probed roof.
    #[serde(default)]
    pub limit: Option<LimitFrame>,
    /// Kernel variants by the forest's votes, the best first, shares that sum to 1.
    pub kernels: Vec<(String, f64)>,
    /// Why the predictions are to be doubted: a machine or model unlike all that was learned from, figures that drift away
    /// from what was predicted.
    pub warnings: Vec<String>,
    /// The bandit over kernel variants; `None` while it is off.
    pub bandit: Option<BanditFrame>,
    /// Trying all suggestions one by one; `None` while that is not being done.
    pub race: Option<RaceFrame>,
    /// One sentence: what the open suggestions promise, or that nothing will help.
    #[serde(default)]
    pub says: String,
}

/// What limits a token, by the classifier.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct BottleneckFrame {
    /// `memory`, `compute`, `launch` or `attention`.
    pub class: String,
    /// Its probability, 0 to 1.
    pub confidence: f64,
    /// The features that speak most for it, in words.
    pub why: String,
}

/// What limits a token, as measured.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct LimitFrame {
    /// As in [`BottleneckFrame`].
    pub class: String,
    /// Its share of the time of a token, 0 to 1.
    pub share: f64,
}

/// The bandit over kernel variants.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct BanditFrame {
    /// Variants with the tokens each ran and its mean rate, tokens a second.
    pub arms: Vec<BanditArm>,
    /// The variant in use.
    pub current: String,
    /// Time lost by exploring, as a share of the time of the tokens.
    pub regret_share: f64,
    /// The bound it keeps, as a share.
    pub bound: f64,
}

/// One variant of the bandit.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct BanditArm {
    /// Name.
    pub name: String,
    /// Tokens it ran.
    pub tokens: u64,
    /// Mean rate, tokens a second; `None` before its first.
    pub tok_s: Option<f64>,
}

/// Trying all suggestions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct RaceFrame {
    /// Suggestions tried.
    pub done: u32,
    /// Suggestions to try.
    pub total: u32,
    /// Of those tried, kept.
    pub kept: u32,
}
