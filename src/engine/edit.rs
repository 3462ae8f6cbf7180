//! Interventions in the residual stream: what a forward pass changes on its way.

use super::EngineError;
use crate::model::{Buf, Model, Op};
use std::ops::Range;
use std::sync::Arc;

/// What is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// What attention adds to the stream, `[n_embd]`: after its post-norm and scale.
    Attention,
    /// What the feed-forward block adds, `[n_embd]`: after its post-norm and scale.
    Ffn,
    /// The stream after the layer, `[n_embd]`.
    Residual,
    /// Output of a query head before the projection, `[head_dim_v]`.
    Head(usize),
    /// An element of the feed-forward block's activation, `[1]`. Of experts, the elements of one follow those of the one
    /// before; a shared expert's have no number.
    Neuron(usize),
}

/// How it is changed.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// To nothing.
    Zero,
    /// By a factor.
    Scale(f32),
    /// To these values, one vector for every position of the edit, one after the other.
    Replace(Arc<[f32]>),
}

/// One change of one site in one layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Edit {
    /// 1 to the number of layers; 0, the embedding, has only [`Site::Residual`].
    pub layer: usize,
    /// What.
    pub site: Site,
    /// Where: positions in the sequence.
    pub positions: Range<usize>,
    /// How.
    pub change: Change,
}

/// A rank-one change of a feed-forward block (ROME, <https://arxiv.org/abs/2202.05262>): its output gains
/// `value (key . input)` at every position.
#[derive(Debug, Clone, PartialEq)]
pub struct RankOne {
    /// 1 to the number of layers.
    pub layer: usize,
    /// As long as what [`Edits::key_len`] says: the activation before the down projection, or, where the block is made of
    /// experts, the block's input.
    pub key: Arc<[f32]>,
    /// `[n_embd]`, added before post-norm and scale.
    pub value: Arc<[f32]>,
}

/// Checked interventions of one model. Edits act in their order; rank-one changes act in every sequence, edits too.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Edits {
    edits: Vec<Edit>,
    rank_one: Vec<RankOne>,
}

/// The feed-forward block of a layer, as far as edits need to know it.
struct Ffn {
    /// Elements of its activation, all experts together.
    neurons: usize,
    /// Whether it is made of experts.
    experts: bool,
}

fn ffn(model: &Model, layer: usize) -> Ffn {
    let starts = &model.plan.layer_starts;
    let bricks = match (starts.get(layer - 1), starts.get(layer)) {
        (Some(&start), Some(&end)) => &model.plan.bricks[start..end],
        _ => &[],
    };
    let width = |wanted: Buf| {
        let n = bricks.iter().find_map(|b| match &b.op {
            Op::Activate { dst, n, .. } if *dst == wanted => Some(*n),
            _ => None,
        });
        n.unwrap_or(0)
    };
    let experts = bricks.iter().any(|b| matches!(b.op, Op::Combine { .. }));
    let n_expert = model.hparams.experts.map_or(1, |e| e.n);
    Ffn {
        neurons: if experts {
            width(Buf::ExpertAct) * n_expert
        } else {
            width(Buf::Act)
        },
        experts,
    }
}

impl Edits {
    /// Checks layers, heads, neurons and lengths against the model.
    ///
    /// # Errors
    /// [`EngineError::Edit`].
    pub fn new(
        model: &Model,
        edits: Vec<Edit>,
        rank_one: Vec<RankOne>,
    ) -> Result<Self, EngineError> {
        let n_layers = model.hparams.n_layers;
        let layer = |layer: usize, first: usize| {
            if (first..=n_layers).contains(&layer) {
                Ok(())
            } else {
                refuse(format!(
                    "layer {layer} does not exist: the model has layers {first} to {n_layers}"
                ))
            }
        };
        for edit in &edits {
            layer(edit.layer, usize::from(edit.site != Site::Residual))?;
            check_site(model, edit)?;
            let wanted = edit.positions.len().checked_mul(site_len(model, edit.site));
            match &edit.change {
                Change::Replace(values) if Some(values.len()) != wanted => {
                    return refuse(format!(
                        "an edit of {} positions got {} values",
                        edit.positions.len(),
                        values.len()
                    ));
                }
                Change::Scale(by) if !by.is_finite() => {
                    return refuse(format!("a stream cannot be multiplied by {by}"));
                }
                _ => {}
            }
        }
        for change in &rank_one {
            layer(change.layer, 1)?;
            for (what, len, wanted) in [
                ("key", change.key.len(), Self::key_len(model, change.layer)),
                ("value", change.value.len(), model.hparams.n_embd),
            ] {
                if len != wanted {
                    return refuse(format!(
                        "the {what} of an inserted fact has {len} elements, layer {} of this model wants {wanted}: the \
                         overlay is of another model",
                        change.layer
                    ));
                }
            }
        }
        Ok(Self { edits, rank_one })
    }

