//! Direct logit attribution: what every vector in the stream adds to a token's logit.
//!
//! The final norm is made linear by keeping its scale at what it is for the stream after the last layer of the same
//! position; then `logit = constant + direction . (embedding + all deltas)`, so that the parts sum to it. It describes a
//! run; it does not say what the run would be without a part, which patching does.

use super::TraceError;
use crate::engine::capture::Part;
use crate::model::brick::BrickId;
use crate::model::{Brick, Matrix, Model, Op, Vector};
use crate::quant;
use crate::trace::stream::{Chains, Stream};
use crate::trace::vector::dot;

/// `d logit / d stream` of one token at one position, `[n_embd]`, and what does not come from the stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Direction {
    /// In f64: contributions of opposite sign are much larger than their sum.
    pub weights: Vec<f64>,
    /// Biases of norm and head, in logits.
    pub constant: f64,
}

impl Direction {
    /// What a vector of the stream adds, logits (before a soft cap, where the model has one).
    pub fn of(&self, x: &[f32]) -> f64 {
        let terms = self.weights.iter().zip(x);
        terms.map(|(w, x)| w * f64::from(*x)).sum()
    }
}

/// Final norm and head of a model.
pub struct Head<'m> {
    model: &'m Model,
    weight: &'m Vector,
    norm_bias: Option<&'m Vector>,
    head: &'m Matrix,
    bias: Option<&'m Vector>,
}

impl<'m> Head<'m> {
    /// Of a model.
    ///
    /// # Errors
    /// A plan that does not end in norm and head; there is none.
    pub fn new(model: &'m Model) -> Result<Self, TraceError> {
        let bricks = &model.plan.bricks;
        let start = model.plan.layer_starts.last().copied().unwrap_or(0);
        match bricks.get(start..) {
            Some(
                [
                    Brick {
                        op:
                            Op::Norm {
                                weight,
                                bias: norm_bias,
                                ..
                            },
                        ..
                    },
                    Brick {
                        op: Op::MatMul { w, bias, .. },
                        ..
                    },
                ],
            ) => Ok(Self {
                model,
                weight,
                norm_bias: norm_bias.as_ref(),
                head: w,
                bias: bias.as_ref(),
            }),
            _ => Err(TraceError::Head),
        }
    }

    /// The direction of token `id` at a position whose stream after the last layer is `last`.
    ///
    /// # Errors
    /// A token outside the vocabulary.
    pub fn direction(&self, id: u32, last: &[f32]) -> Result<Direction, TraceError> {
        let unembedding = row(self.model, self.head, id as usize)?;
        let hp = &self.model.hparams;
        let n = last.len().max(1) as f64;
        let mean = match self.norm_bias {
            Some(_) => last.iter().map(|v| f64::from(*v)).sum::<f64>() / n,
            None => 0.0,
        };
        let square = last.iter().map(|v| (f64::from(*v) - mean).powi(2));
        let scale = 1.0 / (square.sum::<f64>() / n + f64::from(hp.norm_eps)).sqrt();
        let by = scale * f64::from(hp.logit_scale);
        let products = self.weight.iter().zip(&unembedding);
        let mut weights: Vec<f64> = products
            .map(|(w, u)| f64::from(*w) * f64::from(*u) * by)
            .collect();
        let mut constant = 0.0;
        if let Some(bias) = self.norm_bias {
            // Taking the mean out of the stream is taking it out of the direction.
            let mean = weights.iter().sum::<f64>() / n;
            weights.iter_mut().for_each(|w| *w -= mean);
            constant += dot(bias, &unembedding);
        }
        let own = self.bias.and_then(|b| b.get(id as usize)).copied();
        constant += f64::from(own.unwrap_or(0.0));
        Ok(Direction {
            weights,
            constant: constant * f64::from(hp.logit_scale),
        })
    }

    /// The soft cap of the logits, which no linear part goes through.
    pub fn softcap(&self) -> Option<f32> {
        self.model.hparams.logit_softcap
    }
}

/// How the heads of a layer come into the stream.
struct OutProjection<'m> {
    w: &'m Matrix,
    bias: Option<&'m Vector>,
    post_norm: Option<&'m Vector>,
    scale: f32,
}

