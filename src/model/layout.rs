//! Lays out the forward pass of a file: which bricks, over which tensors.

use super::ModelError;
use super::arch::{Blocks, NormKind, QkNormKind};
use super::brick::BrickId;
use super::hparams::{Hparams, RopeScaling};
use super::plan::{Brick, Buf, Op, Plan, Q8_BLOCK, SharedExpert};
use super::rope::{ContextRope, RopeTable};
use super::weights::{Matrix, Vector, Weights};
use crate::gguf::Gguf;

struct Layout<'a> {
    w: Weights<'a>,
    hp: &'a Hparams,
    bricks: Vec<Brick>,
    dims: [usize; Buf::ALL.len()],
    layer: Option<usize>,
}

/// The bricks of a gated or plain feed-forward block, in the order they run.
const FFN: [BrickId; 4] = [
    BrickId::GateProj,
    BrickId::UpProj,
    BrickId::Activation,
    BrickId::DownProj,
];

impl Layout<'_> {
    fn push(&mut self, id: BrickId, op: Op, barrier: bool) {
        self.bricks.push(Brick {
            id,
            layer: self.layer,
            op,
            barrier,
        });
    }

    /// Makes room for `n` elements a column.
    fn room(&mut self, buf: Buf, n: usize) {
        let dim = &mut self.dims[buf as usize];
        *dim = n.max(*dim);
    }

    fn name(&self, tensor: &str) -> String {
        match self.layer {
            Some(l) => format!("blk.{l}.{tensor}"),
            None => tensor.into(),
        }
    }

    fn has(&self, tensor: &str) -> bool {
        self.w.has(&self.name(tensor))
    }

    fn vector(&self, tensor: &str, n: usize) -> Result<Vector, ModelError> {
        self.w.vector(&self.name(tensor), n)
    }

    fn optional_vector(&self, tensor: &str, n: usize) -> Result<Option<Vector>, ModelError> {
        self.w.optional_vector(&self.name(tensor), n)
    }

    /// Norms, copies and residual additions split the work by token in the same way: no thread waits between them, only
    /// before a mat-mul reads what one of them wrote.
    fn norm(
        &mut self,
        id: BrickId,
        tensor: &str,
        (src, dst): (Buf, Buf),
        barrier: bool,
    ) -> Result<(), ModelError> {
        let n = self.hp.n_embd;
        let weight = self.vector(&format!("{tensor}.weight"), n)?;
        let bias = match self.hp.arch.norm {
            NormKind::Rms => None,
            NormKind::Layer => {
                let bias = self.optional_vector(&format!("{tensor}.bias"), n)?;
                Some(bias.unwrap_or_else(|| vec![0.0; n].into()))
            }
        };
        self.room(dst, n);
        self.push(
            id,
            Op::Norm {
                src,
                dst,
                weight,
                bias,
            },
            barrier,
        );
        Ok(())
    }

    /// The input of a block: the residual stream through a norm, or as it is.
    fn input(&mut self, id: BrickId, tensor: &str) -> Result<(), ModelError> {
        if self.hp.blocks != Blocks::Post {
            return self.norm(id, tensor, (Buf::X, Buf::Normed), true);
        }
        self.room(Buf::Normed, self.hp.n_embd);
        let op = Op::Copy {
            src: Buf::X,
            dst: Buf::Normed,
        };
        self.push(id, op, true);
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
        let bias = self.optional_vector(&format!("{tensor}.bias"), rows)?;
        self.room(dst, rows);
        self.push(id, Op::MatMul { w, bias, src, dst }, barrier);
        Ok(())
    }

    /// Several mat-muls of one input whose weights lie one after the other in one tensor; a barrier after the last.
    fn fused(
        &mut self,
        tensor: &str,
        (src, k): (Buf, usize),
        parts: &[(BrickId, Buf, usize)],
    ) -> Result<(), ModelError> {
        let total = parts.iter().map(|p| p.2).sum();
        let name = self.name(&format!("{tensor}.weight"));
        let all = self.w.matrix(&name, k, Some(total))?;
        let biases = self.optional_vector(&format!("{tensor}.bias"), total)?;
        let mut first = 0;
        for &(id, dst, rows) in parts {
            let w = all.part(first, rows);
            let bias = biases.as_ref().map(|b| b[first..first + rows].into());
            first += rows;
            self.room(dst, rows);
            self.push(id, Op::MatMul { w, bias, src, dst }, first == total);
        }
        Ok(())
    }

    /// The norm behind a block, where the architecture has one; returns where the block's output then is.
    fn post_norm(&mut self, id: BrickId, tensor: &str) -> Result<Buf, ModelError> {
        match self.hp.blocks {
            Blocks::Pre | Blocks::Parallel => Ok(Buf::Out),
            Blocks::PreAndPost | Blocks::Post => {
                self.norm(id, tensor, (Buf::Out, Buf::PostNormed), false)?;
                Ok(Buf::PostNormed)
            }
        }
    }

    fn qkv(&mut self) -> Result<(), ModelError> {
        let hp = self.hp;
        let input = (Buf::Normed, hp.n_embd);
        let parts = [
            (BrickId::QProj, Buf::Q, hp.q_dim()),
            (BrickId::KProj, Buf::K, hp.k_dim()),
            (BrickId::VProj, Buf::V, hp.v_dim()),
        ];
        if self.has("attn_qkv.weight") {
            return self.fused("attn_qkv", input, &parts);
        }
        for (tensor, (id, dst, rows)) in ["attn_q", "attn_k", "attn_v"].iter().zip(parts) {
            self.matmul(id, tensor, input, (dst, rows), dst == Buf::V)?;
        }
        Ok(())
    }

    fn qk_norm(&mut self) -> Result<(), ModelError> {
        let hp = self.hp;
        let (q, k) = match hp.arch.qk_norm {
            QkNormKind::None => return Ok(()),
            QkNormKind::OptionalHead if !self.has("attn_q_norm.weight") => return Ok(()),
            QkNormKind::Head | QkNormKind::OptionalHead | QkNormKind::HeadAfterRope => {
                (hp.head_dim_k, hp.head_dim_k)
            }
            QkNormKind::Full => (hp.q_dim(), hp.k_dim()),
        };
        let q = self.vector("attn_q_norm.weight", q)?;
        let k = self.vector("attn_k_norm.weight", k)?;
        // Heads are split as for the rotation; whole tokens are not.
        let barrier = hp.arch.qk_norm == QkNormKind::Full;
        self.push(BrickId::QkNorm, Op::QkNorm { q, k }, barrier);
        Ok(())
    }

    fn attention(&mut self, layer: usize) -> Result<(), ModelError> {
        let hp = self.hp;
        self.qkv()?;
        let norm_last = hp.arch.qk_norm == QkNormKind::HeadAfterRope;
        if !norm_last {
            self.qk_norm()?;
        }
        let window = hp.layer_window(layer);
        // Norm, rotation and cache write split the work by head in the same way, so no thread waits between them.
        if hp.rotates(layer) {
            let table = usize::from(window.is_some());
            self.push(BrickId::Rope, Op::Rope { table }, false);
        }
        if norm_last {
            self.qk_norm()?;
        }
        self.push(BrickId::KvWrite, Op::KvWrite, true);
        let sinks = if hp.arch.sinks {
            Some(self.vector("attn_sinks.weight", hp.n_head)?)
        } else {
            None
        };
        self.room(Buf::Heads, hp.attn_dim());
        self.push(BrickId::Attention, Op::Attend { window, sinks }, true);
        if !hp.head_dim_v.is_multiple_of(Q8_BLOCK) {
            self.push(BrickId::Attention, Op::QuantiseHeads, true);
        }
        let (src, dst) = ((Buf::Heads, hp.attn_dim()), (Buf::Out, hp.n_embd));
        self.matmul(BrickId::OProj, "attn_output", src, dst, true)?;
        let src = self.post_norm(BrickId::AttnPostNorm, "post_attention_norm")?;
        self.residual(BrickId::AttnResidual, src, false);
        Ok(())
    }

    fn residual(&mut self, id: BrickId, src: Buf, barrier: bool) {
        let scale = self.hp.residual_scale;
        self.push(id, Op::Residual { src, scale }, barrier);
    }

    /// A dense block from `src` to [`Buf::Out`]; tensors are called `ffn_gate{suffix}` and so on.
    fn dense(&mut self, src: Buf, suffix: &str, n_ff: usize) -> Result<(), ModelError> {
        let hp = self.hp;
        let [gate_id, up_id, act_id, down_id] = FFN;
        let input = (src, hp.n_embd);
        let (gate, up, down) = (
            format!("ffn_gate{suffix}"),
            format!("ffn_up{suffix}"),
            format!("ffn_down{suffix}"),
        );
        if !hp.arch.gated {
            self.matmul(up_id, &up, input, (Buf::Gate, n_ff), true)?;
        } else if self.has(&format!("{gate}.weight")) {
            self.matmul(gate_id, &gate, input, (Buf::Gate, n_ff), false)?;
            self.matmul(up_id, &up, input, (Buf::Up, n_ff), true)?;
        } else {
            let parts = [(gate_id, Buf::Gate, n_ff), (up_id, Buf::Up, n_ff)];
            self.fused(&up, input, &parts)?;
        }
        self.room(Buf::Act, n_ff);
        let op = Op::Activate {
            act: hp.arch.act,
            gate: Buf::Gate,
            up: hp.arch.gated.then_some(Buf::Up),
            dst: Buf::Act,
            n: n_ff,
        };
        self.push(act_id, op, true);
        self.matmul(
            down_id,
            &down,
            (Buf::Act, n_ff),
            (Buf::Out, hp.n_embd),
            true,
        )
    }

    fn expert_matmul(
        &mut self,
        id: BrickId,
        (tensor, k): (&str, usize),
        rows: Option<usize>,
        (src, dst): (Buf, Buf),
        barrier: bool,
    ) -> Result<usize, ModelError> {
        let n = self.hp.experts.map_or(0, |e| e.n);
        let w = self.w.experts(&self.name(tensor), n, k, rows)?;
        let rows = w.first().map_or(0, |w| w.rows);
        let bias = self.w.expert_bias(&self.name(tensor), n, rows)?;
        self.room(src, k);
        self.room(dst, rows);
        let w = w.into();
        self.push(id, Op::ExpertMatMul { w, bias, src, dst }, barrier);
        Ok(rows)
    }

    fn shared_expert(&mut self, src: Buf) -> Result<SharedExpert, ModelError> {
        let up = self.name("ffn_up_shexp.weight");
        if !self.w.has(&up) {
            return Ok(SharedExpert::None);
        }
        let n_ff = self.w.matrix(&up, self.hp.n_embd, None)?.rows;
        self.dense(src, "_shexp", n_ff)?;
        let gate = self.optional_vector("ffn_gate_inp_shexp.weight", self.hp.n_embd)?;
        Ok(gate.map_or(SharedExpert::Added, SharedExpert::Gated))
    }

    /// Experts from `src` to [`Buf::Out`].
    fn experts(&mut self, src: Buf) -> Result<(), ModelError> {
        let hp = self.hp;
        let Some(e) = hp.experts else {
            return Ok(());
        };
        let router = (Buf::Router, e.n);
        self.matmul(
            BrickId::Router,
            "ffn_gate_inp",
            (src, hp.n_embd),
            router,
            true,
        )?;
        let bias = self.optional_vector("exp_probs_b.bias", e.n)?;
        let op = Op::Route {
            routing: e.routing,
            bias,
            scale: e.scale,
        };
        self.push(BrickId::Route, op, true);
        let shared = self.shared_expert(src)?;
        self.push(BrickId::Dispatch, Op::Dispatch { src }, true);
        let input = |tensor| (tensor, hp.n_embd);
        let gate = (Buf::ExpertIn, Buf::ExpertGate);
        let up = (Buf::ExpertIn, Buf::ExpertUp);
        let n_ff = self.expert_matmul(BrickId::ExpertGate, input("ffn_gate"), None, gate, false)?;
        self.expert_matmul(BrickId::ExpertUp, input("ffn_up"), Some(n_ff), up, true)?;
        let op = Op::Activate {
            act: hp.arch.act,
            gate: Buf::ExpertGate,
            up: Some(Buf::ExpertUp),
            dst: Buf::ExpertAct,
            n: n_ff,
        };
        self.push(BrickId::ExpertAct, op, true);
        let (down, bufs) = (("ffn_down", n_ff), (Buf::ExpertAct, Buf::ExpertOut));
        self.expert_matmul(BrickId::ExpertDown, down, Some(hp.n_embd), bufs, true)?;
        self.room(Buf::Out, hp.n_embd);
        self.push(BrickId::Combine, Op::Combine { shared, src }, false);
        Ok(())
    }

    fn feed_forward(&mut self, src: Buf) -> Result<(), ModelError> {
        if self.hp.experts.is_some() && self.has("ffn_gate_inp.weight") {
            self.experts(src)?;
        } else {
            let n_ff = self.hp.n_ff.ok_or_else(|| ModelError::MissingKey {
                key: format!("{}.feed_forward_length", self.hp.arch.name),
            })?;
            self.dense(src, "", n_ff)?;
        }
        let src = self.post_norm(BrickId::FfnPostNorm, "post_ffw_norm")?;
        // The head takes its tokens in another split than the layers.
        let last = self.layer == Some(self.hp.n_layers - 1);
        self.residual(BrickId::FfnResidual, src, last);
        Ok(())
    }

    fn layer(&mut self, layer: usize) -> Result<(), ModelError> {
        // StableLM and GPT-J's heirs leave the second norm out where both blocks read the first.
        let beside = self.hp.blocks == Blocks::Parallel
            || (self.hp.arch.name == "stablelm" && !self.has("ffn_norm.weight"));
        if !beside {
            self.input(BrickId::AttnNorm, "attn_norm")?;
            self.attention(layer)?;
            // gpt-oss names the norm before the feed-forward block by what stands before it.
            let named = self.hp.blocks != Blocks::Pre || self.has("ffn_norm.weight");
            let norm = if named {
                "ffn_norm"
            } else {
                "post_attention_norm"
            };
            self.input(BrickId::FfnNorm, norm)?;
            return self.feed_forward(Buf::Normed);
        }
        let attn_2 = self.has("attn_norm_2.weight");
        let own = if attn_2 {
            Some("attn_norm")
        } else {
            self.has("ffn_norm.weight").then_some("ffn_norm")
        };
        if let Some(norm) = own {
            self.norm(BrickId::FfnNorm, norm, (Buf::X, Buf::FfnNormed), false)?;
        }
        let norm = if attn_2 { "attn_norm_2" } else { "attn_norm" };
        self.norm(BrickId::AttnNorm, norm, (Buf::X, Buf::Normed), true)?;
        self.attention(layer)?;
        self.feed_forward(if own.is_some() {
            Buf::FfnNormed
        } else {
            Buf::Normed
        })
    }
}

