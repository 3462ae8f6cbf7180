//! Every knob of the engine in one place: what a user sets, what the tuner tries.

use super::EngineError;
use super::cpu::KernelSet;
use super::cpu::pool::Spin;
use super::cpu::prefetch::Prefetch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use std::sync::OnceLock;

/// Most threads a session may ask for; more than any machine's CPUs is a typing error.
pub const MAX_THREADS: usize = 512;
/// Most tokens in one prefill chunk.
pub const MAX_CHUNK: usize = 4096;

/// Element type of the kv cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvType {
    /// 16-bit float, llama.cpp's default.
    F16,
    /// 32-bit float.
    F32,
}

impl KvType {
    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
        }
    }

    /// Name as in flags and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::F32 => "f32",
        }
    }
}

impl FromStr for KvType {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "f16" => Ok(Self::F16),
            "f32" => Ok(Self::F32),
            _ => Err(format!(
                "kv cache type '{s}' cannot run; these can: f16, f32"
            )),
        }
    }
}

/// How a matrix's rows are given to threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// Equal shares, fixed beforehand.
    Static,
    /// Small pieces, taken by whoever is free: better when a core is slowed by something else.
    Dynamic,
}

impl Schedule {
    /// Name as in flags and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Dynamic => "dynamic",
        }
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "static" => Ok(Self::Static),
            "dynamic" => Ok(Self::Dynamic),
            _ => Err(format!(
                "schedule '{s}' does not exist; these do: dynamic, static"
            )),
        }
    }
}

/// Knobs of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Threads, the calling one included.
    pub threads: usize,
    /// Kernel set.
    pub kernels: KernelSet,
    /// Context length to allocate, tokens.
    pub n_ctx: usize,
    /// Element type of the kv cache.
    pub kv_type: KvType,
    /// Tokens in one prefill chunk.
    pub chunk: usize,
    /// How rows are given to threads.
    pub schedule: Schedule,
    /// Bind thread `i` to the `i`-th CPU.
    pub pin: bool,
    /// How far ahead decode fetches weights.
    pub prefetch: Prefetch,
    /// Most tokens of one step whose logits are wanted.
    pub logit_rows: usize,
}

/// CPUs this process may use. Read once: later the answer is that of a thread which may be bound to one of them.
pub fn cpus() -> usize {
    static CPUS: OnceLock<usize> = OnceLock::new();
    *CPUS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

impl Config {
    /// Defaults for a model trained on `n_ctx_train` tokens: every CPU, the best kernels here, at most 8,192 tokens.
    pub fn for_context(n_ctx_train: usize) -> Self {
        Self {
            threads: cpus().min(MAX_THREADS),
            kernels: KernelSet::best(),
            n_ctx: n_ctx_train.min(8192),
            kv_type: KvType::F16,
            chunk: 512,
            schedule: Schedule::Dynamic,
            pin: false,
            prefetch: Prefetch::default(),
            logit_rows: 1,
        }
    }

    /// Checks every knob against what can run.
    ///
    /// # Errors
    /// [`EngineError::Config`], naming the knob and its range.
    pub fn check(&self) -> Result<(), EngineError> {
        let range = |what: &str, value: usize, max: usize| {
            if (1..=max).contains(&value) {
                Ok(())
            } else {
                Err(EngineError::Config(format!(
                    "{what} is {value}, expected 1 to {max}"
                )))
            }
        };
        range("the number of threads", self.threads, MAX_THREADS)?;
        range("the prefill chunk", self.chunk, MAX_CHUNK)?;
        range("the context length", self.n_ctx, 1 << 24)?;
        range("the number of logit rows", self.logit_rows, self.chunk)?;
        self.prefetch.check()?;
        if !self.kernels.is_available() {
            return Err(EngineError::Config(format!(
                "kernels '{}' need instructions this CPU does not have; these can run here: {}",
                self.kernels.name(),
                KernelSet::available()
                    .iter()
                    .map(|k| k.name())
                    .collect::<Vec<_>>()
                    .join(", ")
            )));
        }
        Ok(())
    }

    /// How long threads spin: at a barrier longer than a sleeping thread takes to wake, since a shorter spin would put
    /// every barrier behind it to sleep as well; between two steps long enough to bridge sampling; not at all with more
    /// threads than CPUs, where spinning keeps the awaited thread off its core.
    pub fn spin(&self) -> Spin {
        if self.threads > cpus() {
            return Spin {
                barrier: 0,
                idle: 0,
            };
        }
        Spin {
            barrier: 60_000,
            idle: 10_000,
        }
    }
}

/// The engine's configuration as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EngineInfo {
    /// `cpu` for now.
    pub backend: String,
    /// Kernel set in use: `scalar`, `avx2`, `avx512`.
    pub kernels: String,
    /// Worker threads, the calling one included.
    pub threads: u32,
    /// Context length allocated, tokens.
    pub n_ctx: u32,
    /// Element type of the kv cache: `f16` or `f32`.
    pub kv_type: String,
    /// Tokens in one prefill chunk.
    pub chunk: u32,
    /// Bytes ahead that decode fetches weights, with the locality if it is not `high`: `4096`, `1024:none`, `0` for off.
    pub prefetch: String,
    /// How the file is in memory, for example `mmap, willneed` or `read, huge pages`.
    pub load: String,
    /// Sampler in words, for example `greedy` or `temp 0.8, top-k 40, top-p 0.95, min-p 0.05, seed 42`.
    pub sampler: String,
    /// `measured` or, with `--deterministic`, `modelled` (times are then computed from bytes, not measured).
    pub clock: String,
    /// Pace limit, tokens a second, if any.
    pub pace_tok_s: Option<u32>,
}
