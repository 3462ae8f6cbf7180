//! The names of the bricks: one brick is one call in the engine, one row in the dashboard.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a brick's time is spent on, for grouping rows (attention and MLP mat-muls apart).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Norms and residual additions.
    Norm,
    /// Everything of the attention block, its projections included.
    Attention,
    /// Everything of the feed-forward block.
    Ffn,
    /// Embedding, output head and sampling.
    Head,
    /// Waiting at barriers, and time no brick accounts for.
    Overhead,
}

impl Category {
    /// Short name for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Norm => "norm",
            Self::Attention => "attention",
            Self::Ffn => "ffn",
            Self::Head => "head",
            Self::Overhead => "overhead",
        }
    }
}

macro_rules! bricks {
    ($($(#[$doc:meta])* $variant:ident, $name:literal, $cat:ident;)*) => {
        /// A brick of the forward pass. The discriminant indexes statistics arrays.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        #[repr(u8)]
        pub enum BrickId { $($(#[$doc])* $variant,)* }

        impl BrickId {
            /// All bricks, in the order they run.
            pub const ALL: &'static [BrickId] = &[$(BrickId::$variant,)*];
            /// Number of bricks.
            pub const COUNT: usize = Self::ALL.len();

            /// Name as in dashboards and reports.
            pub fn name(self) -> &'static str { match self { $(Self::$variant => $name,)* } }

            /// The block the brick belongs to.
            pub fn category(self) -> Category { match self { $(Self::$variant => Category::$cat,)* } }
        }
    };
}

bricks! {
    /// Token embedding look-up.
    Embed, "Embed", Head;
    /// Norm before attention, with quantisation of its output.
    AttnNorm, "AttnNorm", Norm;
    /// Query projection.
    QProj, "QProj", Attention;
    /// Key projection.
    KProj, "KProj", Attention;
    /// Value projection.
    VProj, "VProj", Attention;
    /// Per-head norm of queries and keys.
    QkNorm, "QkNorm", Attention;
    /// Rotary position embedding of queries and keys.
    Rope, "Rope", Attention;
    /// Writing keys and values to the cache.
    KvWrite, "KvWrite", Attention;
    /// Scores, softmax and weighted sum of values.
    Attention, "Attention", Attention;
    /// Part of attention: queries times keys. Timed inside its brick, never a call of its own.
    AttentionScore, "score", Attention;
    /// Part of attention: softmax of the scores.
    AttentionSoftmax, "softmax", Attention;
    /// Part of attention: weighted sum of values.
    AttentionOutput, "weigh values", Attention;
    /// Attention output projection.
    OProj, "OProj", Attention;
    /// Norm after attention (Gemma 2 and 3, OLMo 2).
    AttnPostNorm, "AttnPostNorm", Norm;
    /// Adding the attention output to the residual stream.
    AttnResidual, "AttnResidual", Norm;
    /// Norm before the feed-forward block, with quantisation of its output.
    FfnNorm, "FfnNorm", Norm;
    /// Gate projection.
    GateProj, "GateProj", Ffn;
    /// Up projection.
    UpProj, "UpProj", Ffn;
    /// Gating activation (SwiGLU, GEGLU).
    Activation, "Activation", Ffn;
    /// Down projection.
    DownProj, "DownProj", Ffn;
    /// Logits of the experts.
    Router, "Router", Ffn;
    /// Choice of experts, and ordering of tokens by expert.
    Route, "Route", Ffn;
    /// Copying tokens to their experts, with quantisation.
    Dispatch, "Dispatch", Ffn;
    /// Gate projection of the experts.
    ExpertGate, "ExpertGate", Ffn;
    /// Up projection of the experts.
    ExpertUp, "ExpertUp", Ffn;
    /// Gating activation of the experts.
    ExpertAct, "ExpertAct", Ffn;
    /// Down projection of the experts.
    ExpertDown, "ExpertDown", Ffn;
    /// Weighted sum of what a token's experts give.
    Combine, "Combine", Ffn;
    /// Norm after the feed-forward block.
    FfnPostNorm, "FfnPostNorm", Norm;
    /// Adding the feed-forward output to the residual stream.
    FfnResidual, "FfnResidual", Norm;
    /// Norm before the output head.
    FinalNorm, "FinalNorm", Norm;
    /// Output projection to the vocabulary.
    LmHead, "LmHead", Head;
    /// Choosing the next token.
    Sample, "Sample", Head;
    /// From the begin of a step to its first brick: waking the other threads.
    Launch, "launch", Overhead;
    /// From the last brick of the plan to sampling: the other threads come to their end.
    Join, "join", Overhead;
    /// Waiting for other threads at barriers.
    Sync, "sync", Overhead;
    /// Time of a step that no brick accounts for.
    Unattributed, "unattributed", Overhead;
}
