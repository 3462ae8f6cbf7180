//! Where a step leaves what tracers read: every thread writes its own statistics and the records of its own heads.

use super::FloatOps;
use super::pages::Zeroes;
use crate::engine::EngineError;
use crate::engine::probe::{
    ActivationReadings, AttentionProbe, AttentionRecord, AttentionSums, MAX_TOP_K, ProbeConfig,
    QueryPlace, Reading, Site,
};
use crate::model::{Hparams, Model, Span};
use std::cell::UnsafeCell;
use std::ops::Range;

/// Sites of a layer.
const SITES: usize = Site::ALL.len();

/// What is looked at, and what was seen.
pub(in crate::engine) struct Probe {
    pub(super) config: ProbeConfig,
    activations: Option<Activations>,
    attention: Option<Attention>,
}

impl Probe {
    /// Looks at nothing yet.
    pub(super) fn new() -> Self {
        Self {
            config: ProbeConfig::default(),
            activations: None,
            attention: None,
        }
    }

    /// Looks at what `config` says from the next step on, in an engine of so many threads and `positions` in all caches;
    /// what was recorded stays where nothing changes.
    ///
    /// # Errors
    /// A choice out of range, or [`EngineError::OutOfMemory`]; the attention weights then are recorded no longer.
    pub(super) fn set(
        &mut self,
        model: &Model,
        config: ProbeConfig,
        threads: usize,
        positions: usize,
    ) -> Result<(), EngineError> {
        let hp = &model.hparams;
        if config.activations != self.config.activations {
            self.config.activations = config.activations;
            self.activations = config
                .activations
                .then(|| Activations::new(hp.n_layers, threads));
        }
        if config.attention != self.config.attention {
            // The old one's memory first.
            (self.attention, self.config.attention) = (None, None);
            let new = |a| Attention::new(hp, a, positions);
            self.attention = config.attention.as_ref().map(new).transpose()?;
            self.config.attention = config.attention;
        }
        Ok(())
    }

    /// A step of these tokens begins.
    pub(super) fn begin(&mut self, places: impl ExactSizeIterator<Item = QueryPlace>) {
        if let Some(a) = &mut self.activations {
            a.clear();
        }
        if let Some(a) = &mut self.attention {
            a.begin(places);
        }
    }

    /// The step has ended.
    pub(super) fn end(&mut self) {
        if let Some(a) = &mut self.attention {
            a.open = false;
        }
    }

    /// The step in progress is given up.
    pub(super) fn cancel(&mut self) {
        if let Some(a) = &mut self.attention {
            a.cancel();
        }
    }

    /// What follows the first `keep` positions of a sequence is forgotten.
    pub(super) fn truncate(&mut self, seq: usize, keep: usize) {
        if let Some(a) = &mut self.attention {
            a.truncate(seq as u32, keep as u32);
        }
    }

    /// Takes in a token's activations at a place of a layer.
    ///
    /// # Safety
    /// `tid` is the calling thread's.
    pub(super) unsafe fn saw(
        &self,
        ops: &FloatOps,
        tid: usize,
        at: Place,
        position: usize,
        x: &[f32],
    ) {
        if let Some(a) = &self.activations {
            let moments = (ops.moments)(x);
            // SAFETY: the caller's promise.
            let reading = unsafe { a.of_thread(tid) }.at(at);
            match at {
                // A thread has computed some rows of them only.
                Place::Logits => reading.add_part(position as u32, &moments),
                _ => reading.add(position as u32, &moments),
            }
        }
    }

    /// The records of attention, where there are any.
    pub(super) fn attention(&self) -> Option<&Attention> {
        self.attention.as_ref()
    }

    /// What all threads saw in the last step, whose last token is at `position`.
    pub(super) fn readings(
        &mut self,
        position: usize,
        tokens: usize,
    ) -> Option<&ActivationReadings> {
        self.activations
            .as_mut()
            .map(|a| a.merged(position, tokens))
    }
}

