use super::*;
use crate::engine::probe::{AttentionSums, QueryPlace};
use proptest::prelude::*;

const RECENT: u32 = 4;

/// What an engine would record of a softmax over `scores`, the positions from `first` on, with a learned sink's score.
struct Softmax {
    positions: Vec<u32>,
    weights: Vec<f32>,
    sums: AttentionSums,
    query: u32,
}

fn softmax(scores: &[f32], first: u32, sink: Option<f32>, top_k: usize, threshold: f32) -> Softmax {
    let largest = scores.iter().copied().chain(sink).fold(f32::MIN, f32::max);
    let e = |s: f32| f64::from(s - largest).exp();
    let sum = scores.iter().map(|s| e(*s)).sum::<f64>() + sink.map_or(0.0, e);
    let weights: Vec<f64> = scores.iter().map(|s| e(*s) / sum).collect();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|a, b| weights[*b].total_cmp(&weights[*a]));
    order.truncate(top_k);
    order.retain(|i| weights[*i] as f32 >= threshold);
    let top: f64 = order.iter().map(|i| weights[*i]).sum();
    // Of shares among themselves, as engines record it.
    let own: f64 = weights.iter().sum();
    let shares = weights.iter().map(|w| w / own).filter(|w| *w > 0.0);
    let entropy = -shares.map(|w| w * w.ln()).sum::<f64>();
    let newest = weights.len().saturating_sub(RECENT as usize);
    Softmax {
        positions: order.iter().map(|i| first + *i as u32).collect(),
        weights: order.iter().map(|i| weights[*i] as f32).collect(),
        sums: AttentionSums {
            n_top: order.len() as u32,
            seen: weights.len() as u32,
            tail_mass: (weights.iter().sum::<f64>() - top).max(0.0) as f32,
            sink_logit_mass: sink.map_or(0.0, |s| e(s) / sum) as f32,
            entropy: entropy as f32,
            first_weight: if first == 0 {
                weights[0] as f32
            } else {
                f32::NAN
            },
            recent_mass: weights[newest..].iter().sum::<f64>() as f32,
        },
        query: first + weights.len() as u32 - 1,
    }
}

impl Softmax {
    fn record(&self, layer: usize, head: usize) -> AttentionRecord<'_> {
        AttentionRecord {
            layer,
            head,
            query: QueryPlace {
                seq: 0,
                position: self.query,
            },
            sums: self.sums,
            positions: &self.positions,
            weights: &self.weights,
        }
    }

    fn trace(&self, layer: usize, head: usize) -> AttentionWeightTrace {
        trace(&self.record(layer, head))
    }
}

/// Weights by scores that are logarithms of `parts`.
fn weights(parts: &[f32], first: u32) -> Softmax {
    let scores: Vec<f32> = parts.iter().map(|p| p.ln()).collect();
    softmax(&scores, first, None, 10, 0.01)
}

/// `n` positions: what is on the first, on each of the newest four, the rest alike between.
fn shaped(n: usize, first: f32, newest: f32) -> Vec<f32> {
    let middle = (1.0 - first - newest) / (n - 5) as f32;
    let at = |i| {
        if i == 0 {
            first
        } else if i + 4 >= n {
            newest / 4.0
        } else {
            middle
        }
    };
    (0..n).map(at).collect()
}

fn scores() -> impl Strategy<Value = (Vec<f32>, u32, Option<f32>)> {
    (
        prop::collection::vec(-30.0f32..30.0, 1..200),
        prop_oneof![Just(0), 1u32..5000],
        prop::option::of(-30.0f32..30.0),
    )
}

