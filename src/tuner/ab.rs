//! What a change brings: tokens with it and without it in turns, and whether it is kept.
//!
//! A pure state machine: the session feeds it times and does what it asks. Blocks are run in the order present, changed,
//! changed, present, so that whatever drifts evenly (a growing context, a warming processor) is in both sides alike. Every
//! four blocks give one ratio of rates. The change is kept where the interval of these ratios leaves out 1; the interval is
//! that of Hodges and Lehmann's estimate, exact for any distribution that is symmetric (Hollander, Wolfe and Chicken,
//! "Nonparametric Statistical Methods", 3rd ed. 2014, section 3.3).

#[cfg(test)]
mod tests;

use crate::tuner::recommendation::RecommendationStatus;

/// Tokens of a block.
pub const BLOCK: usize = 4;
/// Tokens that are not counted where the engine was switched: its threads wake, its weights and cache come back.
pub const SETTLE: usize = 2;
/// Groups of four blocks at most.
pub const GROUPS: usize = 16;
/// After so many groups it is looked at, with this chance of keeping a change that brings nothing; 2.5% in sum.
const LOOKS: [(usize, f64); 3] = [(8, 0.004), (12, 0.008), (GROUPS, 0.013)];
/// One-sided level of an interval that nothing is kept by.
const LEVEL: f64 = 0.025;
/// A change that is slower by this in each of the first three groups is given up at once.
const CLEARLY_SLOWER: f64 = -0.02;

/// Without and with the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// As it was.
    Present,
    /// With the change made.
    Changed,
}

/// The sides of the blocks of a group.
const ORDER: [Side; 4] = [Side::Present, Side::Changed, Side::Changed, Side::Present];

/// What the session does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Go on and feed the next time.
    Continue,
    /// Go on with this side.
    Use(Side),
    /// The outcome is there and says which side stays.
    Done,
}

/// A comparison in progress or done.
#[derive(Debug, Clone)]
pub struct AbTest {
    /// Times of a block, and those not counted after a switch.
    block: usize,
    settle: usize,
    /// Groups still to be thrown away: the first use of memory and caches is in them.
    unused: usize,
    to_skip: usize,
    /// Times of the block in progress, and of the finished blocks of the group, microseconds.
    times: Vec<f64>,
    blocks: Vec<Vec<f64>>,
    /// Times of whole groups by side, microseconds.
    present: Vec<f64>,
    changed: Vec<f64>,
    /// Logarithms of the ratio of rates, changed by present, one for every group.
    ratios: Vec<f64>,
    /// Groups finished since the last interruption.
    since: usize,
    fed: usize,
    outcome: Option<Outcome>,
}

/// What came out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Median rate without the change, tokens a second.
    pub before_tok_s: f64,
    /// That rate times the estimated ratio.
    pub after_tok_s: f64,
    /// 95% interval of the ratio, changed by present.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Whether the change stays.
    pub kept: bool,
    /// Times counted of both sides.
    pub counted: usize,
}

impl AbTest {
    /// Compares single tokens.
    pub fn of_tokens() -> Self {
        Self::new(BLOCK, SETTLE, 0)
    }

    /// Compares whole prompts.
    pub fn of_prompts() -> Self {
        Self::new(1, 0, 1)
    }

    fn new(block: usize, settle: usize, unused: usize) -> Self {
        let times = GROUPS * 2 * block;
        Self {
            block,
            settle,
            unused,
            to_skip: settle,
            times: Vec::with_capacity(block),
            blocks: Vec::with_capacity(ORDER.len()),
            present: Vec::with_capacity(times),
            changed: Vec::with_capacity(times),
            ratios: Vec::with_capacity(GROUPS),
            since: 0,
            fed: 0,
            outcome: None,
        }
    }

    /// The side that the next time is of.
    pub fn side(&self) -> Side {
        ORDER[self.blocks.len() % ORDER.len()]
    }

