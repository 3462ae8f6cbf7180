//! The five tracers together, beside an engine: what is switched on, what every step leaves, and what comes of it.

use super::ModelTracerConfig;
use super::activations::ActivationTracer;
use super::attention;
use super::export::TracerExport;
use super::figures::{
    AttentionView, AttentionWeightTrace, HeadFocus, ModelActivationTrace, ModelQuantisationError,
    TracerFrame, TracerKind, TracerSet,
};
use super::kv::KvTracer;
use super::locate;
use super::logits::LogitTracer;
use super::quantisation::{Baseline, LiveErrors, QuantisationError};
use crate::engine::capture::Capture;
use crate::engine::sampler::SamplerConfig;
use crate::engine::{AttentionLog, Engine, EngineError, HeldQuery, Observer};
use crate::model::{Model, Slots};
use crate::tokenizer::Tokenizer;
use crate::trace::answer;
use crate::trace::figures::TokenText;
use std::collections::VecDeque;
use std::sync::Arc;

/// Steps of which activations are kept for the export.
const STEPS: usize = 256;
/// Newest tokens whose texts a frame holds.
const LABELS: usize = 2048;
/// Most vectors that the lens reads in one pass over the head, and bytes of logits it may take for them.
const LENS_ROWS: usize = 32;
const LENS_BYTES: usize = 8 << 20;
/// Newest queries of the focused head that a frame holds.
const FOCUSED: usize = 128;

/// Traces sequence 0 of an engine. The engine is told by [`Self::equip`]; every step is then run to its end by
/// [`Self::finish`] and handed over by [`Self::step_done`].
pub struct ModelTracer {
    model: Arc<Model>,
    tokenizer: Arc<Tokenizer>,
    name: String,
    config: ModelTracerConfig,
    activations: ActivationTracer,
    /// Activations of the newest steps, oldest first.
    steps: VecDeque<ModelActivationTrace>,
    /// Layer and head that are shown over time.
    focus: (u32, u32),
    logits: LogitTracer,
    live: LiveErrors,
    kv: Option<KvTracer>,
    /// Positions that had weight in the step, for the kv tracer.
    read: Read,
}

impl ModelTracer {
    /// Tracers for engines of `model`; products are compared with those of `reference` where there is one, the same model
    /// in another precision.
    ///
    /// # Errors
    /// [`QuantisationError::Incompatible`]: a reference of another architecture or shape.
    pub fn new(
        model: &Arc<Model>,
        tokenizer: &Arc<Tokenizer>,
        name: &str,
        reference: Option<Baseline>,
        config: ModelTracerConfig,
    ) -> Result<Self, QuantisationError> {
        Ok(Self {
            model: Arc::clone(model),
            tokenizer: Arc::clone(tokenizer),
            name: name.into(),
            activations: ActivationTracer::new(model.hparams.n_layers),
            steps: VecDeque::with_capacity(STEPS),
            focus: (0, 0),
            logits: LogitTracer::new(config.tracked_tokens.clone()),
            live: LiveErrors::new(Arc::clone(model), reference)?,
            kv: None,
            read: Read::default(),
            config,
        })
    }

    /// Which tracers are on.
    pub fn on(&self) -> TracerSet {
        self.config.on
    }

    /// Switches tracers; what those that go off have found is forgotten. The engine has to be told: [`Self::equip`].
    pub fn switch(&mut self, on: TracerSet) {
        let before = std::mem::replace(&mut self.config.on, on);
        for kind in TracerKind::ALL {
            if before.has(kind) && !on.has(kind) {
                self.clear_one(kind);
            }
        }
        if !on.kv {
            self.kv = None;
        }
    }

    /// Shows this head over time, of those that the model has.
    pub fn focus(&mut self, layer: u32, head: u32) {
        let hp = &self.model.hparams;
        self.focus = (
            layer.min(hp.n_layers.saturating_sub(1) as u32),
            head.min(hp.n_head.saturating_sub(1) as u32),
        );
    }

    fn clear_one(&mut self, kind: TracerKind) {
        match kind {
            TracerKind::Activations => {
                self.activations.clear();
                self.steps.clear();
            }
            // Its records are the engine's.
            TracerKind::Attention => {}
            TracerKind::Logits => self.logits.clear(),
            TracerKind::Quantisation => self.live.clear(),
            TracerKind::Kv => {
                if let Some(kv) = &mut self.kv {
                    kv.clear();
                }
            }
        }
    }

