//! What the session knows at one moment: the only thing the dashboard, headless text and the JSON report read.
//!
//! A snapshot is plain data. Units are in the field names; `None` means "not known", never zero.

use crate::model::brick::{BrickId, Category};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One moment of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// Increases by one with every snapshot of a session.
    pub seq: u64,
    /// What the session is doing.
    pub state: RunState,
    /// The model, fixed for the session.
    pub model: Arc<ModelInfo>,
    /// The machine, fixed for the session.
    pub machine: Arc<MachineInfo>,
    /// How the engine is configured now; changes when a recommendation is applied.
    pub engine: Arc<EngineInfo>,
    /// Tokens in the kv cache.
    pub context_used: u32,
    /// Throughput figures of the current run.
    pub rates: Rates,
    /// Per-brick statistics of decode steps since the last restart or change of configuration,
    /// in the order the bricks run, `Sync` and `Unattributed` last.
    pub bricks: Vec<BrickRow>,
    /// Per-brick statistics of prefill chunks, same order and meaning.
    pub prefill_bricks: Vec<BrickRow>,
    /// Per-layer times of decode steps.
    pub layers: Vec<LayerRow>,
    /// The last step, brick by brick, in execution order (the timeline and the step-layer cursor).
    pub last_step: Option<StepTrace>,
    /// What bounds a decode step.
    pub critical_path: Option<CriticalPath>,
    /// Memory and operating-system counters.
    pub memory: MemoryInfo,
    /// The prompt of the run.
    pub prompt: String,
    /// Tokens generated in this run, oldest first, at most [`MAX_TOKENS_SHOWN`] (older ones are dropped from the front).
    pub tokens: Vec<GeneratedToken>,
    /// Tokens generated in this run, those dropped from `tokens` included.
    pub generated: u64,
    /// Open, applying and finished recommendations; order is stable.
    pub recommendations: Vec<Recommendation>,
    /// One line for the user about the last thing that happened (a refused command, a finished change).
    pub message: Option<Message>,
}

/// `Snapshot::tokens` keeps at most this many.
pub const MAX_TOKENS_SHOWN: usize = 4096;

/// What the session is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum RunState {
    /// Reading the prompt; `done` of `total` tokens.
    Prefill {
        /// Tokens of the prompt already in the cache.
        done: u32,
        /// Tokens of the prompt.
        total: u32,
    },
    /// Generating.
    Decode,
    /// Paused by the user between two tokens.
    Paused,
    /// Paused by the user inside a token: layers `0..next_layer` have run.
    PausedAtLayer {
        /// The next layer to run.
        next_layer: u32,
    },
    /// Generation ended.
    Finished {
        /// Why: `end of text`, `token limit`, `context full`.
        reason: String,
    },
    /// The engine failed; the session can be restarted.
    Failed {
        /// One line of what is wrong.
        error: String,
    },
}

/// Facts about the model file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelInfo {
    /// `general.name`, or the file's name.
    pub name: String,
    /// Path as given, or `(embedded demo)`.
    pub path: String,
    /// Architecture, for example `llama`.
    pub arch: String,
    /// Dominant quantisation in llama.cpp's naming, for example `Q4_K - Medium`.
    pub quantisation: String,
    /// Number of parameters.
    pub params: u64,
    /// Bytes of the file or files.
    pub file_bytes: u64,
    /// Bytes of weights read to make one token (each weight once, one embedding row), kv cache apart.
    pub weight_bytes_per_token: u64,
    /// Layers.
    pub n_layers: u32,
    /// Width of the residual stream.
    pub n_embd: u32,
    /// Query heads.
    pub n_head: u32,
    /// Key/value heads.
    pub n_head_kv: u32,
    /// Vocabulary size.
    pub n_vocab: u32,
    /// Context length the model was trained with.
    pub n_ctx_train: u32,
}

/// Facts about the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineInfo {
    /// CPU brand string.
    pub cpu: String,
    /// Logical CPUs this process may use.
    pub cpus: u32,
    /// Best instruction set usable here, for example `AVX2`, `AVX-512 VNNI`.
    pub isa: String,
    /// Physical memory, bytes.
    pub memory_bytes: u64,
    /// Highest read bandwidth seen by the built-in probe at the current thread count, GB/s (10^9), if it ran.
    pub read_bandwidth_gbps: Option<f64>,
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
    /// Sampler in words, for example `greedy` or `temp 0.8, top-k 40, top-p 0.95, min-p 0.05, seed 42`.
    pub sampler: String,
    /// `measured` or, with `--deterministic`, `modelled` (times are then computed from bytes, not measured).
    pub clock: String,
    /// Pace limit, tokens a second, if any.
    pub pace_tok_s: Option<u32>,
}

