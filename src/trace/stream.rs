//! Vectors of the residual stream in memory, and what all holders of them have in common.

use super::TraceError;
use crate::engine::capture::{Captured, Part};
use crate::model::Model;
use std::ops::Range;

/// Most bytes of a stream held in memory.
const MAX_BYTES: usize = 2 << 30;
/// The same where all of it goes to a file anyway.
const MAX_BESIDE_A_FILE: usize = 256 << 20;

/// Full chains of some positions of a text: `(n_layers + 1)` waypoints of residual, attention delta and FFN delta each.
pub trait Chains {
    /// Layers of the model.
    fn n_layers(&self) -> usize;

    /// Width of the stream.
    fn hidden_size(&self) -> usize;

    /// The positions there are.
    fn positions(&self) -> Range<usize>;

    /// A vector, `[hidden_size]`; empty for a layer or position that is not there, and for [`Part::Heads`] and
    /// [`Part::Key`].
    fn vector(&self, position: usize, layer: usize, part: Part) -> &[f32];
}

/// Chains in memory, and outputs of heads where they were captured.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    n_layers: usize,
    hidden: usize,
    positions: Range<usize>,
    /// `[position][layer][part][hidden]`
    data: Vec<f32>,
    /// Elements of all heads of a layer; 0 where they are not held.
    attn_dim: usize,
    /// `[position][layer - 1][attn_dim]`
    heads: Vec<f32>,
}

const PARTS: usize = 3;

impl Stream {
    /// Whether so many positions are to be held in memory while they go to a file.
    pub fn fits_beside_a_file(model: &Model, positions: usize, heads: bool) -> bool {
        Self::bytes(model, positions, heads).is_some_and(|b| b <= MAX_BESIDE_A_FILE)
    }

    /// Bytes that so many positions take; `None` where that is more than memory should hold.
    fn bytes(model: &Model, positions: usize, heads: bool) -> Option<usize> {
        let hp = &model.hparams;
        let heads = if heads { hp.attn_dim() } else { 0 };
        let waypoint = PARTS.checked_mul(hp.n_embd)?.checked_add(heads)?;
        let bytes = positions
            .checked_mul(hp.n_layers + 1)?
            .checked_mul(waypoint)?
            .checked_mul(size_of::<f32>())?;
        (bytes <= MAX_BYTES).then_some(bytes)
    }

    /// Room for positions of a text.
    ///
    /// # Errors
    /// [`TraceError::TooLarge`].
    pub fn new(model: &Model, positions: Range<usize>, heads: bool) -> Result<Self, TraceError> {
        let n = positions.len();
        Self::bytes(model, n, heads).ok_or(TraceError::TooLarge { positions: n })?;
        let hp = &model.hparams;
        let attn_dim = if heads { hp.attn_dim() } else { 0 };
        let zeros = |len: usize| {
            let mut data = Vec::new();
            let there = data.try_reserve_exact(len);
            there.map_err(|_| TraceError::TooLarge { positions: n })?;
            data.resize(len, 0.0);
            Ok::<_, TraceError>(data)
        };
        Ok(Self {
            n_layers: hp.n_layers,
            hidden: hp.n_embd,
            positions,
            data: zeros(n * (hp.n_layers + 1) * PARTS * hp.n_embd)?,
            attn_dim,
            heads: zeros(n * hp.n_layers * attn_dim)?,
        })
    }

    /// Takes a vector in, if it is of a position held here.
    pub fn take(&mut self, c: &Captured<'_>) {
        if !self.positions.contains(&c.position) {
            return;
        }
        let p = c.position - self.positions.start;
        let to = match c.part {
            Part::Residual | Part::AttnDelta | Part::FfnDelta => self
                .at(p, c.layer, c.part)
                .and_then(|at| self.data.get_mut(at)),
            Part::Heads => {
                let at = (p * self.n_layers + c.layer.saturating_sub(1)) * self.attn_dim;
                self.heads.get_mut(at..at + self.attn_dim)
            }
            Part::Key => None,
        };
        if let Some(to) = to.filter(|t| t.len() == c.data.len()) {
            to.copy_from_slice(c.data);
        }
    }

    /// Outputs of all heads of a layer, `[n_head * head_dim_v]`; empty where they are not held.
    pub fn heads(&self, position: usize, layer: usize) -> &[f32] {
        let p = position.checked_sub(self.positions.start);
        let at = p
            .zip(layer.checked_sub(1))
            .map(|(p, l)| (p * self.n_layers + l) * self.attn_dim);
        at.and_then(|at| self.heads.get(at..at + self.attn_dim))
            .unwrap_or(&[])
    }

    /// Whether outputs of heads are held.
    pub fn has_heads(&self) -> bool {
        self.attn_dim > 0
    }

    fn at(&self, p: usize, layer: usize, part: Part) -> Option<Range<usize>> {
        let k = match part {
            Part::Residual => 0,
            Part::AttnDelta => 1,
            Part::FfnDelta => 2,
            Part::Heads | Part::Key => return None,
        };
        if p >= self.positions.len() || layer > self.n_layers {
            return None;
        }
        let at = ((p * (self.n_layers + 1) + layer) * PARTS + k) * self.hidden;
        Some(at..at + self.hidden)
    }
}

impl Chains for Stream {
    fn n_layers(&self) -> usize {
        self.n_layers
    }

    fn hidden_size(&self) -> usize {
        self.hidden
    }

    fn positions(&self) -> Range<usize> {
        self.positions.clone()
    }

    fn vector(&self, position: usize, layer: usize, part: Part) -> &[f32] {
        position
            .checked_sub(self.positions.start)
            .and_then(|p| self.at(p, layer, part))
            .and_then(|at| self.data.get(at))
            .unwrap_or(&[])
    }
}
