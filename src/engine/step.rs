//! The engine, run step by step, a step being one decoded token, one chunk of a prompt, or tokens of several sequences.

use super::batch::Token;
use super::config::Overflow;
use super::cpu::exec::{Executor, Place, StepInput};
use super::cpu::kernel_use::KernelUse;
use super::cpu::kv::bytes_per_token;
use super::cpu::pool::Pool;
use super::sampler::Sampler;
use super::sequences::{CacheState, Sequences, SlotInfo};
use super::{Call, Config, EngineError, NO_LAYER, Observer, StepKind};
use crate::model::brick::BrickId;
use crate::model::work::Work;
use crate::model::{Model, Span};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// Which tokens of a step get logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logits {
    /// None: a chunk inside a prompt.
    None,
    /// The last one.
    Last,
    /// All; needs [`Config::logit_rows`].
    All,
}

/// How far a step has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Layers `0..next_layer` have run.
    AtLayer(usize),
    /// All bricks have run; logits are there.
    Done,
}

/// A sampled token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Its id.
    pub id: u32,
    /// Its probability under the model's distribution (temperature 1, nothing cut).
    pub prob: f32,
}

/// How often a step was of the shape of the one before it, so that its plan, buffers and kernels stood ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Reuse {
    /// Steps begun.
    pub steps: u64,
    /// Those with as many tokens of the same sequences, and as many wanted logits, as the step before.
    pub reused: u64,
}

/// A sequence while a step is put together.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    tokens: usize,
    span: usize,
    position: usize,
}

/// A model, its caches and its threads.
///
/// What names no sequence is about sequence 0.
pub struct Engine<O> {
    pub(super) model: Arc<Model>,
    pub(super) config: Config,
    pub(super) pool: Pool,
    pub(super) exec: Executor,
    pub(super) observer: O,
    pub(super) input: StepInput,
    /// The next step while it is put together.
    pub(super) next: StepInput,
    /// What of every sequence is in it.
    found: Vec<Found>,
    /// The next brick of the step in progress.
    cursor: Option<usize>,
    pub(super) sequences: Sequences,
    reuse: Reuse,
}

