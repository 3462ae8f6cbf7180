use super::*;
use proptest::prelude::*;

fn facts(n: usize, keep: usize, window: Option<usize>, overflow: Overflow) -> Facts {
    Facts {
        slots: Slots { n, keep },
        window,
        overflow,
        kv_type: "f16",
        allocated: 100 * n as u64,
        per_position: 100,
    }
}

/// A sequence that goes on, as an engine keeps it.
struct Cache {
    facts: Facts,
    past: usize,
    live: usize,
    evicted: u64,
}

impl Cache {
    fn new(facts: Facts) -> Self {
        Self {
            facts,
            past: 0,
            live: 0,
            evicted: 0,
        }
    }

    fn step(&mut self, tracer: &mut KvTracer, tokens: usize, accessed: Option<&[u32]>) -> Span {
        let slots = self.facts.slots;
        let live = slots.live_after(self.live, self.past + tokens);
        self.evicted += live
            .min(self.past)
            .saturating_sub(self.live.max(slots.keep)) as u64;
        self.live = live;
        let span = Span {
            seq: 0,
            past: self.past,
            tokens,
            live,
        };
        self.past = span.end();
        tracer.take(&Seen {
            spans: &[span],
            state: CacheState {
                slots: slots.n,
                live: slots.seen(&span, span.end() - 1, None),
                evicted: self.evicted,
                steps: 0,
                occupancy: 0.0,
                fragmentation: 0.25,
            },
            accessed,
        });
        span
    }
}

fn notes(tracer: &KvTracer) -> String {
    let notes = tracer.view().notes.into_iter();
    notes
        .map(|n| format!("{:?}: {}\n", n.finding, n.text))
        .collect()
}

