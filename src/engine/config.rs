//! Every knob of the engine in one place: what a user sets, what the tuner tries.

use super::EngineError;
use super::batch::Split;
use super::cpu::KernelSet;
use super::cpu::pool::Spin;
use super::cpu::prefetch::Prefetch;
use super::kernels_for::KernelsFor;
use crate::gguf::GgmlType;
use crate::model::{Hparams, Slots};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use std::sync::OnceLock;

/// Most threads a session may ask for; more than any machine's CPUs is a typing error.
pub const MAX_THREADS: usize = 512;
/// Most tokens in one prefill chunk.
pub const MAX_CHUNK: usize = 4096;
/// Most sequences of an engine.
pub const MAX_SEQ: usize = 64;

/// Element type of the kv cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvType {
    /// 16-bit float, llama.cpp's default.
    F16,
    /// 32-bit float.
    F32,
    /// Blocks of 32 int8 with an f16 scale, 34 bytes, as GGUF stores them.
    Q8_0,
}

impl KvType {
    /// All types, as flags name them.
    pub const ALL: [KvType; 3] = [Self::F16, Self::F32, Self::Q8_0];

    /// Elements that only fit whole.
    pub fn block(self) -> usize {
        match self {
            Self::F16 | Self::F32 => 1,
            Self::Q8_0 => 32,
        }
    }

    /// Bytes of `elements` elements, whole blocks of them.
    pub fn bytes(self, elements: usize) -> usize {
        match self {
            Self::F16 => 2 * elements,
            Self::F32 => 4 * elements,
            Self::Q8_0 => elements / 32 * 34,
        }
    }

    /// Name as in flags and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::Q8_0 => "q8_0",
        }
    }
}

impl FromStr for KvType {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|t| t.name() == s)
            .ok_or_else(|| format!("kv cache type '{s}' cannot run; these can: f16, f32, q8_0"))
    }
}

/// What happens to a token that the context no longer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overflow {
    /// It is refused.
    Stop,
    /// It takes the place of the oldest one; positions go on.
    Ring,
}

impl Overflow {
    /// Name as in flags and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Ring => "ring",
        }
    }
}

impl FromStr for Overflow {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "stop" => Ok(Self::Stop),
            "ring" => Ok(Self::Ring),
            _ => Err(format!(
                "overflow '{s}' does not exist; these do: ring, stop"
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

/// How a thread waits at a barrier and between two steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Waiting {
    /// Spin, but sleep at once with more threads than CPUs.
    #[default]
    Auto,
    /// Spin for some 50 us, then sleep.
    Spin,
    /// Sleep at once: leaves the CPU to others, and costs a wake at every barrier.
    Sleep,
}

impl Waiting {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Spin, Self::Sleep];

    /// Name as in flags and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Spin => "spin",
            Self::Sleep => "sleep",
        }
    }
}

impl FromStr for Waiting {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|w| w.name() == s)
            .ok_or_else(|| format!("waiting '{s}' does not exist; these do: auto, spin, sleep"))
    }
}

/// How the queries of a step read the kv cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AttentionPasses {
    /// Up to four queries share a pass over the cache, as far as that leaves work for every thread.
    #[default]
    Shared,
    /// Every query makes a pass of its own.
    Single,
}

impl AttentionPasses {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Shared, Self::Single];

    /// Name as in flags and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Single => "single",
        }
    }
}

impl FromStr for AttentionPasses {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|a| a.name() == s)
            .ok_or_else(|| format!("attention '{s}' does not exist; these do: shared, single"))
    }
}