proptest! {
    #[test]
    fn f253_top_k_weights_descend((scores, first, sink) in scores(), top_k in 1usize..32, shuffle in any::<u64>()) {
        let mut made = softmax(&scores, first, sink, top_k, 0.01);
        // In whatever order an engine leaves them.
        let n = made.weights.len();
        if n > 1 {
            let (a, b) = (shuffle as usize % n, (shuffle >> 32) as usize % n);
            made.weights.swap(a, b);
            made.positions.swap(a, b);
        }
        let t = made.trace(1, 2);
        prop_assert!(t.top_k_weights.is_sorted_by(|a, b| a >= b));
        prop_assert!(t.top_k_weights.iter().all(|w| *w >= 0.01));
        prop_assert_eq!(t.top_k_positions.len(), n);
        for (p, w) in t.top_k_positions.iter().zip(&t.top_k_weights) {
            let at = made.positions.iter().position(|q| q == p).expect("kept");
            prop_assert_eq!(*w, made.weights[at]);
        }
    }

    #[test]
    fn f273_masses_sum_to_one((scores, first, sink) in scores(), top_k in 1usize..32, threshold in 0.0f32..0.2) {
        let t = softmax(&scores, first, sink, top_k, threshold).trace(0, 0);
        prop_assert!((mass(&t) - 1.0).abs() < 1e-5, "{}", mass(&t));
        prop_assert_eq!(t.first_weight.is_some(), first == 0);
        // The pattern is what its definition says.
        let parts = t.top_k_weights.iter().sum::<f32>();
        prop_assert!(parts <= 1.0 + 1e-5);
        match pattern(&t, RECENT) {
            HeadPattern::Sink => prop_assert!(rest(&t) >= 0.5),
            HeadPattern::Recent => prop_assert!(t.recent_mass >= 0.9 && t.seen >= 16),
            HeadPattern::Uniform => prop_assert!(t.seen >= 16),
            HeadPattern::Focused => prop_assert!(t.top_k_weights[0] >= 0.5 && t.top_k_positions[0] != 0),
            HeadPattern::Mixed => prop_assert!(t.seen < 4 || rest(&t) < 0.5),
        }
    }

    #[test]
    fn any_record_is_taken(
        sums in prop::array::uniform5(any::<f32>()), n_top in any::<u32>(), seen in any::<u32>(), position in any::<u32>(),
        positions in prop::collection::vec(any::<u32>(), 0..5), weights in prop::collection::vec(any::<f32>(), 0..5), recent in any::<u32>(),
        windows in prop::collection::vec(prop::option::of(any::<u32>()), 0..4), n_layers in any::<u32>(),
    ) {
        let [tail_mass, sink_logit_mass, entropy, first_weight, recent_mass] = sums;
        let sums = AttentionSums { n_top, seen, tail_mass, sink_logit_mass, entropy, first_weight, recent_mass };
        let query = QueryPlace { seq: 0, position };
        let t = trace(&AttentionRecord { layer: 1, head: 0, query, sums, positions: &positions, weights: &weights });
        pattern(&t, recent);
        notes(&[t], n_layers, 3, recent, &windows);
    }
}

#[test]
fn a_threshold_exactly_met_belongs_to_one_class() {
    let head = AttentionWeightTrace {
        query_pos: 99,
        seen: 100,
        top_k_positions: vec![98, 0],
        top_k_weights: vec![0.5, 0.5],
        first_weight: Some(0.5),
        recent_mass: 0.5,
        entropy: 0.69,
        ..Default::default()
    };
    assert_eq!(pattern(&head, RECENT), HeadPattern::Sink);
    let below = 0.499_999_97;
    let head = AttentionWeightTrace {
        first_weight: Some(below),
        ..head
    };
    assert_eq!(pattern(&head, RECENT), HeadPattern::Focused);
    let mut recent = AttentionWeightTrace {
        first_weight: Some(0.1),
        recent_mass: 0.9,
        ..head
    };
    assert_eq!(pattern(&recent, RECENT), HeadPattern::Recent);
    recent.recent_mass = 0.899_999_9;
    assert_eq!(pattern(&recent, RECENT), HeadPattern::Focused);
    recent.top_k_weights[0] = below;
    assert_eq!(pattern(&recent, RECENT), HeadPattern::Mixed);
    recent.entropy = 0.95 * 100f32.ln() + 1e-5;
    assert_eq!(pattern(&recent, RECENT), HeadPattern::Uniform);
}

#[test]
fn short_contexts_are_not_judged() {
    for n in 1..16 {
        let t = weights(&vec![1.0; n], 0).trace(0, 0);
        let p = pattern(&t, RECENT);
        assert_eq!(p, HeadPattern::Mixed, "{n} positions");
    }
    let t = weights(&[1.0; 16], 0).trace(0, 0);
    assert_eq!(pattern(&t, RECENT), HeadPattern::Uniform);
    // All that a window of four shows is new.
    let t = weights(&[1.0; 4], 96).trace(0, 0);
    assert_eq!(pattern(&t, RECENT), HeadPattern::Mixed);
    let heads = vec![t; 6];
    let found = notes(&heads, 2, 3, RECENT, &[Some(4), None]);
    assert!(found.is_empty(), "{found:?}");
    assert!(notes(&[], 2, 3, RECENT, &[]).is_empty());
}

