//! Another setup for a running session: a second engine beside the one in use, and turning over to it between two tokens.

#[cfg(test)]
mod tests;

use super::load::Loaded;
use super::run::{Options, Session};
use super::snapshot::KernelInfo;
use crate::engine::cpu::binding;
use crate::engine::cpu::kv::bytes_per_token;
use crate::engine::knobs::Setup;
use crate::engine::{Config, Engine, SyncMode};
use crate::gguf::{LoadMethod, LoadOptions};
use crate::model::Model;
use crate::profiler::probe;
use crate::profiler::{Clock, StepRecorder, os};
use crate::session::Source;
use std::sync::Arc;

/// Bytes that stay free when something is put beside what runs.
const SPARE: u64 = 64 << 20;

/// An engine that is not in use, with what belongs to it.
pub(super) struct Rival {
    engine: Engine<StepRecorder>,
    config: Config,
    sync_mode: SyncMode,
    loaded: Loaded,
    kernels: Arc<Vec<KernelInfo>>,
}

impl Rival {
    /// Tokens in its cache, and those evicted from it.
    pub fn past(&self) -> usize {
        self.engine.past()
    }

    /// A run begins.
    pub fn start_run(&mut self) {
        self.engine.truncate(0);
    }
}

/// An engine with a recorder for it.
///
/// # Errors
/// The engine's, in one line.
pub(super) fn build_engine(
    model: &Arc<Model>,
    config: &Config,
    sync_mode: SyncMode,
    clock: Clock,
) -> Result<Engine<StepRecorder>, crate::engine::EngineError> {
    // One call more than the plan's bricks: sampling.
    let mut recorder = StepRecorder::new(clock, model.plan.bricks.len() + 1);
    recorder.set_mode(sync_mode);
    Engine::new(Arc::clone(model), config.clone(), recorder)
}

/// The same file brought into memory in another way.
///
/// # Errors
/// Why it could not be, in one line; the file may have changed meanwhile.
fn reload(loaded: &Loaded, how: LoadOptions) -> Result<Loaded, String> {
    if loaded.source == Source::Demo {
        return Err("the demo is part of the program: it is in memory already".into());
    }
    let again = Loaded::open_with(loaded.source.clone(), Some(how)).map_err(|e| e.to_string())?;
    let (old, new) = (loaded.model.gguf(), again.model.gguf());
    if old.tensors() != new.tensors() || old.file_bytes() != new.file_bytes() {
        return Err(format!(
            "{} is not the file it was when it was opened; start cbtop again to run the new one",
            loaded.source
        ));
    }
    if again.outcome.options != how {
        let why = again.outcome.notes.join("; ");
        return Err(format!("the weights cannot be loaded that way: {why}"));
    }
    Ok(again)
}

/// Whether `bytes` more fit into memory.
fn check_memory(bytes: u64, what: &str) -> Result<(), String> {
    let Some(free) = os::memory_available_bytes() else {
        return Ok(());
    };
    if bytes.saturating_add(SPARE) <= free {
        return Ok(());
    }
    let mb = |b: u64| b as f64 * 1e-6;
    Err(format!(
        "{what} needs {:.0} MB beside what runs, and {:.0} MB are free; use a smaller context (--ctx), or set it at the start",
        mb(bytes),
        mb(free)
    ))
}

impl Session {
    /// All that is set about how the model runs.
    pub fn setup(&self) -> Setup {
        setup_of(&self.options, &self.loaded)
    }

    /// An engine with another setup beside the one in use, with an empty cache.
    ///
    /// # Errors
    /// Why there is none, in one line; nothing has changed then.
    pub(super) fn rival(&self, setup: &Setup) -> Result<Rival, String> {
        let reloads = setup.load != self.loaded.outcome.options;
        let c = &setup.config;
        let hp = &self.loaded.model.hparams;
        c.check_heads(hp).map_err(|e| e.to_string())?;
        let slots = (c.n_ctx as u64).saturating_mul(c.n_seq as u64);
        let cache = bytes_per_token(hp, c.kv_type).saturating_mul(slots);
        // A mapping shares the pages of the file.
        let weights = if reloads && setup.load.method != LoadMethod::Mmap {
            self.loaded.model.gguf().file_bytes()
        } else {
            0
        };
        let what = if weights > 0 {
            "a second copy of the weights"
        } else {
            "a second cache"
        };
        check_memory(cache.saturating_add(weights), what)?;
        let loaded = if reloads {
            reload(&self.loaded, setup.load)?
        } else {
            self.loaded.clone()
        };
        let engine = build_engine(&loaded.model, c, setup.sync_mode, self.options.clock)
            .map_err(|e| e.to_string())?;
        Ok(Rival {
            kernels: Arc::new(super::publish::kernels(&engine)),
            engine,
            config: c.clone(),
            sync_mode: setup.sync_mode,
            loaded,
        })
    }

