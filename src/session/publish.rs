//! Turns a session into the snapshot that front ends read.

use super::load::{Loaded, Source};
use super::run::{Options, SeenStep, Session, timed};
use super::snapshot::{
    BrickRow, Counters, EngineInfo, MachineInfo, MemoryInfo, ModelInfo, Phases, Profiling,
    Roofline, Snapshot, StepTrace, Subject, TokenTime,
};
use crate::engine::cpu::KernelSet;
use crate::engine::cpu::kernel_use::KernelUse;
use crate::engine::{Engine, StepKind, SyncMode};
use crate::model::{Brick, quantisation_name, weight_bytes_per_token};
use crate::profiler::critical::{Roof, critical_path};
use crate::profiler::graph::{fill_slack, fnv1a_64, threads_critical_path};
use crate::profiler::roofline::{int8_bricks, roofline};
use crate::profiler::{StepRecorder, os};
use crate::session::snapshot::KernelInfo;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a critical path is shown while tokens flow.
const SEEN_FOR: Duration = Duration::from_millis(250);

/// Facts about a model file.
pub fn model_info(loaded: &Loaded) -> ModelInfo {
    let (model, gguf) = (&loaded.model, loaded.model.gguf());
    let hp = &model.hparams;
    ModelInfo {
        name: loaded.name(),
        path: loaded.source.to_string(),
        arch: gguf
            .str("general.architecture")
            .ok()
            .flatten()
            .unwrap_or_default()
            .into(),
        quantisation: quantisation_name(gguf),
        params: gguf.tensors().iter().map(|t| t.elements()).sum(),
        file_bytes: gguf.file_bytes(),
        weight_bytes_per_token: weight_bytes_per_token(model),
        n_layers: hp.n_layers as u32,
        n_embd: hp.n_embd as u32,
        n_head: hp.n_head as u32,
        n_head_kv: hp.n_head_kv as u32,
        n_vocab: model.n_vocab as u32,
        n_ctx_train: hp.n_ctx_train as u32,
    }
}

/// Facts about the machine; with modelled time nothing of it may show, so that frames are the same everywhere.
pub fn machine_info(options: &Options) -> MachineInfo {
    let threads = options.config.threads as u32;
    let read_bandwidth_gbps = options
        .bandwidth
        .iter()
        .find(|b| b.threads == threads)
        .map(|b| b.gbps);
    if options.clock.is_modelled() {
        return MachineInfo {
            cpu: "modelled machine".into(),
            cpus: 1,
            isa: "modelled".into(),
            memory_bytes: None,
            read_bandwidth_gbps,
        };
    }
    os::machine_info(isa_name(KernelSet::best()), read_bandwidth_gbps)
}

/// The kernels of an engine's plan.
pub(super) fn kernels(engine: &Engine<StepRecorder>) -> Vec<KernelInfo> {
    let bricks = &engine.model().plan.bricks;
    let uses = engine.kernels();
    let mut hashes: HashMap<&str, String> = HashMap::new();
    let info = |(brick, used): (&Brick, &KernelUse)| {
        let hash = hashes
            .entry(used.source.path)
            .or_insert_with(|| format!("{:016x}", fnv1a_64(used.source.text.as_bytes())));
        KernelInfo {
            id: brick.id,
            layer: brick.layer.map(|l| l as u32),
            name: used.name.into(),
            variant: used.variant.into(),
            source: used.source.path.into(),
            source_hash: hash.clone(),
            rows: used.shape.map(|s| s.0 as u64),
            columns: used.shape.map(|s| s.1 as u64),
            tile_rows: used.tile_rows.map(|r| r as u64),
        }
    };
    bricks.iter().zip(&uses).map(info).collect()
}

fn isa_name(set: KernelSet) -> &'static str {
    match set {
        KernelSet::Scalar => "no vector kernels",
        KernelSet::Avx2 => "AVX2",
        KernelSet::Avx512 => "AVX-512 VNNI",
        KernelSet::Neon => "NEON",
        KernelSet::Dotprod => "NEON with dot products",
    }
}

