//! Statements of the TRACE language in a session, and generated tokens traced as they come.
//!
//! Statements run on an engine of their own, so that the cache and the place of the running text stay what they are; tokens
//! wait meanwhile, and commands are taken between two pieces.

use super::load::Loaded;
use super::run::Session;
use crate::engine::edit::Edits;
use crate::engine::{Config, Engine, EngineError, Unobserved};
use crate::trace::TraceError;
use crate::trace::answer;
use crate::trace::figures::{PatchMap, TraceFrame, TraceView};
use crate::trace::job::{Reading, TOP};
use crate::trace::lang::{self, Statement};
use crate::trace::patch::check_layers;
use crate::trace::stream::Stream;
use crate::trace::tracer::{Outcome, Tracer, Work};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

/// Generated tokens of which a followed trace keeps the waypoints.
const FOLLOWED: usize = 128;
/// Vectors that a trace's engine reads through the head at once.
pub const LENS_ROWS: usize = 32;

/// A model that statements run on.
struct Bench {
    loaded: Loaded,
    tracer: Tracer,
    /// Made with the first statement.
    engine: Option<Engine<Unobserved>>,
}

impl Bench {
    fn new(loaded: Loaded, overlay: Option<&Path>) -> Result<Self, TraceError> {
        let (model, tokenizer) = (loaded.model.clone(), loaded.tokenizer.clone());
        Ok(Self {
            tracer: Tracer::new(model, tokenizer, loaded.name(), overlay)?,
            loaded,
            engine: None,
        })
    }

    /// The engine for a session's configuration, and what runs on it.
    fn parts(
        &mut self,
        config: &Config,
    ) -> Result<(&mut Engine<Unobserved>, &mut Tracer), EngineError> {
        let config = trace_config(&self.loaded, config);
        if self.engine.as_ref().is_none_or(|e| *e.config() != config) {
            // The old one's memory first.
            self.engine = None;
        }
        let engine = match &mut self.engine {
            Some(engine) => engine,
            none => {
                let model = Arc::clone(&self.loaded.model);
                none.insert(Engine::new(model, config, Unobserved)?)
            }
        };
        Ok((engine, &mut self.tracer))
    }

    fn begin(&mut self, config: &Config, statement: &Statement) -> Result<Work, TraceError> {
        let (engine, tracer) = self.parts(config)?;
        tracer.begin(engine, statement)
    }
}

/// The configuration of an engine that traces: that of the running one, with rows for the lens.
fn trace_config(loaded: &Loaded, config: &Config) -> Config {
    let n_ctx = match loaded.model.max_context() {
        Some(max) => config.n_ctx.min(max),
        None => config.n_ctx,
    };
    Config {
        logit_rows: LENS_ROWS.min(config.chunk),
        n_ctx,
        n_seq: 1,
        ..config.clone()
    }
}

/// A statement being run: on the session's model, then, where there is another, on that.
struct Running {
    statement: Statement,
    work: Work,
    on_other: bool,
}

/// Everything traced in a session.
pub(super) struct Tracing {
    own: Bench,
    /// Another model, whose traces are put beside.
    other: Option<Bench>,
    queue: VecDeque<Statement>,
    running: Option<Running>,
    number: u64,
    shown: Option<Arc<TraceView>>,
    beside: Option<Arc<TraceView>>,
    map: Option<Arc<PatchMap>>,
    lines: Vec<String>,
    following: bool,
    /// Whether anything was ever asked for.
    used: bool,
}

impl Tracing {
    /// Nothing traced yet; facts of the session's model are those of the file `overlay`.
    ///
    /// # Errors
    /// A file that is no overlay of the model.
    pub fn new(
        own: Loaded,
        other: Option<Loaded>,
        overlay: Option<&Path>,
    ) -> Result<Self, TraceError> {
        Ok(Self {
            own: Bench::new(own, overlay)?,
            other: other.map(|o| Bench::new(o, None)).transpose()?,
            queue: VecDeque::new(),
            running: None,
            number: 0,
            shown: None,
            beside: None,
            map: None,
            lines: Vec::new(),
            following: false,
            used: false,
        })
    }

    /// Facts in force.
    pub fn facts(&self) -> Option<&Arc<Edits>> {
        self.own.tracer.facts()
    }

    /// The same weights are elsewhere in memory from now on. A statement that runs goes on with its engine; the next one
    /// has another.
    pub fn reloaded(&mut self, loaded: &Loaded) {
        self.own.tracer.reloaded(&loaded.model);
        self.own.loaded = loaded.clone();
        if self.running.is_none() {
            self.own.engine = None;
        }
    }

