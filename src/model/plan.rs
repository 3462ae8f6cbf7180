//! The forward pass as data: a list of bricks. A new architecture is a new list, not a new forward pass.

use super::ModelError;
use super::brick::BrickId;
use super::hparams::{Arch, GateAct, Hparams, RopeScaling};
use super::rope::RopeTable;
use super::weights::{Matrix, Vector, Weights};
use crate::gguf::Gguf;

/// Elements of a block of int8 activations.
pub const Q8_BLOCK: usize = 32;

/// A buffer of activations, one column a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Buf {
    /// Residual stream, `n_embd`.
    X,
    /// Normed input of a block, `n_embd`.
    Normed,
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
    /// Gated activation, `n_ff`.
    Act,
    /// Logits, `n_vocab`; only of the tokens whose logits are wanted.
    Logits,
}

/// What a brick computes.
#[derive(Debug, Clone)]
pub enum Op {
    /// `X = table[token] * scale`.
    Embed {
        /// Token embeddings, `n_vocab` x `n_embd`.
        table: Matrix,
        /// Multiplier.
        scale: f32,
    },
    /// RMS norm, <https://arxiv.org/abs/1910.07467>.
    Norm {
        /// Input.
        src: Buf,
        /// Output.
        dst: Buf,
        /// Weight, as long as a column.
        weight: Vector,
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
    /// RMS norm of every query and key head.
    QkNorm {
        /// Weight of query heads, `head_dim_k`.
        q: Vector,
        /// Weight of key heads, `head_dim_k`.
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
    },
    /// The int8 form of [`Buf::Heads`], where heads are not whole blocks of it and so cannot write it themselves.
    QuantiseHeads,
    /// `Act = act(Gate) * Up`.
    Gate {
        /// Activation.
        act: GateAct,
    },
    /// `X += src`.
    Residual {
        /// What is added.
        src: Buf,
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
    pub ropes: Vec<RopeTable>,
    /// Index of the first brick of every layer, and at the end that of the head.
    pub layer_starts: Vec<usize>,
}

struct Builder<'a> {
    w: Weights<'a>,
    hp: &'a Hparams,
    bricks: Vec<Brick>,
    layer: Option<usize>,
}

impl Builder<'_> {
    fn push(&mut self, id: BrickId, op: Op, barrier: bool) {
        self.bricks.push(Brick {
            id,
            layer: self.layer,
            op,
            barrier,
        });
    }

    fn name(&self, tensor: &str) -> String {
        match self.layer {
            Some(l) => format!("blk.{l}.{tensor}"),
            None => tensor.into(),
        }
    }

    /// Norms and residual additions split the work by token in the same way: no thread waits between them, only before
    /// a mat-mul reads what a norm into [`Buf::Normed`] wrote.
    fn norm(&mut self, id: BrickId, tensor: &str, src: Buf, dst: Buf) -> Result<(), ModelError> {
        let weight = self
            .w
            .vector(&self.name(&format!("{tensor}.weight")), self.hp.n_embd)?;
        self.push(id, Op::Norm { src, dst, weight }, dst == Buf::Normed);
        Ok(())
    }

    fn matmul(
        &mut self,
        id: BrickId,
        tensor: &str,
        (src, k): (Buf, usize),
        (dst, rows): (Buf, usize),
        barrier: bool,
    ) -> Result<(), ModelError> {
        let w = self
            .w
            .matrix(&self.name(&format!("{tensor}.weight")), k, Some(rows))?;
        let bias = self
            .w
            .optional_vector(&self.name(&format!("{tensor}.bias")), rows)?;
        self.push(id, Op::MatMul { w, bias, src, dst }, barrier);
        Ok(())
    }

    /// The norm behind a block, where the architecture has one; returns where the block's output then is.
    fn post_norm(&mut self, id: BrickId, tensor: &str) -> Result<Buf, ModelError> {
        if !matches!(self.hp.arch, Arch::Gemma2 | Arch::Gemma3) {
            return Ok(Buf::Out);
        }
        self.norm(id, tensor, Buf::Out, Buf::PostNormed)?;
        Ok(Buf::PostNormed)
    }

