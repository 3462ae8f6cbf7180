//! Decode at the memory's limit: said as it is.

use super::{Finding, Rule};
use crate::profiler::critical::CACHED_SHARE;
use crate::tuner::facts::{Facts, megabytes};

/// From this share of the probed bandwidth on, nothing but fewer bytes helps.
const AT_THE_LIMIT: f64 = 0.8;
/// More threads may still draw this much more.
const ROOM: f64 = 1.1;

/// No knob is left.
pub struct FewerBytes;

impl Rule for FewerBytes {
    fn id(&self) -> &'static str {
        "fewer-bytes"
    }

    fn check(&self, f: &Facts) -> Option<Finding> {
        let rate = f.decode_rate()?;
        let (got, roof) = (f.rates.decode_gbps?, f.roof().gbps()?);
        let share = got / roof;
        let highest = f.bandwidth.iter().map(|b| b.gbps).fold(roof, f64::max);
        if !(AT_THE_LIMIT..=CACHED_SHARE).contains(&share) || highest > roof * ROOM {
            return None;
        }
        let bytes = got * 1e9 / rate;
        // File bytes, not those of one token: a token reads one row of the embedding and, of experts, a few.
        let bits = f.model.file_bytes as f64 * 8.0 / f.model.params.max(1) as f64;
        Some(Finding {
            title: "Use a smaller quantisation: decode runs at the memory's limit".to_owned(),
            why: format!(
                "A token moves {} at {got:.1} GB/s, {:.0}% of this machine's {roof:.1} GB/s: no setting brings more than {:.1} tok/s. \
                 {} has {bits:.1} bits a weight; a tenth fewer bytes brings about {:.1} tok/s",
                megabytes(bytes as u64),
                share * 100.0,
                rate / share.min(1.0),
                f.model.quantisation,
                rate / 0.9 - rate,
            ),
            expected: None,
            change: None,
        })
    }
}
