//! The tuner beside a session: a thread with the models and the store. The session tells it of the moment now and then and
//! takes what it has to say when it is there; no token waits for it.

mod predict;

use super::load::Loaded;
use super::measure::Finished;
use super::run::{Options, Session};
use super::snapshot::{PeakKind, Snapshot, TunerFrame};
use crate::engine::knobs::Setup;
use crate::gguf::GgmlType;
use crate::model::Model;
use crate::tuner::ab::Outcome;
use crate::tuner::collect::BACKEND;
use crate::tuner::describe;
use crate::tuner::fingerprint::this_machine;
use crate::tuner::learn::logistic;
use crate::tuner::measure::time_shares;
use crate::tuner::recommendation::LimitFrame;
use crate::tuner::rules::Advice;
use crate::tuner::run::{Hardware, Origin, Run, Subject, Test, TimeShares, Trial};
use crate::tuner::store::{Store, StoreError};
use crate::tuner::suggest::{self, Grounds, Moment};
use crate::tuner::telemetry;
use predict::Predictor;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Tokens of a test of generation that stands for a running session.
const GENERATED: u32 = 64;
/// Least time between two questions while nothing but figures changes.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// Results whose interval is wider than this on either side, in logarithms, say nothing.
const MOST_HALF_WIDTH: f64 = 0.15;
/// Longest wait for an answer where one was asked to wait for it.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a tuner works with.
#[derive(Debug, Clone, Default)]
pub struct TunerOptions {
    /// Where runs are kept; `None`: nothing is read or kept.
    pub store: Option<PathBuf>,
    /// Models fitted to this machine; those of the program where there is no such file.
    pub model: Option<PathBuf>,
    /// Where what is measured is written without what could name anybody; `None`: nowhere.
    pub telemetry: Option<PathBuf>,
}

/// What the thread is told.
enum Told {
    Moment(Box<Question>),
    Feedback(Box<[Run; 2]>),
}

/// The moment of a session.
struct Question {
    decode: Trial,
    prefill: Trial,
    tok_s: Option<f64>,
    setup: Setup,
    explicit: BTreeSet<&'static str>,
    model: Arc<Model>,
    types: Arc<[GgmlType]>,
    prompt_tokens: usize,
}

/// What is said of it.
struct Answer {
    setup: Setup,
    frame: TunerFrame,
    suggestions: Vec<Advice>,
}

/// The session's side of the thread.
pub(super) struct Tuner {
    /// Gone when the session ends: the thread then ends too.
    tell: Option<Sender<Told>>,
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
    latest: Option<Answer>,
    /// When the last question was asked, and about which setup.
    asked: Option<(Instant, Setup)>,
    waiting: bool,
    /// What limited a token when it was looked at last.
    limit: Option<LimitFrame>,
    /// The thread has ended by itself.
    is_gone: bool,
    /// What runs; its settings are those of the beginning.
    subject: Arc<Subject>,
    types: Arc<[GgmlType]>,
}

