//! Attention: what heads do with a query, and what that amounts to over all heads.
//!
//! Shares are of the whole softmax, a learned sink included; windows and evicted positions only bound what is seen, and soft
//! caps only shape the scores, so that all of it holds with them.

#[cfg(test)]
mod tests;

use super::figures::{AttentionFinding, AttentionNote, AttentionWeightTrace, HeadPattern};
use crate::engine::probe::AttentionRecord;

/// A head that sees fewer positions is [`HeadPattern::Mixed`] unless it rests on a learned sink: among three, equal weights
/// are a third each.
pub const LEAST_SEEN: u32 = 4;
/// Least share on position 0 and a learned sink of a head that rests.
pub const SINK_SHARE: f32 = 0.5;
/// Least share on the newest positions of a recent head.
pub const RECENT_SHARE: f32 = 0.9;
/// It has to see so many times the newest positions: among few, they have most of the weight whatever it does.
pub const RECENT_SEEN: u32 = 4;
/// Least entropy of a uniform head, as a share of that of equal weights.
pub const UNIFORM_ENTROPY: f32 = 0.95;
/// It has to see so many positions: among few, entropies are close.
pub const UNIFORM_SEEN: u32 = 16;
/// Least share on one position of a focused head.
pub const FOCUS_SHARE: f32 = 0.5;

/// Share of heads that make a note of sinks: most.
pub const SINK_HEADS: f64 = 0.5;
/// Share of the weight that does not rest, on the newest positions, of a head that repeats.
pub const REPETITION_SHARE: f32 = 0.9;
/// A head with less weight that does not rest says nothing about repetition.
pub const LEAST_AWAKE: f32 = 0.05;
/// Share of heads that make a note of repetition: nearly all that say something.
pub const REPETITION_HEADS: f64 = 0.9;
/// Share of heads that have to say something about repetition before it is noted.
pub const REPETITION_JUDGED: f64 = 0.1;
/// Mean share between the first and the newest positions, below which context is lost.
pub const LOST_SHARE: f64 = 0.05;
/// One head with this share there, and it is not.
pub const FOUND_SHARE: f32 = 0.5;
/// Share of heads that make a note of uniform ones: many.
pub const UNIFORM_HEADS: f64 = 0.25;

/// A record as plain data, its weights in descending order.
pub fn trace(record: &AttentionRecord) -> AttentionWeightTrace {
    let sums = &record.sums;
    let top = record.positions.iter().zip(record.weights);
    let mut top: Vec<(u32, f32)> = top
        .take(sums.n_top as usize)
        .map(|(position, weight)| (*position, *weight))
        .collect();
    top.sort_by(|a, b| b.1.total_cmp(&a.1));
    AttentionWeightTrace {
        layer_idx: record.layer as u32,
        head_idx: record.head as u32,
        query_pos: record.query.position,
        top_k_positions: top.iter().map(|(position, _)| *position).collect(),
        top_k_weights: top.iter().map(|(_, weight)| *weight).collect(),
        tail_mass: sums.tail_mass,
        sink_logit_mass: sums.sink_logit_mass,
        entropy: sums.entropy,
        seen: sums.seen,
        first_weight: Some(sums.first_weight).filter(|w| !w.is_nan()),
        recent_mass: sums.recent_mass,
    }
}

/// All weights of a head together: 1, but for rounding.
pub fn mass(head: &AttentionWeightTrace) -> f64 {
    let top: f64 = head.top_k_weights.iter().map(|w| f64::from(*w)).sum();
    top + f64::from(head.tail_mass) + f64::from(head.sink_logit_mass)
}

/// What a head does with a query; `recent` as in [`crate::engine::probe::AttentionProbe::recent`].
///
/// The first that applies: it rests ([`SINK_SHARE`]), it looks at the newest ([`RECENT_SHARE`]), it weighs all alike
/// ([`UNIFORM_ENTROPY`]), it looks at one position ([`FOCUS_SHARE`]), none of these. A share of exactly the threshold is
/// enough. Short contexts and NaN are `Mixed`.
pub fn pattern(head: &AttentionWeightTrace, recent: u32) -> HeadPattern {
    if head.sink_logit_mass >= SINK_SHARE {
        return HeadPattern::Sink;
    }
    if head.seen < LEAST_SEEN {
        return HeadPattern::Mixed;
    }
    if rest(head) >= SINK_SHARE {
        HeadPattern::Sink
    } else if has_middle(head, recent) && head.recent_mass >= RECENT_SHARE {
        HeadPattern::Recent
    } else if evenness(head).is_some_and(|e| e >= UNIFORM_ENTROPY) {
        HeadPattern::Uniform
    } else if head
        .top_k_weights
        .first()
        .is_some_and(|w| *w >= FOCUS_SHARE)
    {
        HeadPattern::Focused
    } else {
        HeadPattern::Mixed
    }
}