    fn is_busy(&self) -> bool {
        self.running.is_some() || !self.queue.is_empty()
    }

    /// Whether generated tokens are traced as they come.
    pub fn is_following(&self) -> bool {
        self.following
    }

    /// What the pane shows.
    pub fn frame(&self) -> Option<Arc<TraceFrame>> {
        self.used.then(|| {
            let running = self.running.as_ref();
            let work = running.map(|r| {
                let (what, done, all) = r.work.progress();
                let what = match self.queue.len() {
                    0 => what.to_owned(),
                    n => format!("{what}, {n} waiting"),
                };
                (what, done as u32, all as u32)
            });
            Arc::new(TraceFrame {
                number: self.number,
                shown: self.shown.clone(),
                beside: self.beside.clone(),
                map: self.filling().or_else(|| self.map.clone()),
                following: self.following,
                work,
                lines: self.lines.clone(),
            })
        })
    }

    /// The map that is being filled.
    fn filling(&self) -> Option<Arc<PatchMap>> {
        match &self.running.as_ref()?.work {
            Work::Patch(job) => Some(Arc::new(job.map().clone())),
            _ => None,
        }
    }

    /// Starts the next statement or does a piece of the one that runs.
    fn piece(&mut self, config: &Config) -> Result<(), TraceError> {
        let Some(mut running) = self.running.take() else {
            let Some(statement) = self.queue.pop_front() else {
                return Ok(());
            };
            let work = self.own.begin(config, &statement)?;
            self.running = Some(Running {
                statement,
                work,
                on_other: false,
            });
            return Ok(());
        };
        let bench = match &mut self.other {
            Some(other) if running.on_other => other,
            _ => &mut self.own,
        };
        let (engine, tracer) = bench.parts(config)?;
        if tracer.advance(engine, &mut running.work)? {
            self.running = Some(running);
            return Ok(());
        }
        let outcome = tracer.finish(running.work)?;
        // A file is saved once, and facts belong to the session's model.
        let compared = matches!(&running.statement, Statement::Trace(t) if t.save.is_none());
        if running.on_other {
            if let Outcome::Trace(view) = outcome {
                self.beside = Some(Arc::from(view));
            }
            return Ok(());
        }
        // Shown before the other model's, which may fail.
        self.take(outcome);
        if let Some(other) = self.other.as_mut().filter(|_| compared) {
            let work = other.begin(config, &running.statement)?;
            self.running = Some(Running {
                statement: running.statement,
                work,
                on_other: true,
            });
        }
        Ok(())
    }

    fn take(&mut self, outcome: Outcome) {
        self.number += 1;
        self.following = false;
        match outcome {
            Outcome::Trace(view) => self.shown = Some(Arc::from(view)),
            Outcome::Map(map) => self.map = Some(Arc::from(map)),
            Outcome::Lines(lines) => self.lines = lines,
        }
    }
}

impl Session {
    /// Whether a statement waits or runs.
    pub fn is_tracing(&self) -> bool {
        self.tracing.is_busy()
    }

    /// Queues statements; an error of the language is a message.
    pub(super) fn trace(&mut self, source: &str) {
        match lang::parse(source) {
            Ok(statements) if statements.is_empty() => {
                self.complain(
                    "no statement; for example TRACE \"The capital of France is\" FOR \"Paris\"",
                );
            }
            Ok(statements) => {
                let statements: Vec<_> = statements.into_iter().map(|s| s.value).collect();
                let n_layers = self.loaded.model.hparams.n_layers as u32;
                match statements
                    .iter()
                    .try_for_each(|s| check_layers(s, n_layers))
                {
                    Ok(()) => {
                        self.tracing.used = true;
                        self.tracing.queue.extend(statements);
                    }
                    Err(e) => self.complain(e.to_string()),
                }
            }
            Err(e) => {
                let help = e.help.as_ref().map(|h| format!("; {h}"));
                self.complain(format!("{}{}", e.message, help.unwrap_or_default()));
            }
        }
    }