/// Throughput of the current run. Rates count time inside the engine only: pauses, pacing and drawing are left out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Rates {
    /// Decode, mean of the last 16 tokens, tokens a second.
    pub decode_now_tok_s: Option<f64>,
    /// Decode, whole run, tokens a second.
    pub decode_mean_tok_s: Option<f64>,
    /// Standard deviation of single-token rates over the run, tokens a second.
    pub decode_stddev_tok_s: Option<f64>,
    /// Prefill of the prompt, tokens a second.
    pub prefill_tok_s: Option<f64>,
    /// From the start of prefill to the first token sampled, seconds.
    pub ttft_s: Option<f64>,
    /// Bytes read a second in decode (weights, kv cache so far, once a token), GB/s (10^9).
    pub decode_gbps: Option<f64>,
    /// Decode rate of single tokens, newest last, tokens a second, at most 256.
    pub history_tok_s: Vec<f64>,
    /// Share of wall time spent in profiling and publishing rather than in the engine, 0 to 1.
    pub overhead_share: Option<f64>,
}

/// Statistics of one brick over all layers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BrickRow {
    /// Which brick.
    pub id: BrickId,
    /// Its block.
    pub category: Category,
    /// Number of timed calls.
    pub calls: u64,
    /// Steps (tokens or chunks) the calls belong to.
    pub steps: u64,
    /// Total time, microseconds.
    pub total_us: f64,
    /// Mean time a step (all layers of one token or chunk), microseconds.
    pub us_per_step: f64,
    /// Mean of one call, microseconds.
    pub mean_us: f64,
    /// Standard deviation of one call, microseconds.
    pub stddev_us: f64,
    /// Fastest call, microseconds.
    pub min_us: f64,
    /// Slowest call, microseconds.
    pub max_us: f64,
    /// Median call, microseconds (histogram, within 4%).
    pub p50_us: f64,
    /// 99th percentile call, microseconds (histogram, within 4%).
    pub p99_us: f64,
    /// Output elements of one step.
    pub elements_per_step: u64,
    /// Bytes read and written in one step (weights as stored, kv cache so far, activations).
    pub bytes_per_step: u64,
    /// Floating-point operations of one step.
    pub flops_per_step: u64,
    /// Share of the step's time, 0 to 1; all rows sum to 1.
    pub share: f64,
}

/// Times of one layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayerRow {
    /// Layer, from 0.
    pub layer: u32,
    /// Mean time a step, microseconds.
    pub us_per_step: f64,
    /// Of it the attention block's bricks (projections included).
    pub attention_us: f64,
    /// Of it the feed-forward block's bricks.
    pub ffn_us: f64,
    /// Of it norms and residual additions.
    pub norm_us: f64,
    /// Of it waiting at barriers.
    pub sync_us: f64,
    /// The last step's time, microseconds.
    pub last_us: f64,
}

/// One step in execution order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepTrace {
    /// Position of the (last) token of the step.
    pub position: u32,
    /// Tokens in the step: 1 in decode, up to the chunk in prefill.
    pub tokens: u32,
    /// Wall time of the step, microseconds.
    pub wall_us: f64,
    /// Bricks in the order they ran.
    pub events: Vec<StepEvent>,
}

/// One timed call.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepEvent {
    /// Which brick.
    pub id: BrickId,
    /// Its layer; `None` outside layers.
    pub layer: Option<u32>,
    /// Start, microseconds since the step's start.
    pub start_us: f64,
    /// Own work, microseconds.
    pub work_us: f64,
    /// Waiting at the barrier after it, microseconds.
    pub sync_us: f64,
}

/// What bounds a decode step: first form of the critical path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CriticalPath {
    /// Mean length of the path, microseconds a token.
    pub length_us: f64,
    /// Contributors in descending order of time.
    pub nodes: Vec<CriticalNode>,
    /// One sentence: what bounds the step.
    pub verdict: String,
}

