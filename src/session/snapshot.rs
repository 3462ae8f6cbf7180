//! What the session knows at one moment: the only thing the dashboard, headless text and the JSON report read.
//!
//! A snapshot is plain data. Units are in the field names; `None` means "not known", never zero.

pub use super::playback::{Playback, Scrub, Speed};
pub use crate::engine::config::EngineInfo;
pub use crate::engine::knobs::Setting;
pub use crate::model::ModelInfo;
pub use crate::profiler::figures::{
    Anomaly, AsyncTask, BrickCounters, BrickRow, Cause, Counters, CriticalNode, CriticalPath,
    HeatRow, KernelInfo, Latency, LatencyBucket, LayerRow, MachineInfo, MemoryInfo, NamedRow, Peak,
    PeakKind, Phases, Profiling, Rates, RoofPoint, Roofline, StepEvent, StepTrace, Support,
    SystemFigures, ThreadCounters, ThreadSpan, ThreadTrace, TokenTime,
};
pub use crate::trace::figures::TraceFrame;
pub use crate::tracer::figures::{TracerFrame, TracerKind};
pub use crate::tuner::recommendation::{
    BanditArm, BanditFrame, BottleneckFrame, Interval, LimitFrame, RaceFrame, Recommendation,
    RecommendationStatus, TunerFrame,
};
pub use crate::tuner::run::Subject;

use crate::engine::tensor_stats::null_is_nan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One moment of a session.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
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
    /// This run as the tuner knows it, with the machine's peaks at all threads; `None` with modelled time.
    #[serde(default)]
    pub subject: Option<Arc<Subject>>,
    /// Tokens in the kv cache.
    pub context_used: u32,
    /// Throughput figures of the current run.
    pub rates: Rates,
    /// Where the time of the current run went.
    pub phases: Phases,
    /// Per-brick statistics of decode steps since the last restart or change of configuration,
    /// in the order the bricks run, `Sync` and `Unattributed` last.
    pub bricks: Vec<BrickRow>,
    /// What `Attention` consists of over decode steps (scores, softmax, weighted values), timed on thread 0 inside it: part
    /// of its row, not beside it.
    #[serde(default)]
    pub attention_parts: Vec<BrickRow>,
    /// Per-brick statistics of prefill chunks, same order and meaning.
    pub prefill_bricks: Vec<BrickRow>,
    /// Per-layer times of decode steps.
    pub layers: Vec<LayerRow>,
    /// The last step, brick by brick, in execution order (the timeline and the step-layer cursor).
    pub last_step: Option<StepTrace>,
    /// Layer by brick: times of decode steps.
    #[serde(default)]
    pub heat: Vec<HeatRow>,
    /// The kernels of the model's plan, in its order.
    #[serde(default)]
    pub kernels: Arc<Vec<KernelInfo>>,
    /// What bounds a decode step.
    pub critical_path: Option<CriticalPath>,
    /// Roofs of the machine and the bricks under them.
    #[serde(default)]
    pub roofline: Roofline,
    /// Times of decode steps.
    #[serde(default)]
    pub latency: Latency,
    /// The newest decoded tokens, oldest first, at most 512.
    #[serde(default)]
    pub token_times: Vec<TokenTime>,
    /// Tokens that took longer than their neighbours, oldest first, at most 64.
    #[serde(default)]
    pub anomalies: Vec<Anomaly>,
    /// What the processor and the system count; `None` with modelled time.
    #[serde(default)]
    pub counters: Option<Counters>,
    /// How profiling is done and what it costs.
    #[serde(default)]
    pub profiling: Profiling,
    /// What the session does between steps; empty with modelled time.
    #[serde(default)]
    pub host: Vec<NamedRow>,
    /// Memory and operating-system counters.
    pub memory: MemoryInfo,
    /// The prompt of the run.
    pub prompt: String,
    /// Tokens generated in this run, oldest first, at most 4096 (older ones are dropped from the front).
    pub tokens: Vec<GeneratedToken>,
    /// Tokens generated in this run, those dropped from `tokens` included.
    pub generated: u64,
    /// Open, applying and finished recommendations; order is stable.
    pub recommendations: Vec<Recommendation>,
    /// What the tuner's models say of the moment; `None` until they have figures, and with modelled time.
    #[serde(default)]
    pub tuner: Option<Arc<TunerFrame>>,
    /// One line for the user about the last thing that happened (a refused command, a finished change).
    pub message: Option<Message>,
    /// Where a replay stands; `None` while a session runs. Part of no report and no recording.
    #[serde(skip)]
    pub playback: Option<Playback>,
    /// What the trace pane shows; `None` until something was traced. Part of no report and no recording: `cbtop trace`
    /// writes traces.
    #[serde(skip)]
    pub trace: Option<Arc<TraceFrame>>,
    /// What the tracers found; `None` while none is on.
    #[serde(default)]
    pub tracer: Option<Arc<TracerFrame>>,
}

impl Snapshot {
    /// Whether this is a saved trace, shown without a model.
    pub fn is_saved_trace(&self) -> bool {
        self.playback.is_some() && self.trace.is_some() && self.model.n_vocab == 0
    }
}

/// `Snapshot::tokens` keeps at most this many.
pub const MAX_TOKENS_SHOWN: usize = 4096;

/// What the session is doing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
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
    #[default]
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

/// One generated token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GeneratedToken {
    /// Token id.
    pub id: u32,
    /// Its text; bytes that do not yet form a character are held back and come with the token that completes them.
    pub text: String,
    /// Probability under the model's distribution (temperature 1, no cut); not a number where the model's logits are none.
    #[serde(deserialize_with = "null_is_nan")]
    pub prob: f32,
    /// Time in the engine, microseconds.
    pub us: f64,
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
    /// Try all open recommendations one after the other, keep what makes it faster; or stop doing so.
    TryAll,
    /// Let a bandit choose among kernel variants as tokens are generated, or no longer.
    Bandit(bool),
    /// Clear statistics, keep generating.
    ResetStats,
    /// Run statements of the TRACE language; pictures go to the trace pane.
    Trace(String),
    /// End the statement that runs, and those that wait.
    StopTrace,
    /// Trace generated tokens as they come, or no longer.
    FollowTrace(bool),
    /// Keep the trace shown beside the next ones, or, where one is kept, no longer.
    KeepTrace,
    /// Switch a tracer on or off.
    Tracer(TracerKind, bool),
    /// Show this head of this layer, both from 0, over the queries that are kept.
    FocusHead(u32, u32),
    /// Measure the error of the whole model on the first 64 tokens of the text, or stop measuring.
    MeasureError(bool),
    /// Move within a recording; a running session has none and says so.
    Scrub(Scrub),
    /// End the session.
    Quit,
}