    fn attention(&mut self, layer: usize, rope: usize) -> Result<(), ModelError> {
        let hp = self.hp;
        self.norm(BrickId::AttnNorm, "attn_norm", Buf::X, Buf::Normed)?;
        let input = (Buf::Normed, hp.n_embd);
        self.matmul(BrickId::QProj, "attn_q", input, (Buf::Q, hp.q_dim()), false)?;
        self.matmul(BrickId::KProj, "attn_k", input, (Buf::K, hp.k_dim()), false)?;
        self.matmul(BrickId::VProj, "attn_v", input, (Buf::V, hp.v_dim()), true)?;
        if matches!(hp.arch, Arch::Qwen3 | Arch::Gemma3) {
            let q = self
                .w
                .vector(&self.name("attn_q_norm.weight"), hp.head_dim_k)?;
            let k = self
                .w
                .vector(&self.name("attn_k_norm.weight"), hp.head_dim_k)?;
            self.push(BrickId::QkNorm, Op::QkNorm { q, k }, false);
        }
        // Norm, rotation and cache write split the work by head in the same way, so no thread waits between them.
        self.push(BrickId::Rope, Op::Rope { table: rope }, false);
        self.push(BrickId::KvWrite, Op::KvWrite, true);
        self.push(
            BrickId::Attention,
            Op::Attend {
                window: hp.layer_window(layer),
            },
            true,
        );
        if !hp.head_dim_v.is_multiple_of(Q8_BLOCK) {
            self.push(BrickId::Attention, Op::QuantiseHeads, true);
        }
        self.matmul(
            BrickId::OProj,
            "attn_output",
            (Buf::Heads, hp.attn_dim()),
            (Buf::Out, hp.n_embd),
            true,
        )?;
        let src = self.post_norm(BrickId::AttnPostNorm, "post_attention_norm")?;
        self.push(BrickId::AttnResidual, Op::Residual { src }, false);
        Ok(())
    }

    fn feed_forward(&mut self) -> Result<(), ModelError> {
        let hp = self.hp;
        self.norm(BrickId::FfnNorm, "ffn_norm", Buf::X, Buf::Normed)?;
        let input = (Buf::Normed, hp.n_embd);
        self.matmul(
            BrickId::GateProj,
            "ffn_gate",
            input,
            (Buf::Gate, hp.n_ff),
            false,
        )?;
        self.matmul(BrickId::UpProj, "ffn_up", input, (Buf::Up, hp.n_ff), true)?;
        self.push(BrickId::Activation, Op::Gate { act: hp.gate }, true);
        self.matmul(
            BrickId::DownProj,
            "ffn_down",
            (Buf::Act, hp.n_ff),
            (Buf::Out, hp.n_embd),
            true,
        )?;
        let src = self.post_norm(BrickId::FfnPostNorm, "post_ffw_norm")?;
        // The head takes its tokens in another split than the layers.
        let last = self.layer == Some(hp.n_layers - 1);
        self.push(BrickId::FfnResidual, Op::Residual { src }, last);
        Ok(())
    }
}

/// Lays out the forward pass; returns it with the vocabulary size.
pub(super) fn build(gguf: &Gguf, hp: &Hparams) -> Result<(Plan, usize), ModelError> {
    let w = Weights { gguf };
    let factors = w.optional_vector("rope_freqs.weight", hp.rope_dims / 2)?;
    let mut ropes = vec![RopeTable::new(
        hp.rope_dims,
        hp.rope_base,
        hp.rope_scaling,
        factors.as_deref(),
    )];
    if let Some(window) = hp.window {
        // Windowed layers of Gemma 3 keep the plain base: positions in a window never exceed training.
        let scaling = match hp.arch {
            Arch::Gemma3 => RopeScaling::None,
            _ => hp.rope_scaling,
        };
        ropes.push(RopeTable::new(
            hp.rope_dims,
            window.rope_base,
            scaling,
            factors.as_deref(),
        ));
    }

    let table = w.matrix("token_embd.weight", hp.n_embd, None)?;
    let n_vocab = table.rows;
    let mut b = Builder {
        w,
        hp,
        bricks: Vec::new(),
        layer: None,
    };
    b.push(
        BrickId::Embed,
        Op::Embed {
            table,
            scale: hp.embed_scale,
        },
        true,
    );
    let mut layer_starts = Vec::with_capacity(hp.n_layers + 1);
    for layer in 0..hp.n_layers {
        b.layer = Some(layer);
        layer_starts.push(b.bricks.len());
        let rope = usize::from(hp.layer_window(layer).is_some());
        b.attention(layer, rope)?;
        b.feed_forward()?;
    }
    b.layer = None;
    layer_starts.push(b.bricks.len());
    b.norm(BrickId::FinalNorm, "output_norm", Buf::X, Buf::Normed)?;
    // Tied embeddings: the head is the embedding table.
    let head = if b.w.has("output.weight") {
        "output"
    } else {
        "token_embd"
    };
    b.matmul(
        BrickId::LmHead,
        head,
        (Buf::Normed, hp.n_embd),
        (Buf::Logits, n_vocab),
        true,
    )?;
    let plan = Plan {
        bricks: b.bricks,
        ropes,
        layer_starts,
    };
    Ok((plan, n_vocab))
}