impl<O: Observer> Engine<O> {
    /// Allocates buffers and starts threads.
    ///
    /// # Errors
    /// A knob out of range, too little memory, threads refused.
    pub fn new(model: Arc<Model>, config: Config, mut observer: O) -> Result<Self, EngineError> {
        config.check()?;
        if let Some(max) = model.max_context()
            && (config.n_ctx > max || config.overflow == Overflow::Ring)
        {
            return Err(EngineError::Config(format!(
                "the model has learned positions for {max} tokens only: the context length ({} now) can be at most that, and \
                 text beyond it cannot be continued",
                config.n_ctx
            )));
        }
        let exec = Executor::new(&model, &config)?;
        observer.prepare(config.threads, model.plan.bricks.len());
        let pool = Pool::new(config.threads, config.spin(), config.pin).map_err(|e| {
            EngineError::Threads {
                threads: config.threads,
                reason: e.to_string(),
            }
        })?;
        Ok(Self {
            pool,
            exec,
            observer,
            input: StepInput::with_capacity(config.chunk, config.n_seq),
            next: StepInput::with_capacity(config.chunk, config.n_seq),
            found: vec![Found::default(); config.n_seq],
            cursor: None,
            sequences: Sequences::new(
                config.n_seq,
                config.slots(),
                config.overflow,
                widest_window(&model),
            ),
            reuse: Reuse::default(),
            model,
            config,
        })
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The knobs in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Tokens so far; in a ring, the evicted ones too.
    pub fn past(&self) -> usize {
        self.past_of(0)
    }

    /// Tokens so far of a sequence; 0 for one that does not exist.
    pub fn past_of(&self, seq: usize) -> usize {
        self.sequences.past(seq)
    }

    /// Tokens in the caches of all sequences.
    pub fn cached(&self) -> usize {
        (0..self.config.n_seq).map(|s| self.sequences.live(s)).sum()
    }

    /// Tokens that can still follow: in a ring, far more than the context.
    pub fn room(&self) -> usize {
        self.sequences.room(0)
    }

    /// Tokens that can still follow in a sequence.
    pub fn room_of(&self, seq: usize) -> usize {
        self.sequences.room(seq)
    }

    /// Occupancy of the kv caches, and what was evicted from them.
    pub fn cache_state(&self) -> CacheState {
        self.sequences.state()
    }

    /// The live slots of a sequence, in the order of positions.
    pub fn slots(&self, seq: usize) -> Vec<SlotInfo> {
        self.sequences.slots(seq)
    }

    /// How often a step was of the shape of the one before.
    pub fn reuse(&self) -> Reuse {
        self.reuse
    }

    /// Bytes of the kv caches as allocated.
    pub fn kv_bytes(&self) -> u64 {
        self.kv_bytes_per_token() * (self.config.n_ctx * self.config.n_seq) as u64
    }

    /// Bytes of one position of the kv cache.
    pub fn kv_bytes_per_token(&self) -> u64 {
        bytes_per_token(&self.model.hparams, self.config.kv_type)
    }

    /// Bytes of activation buffers.
    pub fn scratch_bytes(&self) -> u64 {
        self.exec.scratch_bytes()
    }

    /// What watches the steps.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// What watches the steps, to be changed between two of them.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    /// The kernel of every brick of the plan.
    pub fn kernels(&self) -> Vec<KernelUse> {
        self.exec.kernel_uses(&self.model)
    }

    /// Whether a step has begun and not all its bricks have run.
    pub fn in_step(&self) -> bool {
        self.cursor.is_some()
    }

    /// The brick of the plan that runs next; `None` outside a step.
    pub fn next_brick(&self) -> Option<usize> {
        self.cursor
    }

    /// Forgets everything after the first `keep` tokens, a step in progress included. In a ring, what was evicted does
    /// not come back.
    pub fn truncate(&mut self, keep: usize) {
        self.truncate_seq(0, keep);
    }

    /// As [`Self::truncate`], for a sequence; a step in progress is forgotten for all that are in it.
    pub fn truncate_seq(&mut self, seq: usize, keep: usize) {
        self.sequences.truncate(seq, keep);
        if self.cursor.take().is_some() {
            // What it has left of other sequences is not whole either.
            self.exec.probe_cancels();
        }
        self.exec.probe_truncates(seq, keep);
    }

    /// Starts a step of `ids`.
    ///
    /// # Errors
    /// No tokens, more than a chunk, more than the context holds, or one outside the vocabulary.
    pub fn begin(
        &mut self,
        ids: &[u32],
        logits: Logits,
        kind: StepKind,
    ) -> Result<(), EngineError> {
        if ids.is_empty() {
            return Err(EngineError::Empty);
        }
        let logit_rows = match logits {
            Logits::None => 0,
            Logits::Last => 1,
            Logits::All => ids.len(),
        };
        let first_row = ids.len() - logit_rows;
        let tokens = ids.iter().enumerate().map(|(i, &id)| Token {
            seq: 0,
            id,
            logits: i >= first_row,
        });
        self.enter(tokens, kind)
    }

    /// Starts a step of tokens of any sequences, in the order of their positions. Row `r` of the logits is that of the
    /// `r`-th token that wants them.
    ///
    /// # Errors
    /// No tokens, more than a chunk, more than a context holds, a sequence that does not exist, or an id outside the
    /// vocabulary; nothing has then changed.
    pub fn begin_tokens(&mut self, tokens: &[Token], kind: StepKind) -> Result<(), EngineError> {
        self.enter(tokens.iter().copied(), kind)
    }

    pub(super) fn enter(
        &mut self,
        tokens: impl ExactSizeIterator<Item = Token> + Clone,
        kind: StepKind,
    ) -> Result<(), EngineError> {
        if tokens.len() == 0 {
            return Err(EngineError::Empty);
        }
        let logit_rows = tokens.clone().filter(|t| t.logits).count();
        for (tokens, max) in [
            (tokens.len(), self.config.chunk),
            (logit_rows, self.config.rows()),
        ] {
            if tokens > max {
                return Err(EngineError::ChunkTooLarge { tokens, max });
            }
        }
        self.count(tokens.clone())?;
        let next = &mut self.next;
        next.ids.clear();
        next.places.clear();
        next.spans.clear();
        next.logit_rows = logit_rows;
        for token in tokens.clone() {
            let found = &mut self.found[token.seq];
            if found.tokens > 0 {
                next.spans
                    .push(self.sequences.enter(token.seq, found.tokens));
                found.tokens = 0;
                found.span = next.spans.len() - 1;
            }
        }
        // The head computes the last columns, so those whose logits are wanted come last: attention goes by positions.
        for wanted in [false, true] {
            for span in &next.spans {
                self.found[span.seq].position = span.past;
            }
            for token in tokens.clone() {
                let found = &mut self.found[token.seq];
                if token.logits == wanted {
                    next.ids.push(token.id);
                    next.places.push(Place {
                        span: found.span,
                        position: found.position,
                    });
                }
                found.position += 1;
            }
        }
        self.reuse.steps += 1;
        self.reuse.reused += u64::from(next.has_shape_of(&self.input));
        std::mem::swap(&mut self.input, &mut self.next);
        self.cursor = Some(0);
        self.exec.probe_begins(&self.input);
        let last = self.input.places.last().map_or(0, |p| p.position);
        self.observer
            .begin_step(kind, last as u32, self.input.ids.len() as u32);
        Ok(())
    }

    /// Counts the tokens of every sequence, and refuses what cannot run.
    pub(super) fn count(&mut self, tokens: impl Iterator<Item = Token>) -> Result<(), EngineError> {
        self.found.fill(Found::default());
        let n_vocab = self.model.n_vocab;
        for Token { seq, id, .. } in tokens {
            if id as usize >= n_vocab {
                return Err(EngineError::BadToken { id, n_vocab });
            }
            let more = self.found.get(seq).map_or(1, |f| f.tokens + 1);
            self.sequences.check_room(seq, more)?;
            self.found[seq].tokens = more;
        }
        Ok(())
    }

    /// Runs the step in progress to its end.
    ///
    /// # Errors
    /// [`EngineError::WorkerFailed`].
    pub fn finish(&mut self) -> Result<(), EngineError> {
        self.advance_to(self.model.plan.bricks.len())
    }

    /// Runs one layer of the step in progress; the embedding goes with the first, the head with the last.
    ///
    /// # Errors
    /// [`EngineError::WorkerFailed`].
    pub fn advance_layer(&mut self) -> Result<Progress, EngineError> {
        let starts = &self.model.plan.layer_starts;
        let Some(cursor) = self.cursor else {
            return Ok(Progress::Done);
        };
        let done = starts.iter().filter(|&&s| s <= cursor).count();
        // `starts` ends with the head: after the last layer the step is run to its end.
        let next = done.max(1);
        match starts.get(next) {
            Some(&end) if next + 1 < starts.len() => {
                self.advance_to(end)?;
                self.observer.pause();
                Ok(Progress::AtLayer(next))
            }
            _ => {
                self.finish()?;
                Ok(Progress::Done)
            }
        }
    }

    /// Chooses the next token from the last row of logits; timed as a brick of the step.
    pub fn sample(&mut self, sampler: &mut Sampler) -> Choice {
        let start = self.observer.start();
        let row = self.input.logit_rows.saturating_sub(1);
        let choice = self.exec.sample(row, sampler);
        let n = self.model.n_vocab as u64;
        let work = Work {
            elements: n,
            bytes: 4 * n,
            flops: 0,
        };
        let call = Call::outside(BrickId::Sample, NO_LAYER, work);
        self.observer.worked(start, call);
        choice
    }

    /// The sequences of the last step begun, with their positions before it.
    pub fn spans(&self) -> &[Span] {
        &self.input.spans
    }

    /// Logits of the last token of the last step, `[n_vocab]`; `None` where none were wanted.
    pub fn last_logits(&mut self) -> Option<&[f32]> {
        let row = self.input.logit_rows.checked_sub(1)?;
        Some(self.exec.logits(row))
    }

    /// Closes the step: nothing belongs to it any more.
    pub fn end_step(&mut self) {
        self.observer.end_step();
    }

    /// Runs a whole step.
    ///
    /// # Errors
    /// As [`Self::begin`] and [`Self::finish`].
    pub fn step(&mut self, ids: &[u32], logits: Logits, kind: StepKind) -> Result<(), EngineError> {
        self.begin(ids, logits, kind)?;
        self.finish()?;
        self.end_step();
        Ok(())
    }

    /// Decodes one token; its logits are row 0.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn decode(&mut self, id: u32) -> Result<(), EngineError> {
        self.step(&[id], Logits::Last, StepKind::Decode)
    }

