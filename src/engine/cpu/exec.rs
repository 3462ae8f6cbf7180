//! Runs bricks on the pool: buffers, caches and kernels.

use super::activations::Buffers;
use super::bricks::Job;
use super::kv::KvCache;
use super::pool::{Poisoned, Pool};
use super::probe::{Attention, Probe, query_places};
use super::routing::Routes;
use super::tap::Tap;
use super::{FloatOps, MatKernel, float_ops, mat_kernel};
use crate::engine::capture::{Capture, Captured, Part};
use crate::engine::edit::Edits;
use crate::engine::probe::{ActivationReadings, ProbeConfig};
use crate::engine::sampler::Sampler;
use crate::engine::{Choice, Config, EngineError, Observer, Unobserved};
use crate::model::work::StepShape;
use crate::model::{Buf, Matrix, Model, Op, RopeTable, Span};
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is being computed: the tokens of one step.
#[derive(Debug, Default)]
pub struct StepInput {
    /// Token ids, at most a chunk.
    pub ids: Vec<u32>,
    /// Where each of them belongs.
    pub places: Vec<Place>,
    /// The sequences they belong to, each once.
    pub spans: Vec<Span>,
    /// How many of the last tokens' logits are wanted.
    pub logit_rows: usize,
    /// Tokens by whose number int8 activations get their scales; `None`: those of the step.
    pub like: Option<usize>,
}

impl StepInput {
    /// Nothing, with room for a chunk of tokens of `seqs` sequences.
    pub fn with_capacity(chunk: usize, seqs: usize) -> Self {
        Self {
            ids: Vec::with_capacity(chunk),
            places: Vec::with_capacity(chunk),
            spans: Vec::with_capacity(seqs),
            logit_rows: 0,
            like: None,
        }
    }

    /// Whether another step has as many tokens of the same sequences and as many wanted logits.
    pub fn has_shape_of(&self, other: &Self) -> bool {
        let same = |(a, b): (&Span, &Span)| (a.seq, a.tokens) == (b.seq, b.tokens);
        self.logit_rows == other.logit_rows
            && self.spans.len() == other.spans.len()
            && self.spans.iter().zip(&other.spans).all(same)
    }
}

/// Where a token belongs.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Its sequence, as an index into [`StepInput::spans`].
    pub span: usize,
    /// Its position in the sequence.
    pub position: usize,
}

/// Buffers, caches and kernels.
pub struct Executor {
    pub(super) config: Config,
    pub(super) ops: &'static FloatOps,
    /// The kernel of every mat-mul brick, by brick index.
    pub(super) kernels: Vec<Option<MatKernel>>,
    pub(super) buffers: Buffers,
    pub(super) cache: KvCache,
    /// Which expert each token goes to, in the layer being run.
    pub(super) routes: UnsafeCell<Routes>,
    /// Rotary tables for the context length in use.
    pub(super) ropes: Vec<RopeTable>,
    /// Next free row or task of every brick, for dynamic schedules.
    pub(super) counters: Vec<AtomicUsize>,
    /// What is captured.
    pub(super) tap: Option<Tap>,
    /// What is looked at for tracers.
    pub(super) probe: Option<Probe>,
    /// What is changed on the way.
    pub(super) edits: Option<Arc<Edits>>,
    /// What a test makes go wrong.
    #[cfg(test)]
    pub(crate) fault: Option<super::fault::Fault>,
}

