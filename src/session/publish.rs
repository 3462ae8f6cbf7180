//! Turns a session into the snapshot that front ends read.

use super::load::{Loaded, Source};
use super::run::{Options, Session};
use super::snapshot::{
    EngineInfo, Latency, MachineInfo, MemoryInfo, ModelInfo, Phases, Profiling, Roofline, Snapshot,
};
use crate::engine::StepKind;
use crate::engine::cpu::KernelSet;
use crate::model::{quantisation_name, weight_bytes_per_token};
use crate::profiler::critical::{Roof, critical_path};
use crate::profiler::os;
use std::sync::Arc;
use std::time::Duration;

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
        let bricks = self.stats.rows(StepKind::Decode);
        let roof = self.roof();
        let mut snapshot = Snapshot {
            seq: self.seq,
            state: self.state(),
            model: Arc::clone(&self.model_info),
            machine: Arc::clone(&self.machine),
            engine: Arc::new(self.engine_info()),
            context_used: self.engine.cached() as u32,
            rates: self.rates.rates(),
            phases: self.phases(),
            prefill_bricks: self.stats.rows(StepKind::Prefill),
            layers: self.stats.layer_rows(),
            last_step: self.engine.observer().trace(),
            heat: Vec::new(),
            kernels: Arc::default(),
            critical_path: critical_path(&bricks, roof),
            roofline: Roofline::default(),
            latency: Latency::default(),
            token_times: Vec::new(),
            anomalies: Vec::new(),
            counters: None,
            profiling: Profiling::default(),
            memory: self.memory_info(),
            prompt: self.options.prompt.clone(),
            tokens: self.tokens.iter().cloned().collect(),
            generated: self.generated,
            recommendations: Vec::new(),
            message: self.message.clone(),
            playback: None,
            bricks,
        };
        snapshot.recommendations = self.advise(&snapshot);
        snapshot
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
