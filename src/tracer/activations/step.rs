//! One step held against the rules, in the order of the forward pass.

use super::{DOMINANCE, VARIES_FROM, residual_ratio};
use crate::engine::probe::{ActivationReadings, Limits, Reading};
use crate::tracer::figures::{ActivationAnomaly, ActivationSite, AnomalyKind};

/// A rule broken at a place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Breach<'a> {
    pub(super) kind: AnomalyKind,
    pub(super) layer: Option<u32>,
    pub(super) site: ActivationSite,
    position: u32,
    reading: &'a Reading,
    tokens: u32,
    /// The stream's share, of dominance.
    ratio: f32,
}

/// The lowest positions at which something began that spreads.
#[derive(Debug, Clone, Copy, Default)]
struct Causes {
    nan: Option<u32>,
    infinity: Option<u32>,
    explosion: Option<u32>,
    /// Of the stream, not of a block.
    vanishing: Option<u32>,
}

impl Causes {
    /// Whether something of `kind` at `position` follows from what came before it.
    fn explain(&self, kind: AnomalyKind, position: u32) -> bool {
        let causes: &[Option<u32>] = match kind {
            AnomalyKind::Nan => &[self.nan, self.infinity],
            AnomalyKind::Infinity => &[self.infinity],
            AnomalyKind::Explosion => &[self.explosion, self.infinity],
            // What is divided by an infinity is 0.
            AnomalyKind::Vanishing => &[self.vanishing, self.nan, self.infinity],
            AnomalyKind::ResidualDominance => {
                &[self.explosion, self.vanishing, self.nan, self.infinity]
            }
        };
        causes.iter().flatten().any(|cause| *cause <= position)
    }

    fn add(&mut self, breach: &Breach) {
        let block = matches!(
            breach.site,
            ActivationSite::PostAttention | ActivationSite::PostFfn
        );
        let cause = match breach.kind {
            AnomalyKind::Nan => &mut self.nan,
            AnomalyKind::Infinity => &mut self.infinity,
            AnomalyKind::Explosion => &mut self.explosion,
            AnomalyKind::Vanishing if !block => &mut self.vanishing,
            AnomalyKind::Vanishing | AnomalyKind::ResidualDominance => return,
        };
        *cause = Some(cause.map_or(breach.position, |p| p.min(breach.position)));
    }
}

/// Calls `found` with every breach of the step, in the order of layers, sites and positions, and with whether it is the
/// consequence of an earlier one.
pub(super) fn breaches<'a>(
    readings: &'a ActivationReadings,
    mut found: impl FnMut(&Breach<'a>, bool),
) {
    let mut causes = Causes::default();
    let mut at = |layer: Option<usize>, site, reading| {
        let mut here = at_place(readings, layer, site, reading);
        if here.iter().all(Option::is_none) {
            return;
        }
        // Few, and an unstable sort of a slice allocates nothing.
        here.sort_unstable_by_key(|b| b.as_ref().map_or((u32::MAX, None), order));
        for breach in here.iter().flatten() {
            found(breach, causes.explain(breach.kind, breach.position));
        }
        here.iter().flatten().for_each(|b| causes.add(b));
    };
    at(None, ActivationSite::Embedding, &readings.embedding);
    for (i, [norm, attention, ffn, output]) in readings.layers.iter().enumerate() {
        at(Some(i), ActivationSite::PostNorm, norm);
        at(Some(i), ActivationSite::PostAttention, attention);
        at(Some(i), ActivationSite::PostFfn, ffn);
        at(Some(i), ActivationSite::Output, output);
    }
    at(None, ActivationSite::Logits, &readings.logits);
}

fn order(breach: &Breach) -> (u32, Option<AnomalyKind>) {
    (breach.position, Some(breach.kind))
}

