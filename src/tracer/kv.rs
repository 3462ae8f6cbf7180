//! State of the kv cache, step by step: what it holds, what it evicted, what attention found of what it would look up, and
//! how smaller caches would have done.

use super::figures::{KvCacheSessionTrace, KvCacheStateTrace, KvFinding, KvNote, KvView};
use super::kv_sims::CacheSims;
use crate::engine::{CacheState, Engine, Observer, Overflow};
use crate::model::{Slots, Span};
use std::collections::VecDeque;
use std::ops::Range;

/// Steps that are kept, the newest.
pub const KEPT: usize = 256;
/// Positions listed of those that a step read, the newest.
pub const MAX_ACCESSED: usize = 256;
/// Newest steps that findings are about.
const RECENT: usize = 32;
/// Share of look-ups that must be found for evictions to be no thrashing.
const FEW_HITS: f64 = 0.5;

/// What does not change while an engine lives.
#[derive(Debug, Clone, Copy)]
struct Facts {
    slots: Slots,
    /// The widest window of all layers; `None` where a layer sees everything.
    window: Option<usize>,
    overflow: Overflow,
    kv_type: &'static str,
    allocated: u64,
    per_position: u64,
}

/// What a step has done to a cache.
#[derive(Debug, Clone, Copy)]
struct Seen<'a> {
    /// The sequences of the step.
    spans: &'a [Span],
    state: CacheState,
    /// Positions with weight, ascending; `None` where attention is not traced.
    accessed: Option<&'a [u32]>,
}

/// Watches the cache of one engine. Counts, bytes and hit rates are those of all its sequences together; positions, and what
/// smaller caches would do, are those of sequence 0.
///
/// All memory is allocated when it is made.
#[derive(Debug, Clone)]
pub struct KvTracer {
    facts: Facts,
    steps: VecDeque<KvCacheStateTrace>,
    sims: CacheSims,
    step: u64,
    /// Evictions of the engine before the next step.
    evicted: u64,
    total_evictions: u64,
    peak: u64,
    hit_rates: (f64, u64),
    exhaustions: u64,
    by_weight: bool,
}

impl KvTracer {
    /// Of an engine, from its next step on.
    pub fn new<O: Observer>(engine: &Engine<O>) -> Self {
        let (config, hp) = (engine.config(), &engine.model().hparams);
        let windows = (0..hp.n_layers).map(|l| hp.layer_window(l));
        let window = windows.map(|w| w.unwrap_or(usize::MAX)).max();
        let facts = Facts {
            slots: config.slots(),
            window: window.filter(|w| *w < usize::MAX),
            overflow: config.overflow,
            kv_type: config.kv_type.name(),
            allocated: engine.kv_bytes(),
            per_position: engine.kv_bytes_per_token(),
        };
        Self::with(facts, engine.cache_state().evicted)
    }

    fn with(facts: Facts, evicted: u64) -> Self {
        let blank = || KvCacheStateTrace {
            step: 0,
            cache_size_bytes: 0,
            valid_positions: 0,
            max_positions: 0,
            evictions_this_step: 0,
            cache_hit_rate: None,
            oldest_position: 0,
            fragmentation: 0.0,
            accessed_positions: Vec::with_capacity(MAX_ACCESSED),
        };
        Self {
            // Blank ones at the front: a step takes the place of the oldest.
            steps: (0..KEPT).map(|_| blank()).collect(),
            sims: CacheSims::new(facts.slots),
            facts,
            step: 0,
            evicted,
            total_evictions: 0,
            peak: 0,
            hit_rates: (0.0, 0),
            exhaustions: 0,
            by_weight: false,
        }
    }

    /// Reads the engine after a step. `accessed`: the positions of sequence 0 in the recorded top of any traced head of any
    /// query of the step that is held, ascending, each once; `None` where attention is not traced, and then all that
    /// were visible to one of its queries count. Allocates nothing.
    pub fn step<O: Observer>(&mut self, engine: &Engine<O>, accessed: Option<&[u32]>) {
        self.take(&Seen {
            spans: engine.spans(),
            state: engine.cache_state(),
            accessed,
        });
    }