    /// Exchanges the engine in use for `rival`, which first reads what it has missed of the text. On an error the engine
    /// in use stays.
    ///
    /// # Errors
    /// The engine's, in one line.
    pub(super) fn exchange(&mut self, rival: &mut Rival) -> Result<(), String> {
        self.leave_token();
        self.faults.interrupt();
        self.profile.interrupt();
        self.catch_up(rival).map_err(|e| e.to_string())?;
        let capture = self.engine.capture();
        self.tracer.engine_changed();
        if let Err(e) = self.tracer.equip(&mut rival.engine, capture) {
            // What was equipped before still is; the tracer looks at it again.
            self.tracer.engine_changed();
            self.equip_engine().map_err(|e| e.to_string())?;
            return Err(e.to_string());
        }
        self.swap(rival);
        Ok(())
    }

    /// Exchanges engines as they are: for one that has failed, or where both are empty.
    pub(super) fn swap(&mut self, rival: &mut Rival) {
        std::mem::swap(&mut self.engine, &mut rival.engine);
        std::mem::swap(&mut self.options.config, &mut rival.config);
        std::mem::swap(&mut self.options.sync_mode, &mut rival.sync_mode);
        std::mem::swap(&mut self.loaded, &mut rival.loaded);
        std::mem::swap(&mut self.kernels, &mut rival.kernels);
        if let Some(counters) = &mut self.counters {
            counters.engine_changed();
        }
        self.machine = Arc::new(super::publish::machine_info(&self.options));
    }

    fn catch_up(&self, rival: &mut Rival) -> Result<(), crate::engine::EngineError> {
        let (new, old) = (&mut rival.engine, &self.engine);
        let same = match (new.edits(), old.edits()) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        if !same {
            // Facts are in force for all of the text.
            new.truncate(0);
            new.set_edits(old.edits().cloned());
        }
        // Attention to the text so far is recorded as it is read.
        new.set_probe(old.probe().cloned())?;
        if new.past() > old.past() {
            new.truncate(0);
        }
        // The token to decode next is in no cache yet.
        let missed: Vec<u32> = self
            .prompt_ids
            .iter()
            .chain(self.history())
            .copied()
            .take(old.past())
            .skip(new.past())
            .collect();
        if missed.is_empty() {
            return Ok(());
        }
        new.prefill(&missed)
    }

    /// Replaces the engine by one of another setup, which reads the text so far again.
    ///
    /// # Errors
    /// Why it could not be, in one line; the engine is then what it was.
    pub(super) fn rebuild(&mut self, setup: &Setup) -> Result<(), String> {
        self.leave_token();
        let now = self.setup();
        let only_sync = Setup {
            sync_mode: setup.sync_mode,
            ..now.clone()
        };
        if *setup == only_sync && *setup != now {
            self.options.sync_mode = setup.sync_mode;
            self.engine.observer_mut().set_mode(setup.sync_mode);
            return Ok(());
        }
        let mut rival = self.rival(setup)?;
        self.exchange(&mut rival)?;
        drop(rival);
        self.forget_measurement();
        self.settle_in();
        Ok(())
    }

    /// The engine in use is to stay: what is known of the machine and held of the model is made to fit it.
    pub(super) fn settle_in(&mut self) {
        if !self.peaks.is_empty() && !self.options.clock.is_modelled() {
            // Threads of the probe inherit where this one may run.
            binding::unbind();
            let c = &self.options.config;
            probe::in_use(&mut self.peaks, c.kernels, c.threads);
        }
        // A copy that nobody holds any more gives its memory back.
        self.tracer.reloaded(&self.loaded.model);
        self.tracing.reloaded(&self.loaded);
    }
}

/// All that is set in `options` and about how a model was loaded.
pub(super) fn setup_of(options: &Options, loaded: &Loaded) -> Setup {
    Setup {
        config: options.config.clone(),
        load: loaded.outcome.options,
        sync_mode: options.sync_mode,
    }
}