impl Session {
    /// The present moment. Allocates; call it when something is to be shown, not for every token.
    pub fn snapshot(&mut self) -> Snapshot {
        self.seq += 1;
        let now = self.now();
        let watch = &mut self.profile.watch;
        timed(&mut self.host, self.options.clock, "group tokens", || {
            watch.cluster(now)
        });
        let bricks = self.profile.stats.rows(StepKind::Decode);
        let roof = self.roof();
        let (last_step, path) = self.newest_step();
        let mut snapshot = Snapshot {
            seq: self.seq,
            state: self.state(),
            model: Arc::clone(&self.model_info),
            machine: Arc::clone(&self.machine),
            engine: Arc::new(self.engine_info()),
            subject: self.subject(),
            context_used: self.engine.cached() as u32,
            rates: self.rates.rates(),
            phases: self.phases(),
            attention_parts: self.profile.stats.attention_rows(),
            prefill_bricks: self.profile.stats.rows(StepKind::Prefill),
            layers: self.profile.stats.layer_rows(),
            last_step,
            heat: self.profile.stats.heat_rows(),
            kernels: Arc::clone(&self.kernels),
            // Without times of bricks there is no path, only a step.
            critical_path: (self.options.sync_mode != SyncMode::None
                || self.options.clock.is_modelled())
            .then(|| critical_path(&bricks, roof, path.as_ref()))
            .flatten(),
            roofline: self.roofline(&bricks, roof),
            latency: self.profile.stats.wall(StepKind::Decode).latency(),
            token_times: self.profile.watch.token_times(),
            anomalies: self.profile.watch.anomalies(),
            counters: self.counters(),
            profiling: self.profiling(),
            host: self.host.rows(),
            memory: self.memory_info(),
            prompt: self.options.prompt.clone(),
            tokens: self.tokens.iter().cloned().collect(),
            generated: self.generated,
            recommendations: Vec::new(),
            tuner: None,
            message: self.message.clone(),
            playback: None,
            trace: self.tracing.frame(),
            tracer: self.tracer_frame(),
            bricks,
        };
        let began = Instant::now();
        self.ask_tuner(&snapshot);
        snapshot.recommendations = self.advise(&snapshot);
        snapshot.tuner = self.tuner_frame();
        if !self.options.clock.is_modelled() {
            self.host.add("advise", began.elapsed().as_nanos() as f64);
        }
        snapshot
    }

    /// What runs, with the settings in force.
    fn subject(&mut self) -> Option<Arc<Subject>> {
        let settings = self.setup().settings();
        let subject = self.subject.as_mut()?;
        if subject.settings != settings {
            Arc::make_mut(subject).settings = settings;
        }
        Some(Arc::clone(subject))
    }

    /// Time since some fixed moment, modelled where times are: then the same run gives the same figures.
    fn now(&self) -> Duration {
        if !self.options.clock.is_modelled() {
            return self.began.elapsed();
        }
        let us = self.engine.observer().last().begin_us();
        Duration::try_from_secs_f64(us * 1e-6).unwrap_or_default()
    }

    /// The last step that ended, with the slack of every share, and when it began, microseconds from a moment that stays.
    /// `None` before the first, inside a step, and where bricks are not timed.
    pub fn step(&self) -> Option<(f64, StepTrace)> {
        if self.engine.in_step() {
            return None;
        }
        let begin_us = self.engine.observer().last().begin_us();
        Some((begin_us, self.last_trace()?))
    }

    /// The kernels of the model's plan, in its order.
    pub fn kernels(&self) -> Arc<Vec<KernelInfo>> {
        Arc::clone(&self.kernels)
    }

    /// The token decoded last.
    pub fn newest_token(&self) -> Option<TokenTime> {
        self.profile.watch.newest().copied()
    }

    pub(super) fn roof(&self) -> Roof {
        match (
            Roof::probed(self.machine.read_bandwidth_gbps),
            self.options.clock.is_modelled(),
        ) {
            (Roof::Probed(gbps), true) => Roof::Modelled(gbps),
            (roof, _) => roof,
        }
    }

    fn engine_info(&self) -> EngineInfo {
        let c = self.engine.config();
        let modelled = self.options.clock.is_modelled();
        EngineInfo {
            backend: "cpu".into(),
            kernels: c.kernels.name().into(),
            threads: c.threads as u32,
            n_ctx: c.n_ctx as u32,
            kv_type: c.kv_type.name().into(),
            chunk: c.chunk as u32,
            prefetch: c.prefetch.to_string(),
            load: match self.loaded.source {
                Source::Demo => "embedded".into(),
                Source::File(_) => self.loaded.outcome.options.to_string(),
            },
            sampler: self.options.sampler.to_string(),
            clock: if modelled { "modelled" } else { "measured" }.into(),
            pace_tok_s: self.options.pace,
        }
    }