    /// A run begins; errors of products are the model's and stay.
    pub fn start_run(&mut self) {
        let kinds = TracerKind::ALL.into_iter();
        let of_run = kinds.filter(|k| *k != TracerKind::Quantisation);
        of_run.for_each(|k| self.clear_one(k));
    }

    /// The same weights are elsewhere in memory from now on.
    pub fn reloaded(&mut self, model: &Arc<Model>) {
        self.model = Arc::clone(model);
        self.live.reloaded(model);
    }

    /// The engine is another one from now on, which computes in another way.
    pub fn engine_changed(&mut self) {
        self.kv = None;
        self.live.clear();
    }

    /// Has an engine leave what the tracers that are on want, from its next step on; `capture` is what somebody else wants.
    ///
    /// # Errors
    /// A step in progress; a choice of layers and heads that do not exist; [`EngineError::OutOfMemory`].
    pub fn equip<O: Observer>(
        &mut self,
        engine: &mut Engine<O>,
        capture: Option<Capture>,
    ) -> Result<(), EngineError> {
        engine.set_probe(self.config.probe())?;
        let own = self.config.on.logits.then_some(Capture::LAST);
        if self.config.on.logits {
            let row = self.model.n_vocab * size_of::<f32>();
            engine.reserve_logit_rows((LENS_BYTES / row.max(1)).clamp(1, LENS_ROWS))?;
        }
        engine.set_capture(capture.or(own))?;
        if self.config.on.kv && self.kv.is_none() {
            self.kv = Some(KvTracer::new(engine));
        }
        Ok(())
    }

    /// Runs the step in progress to its end.
    ///
    /// # Errors
    /// [`EngineError::WorkerFailed`].
    pub fn finish<O: Observer>(&mut self, engine: &mut Engine<O>) -> Result<(), EngineError> {
        if self.config.on.quantisation && engine.step_tokens() == 1 {
            self.live.step(engine)
        } else {
            engine.finish()
        }
    }

    /// Takes what a step has left that has just ended; `chosen` is the token chosen by its logits, if one was.
    ///
    /// # Errors
    /// [`EngineError::WorkerFailed`], or an engine that does not leave what was asked for.
    pub fn step_done<O: Observer>(
        &mut self,
        engine: &mut Engine<O>,
        sampler: &SamplerConfig,
        chosen: Option<u32>,
    ) -> Result<(), EngineError> {
        let on = self.config.on;
        let Some(span) = engine.spans().iter().find(|s| s.seq == 0).copied() else {
            return Ok(());
        };
        if let Some(kv) = self.kv.as_mut().filter(|_| on.kv) {
            let slots = engine.config().slots();
            let accessed = match engine.attention() {
                Some(log) if on.attention => Some(self.read.of(&log, slots, span.tokens)),
                _ => None,
            };
            kv.step(engine, accessed);
        }
        if on.activations {
            self.take_activations(engine)?;
        }
        // With others beside it the last row of logits may be theirs.
        if let (true, Some(chosen), 1) = (on.logits, chosen, engine.spans().len()) {
            self.logits.step(engine, &self.tokenizer, sampler, chosen)?;
        }
        Ok(())
    }

    fn take_activations<O: Observer>(&mut self, engine: &mut Engine<O>) -> Result<(), EngineError> {
        let Some(readings) = engine.activations() else {
            return Ok(());
        };
        if self.activations.take(readings) > 0 {
            let pending = self.activations.pending();
            let (indexes, anomalies): (Vec<_>, Vec<_>) =
                pending.map(|(i, a)| (i, a.clone())).unzip();
            let bricks = locate::first_bricks(engine, &anomalies)?;
            for (index, brick) in indexes.into_iter().zip(bricks) {
                self.activations.locate(index, brick);
            }
        }
        if self.steps.len() == STEPS {
            self.steps.pop_front();
        }
        self.steps.push_back(self.activations.trace());
        Ok(())
    }