/// A place where activations are looked at.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    Embedding,
    Layer(usize, Site),
    Logits,
}

/// What one thread saw in a step.
#[derive(Clone)]
struct Seen {
    /// Embedding, logits, then [`SITES`] a layer.
    readings: Box<[Reading]>,
}

impl Seen {
    fn new(n_layers: usize) -> Self {
        Self {
            readings: vec![Reading::default(); 2 + n_layers * SITES].into(),
        }
    }

    fn at(&mut self, place: Place) -> &mut Reading {
        &mut self.readings[match place {
            Place::Embedding => 0,
            Place::Logits => 1,
            Place::Layer(layer, site) => 2 + layer * SITES + site as usize,
        }]
    }
}

/// Statistics of activations.
struct Activations {
    /// By thread.
    seen: Vec<UnsafeCell<Seen>>,
    all: ActivationReadings,
}

// SAFETY: a cell is touched by its own thread during a step, and by `&mut self` between steps.
unsafe impl Sync for Activations {}

impl Activations {
    fn new(n_layers: usize, threads: usize) -> Self {
        let cell = |_| UnsafeCell::new(Seen::new(n_layers));
        Self {
            seen: (0..threads).map(cell).collect(),
            all: ActivationReadings {
                layers: vec![Default::default(); n_layers],
                ..ActivationReadings::default()
            },
        }
    }

    fn clear(&mut self) {
        for seen in &mut self.seen {
            seen.get_mut().readings.fill(Reading::default());
        }
    }

    /// # Safety
    /// `tid` is the calling thread's, and it holds no other reference.
    #[allow(clippy::mut_from_ref)]
    unsafe fn of_thread(&self, tid: usize) -> &mut Seen {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.seen[tid].get() }
    }

    fn merged(&mut self, position: usize, tokens: usize) -> &ActivationReadings {
        let all = &mut self.all;
        (all.position, all.tokens) = (position as u32, tokens as u32);
        (all.embedding, all.logits) = (Reading::default(), Reading::default());
        all.layers.fill(Default::default());
        for seen in &mut self.seen {
            let readings = &seen.get_mut().readings;
            all.embedding.merge(&readings[0]);
            all.logits.merge(&readings[1]);
            let sites = readings[2..].as_chunks::<SITES>().0;
            for (layer, seen) in all.layers.iter_mut().zip(sites) {
                layer.iter_mut().zip(seen).for_each(|(a, b)| a.merge(b));
            }
        }
        let logits = all.logits.moments;
        all.logits.judge_spread(position as u32, &logits);
        &self.all
    }
}

/// Words of a record before its top: places of the figures in it.
const TAIL: usize = 0;
const SINK: usize = 1;
const ENTROPY: usize = 2;
const FIRST: usize = 3;
const RECENT: usize = 4;
const WEIGHTS: usize = 5;
/// The same of its integers.
const N_TOP: usize = 0;
const SEEN: usize = 1;
const POSITIONS: usize = 2;

/// Attention weights of the newest queries.
pub(in crate::engine) struct Attention {
    probe: AttentionProbe,
    /// Traced layers and heads; the place of a record follows their order.
    layers: Vec<usize>,
    heads: Vec<usize>,
    /// By layer and by head: its place among the traced ones.
    layer_place: Vec<Option<usize>>,
    head_place: Vec<Option<usize>>,
    /// Queries that are held.
    held: usize,
    /// Floats, and integers, from one record to the next: whole cache lines.
    float_stride: usize,
    int_stride: usize,
    floats: Cells<f32>,
    ints: Cells<u32>,
    /// By query held: `None` where a truncation has taken it away.
    places: Vec<Option<QueryPlace>>,
    /// Queries recorded so far; query `q` lies at `q % held`.
    recorded: u64,
    /// The oldest of them that may be held.
    oldest: u64,
    /// The first query of the newest step, and its tokens.
    step: (u64, usize),
    /// Whether that step has not ended: its queries are not there yet.
    open: bool,
}