impl Tuner {
    /// Starts the thread, which opens the store and the models by itself.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(
        options: TunerOptions,
        loaded: &Loaded,
        subject: Arc<Subject>,
    ) -> Result<Self, super::run::SessionError> {
        let (tell, told) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        let machine = subject.hardware.fingerprint.clone();
        let thread = std::thread::Builder::new()
            .name("cbtop-tuner".into())
            .spawn(move || Thread::new(&options, machine).run(&told, &answer))
            .map_err(super::run::SessionError::Tuner)?;
        Ok(Self {
            tell: Some(tell),
            answers,
            thread: Some(thread),
            latest: None,
            asked: None,
            waiting: false,
            limit: None,
            is_gone: false,
            subject,
            types: describe::matrix_types(&loaded.model).into(),
        })
    }

    /// Suggestions for a setup; `None` while the newest answer is about another one.
    pub fn suggestions(&self, setup: &Setup) -> Option<Vec<Advice>> {
        let latest = self.latest.as_ref().filter(|a| a.setup == *setup)?;
        Some(latest.suggestions.clone())
    }

    fn take(&mut self, answer: Answer) {
        self.waiting = false;
        self.latest = Some(answer);
    }

    fn collect(&mut self) {
        let end = loop {
            match self.answers.try_recv() {
                Ok(answer) => self.take(answer),
                Err(end) => break end,
            }
        };
        if end == TryRecvError::Disconnected {
            (self.is_gone, self.waiting) = (true, false);
        }
    }

    /// Waits for an answer, for a time.
    fn wait(&mut self) {
        if let Ok(answer) = self.answers.recv_timeout(PATIENCE) {
            self.take(answer);
        }
    }

    /// Whether there is reason to ask: a setup that was not asked about, or, while tokens flow, figures some time later.
    fn is_due(&self, setup: &Setup, idle: bool) -> bool {
        let Some((at, about)) = &self.asked else {
            return true;
        };
        !self.is_gone && !self.waiting && (about != setup || !idle && at.elapsed() >= ASK_EVERY)
    }

    fn ask(&mut self, question: Question) {
        self.asked = Some((Instant::now(), question.setup.clone()));
        self.waiting = true;
        self.tell(Told::Moment(Box::new(question)));
    }

    fn tell(&self, told: Told) {
        if let Some(tell) = &self.tell {
            // A thread that is gone has nothing more to say.
            let _ = tell.send(told);
        }
    }

    fn trial(&self, setup: &Setup, test: Test) -> Trial {
        Trial {
            settings: setup.settings(),
            ..self.subject.trial(test)
        }
    }
}

impl Drop for Tuner {
    fn drop(&mut self) {
        self.tell = None;
        if let Some(thread) = self.thread.take() {
            // What was told last is to be kept; a panic there is not one here.
            let _ = thread.join();
        }
    }
}

/// What a session runs and on what.
pub(super) fn subject(loaded: &Loaded, options: &Options) -> Subject {
    Subject {
        hardware: hardware(options),
        model: describe::model_shape(&loaded.model, &loaded.name()),
        backend: BACKEND.into(),
        settings: Vec::new(),
    }
}

/// This machine, with the peaks that were probed.
fn hardware(options: &Options) -> Hardware {
    let most = |kind: PeakKind| {
        let of = options.peaks.iter().filter(|p| p.kind == kind);
        of.map(|p| p.value).reduce(f64::max)
    };
    let bandwidth = options.bandwidth.iter().map(|b| b.gbps).reduce(f64::max);
    this_machine(bandwidth, most(PeakKind::Fp32), most(PeakKind::Int8))
}

impl Session {
    /// Tells the tuner of the moment, if it is time to, and takes what it has said since.
    pub(super) fn ask_tuner(&mut self, s: &Snapshot) {
        let (racing, idle) = (self.advice.measuring.is_some(), self.is_idle());
        let tok_s = s.rates.decode_mean_tok_s;
        let setup = self.setup();
        let roof = self.roof();
        let Some(tuner) = &mut self.tuner else { return };
        tuner.limit = time_shares(&s.bricks, roof).and_then(|shares| limit(&shares));
        tuner.collect();
        // While two setups take turns there is no moment to speak of.
        if !racing && tok_s.is_some() && tuner.is_due(&setup, idle) {
            self.put_question(setup, tok_s);
        }
    }

    fn put_question(&mut self, setup: Setup, tok_s: Option<f64>) {
        let depth = self.engine.past() as u32;
        let prompt = self.prompt_ids.len() as u32;
        let Some(tuner) = &mut self.tuner else { return };
        let depth = depth.saturating_sub(GENERATED / 2);
        let decode = tuner.trial(&setup, Test::of_generation(GENERATED, depth));
        let prefill = tuner.trial(&setup, Test::of_prompt(prompt.max(1)));
        tuner.ask(Question {
            decode,
            prefill,
            tok_s,
            setup,
            explicit: self.options.explicit.clone(),
            model: Arc::clone(&self.loaded.model),
            types: Arc::clone(&tuner.types),
            prompt_tokens: self.prompt_ids.len(),
        });
    }

