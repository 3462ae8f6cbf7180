//! The forward pass as data: a list of bricks. A new architecture is a new list, not a new forward pass.

use super::arch::{Act, Routing};
use super::brick::BrickId;
use super::rope::ContextRope;
use super::weights::{Matrix, Vector};
use std::sync::Arc;

/// Elements of a block of int8 activations.
pub const Q8_BLOCK: usize = 32;

macro_rules! bufs {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A buffer of activations, one column a token, or of those whose comment says so one a pair of token and expert.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Buf { $($(#[$doc])* $name,)* }

        impl Buf {
            /// Every buffer.
            pub const ALL: &'static [Buf] = &[$(Buf::$name,)*];
        }
    };
}

bufs! {
    /// Residual stream, `n_embd`.
    X,
    /// Input of a block, `n_embd`.
    Normed,
    /// Input of a feed-forward block that stands beside attention and has a norm of its own, `n_embd`.
    FfnNormed,
    /// Queries.
    Q,
    /// Keys.
    K,
    /// Values.
    V,
    /// Attention output before its projection.
    Heads,
    /// Output of a block, `n_embd`.
    Out,
    /// Output of a block after its post-norm, `n_embd`.
    PostNormed,
    /// Gate projection, `n_ff`.
    Gate,
    /// Up projection, `n_ff`.
    Up,
    /// Activation of the feed-forward block, `n_ff`.
    Act,
    /// Logits of experts.
    Router,
    /// Inputs in the order of their experts, `n_embd`; a column a pair.
    ExpertIn,
    /// Gate projection of experts; a column a pair.
    ExpertGate,
    /// Up projection of experts; a column a pair.
    ExpertUp,
    /// Activation of experts; a column a pair.
    ExpertAct,
    /// Output of experts, `n_embd`; a column a pair.
    ExpertOut,
    /// Logits; only of the tokens whose logits are wanted.
    Logits,
}

impl Buf {
    /// Whether it has a column for each pair of token and expert.
    pub fn is_paired(self) -> bool {
        use Buf::{ExpertAct, ExpertGate, ExpertIn, ExpertOut, ExpertUp};
        matches!(
            self,
            ExpertIn | ExpertGate | ExpertUp | ExpertAct | ExpertOut
        )
    }
}

/// How the output of experts that every token is sent to takes part.
#[derive(Debug, Clone)]
pub enum SharedExpert {
    /// There is none.
    None,
    /// It is added.
    Added,
    /// It is multiplied by the sigmoid of its input's product with this vector, and added (Qwen2 MoE).
    Gated(Vector),
}

/// What a brick computes.
#[derive(Debug, Clone)]
pub enum Op {
    /// `X = table[token] * scale`, plus the row of the position where positions are learned.
    Embed {
        /// Token embeddings, `n_vocab` x `n_embd`.
        table: Matrix,
        /// Multiplier.
        scale: f32,
        /// Position embeddings, `n_ctx` x `n_embd`.
        positions: Option<Matrix>,
    },
    /// A norm: with a bias LayerNorm, <https://arxiv.org/abs/1607.06450>; without RMS norm,
    /// <https://arxiv.org/abs/1910.07467>.
    Norm {
        /// Input.
        src: Buf,
        /// Output.
        dst: Buf,
        /// Weight, as long as a column.
        weight: Vector,
        /// Bias of a LayerNorm, as long as a column; zeros where the file has none.
        bias: Option<Vector>,
    },
    /// `dst = src`: the input of a block without a norm, in the form that its mat-muls want.
    Copy {
        /// Input.
        src: Buf,
        /// Output.
        dst: Buf,
    },
    /// `dst = w src + bias`.
    MatMul {
        /// Weights.
        w: Matrix,
        /// Bias of the rows.
        bias: Option<Vector>,
        /// Input.
        src: Buf,
        /// Output.
        dst: Buf,
    },
    /// RMS norm of queries and keys: of every head where the weights are as long as a head, else of all heads of a token
    /// together.
    QkNorm {
        /// Weight of queries.
        q: Vector,
        /// Weight of keys.
        k: Vector,
    },
    /// Rotary embedding of queries and keys, with table `Plan::ropes[table]`.
    Rope {
        /// Index into [`Plan::ropes`].
        table: usize,
    },
    /// Appends keys and values to the cache.
    KvWrite,
    /// Scores, softmax, weighted sum of values into [`Buf::Heads`].
    Attend {
        /// Visible tokens, own position included; `None`: all.
        window: Option<usize>,
        /// A logit for every head that takes part in the softmax and adds nothing.
        sinks: Option<Vector>,
    },
    /// The int8 form of [`Buf::Heads`], where heads are not whole blocks of it and so cannot write it themselves.
    QuantiseHeads,
    /// `dst = act(gate) * up`, or `act(gate)` without an up projection.
    Activate {
        /// Activation.
        act: Act,
        /// What is activated.
        gate: Buf,
        /// What it is multiplied with.
        up: Option<Buf>,
        /// Output.
        dst: Buf,
        /// Elements of a column.
        n: usize,
    },
    /// Chooses the experts of every token by [`Buf::Router`] and orders the pairs of token and expert by expert.
    Route {
        /// How.
        routing: Routing,
        /// Added to what experts are chosen by, not to their weights.
        bias: Option<Vector>,
        /// Multiplier of the weights.
        scale: f32,
    },
    /// [`Buf::ExpertIn`] of every pair is `src` of its token.
    Dispatch {
        /// Input.
        src: Buf,
    },
    /// `dst = w[expert] src + bias[expert]` for every pair.
    ExpertMatMul {
        /// Weights of every expert; equal shapes.
        w: Arc<[Matrix]>,
        /// Biases of all experts, one after the other.
        bias: Option<Vector>,
        /// Input.
        src: Buf,
        /// Output.
        dst: Buf,
    },
    /// `Out` = the shared expert's part (already in `Out`) + the sum of [`Buf::ExpertOut`] by the experts' weights.
    Combine {
        /// How the shared expert takes part.
        shared: SharedExpert,
        /// Input of the block.
        src: Buf,
    },
    /// `X += src * scale`.
    Residual {
        /// What is added.
        src: Buf,
        /// Multiplier.
        scale: f32,
    },
}

/// One call in the engine, one row in the dashboard.
#[derive(Debug, Clone)]
pub struct Brick {
    /// Its name.
    pub id: BrickId,
    /// Its layer; `None` outside layers.
    pub layer: Option<usize>,
    /// What it computes.
    pub op: Op,
    /// Whether the next brick reads what this one wrote across threads.
    pub barrier: bool,
}

/// The bricks of a forward pass.
#[derive(Debug, Clone)]
pub struct Plan {
    /// In the order they run: embedding, layers, head.
    pub bricks: Vec<Brick>,
    /// Rotary tables that [`Op::Rope`] refers to.
    pub ropes: Vec<ContextRope>,
    /// Elements of a column of every buffer, by its place in [`Buf::ALL`]; 0 where no brick uses it.
    pub dims: [usize; Buf::ALL.len()],
    /// Index of the first brick of every layer, and at the end that of the head.
    pub layer_starts: Vec<usize>,
}

impl Plan {
    /// Elements of a column of a buffer; 0 where no brick uses it.
    pub fn dim(&self, buf: Buf) -> usize {
        self.dims[buf as usize]
    }

    /// Every matrix that [`Op::MatMul`] and [`Op::ExpertMatMul`] multiply with, and its input.
    pub fn matrices(&self) -> impl Iterator<Item = (&Matrix, Buf)> {
        self.bricks.iter().flat_map(|b| {
            let (w, src) = match &b.op {
                Op::MatMul { w, src, .. } => (std::slice::from_ref(w), *src),
                Op::ExpertMatMul { w, src, .. } => (&w[..], *src),
                _ => (&[][..], Buf::X),
            };
            w.iter().map(move |w| (w, src))
        })
    }
}