impl Attention {
    fn new(hp: &Hparams, probe: &AttentionProbe, positions: usize) -> Result<Self, EngineError> {
        let chosen = |what: &str, wanted: &Option<Vec<usize>>, n: usize| match wanted {
            None => Ok((0..n).collect()),
            Some(list) => {
                let mut list: Vec<usize> = list.clone();
                list.sort_unstable();
                list.dedup();
                match list.last() {
                    Some(&last) if last < n => Ok(list),
                    _ => Err(EngineError::Config(format!(
                        "attention is traced of {what} 0 to {}; at least one of them has to be chosen, and no other",
                        n.saturating_sub(1)
                    ))),
                }
            }
        };
        if !(1..=MAX_TOP_K).contains(&probe.top_k) || !(0.0..=1.0).contains(&probe.weight_threshold)
        {
            return Err(EngineError::Config(format!(
                "attention is traced with 1 to {MAX_TOP_K} positions a query and a threshold from 0 to 1, not {} and {}",
                probe.top_k, probe.weight_threshold
            )));
        }
        let layers = chosen("layers", &probe.layers, hp.n_layers)?;
        let heads = chosen("heads", &probe.heads, hp.n_head)?;
        let place = |list: &[usize], n: usize| -> Vec<Option<usize>> {
            (0..n).map(|i| list.iter().position(|l| *l == i)).collect()
        };
        let float_stride = (WEIGHTS + probe.top_k).next_multiple_of(16);
        let int_stride = (POSITIONS + probe.top_k).next_multiple_of(16);
        let records = layers.len() * heads.len();
        let query = records * 4 * (float_stride + int_stride);
        let held = (probe.max_bytes / query.max(1)).clamp(1, positions.max(1));
        let no_memory = |_| EngineError::OutOfMemory {
            what: "attention records",
            bytes: (held * query) as u64,
        };
        Ok(Self {
            layer_place: place(&layers, hp.n_layers),
            head_place: place(&heads, hp.n_head),
            floats: Cells::new(held * records * float_stride).map_err(no_memory)?,
            ints: Cells::new(held * records * int_stride).map_err(no_memory)?,
            places: vec![None; held],
            probe: probe.clone(),
            layers,
            heads,
            held,
            float_stride,
            int_stride,
            recorded: 0,
            oldest: 0,
            step: (0, 0),
            open: false,
        })
    }

    fn begin(&mut self, places: impl ExactSizeIterator<Item = QueryPlace>) {
        self.cancel();
        self.open = true;
        let tokens = places.len();
        self.step = (self.recorded, tokens);
        self.recorded += tokens as u64;
        self.oldest = self
            .oldest
            .max(self.recorded.saturating_sub(self.held as u64));
        let skip = tokens.saturating_sub(self.held);
        for (i, place) in places.enumerate().skip(skip) {
            let at = (self.step.0 + i as u64) % self.held as u64;
            self.places[at as usize] = Some(place);
        }
    }