/// What rests: on position 0 and on a learned sink.
fn rest(head: &AttentionWeightTrace) -> f32 {
    head.first_weight.unwrap_or(0.0) + head.sink_logit_mass
}

/// Whether it sees enough beside the newest positions to say that it prefers them. Position 0 then is none of them.
fn has_middle(head: &AttentionWeightTrace, recent: u32) -> bool {
    head.seen >= recent.max(1).saturating_mul(RECENT_SEEN)
}

/// Entropy as a share of that of equal weights; `None` where too little is seen. The entropy recorded is that of the
/// weights among themselves: what a learned sink takes is no part of it.
fn evenness(head: &AttentionWeightTrace) -> Option<f32> {
    (head.seen >= UNIFORM_SEEN).then(|| head.entropy / (head.seen as f32).ln())
}

/// What the heads traced at one query amount to, as notes for a user. `windows` by layer, as in
/// [`super::figures::AttentionView::windows`].
///
/// - Sink: at least [`SINK_HEADS`] of the heads that see [`LEAST_SEEN`] positions rest.
/// - Repetition: of the heads with [`LEAST_AWAKE`] of weight that does not rest (at least [`REPETITION_JUDGED`] of all),
///   [`REPETITION_HEADS`] have [`REPETITION_SHARE`] of it on the newest positions.
/// - Lost context: the mean share between the first and the newest positions is below [`LOST_SHARE`], and no head has
///   [`FOUND_SHARE`] there; or no layer sees them all. What windows hide and what was evicted is said with it.
/// - Uniform: at least [`UNIFORM_HEADS`] of the heads that see [`UNIFORM_SEEN`] positions are uniform.
pub fn notes(
    heads: &[AttentionWeightTrace],
    n_layers: u32,
    n_heads: u32,
    recent: u32,
    windows: &[Option<u32>],
) -> Vec<AttentionNote> {
    let all = Heads {
        heads,
        traced: if heads.len() as u64 == u64::from(n_layers) * u64::from(n_heads) {
            ""
        } else {
            " traced"
        },
        recent,
    };
    let hidden = Hidden::of(heads, n_layers, windows);
    let found = [
        (AttentionFinding::Sink, all.sinks()),
        (AttentionFinding::Repetition, all.repetition()),
        (AttentionFinding::LostContext, all.lost(&hidden)),
        (AttentionFinding::Uniform, all.uniform()),
    ];
    let note = |(finding, text): (_, Option<String>)| {
        Some(AttentionNote {
            finding,
            text: text?,
        })
    };
    found.into_iter().filter_map(note).collect()
}

struct Heads<'a> {
    heads: &'a [AttentionWeightTrace],
    /// Said of heads where they are not all heads of the model.
    traced: &'static str,
    recent: u32,
}

/// Whether `part` is at least this `share` of `all`, and there is any.
fn at_least(part: usize, all: usize, share: f64) -> bool {
    all > 0 && part as f64 >= share * all as f64
}

