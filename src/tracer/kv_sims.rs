//! Smaller caches beside the real one: how many of the positions that attention reads they would still hold.
//!
//! Sizes are powers of two. While fewer positions are in use than a size has room for, a cache of it holds everything, so only
//! the few sizes that are too small are told apart, and the largest of them is copied when use outgrows it.

use super::figures::CacheWhatIf;
use crate::model::Slots;

/// Slots of the smallest cache.
const LEAST: usize = 4;
/// Slots of the real cache up to which smaller ones are followed.
const MOST: usize = 1 << 18;
/// Sizes followed: one that holds everything, and the halves down to an eighth of half of it.
const SIZES: usize = 5;
/// No slot.
const NONE: u32 = u32::MAX;

/// The slots of the real cache that an LRU cache holds, as a list from the newest use to the oldest.
#[derive(Debug, Clone, Default)]
struct Lru {
    /// Most slots held.
    room: usize,
    held: usize,
    /// By slot the next in the list, older; [`NONE`] for one that is not held. At the end the list's own: the newest.
    older: Vec<u32>,
    /// The other way.
    newer: Vec<u32>,
}

impl Lru {
    /// Nothing of a cache of `slots`.
    fn new(slots: usize) -> Self {
        let mut lru = Self {
            room: 0,
            held: 0,
            older: vec![NONE; slots + 1],
            newer: vec![NONE; slots + 1],
        };
        lru.clear();
        lru
    }

    /// The place of the list itself, before the newest and behind the oldest.
    fn own(&self) -> usize {
        self.older.len().saturating_sub(1)
    }

    fn clear(&mut self) {
        let own = self.own();
        self.held = 0;
        self.older.fill(NONE);
        self.newer.fill(NONE);
        self.link(own, own);
    }

    fn link(&mut self, newer: usize, older: usize) {
        if let (Some(o), Some(n)) = (self.older.get_mut(newer), self.newer.get_mut(older)) {
            *o = older as u32;
            *n = newer as u32;
        }
    }

    /// Takes a slot out, if it is held.
    fn remove(&mut self, slot: usize) -> bool {
        if slot >= self.own() {
            return false;
        }
        let places = (self.newer.get_mut(slot), self.older.get_mut(slot));
        let (Some(newer), Some(older)) = places else {
            return false;
        };
        if *newer == NONE || *older == NONE {
            return false;
        }
        let (n, o) = (*newer as usize, *older as usize);
        (*newer, *older) = (NONE, NONE);
        self.link(n, o);
        self.held -= 1;
        true
    }

    fn push(&mut self, slot: usize) {
        let own = self.own();
        let newest = self.older.get(own).map_or(own, |s| *s as usize);
        self.link(own, slot);
        self.link(slot, newest);
        self.held += 1;
    }

    /// A slot gets a new position: the one it held is gone, and where there is no room so is what was used longest ago.
    fn write(&mut self, slot: usize) {
        self.remove(slot);
        if self.held >= self.room {
            let oldest = self.newer.get(self.own()).map_or(0, |s| *s as usize);
            self.remove(oldest);
        }
        if slot < self.own() {
            self.push(slot);
        }
    }

    /// Uses a slot; whether it is held.
    fn read(&mut self, slot: usize) -> bool {
        let held = self.remove(slot);
        if held {
            self.push(slot);
        }
        held
    }

    /// Becomes a copy of one for as large a cache.
    fn copy(&mut self, other: &Self) {
        (self.room, self.held) = (other.room, other.held);
        self.older.copy_from_slice(&other.older);
        self.newer.copy_from_slice(&other.newer);
    }
}

/// One size, under both rules.
#[derive(Debug, Clone, Default)]
struct CacheSim {
    slots: usize,
    /// [`Span::live`](crate::model::Span::live) of the ring.
    live: usize,
    ring_hits: u64,
    lru: Lru,
    lru_hits: u64,
}

impl CacheSim {
    /// The ring's slots; it keeps as many first positions as the real one, and one slot at least for the others.
    fn ring(&self, keep: usize) -> Slots {
        Slots {
            n: self.slots,
            keep: keep.min(self.slots.saturating_sub(1)),
        }
    }
}

/// Rings and LRU caches of smaller sizes, fed with what a sequence writes and reads.
///
/// In a step its own positions come first, each evicting where there is no room; then the earlier positions that are read
/// are looked up, in ascending order, and last the step's own are used, which counts as no look-up. What was evicted does not
/// come back. What the real cache evicts is gone from the smaller ones too.
#[derive(Debug, Clone)]
pub struct CacheSims {
    /// The real cache's.
    slots: Slots,
    /// From the largest, which holds everything, down by halves; none where the real cache is too large to follow.
    sims: Vec<CacheSim>,
    /// Positions of the sequence.
    end: usize,
    /// Most positions that were ever in the cache.
    used: usize,
    /// Earlier positions that were read.
    reads: u64,
}

