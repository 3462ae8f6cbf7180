//! Per-brick and per-layer statistics over steps. Folding a step in allocates nothing; rows are made on request.

use super::clock::Clock;
use super::heat::Heat;
use super::histogram::Histogram;
use super::recorder::{Event, StepRecord};
use super::step_times::StepTimes;
use crate::engine::StepKind;
use crate::model::brick::{BrickId, Category};
use crate::model::work::Work;
use crate::profiler::figures::{BrickRow, HeatRow, Latency, LatencyBucket, LayerRow};

/// Count, spread and percentiles of durations in nanoseconds.
#[derive(Debug, Clone)]
pub struct Spread {
    count: u64,
    total: f64,
    /// The first duration. Sums of distances from it and of their squares give the deviation without a division a call,
    /// and do not cancel as sums about zero would (Chan, Golub, LeVeque 1983).
    first: f64,
    distances: f64,
    squares: f64,
    min: f64,
    max: f64,
    histogram: Histogram,
}

impl Default for Spread {
    fn default() -> Self {
        let histogram = Histogram::default();
        Self {
            count: 0,
            total: 0.0,
            first: 0.0,
            distances: 0.0,
            squares: 0.0,
            min: f64::INFINITY,
            max: 0.0,
            histogram,
        }
    }
}

impl Spread {
    /// Adds one duration, nanoseconds.
    #[inline]
    pub fn add(&mut self, ns: f64) {
        if self.count == 0 {
            self.first = ns;
        }
        self.count += 1;
        self.total += ns;
        let distance = ns - self.first;
        self.distances += distance;
        self.squares += distance * distance;
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
        self.histogram.add(ns);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        // In place: a fresh histogram would allocate, and clearing happens between two tokens.
        self.histogram.clear();
        (self.count, self.total) = (0, 0.0);
        (self.first, self.distances, self.squares) = (0.0, 0.0, 0.0);
        (self.min, self.max) = (f64::INFINITY, 0.0);
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum, nanoseconds.
    pub fn total_ns(&self) -> f64 {
        self.total
    }

    /// Their mean, nanoseconds; `None` without any.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.total / self.count as f64)
    }

    /// Sample standard deviation, nanoseconds; `None` with fewer than two.
    pub fn stddev_ns(&self) -> Option<f64> {
        let n = self.count as f64;
        let squares = self.squares - self.distances * self.distances / n;
        (self.count > 1).then(|| (squares.max(0.0) / (n - 1.0)).sqrt())
    }

    /// Shortest, nanoseconds.
    pub fn min_ns(&self) -> Option<f64> {
        (self.count > 0).then_some(self.min)
    }

    /// Longest, nanoseconds.
    pub fn max_ns(&self) -> Option<f64> {
        (self.count > 0).then_some(self.max)
    }

    /// Duration at nearest rank `ceil(q * count)`, within 4%, never outside the shortest and the longest.
    pub fn quantile_ns(&self, q: f64) -> Option<f64> {
        self.histogram
            .quantile(q)
            .map(|v| v.clamp(self.min, self.max))
    }

    /// All of it in microseconds, with the occupied buckets of the histogram; allocates.
    pub fn latency(&self) -> Latency {
        let us = |ns: Option<f64>| ns.map(|ns| ns * 1e-3);
        let bucket = |(from, to, count)| LatencyBucket {
            from_us: from * 1e-3,
            to_us: to * 1e-3,
            count,
        };
        Latency {
            count: self.count,
            mean_us: us(self.mean_ns()),
            stddev_us: us(self.stddev_ns()),
            min_us: us(self.min_ns()),
            p50_us: us(self.quantile_ns(0.50)),
            p90_us: us(self.quantile_ns(0.90)),
            p99_us: us(self.quantile_ns(0.99)),
            max_us: us(self.max_ns()),
            buckets: self.histogram.buckets().map(bucket).collect(),
        }
    }
}

/// One brick's calls.
#[derive(Debug, Clone, Default)]
struct BrickStats {
    time: Spread,
    work: Work,
    steps: StepTimes,
}

impl BrickStats {
    #[inline]
    fn add(&mut self, ns: f64, work: Work) {
        self.time.add(ns);
        self.steps.add(ns);
        self.work.elements = self.work.elements.saturating_add(work.elements);
        self.work.bytes = self.work.bytes.saturating_add(work.bytes);
        self.work.flops = self.work.flops.saturating_add(work.flops);
    }

