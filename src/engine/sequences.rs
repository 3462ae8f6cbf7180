//! What is in the kv caches: how far every sequence is, which slots hold what, and what was evicted.

use super::EngineError;
use super::config::Overflow;
use crate::model::{Slots, Span};
use schemars::JsonSchema;
use serde::Serialize;

/// The last position a ring goes to.
const LAST_POSITION: usize = u32::MAX as usize;

/// A slot that holds a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SlotInfo {
    /// Its sequence.
    pub seq: usize,
    /// Its index in the sequence's cache.
    pub slot: usize,
    /// The position whose key and value it holds.
    pub position: usize,
    /// The step that wrote it; steps count from 1.
    pub written: u64,
    /// The last step in which attention read it, in the layer with the widest window.
    pub last_used: u64,
}

/// The caches of all sequences together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct CacheState {
    /// Slots allocated.
    pub slots: usize,
    /// Slots that hold a position.
    pub live: usize,
    /// Positions evicted since the engine was built.
    pub evicted: u64,
    /// Steps run since the engine was built.
    pub steps: u64,
    /// `live / slots`.
    pub occupancy: f64,
    /// Share of empty slots among those up to the highest that is live in every sequence: what reading a cache as one
    /// piece would read in vain. 0 when nothing is live.
    pub fragmentation: f64,
}

/// How far the sequences are.
#[derive(Debug)]
pub(super) struct Sequences {
    slots: Slots,
    overflow: Overflow,
    /// The widest window of all layers; `None`: a layer sees everything.
    window: Option<usize>,
    list: Vec<Sequence>,
    steps: u64,
    evicted: u64,
}

#[derive(Debug)]
struct Sequence {
    /// Positions so far.
    past: usize,
    /// As [`Span::live`].
    live: usize,
    /// The step that wrote a slot, by slot.
    written: Vec<u64>,
    /// The last step that read a kept position, by position: the token that did may have been evicted since.
    kept_used: Vec<u64>,
}

impl Sequence {
    fn span(&self, seq: usize) -> Span {
        Span {
            seq,
            past: self.past,
            tokens: 0,
            live: self.live,
        }
    }

    fn live(&self, keep: usize) -> usize {
        if self.live <= keep {
            self.past
        } else {
            keep + self.past - self.live
        }
    }
}

impl Sequences {
    /// `n` empty sequences.
    pub(super) fn new(n: usize, slots: Slots, overflow: Overflow, window: Option<usize>) -> Self {
        let empty = || Sequence {
            past: 0,
            live: 0,
            written: vec![0; slots.n],
            kept_used: vec![0; slots.keep],
        };
        Self {
            slots,
            overflow,
            window,
            list: (0..n).map(|_| empty()).collect(),
            steps: 0,
            evicted: 0,
        }
    }

    /// Positions of a sequence so far; 0 for one that does not exist.
    pub(super) fn past(&self, seq: usize) -> usize {
        self.list.get(seq).map_or(0, |s| s.past)
    }

    /// Slots of a sequence that hold a position.
    pub(super) fn live(&self, seq: usize) -> usize {
        self.list.get(seq).map_or(0, |s| s.live(self.slots.keep))
    }

    /// Tokens that a sequence can still take.
    pub(super) fn room(&self, seq: usize) -> usize {
        let end = match self.overflow {
            Overflow::Stop => self.slots.n,
            Overflow::Ring => LAST_POSITION,
        };
        end.saturating_sub(self.past(seq))
    }

    /// Whether `tokens` more fit, in as many steps as it takes.
    pub(super) fn check_room(&self, seq: usize, tokens: usize) -> Result<(), EngineError> {
        if seq >= self.list.len() {
            return Err(EngineError::NoSequence {
                seq,
                n_seq: self.list.len(),
            });
        }
        if tokens <= self.room(seq) {
            return Ok(());
        }
        Err(EngineError::ContextFull {
            needed: self.past(seq).saturating_add(tokens),
            n_ctx: self.slots.n,
        })
    }