/// Knobs of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Threads, the calling one included.
    pub threads: usize,
    /// Kernel set.
    pub kernels: KernelSet,
    /// Kernel sets of single weight types in its place.
    pub kernels_for: KernelsFor,
    /// How queries read the cache.
    pub attention: AttentionPasses,
    /// How threads wait for each other.
    pub waiting: Waiting,
    /// Context length to allocate for every sequence, tokens.
    pub n_ctx: usize,
    /// Sequences, each with a kv cache of its own.
    pub n_seq: usize,
    /// Element type of the kv cache.
    pub kv_type: KvType,
    /// What happens beyond the context.
    pub overflow: Overflow,
    /// First tokens of a sequence that [`Overflow::Ring`] never evicts.
    pub keep: usize,
    /// How a batch is cut into steps of at most a chunk.
    pub split: Split,
    /// Whether a batch is sorted by sequence first, so that the tokens of one read their cache after each other.
    pub sequential: bool,
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
            kernels_for: KernelsFor::default(),
            attention: AttentionPasses::default(),
            waiting: Waiting::default(),
            n_ctx: n_ctx_train.min(8192),
            n_seq: 1,
            kv_type: KvType::F16,
            overflow: Overflow::Stop,
            keep: 0,
            split: Split::Simple,
            sequential: true,
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
        range("the number of sequences", self.n_seq, MAX_SEQ)?;
        if self.n_seq > self.chunk {
            return Err(EngineError::Config(format!(
                "{} sequences need a chunk of as many tokens to be decoded together; it is {} (--chunk)",
                self.n_seq, self.chunk
            )));
        }
        if self.overflow == Overflow::Ring && self.chunk.saturating_add(self.keep) > self.n_ctx {
            return Err(EngineError::Config(format!(
                "a chunk of {} and {} kept tokens do not fit into a ring of {}; use a smaller chunk (--chunk) or a larger context (--ctx)",
                self.chunk, self.keep, self.n_ctx
            )));
        }
        self.prefetch.check()?;
        let sets = self.kernels_for.iter().map(|(_, set)| set);
        match std::iter::once(self.kernels)
            .chain(sets)
            .find(|set| !set.is_available())
        {
            None => Ok(()),
            Some(set) => Err(EngineError::Config(format!(
                "kernels '{}' need instructions this CPU does not have; these can run here: {}",
                set.name(),
                KernelSet::available()
                    .iter()
                    .map(|k| k.name())
                    .collect::<Vec<_>>()
                    .join(", ")
            ))),
        }
    }

    /// The kernel set for weights of a type.
    pub fn kernels_of(&self, ty: GgmlType) -> KernelSet {
        self.kernels_for.get(ty).unwrap_or(self.kernels)
    }

    /// Rows of logits to allocate: what is asked for, and one for every sequence.
    pub fn rows(&self) -> usize {
        self.logit_rows.max(self.n_seq)
    }

    /// The slots of a sequence.
    pub fn slots(&self) -> Slots {
        let keep = match self.overflow {
            Overflow::Stop => 0,
            Overflow::Ring => self.keep,
        };
        Slots {
            n: self.n_ctx,
            keep,
        }
    }

    /// Whether the heads of a model are whole blocks of the cache's type.
    ///
    /// # Errors
    /// [`EngineError::Config`], with the types that can hold them.
    pub fn check_heads(&self, hp: &Hparams) -> Result<(), EngineError> {
        let block = self.kv_type.block();
        match [hp.head_dim_k, hp.head_dim_v]
            .into_iter()
            .find(|d| !d.is_multiple_of(block))
        {
            None => Ok(()),
            Some(dim) => Err(EngineError::Config(format!(
                "kv cache type '{}' holds blocks of {block} elements, but this model's heads have {dim}; use f16 or f32 (--kv-type)",
                self.kv_type.name()
            ))),
        }
    }

    /// How long threads spin: at a barrier longer than a sleeping thread takes to wake, since a shorter spin would put
    /// every barrier behind it to sleep as well; between two steps long enough to bridge sampling; not at all with more
    /// threads than CPUs, where spinning keeps the awaited thread off its core.
    pub fn spin(&self) -> Spin {
        let sleep = match self.waiting {
            Waiting::Auto => self.threads > cpus(),
            Waiting::Spin => false,
            Waiting::Sleep => true,
        };
        if sleep {
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
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct EngineInfo {
    /// `cpu` for now.
    pub backend: String,
    /// Kernel set in use: `scalar`, `avx2`, `avx512`.
    pub kernels: String,
    /// Worker threads, the calling one included.
    pub threads: u32,
    /// Context length allocated, tokens.
    pub n_ctx: u32,
    /// Element type of the kv cache: `f16`, `f32` or `q8_0`.
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
