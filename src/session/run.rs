//! One session: a prompt running on an engine, step by step, under commands. No threads and no channels here.

use super::advice::{Advice, Surroundings};
use super::bandit::KernelBandit;
use super::change::build_engine;
use super::counting::Counting;
use super::faults::StepFaults;
use super::load::Loaded;
use super::profile::Profile;
use super::prompt::{check_fits, encode_prompt};
use super::snapshot::{GeneratedToken, MAX_TOKENS_SHOWN, Message, RunState};
use super::tracers::Measurement;
use super::tracing::Tracing;
use super::tuner::{Tuner, TunerOptions};
use crate::engine::sampler::{Sampler, SamplerConfig};
use crate::engine::{Choice, Config, Engine, EngineError, Logits, Progress, StepKind, SyncMode};
use crate::profiler::graph::StepPath;
use crate::profiler::named::Named;
use crate::profiler::os::OsSampler;
use crate::profiler::probe::Bandwidth;
use crate::profiler::rates::RateMeter;
use crate::profiler::{Clock, StepRecorder};
use crate::session::snapshot::{KernelInfo, MachineInfo, ModelInfo, Peak, StepTrace, Subject};
use crate::tokenizer::{StreamDecoder, Tokenizer, TokenizerError};
use crate::trace::TraceError;
use crate::tracer::quantisation::QuantisationError;
use crate::tracer::{ModelTracer, ModelTracerConfig};
use crate::tuner::ab::SETTLE;
use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const END_OF_TEXT: &str = "end of text";
const TOKEN_LIMIT: &str = "token limit";
const CONTEXT_FULL: &str = "context full";

/// What a session is to do.
#[derive(Clone)]
pub struct Options {
    /// Knobs of the engine.
    pub config: Config,
    /// Names of knobs the user set; recommendations respect them.
    pub explicit: BTreeSet<&'static str>,
    /// Sampler.
    pub sampler: SamplerConfig,
    /// Prompt, raw text.
    pub prompt: String,
    /// Wrap the prompt as a user message by the file's chat template.
    pub chat: bool,
    /// Stop after this many tokens.
    pub max_tokens: Option<u64>,
    /// Start the prompt again when generation ends, keeping statistics.
    pub endless: bool,
    /// At most this many tokens a second, so that text can be read along.
    pub pace: Option<u32>,
    /// Clock of the profiler.
    pub clock: Clock,
    /// How far threads are kept in step for the profiler.
    pub sync_mode: SyncMode,
    /// Read bandwidth of the machine by thread count, as far as it was probed.
    pub bandwidth: Vec<Bandwidth>,
    /// Peaks of the machine, as far as they were probed.
    pub peaks: Vec<Peak>,
    /// Another model, whose traces are put beside those of this one.
    pub beside: Option<Loaded>,
    /// File of facts that are in force; it may not exist yet.
    pub overlay: Option<PathBuf>,
    /// Tracers that are on from the start, and what they look at.
    pub tracers: ModelTracerConfig,
    /// The same model in another precision, which quantisation error is measured against.
    pub reference: Option<Loaded>,
    /// The tuner's models and store; `None`: rules alone. With modelled time there is none.
    pub tuner: Option<TunerOptions>,
}

/// Why a session cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The overlay of facts.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The reference of the quantisation tracer.
    #[error(transparent)]
    Reference(#[from] QuantisationError),
    /// The prompt or its template.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The tuner's thread.
    #[error("starting the tuner's thread: {0}")]
    Tuner(std::io::Error),
    /// `--chat` without a template in the file.
    #[error("the file has no chat template; leave out --chat")]
    NoChatTemplate,
}

/// Where generation stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Phase {
    /// `done` tokens of the prompt are in the cache.
    Prefill {
        done: usize,
    },
    /// `next` is to be decoded.
    Decode {
        next: u32,
    },
    Finished {
        reason: &'static str,
    },
    Failed {
        error: String,
    },
}

/// Where the user let it stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    Running,
    Paused,
    /// Run one token, then pause.
    OneToken,
    /// Run one layer, then pause inside the token.
    OneLayer,
    InsideToken {
        next_layer: usize,
    },
}

/// A step, and the critical path of the mean step.
pub(super) type SeenStep = (Option<StepTrace>, Option<StepPath>);

