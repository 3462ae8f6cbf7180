//! Where positions of a sequence lie in its kv cache, and which of them a token sees.

use std::ops::Range;

/// The slots of one sequence: positions `0..keep` in slots of their own, every later one in a ring behind them.
///
/// While nothing is evicted position `p` lies in slot `p`, whatever `keep` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// Slots of a sequence: the context length.
    pub n: usize,
    /// First positions that are never evicted (attention sinks, <https://arxiv.org/abs/2309.17453>); below `n`.
    pub keep: usize,
}

/// Positions of one sequence in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The sequence.
    pub seq: usize,
    /// Its positions before the step.
    pub past: usize,
    /// Its tokens in the step.
    pub tokens: usize,
    /// The lowest position that is in the ring, or would be, after the step's own are written; nothing between the
    /// kept first ones and this is in the cache any more.
    pub live: usize,
}

impl Span {
    /// Positions after the step.
    pub fn end(&self) -> usize {
        self.past + self.tokens
    }
}

impl Slots {
    /// Positions that the ring holds.
    pub fn ring(&self) -> usize {
        self.n - self.keep
    }

    /// The slot of a position.
    pub fn slot(&self, position: usize) -> usize {
        if position < self.n {
            position
        } else {
            self.keep + (position - self.keep) % self.ring()
        }
    }

    /// [`Span::live`] of a sequence that ends at `end` and whose lowest position in the ring was `live`.
    pub fn live_after(&self, live: usize, end: usize) -> usize {
        live.max(end.saturating_sub(self.ring()))
    }

    /// The positions that `position` sees in a step of its sequence: kept first ones, then the rest. A `window` counts
    /// positions, its own included, and also bounds the kept ones.
    ///
    /// A step of several tokens evicts before it computes: its first tokens no longer see what its last one has
    /// displaced.
    pub fn visible(
        &self,
        span: &Span,
        position: usize,
        window: Option<usize>,
    ) -> (Range<usize>, Range<usize>) {
        let end = position + 1;
        let first = window.map_or(0, |w| end.saturating_sub(w));
        if span.live <= self.keep {
            return (first..first, first..end);
        }
        let kept = first.min(self.keep)..self.keep.min(end);
        (kept, first.max(span.live).min(end)..end)
    }

    /// How many positions `position` sees.
    pub fn seen(&self, span: &Span, position: usize, window: Option<usize>) -> usize {
        let (kept, rest) = self.visible(span, position, window);
        kept.len() + rest.len()
    }

    /// The slots of what `position` sees, as runs in the order of positions; some may be empty.
    pub fn runs(&self, span: &Span, position: usize, window: Option<usize>) -> [Range<usize>; 3] {
        let (kept, rest) = self.visible(span, position, window);
        if rest.is_empty() {
            return [kept, 0..0, 0..0];
        }
        let first = self.slot(rest.start);
        // A ring never holds more than its slots, so one wrap is all there can be.
        let until_wrap = rest.len().min(self.n - first);
        let wrapped = rest.len() - until_wrap;
        [
            kept,
            first..first + until_wrap,
            self.keep..self.keep + wrapped,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_evicted_is_one_run() {
        let s = Slots { n: 8, keep: 2 };
        let span = Span {
            seq: 0,
            past: 5,
            tokens: 1,
            live: s.live_after(0, 6),
        };
        assert_eq!(s.runs(&span, 5, None), [0..0, 0..6, 2..2]);
        assert_eq!(s.runs(&span, 5, Some(3)), [3..3, 3..6, 2..2]);
        assert_eq!((s.slot(7), s.slot(8), s.slot(13), s.slot(14)), (7, 2, 7, 2));
    }

    proptest! {
        /// Against a cache that is written position by position.
        #[test]
        fn runs_are_what_the_cache_holds(
            n in 1usize..20, keep in 0usize..8, steps in prop::collection::vec(1usize..6, 1..20), window in prop::option::of(1usize..12),
        ) {
            let s = Slots { n, keep: keep.min(n - 1) };
            let mut cache = vec![None; n];
            let (mut past, mut live) = (0, 0);
            for tokens in steps {
                let tokens = tokens.min(s.ring());
                live = s.live_after(live, past + tokens);
                let span = Span { seq: 0, past, tokens, live };
                for p in past..past + tokens {
                    cache[s.slot(p)] = Some(p);
                }
                for p in past..past + tokens {
                    let seen: Vec<usize> = s.runs(&span, p, window).into_iter().flatten().map(|i| cache[i].expect("written")).collect();
                    let want: Vec<usize> = (0..=p).filter(|q| cache.contains(&Some(*q)) && window.is_none_or(|w| p - q < w)).collect();
                    prop_assert_eq!(&seen, &want);
                    prop_assert_eq!(s.seen(&span, p, window), want.len());
                    prop_assert!(seen.len() <= n);
                }
                past += tokens;
            }
        }
    }
}