/// The rules broken at one place, one entry a kind.
fn at_place<'a>(
    readings: &ActivationReadings,
    layer: Option<usize>,
    site: ActivationSite,
    reading: &'a Reading,
) -> [Option<Breach<'a>>; 5] {
    let m = &reading.moments;
    let last = readings.position;
    let ratio = match layer {
        Some(i) if site == ActivationSite::Output => residual_ratio(readings, i),
        _ => f32::NAN,
    };
    let breach = |kind, broken: bool, position: Option<u32>| {
        broken.then(|| Breach {
            kind,
            layer: layer.map(|i| i as u32),
            site,
            position: position.unwrap_or(last),
            reading,
            tokens: readings.tokens,
            ratio,
        })
    };
    let judged = match site {
        ActivationSite::Embedding => false,
        ActivationSite::PostNorm | ActivationSite::Output => layer.unwrap_or(0) >= VARIES_FROM,
        ActivationSite::PostAttention | ActivationSite::PostFfn | ActivationSite::Logits => true,
    };
    let holds_first = last < readings.tokens;
    [
        breach(AnomalyKind::Nan, m.nan > 0, reading.nan_at),
        breach(AnomalyKind::Infinity, m.inf > 0, reading.inf_at),
        breach(
            AnomalyKind::Explosion,
            reading.exploded_at.is_some() || magnitude(reading) > Limits::MAGNITUDE,
            reading.exploded_at,
        ),
        breach(
            AnomalyKind::Vanishing,
            judged && reading.vanished_at.is_some(),
            reading.vanished_at,
        ),
        breach(
            AnomalyKind::ResidualDominance,
            ratio > DOMINANCE && !holds_first,
            None,
        ),
    ]
}

/// The largest finite one; nothing of nothing.
fn magnitude(reading: &Reading) -> f32 {
    let m = &reading.moments;
    if m.n == 0 {
        return 0.0;
    }
    m.min.abs().max(m.max.abs())
}

impl Breach<'_> {
    pub(super) fn anomaly(&self) -> ActivationAnomaly {
        let (value, what) = self.value();
        let place = self.place();
        let position = self.position;
        let head = match self.kind {
            AnomalyKind::Nan => "NaN first",
            AnomalyKind::Infinity => "infinity first",
            AnomalyKind::Explosion => "explosion first",
            AnomalyKind::Vanishing => "vanishing",
            AnomalyKind::ResidualDominance => "residual dominance",
        };
        ActivationAnomaly {
            kind: self.kind,
            layer: self.layer,
            site: self.site,
            brick: None,
            position,
            value,
            text: format!("{head} at {place} (position {position}): {what}"),
        }
    }

    /// The value that broke the rule, and in words.
    fn value(&self) -> (f32, String) {
        let m = &self.reading.moments;
        let elements = m.n + m.nan + m.inf;
        let of_all = |n: u64| (n as f32, format!("{n} of {elements} elements"));
        let std = m.std() as f32;
        match self.kind {
            AnomalyKind::Nan => of_all(m.nan),
            AnomalyKind::Infinity => of_all(m.inf),
            AnomalyKind::Explosion => {
                let largest = magnitude(self.reading);
                if largest > Limits::MAGNITUDE {
                    let limit = Limits::MAGNITUDE;
                    let what = format!("magnitude {largest:.2e}, above {limit:e}");
                    return (largest, what);
                }
                let limit = Limits::STD;
                (std, format!("{} above {limit:e}", self.deviation(std)))
            }
            AnomalyKind::Vanishing => {
                let limit = Limits::LEAST_STD;
                let dead = match self.site {
                    ActivationSite::PostAttention => "; attention is dead",
                    ActivationSite::PostFfn => "; the feed-forward block is dead",
                    _ => "",
                };
                let what = format!("{} below {limit:e}{dead}", self.deviation(std));
                (std, what)
            }
            AnomalyKind::ResidualDominance => {
                let ratio = self.ratio;
                let what = format!(
                    "the stream is {ratio:.4} of the layer's norms, above {DOMINANCE}: it adds next to nothing"
                );
                (ratio, what)
            }
        }
    }

    /// Limits are held against single tokens, and what is known is the deviation of all.
    fn deviation(&self, std: f32) -> String {
        if self.tokens > 1 {
            format!(
                "a token's standard deviation (of all {} tokens {std:.2e})",
                self.tokens
            )
        } else {
            format!("standard deviation {std:.2e},")
        }
    }

    fn place(&self) -> String {
        let site = match self.site {
            ActivationSite::Embedding => "the embedding",
            ActivationSite::PostNorm => "input of attention",
            ActivationSite::PostAttention => "after attention",
            ActivationSite::PostFfn => "after the feed-forward block",
            ActivationSite::Output => "output",
            ActivationSite::Logits => "the logits",
        };
        match self.layer {
            Some(layer) => format!("layer {layer}, {site}"),
            None => site.into(),
        }
    }
}
