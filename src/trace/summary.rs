//! Traces of many prompts with known answers, taken together layer by layer.
//!
//! Nothing is kept of a prompt but sums and, for medians, how often each rank occurred: memory grows with layers and with
//! distinct ranks, not with prompts.

use super::figures::TraceView;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A sub-layer fires where its mean contribution is at least this share of the largest one of the pass.
const FIRES: f64 = 1.0 / 3.0;

/// What happens in a layer, by the means over all prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The embedding: there is nothing yet that adds.
    Embedding,
    /// Nothing fires, and the phase transition is still to come.
    Nothing,
    /// Attention fires.
    Attention,
    /// The FFN fires.
    Ffn,
    /// Both fire.
    Both,
    /// Nothing fires after the phase transition.
    Stabilising,
}

/// A layer over all prompts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerSummary {
    /// 0 is the embedding.
    pub layer: u32,
    /// Share of prompts whose answer has rank 1, percent.
    pub top1_percent: f64,
    /// Mean probability of the answer by the logit lens.
    pub mean_prob: f64,
    /// Median rank of the answer; of an even number of prompts the mean of the middle two.
    pub median_rank: f64,
    /// Mean of what attention adds to the answer's logit.
    pub attn_logit: f64,
    /// Mean of what the FFN adds to it.
    pub ffn_logit: f64,
    /// Attention's share of the positive signal, 0 to 1: the sum over prompts of what attention adds where that is more
    /// than nothing, by the same sum of both. `None` where neither ever adds.
    pub attention_share: Option<f64>,
    /// Mean L2 norm of the residual stream.
    pub residual_norm: f64,
    /// That by the one of the layer before; `None` for the embedding, or after a norm of 0.
    pub growth: Option<f64>,
    /// What happens.
    pub event: Event,
}

/// Many prompts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SummaryView {
    /// The model's name.
    pub model: String,
    /// Prompts taken in.
    pub prompts: u64,
    /// Of them, those whose answer is several tokens: the first is followed.
    pub multi_token: u64,
    /// One for every layer, the embedding first.
    pub layers: Vec<LayerSummary>,
    /// Attention's share of the positive signal of all layers together, 0 to 1; `None` without any.
    pub attention_share: Option<f64>,
    /// The FFN's; the two sum to 1.
    pub ffn_share: Option<f64>,
    /// The layer after which the mean probability has risen most from the one before; `None` if it never rises.
    pub phase_transition: Option<u32>,
}

/// Sums of a layer.
#[derive(Debug, Clone, Default)]
struct Sums {
    prob: f64,
    attn: f64,
    ffn: f64,
    attn_positive: f64,
    ffn_positive: f64,
    residual_norm: f64,
    ranks: BTreeMap<u32, u64>,
}

/// Traces being summed up.
#[derive(Debug, Clone)]
pub struct Summary {
    model: String,
    prompts: u64,
    multi_token: u64,
    layers: Vec<Sums>,
}

impl Summary {
    /// Of no prompts, for a model of `n_layers`.
    pub fn new(model: String, n_layers: usize) -> Self {
        Self {
            model,
            prompts: 0,
            multi_token: 0,
            layers: vec![Sums::default(); n_layers + 1],
        }
    }

    /// Takes in the first answer at the last position of a trace. Returns whether it has one with all layers; a trace without
    /// is left out.
    pub fn add(&mut self, view: &TraceView) -> bool {
        let Some(last) = view.positions.last() else {
            return false;
        };
        let whole = last.waypoints.len() == self.layers.len();
        if !whole || last.waypoints.iter().any(|w| w.tracks.is_empty()) {
            return false;
        }
        for (sums, w) in self.layers.iter_mut().zip(&last.waypoints) {
            let Some(t) = w.tracks.first() else { continue };
            sums.prob += t.prob;
            sums.attn += t.attn_logit;
            sums.ffn += t.ffn_logit;
            sums.attn_positive += positive(t.attn_logit);
            sums.ffn_positive += positive(t.ffn_logit);
            sums.residual_norm += w.residual_norm;
            *sums.ranks.entry(t.rank).or_default() += 1;
        }
        self.prompts += 1;
        let pieces = view.answers.first().map_or(0, |a| a.pieces.len());
        self.multi_token += u64::from(pieces > 1);
        true
    }

    /// Prompts taken in.
    pub fn prompts(&self) -> u64 {
        self.prompts
    }