    /// Elements of the key of a rank-one change of a layer, 1 to the number of layers.
    pub fn key_len(model: &Model, layer: usize) -> usize {
        let ffn = ffn(model, layer);
        if ffn.experts {
            model.hparams.n_embd
        } else {
            ffn.neurons
        }
    }

    /// Whether the feed-forward block of a layer is made of experts.
    pub fn has_experts(model: &Model, layer: usize) -> bool {
        ffn(model, layer).experts
    }

    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty() && self.rank_one.is_empty()
    }

    /// The rank-one changes.
    pub fn rank_one(&self) -> &[RankOne] {
        &self.rank_one
    }

    /// The same rank-one changes with other edits.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_edits(&self, model: &Model, edits: Vec<Edit>) -> Result<Self, EngineError> {
        Self::new(model, edits, self.rank_one.clone())
    }

    /// Changes `x`, what `site` of a layer is at a position.
    pub(super) fn change(&self, layer: usize, site: Site, position: usize, x: &mut [f32]) {
        for edit in &self.edits {
            if edit.layer == layer && edit.site == site && edit.positions.contains(&position) {
                edit.apply(position, x);
            }
        }
    }

    /// Whether a neuron of a layer is edited anywhere.
    pub(super) fn has_neurons(&self, layer: usize) -> bool {
        let neuron = |e: &Edit| matches!(e.site, Site::Neuron(_));
        self.edits.iter().any(|e| e.layer == layer && neuron(e))
    }

    /// Changes the neurons of a layer at a position, of which `x` holds those from `first` on.
    pub(super) fn change_neurons(
        &self,
        layer: usize,
        position: usize,
        first: usize,
        x: &mut [f32],
    ) {
        for edit in &self.edits {
            let Site::Neuron(n) = edit.site else { continue };
            let here = edit.layer == layer && edit.positions.contains(&position);
            if let Some(x) = n.checked_sub(first).and_then(|i| x.get_mut(i))
                && here
            {
                edit.apply(position, std::slice::from_mut(x));
            }
        }
    }

    /// The rank-one changes of a layer.
    pub(super) fn of_layer(&self, layer: usize) -> impl Iterator<Item = &RankOne> {
        self.rank_one.iter().filter(move |r| r.layer == layer)
    }
}

impl Edit {
    fn apply(&self, position: usize, x: &mut [f32]) {
        match &self.change {
            Change::Zero => x.fill(0.0),
            Change::Scale(by) => x.iter_mut().for_each(|v| *v *= by),
            Change::Replace(values) => {
                let at = (position - self.positions.start) * x.len();
                x.copy_from_slice(&values[at..at + x.len()]);
            }
        }
    }
}

/// Elements of a site.
pub fn site_len(model: &Model, site: Site) -> usize {
    match site {
        Site::Attention | Site::Ffn | Site::Residual => model.hparams.n_embd,
        Site::Head(_) => model.hparams.head_dim_v,
        Site::Neuron(_) => 1,
    }
}

fn check_site(model: &Model, edit: &Edit) -> Result<(), EngineError> {
    let (what, number, count) = match edit.site {
        Site::Attention | Site::Ffn | Site::Residual => return Ok(()),
        Site::Head(h) => ("head", h, model.hparams.n_head),
        Site::Neuron(n) => ("neuron", n, ffn(model, edit.layer).neurons),
    };
    if number < count {
        return Ok(());
    }
    refuse(format!(
        "{what} {number} does not exist: layer {} has {count} of them, counted from 0",
        edit.layer
    ))
}

fn refuse<T>(what: String) -> Result<T, EngineError> {
    Err(EngineError::Edit(what))
}
