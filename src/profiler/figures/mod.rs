//! The figures that this room hands out, as plain data. Units are in the names; `None` means "not known", never zero.

mod counters;
mod roofline;
mod timeline;

pub use counters::{
    AsyncTask, BrickCounters, Counters, NamedRow, Profiling, Support, SystemFigures, ThreadCounters,
};
pub use roofline::{Peak, PeakKind, RoofPoint, Roofline};
pub use timeline::{
    Anomaly, Cause, KernelInfo, Latency, LatencyBucket, StepEvent, StepTrace, ThreadSpan,
    ThreadTrace, TokenTime,
};

use crate::model::brick::{BrickId, Category};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Facts about the machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct MachineInfo {
    /// CPU brand string.
    pub cpu: String,
    /// Logical CPUs this process may use.
    pub cpus: u32,
    /// Best instruction set usable here, for example `AVX2`, `AVX-512 VNNI`.
    pub isa: String,
    /// Physical memory, bytes.
    pub memory_bytes: Option<u64>,
    /// Highest read bandwidth seen by the built-in probe at the current thread count, GB/s (10^9), if it ran.
    pub read_bandwidth_gbps: Option<f64>,
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
    /// Share of wall time, pauses and pacing included, spent on publishing rather than in the engine, 0 to 1.
    pub overhead_share: Option<f64>,
}

/// Where the time of a run went so far. `load` is of the session's start; the other phases are of the current run and
/// count time inside the engine only.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Phases {
    /// Opening and checking the file, building the vocabulary, milliseconds; unknown with modelled time.
    pub load_ms: Option<f64>,
    /// Allocating buffers and cache and starting threads, milliseconds; unknown with modelled time.
    pub engine_ms: Option<f64>,
    /// Prefill of the prompt, milliseconds.
    pub prefill_ms: f64,
    /// Tokens of it.
    pub prefill_tokens: u64,
    /// Decode steps, milliseconds.
    pub decode_ms: f64,
    /// Tokens decoded.
    pub decode_tokens: u64,
    /// From the start of loading to the first token, milliseconds: load, engine, prefill, sampling.
    pub first_token_ms: Option<f64>,
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
    /// Standard deviation of the brick's time in a step, microseconds; `None` with fewer than two steps.
    #[serde(default)]
    pub step_stddev_us: Option<f64>,
    /// Mean time a step of the newest steps, newest last, microseconds, at most 32 groups of steps.
    #[serde(default)]
    pub history_us: Vec<f64>,
    /// Time-stamp counter cycles of one call, mean; `None` with another clock.
    #[serde(default)]
    pub cycles_per_call: Option<f64>,
}

/// Times of one brick in one layer: a cell of the heat map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeatRow {
    /// Which brick.
    pub id: BrickId,
    /// Mean time a decode step by layer, microseconds; `None` where the layer has no such brick.
    pub us: Vec<Option<f64>>,
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

/// The critical path of a decode step: the longest chain of bricks over all threads.
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
    /// Slack of its shares on all threads: how much longer those that the path does not go through could take without making
    /// the step longer, summed over the step, microseconds.
    #[serde(default)]
    pub slack_us: f64,
    /// Share of the path, 0 to 1.
    pub share: f64,
    /// Achieved memory traffic, GB/s (10^9), where the brick moves counted bytes.
    pub gbps: Option<f64>,
    /// FLOP per byte moved, where counted.
    pub intensity: Option<f64>,
    /// Tokens a second if this brick alone were twice as fast on every thread, by the longest path then.
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
    /// Minor page faults of loading the file and its vocabulary.
    pub load_minor_faults: Option<u64>,
    /// Major page faults of loading.
    pub load_major_faults: Option<u64>,
    /// Minor page faults.
    pub minor_faults: Option<u64>,
    /// Major page faults (read from disk).
    pub major_faults: Option<u64>,
    /// Minor page faults of a decode step (of the whole process, whatever it did between the steps): the mean since the
    /// last reading. Readings are at least 100 ms apart; the first decode step after one of another prompt is not counted.
    pub minor_faults_per_step: Option<f64>,
    /// Voluntary context switches.
    pub voluntary_switches: Option<u64>,
    /// Involuntary context switches.
    pub involuntary_switches: Option<u64>,
    /// Anonymous memory in transparent huge pages, bytes.
    pub huge_page_bytes: Option<u64>,
}