fn out_projection(model: &Model, layer: usize) -> Option<OutProjection<'_>> {
    let starts = &model.plan.layer_starts;
    let (start, end) = (*starts.get(layer.checked_sub(1)?)?, *starts.get(layer)?);
    let bricks = model.plan.bricks.get(start..end)?;
    let op = |id: BrickId| bricks.iter().find(|b| b.id == id).map(|b| &b.op);
    let Some(Op::MatMul { w, bias, .. }) = op(BrickId::OProj) else {
        return None;
    };
    let post_norm = match op(BrickId::AttnPostNorm) {
        // No architecture has a LayerNorm there, whose mean would go through all heads.
        Some(Op::Norm { bias: Some(_), .. }) => return None,
        Some(Op::Norm { weight, .. }) => Some(weight),
        _ => None,
    };
    let Some(Op::Residual { scale, .. }) = op(BrickId::AttnResidual) else {
        return None;
    };
    Some(OutProjection {
        w,
        bias: bias.as_ref(),
        post_norm,
        scale: *scale,
    })
}

/// What each head of a layer adds to a logit at a position, `[directions][n_head]`. With the output bias (through a post-norm,
/// whose scale is kept at what it was) they sum to what attention adds.
///
/// # Errors
/// A weight that cannot be read.
pub fn heads(
    model: &Model,
    stream: &Stream,
    position: usize,
    layer: usize,
    directions: &[Direction],
) -> Result<Vec<Vec<f64>>, TraceError> {
    let input = stream.heads(position, layer);
    let Some(out) = out_projection(model, layer).filter(|o| o.w.k == input.len()) else {
        return Ok(vec![Vec::new(); directions.len()]);
    };
    let scales = post_norm_scales(model, &out, input)?;
    // The direction in front of the projection: its transpose times that behind it.
    let mut before = vec![vec![0.0f64; input.len()]; directions.len()];
    for r in 0..out.w.rows {
        let weights = row(model, out.w, r)?;
        let scale = scales.get(r).copied().unwrap_or(0.0);
        for (direction, before) in directions.iter().zip(&mut before) {
            let by = direction.weights.get(r).copied().unwrap_or(0.0) * scale;
            for (b, w) in before.iter_mut().zip(&weights) {
                *b += by * f64::from(*w);
            }
        }
    }
    let dim = model.hparams.head_dim_v.max(1);
    let of_heads = |before: Vec<f64>| {
        let pairs = before.chunks(dim).zip(input.chunks(dim));
        pairs
            .map(|(b, x)| b.iter().zip(x).map(|(b, x)| b * f64::from(*x)).sum())
            .collect()
    };
    Ok(before.into_iter().map(of_heads).collect())
}

/// `d delta / d projection output`, element by element, the post-norm's own scale kept.
fn post_norm_scales(
    model: &Model,
    out: &OutProjection<'_>,
    input: &[f32],
) -> Result<Vec<f64>, TraceError> {
    let scale = f64::from(out.scale);
    let Some(weight) = out.post_norm else {
        return Ok(vec![scale; out.w.rows]);
    };
    let mut square = 0.0;
    for r in 0..out.w.rows {
        let bias = out.bias.and_then(|b| b.get(r)).copied().unwrap_or(0.0);
        square += (dot(&row(model, out.w, r)?, input) + f64::from(bias)).powi(2);
    }
    let mean = square / out.w.rows.max(1) as f64;
    let rms = (mean + f64::from(model.hparams.norm_eps)).sqrt();
    Ok(weight.iter().map(|w| scale * f64::from(*w) / rms).collect())
}

/// A row of a matrix in f32.
fn row(model: &Model, m: &Matrix, row: usize) -> Result<Vec<f32>, TraceError> {
    let bytes = model.bytes(m);
    let at = row.checked_mul(m.row_bytes);
    let bytes = at.and_then(|at| bytes.get(at..at.checked_add(m.row_bytes)?));
    let mut out = vec![0.0; m.k];
    match bytes.map(|b| quant::dequantise_row(m.ty, b, &mut out)) {
        Some(Ok(())) => Ok(out),
        _ => Err(TraceError::Head),
    }
}

/// What attention and FFN of every layer add, and the embedding: `(embedding, [(attention, ffn)])` in logits.
pub fn parts(
    chains: &dyn Chains,
    position: usize,
    direction: &Direction,
) -> (f64, Vec<(f64, f64)>) {
    let of = |layer, part| direction.of(chains.vector(position, layer, part));
    let layers = (1..=chains.n_layers())
        .map(|layer| (of(layer, Part::AttnDelta), of(layer, Part::FfnDelta)))
        .collect();
    (of(0, Part::Residual), layers)
}