    /// Forgets what follows the first `keep` positions. What was evicted before them does not come back.
    pub(super) fn truncate(&mut self, seq: usize, keep: usize) {
        if let Some(s) = self.list.get_mut(seq) {
            s.past = s.past.min(keep);
            s.live = s.live.min(s.past);
        }
    }

    /// Makes room for the next `tokens` of a sequence, at most a ring of them, which [`Self::check_room`] let through.
    pub(super) fn enter(&mut self, seq: usize, tokens: usize) -> Span {
        let slots = self.slots;
        let Some(s) = self.list.get_mut(seq) else {
            return Span {
                seq,
                past: 0,
                tokens,
                live: 0,
            };
        };
        let live = slots.live_after(s.live, s.past + tokens);
        let gone = live.min(s.past).saturating_sub(s.live.max(slots.keep));
        self.evicted += gone as u64;
        s.live = live;
        Span {
            tokens,
            ..s.span(seq)
        }
    }

    /// Counts a step that has run.
    pub(super) fn commit(&mut self, spans: &[Span]) {
        self.steps += 1;
        for span in spans {
            if let Some(s) = self.list.get_mut(span.seq) {
                for position in span.past..span.end() {
                    if let Some(w) = s.written.get_mut(self.slots.slot(position)) {
                        *w = self.steps;
                    }
                }
                let window = self.window.unwrap_or(usize::MAX);
                for (position, used) in s.kept_used.iter_mut().enumerate().take(span.end()) {
                    if span.past.saturating_sub(position) < window {
                        *used = self.steps;
                    }
                }
                s.past = span.end();
            }
        }
    }

    /// The live slots of a sequence, by position.
    pub(super) fn slots(&self, seq: usize) -> Vec<SlotInfo> {
        let Some(s) = self.list.get(seq).filter(|s| s.past > 0) else {
            return Vec::new();
        };
        let last = s.past - 1;
        let written = |position| s.written.get(self.slots.slot(position)).copied();
        let (kept, rest) = self.slots.visible(&s.span(seq), last, None);
        kept.chain(rest)
            .map(|position| {
                // The last token whose window reached back to it: it is no further back than what it read, so it is
                // still there itself.
                let reader = self.window.map_or(last, |w| {
                    last.min(position.saturating_add(w.saturating_sub(1)))
                });
                let kept = s.kept_used.get(position).copied();
                SlotInfo {
                    seq,
                    slot: self.slots.slot(position),
                    position,
                    written: written(position).unwrap_or(0),
                    last_used: kept.or_else(|| written(reader)).unwrap_or(0),
                }
            })
            .collect()
    }

