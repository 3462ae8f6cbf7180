//! The five tracers of a session: what they leave after every step, switching them, and measuring the error of the whole
//! model on a thread beside the run.

use super::load::Loaded;
use super::run::{Options, Session, timed};
use crate::engine::capture::Capture;
use crate::engine::{Config, EngineError};
use crate::tracer::export::TracerExport;
use crate::tracer::figures::{ModelQuantisationError, TracerFrame, TracerKind, TracerSet};
use crate::tracer::quantisation::{Baseline, QuantisationError, measure};
use crate::tracer::{ModelTracer, ModelTracerConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

/// Tokens of the text, from its start, that the error of the whole model is measured on: the scalar reference takes a few
/// seconds for them.
const MEASURED: usize = 64;

/// The tracers of a session's model.
pub(super) fn model_tracer(
    loaded: &Loaded,
    options: &Options,
) -> Result<ModelTracer, QuantisationError> {
    let reference = options.reference.as_ref().map(baseline);
    let config: ModelTracerConfig = options.tracers.clone();
    ModelTracer::new(
        &loaded.model,
        &loaded.tokenizer,
        &loaded.name(),
        reference,
        config,
    )
}

fn baseline(loaded: &Loaded) -> Baseline {
    Baseline {
        model: Arc::clone(&loaded.model),
        name: loaded.name(),
    }
}

type Measured = Result<ModelQuantisationError, QuantisationError>;

/// A measurement on a thread of its own.
struct Running {
    thread: JoinHandle<Measured>,
    shared: Arc<Shared>,
}

impl Running {
    fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }
}

/// What the thread is told and tells.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    done: AtomicU32,
    all: AtomicU32,
}

/// The error of the whole model, measured or being measured.
#[derive(Default)]
pub(super) struct Measurement {
    running: Option<Running>,
    found: Option<ModelQuantisationError>,
    error: Option<String>,
}

impl Measurement {
    fn start(
        &mut self,
        loaded: &Loaded,
        reference: Option<Baseline>,
        ids: Vec<u32>,
        config: Config,
    ) -> std::io::Result<()> {
        let shared = Arc::new(Shared::default());
        let (model, told) = (Arc::clone(&loaded.model), Arc::clone(&shared));
        let thread = std::thread::Builder::new()
            .name("cbtop-quant-error".into())
            .spawn(move || {
                measure(
                    &model,
                    reference.as_ref(),
                    &ids,
                    &config,
                    &mut |done, all| {
                        told.done.store(done, Ordering::Relaxed);
                        told.all.store(all, Ordering::Relaxed);
                        !told.stop.load(Ordering::Relaxed)
                    },
                )
            })?;
        self.error = None;
        self.running = Some(Running { thread, shared });
        Ok(())
    }