/// A session.
pub struct Session {
    pub(super) loaded: Loaded,
    pub(super) options: Options,
    pub(super) engine: Engine<StepRecorder>,
    sampler: Sampler,
    pub(super) profile: Profile,
    pub(super) rates: RateMeter,
    pub(super) advice: Advice,
    pub(super) model_info: Arc<ModelInfo>,
    pub(super) machine: Arc<MachineInfo>,
    pub(super) os: OsSampler,
    pub(super) surroundings: Surroundings,
    /// Those of the engine's plan.
    pub(super) kernels: Arc<Vec<KernelInfo>>,
    /// Cost of one stamp of the clock, where it is measured.
    pub(super) stamp_ns: Option<f64>,
    /// Those of the machine, marked for the configuration in force.
    pub(super) peaks: Vec<Peak>,
    /// What processor and system count; `None` with modelled time.
    pub(super) counters: Option<Counting>,
    pub(super) faults: StepFaults,
    /// Work of the session outside the engine.
    pub(super) host: Named,
    /// The step and critical path shown last, and since when.
    pub(super) seen_step: Option<(Instant, SeenStep)>,
    /// When the session began.
    pub(super) began: Instant,
    /// Time that the first engine took to build.
    pub(super) engine_took: Duration,
    pub(super) prompt_ids: Vec<u32>,
    stream: StreamDecoder<Arc<Tokenizer>>,
    pub(super) tokens: VecDeque<GeneratedToken>,
    pub(super) generated: u64,
    /// Tokens decoded in this run: the first one generated comes of the prompt, and one that ends the text is not counted
    /// as generated.
    decoded: u64,
    /// The prefill figures are of another configuration: the next run starts them afresh.
    pub(super) prefill_stale: bool,
    /// Ids generated in this run, to rebuild the cache when the configuration changes.
    history: Vec<u32>,
    pub(super) phase: Phase,
    pub(super) gate: Gate,
    pub(super) message: Option<Message>,
    pub(super) seq: u64,
    pub(super) tracing: Tracing,
    pub(super) tracer: ModelTracer,
    pub(super) measurement: Measurement,
    pub(super) tuner: Option<Tuner>,
    /// What runs, as the tuner knows it; `None` with modelled time.
    pub(super) subject: Option<Arc<Subject>>,
    pub(super) bandit: Option<KernelBandit>,
}

impl Session {
    /// Builds the engine and reads the prompt.
    ///
    /// # Errors
    /// A knob out of range, too little memory, or a prompt that does not fit.
    pub fn new(loaded: Loaded, options: Options) -> Result<Self, SessionError> {
        let began = Instant::now();
        let tracing = Tracing::new(
            loaded.clone(),
            options.beside.clone(),
            options.overlay.as_deref(),
        )?;
        let mut engine = build_engine(
            &loaded.model,
            &options.config,
            options.sync_mode,
            options.clock,
        )?;
        engine.set_edits(tracing.facts().cloned());
        let mut tracer = super::tracers::model_tracer(&loaded, &options)?;
        tracer.equip(&mut engine, None)?;
        let engine_took = began.elapsed();
        let prompt_ids = encode_prompt(&loaded, &options.prompt, options.chat)?;
        check_fits(&prompt_ids, &options.config)?;
        let subject =
            (!options.clock.is_modelled()).then(|| super::tuner::subject(&loaded, &options));
        let subject = subject.map(Arc::new);
        let tuner = match (&options.tuner, &subject) {
            (Some(tuner), Some(subject)) => {
                Some(Tuner::start(tuner.clone(), &loaded, Arc::clone(subject))?)
            }
            _ => None,
        };
        Ok(Self {
            sampler: Sampler::new(options.sampler, loaded.model.n_vocab),
            profile: Profile::new(loaded.model.hparams.n_layers, !options.clock.is_modelled()),
            rates: RateMeter::new(),
            advice: Advice::default(),
            model_info: Arc::new(super::publish::model_info(&loaded)),
            machine: Arc::new(super::publish::machine_info(&options)),
            os: OsSampler::new(Duration::from_millis(200)),
            surroundings: Surroundings::new(options.bandwidth.clone()),
            faults: StepFaults::new(!options.clock.is_modelled()),
            kernels: Arc::new(super::publish::kernels(&engine)),
            stamp_ns: options.clock.stamp_cost_ns(),
            peaks: options.peaks.clone(),
            counters: (!options.clock.is_modelled()).then(Counting::default),
            host: Named::default(),
            seen_step: None,
            began,
            engine_took,
            prompt_ids,
            stream: StreamDecoder::new(Arc::clone(&loaded.tokenizer)),
            tokens: VecDeque::new(),
            generated: 0,
            decoded: 0,
            prefill_stale: false,
            history: Vec::new(),
            phase: Phase::Prefill { done: 0 },
            gate: Gate::Running,
            message: None,
            seq: 0,
            tracing,
            tracer,
            measurement: Measurement::default(),
            tuner,
            subject,
            bandit: None,
            engine,
            loaded,
            options,
        })
    }

