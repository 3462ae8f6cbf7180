//! The engine: one sequence, run step by step, a step being one decoded token or one chunk of a prompt.

use super::cpu::exec::{Executor, StepInput};
use super::cpu::kv::bytes_per_token;
use super::cpu::pool::Pool;
use super::sampler::Sampler;
use super::{Config, EngineError, NO_LAYER, Observer, StepKind};
use crate::model::Model;
use crate::model::brick::BrickId;
use crate::model::work::Work;
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

/// A model, its cache and its threads.
pub struct Engine<O> {
    model: Arc<Model>,
    config: Config,
    pool: Pool,
    exec: Executor,
    observer: O,
    input: StepInput,
    /// The next brick of the step in progress.
    cursor: Option<usize>,
    /// Tokens in the cache.
    past: usize,
}

impl<O: Observer> Engine<O> {
    /// Allocates buffers and starts threads.
    ///
    /// # Errors
    /// A knob out of range, too little memory, threads refused.
    pub fn new(model: Arc<Model>, config: Config, observer: O) -> Result<Self, EngineError> {
        config.check()?;
        if let Some(max) = model.max_context()
            && config.n_ctx > max
        {
            return Err(EngineError::Config(format!(
                "the context length is {}, but the model has learned positions for {max} tokens only",
                config.n_ctx
            )));
        }
        let exec = Executor::new(&model, &config)?;
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
            input: StepInput {
                ids: Vec::with_capacity(config.chunk),
                ..StepInput::default()
            },
            cursor: None,
            past: 0,
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

    /// Tokens in the cache.
    pub fn past(&self) -> usize {
        self.past
    }

    /// Tokens that still fit.
    pub fn room(&self) -> usize {
        self.config.n_ctx - self.past
    }

    /// Bytes of the kv cache as allocated.
    pub fn kv_bytes(&self) -> u64 {
        self.kv_bytes_per_token() * self.config.n_ctx as u64
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

    /// Whether a step has begun and not all its bricks have run.
    pub fn in_step(&self) -> bool {
        self.cursor.is_some()
    }

    /// Forgets everything after the first `keep` tokens, a step in progress included.
    pub fn truncate(&mut self, keep: usize) {
        self.past = self.past.min(keep);
        self.cursor = None;
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
        for (tokens, max) in [
            (ids.len(), self.config.chunk),
            (logit_rows, self.config.logit_rows),
        ] {
            if tokens > max {
                return Err(EngineError::ChunkTooLarge { tokens, max });
            }
        }
        self.check_room(ids.len())?;
        let n_vocab = self.model.n_vocab;
        if let Some(&id) = ids.iter().find(|&&id| id as usize >= n_vocab) {
            return Err(EngineError::BadToken { id, n_vocab });
        }
        self.input.ids.clear();
        self.input.ids.extend_from_slice(ids);
        self.input.past = self.past;
        self.input.logit_rows = logit_rows;
        self.cursor = Some(0);
        let last = self.past + ids.len() - 1;
        self.observer
            .begin_step(kind, last as u32, ids.len() as u32);
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
        self.observer.worked(start, BrickId::Sample, NO_LAYER, work);
        choice
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
        if ids.is_empty() {
            return Err(EngineError::Empty);
        }
        self.check_room(ids.len())?;
        let chunks = ids.len().div_ceil(self.config.chunk);
        for (i, chunk) in ids.chunks(self.config.chunk).enumerate() {
            let logits = if i + 1 == chunks {
                Logits::Last
            } else {
                Logits::None
            };
            self.step(chunk, logits, StepKind::Prefill)?;
        }
        Ok(())
    }

    /// Logits of row `row` of the last step, `[n_vocab]`; row 0 is the first token whose logits were wanted.
    pub fn logits(&mut self, row: usize) -> &[f32] {
        self.exec.logits(row)
    }

    /// The residual stream of token `col` of the step, `[n_embd]`, as far as it has run.
    pub fn residual(&mut self, col: usize) -> &[f32] {
        self.exec.residual(col)
    }

    fn check_room(&self, tokens: usize) -> Result<(), EngineError> {
        if tokens <= self.room() {
            return Ok(());
        }
        Err(EngineError::ContextFull {
            needed: self.past + tokens,
            n_ctx: self.config.n_ctx,
        })
    }

    fn advance_to(&mut self, end: usize) -> Result<(), EngineError> {
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
            self.past += self.input.ids.len();
            self.cursor = None;
        } else {
            self.cursor = Some(end);
        }
        Ok(())
    }
}
