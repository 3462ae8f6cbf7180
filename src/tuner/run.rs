//! What was measured on what: the rows that the tuner learns from, and the questions it is asked.
//!
//! A [`Trial`] is a question: this test, with these settings, of this model, on this machine. A [`Run`] is a trial with
//! what came out. Rows of the public data sets and of this machine are alike; what is not known of them is `None`.

use crate::engine::knobs::Setting;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Kind of a machine's processor.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum MachineKind {
    /// A general-purpose processor.
    #[default]
    Cpu,
    /// A graphics card.
    Gpu,
    /// Apple silicon, one memory for both.
    Apple,
}

/// What a model runs on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Hardware {
    /// Name, as the processor or a hardware table has it.
    pub name: String,
    /// Kind.
    pub kind: MachineKind,
    /// Identifies the machine: equal for the same machine at another time, distinct for others; holds no name of host or
    /// user. For a row of public data it is made of the hardware's name.
    pub fingerprint: String,
    /// Read bandwidth with all threads, GB/s (10^9): probed here, the data sheet's in public data.
    pub mem_gbps: Option<f64>,
    /// Peak of FP32 (FP16 where only that is known, as on graphics cards), GFLOP/s.
    pub gflops: Option<f64>,
    /// Peak of int8 products, GOP/s.
    pub int8_gops: Option<f64>,
    /// Cores of a processor, streaming multiprocessors of a graphics card.
    pub cores: Option<u32>,
    /// Last-level cache, MB (10^6).
    pub cache_mb: Option<f64>,
    /// Memory, GB (10^9).
    pub memory_gb: Option<f64>,
}

/// What runs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ModelShape {
    /// Name.
    pub name: String,
    /// Architecture, empty where not known.
    pub arch: String,
    /// Quantisation in llama.cpp's naming, without a dash's rest: `Q4_K_M`, `Q8_0`, `F16`.
    pub quant: String,
    /// Parameters.
    pub params: f64,
    /// Parameters read for one token: fewer than `params` where experts are chosen.
    pub active_params: Option<f64>,
    /// Bytes of weights read for one token of one sequence: every weight once, the experts that are used.
    pub weight_bytes: f64,
    /// Bytes of the kv cache a token of context adds, with an f16 cache.
    pub kv_bytes_per_token: Option<f64>,
    /// Width of the residual stream.
    pub hidden: Option<u32>,
    /// Layers.
    pub layers: Option<u32>,
    /// Query heads.
    pub heads: Option<u32>,
    /// Elements of a head.
    pub head_dim: Option<u32>,
    /// Vocabulary.
    pub vocab: Option<u32>,
}

impl ModelShape {
    /// Whether two models run alike: all but their names is the same. A sweep calls a model as its file, a session by the
    /// name within.
    pub fn is_alike(&self, other: &Self) -> bool {
        let nameless = |m: &Self| Self {
            name: String::new(),
            ..m.clone()
        };
        nameless(self) == nameless(other)
    }
}

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Test {
    /// Tokens of the prompt; 0 in a test of generation.
    pub prompt: u32,
    /// Tokens generated; 0 in a test of prompts.
    pub generated: u32,
    /// Tokens in the cache before.
    pub depth: u32,
    /// Sequences run together.
    pub batch: u32,
}

impl Test {
    /// Reading a prompt of so many tokens into an empty cache, one sequence.
    pub fn of_prompt(prompt: u32) -> Self {
        Self {
            prompt,
            generated: 0,
            depth: 0,
            batch: 1,
        }
    }

    /// Generating so many tokens behind `depth` others, one sequence.
    pub fn of_generation(generated: u32, depth: u32) -> Self {
        Self {
            prompt: 0,
            generated,
            depth,
            batch: 1,
        }
    }
}

impl Test {
    /// Whether it is a test of generation.
    pub fn is_decode(&self) -> bool {
        self.generated > 0
    }

    /// Mean tokens of context of a sequence over the test.
    pub fn mean_context(&self) -> f64 {
        f64::from(self.depth) + f64::from(self.prompt.max(self.generated)) / 2.0
    }
}

impl fmt::Display for Test {
    /// llama-bench's name: `pp512`, `tg128 @ d1024`; with several sequences ` x 4`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.prompt, self.generated) {
            (p, 0) => write!(f, "pp{p}")?,
            (0, g) => write!(f, "tg{g}")?,
            (p, g) => write!(f, "pp{p}+tg{g}")?,
        }
        if self.depth > 0 {
            write!(f, " @ d{}", self.depth)?;
        }
        match self.batch {
            0 | 1 => Ok(()),
            n => write!(f, " x {n}"),
        }
    }
}