impl Executor {
    /// Allocates everything the sequences need.
    ///
    /// # Errors
    /// A tensor type without kernels, heads that do not fit the cache's type, or not enough memory.
    pub fn new(model: &Model, config: &Config) -> Result<Self, EngineError> {
        let mut kernels = Vec::with_capacity(model.plan.bricks.len());
        for brick in &model.plan.bricks {
            kernels.push(match &brick.op {
                Op::MatMul { w, .. } => Some(kernel(config, w)?),
                // Older files hold every expert as a tensor of its own, perhaps of another type.
                Op::ExpertMatMul { w, .. } => match uniform_type(w) {
                    Some(w) => Some(kernel(config, w)?),
                    None => {
                        return Err(EngineError::Config(
                            "experts of one layer are of different types, which cannot run".into(),
                        ));
                    }
                },
                _ => None,
            });
        }
        Ok(Self {
            ops: float_ops(config.kernels),
            kernels,
            buffers: Buffers::new(model, config)?,
            cache: KvCache::new(&model.hparams, config)?,
            routes: UnsafeCell::new(Routes::new(&model.hparams, config.chunk)),
            ropes: model
                .plan
                .ropes
                .iter()
                .map(|r| r.for_context(config.n_ctx).clone())
                .collect(),
            counters: model
                .plan
                .bricks
                .iter()
                .map(|_| AtomicUsize::new(0))
                .collect(),
            config: config.clone(),
            tap: None,
            probe: None,
            edits: None,
            #[cfg(test)]
            fault: None,
        })
    }

    /// See [`crate::engine::Engine::set_capture`].
    ///
    /// # Errors
    /// [`EngineError::OutOfMemory`].
    pub fn set_capture(
        &mut self,
        model: &Model,
        capture: Option<Capture>,
        chunk: usize,
    ) -> Result<(), EngineError> {
        if capture != self.tap.as_ref().map(|t| t.capture) {
            // The old one's memory first.
            self.tap = None;
            self.tap = capture.map(|c| Tap::new(model, c, chunk)).transpose()?;
        }
        Ok(())
    }

    /// What is captured.
    pub fn capture(&self) -> Option<Capture> {
        self.tap.as_ref().map(|t| t.capture)
    }

    /// See [`crate::engine::Engine::set_probe`].
    ///
    /// # Errors
    /// A choice out of range, or [`EngineError::OutOfMemory`].
    pub fn set_probe(
        &mut self,
        model: &Model,
        probe: Option<ProbeConfig>,
    ) -> Result<(), EngineError> {
        let Some(config) = probe else {
            self.probe = None;
            return Ok(());
        };
        let positions = self.config.n_ctx * self.config.n_seq;
        let probe = self.probe.get_or_insert_with(Probe::new);
        probe.set(model, config, self.config.threads, positions)
    }

    /// What is looked at.
    pub fn probe(&self) -> Option<&ProbeConfig> {
        self.probe.as_ref().map(|p| &p.config)
    }

    /// Takes the probe away, so that nothing is recorded.
    pub(in crate::engine) fn take_probe(&mut self) -> Option<Probe> {
        self.probe.take()
    }

    /// Puts it back.
    pub(in crate::engine) fn put_probe(&mut self, probe: Option<Probe>) {
        self.probe = probe;
    }

    /// A step begins.
    pub fn probe_begins(&mut self, step: &StepInput) {
        if let Some(probe) = &mut self.probe {
            probe.begin(query_places(&step.places, &step.spans));
        }
    }

    /// The step has ended.
    pub fn probe_ends(&mut self) {
        if let Some(probe) = &mut self.probe {
            probe.end();
        }
    }

    /// The step in progress is given up.
    pub fn probe_cancels(&mut self) {
        if let Some(probe) = &mut self.probe {
            probe.cancel();
        }
    }

    /// What follows the first `keep` positions of a sequence is forgotten.
    pub fn probe_truncates(&mut self, seq: usize, keep: usize) {
        if let Some(probe) = &mut self.probe {
            probe.truncate(seq, keep);
        }
    }

    /// See [`crate::engine::Engine::activations`].
    pub fn activations(&mut self, step: &StepInput) -> Option<&ActivationReadings> {
        // Of sequence 0 alone.
        let span = step.spans.iter().find(|s| s.seq == 0);
        let (end, tokens) = span.map_or((0, 0), |s| (s.end(), s.tokens));
        let probe = self.probe.as_mut()?;
        probe.readings(end.saturating_sub(1), tokens)
    }

    /// The records of attention.
    pub(in crate::engine) fn attention(&self) -> Option<&Attention> {
        self.probe.as_ref()?.attention()
    }

    /// Makes room for `rows` rows of logits; those that are there stay.
    ///
    /// # Errors
    /// [`EngineError::OutOfMemory`].
    pub fn set_logit_rows(&mut self, rows: usize) -> Result<(), EngineError> {
        self.buffers.set_logit_rows(rows)?;
        self.config.logit_rows = rows;
        Ok(())
    }

