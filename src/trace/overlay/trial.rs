//! Forward passes of a fact being made: what is seen at the end of a prompt, and which way its answer lies.

use super::OverlayError;
use super::search::Goal;
use super::whiten::Background;
use crate::engine::capture::{Capture, Captured, Part, Which};
use crate::engine::edit::{Edits, RankOne};
use crate::model::brick::BrickId;
use crate::model::{Model, Op, Vector};
use crate::trace::attribution::Head;
use crate::trace::forward::Forward;
use crate::trace::readout::Distribution;
use crate::trace::vector::norm;
use std::sync::Arc;

/// Positions of a text, from its end, whose inputs go into the background; its first one does too, since many models have
/// inputs there that are far larger than elsewhere.
const POSITIONS: usize = 8;
/// The same of the fact's own prompt.
pub(super) const OWN_POSITIONS: usize = 31;
/// Other tokens that a direction leads away from.
const RIVALS: usize = 16;

/// What a run left behind.
pub(super) struct Seen {
    /// What the model says at the end.
    pub end: Distribution,
    /// The stream there after the last layer.
    pub last: Vec<f32>,
    /// Of every layer asked for, the input of its rank-one change at the end, `[key_len]`.
    pub keys: Vec<Vec<f32>>,
    /// Of every layer asked for, the length of what the block adds at the end.
    pub ffn: Vec<f64>,
    /// Of every layer asked for, the inputs at positions before the end.
    pub before: Vec<Background>,
}

/// Runs `ids` under rank-one changes, and looks at `layers`; `text` names the text in the background.
pub(super) fn look(
    forward: &mut dyn Forward,
    ids: &[u32],
    rank_one: &[RankOne],
    layers: &[usize],
    (text, positions): (usize, usize),
) -> Result<Seen, OverlayError> {
    let model = forward.model();
    let n_layers = model.hparams.n_layers;
    let end = ids.len().saturating_sub(1);
    let capture = Capture {
        which: Which::All,
        heads: false,
        keys: true,
    };
    let mut last = Vec::new();
    let mut keys = vec![Vec::new(); layers.len()];
    let mut ffn = vec![0.0; layers.len()];
    let mut before = vec![Background::default(); layers.len()];
    let edits = Edits::new(model, Vec::new(), rank_one.to_vec())?;
    let logits = run(forward, ids, edits, capture, &mut |c| {
        let at_end = c.position == end;
        if at_end && c.layer == n_layers && c.part == Part::Residual {
            last = c.data.to_vec();
        }
        let Some(l) = layers.iter().position(|l| *l == c.layer) else {
            return;
        };
        match c.part {
            Part::FfnDelta if at_end => ffn[l] = norm(c.data),
            Part::Key if at_end => keys[l] = c.data.to_vec(),
            Part::Key if c.position == 0 || c.position + positions >= end => {
                before[l].push(c.data, text);
            }
            _ => {}
        }
    })?;
    Ok(Seen {
        end: Distribution::new(&logits),
        last,
        keys,
        ffn,
        before,
    })
}

/// Inputs of `layers` at a text of the background, its end included, and what is said there.
pub(super) fn look_around(
    forward: &mut dyn Forward,
    ids: &[u32],
    rank_one: &[RankOne],
    layers: &[usize],
    (text, whole): (usize, bool),
    into: &mut [Background],
) -> Result<Distribution, OverlayError> {
    let positions = if whole { POSITIONS - 1 } else { 0 };
    let seen = look(forward, ids, rank_one, layers, (text, positions))?;
    for ((key, before), into) in seen.keys.iter().zip(&seen.before).zip(into) {
        into.push(key, text);
        if whole {
            into.extend(before);
        }
    }
    Ok(seen.end)
}

/// What the model says after `ids` under rank-one changes.
pub(super) fn say(
    forward: &mut dyn Forward,
    ids: &[u32],
    rank_one: &[RankOne],
) -> Result<Distribution, OverlayError> {
    let edits = Edits::new(forward.model(), Vec::new(), rank_one.to_vec())?;
    let logits = run(forward, ids, edits, Capture::LAST, &mut |_| {})?;
    Ok(Distribution::new(&logits))
}

/// Runs under edits, and leaves none behind.
fn run(
    forward: &mut dyn Forward,
    ids: &[u32],
    edits: Edits,
    capture: Capture,
    sink: &mut dyn FnMut(Captured<'_>),
) -> Result<Vec<f32>, OverlayError> {
    let edits = (!edits.is_empty()).then(|| Arc::new(edits));
    Ok(forward.run_under(edits, ids, capture, sink)?)
}

/// Which way the stream has to go for a token to be said, or not to be, at the place of `seen`: the gradient of its log
/// probability as if nothing but the final norm, its scale kept, came after; through the block's post-norm where the
/// layer has one. Length 1; zero where there is no way.
pub(super) fn direction(
    model: &Model,
    layer: usize,
    seen: &Seen,
    token: u32,
    goal: Goal,
) -> Result<Vec<f32>, OverlayError> {
    let head = Head::new(model)?;
    let rivals = seen.end.top(RIVALS + 1).into_iter();
    let mut rivals: Vec<(u32, f64)> = rivals.filter(|(id, _)| *id != token).collect();
    rivals.truncate(RIVALS);
    let sum: f64 = rivals.iter().map(|r| r.1).sum();
    let mut way = head.direction(token, &seen.last)?.weights;
    for (rival, prob) in &rivals {
        // Where a token has all the probability, its rivals are told apart by rank alone.
        let share = if sum > 0.0 {
            prob / sum
        } else {
            1.0 / rivals.len() as f64
        };
        for (w, r) in way
            .iter_mut()
            .zip(head.direction(*rival, &seen.last)?.weights)
        {
            *w -= share * r;
        }
    }
    if let Some(weights) = post_norm(model, layer) {
        way.iter_mut()
            .zip(weights.iter())
            .for_each(|(w, n)| *w *= f64::from(*n));
    }
    let length = way.iter().map(|w| w * w).sum::<f64>().sqrt();
    let sign = match goal {
        Goal::Say(_) => 1.0,
        Goal::Silence(_) => -1.0,
    };
    let by = if length > 0.0 && length.is_finite() {
        sign / length
    } else {
        0.0
    };
    Ok(way.iter().map(|w| (w * by) as f32).collect())
}

/// Weights of the norm behind a layer's feed-forward block, where it has one.
fn post_norm(model: &Model, layer: usize) -> Option<&Vector> {
    let starts = &model.plan.layer_starts;
    let (start, end) = (*starts.get(layer.checked_sub(1)?)?, *starts.get(layer)?);
    let bricks = model.plan.bricks.get(start..end)?;
    let norm = bricks.iter().find(|b| b.id == BrickId::FfnPostNorm)?;
    match &norm.op {
        Op::Norm { weight, .. } => Some(weight),
        _ => None,
    }
}