impl Heads<'_> {
    /// How many there are with this pattern.
    fn count(&self, of: HeadPattern) -> usize {
        let is = |h: &&AttentionWeightTrace| pattern(h, self.recent) == of;
        self.heads.iter().filter(is).count()
    }

    /// How many see so many positions.
    fn that_see(&self, positions: u32) -> usize {
        self.heads.iter().filter(|h| h.seen >= positions).count()
    }

    fn sinks(&self) -> Option<String> {
        let (resting, judged) = (self.count(HeadPattern::Sink), self.that_see(LEAST_SEEN));
        if !at_least(resting, judged, SINK_HEADS) {
            return None;
        }
        let learned = if self.heads.iter().any(|h| h.sink_logit_mass > 0.0) {
            " or a learned sink"
        } else {
            ""
        };
        let blind = self
            .heads
            .iter()
            .filter(|h| h.first_weight.is_none())
            .count();
        let blind = match blind {
            0 => String::new(),
            n => format!(" ({n} do not see position 0)"),
        };
        Some(format!(
            "attention sink: {resting} of {} heads{} put at least half their weight on position 0{learned}{blind}",
            self.heads.len(),
            self.traced,
        ))
    }

    fn repetition(&self) -> Option<String> {
        let awake =
            |h: &&AttentionWeightTrace| has_middle(h, self.recent) && 1.0 - rest(h) >= LEAST_AWAKE;
        let judged = self.heads.iter().filter(awake);
        let repeats =
            |h: &&AttentionWeightTrace| h.recent_mass >= REPETITION_SHARE * (1.0 - rest(h));
        let (judged, repeating) = (judged.clone().count(), judged.filter(repeats).count());
        (at_least(judged, self.heads.len(), REPETITION_JUDGED)
            && at_least(repeating, judged, REPETITION_HEADS))
        .then(|| {
            format!(
                "repetition: {repeating} of the {judged} heads{} that do not rest put at least {REPETITION_SHARE} of that weight on the newest {} positions",
                self.traced, self.recent
            )
        })
    }

    fn lost(&self, hidden: &Hidden) -> Option<String> {
        let judged = self.heads.iter().filter(|h| has_middle(h, self.recent));
        let middle = |h: &AttentionWeightTrace| (1.0 - rest(h) - h.recent_mass).max(0.0);
        let n = judged.clone().count();
        let mean = judged.clone().map(|h| f64::from(middle(h))).sum::<f64>() / n.max(1) as f64;
        let most = judged.max_by(|a, b| middle(a).total_cmp(&middle(b)));
        let unused = most.filter(|h| mean < LOST_SHARE && middle(h) < FOUND_SHARE);
        let used = unused.map(|h| {
            format!(
                "on average {n} heads{} put {mean:.3} of their weight on what lies between the first and the newest {} positions (at most {:.3}: layer {}, head {})",
                self.traced,
                self.recent,
                middle(h),
                h.layer_idx,
                h.head_idx
            )
        });
        if used.is_none() && !hidden.is_from_all() {
            return None;
        }
        let parts: Vec<String> = used.into_iter().chain(hidden.words()).collect();
        Some(format!("lost context: {}", parts.join("; ")))
    }

    fn uniform(&self) -> Option<String> {
        let (uniform, judged) = (
            self.count(HeadPattern::Uniform),
            self.that_see(UNIFORM_SEEN),
        );
        at_least(uniform, judged, UNIFORM_HEADS).then(|| {
            format!(
                "uniform heads: {uniform} of {judged} heads{} weigh all they see nearly alike (at least {UNIFORM_ENTROPY} of the entropy of equal weights)",
                self.traced
            )
        })
    }
}

/// Positions that the newest query cannot see.
struct Hidden {
    n_layers: u32,
    /// Layers whose window does not reach back to position 0.
    layers: u32,
    /// Most and fewest positions that a window hides in one of them.
    most: u32,
    fewest: u32,
    /// Positions that no window hides and the cache no longer holds.
    evicted: u32,
}

impl Hidden {
    fn of(heads: &[AttentionWeightTrace], n_layers: u32, windows: &[Option<u32>]) -> Self {
        let positions = heads
            .iter()
            .map(|h| h.query_pos.saturating_add(1))
            .max()
            .unwrap_or(0);
        let behind = windows
            .iter()
            .take(n_layers as usize)
            .flatten()
            .map(|window| positions.saturating_sub(*window))
            .filter(|hidden| *hidden > 0);
        let evicted = |h: &AttentionWeightTrace| {
            let window = windows.get(h.layer_idx as usize).copied().flatten();
            let visible = h
                .query_pos
                .saturating_add(1)
                .min(window.unwrap_or(u32::MAX));
            visible.saturating_sub(h.seen)
        };
        Self {
            n_layers,
            layers: behind.clone().count() as u32,
            most: behind.clone().max().unwrap_or(0),
            fewest: behind.min().unwrap_or(0),
            evicted: heads.iter().map(evicted).max().unwrap_or(0),
        }
    }

    /// Whether there are positions that no layer sees.
    fn is_from_all(&self) -> bool {
        self.evicted > 0 || self.layers > 0 && self.layers == self.n_layers
    }

    /// A clause for windows, and one for the cache.
    fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if self.layers > 0 {
            let hidden = if self.fewest == self.most {
                self.most.to_string()
            } else {
                format!("{} to {}", self.fewest, self.most)
            };
            words.push(format!(
                "sliding windows hide the first {hidden} positions from {} of {} layers",
                self.layers, self.n_layers
            ));
        }
        if self.evicted > 0 {
            words.push(format!(
                "{} positions are no longer in the cache",
                self.evicted
            ));
        }
        words
    }
}
