//! What a token is expected to take: a median, a spread around it, and growth with context.

use crate::model::brick::BrickId;
use crate::profiler::figures::TokenTime;

/// Distance from the median at which a token is slow, median absolute deviations.
const DEVIATIONS: f64 = 6.0;
/// And how far above the median, relative to it: a quarter of a microsecond is nothing, however steady the rest.
pub(super) const MARGIN: f64 = 0.10;
/// Tokens whose growth can be told from noise.
const GROWTH_FROM: usize = 64;

/// Buffers for medians, so that finding them allocates nothing.
#[derive(Debug, Clone)]
pub(super) struct Scratch {
    values: Vec<f64>,
}

impl Scratch {
    pub fn new(window: usize) -> Self {
        Self {
            values: Vec::with_capacity(window),
        }
    }

    /// The (upper) median; `None` without values.
    pub fn median(&mut self, values: impl Iterator<Item = f64>) -> Option<f64> {
        self.values.clear();
        self.values.extend(values);
        let middle = self.values.len() / 2;
        if self.values.is_empty() {
            return None;
        }
        Some(*self.values.select_nth_unstable_by(middle, f64::total_cmp).1)
    }
}

/// Times of the tokens before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Baseline {
    /// Median at position `middle`, microseconds.
    us: f64,
    /// Median absolute deviation, microseconds.
    pub mad: f64,
    /// Growth of attention with position, microseconds a token; never negative.
    pub slope: f64,
    middle: f64,
}

impl Baseline {
    /// Of tokens, oldest first, with their brick times.
    pub fn of<'a>(
        window: impl Iterator<Item = (u64, &'a TokenTime, &'a [f32; BrickId::COUNT])> + Clone,
        scratch: &mut Scratch,
    ) -> Self {
        let position = |t: &TokenTime| f64::from(t.position);
        let slope = growth(
            window.clone().map(|(_, t, b)| (position(t), attention(b))),
            scratch,
        );
        let middle = scratch
            .median(window.clone().map(|(_, t, _)| position(t)))
            .unwrap_or(0.0);
        let level = window.map(|(_, t, _)| t.us - slope * (position(t) - middle));
        let us = scratch.median(level.clone()).unwrap_or(0.0);
        let mad = scratch.median(level.map(|v| (v - us).abs())).unwrap_or(0.0);
        Self {
            us,
            mad,
            slope,
            middle,
        }
    }

    /// What a token at a position takes, microseconds.
    pub fn expected_us(&self, position: u32) -> f64 {
        // Extrapolated far back, growth must not leave less than nothing.
        (self.us + self.slope * (f64::from(position) - self.middle)).max(self.us * 0.1)
    }

    /// How much longer a token took than expected: in median absolute deviations, and relative to what is expected.
    pub fn excess(&self, token: &TokenTime) -> (f64, f64) {
        let expected = self.expected_us(token.position);
        let excess = token.us - expected;
        // Without any spread, as in modelled time, the relative excess decides.
        (excess / self.mad.max(f64::MIN_POSITIVE), excess / expected)
    }

    pub fn is_slow(&self, token: &TokenTime) -> bool {
        let (deviations, relative) = self.excess(token);
        deviations > DEVIATIONS && relative > MARGIN
    }
}

pub(super) fn attention(brick_us: &[f32; BrickId::COUNT]) -> f64 {
    f64::from(brick_us[BrickId::Attention as usize])
}

/// From the medians of the older and the newer half: how much the second rises with the first.
fn growth(points: impl Iterator<Item = (f64, f64)> + Clone, scratch: &mut Scratch) -> f64 {
    let n = points.clone().count();
    if n < GROWTH_FROM {
        return 0.0;
    }
    let (older, newer) = (points.clone().take(n / 2), points.skip(n / 2));
    let mut middle = |half: &mut dyn Iterator<Item = f64>| scratch.median(half).unwrap_or(0.0);
    let run = middle(&mut newer.clone().map(|p| p.0)) - middle(&mut older.clone().map(|p| p.0));
    let rise = middle(&mut newer.map(|p| p.1)) - middle(&mut older.map(|p| p.1));
    if run >= n as f64 / 4.0 {
        (rise / run).max(0.0)
    } else {
        0.0
    }
}
