//! The bricks in which something first went wrong, found by running the step again.

use super::figures::{ActivationAnomaly, ActivationSite, AnomalyKind};
use crate::engine::cpu::{KernelSet, float_ops};
use crate::engine::probe::Limits;
use crate::engine::tensor_stats::Moments;
use crate::engine::{Engine, EngineError, Observer};
use crate::model::Brick;
use crate::model::brick::BrickId;

/// For each anomaly of the last step the first brick of its own layer that wrote, for its token, what it is about; `None`
/// where none did.
///
/// # Errors
/// As [`Engine::rerun`].
pub fn first_bricks<O: Observer>(
    engine: &mut Engine<O>,
    anomalies: &[ActivationAnomaly],
) -> Result<Vec<Option<BrickId>>, EngineError> {
    let model = engine.model().clone();
    let places = engine.step_places(0);
    let token = |a: &ActivationAnomaly| places.iter().position(|p| *p == a.position as usize);
    let tokens: Vec<Option<usize>> = anomalies.iter().map(token).collect();
    let mut found = vec![None; anomalies.len()];
    engine.rerun(&mut |i, vector| {
        let Some(brick) = model.plan.bricks.get(i) else {
            return false;
        };
        for ((anomaly, token), found) in anomalies.iter().zip(&tokens).zip(&mut found) {
            if found.is_none()
                && *token == Some(vector.token)
                && leads_to(brick, anomaly)
                && breaks(anomaly.kind, vector.output)
            {
                *found = Some(brick.id);
            }
        }
        found.iter().any(Option::is_none)
    })?;
    Ok(found)
}

/// Whether a brick is on the way to where an anomaly was noticed: in its layer, and of what a block adds, of the block. What
/// is wrong elsewhere was noticed there, or has come right again.
fn leads_to(brick: &Brick, anomaly: &ActivationAnomaly) -> bool {
    use crate::model::brick::Category::{Attention, Ffn};
    let id = brick.id;
    if brick.layer.map(|l| l as u32) != anomaly.layer {
        return false;
    }
    match anomaly.site {
        ActivationSite::Embedding => id == BrickId::Embed,
        ActivationSite::Logits => id != BrickId::Embed,
        ActivationSite::PostNorm => id == BrickId::AttnNorm,
        ActivationSite::PostAttention => {
            id.category() == Attention || matches!(id, BrickId::AttnNorm | BrickId::AttnPostNorm)
        }
        ActivationSite::PostFfn => {
            id.category() == Ffn || matches!(id, BrickId::FfnNorm | BrickId::FfnPostNorm)
        }
        ActivationSite::Output => true,
    }
}

fn breaks(kind: AnomalyKind, x: &[f32]) -> bool {
    match kind {
        AnomalyKind::Nan => x.iter().any(|v| v.is_nan()),
        AnomalyKind::Infinity => x.iter().any(|v| v.is_infinite()),
        AnomalyKind::Explosion => {
            let large = |v: &f32| v.is_finite() && v.abs() > Limits::MAGNITUDE;
            x.iter().any(large) || moments(x).std() > Limits::STD
        }
        AnomalyKind::Vanishing => moments(x).std() < Limits::LEAST_STD,
        AnomalyKind::ResidualDominance => false,
    }
}

fn moments(x: &[f32]) -> Moments {
    (float_ops(KernelSet::Scalar).moments)(x)
}
