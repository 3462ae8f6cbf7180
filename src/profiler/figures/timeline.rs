//! Steps in the order they ran, thread by thread, and what stood out among them.

use crate::engine::StepKind;
use crate::model::brick::BrickId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One step in execution order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepTrace {
    /// Decode or prefill.
    pub kind: StepKind,
    /// Position of the (last) token of the step.
    pub position: u32,
    /// Tokens in the step: 1 in decode, up to the chunk in prefill.
    pub tokens: u32,
    /// Wall time of the step, microseconds.
    pub wall_us: f64,
    /// Bricks in the order they ran, with the times of thread 0.
    pub events: Vec<StepEvent>,
    /// What each thread did, thread 0 first. Empty while a step is in progress, or where only thread 0 was watched.
    #[serde(default)]
    pub threads: Vec<ThreadTrace>,
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
    /// Index into `Snapshot::kernels`; `None` for what is not in the model's plan (sampling, gaps).
    #[serde(default)]
    pub brick: Option<u32>,
    /// Whether all threads wait for each other after it.
    #[serde(default)]
    pub barrier: bool,
}

/// What one thread did in a step. Work, waiting and idle time sum to the step's wall time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadTrace {
    /// Number of the thread; 0 drives the step.
    pub thread: u32,
    /// Own work, microseconds.
    pub work_us: f64,
    /// Waiting at barriers, microseconds.
    pub wait_us: f64,
    /// The rest of the step: before its first and after its last brick, and between bricks, microseconds.
    pub idle_us: f64,
    /// Pieces of work taken (row ranges, heads).
    pub pieces: u32,
    /// Of them those that an even split would have given to another thread.
    pub stolen: u32,
    /// Times the thread was seen on another core than at the brick before.
    pub migrations: u32,
    /// Its share of every brick, in the order they ran.
    pub spans: Vec<ThreadSpan>,
}

/// One thread's share of a brick.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadSpan {
    /// Index into `StepTrace::events`.
    pub event: u32,
    /// Start, microseconds since the step's start.
    pub start_us: f64,
    /// Own work, microseconds.
    pub work_us: f64,
    /// Waiting at the barrier after it, microseconds.
    pub wait_us: f64,
    /// Core (logical CPU) at its end, where the clock tells.
    pub core: Option<u32>,
    /// Pieces of work taken.
    pub pieces: u32,
    /// Of them those that an even split would have given to another thread.
    pub stolen: u32,
    /// How much longer it could have taken without making the step longer, microseconds; 0 on the critical path.
    pub slack_us: f64,
}

/// The kernel that runs one brick of the model's plan; fixed for a configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelInfo {
    /// Which brick.
    pub id: BrickId,
    /// Its layer; `None` outside layers.
    pub layer: Option<u32>,
    /// Name, for example `q4_1_dot`.
    pub name: String,
    /// Variant, for example `avx512`.
    pub variant: String,
    /// Source file, relative to the repository.
    pub source: String,
    /// FNV-1a (64 bits) of the source text, hexadecimal: equal in two runs exactly when the code is.
    pub source_hash: String,
    /// Rows of the weights, where it is a matrix product.
    pub rows: Option<u64>,
    /// Columns of the weights (length of a dot product).
    pub columns: Option<u64>,
    /// Rows taken at a time.
    pub tile_rows: Option<u64>,
}

/// A decoded token's time and what the system did meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TokenTime {
    /// Its position in the sequence.
    pub position: u32,
    /// Time in the engine, microseconds.
    pub us: f64,
    /// Minor page faults of the process while it was decoded.
    pub minor_faults: Option<u32>,
    /// Major page faults while it was decoded.
    pub major_faults: Option<u32>,
    /// Involuntary context switches while it was decoded.
    pub preempted: Option<u32>,
    /// Threads seen on another core than before.
    pub migrations: Option<u32>,
    /// Whether it was flagged as an anomaly.
    pub slow: bool,
}

/// Why a token was slow, as far as the counters tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Pages were read from disk.
    MajorFaults,
    /// Pages were mapped for the first time.
    MinorFaults,
    /// The scheduler took the CPU away.
    Preempted,
    /// A thread moved to another core.
    Migrated,
    /// The kv cache is longer than in the tokens it is compared with.
    LongerContext,
    /// One thread was late, and the others waited.
    Imbalance,
    /// Nothing that cbtop sees.
    Unknown,
}

/// A token that took longer than its neighbours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Anomaly {
    /// Its position in the sequence.
    pub position: u32,
    /// Its time, microseconds.
    pub us: f64,
    /// What tokens around it take, microseconds.
    pub expected_us: f64,
    /// The brick that lost most against its usual time.
    pub brick: Option<BrickId>,
    /// How much that brick lost, microseconds.
    pub excess_us: f64,
    /// Why, most likely.
    pub cause: Cause,
    /// One sentence: what was slow, by how much, why.
    pub says: String,
    /// Found by the robust rule (distance from the median in median absolute deviations).
    pub by_rule: bool,
    /// Found by clustering the tokens' brick times.
    pub by_clusters: bool,
}

/// Times of decode steps.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// Steps counted.
    pub count: u64,
    /// Mean, microseconds; like all below `None` without steps.
    pub mean_us: Option<f64>,
    /// Standard deviation, microseconds.
    pub stddev_us: Option<f64>,
    /// Fastest, microseconds.
    pub min_us: Option<f64>,
    /// Median, microseconds (histogram, within 4%).
    pub p50_us: Option<f64>,
    /// 90th percentile, microseconds.
    pub p90_us: Option<f64>,
    /// 99th percentile, microseconds.
    pub p99_us: Option<f64>,
    /// Slowest, microseconds.
    pub max_us: Option<f64>,
    /// Occupied buckets of the histogram, shortest first.
    pub buckets: Vec<LatencyBucket>,
}

/// A bucket of a histogram of times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyBucket {
    /// Lower edge, microseconds.
    pub from_us: f64,
    /// Upper edge, microseconds.
    pub to_us: f64,
    /// Steps in it.
    pub count: u64,
}