    /// Does a piece of a trace. Tokens wait, and no figure is to count that.
    pub(super) fn trace_piece(&mut self) {
        self.faults.interrupt();
        self.profile.interrupt();
        if let Err(e) = self.tracing.piece(&self.options.config) {
            self.tracing.running = None;
            self.complain(e.to_string());
        }
        self.follow_if_still();
        let facts = self.tracing.facts().cloned();
        let same = match (&facts, self.engine.edits()) {
            (Some(new), Some(old)) => Arc::ptr_eq(new, old),
            (new, old) => new.is_none() && old.is_none(),
        };
        if !same {
            // A token runs under one set of facts.
            self.leave_token();
            self.engine.set_edits(facts);
            self.note("facts have changed: they hold from the next token on; restart to read the prompt with them");
        }
    }

    /// Ends the statement that runs, and those that wait.
    pub(super) fn stop_tracing(&mut self) {
        if self.is_tracing() {
            let half = self.tracing.filling();
            if half.is_some() {
                self.tracing.map = half;
                self.tracing.number += 1;
            }
            self.tracing.queue.clear();
            self.tracing.running = None;
            self.note("the statement was stopped");
        }
    }

    /// Captures only while a generation is followed.
    fn follow_if_still(&mut self) {
        if let Err(e) = self.equip_engine() {
            self.complain(e.to_string());
        }
    }

    /// Keeps the trace shown beside the next ones, or no longer.
    pub(super) fn keep_trace(&mut self) {
        self.tracing.used = true;
        if self.tracing.beside.take().is_some() {
            self.note("nothing is kept beside the trace any more");
        } else if let Some(shown) = &self.tracing.shown {
            self.tracing.beside = Some(Arc::clone(shown));
            self.note("kept: the next trace is shown beside this one");
        } else {
            self.note("there is no trace to keep yet");
        }
    }

    /// Traces generated tokens as they come, or no longer.
    pub(super) fn follow(&mut self, on: bool) {
        self.tracing.used = true;
        self.leave_token();
        let before = std::mem::replace(&mut self.tracing.following, on);
        if let Err(e) = self.equip_engine() {
            self.tracing.following = before;
            self.complain(e.to_string());
            return;
        }
        if on {
            self.tracing.number += 1;
            self.tracing.shown = Some(Arc::new(self.followed()));
            self.note("tokens are traced as they come; every one is read through the head at every layer, so they take longer");
        }
    }

    /// A trace of the running text that has no position yet.
    fn followed(&self) -> TraceView {
        let ids = self.prompt_ids.iter().chain(self.history());
        let hp = &self.loaded.model.hparams;
        TraceView {
            model: self.loaded.name(),
            prompt: self.options.prompt.clone(),
            tokens: ids
                .map(|id| answer::text(&self.loaded.tokenizer, *id))
                .collect(),
            n_layers: hp.n_layers as u32,
            hidden_size: hp.n_embd as u32,
            after_attention: false,
            answers: Vec::new(),
            positions: Vec::new(),
            edits: Vec::new(),
            facts: 0,
            notes: Vec::new(),
        }
    }

    /// Where a generation is followed: reads the step that has just ended, whose token is chosen.
    pub(super) fn follow_step(&mut self) {
        if !self.tracing.following {
            return;
        }
        match self.read_step() {
            Ok(()) => {}
            Err(e) => {
                self.tracing.following = false;
                self.follow_if_still();
                self.complain(e.to_string());
            }
        }
    }

    fn read_step(&mut self) -> Result<(), TraceError> {
        let position = self.engine.past() - 1;
        let model = Arc::clone(&self.loaded.model);
        let mut stream = Stream::new(&model, position..position + 1, false)?;
        self.engine.captured(&mut |c| stream.take(&c));
        let read = Reading {
            stream: &stream,
            ids: &[],
            top: TOP as usize,
            after_attention: false,
        };
        let tokenizer = Arc::clone(&self.loaded.tokenizer);
        let trace = read.position(&mut self.engine, &tokenizer, position)?;
        let shown = self.tracing.shown.take().map(Arc::unwrap_or_clone);
        let here = self.prompt_ids.len() + self.history().len();
        let mut view = match shown {
            // One token more, or none: the others' texts are there.
            Some(mut shown) if shown.tokens.len() <= here && here - shown.tokens.len() <= 1 => {
                let new = self.history().last().filter(|_| shown.tokens.len() < here);
                shown
                    .tokens
                    .extend(new.map(|id| answer::text(&tokenizer, *id)));
                shown
            }
            _ => self.followed(),
        };
        // After a restart positions begin again.
        view.positions.retain(|p| (p.position as usize) < position);
        let over = (view.positions.len() + 1).saturating_sub(FOLLOWED);
        view.positions.drain(..over);
        view.positions.push(trace);
        self.tracing.shown = Some(Arc::new(view));
        Ok(())
    }
}