/// A brick on the critical path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CriticalNode {
    /// Which brick.
    pub id: BrickId,
    /// Time on the path, microseconds a token.
    pub us: f64,
    /// Share of the path, 0 to 1.
    pub share: f64,
    /// Achieved memory traffic, GB/s (10^9), where the brick moves counted bytes.
    pub gbps: Option<f64>,
    /// FLOP per byte moved, where counted.
    pub intensity: Option<f64>,
    /// Tokens a second if this brick alone were twice as fast.
    pub tok_s_if_2x: f64,
    /// `memory`, `compute`, `overhead`: what limits it, judged from achieved traffic against the probed bandwidth.
    pub bound: String,
}

/// Memory and operating-system counters. Counters are since the session's start unless named otherwise.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct MemoryInfo {
    /// Resident set of the process, bytes.
    pub rss_bytes: Option<u64>,
    /// Highest resident set so far, bytes.
    pub peak_rss_bytes: Option<u64>,
    /// Weights mapped from the file, bytes.
    pub weights_bytes: u64,
    /// kv cache allocated, bytes.
    pub kv_bytes: u64,
    /// kv cache in use, bytes.
    pub kv_used_bytes: u64,
    /// Activation and scratch buffers, bytes.
    pub scratch_bytes: u64,
    /// Minor page faults.
    pub minor_faults: Option<u64>,
    /// Major page faults (read from disk).
    pub major_faults: Option<u64>,
    /// Minor page faults of the last decode step.
    pub minor_faults_last_step: Option<u64>,
    /// Voluntary context switches.
    pub voluntary_switches: Option<u64>,
    /// Involuntary context switches.
    pub involuntary_switches: Option<u64>,
    /// Anonymous memory in transparent huge pages, bytes.
    pub huge_page_bytes: Option<u64>,
}

/// One generated token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GeneratedToken {
    /// Token id.
    pub id: u32,
    /// Its text; bytes that do not yet form a character are held back and come with the token that completes them.
    pub text: String,
    /// Probability under the model's distribution (temperature 1, no cut).
    pub prob: f32,
    /// Time in the engine, microseconds.
    pub us: f64,
}

/// Something to change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Recommendation {
    /// Stable name of the rule, for example `threads`.
    pub id: String,
    /// What to do, for example `Use 2 threads instead of 1`.
    pub title: String,
    /// Why, with the figures that led to it.
    pub why: String,
    /// Expected rate after the change, tokens a second, with how it was estimated in `why`; `None` if it cannot be estimated.
    pub expected_tok_s: Option<f64>,
    /// Whether `a` can apply it in this session.
    pub applicable: bool,
    /// What became of it.
    pub status: RecommendationStatus,
}

/// What became of a recommendation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum RecommendationStatus {
    /// Not tried.
    Open,
    /// Being measured: `done` of `total` tokens.
    Measuring {
        /// Tokens measured.
        done: u32,
        /// Tokens to measure.
        total: u32,
    },
    /// Applied and measured.
    Applied {
        /// Median rate before, tokens a second.
        before_tok_s: f64,
        /// Median rate after, tokens a second.
        after_tok_s: f64,
        /// Spread of `after / before` (interquartile), as a share of the ratio.
        spread: f64,
        /// Whether the gain is larger than the spread.
        significant: bool,
    },
    /// Applied, measured, then undone.
    Undone {
        /// Median rate with the change, tokens a second.
        with_tok_s: f64,
        /// Median rate without it, tokens a second.
        without_tok_s: f64,
    },
}

/// A line for the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    /// Whether it reports a failure.
    pub is_error: bool,
    /// The text.
    pub text: String,
}

/// What a front end can ask of a session. Commands are taken between two tokens, or between two layers while stepping.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Stop after the current token; or go on.
    TogglePause,
    /// Run one token, then pause.
    StepToken,
    /// Run one layer, then pause inside the token.
    StepLayer,
    /// Clear the cache and statistics and run the same prompt again.
    Restart,
    /// Clear the cache and statistics and run this prompt.
    NewPrompt(String),
    /// Apply the recommendation with this id and measure what it brings.
    Apply(String),
    /// Undo the last applied recommendation.
    Undo,
    /// Clear statistics, keep generating.
    ResetStats,
    /// End the session.
    Quit,
}