    fn take(&mut self, seen: &Seen<'_>) {
        let Some(mut entry) = self.steps.pop_front() else {
            return;
        };
        self.step += 1;
        let state = &seen.state;
        let evictions = state.evicted.saturating_sub(self.evicted);
        self.evicted = state.evicted;
        self.total_evictions += evictions;
        entry.step = self.step;
        entry.cache_size_bytes = self.facts.per_position * state.live as u64;
        entry.valid_positions = state.live as u32;
        entry.max_positions = state.slots as u32;
        entry.evictions_this_step = u32::try_from(evictions).unwrap_or(u32::MAX);
        entry.fragmentation = state.fragmentation as f32;
        entry.cache_hit_rate = self.hit_rate(seen.spans);
        entry.oldest_position = 0;
        entry.accessed_positions.clear();
        self.by_weight = seen.accessed.is_some();
        if let Some(span) = seen.spans.iter().find(|s| s.seq == 0) {
            let slots = self.facts.slots;
            let (kept, rest) = slots.visible(span, span.end().saturating_sub(1), None);
            entry.oldest_position = if kept.is_empty() {
                rest.start
            } else {
                kept.start
            } as u32;
            self.follow(span, seen.accessed, &mut entry.accessed_positions);
        }
        self.peak = self.peak.max(entry.cache_size_bytes);
        if let Some(rate) = entry.cache_hit_rate {
            self.hit_rates.0 += f64::from(rate);
            self.hit_rates.1 += 1;
        }
        self.exhaustions += u64::from(is_full(&entry));
        self.steps.push_back(entry);
    }

    /// Of the earlier positions that the step's queries would look up in a cache without bounds, in the layer with the
    /// widest window, the share that they saw.
    fn hit_rate(&self, spans: &[Span]) -> Option<f32> {
        let window = self.facts.window;
        let (mut lookups, mut hits) = (0u64, 0u64);
        for span in spans {
            for position in span.past..span.end() {
                let earlier = window.map_or(position, |w| position.min(w.saturating_sub(1)));
                lookups += earlier as u64;
                let seen = self.facts.slots.seen(span, position, window);
                hits += seen.saturating_sub(1) as u64;
            }
        }
        (lookups > 0).then(|| (hits as f64 / lookups as f64) as f32)
    }

    /// Feeds the smaller caches, and lists what was read.
    fn follow(&mut self, span: &Span, accessed: Option<&[u32]>, list: &mut Vec<u32>) {
        if span.past < self.sims.end() {
            self.sims.truncate(span.past);
        }
        // Positions from before this was switched on, or that it did not see.
        self.sims.write(span.past);
        self.sims.write(span.end());
        let (kept, rest) = visible(&self.facts, span);
        let held = |p: &usize| kept.contains(p) || rest.contains(p);
        match accessed {
            Some(all) => {
                let read = all.iter().map(|p| *p as usize).filter(held);
                self.sims.read(read.clone(), span.past);
                let more = read.clone().count().saturating_sub(MAX_ACCESSED);
                list.extend(read.skip(more).map(|p| p as u32));
            }
            None => {
                let read = kept.clone().chain(rest.clone());
                self.sims.read(read.clone(), span.past);
                let more = (kept.len() + rest.len()).saturating_sub(MAX_ACCESSED);
                list.extend(read.skip(more).map(|p| p as u32));
            }
        }
    }

    /// Forgets the session so far; what the cache holds stays known.
    pub fn clear(&mut self) {
        let end = self.sims.end();
        self.sims.clear();
        self.sims.write(end);
        self.step = 0;
        self.total_evictions = 0;
        self.peak = 0;
        self.hit_rates = (0.0, 0);
        self.exhaustions = 0;
        self.steps.iter_mut().for_each(|s| s.step = 0);
    }