#[test]
fn a_learned_sink_rests_and_leaves_uniform_heads_uniform() {
    let t = softmax(&[0.0; 64], 0, Some(64f32.ln() + 0.001), 10, 0.01).trace(0, 0);
    assert_eq!(pattern(&t, RECENT), HeadPattern::Sink);
    let t = softmax(&[0.0; 64], 0, Some(64f32.ln() - 0.2), 10, 0.01).trace(0, 0);
    assert!(t.sink_logit_mass > 0.4 && t.sink_logit_mass < 0.5);
    assert_eq!(pattern(&t, RECENT), HeadPattern::Uniform);
    // A sink beside weights that differ makes nothing uniform.
    let peaked: Vec<f32> = (0..64).map(|i| (i % 8) as f32 * 0.4).collect();
    let t = softmax(&peaked, 0, Some(5.0), 10, 0.01).trace(0, 0);
    assert!(
        t.sink_logit_mass > 0.2 && t.sink_logit_mass < 0.5,
        "{}",
        t.sink_logit_mass
    );
    assert_eq!(pattern(&t, RECENT), HeadPattern::Mixed);
    // At any length: it is no position.
    let t = softmax(&[0.0], 0, Some(3.0), 10, 0.01).trace(0, 0);
    assert_eq!(pattern(&t, RECENT), HeadPattern::Sink);
}

/// The texts of the notes about 3 layers of 4 heads.
fn noted(heads: &[AttentionWeightTrace], windows: &[Option<u32>]) -> Vec<String> {
    let notes = notes(heads, 3, 4, RECENT, windows);
    notes.into_iter().map(|n| n.text).collect()
}

/// 12 heads, each as its index says.
fn twelve(of: impl Fn(usize) -> Softmax) -> Vec<AttentionWeightTrace> {
    (0..12).map(|i| of(i).trace(i / 4, i % 4)).collect()
}

#[test]
fn sinks_are_counted() {
    let heads = twelve(|i| weights(&shaped(100, 0.7 - if i < 9 { 0.0 } else { 0.4 }, 0.2), 0));
    assert_eq!(
        noted(&heads, &[]),
        ["attention sink: 9 of 12 heads put at least half their weight on position 0"]
    );
    assert_eq!(
        noted(&heads[2..10], &[]),
        ["attention sink: 7 of 8 heads traced put at least half their weight on position 0"]
    );
    let few = twelve(|i| weights(&shaped(100, if i < 5 { 0.7 } else { 0.1 }, 0.3), 0));
    assert!(noted(&few, &[]).is_empty());
    let learned = twelve(|i| {
        if i < 4 {
            weights(&shaped(50, 0.2, 0.2), 50)
        } else {
            softmax(&[0.0; 100], 0, Some(5.0), 10, 0.01)
        }
    });
    assert_eq!(
        noted(&learned, &[Some(50), None, None]),
        [
            "attention sink: 8 of 12 heads put at least half their weight on position 0 or a learned sink (4 do not see position 0)"
        ]
    );
}

#[test]
fn repetition_and_lost_context_are_of_what_does_not_rest() {
    let heads = twelve(|i| {
        weights(
            &shaped(
                100,
                if i < 6 { 0.974 } else { 0.3 },
                if i < 6 { 0.01 } else { 0.68 },
            ),
            0,
        )
    });
    assert_eq!(
        noted(&heads, &[]),
        [
            "attention sink: 6 of 12 heads put at least half their weight on position 0",
            "repetition: 6 of the 6 heads that do not rest put at least 0.9 of that weight on the newest 4 positions",
            "lost context: on average 12 heads put 0.018 of their weight on what lies between the first and the newest 4 positions (at most 0.020: layer 2, head 3)",
        ]
    );
    // One head that fetches, and context is not lost.
    let mut heads = heads;
    heads[11] = weights(&shaped(100, 0.3, 0.15), 0).trace(2, 3);
    let found = notes(&heads, 3, 4, RECENT, &[]);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn what_windows_and_the_cache_hide_is_said() {
    let even = twelve(|i| {
        weights(
            &shaped(if i < 4 { 100 } else { 40 }, 0.2, 0.3),
            if i < 4 { 0 } else { 60 },
        )
    });
    assert!(
        noted(&even, &[None, Some(40), Some(40)]).is_empty(),
        "a layer sees it all"
    );
    let local = twelve(|i| {
        let n = if i < 4 { 30 } else { 40 };
        weights(&shaped(n, 0.2, 0.3), 100 - n as u32)
    });
    assert_eq!(
        noted(&local, &[Some(30), Some(40), Some(40)]),
        ["lost context: sliding windows hide the first 60 to 70 positions from 3 of 3 layers"]
    );
    let ring = twelve(|_| weights(&shaped(40, 0.2, 0.3), 60));
    assert_eq!(
        noted(&ring, &[None; 3]),
        ["lost context: 60 positions are no longer in the cache"]
    );
}

#[test]
fn uniform_heads_are_counted() {
    let heads = twelve(|i| {
        weights(
            &if i < 3 {
                vec![1.0; 100]
            } else {
                shaped(100, 0.3, 0.3)
            },
            0,
        )
    });
    assert_eq!(
        noted(&heads, &[]),
        [
            "uniform heads: 3 of 12 heads weigh all they see nearly alike (at least 0.95 of the entropy of equal weights)"
        ]
    );
    assert!(noted(&heads[1..], &[]).is_empty());
}