/// A configuration as the tuner knows it: a question but for the test.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Subject {
    /// The machine.
    pub hardware: Hardware,
    /// The model.
    pub model: ModelShape,
    /// The program and its backend.
    pub backend: String,
    /// All knobs.
    pub settings: Vec<Setting>,
}

fn value_of<'a>(settings: &'a [Setting], knob: &str) -> Option<&'a str> {
    let found = settings.iter().find(|s| s.knob == knob)?;
    Some(&found.value)
}

impl Subject {
    /// The value of a knob.
    pub fn setting(&self, knob: &str) -> Option<&str> {
        value_of(&self.settings, knob)
    }

    /// The question of how fast it does a test.
    pub fn trial(&self, test: Test) -> Trial {
        Trial {
            hardware: self.hardware.clone(),
            model: self.model.clone(),
            backend: self.backend.clone(),
            test,
            settings: self.settings.clone(),
        }
    }
}

/// A question: how fast is this?
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The machine.
    pub hardware: Hardware,
    /// The model.
    pub model: ModelShape,
    /// The program and its backend: `cbtop cpu`, `llama.cpp CUDA`.
    pub backend: String,
    /// The test.
    pub test: Test,
    /// Knobs, in the order of the engine's table; of public rows only those that are known.
    pub settings: Vec<Setting>,
}

impl Trial {
    /// The value of a knob.
    pub fn setting(&self, knob: &str) -> Option<&str> {
        value_of(&self.settings, knob)
    }

    /// The same trial with some knobs turned; a knob that was not known is added.
    pub fn with(&self, settings: &[Setting]) -> Self {
        let mut trial = self.clone();
        for s in settings {
            match trial.settings.iter_mut().find(|t| t.knob == s.knob) {
                Some(t) => t.value.clone_from(&s.value),
                None => trial.settings.push(s.clone()),
            }
        }
        trial
    }

    /// Identifies it in a store: machine, model, backend, test and settings, with nothing measured.
    pub fn key(&self) -> String {
        let settings: Vec<String> = self
            .settings
            .iter()
            .map(|s| format!("{}={}", s.knob, s.value))
            .collect();
        format!(
            "{}|{}|{}|{}|{}|{}",
            self.hardware.fingerprint,
            self.model.name,
            self.model.quant,
            self.backend,
            self.test,
            settings.join(";")
        )
    }
}

/// Where a run comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// `cbtop tune collect`.
    Collect,
    /// `cbtop calibrate`.
    Calibrate,
    /// A change that was applied and measured in a session.
    Feedback,
    /// A report of others; [`Run::source`] says whose.
    Public,
}

impl Origin {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Collect, Self::Calibrate, Self::Feedback, Self::Public];

    /// Name as in the store and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Collect => "collect",
            Self::Calibrate => "calibrate",
            Self::Feedback => "feedback",
            Self::Public => "public",
        }
    }
}

/// Shares of a step's time by what limits it, measured under the probed roofs; they sum to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct TimeShares {
    /// Bricks limited by memory, attention apart.
    pub memory: f64,
    /// Bricks limited by arithmetic or caches, attention apart.
    pub compute: f64,
    /// Waiting, dispatch and calls too short for either.
    pub launch: f64,
    /// Attention over the cache, whatever limits it.
    pub attention: f64,
    /// Bricks of which it is not known.
    pub unknown: f64,
}

impl TimeShares {
    /// Those of the classes a bottleneck may be of, in the order of [`CLASSES`](super::learn::logistic::CLASSES).
    pub fn of_classes(&self) -> [f64; 4] {
        [self.memory, self.compute, self.launch, self.attention]
    }
}

/// A trial and what came out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What was run.
    pub trial: Trial,
    /// Where it comes from.
    pub origin: Origin,
    /// The report it was taken from, or the program and version that measured it.
    pub source: String,
    /// When, seconds since 1970 UTC; `None` in reports without a time.
    pub unix_s: Option<i64>,
    /// Mean rate of the repetitions, tokens a second over all sequences.
    pub tok_s: f64,
    /// Standard deviation of the repetitions, tokens a second; `None` with one repetition or where it is not reported.
    pub stddev: Option<f64>,
    /// Repetitions counted, warm-up apart; 1 where not reported.
    pub repetitions: u32,
    /// Whether a warm-up ran before them; `None` where not reported.
    pub warm: Option<bool>,
    /// CPU time of other programs meanwhile, as a share of all CPUs; `None` where not measured.
    pub background: Option<f64>,
    /// Where a step's time went, from a profiled pass of the same trial.
    pub shares: Option<TimeShares>,
}

impl Run {
    /// Coefficient of variation of the repetitions, a share.
    pub fn cv(&self) -> Option<f64> {
        self.stddev
            .filter(|_| self.tok_s > 0.0)
            .map(|s| s / self.tok_s)
    }
}
