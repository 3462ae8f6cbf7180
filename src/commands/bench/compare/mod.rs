//! `--compare llama.cpp`: the same tests on llama.cpp, in turns with ours, so that drift of the machine hits both.
//!
//! Every repetition of either side is warmed up by itself; the side that begins alternates. The peer runs in a process of
//! its own, killed when the user interrupts.

mod child;
mod peer;

pub(super) use peer::Peer;

use super::measure;
use super::plan::Case;
use anyhow::Context;
use cbtop::model::Model;
use clap::ValueEnum;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// Programs that `--compare` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PeerName {
    /// llama-bench from PATH, or Python with llama-cpp-python.
    #[value(name = "llama.cpp")]
    LlamaCpp,
}

/// What the peer reached on one test, repetition by repetition beside ours.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Beside {
    /// Program and version.
    pub build: String,
    /// Wall time of every repetition of the peer, nanoseconds.
    pub samples_ns: Vec<u64>,
}

impl Beside {
    /// Our rate over the peer's, of every round. Both process the same tokens, so it is the peer's time over ours.
    pub fn ratios(&self, ours_ns: &[u64]) -> Vec<f64> {
        ours_ns
            .iter()
            .zip(&self.samples_ns)
            .map(|(&ours, &peer)| peer as f64 / ours as f64)
            .collect()
    }

    /// The fields of a row; `tokens` are those of a repetition.
    pub fn fields(&self, tokens: f64, ours_ns: &[u64]) -> Vec<(&'static str, Value)> {
        let (mean, deviation) = super::record::mean_and_stddev(&self.samples_ts(tokens));
        let [low, median, high] = quartiles(&self.ratios(ours_ns));
        vec![
            ("peer_build", json!(self.build)),
            ("peer_avg_ts", json!(mean)),
            ("peer_stddev_ts", json!(deviation)),
            ("ratio", json!(median)),
            ("ratio_q1", json!(low)),
            ("ratio_q3", json!(high)),
        ]
    }

    /// Tokens a second of every repetition of the peer.
    pub fn samples_ts(&self, tokens: f64) -> Vec<f64> {
        self.samples_ns
            .iter()
            .map(|&ns| 1e9 * tokens / ns as f64)
            .collect()
    }
}

/// First quartile, median, third quartile, interpolated; zeroes of nothing.
pub(super) fn quartiles(values: &[f64]) -> [f64; 3] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    [0.25, 0.5, 0.75].map(|q| {
        let at = q * sorted.len().saturating_sub(1) as f64;
        let value = |i: usize| sorted.get(i).or(sorted.last()).copied().unwrap_or_default();
        let (low, high) = (value(at.floor() as usize), value(at.ceil() as usize));
        low + (high - low) * at.fract()
    })
}

/// Wall times of our repetitions, and the peer's beside them.
///
/// # Errors
/// Those of either side; a peer that fails, or prints what is not a result of this test, is named.
pub(super) fn alternate(
    peer: &mut Peer,
    model: &Arc<Model>,
    file: &Path,
    case: &Case,
    repetitions: u32,
    warmup: bool,
    say: impl Fn(&str),
) -> anyhow::Result<(Vec<u64>, Beside)> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut build = String::new();
    for round in 0..repetitions {
        say(&format!("round {}/{repetitions}", round + 1));
        for turn in 0..2 {
            if (turn + round) % 2 == 0 {
                ours.extend(measure::measure(model, case, 1, warmup, |_| ())?);
            } else {
                let (name, ns) = peer
                    .measure(file, case, warmup)
                    .with_context(|| format!("--compare llama.cpp, {}", case.label()))?;
                theirs.push(ns);
                build = name;
            }
        }
    }
    Ok((
        ours,
        Beside {
            build,
            samples_ns: theirs,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::{Beside, quartiles};
    use proptest::prelude::*;

    #[test]
    fn quartiles_interpolate() {
        assert_eq!(quartiles(&[4.0, 1.0, 3.0, 2.0, 5.0]), [2.0, 3.0, 4.0]);
        assert_eq!(quartiles(&[1.0, 2.0]), [1.25, 1.5, 1.75]);
        assert_eq!(quartiles(&[7.0]), [7.0; 3]);
        assert_eq!(quartiles(&[]), [0.0; 3]);
    }

    #[test]
    fn a_ratio_is_of_rates() {
        let beside = Beside {
            build: "peer".into(),
            samples_ns: vec![3_000, 1_000],
        };
        assert_eq!(beside.ratios(&[1_000, 2_000]), [3.0, 0.5]);
        assert_eq!(beside.samples_ts(3.0), [1e6, 3e6]);
    }

    proptest! {
        #[test]
        fn quartiles_lie_in_order_within(values in prop::collection::vec(0.0..1e9f64, 1..30)) {
            let [low, median, high] = quartiles(&values);
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(0.0, f64::max);
            prop_assert!(least <= low && low <= median && median <= high && high <= most);
        }
    }
}
