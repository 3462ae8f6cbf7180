//! Cutting a batch of prompts and decodes into steps.

use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// A token of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// Its sequence, below [`Config::n_seq`](super::Config::n_seq).
    pub seq: usize,
    /// Its id.
    pub id: u32,
    /// Whether its logits are wanted.
    pub logits: bool,
}

/// How a batch is cut into steps of at most a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// Full steps in the order of the batch, the last one with what is left.
    Simple,
    /// As many steps, of sizes that differ by one at most.
    Equal,
    /// A sequence is cut only where it alone is longer than a chunk, and then evenly.
    Sequence,
}

impl Split {
    /// All, as flags name them.
    pub const ALL: [Split; 3] = [Self::Simple, Self::Equal, Self::Sequence];

    /// Name as in flags and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Equal => "equal",
            Self::Sequence => "sequence",
        }
    }
}

impl FromStr for Split {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|h| h.name() == s)
            .ok_or_else(|| format!("split '{s}' does not exist; these do: equal, sequence, simple"))
    }
}

/// The order in which a batch is cut: as given, or `sequential`, the tokens of a sequence one after the other.
pub fn order(seqs: &[usize], sequential: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..seqs.len()).collect();
    if sequential {
        // Stable: the order within a sequence is that of its positions.
        order.sort_by_key(|&i| seqs.get(i));
    }
    order
}

/// Cuts a batch whose token `i` belongs to sequence `seqs[i]` into steps of at most `chunk` tokens (at least one).
///
/// Every token is in one step, and those of a sequence keep their order.
pub fn split(seqs: &[usize], chunk: usize, how: Split) -> Vec<Vec<usize>> {
    let chunk = chunk.max(1);
    let all: Vec<usize> = (0..seqs.len()).collect();
    match how {
        Split::Simple => all.chunks(chunk).map(<[usize]>::to_vec).collect(),
        Split::Equal => evenly(&all, chunk),
        Split::Sequence => {
            let mut steps: Vec<Vec<usize>> = Vec::new();
            for piece in by_sequence(seqs).iter().flat_map(|s| evenly(s, chunk)) {
                match steps.last_mut() {
                    Some(last) if last.len() + piece.len() <= chunk => last.extend(piece),
                    _ => steps.push(piece),
                }
            }
            steps
        }
    }
}

/// The fewest pieces of at most `chunk`, as equal as can be.
fn evenly(items: &[usize], chunk: usize) -> Vec<Vec<usize>> {
    let pieces = items.len().div_ceil(chunk);
    (0..pieces)
        .map(|i| items[super::cpu::share(items.len(), i, pieces)].to_vec())
        .collect()
}

/// The tokens of every sequence, in the order in which sequences first appear.
fn by_sequence(seqs: &[usize]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
    for (i, &seq) in seqs.iter().enumerate() {
        match groups.iter_mut().find(|(s, _)| *s == seq) {
            Some((_, group)) => group.push(i),
            None => groups.push((seq, vec![i])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn strategies_differ_as_they_say() {
        // A prompt of five, a decode, a prompt of three.
        let seqs = [0, 0, 0, 0, 0, 1, 2, 2, 2];
        let sizes = |how| -> Vec<usize> { split(&seqs, 5, how).iter().map(Vec::len).collect() };
        assert_eq!(sizes(Split::Simple), [5, 4]);
        assert_eq!(sizes(Split::Equal), [5, 4]);
        let sizes = |how| -> Vec<usize> { split(&seqs, 4, how).iter().map(Vec::len).collect() };
        assert_eq!(sizes(Split::Simple), [4, 4, 1]);
        assert_eq!(sizes(Split::Equal), [3, 3, 3]);
        assert_eq!(
            split(&seqs, 4, Split::Sequence),
            [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7, 8]]
        );
        assert!(split(&[], 4, Split::Equal).is_empty());
        for how in Split::ALL {
            assert_eq!(how.name().parse(), Ok(how));
        }
    }

    #[test]
    fn sequential_order_groups_sequences() {
        assert_eq!(order(&[2, 0, 2, 1, 0], true), [1, 4, 3, 0, 2]);
        assert_eq!(order(&[2, 0, 2], false), [0, 1, 2]);
    }

    proptest! {
        #[test]
        fn every_token_once_and_in_order(seqs in prop::collection::vec(0usize..8, 0..200), chunk in 1usize..40, sequential: bool) {
            let order = order(&seqs, sequential);
            let ordered: Vec<usize> = order.iter().map(|&i| seqs[i]).collect();
            for how in Split::ALL {
                let steps = split(&ordered, chunk, how);
                prop_assert!(steps.iter().all(|s| (1..=chunk).contains(&s.len())));
                let mut all: Vec<usize> = steps.concat();
                for seq in 0..8 {
                    let of: Vec<usize> = all.iter().copied().filter(|&i| ordered[i] == seq).collect();
                    prop_assert!(of.is_sorted(), "{how:?}");
                }
                all.sort_unstable();
                prop_assert_eq!(all, (0..seqs.len()).collect::<Vec<_>>());
                if how == Split::Sequence {
                    for seq in 0..8 {
                        let n = ordered.iter().filter(|&&s| s == seq).count();
                        let parts = steps.iter().filter(|s| s.iter().any(|&i| ordered[i] == seq)).count();
                        prop_assert_eq!(parts, n.div_ceil(chunk));
                    }
                } else {
                    prop_assert_eq!(steps.len(), seqs.len().div_ceil(chunk));
                }
            }
        }

        /// Sizes are whole tokens: they differ by one at most, which from five tokens a step on is a deviation under 10%.
        #[test]
        fn f173_batches_are_split_evenly(n in 1usize..5000, chunk in 1usize..600) {
            let steps = split(&vec![0; n], chunk, Split::Equal);
            let sizes: Vec<f64> = steps.iter().map(|s| s.len() as f64).collect();
            let (low, high) = sizes.iter().fold((f64::MAX, 0.0f64), |(l, h), &s| (l.min(s), h.max(s)));
            prop_assert!(high - low <= 1.0);
            let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
            let variance = sizes.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / sizes.len() as f64;
            if mean >= 5.0 {
                prop_assert!(variance.sqrt() / mean < 0.1 + 1e-12, "{variance} {mean}");
            }
        }
    }
}
