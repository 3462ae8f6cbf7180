//! A slower kernel set than this CPU can run.

use super::{Finding, Rule};
use crate::profiler::critical::bound_shares;
use crate::tuner::Change;
use crate::tuner::facts::Facts;

/// Better kernels can run here.
pub struct BetterKernels;

impl Rule for BetterKernels {
    fn id(&self) -> &'static str {
        "kernels"
    }

    fn check(&self, f: &Facts) -> Option<Finding> {
        let now = f.engine.kernels.as_str();
        let best = *f.kernels_available.last()?;
        if best == now || !f.kernels_available.contains(&now) {
            return None;
        }
        // Only what compute limits can gain; with no roof known there is no share to tell.
        let gains = f
            .decode_rate()
            .and_then(|_| bound_shares(f.bricks, f.roof()))
            .filter(|s| s.unknown == 0.0);
        let gains = gains.map(|s| {
            format!(
                "; {:.0}% of a token is limited by compute and can gain",
                s.compute * 100.0
            )
        });
        Some(Finding {
            title: format!("Use the {best} kernels instead of {now}"),
            why: format!(
                "This CPU ({}) runs the {best} kernels, {now} is in use{}",
                f.machine.isa,
                gains.unwrap_or_default()
            ),
            expected: None,
            change: Some(Change::one("backend", best)),
        })
    }
}