    /// The next token or prompt took `us` microseconds in the engine. Times that are none are not counted.
    pub fn feed(&mut self, us: f64) -> Action {
        if self.outcome.is_some() {
            return Action::Done;
        }
        if !(us.is_finite() && us > 0.0) {
            return Action::Continue;
        }
        self.fed += 1;
        if self.to_skip > 0 {
            self.to_skip -= 1;
            return Action::Continue;
        }
        self.times.push(us);
        if self.times.len() < self.block {
            return Action::Continue;
        }
        let before = self.side();
        self.blocks.push(std::mem::take(&mut self.times));
        if self.blocks.len() == ORDER.len() {
            self.end_group();
            if self.outcome.is_some() {
                return Action::Done;
            }
        }
        self.switch_from(before)
    }

    fn switch_from(&mut self, before: Side) -> Action {
        let side = self.side();
        if side == before {
            return Action::Continue;
        }
        self.to_skip = self.settle;
        Action::Use(side)
    }

    fn end_group(&mut self) {
        let blocks = std::mem::take(&mut self.blocks);
        self.since += 1;
        if self.unused > 0 {
            self.unused -= 1;
            return;
        }
        // Times are the inverse of rates.
        let mut ratio = 0.0;
        for (side, block) in ORDER.iter().zip(&blocks) {
            let half = median(block).unwrap_or(1.0).ln() / 2.0;
            match side {
                Side::Present => {
                    ratio += half;
                    self.present.extend(block);
                }
                Side::Changed => {
                    ratio -= half;
                    self.changed.extend(block);
                }
            }
        }
        self.ratios.push(ratio);
        if let Some((kept, level)) = verdict(&self.ratios) {
            self.outcome = self.result(kept, level);
        }
    }

    fn result(&self, kept: bool, level: f64) -> Option<Outcome> {
        let before_tok_s = 1e6 / median(&self.present)?;
        let (low, mid, high) = interval(&self.ratios, level)?;
        Some(Outcome {
            before_tok_s,
            after_tok_s: before_tok_s * mid.exp(),
            low: low.exp(),
            high: high.exp(),
            kept,
            counted: self.present.len() + self.changed.len(),
        })
    }

    /// Another run begins: its context is shorter, so that the blocks of a group would not belong together. A group that
    /// has begun is run again, unless runs are shorter than a group; then nothing better can be had.
    pub fn interrupt(&mut self) -> Action {
        let whole = std::mem::take(&mut self.since) > 0;
        self.to_skip = self.settle;
        if self.outcome.is_some() || !whole {
            return Action::Continue;
        }
        let before = self.side();
        self.blocks.clear();
        self.times.clear();
        self.switch_from(before)
    }

    /// The result, once there.
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// For the recommendation.
    pub fn status(&self) -> RecommendationStatus {
        match self.outcome {
            Some(o) => o.status(),
            None => {
                let group = ORDER.len() * self.block + 2 * self.settle;
                let total = group * GROUPS;
                RecommendationStatus::Measuring {
                    done: self.fed.min(total) as u32,
                    total: total as u32,
                }
            }
        }
    }
}

impl Outcome {
    /// For a recommendation that was decided on.
    pub fn status(&self) -> RecommendationStatus {
        let (before_tok_s, after_tok_s) = (self.before_tok_s, self.after_tok_s);
        let (spread, significant) = (self.spread(), self.significant());
        if self.kept {
            RecommendationStatus::Applied {
                before_tok_s,
                after_tok_s,
                spread,
                significant,
            }
        } else {
            RecommendationStatus::Reverted {
                before_tok_s,
                after_tok_s,
                spread,
                significant,
            }
        }
    }

    /// Rate with the change by the rate without it.
    pub fn ratio(&self) -> f64 {
        self.after_tok_s / self.before_tok_s
    }

    /// From the ratio to that end of its interval which is nearer to 1, as a share of the ratio: it is less than the gain or
    /// loss where the interval leaves out 1.
    pub fn spread(&self) -> f64 {
        let ratio = self.ratio();
        let end = if ratio >= 1.0 { self.low } else { self.high };
        (ratio - end).abs() / ratio
    }