    /// As [`Self::last_step`]; while tokens flow that of the last quarter of a second will do, for it takes a while.
    fn newest_step(&mut self) -> SeenStep {
        if self.is_idle() || self.options.clock.is_modelled() {
            return self.last_step();
        }
        if let Some((at, seen)) = &self.seen_step
            && at.elapsed() < SEEN_FOR
        {
            return seen.clone();
        }
        let began = Instant::now();
        let seen = self.last_step();
        self.host
            .add("find critical path", began.elapsed().as_nanos() as f64);
        self.seen_step = Some((began, seen.clone()));
        seen
    }

    /// The last step with the slack of every share.
    fn last_trace(&self) -> Option<StepTrace> {
        let mut last = self.engine.observer().trace()?;
        // A trace that the graph refuses has no slack to show; the recorder makes none.
        let _ = fill_slack(&mut last);
        Some(last)
    }

    /// The last step, and the critical path of the mean step.
    fn last_step(&self) -> SeenStep {
        let recorder = self.engine.observer();
        let Some(last) = self.last_trace() else {
            return (None, None);
        };
        // Everything is on the path of a single thread.
        let mean = (last.threads.len() > 1)
            .then(|| recorder.mean_trace(&last))
            .flatten();
        let path = mean.and_then(|mean| threads_critical_path(&mean).ok());
        (Some(last), path)
    }

    fn roofline(&self, bricks: &[BrickRow], roof: Roof) -> Roofline {
        let int8 = int8_bricks(&self.loaded.model.plan, &self.options.config);
        roofline(bricks, &self.peaks, roof, &int8)
    }

    fn counters(&mut self) -> Option<Counters> {
        let running = !self.is_idle();
        let drop = self.profile.throughput.highest();
        let counters = self.counters.as_mut()?;
        let recorder = self.engine.observer_mut();
        timed(&mut self.host, self.options.clock, "read counters", || {
            counters.figures(recorder, running, drop)
        })
    }

    /// How profiling is done, and what it costs by the number of stamps and the cost of one.
    fn profiling(&self) -> Profiling {
        let recorder = self.engine.observer();
        let stamps_per_step = recorder.stamps();
        let stamp_ns = self.stamp_ns;
        let step_ns = self.profile.stats.wall(StepKind::Decode).mean_ns();
        // Threads stamp side by side: a step waits for those of one.
        let one_thread = stamps_per_step as f64 / self.options.config.threads.max(1) as f64;
        Profiling {
            mode: recorder.mode().name().into(),
            says: recorder.mode().says().into(),
            stamps_per_step,
            stamp_ns,
            stamp_share: stamp_ns
                .zip(step_ns)
                .map(|(stamp, step)| stamp * one_thread / step),
            wall_us: self.profile.wall_us(),
            accounted_us: self.profile.accounted_us(),
        }
    }

    fn phases(&self) -> Phases {
        let mut phases = self.rates.phases();
        if !self.options.clock.is_modelled() {
            let ms = |d: Duration| d.as_secs_f64() * 1e3;
            let (load, engine) = (ms(self.loaded.took), ms(self.engine_took));
            (phases.load_ms, phases.engine_ms) = (Some(load), Some(engine));
            phases.first_token_ms = phases.first_token_ms.map(|t| load + engine + t);
        }
        phases
    }

    fn memory_info(&mut self) -> MemoryInfo {
        self.faults.refresh();
        let mut info = MemoryInfo {
            weights_bytes: self
                .loaded
                .model
                .gguf()
                .tensors()
                .iter()
                .map(|t| t.bytes)
                .sum(),
            kv_bytes: self.engine.kv_bytes(),
            kv_used_bytes: self.engine.kv_bytes_per_token() * self.engine.cached() as u64,
            scratch_bytes: self.engine.scratch_bytes(),
            minor_faults_per_step: self.faults.minor_per_step(),
            ..MemoryInfo::default()
        };
        if !self.options.clock.is_modelled() {
            self.os.fill(&mut info);
            info.load_minor_faults = self.loaded.faults.map(|f| f.minor);
            info.load_major_faults = self.loaded.faults.map(|f| f.major);
        }
        info
    }
}