    /// See [`crate::engine::Engine::set_edits`].
    pub fn set_edits(&mut self, edits: Option<Arc<Edits>>) {
        self.edits = edits.filter(|e| !e.is_empty());
    }

    /// The changes in force.
    pub fn edits(&self) -> Option<&Arc<Edits>> {
        self.edits.as_ref()
    }

    /// Layers whose captured vectors are held at once; `None` where nothing is captured.
    pub fn held(&self) -> Option<usize> {
        self.tap.as_ref().map(|t| t.held)
    }

    /// Gives `sink` what layers have left that are held at once, token by token: of a token, what the layers wrote lies
    /// together in every file of chains.
    pub fn hand_on(
        &mut self,
        model: &Model,
        layers: Range<usize>,
        step: &StepInput,
        sink: &mut dyn FnMut(Captured<'_>),
    ) {
        let Some(tap) = &mut self.tap else {
            return;
        };
        let tokens = step.ids.len();
        let first = tap.first(tokens);
        for (col, place) in step.places.iter().skip(first).enumerate() {
            for layer in layers.clone() {
                for part in tap.parts(layer) {
                    let len = match part {
                        Part::Heads => model.hparams.attn_dim(),
                        Part::Key => Edits::key_len(model, layer),
                        _ => model.hparams.n_embd,
                    };
                    sink(Captured {
                        layer,
                        part,
                        position: place.position,
                        data: tap.get(layer, part, col, len),
                    });
                }
            }
        }
    }

    /// Puts vectors of the stream, `[n][n_embd]`, through the final norm and the head; `step` is overwritten.
    ///
    /// # Errors
    /// [`Poisoned`] when a thread panicked.
    pub fn project(
        &mut self,
        model: &Model,
        pool: &mut Pool,
        residuals: &[f32],
        like: usize,
        step: &mut StepInput,
    ) -> Result<(), Poisoned> {
        let n_embd = model.hparams.n_embd;
        let n = residuals.len() / n_embd;
        for (c, x) in residuals.chunks_exact(n_embd).enumerate() {
            // SAFETY: `&mut self`: no job is running and no other reference exists.
            unsafe { self.buffers.get(Buf::X).col_mut(c) }.copy_from_slice(x);
        }
        step.ids.clear();
        step.ids.resize(n, 0);
        step.places.clear();
        let place = Place {
            span: 0,
            position: 0,
        };
        step.places.resize(n, place);
        step.spans.clear();
        step.logit_rows = n;
        step.like = Some(like);
        let bricks = model.plan.bricks.len();
        let head = model.plan.layer_starts.last().copied().unwrap_or(bricks);
        let done = self.run(model, pool, head..bricks, step, &mut Unobserved);
        step.like = None;
        done
    }

    /// Everything in the caches, as bits.
    #[cfg(test)]
    pub(in crate::engine) fn cache_bits(&self) -> Vec<u16> {
        self.cache.bits()
    }

    /// Bytes of activation buffers.
    pub fn scratch_bytes(&self) -> u64 {
        self.buffers.bytes()
    }

    /// Logits of row `row` of the last finished step, `[n_vocab]`.
    pub fn logits(&mut self, row: usize) -> &mut [f32] {
        // SAFETY: `&mut self`: no job is running and no other reference exists.
        unsafe { self.buffers.get(Buf::Logits).col_mut(row) }
    }

    /// Samples from row `row` of the logits.
    pub fn sample(&mut self, row: usize, sampler: &mut Sampler) -> Choice {
        let ops = self.ops;
        let logits = &*self.logits(row);
        let id = sampler.sample(logits);
        let max = (ops.max)(logits);
        let mass = (ops.exp_sum)(logits, max);
        let prob = logits
            .get(id as usize)
            .map_or(f64::NAN, |l| f64::from(l - max).exp() / mass) as f32;
        Choice { id, prob }
    }

    /// Runs bricks `range` of the plan on every thread of the pool. Thread 0 reports each of them.
    ///
    /// # Errors
    /// [`Poisoned`] when a thread panicked.
    pub fn run<O: Observer>(
        &mut self,
        model: &Model,
        pool: &mut Pool,
        range: Range<usize>,
        step: &StepInput,
        observer: &mut O,
    ) -> Result<(), Poisoned> {
        self.config.prefetch.apply();
        for c in &self.counters[range.clone()] {
            c.store(0, Ordering::Relaxed);
        }
        let tokens = step.ids.len();
        self.buffers.set_tokens(tokens, step.like.unwrap_or(tokens));
        let mut lanes = observer.take_lanes();
        let (clock, sync) = (observer.clock(), observer.sync_mode());
        let on_thread_0 = OnThread0(UnsafeCell::new(observer));
        let each = EachThread::new(&mut lanes);
        let job = Job {
            exec: self,
            model,
            hp: &model.hparams,
            plan: &model.plan,
            step,
            shape: StepShape {
                tokens,
                spans: &step.spans,
                slots: self.config.slots(),
                logit_rows: step.logit_rows,
                key_bytes: self.config.kv_type.bytes(model.hparams.head_dim_k),
                value_bytes: self.config.kv_type.bytes(model.hparams.head_dim_v),
                active_experts: None,
            },
            threads: pool.threads(),
            clock: &clock,
            sync,
        };
        let done = pool.run(&|tid, barrier| {
            if tid == 0 {
                // SAFETY: only thread 0 comes here, once a dispatch.
                let observer = unsafe { on_thread_0.get() };
                job.walk_observed(range.clone(), barrier, *observer);
                return;
            }
            // SAFETY: thread `tid` alone asks for this one, once a dispatch.
            match unsafe { each.get(tid - 1) } {
                Some(lane) => job.walk_watched(range.clone(), tid, barrier, lane),
                None => job.walk(range.clone(), tid, barrier),
            }
        });
        let OnThread0(observer) = on_thread_0;
        observer.into_inner().put_lanes(lanes);
        done
    }
}

fn kernel(config: &Config, w: &Matrix) -> Result<MatKernel, EngineError> {
    mat_kernel(config.kernels_of(w.ty), w.ty).ok_or_else(|| {
        EngineError::Config(format!(
            "kernels '{}' cannot run {} weights",
            config.kernels_of(w.ty).name(),
            w.ty
        ))
    })
}

/// The first of the matrices, when all are of its type.
fn uniform_type(w: &[Matrix]) -> Option<&Matrix> {
    let first = w.first()?;
    w.iter().all(|m| m.ty == first.ty).then_some(first)
}

// SAFETY: `routes` is written on one thread, between barriers at which all others wait (`Op::Route`).
unsafe impl Sync for Executor {}

/// Values of which each is touched by one thread.
struct EachThread<'a, T> {
    first: *mut T,
    count: usize,
    all: PhantomData<&'a mut [T]>,
}

// SAFETY: `get` hands every value to one thread only.
unsafe impl<T: Send> Sync for EachThread<'_, T> {}

impl<'a, T> EachThread<'a, T> {
    fn new(all: &'a mut [T]) -> Self {
        Self {
            first: all.as_mut_ptr(),
            count: all.len(),
            all: PhantomData,
        }
    }

    /// # Safety
    /// Index `i` is asked for by one thread only, and the reference is dropped before it asks again.
    #[allow(clippy::mut_from_ref)]
    unsafe fn get(&self, i: usize) -> Option<&mut T> {
        // SAFETY: inside the slice, which is borrowed for as long as `self` lives; the caller's promise.
        (i < self.count).then(|| unsafe { &mut *self.first.add(i) })
    }
}

/// A value that only thread 0 touches.
struct OnThread0<T>(UnsafeCell<T>);

// SAFETY: `get` is called by thread 0 alone.
unsafe impl<T> Sync for OnThread0<T> {}

impl<T> OnThread0<T> {
    /// # Safety
    /// Called by one thread only, and the reference is dropped before the next call.
    #[allow(clippy::mut_from_ref)]
    unsafe fn get(&self) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.0.get() }
    }
}
