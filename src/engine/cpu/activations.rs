//! The activations of one step, every buffer that bricks read and write.

use super::buffers::Columns;
use super::{Input, QActs, mat_kernel};
use crate::engine::{Config, EngineError};
use crate::model::{Buf, Model, Op};

/// Activations of one step.
pub(super) struct Buffers {
    pub(super) x: Columns,
    pub(super) normed: Columns,
    pub(super) q: Columns,
    pub(super) k: Columns,
    pub(super) v: Columns,
    pub(super) heads: Columns,
    pub(super) out: Columns,
    pub(super) post_normed: Columns,
    pub(super) gate: Columns,
    pub(super) up: Columns,
    pub(super) act: Columns,
    pub(super) logits: Columns,
    /// int8 forms of those that feed quantised mat-muls.
    pub(super) normed_q8: Option<QActs>,
    pub(super) heads_q8: Option<QActs>,
    pub(super) act_q8: Option<QActs>,
    /// Cosines, then sines, of every rotary table, one column a token.
    pub(super) ropes: Vec<Columns>,
    /// Scores of one head over the context, one column a thread.
    pub(super) scores: Columns,
    /// One head being normed, one column a thread.
    pub(super) head_scratch: Columns,
}

impl Buffers {
    /// Zeroed buffers for steps of a chunk.
    ///
    /// # Errors
    /// [`EngineError::OutOfMemory`].
    pub(super) fn new(model: &Model, c: &Config) -> Result<Self, EngineError> {
        let hp = &model.hparams;
        let cols = |dim| Columns::new(dim, c.chunk);
        let feeds_quantised = |buf: Buf| {
            model.plan.bricks.iter().any(|b| {
                matches!(&b.op, Op::MatMul { w, src, .. } if *src == buf && mat_kernel(c.kernels, w.ty).is_some_and(|k| k.input == Input::Q8))
            })
        };
        let writes = |buf: Buf| {
            model
                .plan
                .bricks
                .iter()
                .any(|b| matches!(&b.op, Op::Norm { dst, .. } if *dst == buf))
        };
        let q8 = |buf, k| feeds_quantised(buf).then(|| QActs::new(c.chunk, k));
        check_memory(model, c)?;
        Ok(Self {
            x: cols(hp.n_embd),
            normed: cols(hp.n_embd),
            q: cols(hp.q_dim()),
            k: cols(hp.k_dim()),
            v: cols(hp.v_dim()),
            heads: cols(hp.attn_dim()),
            out: cols(hp.n_embd),
            post_normed: cols(if writes(Buf::PostNormed) {
                hp.n_embd
            } else {
                0
            }),
            gate: cols(hp.n_ff),
            up: cols(hp.n_ff),
            act: cols(hp.n_ff),
            logits: Columns::new(model.n_vocab, c.rows()),
            normed_q8: q8(Buf::Normed, hp.n_embd),
            heads_q8: q8(Buf::Heads, hp.attn_dim()),
            act_q8: q8(Buf::Act, hp.n_ff),
            ropes: model
                .plan
                .ropes
                .iter()
                .map(|r| cols(2 * r.inv_freq.len()))
                .collect(),
            scores: Columns::new(c.n_ctx, c.threads),
            head_scratch: Columns::new(hp.head_dim_k, c.threads),
        })
    }

    pub(super) fn get(&self, b: Buf) -> &Columns {
        match b {
            Buf::X => &self.x,
            Buf::Normed => &self.normed,
            Buf::Q => &self.q,
            Buf::K => &self.k,
            Buf::V => &self.v,
            Buf::Heads => &self.heads,
            Buf::Out => &self.out,
            Buf::PostNormed => &self.post_normed,
            Buf::Gate => &self.gate,
            Buf::Up => &self.up,
            Buf::Act => &self.act,
            Buf::Logits => &self.logits,
        }
    }

    pub(super) fn q8(&self, b: Buf) -> Option<&QActs> {
        match b {
            Buf::Normed => self.normed_q8.as_ref(),
            Buf::Heads => self.heads_q8.as_ref(),
            Buf::Act => self.act_q8.as_ref(),
            _ => None,
        }
    }

    pub(super) fn all_q8_mut(&mut self) -> impl Iterator<Item = &mut QActs> {
        [&mut self.normed_q8, &mut self.heads_q8, &mut self.act_q8]
            .into_iter()
            .flatten()
    }

    pub(super) fn bytes(&self) -> u64 {
        let fixed = [
            &self.x,
            &self.normed,
            &self.q,
            &self.k,
            &self.v,
            &self.heads,
            &self.out,
            &self.post_normed,
            &self.gate,
            &self.up,
            &self.act,
            &self.logits,
            &self.scores,
            &self.head_scratch,
        ];
        let floats: u64 = fixed
            .into_iter()
            .chain(&self.ropes)
            .map(Columns::bytes)
            .sum();
        let q8: u64 = [&self.normed_q8, &self.heads_q8, &self.act_q8]
            .into_iter()
            .flatten()
            .map(QActs::bytes)
            .sum();
        floats + q8
    }
}

/// Asks the allocator for all of it at once, and gives it back: the vectors themselves would abort the process.
fn check_memory(model: &Model, c: &Config) -> Result<(), EngineError> {
    let hp = &model.hparams;
    // The buffers of `Buffers` in floats a token; int8 forms take a little less than a float an element. The knobs and
    // sizes are bounded, so nothing overflows.
    let residual = 5 * hp.n_embd;
    let attention = hp.q_dim() + hp.k_dim() + hp.v_dim() + 2 * hp.attn_dim() + 4 * hp.rope_dims;
    let column = residual + attention + 4 * hp.n_ff;
    let floats = column * c.chunk + model.n_vocab * c.rows() + c.n_ctx * c.threads;
    let bytes = floats * size_of::<f32>();
    let mut probe: Vec<u8> = Vec::new();
    probe
        .try_reserve_exact(bytes)
        .map_err(|_| EngineError::OutOfMemory {
            what: "activation buffers",
            bytes: bytes as u64,
        })
}