    /// Whether an answer is on its way, to be shown when it is there.
    pub(super) fn awaits_tuner(&self) -> bool {
        self.tuner.as_ref().is_some_and(|t| t.waiting)
    }

    /// What the tuner says, with what the session does at the moment.
    pub(super) fn tuner_frame(&self) -> Option<Arc<TunerFrame>> {
        let tuner = self.tuner.as_ref()?;
        let (race, bandit) = (&self.advice.race, &self.bandit);
        if tuner.latest.is_none() && race.is_none() && bandit.is_none() {
            return None;
        }
        let mut frame = tuner
            .latest
            .as_ref()
            .map_or_else(TunerFrame::default, |a| a.frame.clone());
        if tuner
            .latest
            .as_ref()
            .is_some_and(|a| a.setup != self.setup())
        {
            // Figures of another setup; the answer about this one is on its way.
            (frame.current_tok_s, frame.predicted) = (None, None);
        } else if frame.current_tok_s.is_some() && race.is_none() {
            // What gains are told of is the rate of this moment, as everywhere else.
            frame.current_tok_s = self.rates.rates().decode_mean_tok_s.or(frame.current_tok_s);
        }
        if tuner.is_gone {
            frame
                .warnings
                .push("the tuner has stopped; start cbtop again to have its predictions".into());
        }
        frame.limit.clone_from(&tuner.limit);
        frame.race = race.as_ref().map(super::race::Race::frame);
        frame.bandit = bandit.as_ref().map(super::bandit::KernelBandit::frame);
        if tuner.latest.is_some() && race.is_none() {
            frame.with_changes = suggest::with_all(self.recommendations(), frame.current_tok_s);
            frame.says = suggest::verdict(self.recommendations(), frame.current_tok_s);
        }
        Some(Arc::new(frame))
    }

    /// Waits for what the tuner says of the moment: for a report, never between tokens. Without a tuner it does nothing.
    pub fn await_tuner(&mut self) {
        let setup = self.setup();
        let tok_s = self.rates.rates().decode_mean_tok_s;
        let Some(tuner) = self.tuner.as_mut().filter(|_| tok_s.is_some()) else {
            return;
        };
        if tuner.waiting {
            // An older question: its answer is not that of this moment.
            tuner.wait();
        }
        self.put_question(setup, tok_s);
        if let Some(tuner) = &mut self.tuner {
            tuner.wait();
        }
    }

    /// Has a measured change kept for the future. What the machine was too busy to tell is forgotten: it would hide the
    /// change from the next session.
    pub(super) fn keep_feedback(&self, finished: Finished) {
        let Some(tuner) = &self.tuner else { return };
        if finished.outcome.half_width() > MOST_HALF_WIDTH {
            return;
        }
        let Outcome {
            before_tok_s,
            after_tok_s,
            counted,
            ..
        } = finished.outcome;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok();
        let unix_s = now.and_then(|d| i64::try_from(d.as_secs()).ok());
        // The two sides of a comparison belong together, and several may end in one second.
        let ms = now.map_or(0, |d| d.as_millis());
        let source = format!("{}, comparison {ms}", super::GENERATOR);
        let test = match finished.prompt {
            Some(prompt) => Test::of_prompt(prompt),
            None => Test::of_generation(counted as u32, finished.depth),
        };
        let run = |setup: &Setup, tok_s: f64| Run {
            trial: tuner.trial(setup, test),
            origin: Origin::Feedback,
            source: source.clone(),
            unix_s,
            tok_s,
            stddev: None,
            repetitions: (counted / 2).max(1) as u32,
            warm: Some(true),
            background: None,
            shares: None,
        };
        tuner.tell(Told::Feedback(Box::new([
            run(&finished.before, before_tok_s),
            run(&finished.after, after_tok_s),
        ])));
    }
}