    /// Takes the queries of a step back that has not ended.
    fn cancel(&mut self) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let (first, tokens) = self.step;
        for q in first.max(self.oldest)..first + tokens as u64 {
            self.places[(q % self.held as u64) as usize] = None;
        }
        self.recorded = first.max(self.oldest);
        self.step = (self.recorded, 0);
    }

    fn truncate(&mut self, seq: u32, keep: u32) {
        for place in &mut self.places {
            if place.is_some_and(|p| p.seq == seq && p.position >= keep) {
                *place = None;
            }
        }
        // What was recorded last and is gone was never there.
        let newest = |q: u64| self.places[((q - 1) % self.held as u64) as usize];
        let mut recorded = self.recorded;
        while recorded > self.oldest && newest(recorded).is_none() {
            recorded -= 1;
        }
        self.recorded = recorded;
        if recorded == self.oldest {
            (self.recorded, self.oldest) = (0, 0);
        }
    }

    /// Where the record of a token of the step lies; `None` where it is not kept.
    fn column(&self, token: usize) -> Option<usize> {
        let (first, tokens) = self.step;
        (token < tokens && token + self.held >= tokens)
            .then(|| ((first + token as u64) % self.held as u64) as usize)
    }

    fn record(&self, column: usize, layer: usize, head: usize) -> usize {
        (column * self.layers.len() + layer) * self.heads.len() + head
    }

    /// Whether a layer's weights are recorded.
    pub(super) fn has_layer(&self, layer: usize) -> bool {
        self.layer_place.get(layer).is_some_and(Option::is_some)
    }

    /// Records the weights `p` of a query: of the kept positions and the rest that it sees.
    ///
    /// # Safety
    /// No other thread records this head of this token.
    pub(super) unsafe fn put(
        &self,
        ops: &FloatOps,
        (token, layer, head): (usize, usize, usize),
        position: usize,
        seen: &Seeing,
        p: &[f32],
        has_sink: bool,
    ) {
        let (Some(column), Some(l), Some(h)) = (
            self.column(token),
            self.layer_place.get(layer).copied().flatten(),
            self.head_place.get(head).copied().flatten(),
        ) else {
            return;
        };
        let record = self.record(column, l, h);
        let k = self.probe.top_k;
        // SAFETY: the caller's promise: this record is this thread's.
        let (floats, ints) = unsafe {
            (
                self.floats.get_mut(record * self.float_stride, WEIGHTS + k),
                self.ints.get_mut(record * self.int_stride, POSITIONS + k),
            )
        };
        let (floats, weights) = floats.split_at_mut(WEIGHTS);
        let (ints, positions) = ints.split_at_mut(POSITIONS);
        let sums = (ops.weights)(p, self.probe.weight_threshold, positions, weights);
        let top: f64 = weights[..sums.n_top].iter().map(|w| f64::from(*w)).sum();
        for at in &mut positions[..sums.n_top] {
            *at = seen.position(*at as usize) as u32;
        }
        let newest = p.len() - self.probe.recent.min(p.len());
        let is_new = |i: &usize| seen.position(*i) + self.probe.recent > position;
        let recent = (newest..p.len()).filter(is_new).map(|i| f64::from(p[i]));
        ints[N_TOP] = sums.n_top as u32;
        ints[SEEN] = p.len() as u32;
        floats[TAIL] = not_below_zero(sums.sum - top);
        let beside = if has_sink {
            1.0 - sums.sum
        } else {
            0.0 * sums.sum
        };
        floats[SINK] = not_below_zero(beside);
        // Of the weights as shares of their own sum, which is 1 where there is no sink beside them.
        floats[ENTROPY] = not_below_zero(sums.sum.ln() - sums.p_ln_p / sums.sum);
        floats[FIRST] = if seen.position(0) == 0 && !p.is_empty() {
            p[0]
        } else {
            f32::NAN
        };
        floats[RECENT] = recent.sum::<f64>() as f32;
    }

    /// Bytes of all records.
    pub(in crate::engine) fn bytes(&self) -> u64 {
        (self.floats.storage.bytes() + self.ints.storage.bytes()) as u64
    }

    /// Traced layers.
    pub(in crate::engine) fn layers(&self) -> &[usize] {
        &self.layers
    }

    /// Traced heads.
    pub(in crate::engine) fn heads(&self) -> &[usize] {
        &self.heads
    }

    /// Queries that are no longer held.
    pub(in crate::engine) fn dropped(&self) -> u64 {
        self.oldest
    }

    /// The queries of a sequence that are held, oldest first.
    pub(in crate::engine) fn queries(
        &self,
        seq: u32,
    ) -> impl DoubleEndedIterator<Item = (usize, QueryPlace)> {
        let end = if self.open {
            self.step.0
        } else {
            self.recorded
        };
        let columns = (self.oldest..end).map(|q| (q % self.held as u64) as usize);
        columns.filter_map(move |c| Some((c, self.places[c].filter(|p| p.seq == seq)?)))
    }

    /// The record of a head, by its place among the traced ones. `&self`: no step is running.
    pub(in crate::engine) fn at(
        &self,
        (column, query): (usize, QueryPlace),
        layer: usize,
        head: usize,
    ) -> AttentionRecord<'_> {
        let record = self.record(column, layer, head);
        let k = self.probe.top_k;
        let floats = self.floats.get(record * self.float_stride, WEIGHTS + k);
        let ints = self.ints.get(record * self.int_stride, POSITIONS + k);
        let n_top = (ints[N_TOP] as usize).min(k);
        AttentionRecord {
            layer: self.layers[layer],
            head: self.heads[head],
            query,
            sums: AttentionSums {
                n_top: n_top as u32,
                seen: ints[SEEN],
                tail_mass: floats[TAIL],
                sink_logit_mass: floats[SINK],
                entropy: floats[ENTROPY],
                first_weight: floats[FIRST],
                recent_mass: floats[RECENT],
            },
            positions: &ints[POSITIONS..][..n_top],
            weights: &floats[WEIGHTS..][..n_top],
        }
    }
}