    /// It ends behind the brick that it is at.
    fn stop(&mut self) {
        if let Some(running) = &self.running {
            running.shared.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Takes the result in, if it is there, or waits for it.
    fn collect(&mut self, wait: bool) {
        let is_done = |r: &mut Running| wait || r.thread.is_finished();
        let Some(running) = self.running.take_if(is_done) else {
            return;
        };
        let stopped = running.is_stopped();
        match running.thread.join() {
            _ if stopped => {}
            Ok(Ok(found)) => self.found = Some(found),
            Ok(Err(e)) => self.error = Some(e.to_string()),
            Err(_) => self.error = Some("the measurement failed".into()),
        }
    }

    fn clear(&mut self) {
        self.stop();
        (self.found, self.error) = (None, None);
    }

    fn progress(&self) -> Option<(u32, u32)> {
        let shared = &self.running.as_ref().filter(|r| !r.is_stopped())?.shared;
        let read = |n: &AtomicU32| n.load(Ordering::Relaxed);
        Some((read(&shared.done), read(&shared.all)))
    }
}

impl Drop for Measurement {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Session {
    /// Switches a tracer on or off.
    pub(super) fn switch_tracer(&mut self, kind: TracerKind, on: bool) {
        self.leave_token();
        let mut set = self.tracer.on();
        set.set(kind, on);
        self.tracer.switch(set);
        if kind == TracerKind::Quantisation && !on {
            self.measurement.clear();
        }
        if let Err(e) = self.equip_engine() {
            self.complain(e.to_string());
            set.set(kind, false);
            self.tracer.switch(set);
            // What was on before goes on.
            if let Err(e) = self.equip_engine() {
                self.complain(e.to_string());
            }
        }
        // What tokens take is another thing with it than without.
        self.profile.interrupt();
    }

    /// Tells the engine what tracers, and whoever follows tokens, want of its steps.
    pub(super) fn equip_engine(&mut self) -> Result<(), EngineError> {
        let following = self.tracing.is_following().then_some(Capture::LAST);
        self.tracer.equip(&mut self.engine, following)
    }

    /// Chooses the head that is shown over time.
    pub(super) fn focus_head(&mut self, layer: u32, head: u32) {
        self.tracer.focus(layer, head);
    }

    /// Measures the error of the whole model, or stops.
    pub(super) fn measure_error(&mut self, on: bool) {
        if !on {
            if self.measurement.progress().is_some() {
                self.measurement.stop();
                self.note("the measurement was stopped");
            }
            return;
        }
        if !self.tracer.on().quantisation {
            self.complain("the quantisation tracer is off; switch it on first");
            return;
        }
        self.measurement.collect(false);
        match &self.measurement.running {
            Some(running) if running.is_stopped() => {
                self.complain("the measurement that was stopped has not ended yet; try again");
                return;
            }
            Some(_) => return,
            None => {}
        }
        let most = MEASURED.min(self.options.config.n_ctx);
        let ids: Vec<u32> = self.text_ids().take(most).collect();
        let reference = self.options.reference.as_ref().map(baseline);
        let config = self.options.config.clone();
        if let Err(e) = self.measurement.start(&self.loaded, reference, ids, config) {
            self.complain(format!("starting a thread for the measurement: {e}"));
        }
    }

    /// Whether the error of the whole model is being measured.
    pub(super) fn is_measuring(&self) -> bool {
        self.measurement.running.is_some()
    }

    /// The text so far by position: prompt, then what was generated.
    fn text_ids(&self) -> impl Iterator<Item = u32> {
        self.prompt_ids.iter().chain(self.history()).copied()
    }

    /// Hands the step that has just ended to the tracers.
    pub(super) fn trace_step(&mut self, chosen: Option<u32>) -> Result<(), EngineError> {
        if !self.tracer.on().any() {
            return Ok(());
        }
        let (tracer, engine) = (&mut self.tracer, &mut self.engine);
        let sampler = self.options.sampler;
        timed(&mut self.host, self.options.clock, "tracers", || {
            tracer.step_done(engine, &sampler, chosen)
        })
    }

    /// What tracers have found; `None` while none is on.
    pub(super) fn tracer_frame(&mut self) -> Option<Arc<TracerFrame>> {
        // Whatever is on: one that was stopped has to come to its end.
        self.measurement.collect(false);
        if !self.tracer.on().any() {
            return None;
        }
        let mut frame = self.tracer.frame(&self.engine, &mut self.text_ids());
        if let Some(view) = &mut frame.quantisation {
            let view = Arc::make_mut(view);
            view.model = self.measurement.found.clone();
            view.progress = self.measurement.progress();
            view.error = self.measurement.error.clone();
        }
        Some(Arc::new(frame))
    }

    /// A run begins: what was found belongs to the one before, but for errors of products, which are of the model.
    pub(super) fn tracers_start_run(&mut self) {
        self.tracer.start_run();
    }

    /// There is another text, or another engine.
    pub(super) fn forget_measurement(&mut self) {
        self.measurement.clear();
    }

    /// Completes what tracers only do on request: measures the error of the whole model where products are traced.
    ///
    /// # Errors
    /// Why it could not be measured.
    pub fn finish_tracers(&mut self) -> Result<(), String> {
        if self.tracer.on().quantisation {
            if self.measurement.progress().is_none() {
                // One that was stopped is waited for.
                self.measurement.collect(true);
                if self.measurement.found.is_none() {
                    self.measure_error(true);
                }
            }
            self.measurement.collect(true);
        }
        self.measurement.error.clone().map_or(Ok(()), Err)
    }

    /// Everything that tracers have kept.
    pub fn tracer_export(&self) -> TracerExport {
        self.tracer
            .export(&self.engine, self.measurement.found.clone())
    }

    /// Which tracers are on.
    pub fn tracers(&self) -> TracerSet {
        self.tracer.on()
    }
}