#[test]
fn what_is_wrong_is_said_with_its_figures() {
    let facts_of = facts(8, 2, None, Overflow::Ring);
    let mut cache = Cache::new(facts_of);
    let mut tracer = KvTracer::with(facts_of, 0);
    (0..7).for_each(|_| {
        cache.step(&mut tracer, 1, None);
    });
    assert_eq!(notes(&tracer), "");
    cache.step(&mut tracer, 1, None);
    insta::assert_snapshot!(notes(&tracer), @"Exhaustion: the window is full: 8 of 8 positions; every token evicts the oldest; a larger context (--ctx) holds more");
    (0..30).for_each(|_| {
        cache.step(&mut tracer, 1, None);
    });
    insta::assert_snapshot!(notes(&tracer), @r#"
    Thrashing: 30 of the newest 32 steps evicted positions, and attention found 41 % of those it would look up; a larger context (--ctx) holds more of them
    Exhaustion: the window is full: 8 of 8 positions; every token evicts the oldest; a larger context (--ctx) holds more
    "#);
    let view = tracer.view();
    assert_eq!(view.session.total_evictions, 30);
    assert_eq!(view.session.window_exhaustions, 31);
    assert_eq!(view.session.peak_memory_bytes, 800);
    let last = view.session.steps.last().expect("a step");
    assert_eq!((last.step, last.evictions_this_step), (38, 1));
    // Of 37 earlier positions 7 are left beside its own.
    assert_eq!(last.cache_hit_rate, Some(7.0 / 37.0));
    assert_eq!(last.accessed_positions, [0, 1, 32, 33, 34, 35, 36, 37]);
    assert_eq!(last.oldest_position, 0);

    tracer.clear();
    assert_eq!(tracer.view().session, KvCacheSessionTrace::default());
    assert_eq!(
        (notes(&tracer), tracer.view().what_if),
        (String::new(), vec![])
    );

    let mut small = facts(8, 0, None, Overflow::Stop);
    small.allocated = 700;
    let mut tracer = KvTracer::with(small, 0);
    Cache::new(small).step(&mut tracer, 8, None);
    insta::assert_snapshot!(notes(&tracer), @r#"
    Leak: the cache holds 800 bytes and 700 are allocated: this is a defect of cbtop, please report it
    Exhaustion: the window is full: 8 of 8 positions; the next token is refused; a larger context (--ctx) takes more, --overflow ring goes on without the oldest
    "#);
}

#[test]
fn steps_and_positions_are_bounded() {
    let facts = facts(1000, 0, None, Overflow::Stop);
    let mut cache = Cache::new(facts);
    let mut tracer = KvTracer::with(facts, 0);
    (0..400).for_each(|_| {
        cache.step(&mut tracer, 1, None);
    });
    let view = tracer.view();
    assert_eq!(view.session.steps.len(), KEPT);
    assert_eq!(view.session.steps[0].step, 145);
    let last = view.session.steps.last().expect("a step");
    assert_eq!(last.accessed_positions.len(), MAX_ACCESSED);
    assert_eq!(last.accessed_positions.last(), Some(&399));
    // Everything that is visible is read: a smaller cache of either kind finds its own size of it.
    assert!(!view.by_weight);
    let sizes: Vec<u32> = view.what_if.iter().map(|w| w.slots).collect();
    assert_eq!(sizes, [128, 64, 32]);
    assert!(
        view.what_if
            .iter()
            .all(|w| w.ring_hit_rate == w.lru_hit_rate)
    );

    // By weight: what is not held, or not there at all, is no read.
    let mut tracer = KvTracer::with(facts, 0);
    cache.step(&mut tracer, 1, Some(&[0, 7, 400, 401, u32::MAX]));
    let view = tracer.view();
    assert!(view.by_weight);
    assert_eq!(view.session.steps[0].accessed_positions, [0, 7, 400]);
}

proptest! {
    #[test]
    fn rates_and_positions_are_those_of_a_plain_cache(
        n in 6usize..30, keep in 0usize..5, window in prop::option::of(1usize..20),
        acts in prop::collection::vec((1usize..6, prop::option::weighted(0.1, 0usize..40)), 1..25),
    ) {
        let facts = facts(n, keep.min(n - 6), window, Overflow::Ring);
        let mut cache = Cache::new(facts);
        let mut tracer = KvTracer::with(facts, 0);
        let mut cells: Vec<Option<usize>> = vec![None; n];
        for (tokens, truncate) in acts {
            if let Some(to) = truncate {
                cache.past = cache.past.min(to);
                cache.live = cache.live.min(cache.past);
                cells.iter_mut().for_each(|c| *c = c.filter(|p| *p < to));
            }
            let before = cells.clone();
            let span = cache.step(&mut tracer, tokens, None);
            let mut gone = 0;
            for p in span.past..span.end() {
                cells[facts.slots.slot(p)] = Some(p);
            }
            for p in before.into_iter().flatten() {
                gone += u32::from(!cells.contains(&Some(p)));
            }
            let (mut lookups, mut hits, mut read) = (0, 0, Vec::new());
            for p in span.past..span.end() {
                for q in (0..=p).filter(|q| window.is_none_or(|w| p - q < w)) {
                    let held = cells.contains(&Some(q));
                    lookups += u32::from(q < p);
                    hits += u32::from(q < p && held);
                    if held {
                        read.push(q as u32);
                    }
                }
            }
            read.sort_unstable();
            read.dedup();
            let view = tracer.view();
            let last = view.session.steps.last().expect("a step");
            let rate = (lookups > 0).then(|| (f64::from(hits) / f64::from(lookups)) as f32);
            prop_assert_eq!(last.cache_hit_rate, rate);
            prop_assert_eq!(last.evictions_this_step, gone);
            prop_assert_eq!(&last.accessed_positions, &read);
            let oldest = cells.iter().flatten().min().expect("its own");
            prop_assert_eq!(last.oldest_position as usize, *oldest);
            prop_assert_eq!(last.valid_positions as usize, cells.iter().flatten().count());
            prop_assert_eq!(last.cache_size_bytes, 100 * u64::from(last.valid_positions));
        }
    }
}