impl CacheSims {
    /// Beside a cache of `slots`, empty. All memory they will ever need, 40 bytes a slot.
    pub fn new(slots: Slots) -> Self {
        let n = if slots.n <= MOST { SIZES } else { 0 };
        let mut sims = Self {
            slots,
            sims: Vec::with_capacity(n),
            end: 0,
            used: 0,
            reads: 0,
        };
        for _ in 0..n {
            sims.sims.push(CacheSim {
                lru: Lru::new(slots.n),
                ..CacheSim::default()
            });
        }
        sims.clear();
        sims
    }

    /// The positions `from..to`, as far as the real cache can hold them: the kept first ones, and the newest.
    fn held(&self, from: usize, to: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        let first = from.max(to.saturating_sub(self.slots.n));
        (from..self.slots.keep.min(first)).chain(first..to)
    }

    /// Positions of the sequence.
    pub fn end(&self) -> usize {
        self.end
    }

    /// Forgets everything, sizes too.
    pub fn clear(&mut self) {
        (self.end, self.used, self.reads) = (0, 0, 0);
        for (i, sim) in self.sims.iter_mut().enumerate() {
            sim.lru.clear();
            (sim.live, sim.ring_hits, sim.lru_hits) = (0, 0, 0);
            sim.slots = LEAST << (SIZES - 1 - i);
            sim.lru.room = sim.slots;
        }
    }

    /// Forgets the positions from `keep` on; what was read stays counted.
    pub fn truncate(&mut self, keep: usize) {
        for position in self.held(keep, self.end) {
            let slot = self.slots.slot(position);
            self.sims.iter_mut().for_each(|s| {
                s.lru.remove(slot);
            });
        }
        self.end = self.end.min(keep);
        for sim in &mut self.sims {
            sim.live = sim.live.min(self.end);
        }
    }

    /// The sequence goes on to `end` positions.
    pub fn write(&mut self, end: usize) {
        let new = self.held(self.end, end);
        self.end = self.end.max(end);
        self.used = self.used.max(self.end.min(self.slots.n));
        while self.sims.first().is_some_and(|s| s.slots < self.used) {
            self.grow();
        }
        for sim in &mut self.sims {
            for position in new.clone() {
                sim.lru.write(self.slots.slot(position));
            }
            sim.live = sim.ring(self.slots.keep).live_after(sim.live, end);
        }
    }

    /// Follows one size more, of which everything has fitted so far, and the smallest no longer.
    fn grow(&mut self) {
        self.sims.rotate_right(1);
        if let [new, old, ..] = &mut self.sims[..] {
            new.lru.copy(&old.lru);
            (new.live, new.ring_hits, new.lru_hits) = (old.live, old.ring_hits, old.lru_hits);
            new.slots = old.slots * 2;
            new.lru.room = new.slots;
        }
    }

    /// Looks up the earlier positions among `read`, those before `past`; each is in the real cache, the lowest first.
    pub fn read(&mut self, read: impl Iterator<Item = usize> + Clone, past: usize) {
        let own = self.held(past, self.end);
        self.reads += read.clone().filter(|p| *p < past).count() as u64;
        for sim in &mut self.sims {
            let ring = sim.ring(self.slots.keep);
            for position in read.clone().filter(|p| *p < past) {
                let in_ring = sim.live <= ring.keep || position < ring.keep || position >= sim.live;
                sim.ring_hits += u64::from(in_ring);
                sim.lru_hits += u64::from(sim.lru.read(self.slots.slot(position)));
            }
            for position in own.clone() {
                sim.lru.read(self.slots.slot(position));
            }
        }
    }

    /// The largest sizes of at most a half, a quarter and an eighth of the positions used so far.
    pub fn what_if(&self) -> Vec<CacheWhatIf> {
        if self.reads == 0 {
            return Vec::new();
        }
        let share = |hits: u64| (hits as f64 / self.reads as f64) as f32;
        let fits = |s: &&CacheSim| s.slots >= LEAST && s.slots * 2 <= self.used;
        let sims = self.sims.iter().filter(fits).take(3);
        sims.map(|s| CacheWhatIf {
            slots: s.slots as u32,
            ring_hit_rate: share(s.ring_hits),
            lru_hit_rate: share(s.lru_hits),
        })
        .collect()
    }
}

#[cfg(test)]
#[path = "kv_sims_tests.rs"]
mod tests;