    /// The figures so far; without prompts no layers.
    pub fn view(&self) -> SummaryView {
        let n = self.prompts as f64;
        let mut layers = Vec::with_capacity(self.layers.len());
        if self.prompts > 0 {
            layers.extend(
                self.layers
                    .iter()
                    .enumerate()
                    .map(|(layer, s)| LayerSummary {
                        layer: layer as u32,
                        top1_percent: s.ranks.get(&1).copied().unwrap_or(0) as f64 / n * 100.0,
                        mean_prob: s.prob / n,
                        median_rank: median(&s.ranks, self.prompts),
                        attn_logit: s.attn / n,
                        ffn_logit: s.ffn / n,
                        attention_share: share(s.attn_positive, s.ffn_positive),
                        residual_norm: s.residual_norm / n,
                        growth: None,
                        event: Event::Embedding,
                    }),
            );
        }
        for i in 1..layers.len() {
            let [before, after] = &mut layers[i - 1..=i] else {
                continue;
            };
            let growth = after.residual_norm / before.residual_norm;
            after.growth = Some(growth).filter(|g| g.is_finite());
        }
        let phase_transition = transition(&layers);
        events(&mut layers, phase_transition);
        let attn = self.layers.iter().map(|s| s.attn_positive).sum();
        let ffn = self.layers.iter().map(|s| s.ffn_positive).sum();
        SummaryView {
            model: self.model.clone(),
            prompts: self.prompts,
            multi_token: self.multi_token,
            layers,
            attention_share: share(attn, ffn),
            ffn_share: share(ffn, attn),
            phase_transition,
        }
    }
}

fn positive(x: f64) -> f64 {
    if x > 0.0 { x } else { 0.0 }
}

/// The share of one of two parts, 0 to 1; `None` where both are nothing.
pub fn share(one: f64, other: f64) -> Option<f64> {
    Some(one / (one + other)).filter(|s| s.is_finite())
}

/// Of `n` ranks, ordered and counted.
fn median(ranks: &BTreeMap<u32, u64>, n: u64) -> f64 {
    let at = |place: u64| {
        let mut seen = 0;
        let found = ranks.iter().find(|(_, count)| {
            seen += **count;
            seen > place
        });
        found.map_or(f64::NAN, |(rank, _)| f64::from(*rank))
    };
    (at(n.saturating_sub(1) / 2) + at(n / 2)) / 2.0
}

fn transition(layers: &[LayerSummary]) -> Option<u32> {
    let mut best = 0.0;
    let mut found = None;
    for pair in layers.windows(2) {
        if let [before, after] = pair
            && after.mean_prob - before.mean_prob > best
        {
            best = after.mean_prob - before.mean_prob;
            found = Some(after.layer);
        }
    }
    found
}

