//! What a step leaves for tracers: statistics of activations, and attention weights. Written by the threads that compute
//! them, without locks or allocation; logits are the same bit for bit.

use super::tensor_stats::Moments;

/// Most positions recorded of a query's weights.
pub const MAX_TOP_K: usize = 32;

/// What steps leave behind.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProbeConfig {
    /// Statistics of activations, of sequence 0.
    pub activations: bool,
    /// Attention weights.
    pub attention: Option<AttentionProbe>,
}

/// Which attention weights are recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionProbe {
    /// Positions recorded of a query, those with the largest weights; 1 to [`MAX_TOP_K`].
    pub top_k: usize,
    /// Weights below this are not recorded.
    pub weight_threshold: f32,
    /// Layers, from 0; `None`: all.
    pub layers: Option<Vec<usize>>,
    /// Query heads; `None`: all.
    pub heads: Option<Vec<usize>>,
    /// Newest positions whose weights are summed, the query's own included.
    pub recent: usize,
    /// Bytes of records; the oldest queries give way to new ones.
    pub max_bytes: usize,
}

impl Default for AttentionProbe {
    fn default() -> Self {
        Self {
            top_k: 10,
            weight_threshold: 0.01,
            layers: None,
            heads: None,
            recent: 4,
            max_bytes: 32 << 20,
        }
    }
}

/// A place in a layer where activations are looked at. The stream before a layer is the output of the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// The input of attention: the stream after its norm, where there is one.
    PostNorm,
    /// What attention adds.
    PostAttention,
    /// What the feed-forward block adds.
    PostFfn,
    /// The stream after the layer.
    Output,
}

impl Site {
    /// All, in the order in which a layer passes them.
    pub const ALL: [Self; 4] = [
        Self::PostNorm,
        Self::PostAttention,
        Self::PostFfn,
        Self::Output,
    ];
}

/// The limits that a token's activations are held against as they are written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits;

impl Limits {
    /// Largest magnitude that is not an explosion.
    pub const MAGNITUDE: f32 = 1e6;
    /// Largest standard deviation that is not one.
    pub const STD: f64 = 1e4;
    /// Smallest standard deviation that has not vanished.
    pub const LEAST_STD: f64 = 1e-6;
}

/// Activations of a step at one place, over all its tokens, and which of them first broke a limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Reading {
    /// Of all tokens together.
    pub moments: Moments,
    /// Lowest position with a NaN.
    pub nan_at: Option<u32>,
    /// Lowest position with an infinity.
    pub inf_at: Option<u32>,
    /// Lowest position with a magnitude above [`Limits::MAGNITUDE`] or a deviation above [`Limits::STD`].
    pub exploded_at: Option<u32>,
    /// Lowest position with a deviation below [`Limits::LEAST_STD`].
    pub vanished_at: Option<u32>,
}

impl Reading {
    /// Takes in a whole vector of one token.
    pub fn add(&mut self, position: u32, row: &Moments) {
        self.judge_spread(position, row);
        self.add_part(position, row);
    }

    /// Takes in a part of a vector of one token: its deviation says nothing about that of the whole.
    pub fn add_part(&mut self, position: u32, part: &Moments) {
        if part.nan > 0 {
            lowest(&mut self.nan_at, position);
        }
        if part.inf > 0 {
            lowest(&mut self.inf_at, position);
        }
        if part.n > 0 && (part.min < -Limits::MAGNITUDE || part.max > Limits::MAGNITUDE) {
            lowest(&mut self.exploded_at, position);
        }
        self.moments.merge(part);
    }

    /// Holds a deviation against the limits.
    pub fn judge_spread(&mut self, position: u32, of: &Moments) {
        if of.n == 0 {
            return;
        }
        let std = of.std();
        if std > Limits::STD {
            lowest(&mut self.exploded_at, position);
        }
        if std < Limits::LEAST_STD {
            lowest(&mut self.vanished_at, position);
        }
    }

    /// Takes in what another thread saw.
    pub fn merge(&mut self, other: &Self) {
        let lowest = |a: &mut Option<u32>, b: Option<u32>| {
            *a = match (*a, b) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        };
        self.moments.merge(&other.moments);
        lowest(&mut self.nan_at, other.nan_at);
        lowest(&mut self.inf_at, other.inf_at);
        lowest(&mut self.exploded_at, other.exploded_at);
        lowest(&mut self.vanished_at, other.vanished_at);
    }
}

fn lowest(at: &mut Option<u32>, position: u32) {
    *at = Some(at.map_or(position, |p| p.min(position)));
}

/// Activations of the last step, of the tokens of sequence 0.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ActivationReadings {
    /// Position of the last token.
    pub position: u32,
    /// Tokens.
    pub tokens: u32,
    /// The embedding.
    pub embedding: Reading,
    /// By layer, then by [`Site::ALL`].
    pub layers: Vec<[Reading; Site::ALL.len()]>,
    /// Logits, where any were wanted; their deviation is judged over all rows, at the position of the last token.
    pub logits: Reading,
}

/// What is recorded of one query's weights beside the top ones.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AttentionSums {
    /// Entries of the top that are there.
    pub n_top: u32,
    /// Positions seen.
    pub seen: u32,
    /// Sum of the weights outside the top.
    pub tail_mass: f32,
    /// Share of the softmax that a learned sink takes.
    pub sink_logit_mass: f32,
    /// Entropy of the weights among themselves (as shares of their own sum, without a learned sink), nats.
    pub entropy: f32,
    /// Weight of position 0; NaN where it is not seen.
    pub first_weight: f32,
    /// Sum of the weights of the newest positions.
    pub recent_mass: f32,
}

/// A query that is recorded: a token of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueryPlace {
    /// Its sequence.
    pub seq: u32,
    /// Its position.
    pub position: u32,
}

/// One head's record of one query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionRecord<'a> {
    /// Layer, from 0.
    pub layer: usize,
    /// Head.
    pub head: usize,
    /// The query.
    pub query: QueryPlace,
    /// Sums.
    pub sums: AttentionSums,
    /// Positions attended to most, largest weight first.
    pub positions: &'a [u32],
    /// Their weights.
    pub weights: &'a [f32],
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(x: f32) -> Moments {
        Moments {
            n: 1,
            min: x,
            max: x,
            mean: x.into(),
            ..Moments::default()
        }
    }

    /// Threads compute rows of the logits in pieces, the last of which may be a single one.
    #[test]
    fn a_part_has_no_spread_to_judge() {
        let mut reading = Reading::default();
        for x in [1.0, 5.0] {
            reading.add_part(7, &moments(x));
        }
        let whole = reading.moments;
        reading.judge_spread(7, &whole);
        assert_eq!((reading.vanished_at, reading.exploded_at), (None, None));
        reading.add(8, &moments(1.0));
        assert_eq!(reading.vanished_at, Some(8));
        reading.add_part(9, &moments(2e6));
        assert_eq!(reading.exploded_at, Some(9));
    }
}