    /// All sequences together.
    pub(super) fn state(&self) -> CacheState {
        let slots = self.slots.n * self.list.len();
        let live: usize = (0..self.list.len()).map(|s| self.live(s)).sum();
        let reach = |s: &Sequence| {
            let last = s.past.saturating_sub(1);
            let runs = self.slots.runs(&s.span(0), last, None);
            let end = runs.iter().filter(|r| !r.is_empty()).map(|r| r.end).max();
            if s.past == 0 { 0 } else { end.unwrap_or(0) }
        };
        let reach: usize = self.list.iter().map(reach).sum();
        let share = |part: usize, whole: usize| {
            if whole == 0 {
                0.0
            } else {
                part as f64 / whole as f64
            }
        };
        CacheState {
            slots,
            live,
            evicted: self.evicted,
            steps: self.steps,
            occupancy: share(live, slots),
            fragmentation: share(reach - live, reach),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A cache in the plainest form: what every slot holds, and when it was written and read.
    #[derive(Clone, Copy)]
    struct Cell {
        position: usize,
        written: u64,
        last_used: u64,
    }

    #[derive(Debug, Clone)]
    enum Act {
        Step(usize, usize),
        Truncate(usize, usize),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let step = (0usize..3, 1usize..7).prop_map(|(s, n)| Act::Step(s, n));
        let truncate = (0usize..3, 0usize..30).prop_map(|(s, n)| Act::Truncate(s, n));
        prop::collection::vec(prop_oneof![4 => step, 1 => truncate], 1..40)
    }

    #[test]
    fn f172_slots_of_a_ring_are_tracked() {
        let slots = Slots { n: 4, keep: 1 };
        let mut s = Sequences::new(1, slots, Overflow::Ring, None);
        for _ in 0..6 {
            let span = s.enter(0, 1);
            s.commit(&[span]);
        }
        let held: Vec<_> = s.slots(0).iter().map(|i| (i.position, i.slot)).collect();
        assert_eq!(held, [(0, 0), (3, 3), (4, 1), (5, 2)]);
        assert!(s.slots(0).iter().all(|i| i.last_used == 6));
        let state = s.state();
        assert_eq!((state.live, state.evicted, state.steps), (4, 2, 6));
        assert_eq!((state.occupancy, state.fragmentation), (1.0, 0.0));
        s.truncate(0, 4);
        // Positions 1 and 2 are gone for good.
        assert_eq!(
            s.slots(0).iter().map(|i| i.slot).collect::<Vec<_>>(),
            [0, 3]
        );
        assert_eq!(s.state().fragmentation, 0.5);
        s.truncate(0, 0);
        assert_eq!((s.state().live, s.state().fragmentation), (0, 0.0));
    }

    proptest! {
        #[test]
        fn f172_slot_metadata_is_what_happened(
            n in 6usize..16, keep in 0usize..4, acts in acts(), window in prop::option::of(1usize..10),
        ) {
            let slots = Slots { n, keep: keep.min(n - 6) };
            let mut s = Sequences::new(3, slots, Overflow::Ring, window);
            let mut cells: Vec<Vec<Option<Cell>>> = vec![vec![None; n]; 3];
            let mut past = [0usize; 3];
            let (mut step, mut evicted, mut cut) = (0, 0, false);
            for act in acts {
                match act {
                    Act::Truncate(seq, to) => {
                        s.truncate(seq, to);
                        cut = true;
                        past[seq] = past[seq].min(to);
                        for c in &mut cells[seq] {
                            *c = c.filter(|c| c.position < to);
                        }
                    }
                    Act::Step(seq, tokens) => {
                        prop_assert!(s.check_room(seq, tokens).is_ok());
                        let span = s.enter(seq, tokens);
                        step += 1;
                        let end = past[seq] + tokens;
                        for position in past[seq]..end {
                            let cell = Cell { position, written: step, last_used: step };
                            evicted += u64::from(cells[seq][slots.slot(position)].replace(cell).is_some());
                        }
                        for c in cells[seq].iter_mut().flatten() {
                            let seen = (past[seq]..end).any(|p| c.position <= p && window.is_none_or(|w| p - c.position < w));
                            if seen {
                                c.last_used = step;
                            }
                        }
                        past[seq] = end;
                        s.commit(&[span]);
                    }
                }
                let mut live = 0;
                for seq in 0..3 {
                    let mut want: Vec<SlotInfo> = cells[seq].iter().enumerate().filter_map(|(slot, c)| c.map(|c| SlotInfo {
                        seq, slot, position: c.position, written: c.written, last_used: c.last_used,
                    })).collect();
                    want.sort_by_key(|i| i.position);
                    live += want.len();
                    let got = s.slots(seq);
                    prop_assert_eq!(s.live(seq), want.len());
                    prop_assert_eq!(s.past(seq), past[seq]);
                    let held = |l: &[SlotInfo]| l.iter().map(|i| (i.position, i.slot, i.written)).collect::<Vec<_>>();
                    prop_assert_eq!(held(&got), held(&want));
                    // After a truncation the readers of what is left are forgotten.
                    let used = |l: &[SlotInfo]| l.iter().map(|i| i.last_used).collect::<Vec<_>>();
                    if cut {
                        prop_assert!(got.iter().zip(&want).all(|(g, w)| g.last_used >= g.written && g.last_used <= w.last_used));
                    } else {
                        prop_assert_eq!(used(&got), used(&want));
                    }
                }
                let state = s.state();
                prop_assert_eq!((state.live, state.evicted, state.steps), (live, evicted, step));
                prop_assert!((0.0..=1.0).contains(&state.fragmentation) && (0.0..=1.0).contains(&state.occupancy));
            }
        }
    }
}