    fn row(&self, id: BrickId, steps: u64, all_ns: f64, clock: Option<Clock>) -> BrickRow {
        let us = |ns: Option<f64>| ns.unwrap_or(0.0) * 1e-3;
        let per_step = |sum: u64| (sum as f64 / steps.max(1) as f64).round() as u64;
        let total = self.time.total_ns();
        BrickRow {
            id,
            category: id.category(),
            calls: self.time.count(),
            steps,
            total_us: total * 1e-3,
            us_per_step: total * 1e-3 / steps.max(1) as f64,
            mean_us: us(self.time.mean_ns()),
            stddev_us: us(self.time.stddev_ns()),
            min_us: us(self.time.min_ns()),
            max_us: us(self.time.max_ns()),
            p50_us: us(self.time.quantile_ns(0.50)),
            p99_us: us(self.time.quantile_ns(0.99)),
            elements_per_step: per_step(self.work.elements),
            bytes_per_step: per_step(self.work.bytes),
            flops_per_step: per_step(self.work.flops),
            share: if all_ns > 0.0 { total / all_ns } else { 0.0 },
            step_stddev_us: self.steps.stddev_ns().map(|ns| ns * 1e-3),
            history_us: self.steps.history_us(),
            cycles_per_call: clock
                .zip(self.time.mean_ns())
                .and_then(|(clock, ns)| clock.cycles(ns)),
        }
    }
}

/// Statistics of all steps of one kind.
#[derive(Debug, Clone)]
struct KindStats {
    /// Indexed by `BrickId`.
    bricks: Vec<BrickStats>,
    /// Scores, softmax and weighted values inside attention, on thread 0.
    attention: [BrickStats; 3],
    wall: Spread,
    /// That of the steps.
    clock: Option<Clock>,
}

/// The parts of attention, in the order of [`crate::engine::Done::attention`].
const ATTENTION: [BrickId; 3] = [
    BrickId::AttentionScore,
    BrickId::AttentionSoftmax,
    BrickId::AttentionOutput,
];

impl KindStats {
    fn new() -> Self {
        Self {
            bricks: vec![BrickStats::default(); BrickId::COUNT],
            attention: Default::default(),
            wall: Spread::default(),
            clock: None,
        }
    }

    fn add_step(&mut self, step: &StepRecord) {
        let clock = step.clock();
        self.clock = Some(clock);
        for event in step.events() {
            self.bricks[event.id as usize].add(clock.ns(event.work_ticks), event.work);
            if event.sync_ticks > 0 {
                self.gap(BrickId::Sync, clock.ns(event.sync_ticks));
            }
        }
        if step.attention != [0; 3] {
            for (part, ticks) in self.attention.iter_mut().zip(step.attention) {
                part.add(clock.ns(ticks), Work::default());
            }
        }
        for (id, ticks) in [(BrickId::Launch, step.launch), (BrickId::Join, step.join)] {
            if ticks > 0 {
                self.gap(id, clock.ns(ticks));
            }
        }
        self.gap(BrickId::Unattributed, clock.ns(step.unattributed));
        self.wall.add(clock.ns(step.wall));
        for brick in self.bricks.iter_mut().chain(&mut self.attention) {
            brick.steps.end_step();
        }
    }

    fn gap(&mut self, id: BrickId, ns: f64) {
        self.bricks[id as usize].add(ns, Work::default());
    }

    /// Bricks that ran, in the order they run; `Sync` and `Unattributed` are last and always there.
    fn rows(&self) -> Vec<BrickRow> {
        let steps = self.wall.count();
        if steps == 0 {
            return Vec::new();
        }
        // Shares are of the rows' own sum, so that they add up to 1 even where stamps overlapped.
        let all_ns: f64 = self.bricks.iter().map(|b| b.time.total_ns()).sum();
        let shown = |&(&id, stats): &(&BrickId, &BrickStats)| {
            stats.time.count() > 0 || matches!(id, BrickId::Sync | BrickId::Unattributed)
        };
        BrickId::ALL
            .iter()
            .zip(&self.bricks)
            .filter(shown)
            .map(|(&id, stats)| stats.row(id, steps, all_ns, self.clock))
            .collect()
    }

    /// What attention consists of, on thread 0; empty without attention or with modelled time. Shares are of the whole step.
    fn attention_rows(&self) -> Vec<BrickRow> {
        let all_ns: f64 = self.bricks.iter().map(|b| b.time.total_ns()).sum();
        if self.attention.iter().all(|p| p.time.total_ns() <= 0.0) {
            return Vec::new();
        }
        let parts = ATTENTION.iter().zip(&self.attention);
        parts
            .map(|(&id, stats)| stats.row(id, self.wall.count(), all_ns, self.clock))
            .collect()
    }

    /// What each brick took in the step last added, nanoseconds, indexed by `BrickId`.
    fn last_step_ns(&self) -> [f32; BrickId::COUNT] {
        std::array::from_fn(|i| self.bricks[i].steps.last_ns() as f32)
    }

    fn clear(&mut self) {
        for brick in self.bricks.iter_mut().chain(&mut self.attention) {
            brick.time.clear();
            brick.work = Work::default();
            brick.steps.clear();
        }
        self.wall.clear();
    }
}