    /// The steps kept, oldest first.
    fn kept(&self) -> impl DoubleEndedIterator<Item = &KvCacheStateTrace> {
        self.steps.iter().filter(|s| s.step > 0)
    }

    /// What was found so far.
    pub fn view(&self) -> KvView {
        let facts = &self.facts;
        let (sum, n) = self.hit_rates;
        KvView {
            session: KvCacheSessionTrace {
                steps: self.kept().cloned().collect(),
                total_evictions: self.total_evictions,
                peak_memory_bytes: self.peak,
                avg_hit_rate: (n > 0).then(|| (sum / n as f64) as f32),
                window_exhaustions: self.exhaustions,
            },
            allocated_bytes: facts.allocated,
            bytes_per_position: facts.per_position,
            overflow: facts.overflow.name().into(),
            keep: facts.slots.keep as u32,
            kv_type: facts.kv_type.into(),
            what_if: self.sims.what_if(),
            by_weight: self.by_weight,
            notes: self.notes(),
        }
    }

    fn notes(&self) -> Vec<KvNote> {
        let found = [
            (KvFinding::Thrashing, self.thrashing()),
            (KvFinding::Leak, self.leak()),
            (KvFinding::Exhaustion, self.exhaustion()),
        ];
        let found = found.into_iter();
        found
            .filter_map(|(finding, text)| {
                Some(KvNote {
                    finding,
                    text: text?,
                })
            })
            .collect()
    }

    /// Evictions in most of the newest steps, and few hits in them.
    fn thrashing(&self) -> Option<String> {
        let newest = || self.kept().rev().take(RECENT);
        let all = newest().count();
        let evicting = newest().filter(|s| s.evictions_this_step > 0).count();
        let rates = newest().filter_map(|s| s.cache_hit_rate);
        let (sum, n) = rates.fold((0.0, 0u32), |(sum, n), r| (sum + f64::from(r), n + 1));
        let mean = sum / f64::from(n.max(1));
        (n > 0 && evicting * 2 > all && mean < FEW_HITS).then(|| {
            format!(
                "{evicting} of the newest {all} steps evicted positions, and attention found {:.0} % of those it would look \
                 up; a larger context (--ctx) holds more of them",
                100.0 * mean
            )
        })
    }

    /// More bytes than there are: a defect wherever it is seen.
    fn leak(&self) -> Option<String> {
        let held = self.kept().next_back()?.cache_size_bytes;
        let allocated = self.facts.allocated;
        (held > allocated).then(|| {
            format!(
                "the cache holds {held} bytes and {allocated} are allocated: this is a defect of cbtop, please report it"
            )
        })
    }

    fn exhaustion(&self) -> Option<String> {
        let last = self.kept().next_back().filter(|s| is_full(s))?;
        let what = match self.facts.overflow {
            Overflow::Stop => {
                "the next token is refused; a larger context (--ctx) takes more, --overflow ring goes on without the oldest"
            }
            Overflow::Ring => "every token evicts the oldest; a larger context (--ctx) holds more",
        };
        Some(format!(
            "the window is full: {} of {} positions; {what}",
            last.valid_positions, last.max_positions
        ))
    }
}

fn is_full(step: &KvCacheStateTrace) -> bool {
    step.valid_positions >= step.max_positions
}

/// What any query of the step sees in the layer with the widest window: kept first positions, then the rest.
fn visible(facts: &Facts, span: &Span) -> (Range<usize>, Range<usize>) {
    let window = facts.window;
    let (first_kept, first_rest) = facts.slots.visible(span, span.past, window);
    let (last_kept, last_rest) = facts
        .slots
        .visible(span, span.end().saturating_sub(1), window);
    let join = |a: Range<usize>, b: Range<usize>| match (a.is_empty(), b.is_empty()) {
        (true, _) => b,
        (_, true) => a,
        _ => a.start.min(b.start)..a.end.max(b.end),
    };
    (join(first_kept, last_kept), join(first_rest, last_rest))
}

#[cfg(test)]
#[path = "kv_tests.rs"]
mod tests;