/// Rotary tables: of global layers, then of windowed ones where there are any.
fn ropes(w: &Weights<'_>, hp: &Hparams) -> Result<Vec<ContextRope>, ModelError> {
    let half = hp.rope_dims / 2;
    let table = |base, scaling, factors: Option<&Vector>| {
        RopeTable::new(
            hp.rope_dims,
            base,
            scaling,
            hp.rope_attn_factor,
            factors.map(|f| &f[..]),
        )
    };
    let long = w.optional_vector("rope_factors_long.weight", half)?;
    let short = w.optional_vector("rope_factors_short.weight", half)?;
    let factors = w.optional_vector("rope_freqs.weight", half)?.or(short);
    let both = |base, scaling| ContextRope {
        original_context: hp.original_context,
        short: table(base, scaling, factors.as_ref()),
        long: long.as_ref().map(|l| table(base, scaling, Some(l))),
    };
    let mut ropes = vec![both(hp.rope_base, hp.rope_scaling)];
    if let Some(window) = &hp.window {
        // These keep plain frequencies in windowed layers: positions in a window never exceed training.
        let plain = matches!(hp.arch.name, "gemma3" | "olmo2");
        ropes.push(if plain {
            ContextRope::plain(RopeTable::new(
                hp.rope_dims,
                window.rope_base,
                RopeScaling::None,
                1.0,
                factors.as_ref().map(|f| &f[..]),
            ))
        } else {
            both(window.rope_base, hp.rope_scaling)
        });
    }
    Ok(ropes)
}