/// Time of one layer over decode steps, nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct LayerStats {
    attention: f64,
    ffn: f64,
    norm: f64,
    sync: f64,
    last: f64,
}

impl LayerStats {
    #[inline]
    fn add(&mut self, event: &Event, work_ns: f64, sync_ns: f64) {
        match event.id.category() {
            Category::Attention => self.attention += work_ns,
            Category::Ffn => self.ffn += work_ns,
            Category::Norm => self.norm += work_ns,
            // Nothing of these runs inside a layer; if a model says otherwise, the layer's time must not lose it.
            Category::Head | Category::Overhead => self.sync += work_ns,
        }
        self.sync += sync_ns;
        self.last += work_ns + sync_ns;
    }
}

/// Statistics of a run: per brick for each kind of step, per layer for decode steps.
#[derive(Debug, Clone)]
pub struct Aggregate {
    decode: KindStats,
    prefill: KindStats,
    layers: Vec<LayerStats>,
    heat: Heat,
}

impl Aggregate {
    /// Empty statistics for a model of `n_layers` layers; about 170 KiB.
    pub fn new(n_layers: usize) -> Self {
        Self {
            decode: KindStats::new(),
            prefill: KindStats::new(),
            layers: vec![LayerStats::default(); n_layers],
            heat: Heat::new(n_layers),
        }
    }

    /// Folds a finished step in; allocates nothing.
    pub fn add_step(&mut self, step: &StepRecord) {
        self.kind_mut(step.kind).add_step(step);
        if step.kind == StepKind::Decode {
            self.add_layers(step);
        }
    }

    fn add_layers(&mut self, step: &StepRecord) {
        let clock = step.clock();
        for layer in &mut self.layers {
            layer.last = 0.0;
        }
        for event in step.events() {
            // `NO_LAYER` is past the end of every model.
            if let Some(layer) = self.layers.get_mut(usize::from(event.layer)) {
                layer.add(
                    event,
                    clock.ns(event.work_ticks),
                    clock.ns(event.sync_ticks),
                );
                self.heat
                    .add(event.layer.into(), event.id, clock.ns(event.work_ticks));
            }
        }
    }

    /// Forgets everything: a restart, a change of configuration or the user's wish.
    pub fn clear(&mut self) {
        self.decode.clear();
        self.prefill.clear();
        self.layers.fill(LayerStats::default());
        self.heat.clear();
    }

    /// Steps of a kind so far.
    pub fn steps(&self, kind: StepKind) -> u64 {
        self.kind(kind).wall.count()
    }

    /// Wall times of the steps of a kind.
    pub fn wall(&self, kind: StepKind) -> &Spread {
        &self.kind(kind).wall
    }

    /// One row a brick that ran, in the order they run, `Sync` and `Unattributed` last; empty without steps.
    /// Totals sum to the steps' wall time and shares to 1.
    pub fn rows(&self, kind: StepKind) -> Vec<BrickRow> {
        self.kind(kind).rows()
    }

    /// What attention consists of, over decode steps on thread 0; empty where that is not known. Its parts are inside the
    /// row of [`BrickId::Attention`], not beside it.
    pub fn attention_rows(&self) -> Vec<BrickRow> {
        self.decode.attention_rows()
    }

    /// What each brick took in the last decode step, nanoseconds, indexed by `BrickId`.
    pub fn last_decode_ns(&self) -> [f32; BrickId::COUNT] {
        self.decode.last_step_ns()
    }

    /// Times of decode steps by brick and layer; empty without steps.
    pub fn heat_rows(&self) -> Vec<HeatRow> {
        self.heat.rows(self.steps(StepKind::Decode))
    }

    /// One row a layer over decode steps; empty without steps.
    pub fn layer_rows(&self) -> Vec<LayerRow> {
        let steps = self.steps(StepKind::Decode);
        if steps == 0 {
            return Vec::new();
        }
        let us = |ns: f64| ns * 1e-3 / steps as f64;
        let row = |(index, l): (usize, &LayerStats)| LayerRow {
            layer: u32::try_from(index).unwrap_or(u32::MAX),
            us_per_step: us(l.attention + l.ffn + l.norm + l.sync),
            attention_us: us(l.attention),
            ffn_us: us(l.ffn),
            norm_us: us(l.norm),
            sync_us: us(l.sync),
            last_us: l.last * 1e-3,
        };
        self.layers.iter().enumerate().map(row).collect()
    }

    fn kind(&self, kind: StepKind) -> &KindStats {
        match kind {
            StepKind::Decode => &self.decode,
            StepKind::Prefill => &self.prefill,
        }
    }

    fn kind_mut(&mut self, kind: StepKind) -> &mut KindStats {
        match kind {
            StepKind::Decode => &mut self.decode,
            StepKind::Prefill => &mut self.prefill,
        }
    }
}

#[cfg(test)]
mod tests;
