//! How much work a brick is: elements, bytes and floating-point operations, counted from its shapes.

use super::hparams::Hparams;
use super::plan::{Brick, Buf, Op};
use super::slots::{Slots, Span};
use super::weights::Matrix;

/// Work of one call, all threads together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Output elements.
    pub elements: u64,
    /// Bytes read and written: weights as stored, kv cache, activations as f32.
    pub bytes: u64,
    /// Floating-point operations; a multiply-add is two.
    pub flops: u64,
}

/// What a step is, as far as the amount of work goes.
#[derive(Debug, Clone, Copy)]
pub struct StepShape<'a> {
    /// Tokens in the step.
    pub tokens: usize,
    /// How they are spread over sequences.
    pub spans: &'a [Span],
    /// The slots of every sequence.
    pub slots: Slots,
    /// Tokens whose logits are wanted.
    pub logit_rows: usize,
    /// Bytes of the key of one head and position in the cache.
    pub key_bytes: usize,
    /// Bytes of the value of one head and position in the cache.
    pub value_bytes: usize,
    /// Experts of the layer that any token was sent to, where that is known: read by the experts' mat-muls.
    pub active_experts: Option<usize>,
}

impl StepShape<'_> {
    /// Bytes of one position of one layer in the cache.
    fn position_bytes(&self, hp: &Hparams) -> u64 {
        (hp.n_head_kv * (self.key_bytes + self.value_bytes)) as u64
    }
}

const F32: u64 = 4;

impl Brick {
    /// The work of this brick in a step.
    pub fn work(&self, hp: &Hparams, s: &StepShape<'_>) -> Work {
        let t = self.columns(hp, s) as u64;
        let (qd, kd, vd) = (hp.q_dim() as u64, hp.k_dim() as u64, hp.v_dim() as u64);
        match &self.op {
            Op::Embed { table, .. } => {
                let n = t * table.k as u64;
                Work {
                    elements: n,
                    bytes: t * table.row_bytes as u64 + n * F32,
                    flops: n,
                }
            }
            Op::Norm { weight, bias, .. } => {
                let n = t * weight.len() as u64;
                let vectors = 1 + u64::from(bias.is_some());
                Work {
                    elements: n,
                    bytes: 2 * n * F32 + vectors * weight.len() as u64 * F32,
                    flops: (3 + vectors) * n,
                }
            }
            Op::Copy { .. } | Op::Dispatch { .. } => {
                let n = t * hp.n_embd as u64;
                Work {
                    elements: n,
                    bytes: 2 * n * F32,
                    flops: 0,
                }
            }
            Op::MatMul { w, .. } => Work {
                elements: t * w.rows as u64,
                bytes: w.bytes() + t * (w.rows + w.k) as u64 * F32,
                flops: 2 * t * w.rows as u64 * w.k as u64,
            },
            Op::ExpertMatMul { w, .. } => {
                let (rows, k) = w.first().map_or((0, 0), |w| (w.rows as u64, w.k as u64));
                let read = s.active_experts.unwrap_or((t as usize).min(w.len()));
                Work {
                    elements: t * rows,
                    bytes: w.iter().take(read).map(Matrix::bytes).sum::<u64>()
                        + t * (rows + k) * F32,
                    flops: 2 * t * rows * k,
                }
            }
            Op::Route { .. } => {
                let n = t * hp.experts.map_or(0, |e| e.n as u64);
                Work {
                    elements: n,
                    bytes: n * F32 + t * hp.n_expert_used() as u64 * 2 * F32,
                    flops: 3 * n,
                }
            }
            Op::Combine { .. } => {
                let n = t * hp.n_embd as u64;
                let used = hp.n_expert_used() as u64;
                Work {
                    elements: n,
                    bytes: (used + 2) * n * F32,
                    flops: 2 * used * n,
                }
            }
            Op::QkNorm { q, k } => Work {
                elements: t * (qd + kd),
                bytes: 2 * t * (qd + kd) * F32 + (q.len() + k.len()) as u64 * F32,
                flops: 4 * t * (qd + kd),
            },
            Op::Rope { .. } => Work {
                elements: t * (qd + kd),
                bytes: 2 * t * (qd + kd) * F32,
                flops: 3 * t * (qd + kd),
            },
            Op::KvWrite => Work {
                elements: t * (kd + vd),
                bytes: t * ((kd + vd) * F32 + s.position_bytes(hp)),
                flops: 0,
            },
            Op::Attend { window, .. } => attend_work(hp, s, *window),
            Op::QuantiseHeads => {
                let n = t * hp.attn_dim() as u64;
                Work {
                    elements: n,
                    bytes: n * (F32 + 1),
                    flops: 2 * n,
                }
            }
            Op::Activate { n, up, .. } => {
                let n = t * *n as u64;
                let gated = u64::from(up.is_some());
                Work {
                    elements: n,
                    bytes: (2 + gated) * n * F32,
                    flops: (5 + gated) * n,
                }
            }
            Op::Residual { .. } => {
                let n = t * hp.n_embd as u64;
                Work {
                    elements: n,
                    bytes: 3 * n * F32,
                    flops: n,
                }
            }
        }
    }

    /// Columns this brick computes: the head only those whose logits are wanted, experts one a pair of token and expert.
    pub fn columns(&self, hp: &Hparams, s: &StepShape<'_>) -> usize {
        match &self.op {
            Op::MatMul {
                dst: Buf::Logits, ..
            } => s.logit_rows,
            Op::Norm {
                dst: Buf::Normed, ..
            } if self.layer.is_none() => s.logit_rows,
            Op::ExpertMatMul { .. } | Op::Dispatch { .. } => s.tokens * hp.n_expert_used(),
            Op::Activate { dst, .. } if dst.is_paired() => s.tokens * hp.n_expert_used(),
            _ => s.tokens,
        }
    }
}

/// The cache of a sequence is read once: what leaves memory, not what the cores load again for every head and token.
fn attend_work(hp: &Hparams, s: &StepShape<'_>, window: Option<usize>) -> Work {
    let (mut pairs, mut read) = (0, 0);
    for span in s.spans {
        pairs += (span.past..span.end())
            .map(|position| s.slots.seen(span, position, window))
            .sum::<usize>();
        // The first token's window begins furthest back.
        let (kept, rest) = s.slots.visible(span, span.past, window);
        read += kept.len() + span.end() - rest.start;
    }
    let t = s.tokens as u64;
    let heads = hp.n_head as u64;
    Work {
        elements: t * hp.attn_dim() as u64,
        bytes: read as u64 * s.position_bytes(hp) + t * (hp.q_dim() + hp.attn_dim()) as u64 * F32,
        flops: pairs as u64 * heads * (2 * hp.head_dim_k as u64 + 2 * hp.head_dim_v as u64 + 4),
    }
}