fn embedding(b: &mut Layout<'_>) -> Result<Matrix, ModelError> {
    let hp = b.hp;
    let table = b.w.matrix("token_embd.weight", hp.n_embd, None)?;
    let positions = match hp.arch.rope {
        Some(_) => None,
        None => Some(b.w.matrix("position_embd.weight", hp.n_embd, None)?),
    };
    b.room(Buf::X, hp.n_embd);
    let op = Op::Embed {
        table: table.clone(),
        scale: hp.embed_scale,
        positions,
    };
    b.push(BrickId::Embed, op, true);
    Ok(table)
}

/// Lays out the forward pass; returns it with the vocabulary size.
pub(super) fn build(gguf: &Gguf, hp: &Hparams) -> Result<(Plan, usize), ModelError> {
    let w = Weights::new(gguf);
    let ropes = ropes(&w, hp)?;
    let mut b = Layout {
        w,
        hp,
        bricks: Vec::new(),
        dims: [0; Buf::ALL.len()],
        layer: None,
    };
    let n_vocab = embedding(&mut b)?.rows;
    let mut layer_starts = Vec::with_capacity(hp.n_layers + 1);
    for layer in 0..hp.n_layers {
        b.layer = Some(layer);
        layer_starts.push(b.bricks.len());
        b.layer(layer)?;
    }
    b.layer = None;
    layer_starts.push(b.bricks.len());
    let normed = (Buf::X, Buf::Normed);
    b.norm(BrickId::FinalNorm, "output_norm", normed, true)?;
    // Tied embeddings: the head is the embedding table.
    let head = if b.w.has("output.weight") {
        "output"
    } else {
        "token_embd"
    };
    let (src, dst) = ((Buf::Normed, hp.n_embd), (Buf::Logits, n_vocab));
    b.matmul(BrickId::LmHead, head, src, dst, true)?;
    b.w.check_all_used(hp)?;
    let plan = Plan {
        bricks: b.bricks,
        ropes,
        dims: b.dims,
        layer_starts,
    };
    Ok((plan, n_vocab))
}