fn events(layers: &mut [LayerSummary], transition: Option<u32>) {
    let parts = layers.iter().flat_map(|l| [l.attn_logit, l.ffn_logit]);
    let largest = parts.fold(0.0, f64::max);
    let fires = |by: f64| largest > 0.0 && by >= FIRES * largest;
    for layer in layers.iter_mut().skip(1) {
        layer.event = match (fires(layer.attn_logit), fires(layer.ffn_logit)) {
            (true, true) => Event::Both,
            (true, false) => Event::Attention,
            (false, true) => Event::Ffn,
            (false, false) if transition.is_some_and(|t| layer.layer > t) => Event::Stabilising,
            (false, false) => Event::Nothing,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::figures::*;
    use proptest::prelude::*;

    type Layer = (u32, f64, f64, f64, f64);

    fn token() -> TokenText {
        TokenText {
            id: 1,
            text: "a".into(),
        }
    }

    fn trace(layers: &[Layer]) -> TraceView {
        let waypoint = |(layer, (rank, prob, attn, ffn, norm)): (usize, &Layer)| Waypoint {
            layer: layer as u32,
            residual_norm: *norm,
            attn_norm: 1.0,
            ffn_norm: 1.0,
            top: Vec::new(),
            entropy: None,
            kl_to_final: None,
            tracks: vec![Track {
                rank: *rank,
                prob: *prob,
                logit: 0.0,
                attn_logit: if layer == 0 { 0.0 } else { *attn },
                ffn_logit: if layer == 0 { 0.0 } else { *ffn },
                head_logits: Vec::new(),
            }],
        };
        TraceView {
            model: "m".into(),
            prompt: "p".into(),
            tokens: vec![token()],
            n_layers: layers.len() as u32 - 1,
            hidden_size: 1,
            after_attention: false,
            answers: vec![Answer {
                word: "a".into(),
                token: token(),
                pieces: vec![token(); 2],
                word_prob: None,
            }],
            positions: vec![PositionTrace {
                position: 0,
                tracked: vec![token()],
                waypoints: layers.iter().enumerate().map(waypoint).collect(),
                phases: Vec::new(),
                embedding_logits: vec![0.0],
                constant_logits: vec![0.0],
            }],
            edits: Vec::new(),
            facts: 0,
            notes: Vec::new(),
        }
    }

    fn sum_up(traces: &[Vec<Layer>], n_layers: usize) -> SummaryView {
        let mut summary = Summary::new("m".into(), n_layers);
        for layers in traces {
            assert!(summary.add(&trace(layers)));
        }
        summary.view()
    }

    #[test]
    fn events_are_named_by_what_fires() {
        let layers = [
            (9, 0.0, 0.0, 0.0, 1.0),
            (9, 0.001, 22.2, 34.4, 2.0),
            (9, 0.01, -16.9, 55.9, 3.0),
            (1, 0.26, 105.7, 24.4, 4.0),
            (1, 0.51, 4.3, 94.4, 5.0),
            (1, 0.80, 83.1, 70.0, 6.0),
            (1, 0.81, 10.0, -3.0, 12.0),
        ];
        let view = sum_up(&[layers.to_vec()], 6);
        let events: Vec<_> = view.layers.iter().map(|l| l.event).collect();
        use Event::*;
        assert_eq!(
            events,
            [Embedding, Nothing, Ffn, Attention, Ffn, Both, Stabilising]
        );
        assert_eq!(view.phase_transition, Some(5));
        assert_eq!((view.multi_token, view.layers[6].growth), (1, Some(2.0)));
    }

    #[test]
    fn nothing_and_what_is_not_a_number_are_said_so() {
        assert_eq!(sum_up(&[], 3).layers, []);
        let mut summary = Summary::new("m".into(), 3);
        assert!(!summary.add(&trace(&[(1, 0.0, 0.0, 0.0, 0.0)])));
        let nan = f64::NAN;
        let view = sum_up(&[vec![(1, nan, nan, nan, nan); 4]], 3);
        assert!(view.layers[2].mean_prob.is_nan());
        assert_eq!(view.layers[2].event, Event::Nothing);
        assert_eq!((view.attention_share, view.phase_transition), (None, None));
    }

    fn layer() -> impl Strategy<Value = Layer> {
        (
            1u32..50_000,
            0.0f64..=1.0,
            -90f64..90.0,
            -90f64..90.0,
            0.0f64..1e5,
        )
    }

    proptest! {
        #[test]
        fn shares_sum_to_one_and_percentages_are_some(
            traces in prop::collection::vec(prop::collection::vec(layer(), 5), 1..12),
        ) {
            let view = sum_up(&traces, 4);
            prop_assert_eq!(view.prompts, traces.len() as u64);
            if let (Some(a), Some(f)) = (view.attention_share, view.ffn_share) {
                prop_assert!((a + f - 1.0).abs() < 1e-12);
            }
            for (l, layer) in view.layers.iter().enumerate() {
                prop_assert!((0.0..=100.0).contains(&layer.top1_percent));
                prop_assert!((0.0..=1.0 + 1e-12).contains(&layer.mean_prob));
                prop_assert!(layer.attention_share.is_none_or(|s| (0.0..=1.0).contains(&s)));
                let mut ranks: Vec<u32> = traces.iter().map(|t| t[l].0).collect();
                ranks.sort_unstable();
                let n = ranks.len();
                let median = (f64::from(ranks[(n - 1) / 2]) + f64::from(ranks[n / 2])) / 2.0;
                prop_assert_eq!(layer.median_rank, median);
            }
        }

        #[test]
        fn one_prompt_is_its_own_trace(layers in prop::collection::vec(layer(), 5)) {
            let view = sum_up(std::slice::from_ref(&layers), 4);
            let position = &trace(&layers).positions[0];
            for (layer, w) in view.layers.iter().zip(&position.waypoints) {
                let t = &w.tracks[0];
                prop_assert_eq!(layer.mean_prob, t.prob);
                prop_assert_eq!(layer.median_rank, f64::from(t.rank));
                prop_assert_eq!((layer.attn_logit, layer.ffn_logit), (t.attn_logit, t.ffn_logit));
                prop_assert_eq!(layer.residual_norm, w.residual_norm);
                prop_assert_eq!(layer.top1_percent, if t.rank == 1 { 100.0 } else { 0.0 });
            }
        }
    }
}