/// Rounding may leave less than nothing; what is no number stays so.
fn not_below_zero(x: f64) -> f32 {
    if x < 0.0 { 0.0 } else { x as f32 }
}

/// The positions that a query sees, in the order of its weights.
pub(super) struct Seeing {
    kept: Range<usize>,
    rest: usize,
}

impl Seeing {
    /// Of a query at `position` that sees runs of slots: kept ones, whose slots are their positions, and the newest.
    pub(super) fn new(position: usize, runs: &[Range<usize>; 3]) -> Self {
        Self {
            kept: runs[0].clone(),
            rest: (position + 1) - (runs[1].len() + runs[2].len()),
        }
    }

    fn position(&self, i: usize) -> usize {
        match i.checked_sub(self.kept.len()) {
            None => self.kept.start + i,
            Some(i) => self.rest + i,
        }
    }
}

/// Numbers that threads write in disjoint parts.
struct Cells<T> {
    storage: Zeroes<T>,
    base: *mut T,
}

// SAFETY: `base` points into `storage`, which is never resized; writers are kept apart by the callers of `get_mut`.
unsafe impl<T: Send> Send for Cells<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Cells<T> {}

impl<T: Copy + Default> Cells<T> {
    fn new(n: usize) -> std::io::Result<Self> {
        let mut storage = Zeroes::try_new(n)?;
        let base = storage.as_mut_ptr();
        Ok(Self { storage, base })
    }

    /// Elements for reading, between steps.
    fn get(&self, first: usize, len: usize) -> &[T] {
        assert!(first + len <= self.storage.len());
        // SAFETY: in bounds by the assertion; whoever holds `&Probe` outside a step keeps steps from running.
        unsafe { std::slice::from_raw_parts(self.base.add(first), len) }
    }

    /// # Safety
    /// No other thread reads or writes these elements meanwhile.
    #[allow(clippy::mut_from_ref)]
    unsafe fn get_mut(&self, first: usize, len: usize) -> &mut [T] {
        assert!(first + len <= self.storage.len());
        // SAFETY: in bounds by the assertion; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(first), len) }
    }
}

/// The sequence and position of every token of a step.
pub(super) fn query_places<'a>(
    places: &'a [super::exec::Place],
    spans: &'a [Span],
) -> impl ExactSizeIterator<Item = QueryPlace> + 'a {
    places.iter().map(|p| QueryPlace {
        seq: spans[p.span].seq as u32,
        position: p.position as u32,
    })
}