/// The class with most of the time.
fn limit(shares: &TimeShares) -> Option<LimitFrame> {
    let at = logistic::label(shares)?;
    Some(LimitFrame {
        class: logistic::CLASSES[at].into(),
        share: shares.of_classes()[at],
    })
}

/// Keeps runs in a store, which is opened or made if it is not open yet.
fn insert(store: &mut Option<Store>, path: &Path, runs: &[Run]) -> Result<(), StoreError> {
    let open = match store.take() {
        Some(open) => open,
        None => Store::open(path)?,
    };
    store.insert(open).insert_all(runs)?;
    Ok(())
}

/// What the thread holds.
struct Thread {
    predictor: Predictor,
    /// Where runs are kept; `None` where they are not.
    path: Option<PathBuf>,
    telemetry: Option<PathBuf>,
    store: Option<Store>,
    /// Runs of this machine.
    runs: Vec<Run>,
    /// Why no runs are kept or read.
    storeless: Option<String>,
    /// What went wrong with the newest result.
    troubles: Vec<String>,
}

impl Thread {
    fn new(options: &TunerOptions, machine: String) -> Self {
        let mut storeless = None;
        // A store is made when there is something to keep.
        let there = options.store.as_ref().filter(|p| p.exists());
        let (mut path, mut store, mut runs) = (options.store.clone(), None, Vec::new());
        match there.map(|p| Store::open(p).and_then(|store| Ok((store.runs()?, store)))) {
            None => {}
            Some(Ok((found, open))) => {
                (store, runs) = (Some(open), found);
                runs.retain(|r| r.trial.hardware.fingerprint == machine);
            }
            Some(Err(e)) => {
                storeless = Some(format!("no runs are kept or read: {e}"));
                path = None;
            }
        }
        Self {
            predictor: Predictor::open(options.model.as_deref(), &machine, &runs),
            path,
            telemetry: options.telemetry.clone(),
            store,
            runs,
            storeless,
            troubles: Vec::new(),
        }
    }

    fn run(mut self, told: &Receiver<Told>, answers: &Sender<Answer>) {
        while let Ok(told) = told.recv() {
            match told {
                Told::Moment(question) => {
                    if answers.send(self.answer(*question)).is_err() {
                        return;
                    }
                }
                Told::Feedback(runs) => self.keep(*runs),
            }
        }
    }

    fn keep(&mut self, runs: [Run; 2]) {
        self.troubles.clear();
        if let Some(path) = &self.path
            && let Err(e) = insert(&mut self.store, path, &runs)
        {
            self.troubles.push(format!("the result was not kept: {e}"));
        }
        if let Some(path) = &self.telemetry
            && let Err(e) = runs.iter().try_for_each(|run| telemetry::append(path, run))
        {
            self.troubles
                .push(format!("{} cannot be written: {e}", path.display()));
            self.telemetry = None;
        }
        // What this session found counts in it, kept or not.
        runs.iter().for_each(|run| self.predictor.observe(run));
        self.runs.extend(runs);
    }

    fn answer(&self, q: Question) -> Answer {
        let mut frame = self.predictor.frame(&q.decode, q.tok_s);
        frame.current_tok_s = q.tok_s;
        frame
            .warnings
            .extend(self.storeless.iter().chain(&self.troubles).cloned());
        let around = describe::around(&q.model, &q.types, q.prompt_tokens);
        let moment = Moment {
            decode: &q.decode,
            prefill: &q.prefill,
            tok_s: q.tok_s,
            setup: &q.setup,
            around: &around,
            explicit: &q.explicit,
        };
        let grounds = Grounds {
            predict: &|trial| self.predictor.rate(trial),
            ratio_error: &|knob| self.predictor.ratio_error(knob),
            runs: &self.runs,
            lesson: &predict::lesson,
        };
        let suggestions = suggest::suggest(&moment, &grounds);
        Answer {
            setup: q.setup,
            frame,
            suggestions,
        }
    }
}
