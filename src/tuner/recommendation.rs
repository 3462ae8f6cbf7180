//! What a recommendation says and what became of it, as plain data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something to change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Recommendation {
    /// Stable name of the rule, for example `threads`.
    pub id: String,
    /// What to do, for example `Use 2 threads instead of 1`.
    pub title: String,
    /// Why, with the figures that led to it.
    pub why: String,
    /// Expected rate after the change, tokens a second, with how it was estimated in `why`; `None` if it cannot be estimated.
    pub expected_tok_s: Option<f64>,
    /// Whether `a` can apply it in this session.
    pub applicable: bool,
    /// What became of it.
    pub status: RecommendationStatus,
}

/// What became of a recommendation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum RecommendationStatus {
    /// Not tried.
    Open,
    /// Being measured: `done` of `total` tokens.
    Measuring {
        /// Tokens measured.
        done: u32,
        /// Tokens to measure.
        total: u32,
    },
    /// Applied and measured.
    Applied {
        /// Median rate before, tokens a second.
        before_tok_s: f64,
        /// Median rate after, tokens a second.
        after_tok_s: f64,
        /// Spread of `after / before` (interquartile), as a share of the ratio.
        spread: f64,
        /// Whether the gain is larger than the spread.
        significant: bool,
    },
    /// Applied, measured, then undone.
    Undone {
        /// Median rate with the change, tokens a second.
        with_tok_s: f64,
        /// Median rate without it, tokens a second.
        without_tok_s: f64,
    },
}
