//! Why a token was slow: the brick that lost most, and what the system did meanwhile.

use super::baseline::{Scratch, attention};
use crate::model::brick::BrickId;
use crate::profiler::figures::{Anomaly, Cause, TokenTime};

/// A context this much longer than that of the tokens compared with can explain a token.
const LONGER: f64 = 1.1;
/// Attention takes at most this much more than in proportion to the context.
const PROPORTION: f64 = 1.25;

/// What tokens usually take by brick, and what usually happens meanwhile.
pub(super) struct Typical {
    us: [f64; BrickId::COUNT],
    /// Growth of attention with position, microseconds a token.
    slope: f64,
    /// Median position.
    position: f64,
    /// Faults read from disk, preemptions, moves, first mappings, as in [`events`].
    events: [u32; 4],
}

/// What was slow and why.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reason {
    brick: Option<BrickId>,
    excess_us: f64,
    cause: Cause,
    /// How often the cause occurred.
    times: u32,
}

/// Counters in the order in which they explain: from the rare and costly to the frequent and cheap.
fn events(token: &TokenTime) -> [Option<u32>; 4] {
    [
        token.major_faults,
        token.preempted,
        token.migrations,
        token.minor_faults,
    ]
}

const CAUSES: [Cause; 4] = [
    Cause::MajorFaults,
    Cause::Preempted,
    Cause::Migrated,
    Cause::MinorFaults,
];

impl Typical {
    /// Medians over tokens.
    pub fn of<'a>(
        window: impl Iterator<Item = (u64, &'a TokenTime, &'a [f32; BrickId::COUNT])> + Clone,
        slope: f64,
        scratch: &mut Scratch,
    ) -> Self {
        let mut median =
            |values: &mut dyn Iterator<Item = f64>| scratch.median(values).unwrap_or(0.0);
        let us =
            std::array::from_fn(|id| median(&mut window.clone().map(|(_, _, b)| f64::from(b[id]))));
        let events = std::array::from_fn(|i| {
            median(
                &mut window
                    .clone()
                    .filter_map(|(_, t, _)| events(t)[i].map(f64::from)),
            ) as u32
        });
        let position = median(&mut window.map(|(_, t, _)| f64::from(t.position)));
        Self {
            us,
            slope,
            position,
            events,
        }
    }

    /// The brick that lost most, and the first cause that applies.
    pub fn reason(&self, token: &TokenTime, brick_us: &[f32; BrickId::COUNT]) -> Reason {
        let ahead = f64::from(token.position) - self.position;
        let excess = |id: BrickId| {
            let grown = if id == BrickId::Attention {
                self.slope * ahead
            } else {
                0.0
            };
            f64::from(brick_us[id as usize]) - self.us[id as usize] - grown
        };
        let lost = BrickId::ALL
            .iter()
            .map(|&id| (id, excess(id)))
            .filter(|(_, us)| *us > 0.0);
        let worst = lost.max_by(|a, b| a.1.total_cmp(&b.1));
        let brick = worst.map(|(id, _)| id);
        let (cause, times) = self.happened(token).unwrap_or_else(|| {
            let cause = match brick {
                Some(BrickId::Sync) => Cause::Imbalance,
                Some(BrickId::Attention) if self.is_context(token, brick_us) => {
                    Cause::LongerContext
                }
                _ => Cause::Unknown,
            };
            (cause, 1)
        });
        Reason {
            brick,
            excess_us: worst.map_or(0.0, |(_, us)| us),
            cause,
            times,
        }
    }

    /// The first counter that is higher than usual.
    fn happened(&self, token: &TokenTime) -> Option<(Cause, u32)> {
        let more = events(token).into_iter().zip(self.events).zip(CAUSES);
        more.filter_map(|((now, usual), cause)| Some((cause, now?.checked_sub(usual)?)))
            .find(|(_, times)| *times > 0)
    }

    /// Whether attention took no longer than its context explains.
    fn is_context(&self, token: &TokenTime, brick_us: &[f32; BrickId::COUNT]) -> bool {
        let longer = f64::from(token.position) / self.position.max(1.0);
        let usual = self.us[BrickId::Attention as usize];
        longer >= LONGER && attention(brick_us) <= usual * longer * PROPORTION
    }
}

/// A slow token as it is kept: put into words only when somebody asks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub seq: u64,
    position: u32,
    us: f64,
    expected_us: f64,
    reason: Reason,
    by_rule: bool,
    pub by_clusters: bool,
}

impl Found {
    /// `by`: whether the rule, and whether clustering found it.
    pub fn new(
        seq: u64,
        token: &TokenTime,
        expected_us: f64,
        reason: Reason,
        by: (bool, bool),
    ) -> Self {
        Self {
            seq,
            position: token.position,
            us: token.us,
            expected_us,
            reason,
            by_rule: by.0,
            by_clusters: by.1,
        }
    }

    pub fn anomaly(&self) -> Anomaly {
        Anomaly {
            position: self.position,
            us: self.us,
            expected_us: self.expected_us,
            brick: self.reason.brick,
            excess_us: self.reason.excess_us,
            cause: self.reason.cause,
            says: self.says(),
            by_rule: self.by_rule,
            by_clusters: self.by_clusters,
        }
    }

    fn says(&self) -> String {
        let Reason {
            brick,
            excess_us,
            cause,
            times,
        } = self.reason;
        let what = brick.map(|id| {
            let who = match id {
                BrickId::Sync => "waiting at barriers",
                BrickId::Unattributed => "time outside the bricks",
                other => other.name(),
            };
            format!("{who} took {} more", duration(excess_us))
        });
        let n = |one: &str, many: &str| match times {
            1 => one.to_owned(),
            n => format!("{n} {many}"),
        };
        let why = match cause {
            Cause::MajorFaults => format!("while {} read from disk", n("a page was", "pages were")),
            Cause::Preempted => {
                format!(
                    "while the scheduler took the CPU away {}",
                    n("once", "times")
                )
            }
            Cause::Migrated => format!(
                "while {} to another core",
                n("a thread moved", "threads moved")
            ),
            Cause::MinorFaults => {
                format!(
                    "while {} mapped for the first time",
                    n("a page was", "pages were")
                )
            }
            Cause::Imbalance => "for a thread that was late".into(),
            Cause::LongerContext => "with a longer context".into(),
            Cause::Unknown => "and no counter says why".into(),
        };
        let times = format!(
            "{} instead of {}",
            duration(self.us),
            duration(self.expected_us)
        );
        match what {
            Some(what) => format!("{times}: {what} {why}"),
            None if cause == Cause::Unknown => format!("{times}, {why}"),
            None => format!("{times} {why}"),
        }
    }
}

fn duration(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{:.2} s", us * 1e-6),
        us if us >= 1e3 => format!("{:.1} ms", us * 1e-3),
        us if us >= 10.0 => format!("{us:.0} us"),
        us => format!("{us:.1} us"),
    }
}