    /// What was found so far; `tokens` is the text of sequence 0 by position.
    pub fn frame<O: Observer>(
        &self,
        engine: &Engine<O>,
        ids: &mut dyn Iterator<Item = u32>,
    ) -> TracerFrame {
        let on = self.config.on;
        TracerFrame {
            on,
            activations: on.activations.then(|| Arc::new(self.activations.view())),
            attention: engine
                .attention()
                .filter(|_| on.attention)
                .map(|log| Arc::new(self.attention_view(engine, &log, ids))),
            logits: on.logits.then(|| Arc::new(self.logits.view())),
            quantisation: on.quantisation.then(|| Arc::new(self.live.view())),
            kv: self
                .kv
                .as_ref()
                .filter(|_| on.kv)
                .map(|kv| Arc::new(kv.view())),
        }
    }

    fn attention_view<O: Observer>(
        &self,
        engine: &Engine<O>,
        log: &AttentionLog<'_>,
        ids: &mut dyn Iterator<Item = u32>,
    ) -> AttentionView {
        let hp = &self.model.hparams;
        let recent = self.config.attention.recent as u32;
        let windows: Vec<_> = (0..hp.n_layers)
            .map(|l| hp.layer_window(l).map(|w| w as u32))
            .collect();
        let queries: Vec<HeldQuery> = log.queries(0).collect();
        let newest = queries.last();
        let heads: Vec<AttentionWeightTrace> = newest
            .into_iter()
            .flat_map(|q| log.of(*q))
            .map(|r| attention::trace(&r))
            .collect();
        let first_token = engine.past().saturating_sub(LABELS);
        let (layer, head) = self.focus;
        let focused = queries.iter().skip(queries.len().saturating_sub(FOCUSED));
        let focused = focused.filter_map(|q| log.head(*q, layer as usize, head as usize));
        AttentionView {
            n_layers: hp.n_layers as u32,
            n_heads: hp.n_head as u32,
            recent,
            query_pos: newest.map_or(0, |q| q.place.position),
            notes: attention::notes(
                &heads,
                hp.n_layers as u32,
                hp.n_head as u32,
                recent,
                &windows,
            ),
            heads,
            windows,
            focus: HeadFocus {
                layer,
                head,
                queries: focused.map(|r| attention::trace(&r)).collect(),
            },
            tokens: self.labels(first_token, engine.past(), ids),
            first_token: first_token as u32,
            kept: queries.len() as u32,
            dropped: log.dropped(),
        }
    }

    fn labels(
        &self,
        first: usize,
        past: usize,
        ids: &mut dyn Iterator<Item = u32>,
    ) -> Vec<TokenText> {
        ids.take(past)
            .skip(first)
            .map(|id| answer::text(&self.tokenizer, id))
            .collect()
    }

    /// Everything that is kept, step by step; `model` is the error of the whole model, where it was measured.
    pub fn export<O: Observer>(
        &self,
        engine: &Engine<O>,
        model: Option<ModelQuantisationError>,
    ) -> TracerExport {
        let on = self.config.on;
        let frame = self.frame(engine, &mut std::iter::empty());
        let mut export = TracerExport::new(&self.name, &frame);
        export.activations = self.steps.iter().cloned().collect();
        if let Some(log) = engine.attention().filter(|_| on.attention) {
            let records = log.queries(0).flat_map(|q| log.of(q));
            export.attention = records.map(|r| attention::trace(&r)).collect();
        }
        export.quantisation = model;
        export
    }
}

/// The positions that had weight in a step.
#[derive(Debug, Default)]
struct Read {
    /// By slot, the position that was read there.
    slots: Vec<Option<u32>>,
    positions: Vec<u32>,
}

impl Read {
    /// Positions that are in the recorded top of any traced head of the newest `tokens` queries, ascending. Allocates
    /// nothing after the first time.
    fn of(&mut self, log: &AttentionLog<'_>, slots: Slots, tokens: usize) -> &[u32] {
        self.slots.clear();
        self.slots.resize(slots.n, None);
        for query in log.queries(0).rev().take(tokens) {
            for record in log.of(query) {
                for &p in record.positions {
                    if let Some(slot) = self.slots.get_mut(slots.slot(p as usize)) {
                        *slot = Some(p);
                    }
                }
            }
        }
        self.positions.clear();
        self.positions.reserve(slots.n);
        self.positions.extend(self.slots.iter().flatten());
        self.positions.sort_unstable();
        &self.positions
    }
}