    /// What the session is doing, for showing.
    pub fn state(&self) -> RunState {
        match (&self.phase, self.gate) {
            (Phase::Failed { error }, _) => RunState::Failed {
                error: error.clone(),
            },
            (Phase::Finished { reason }, _) => RunState::Finished {
                reason: (*reason).into(),
            },
            (_, Gate::InsideToken { next_layer }) => RunState::PausedAtLayer {
                next_layer: next_layer as u32,
            },
            (_, Gate::Paused) => RunState::Paused,
            (Phase::Prefill { done }, _) => RunState::Prefill {
                done: *done as u32,
                total: self.prompt_ids.len() as u32,
            },
            (Phase::Decode { .. }, _) => RunState::Decode,
        }
    }

    /// Whether [`Self::tick`] would do nothing until a command comes.
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Finished { .. } | Phase::Failed { .. })
            || matches!(self.gate, Gate::Paused | Gate::InsideToken { .. })
    }

    /// Whether generation has ended, well or not.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Finished { .. } | Phase::Failed { .. })
    }

    /// Tokens generated in this run.
    pub fn generated(&self) -> u64 {
        self.generated
    }

    /// Does the next piece of work: a chunk of the prompt, a token, or a layer. Returns the text that came of it.
    pub fn tick(&mut self) -> String {
        match self.try_tick() {
            Ok(text) => text,
            Err(e) => {
                self.fail(&e);
                String::new()
            }
        }
    }

    fn try_tick(&mut self) -> Result<String, EngineError> {
        if self.is_tracing() {
            self.trace_piece();
            return Ok(String::new());
        }
        if self.is_idle() {
            return Ok(String::new());
        }
        if self.is_timing_prompts() {
            self.time_prompt()?;
            return Ok(String::new());
        }
        if self.gate == Gate::OneLayer {
            return self.tick_layer();
        }
        let text = match self.phase {
            Phase::Prefill { done } => {
                self.begin_chunk(done)?;
                self.tracer.finish(&mut self.engine)?;
                self.end_chunk(done)?
            }
            Phase::Decode { next } => {
                self.profile.begin_decode();
                self.engine.begin(&[next], Logits::Last, StepKind::Decode)?;
                self.tracer.finish(&mut self.engine)?;
                self.end_token()?
            }
            Phase::Finished { .. } | Phase::Failed { .. } => String::new(),
        };
        if self.gate == Gate::OneToken {
            self.gate = Gate::Paused;
        }
        Ok(text)
    }

    fn tick_layer(&mut self) -> Result<String, EngineError> {
        self.profile.stopped();
        if !self.engine.in_step() {
            match self.phase {
                Phase::Prefill { done } => self.begin_chunk(done)?,
                Phase::Decode { next } => {
                    self.engine.begin(&[next], Logits::Last, StepKind::Decode)?
                }
                _ => return Ok(String::new()),
            }
        }
        if let Progress::AtLayer(next_layer) = self.engine.advance_layer()? {
            self.gate = Gate::InsideToken { next_layer };
            return Ok(String::new());
        }
        self.gate = Gate::Paused;
        self.end_step_in_progress()
    }

    fn end_step_in_progress(&mut self) -> Result<String, EngineError> {
        match self.phase {
            Phase::Prefill { done } => self.end_chunk(done),
            _ => self.end_token(),
        }
    }

    /// Completes a token that was stopped between layers; a session stopped inside one is paused behind it then.
    pub(super) fn leave_token(&mut self) {
        if self.engine.in_step() && !self.is_over() {
            let done = self
                .tracer
                .finish(&mut self.engine)
                .and_then(|()| self.end_step_in_progress());
            if let Err(e) = done {
                self.fail(&e);
            }
        }
        if matches!(self.gate, Gate::InsideToken { .. } | Gate::OneLayer) {
            self.gate = Gate::Paused;
        }
    }

    fn fail(&mut self, e: &EngineError) {
        self.drop_measurement();
        self.bandit = None;
        self.phase = Phase::Failed {
            error: e.to_string(),
        };
    }

    fn chunk_end(&self, done: usize) -> usize {
        (done + self.options.config.chunk).min(self.prompt_ids.len())
    }

    fn begin_chunk(&mut self, done: usize) -> Result<(), EngineError> {
        let end = self.chunk_end(done);
        let logits = if end == self.prompt_ids.len() {
            Logits::Last
        } else {
            Logits::None
        };
        self.engine
            .begin(&self.prompt_ids[done..end], logits, StepKind::Prefill)
    }

    fn end_chunk(&mut self, done: usize) -> Result<String, EngineError> {
        let end = self.chunk_end(done);
        let last = end == self.prompt_ids.len();
        let choice = last.then(|| self.engine.sample(&mut self.sampler));
        self.engine.end_step();
        let record = self.engine.observer().last();
        let us = record.wall_us();
        let (profile, recorder) = (&mut self.profile, self.engine.observer());
        timed(&mut self.host, self.options.clock, "fold step in", || {
            profile.add(recorder)
        });
        self.rates.prefill((end - done) as u32, us);
        if let Some(counters) = &mut self.counters {
            // Now that the engine's threads have run: what a run counts is counted from its first token on.
            counters.open(self.engine.observer_mut());
        }
        self.trace_step(choice.map(|c| c.id))?;
        let Some(choice) = choice else {
            self.phase = Phase::Prefill { done: end };
            return Ok(String::new());
        };
        self.follow_step();
        // The step's time includes sampling.
        self.rates.first_token(0.0);
        if self.options.max_tokens == Some(0) {
            self.end_run(TOKEN_LIMIT);
            return Ok(String::new());
        }
        Ok(self.accept(choice, us))
    }

    fn end_token(&mut self) -> Result<String, EngineError> {
        let choice = self.engine.sample(&mut self.sampler);
        self.engine.end_step();
        let record = self.engine.observer().last();
        let (us, bytes) = (record.wall_us(), record.bytes());
        let (profile, recorder) = (&mut self.profile, self.engine.observer());
        timed(&mut self.host, self.options.clock, "fold step in", || {
            profile.add(recorder)
        });
        let sampled = self.engine.observer().last().sampled;
        if !sampled {
            self.rates.decode(us, bytes);
        }
        self.faults.step();
        self.decoded += 1;
        self.trace_step(Some(choice.id))?;
        self.follow_step();
        let text = self.accept(choice, us);
        if !sampled {
            self.follow_measurement(us);
        }
        Ok(text)
    }

    /// Takes a sampled token into the run. Returns the text that is complete with it.
    fn accept(&mut self, choice: Choice, us: f64) -> String {
        if self.loaded.tokenizer.is_end_of_generation(choice.id) {
            let rest = self.stream.flush();
            if let Some(last) = self.tokens.back_mut() {
                last.text.push_str(&rest);
            }
            self.end_run(END_OF_TEXT);
            return rest;
        }
        self.generated += 1;
        self.history.push(choice.id);
        self.phase = Phase::Decode { next: choice.id };
        let end = self.end_reached();
        let stream = &mut self.stream;
        let mut text = timed(&mut self.host, self.options.clock, "detokenise", || {
            stream.push(choice.id)
        });
        if end.is_some() {
            text.push_str(&self.stream.flush());
        }
        if self.tokens.len() == MAX_TOKENS_SHOWN {
            self.tokens.pop_front();
        }
        self.tokens.push_back(GeneratedToken {
            id: choice.id,
            text: text.clone(),
            prob: choice.prob,
            us,
        });
        if let Some(reason) = end {
            self.end_run(reason);
        }
        text
    }

    fn end_reached(&self) -> Option<&'static str> {
        let limit = self.options.max_tokens;
        if limit.is_some_and(|max| self.generated >= max) {
            Some(TOKEN_LIMIT)
        } else {
            (self.engine.room() == 0).then_some(CONTEXT_FULL)
        }
    }

    fn end_run(&mut self, reason: &'static str) {
        self.phase = Phase::Finished { reason };
        if self.measurement_needs_more() {
            if self.decoded > SETTLE as u64 {
                self.start_run();
                return;
            }
            // Every run is the same: another would be as short.
            self.break_off("runs of this prompt are too short to measure it; generate more tokens");
        }
        // A token limit is a wish to stop; the other two are where an endless run turns round. A run without a token
        // would turn for ever and show nothing.
        if self.options.endless && reason != TOKEN_LIMIT && self.generated > 0 {
            self.start_run();
            self.note_turn(reason);
        }
    }

    /// Says that an endless run started again, unless there is something more important to read.
    fn note_turn(&mut self, reason: &str) {
        const AGAIN: &str = ": started again";
        if self
            .message
            .as_ref()
            .is_none_or(|m| m.text.ends_with(AGAIN))
        {
            self.note(format!("{reason}{AGAIN}"));
        }
    }

    /// Goes on if paused.
    pub(super) fn resume(&mut self) {
        self.leave_token();
        self.gate = Gate::Running;
    }

    /// Time the engine takes for the first `tokens` of the prompt, microseconds; it must have an empty cache and keeps them
    /// in it.
    pub(super) fn time_prefill(&mut self, tokens: usize) -> Result<f64, EngineError> {
        let mut us = 0.0;
        let mut rest = self.prompt_ids.get(..tokens).unwrap_or(&self.prompt_ids);
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(rest.len().min(self.options.config.chunk));
            // As in a run: logits of the prompt's last token only.
            let logits = if after.is_empty() {
                Logits::Last
            } else {
                Logits::None
            };
            self.engine.step(chunk, logits, StepKind::Prefill)?;
            us += self.engine.observer().last().wall_us();
            rest = after;
        }
        Ok(us)
    }

    /// Forgets what was measured so far: a restart, another configuration or the user's wish.
    pub(super) fn clear_profile(&mut self) {
        self.profile.clear();
        self.engine.observer_mut().clear_mean();
        self.seen_step = None;
    }

    /// The prompt again, on an empty cache; statistics stay.
    pub(super) fn start_run(&mut self) {
        self.engine.truncate(0);
        self.tracers_start_run();
        self.sampler.reset();
        self.stream.flush();
        self.tokens.clear();
        self.history.clear();
        (self.generated, self.decoded) = (0, 0);
        self.phase = Phase::Prefill { done: 0 };
        self.faults.interrupt();
        self.profile.interrupt();
        self.profile.throughput.clear();
        self.seen_step = None;
        if std::mem::take(&mut self.prefill_stale) {
            self.rates.clear_prefill();
        }
        self.bandit_starts_run();
        self.measurement_starts_run();
    }

    /// When the next token is due under the pace, the last one having been due at `due`.
    pub(super) fn next_due(&self, due: Instant) -> Instant {
        let now = Instant::now();
        match (self.options.pace, &self.phase) {
            (Some(pace), Phase::Decode { .. }) if pace > 0 => {
                // From the due time, not from now: the pace holds on average. But a long pause is not made up for.
                let next = due + Duration::from_secs(1) / pace;
                if next < now { now } else { next }
            }
            _ => now,
        }
    }

    /// Time spent on a snapshot instead of tokens, of the time since the one before.
    pub(super) fn count_overhead(&mut self, spent: Duration, wall: Duration) {
        if self.options.clock.is_modelled() {
            return;
        }
        self.rates
            .overhead(spent.as_secs_f64() * 1e6, wall.as_secs_f64() * 1e6);
        self.host.add("make snapshot", spent.as_nanos() as f64);
    }

    /// Whether a command asked for one token or one layer that has not run yet.
    pub(super) fn step_pending(&self) -> bool {
        !self.is_over() && matches!(self.gate, Gate::OneToken | Gate::OneLayer)
    }

    pub(super) fn has_failed(&self) -> bool {
        matches!(self.phase, Phase::Failed { .. })
    }

    /// Ids generated in this run.
    pub(super) fn history(&self) -> &[u32] {
        &self.history
    }

    /// What the last command or event has to say.
    pub fn message(&self) -> Option<&Message> {
        self.message.as_ref()
    }

    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.message = Some(Message {
            is_error: false,
            text: text.into(),
        });
    }

    pub(super) fn complain(&mut self, text: impl Into<String>) {
        self.message = Some(Message {
            is_error: true,
            text: text.into(),
        });
    }
}

/// Runs `f`; its time is counted under `name` where time is real.
pub(super) fn timed<T>(host: &mut Named, clock: Clock, name: &str, f: impl FnOnce() -> T) -> T {
    if clock.is_modelled() {
        f()
    } else {
        host.time(name, f)
    }
}