    /// Half the width of the interval, in logarithms.
    pub fn half_width(&self) -> f64 {
        (self.high / self.low).ln() / 2.0
    }

    /// Whether the interval leaves out 1.
    pub fn significant(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }

    /// One sentence for the user, without its full stop.
    pub fn sentence(&self) -> String {
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let decided = match (self.kept, self.high < 1.0) {
            (true, _) => "faster, kept",
            (false, true) => "slower, taken back",
            (false, false) => "no gain, taken back",
        };
        format!(
            "{:.1} -> {:.1} tok/s ({:+.1}%, 95% interval {:+.1}% to {:+.1}%): {decided}",
            self.before_tok_s,
            self.after_tok_s,
            percent(self.ratio()),
            percent(self.low),
            percent(self.high),
        )
    }
}

/// Whether a change with these logarithms of ratios is kept, and the level of the interval that says so; `None` while it
/// is open.
///
/// Giving up early never keeps a change that brings nothing, so it may be done on little; keeping has its share of
/// [`LOOKS`].
fn verdict(ratios: &[f64]) -> Option<(bool, f64)> {
    let all_below = |limit: f64| ratios.iter().all(|r| *r < limit);
    match ratios.len() {
        0..=2 => None,
        3..=5 => all_below(CLEARLY_SLOWER).then_some((false, LEVEL)),
        6..=7 => all_below(0.0).then_some((false, LEVEL)),
        n => {
            let (_, level) = LOOKS.iter().find(|(at, _)| *at == n)?;
            let (low, mid, _) = interval(ratios, *level)?;
            if low > 0.0 {
                Some((true, *level))
            } else if n >= GROUPS {
                // The interval that did not suffice to keep it, lest one that looks like a gain is shown beside its end.
                Some((false, *level))
            } else if mid <= 0.0 {
                Some((false, LEVEL))
            } else {
                None
            }
        }
    }
}

/// Hodges and Lehmann's estimate of the centre, and its interval at a one-sided level; with too few values for that level
/// the interval is Student's at 2.5%. `None` with fewer than two.
fn interval(values: &[f64], level: f64) -> Option<(f64, f64, f64)> {
    let mut means: Vec<f64> = values
        .iter()
        .enumerate()
        .flat_map(|(i, a)| values.iter().skip(i).map(move |b| (a + b) / 2.0))
        .collect();
    means.sort_by(f64::total_cmp);
    let mid = median(&means)?;
    match signed_rank(values.len(), level) {
        Some(k) => Some((*means.get(k)?, mid, *means.get(means.len() - 1 - k)?)),
        None => {
            let n = values.len() as f64;
            let mean = values.iter().sum::<f64>() / n;
            let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
            // Quantiles of Student's t at 2.5% for one degree of freedom and more.
            const T: [f64; 7] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365];
            let t = *T.get(values.len().checked_sub(2)?)?;
            let half = t * (squares / (n - 1.0) / n).sqrt();
            Some((mid - half, mid, mid + half))
        }
    }
}

/// Pairwise means to leave out on either side so that the interval's one-sided level is at most `level`: the distribution
/// of the signed rank statistic, counted. `None` where even the widest interval is above it.
fn signed_rank(n: usize, level: f64) -> Option<usize> {
    let most = n * (n + 1) / 2;
    // Ways in which ranks sum to a value.
    let mut ways = vec![0.0f64; most + 1];
    ways[0] = 1.0;
    for rank in 1..=n {
        for sum in (rank..=most).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    let all = 2f64.powi(n as i32);
    let mut tail = 0.0;
    let below = ways
        .iter()
        .take_while(|w| {
            tail += *w / all;
            tail <= level
        })
        .count();
    below.checked_sub(1)
}

/// The middle value, or the mean of the two in the middle.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.len().checked_sub(1)? / 2, sorted.len() / 2);
    Some((sorted.get(low)? + sorted.get(high)?) / 2.0)
}