    /// Runs a prompt in chunks; logits of its last token only.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn prefill(&mut self, ids: &[u32]) -> Result<(), EngineError> {
        self.prefill_seq(0, ids)
    }

    /// Logits of row `row` of the last step, `[n_vocab]`; row 0 is the first token whose logits were wanted.
    pub fn logits(&mut self, row: usize) -> &[f32] {
        self.exec.logits(row)
    }

    pub(super) fn advance_to(&mut self, end: usize) -> Result<(), EngineError> {
        let Some(cursor) = self.cursor else {
            return Ok(());
        };
        self.observer.resume();
        // Without wanted logits the head has nothing to do.
        let head = self.model.plan.layer_starts.last().copied().unwrap_or(end);
        let stop = if self.input.logit_rows == 0 {
            end.min(head)
        } else {
            end
        };
        self.exec
            .run(
                &self.model,
                &mut self.pool,
                cursor..stop.max(cursor),
                &self.input,
                &mut self.observer,
            )
            .map_err(|_| EngineError::WorkerFailed)?;
        if end == self.model.plan.bricks.len() {
            self.sequences.commit(&self.input.spans);
            self.exec.probe_ends();
            self.cursor = None;
        } else {
            self.cursor = Some(end);
        }
        Ok(())
    }
}

/// The widest window of all layers; `None` where a layer sees everything.
fn widest_window(model: &Model) -> Option<usize> {
    (0..model.hparams.n_layers)
        .map(|layer| model.hparams.layer_window(layer).unwrap_or(usize::MAX))
        .max()
        .filter(|&w| w < usize::MAX)
}
