//! Where an answer is decided.

use super::figures::{PhaseTransition, SubLayer, Track};

/// Finds the phase transition in an answer's track, one entry for every layer, the embedding first. With the lens
/// `after_attention`, what lies between two entries is the FFN of the first's layer and the attention of the second's.
pub fn transition(tracks: &[&Track], after_attention: bool) -> PhaseTransition {
    let mut found = PhaseTransition {
        largest_rise: 0,
        rise: 0.0,
        decided_by: SubLayer::Attention,
        first_rank_1: None,
        settled: None,
    };
    for (layer, pair) in tracks.windows(2).enumerate() {
        let [before, after] = pair else { continue };
        let rise = after.prob - before.prob;
        if found.largest_rise == 0 || found.rise.is_nan() || rise > found.rise {
            found.largest_rise = layer as u32 + 1;
            found.rise = rise;
            let ffn = if after_attention { before } else { after };
            found.decided_by = if after.attn_logit > ffn.ffn_logit {
                SubLayer::Attention
            } else {
                SubLayer::Ffn
            };
        }
    }
    let first = |t: &&&Track| t.rank == 1;
    found.first_rank_1 = tracks.iter().position(|t| first(&t)).map(|l| l as u32);
    let held = tracks.iter().rev().take_while(first).count();
    found.settled = (held > 0).then(|| (tracks.len() - held) as u32);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn track(rank: u32, prob: f64, attn: f64, ffn: f64) -> Track {
        Track {
            rank,
            prob,
            logit: 0.0,
            attn_logit: attn,
            ffn_logit: ffn,
            head_logits: Vec::new(),
        }
    }

    #[test]
    fn the_largest_rise_is_found_and_who_made_it() {
        let tracks = [
            track(1, 0.3, 0.0, 0.0),
            track(50, 0.01, 1.0, 2.0),
            track(1, 0.6, 5.0, 2.0),
            track(2, 0.4, 0.0, 0.0),
            track(1, 0.9, 1.0, 3.0),
            track(1, 0.95, 1.0, 0.0),
        ];
        let found = transition(&tracks.iter().collect::<Vec<_>>(), false);
        assert_eq!(found.largest_rise, 2);
        assert!((found.rise - 0.59).abs() < 1e-12);
        assert_eq!(found.decided_by, SubLayer::Attention);
        assert_eq!((found.first_rank_1, found.settled), (Some(0), Some(4)));
    }

    #[test]
    fn an_answer_that_never_comes_has_no_layer() {
        let falling = [track(3, 0.3, 0.0, 0.0), track(4, 0.2, 0.0, 1.0)];
        let found = transition(&falling.iter().collect::<Vec<_>>(), false);
        assert_eq!((found.first_rank_1, found.settled), (None, None));
        assert_eq!(found.largest_rise, 1);
        assert!(found.rise < 0.0);
        assert_eq!(transition(&[], false).largest_rise, 0);
    }
}
