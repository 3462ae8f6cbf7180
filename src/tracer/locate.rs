//! The brick in which something first went wrong, found by running the step again.

use super::figures::{ActivationAnomaly, ActivationSite, AnomalyKind};
use crate::engine::probe::Limits;
use crate::engine::tensor_stats::Moments;
use crate::engine::{Engine, EngineError, Observer};
use crate::model::Op;
use crate::model::brick::BrickId;

/// The first brick of the last step that wrote, for the anomaly's token, what the anomaly is about; `None` where none did.
///
/// What has vanished is looked for in the anomaly's own layer: elsewhere it may be as it should be.
///
/// # Errors
/// As [`Engine::rerun`].
pub fn first_brick<O: Observer>(
    engine: &mut Engine<O>,
    anomaly: &ActivationAnomaly,
) -> Result<Option<BrickId>, EngineError> {
    let model = engine.model().clone();
    let tokens = engine.step_places(0);
    let Some(token) = tokens.iter().position(|p| *p == anomaly.position as usize) else {
        return Ok(None);
    };
    let mut found = None;
    engine.rerun(&mut |i, vector| {
        let Some(brick) = model.plan.bricks.get(i) else {
            return false;
        };
        let here = match anomaly.kind {
            AnomalyKind::Vanishing => {
                let layer = brick.layer.map(|l| l as u32);
                layer == anomaly.layer && matters(&brick.op, anomaly.site, brick.id)
            }
            _ => true,
        };
        if here && vector.token == token && breaks(anomaly.kind, vector.output) {
            found = Some(brick.id);
        }
        found.is_none()
    })?;
    Ok(found)
}

/// Whether a brick is on the way to what has vanished: of what a block adds, only the block's own.
fn matters(op: &Op, site: ActivationSite, id: BrickId) -> bool {
    use crate::model::brick::Category::{Attention, Ffn};
    match site {
        ActivationSite::PostAttention => {
            id.category() == Attention || matches!(id, BrickId::AttnNorm | BrickId::AttnPostNorm)
        }
        ActivationSite::PostFfn => {
            id.category() == Ffn || matches!(id, BrickId::FfnNorm | BrickId::FfnPostNorm)
        }
        _ => !matches!(op, Op::Route { .. }),
    }
}

fn breaks(kind: AnomalyKind, x: &[f32]) -> bool {
    match kind {
        AnomalyKind::Nan => x.iter().any(|v| v.is_nan()),
        AnomalyKind::Infinity => x.iter().any(|v| v.is_infinite()),
        AnomalyKind::Explosion => {
            let moments = moments(x);
            x.iter()
                .any(|v| v.is_finite() && v.abs() > Limits::MAGNITUDE)
                || moments.std() > Limits::STD
        }
        AnomalyKind::Vanishing => moments(x).std() < Limits::LEAST_STD,
        AnomalyKind::ResidualDominance => false,
    }
}

fn moments(x: &[f32]) -> Moments {
    (crate::engine::cpu::float_ops(crate::engine::cpu::KernelSet::Scalar).moments)(x)
}
