//! What the processor and the system count.

use crate::model::brick::BrickId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a group of counters can be read here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Support {
    /// It can.
    Available,
    /// It cannot.
    Unavailable {
        /// Why.
        why: String,
        /// What to do about it.
        remedy: String,
    },
}

/// Counters of the threads that run the model, and figures of the system. Since the session's start unless named otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    /// Cycles, instructions, cache and branch misses.
    pub hardware: Support,
    /// Page faults, context switches, migrations.
    pub software: Support,
    /// Per worker thread, thread 0 first.
    pub threads: Vec<ThreadCounters>,
    /// Per brick, over sampled decode steps; empty without hardware counters.
    pub bricks: Vec<BrickCounters>,
    /// Frequency, temperature, steal time and the like.
    pub system: SystemFigures,
    /// One sentence: what they say.
    pub reading: String,
}

/// Counters of one thread.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ThreadCounters {
    /// Number of the thread in the engine's pool; 0 drives the step.
    pub thread: u32,
    /// Core (logical CPU) it was last seen on.
    pub core: Option<u32>,
    /// CPU cycles.
    pub cycles: Option<u64>,
    /// Instructions retired.
    pub instructions: Option<u64>,
    /// `instructions / cycles`, only from real counters.
    pub ipc: Option<f64>,
    /// Last-level cache references.
    pub cache_references: Option<u64>,
    /// Last-level cache misses.
    pub cache_misses: Option<u64>,
    /// Branches retired.
    pub branches: Option<u64>,
    /// Branches predicted wrong.
    pub branch_misses: Option<u64>,
    /// Time on a CPU, milliseconds.
    pub cpu_ms: Option<f64>,
    /// Page faults, minor and major.
    pub page_faults: Option<u64>,
    /// Context switches.
    pub context_switches: Option<u64>,
    /// Moves to another core.
    pub migrations: Option<u64>,
}

/// Hardware counters of one brick.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BrickCounters {
    /// Which brick.
    pub id: BrickId,
    /// Calls sampled.
    pub calls: u64,
    /// `instructions / cycles`.
    pub ipc: Option<f64>,
    /// Last-level cache misses in a thousand instructions.
    pub cache_mpki: Option<f64>,
    /// Branch misses in a thousand instructions.
    pub branch_mpki: Option<f64>,
}

/// What the system shows of the machine. `None` where it does not.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SystemFigures {
    /// Mean frequency of the CPUs this process may use, MHz.
    pub frequency_mhz: Option<f64>,
    /// Highest frequency the CPUs may run at, MHz.
    pub frequency_max_mhz: Option<f64>,
    /// Frequency of the invariant time-stamp counter, MHz.
    pub tsc_mhz: Option<f64>,
    /// Frequency governor.
    pub governor: Option<String>,
    /// Hottest sensor of the CPU, degrees Celsius.
    pub temperature_c: Option<f64>,
    /// Share of CPU time that the hypervisor gave to others since the last reading, 0 to 1.
    pub steal_share: Option<f64>,
    /// Share of all CPUs' time in use since the last reading, by anybody, 0 to 1.
    pub busy_share: Option<f64>,
    /// Load average over a minute.
    pub load_1m: Option<f64>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub huge_page_mode: Option<String>,
    /// Highest drop of decode throughput over the run, 0 to 1: the median of the first tokens against that of the last.
    pub throughput_drop: Option<f64>,
    /// Warnings worth acting on: a governor that is not `performance`, frequency under 90% of the highest, steal, a drop.
    pub warnings: Vec<String>,
}

/// What profiling costs and how it is done.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Profiling {
    /// `immediate`, `per_layer`, `deferred` or `none`.
    pub mode: String,
    /// What its times are: where barriers are added, and what it cannot know.
    pub says: String,
    /// Stamps taken in a decode step, all threads together.
    pub stamps_per_step: u64,
    /// Cost of one stamp, nanoseconds, measured at start.
    pub stamp_ns: Option<f64>,
    /// Share of a decode step that stamping takes on one thread, by the two figures above, 0 to 1.
    pub stamp_share: Option<f64>,
    /// Wall time of a decode step by the system's clock, from before it begins to after its token is sampled, microseconds,
    /// mean of those that ran without a stop.
    #[serde(default)]
    pub wall_us: Option<f64>,
    /// What the rows of the brick table, named gaps among them, sum to in a step, over the same steps, microseconds.
    #[serde(default)]
    pub accounted_us: Option<f64>,
}

/// Times of work outside the engine, by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NamedRow {
    /// What it is.
    pub name: String,
    /// How often it was done.
    pub calls: u64,
    /// Time in all, microseconds.
    pub total_us: f64,
    /// Mean, microseconds; `None` before the first.
    pub mean_us: Option<f64>,
    /// Standard deviation, microseconds; `None` with fewer than two.
    pub stddev_us: Option<f64>,
    /// Median, microseconds (histogram, within 4%).
    pub p50_us: Option<f64>,
    /// 99th percentile, microseconds.
    pub p99_us: Option<f64>,
    /// Longest, microseconds.
    pub max_us: Option<f64>,
}

/// A task of an event loop.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct AsyncTask {
    /// Its name.
    pub name: String,
    /// Times it was polled.
    pub polls: u64,
    /// Times it was ready.
    pub ready: u64,
    /// Time inside polls, microseconds.
    pub total_us: f64,
    /// Median poll, microseconds; `None` before the first.
    pub p50_us: Option<f64>,
    /// 99th percentile poll, microseconds.
    pub p99_us: Option<f64>,
    /// Longest poll, microseconds.
    pub max_us: Option<f64>,
    /// Polls longer than 100 us: they block everything else on the loop.
    pub blocking: u64,
    /// What woke it, most often first.
    pub wakes: Vec<(String, u64)>,
}
