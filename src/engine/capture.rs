//! The residual stream as it is written: which vectors of a step are kept, and who gets them.

/// Which tokens of a step are captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The last one.
    Last,
    /// All of them.
    All,
}

/// What is captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capture {
    /// Of which tokens.
    pub which: Which,
    /// The outputs of attention heads too.
    pub heads: bool,
    /// The inputs of the rank-one changes of feed-forward blocks too.
    pub keys: bool,
}

impl Capture {
    /// The stream of the last token.
    pub const LAST: Self = Self {
        which: Which::Last,
        heads: false,
        keys: false,
    };
    /// The stream of all tokens.
    pub const ALL: Self = Self {
        which: Which::All,
        ..Self::LAST
    };
}

/// What a vector is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// The stream after the layer, `[n_embd]`.
    Residual,
    /// What attention added, `[n_embd]`, post-norm and scale included.
    AttnDelta,
    /// What was added after attention, `[n_embd]`, post-norm and scale included.
    FfnDelta,
    /// Outputs of all query heads before the projection, `[n_head * head_dim_v]`; only of layers from 1 on.
    Heads,
    /// What the key of a rank-one change is multiplied with; only of layers from 1 on.
    Key,
}

/// One captured vector.
#[derive(Debug, Clone, Copy)]
pub struct Captured<'a> {
    /// 0 is the embedding, 1 the first layer.
    pub layer: usize,
    /// What it is.
    pub part: Part,
    /// Position of its token in the sequence.
    pub position: usize,
    /// Its values. `residual[L] == (residual[L-1] + attn_delta[L]) + ffn_delta[L]`, bit for bit, unless an edit replaced
    /// the residual; both deltas of layer 0 are zero.
    pub data: &'a [f32],
}
