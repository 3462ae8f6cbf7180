use super::*;
use crate::model::Span;
use proptest::prelude::*;

/// A smaller cache in the plainest form: positions with the time of their last use.
struct Naive {
    n: usize,
    lru: bool,
    keep: usize,
    held: Vec<(usize, u64)>,
    hits: u64,
}

impl Naive {
    fn new(n: usize, lru: bool, keep: usize) -> Self {
        let (held, hits) = (Vec::new(), 0);
        Self {
            n,
            lru,
            keep: keep.min(n - 1),
            held,
            hits,
        }
    }

    fn write(&mut self, position: usize, time: u64) {
        if self.held.len() == self.n {
            let lru = self.lru;
            let keep = self.keep;
            let out = self.held.iter().enumerate();
            let out = out.filter(|(_, h)| lru || h.0 >= keep);
            // The ring's oldest is its lowest position; the LRU's is what was used longest ago.
            let key = |h: &(usize, u64)| if lru { h.1 } else { h.0 as u64 };
            let out = out.min_by_key(|(_, h)| key(h)).expect("one").0;
            self.held.remove(out);
        }
        self.held.push((position, time));
    }

    fn use_(&mut self, position: usize, time: u64) -> bool {
        let held = self.held.iter_mut().find(|h| h.0 == position);
        let there = held.is_some();
        if let Some(h) = held {
            h.1 = time;
        }
        there
    }
}

#[derive(Debug, Clone)]
enum Act {
    /// So many tokens; of the earlier positions those whose bit is set are read.
    Step(usize, u64),
    Truncate(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        8 => (1usize..5, any::<u64>()).prop_map(|(n, bits)| Act::Step(n, bits)),
        1 => (0usize..60).prop_map(Act::Truncate),
    ];
    prop::collection::vec(act, 1..60)
}

proptest! {
    #[test]
    fn f261_rings_and_lru_caches_evict_as_a_naive_model_does(
        n in 6usize..70, keep in 0usize..4, ring in any::<bool>(), acts in acts(),
    ) {
        let keep = if ring { keep.min(n - 6) } else { 0 };
        let slots = Slots { n, keep };
        let mut sims = CacheSims::new(slots);
        let sizes = [4, 8, 16, 32, 64, 128];
        let mut naive: Vec<Naive> = sizes.iter().flat_map(|&s| [Naive::new(s, false, keep), Naive::new(s, true, 0)]).collect();
        let (mut past, mut live, mut time, mut reads, mut used) = (0usize, 0usize, 0u64, 0u64, 0usize);
        for act in acts {
            match act {
                Act::Truncate(to) => {
                    sims.truncate(to);
                    past = past.min(to);
                    live = live.min(past);
                    naive.iter_mut().for_each(|c| c.held.retain(|h| h.0 < to));
                }
                Act::Step(tokens, bits) => {
                    let end = past + tokens;
                    if !ring && end > n {
                        continue;
                    }
                    live = slots.live_after(live, end);
                    let span = Span { seq: 0, past, tokens, live };
                    let (kept, rest) = slots.visible(&span, end - 1, None);
                    let real: Vec<usize> = kept.chain(rest).collect();
                    let read: Vec<usize> = real.iter().copied().filter(|p| bits >> (p % 64) & 1 == 1).collect();
                    sims.write(end);
                    sims.read(read.iter().copied(), past);
                    used = used.max(end.min(n));
                    reads += read.iter().filter(|p| **p < past).count() as u64;
                    for c in &mut naive {
                        for position in past..end {
                            time += 1;
                            // What the real cache evicts for this position goes first.
                            let slot = slots.slot(position);
                            c.held.retain(|h| slots.slot(h.0) != slot);
                            c.write(position, time);
                        }
                        for &position in read.iter().filter(|p| **p < past) {
                            time += 1;
                            c.hits += u64::from(c.use_(position, time));
                        }
                        for position in past..end {
                            time += 1;
                            c.use_(position, time);
                        }
                    }
                    past = end;
                }
            }
            let mut want = Vec::new();
            for (pair, size) in naive.chunks(2).zip(sizes).rev().filter(|(_, s)| s * 2 <= used).take(3) {
                if reads > 0 {
                    want.push(CacheWhatIf {
                        slots: size as u32,
                        ring_hit_rate: (pair[0].hits as f64 / reads as f64) as f32,
                        lru_hit_rate: (pair[1].hits as f64 / reads as f64) as f32,
                    });
                }
            }
            prop_assert_eq!(sims.what_if(), want);
            prop_assert_eq!(sims.end(), past);
        }
    }
}

#[test]
fn a_cache_too_large_to_follow_is_not() {
    let mut sims = CacheSims::new(Slots {
        n: MOST + 1,
        keep: 0,
    });
    sims.write(100);
    sims.read(0..99, 99);
    assert_eq!(sims.what_if(), []);
}

#[test]
fn what_a_head_needs_again_stays_in_an_lru_cache() {
    // Position 0 is read in every step, and the three newest: a ring of 8 loses the first, LRU does not.
    let mut sims = CacheSims::new(Slots { n: 64, keep: 0 });
    for past in 0..32usize {
        sims.write(past + 1);
        let newest = past.saturating_sub(3).max(1)..past;
        sims.read((0..1).chain(newest), past);
    }
    let found = sims.what_if();
    let of = |slots: u32| found.iter().find(|w| w.slots == slots).expect("followed");
    assert_eq!(of(8).lru_hit_rate, 1.0);
    assert!(of(8).ring_hit_rate < 0.85, "{found:?}");
    sims.clear();
    assert_eq!((sims.what_if(), sims.end()), (vec![], 0));
}
