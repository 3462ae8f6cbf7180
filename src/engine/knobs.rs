//! Every choice of the engine as data: what the tuner tries, a profile saves, a recommendation changes.
//!
//! A knob is an entry of [`KNOBS`]; whoever reads the table needs no code for a new one. Names and values are text, as in
//! flags, profiles and the run store.

use super::config::{AttentionPasses, Schedule, Waiting};
use super::cpu::KernelSet;
use super::cpu::prefetch::Prefetch;
use super::kernels_for::KernelsFor;
use super::{Config, KvType, SyncMode};
use crate::gguf::{GgmlType, LoadMethod, LoadOptions, MapAdvice};
use crate::model::Hparams;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// All that is set about how a model runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// The engine's.
    pub config: Config,
    /// How the weights are in memory.
    pub load: LoadOptions,
    /// How far the profiler keeps threads in step.
    pub sync_mode: SyncMode,
}

/// What there is to choose from here.
#[derive(Debug, Clone, Copy)]
pub struct Around<'a> {
    /// CPUs this process may use.
    pub cpus: usize,
    /// Cores behind them, hyperthreads counted once.
    pub cores: usize,
    /// The model's shapes.
    pub hparams: &'a Hparams,
    /// Types of the matrices of a layer, without repetition.
    pub types: &'a [GgmlType],
    /// Bytes of the file; zero where the weights are part of the program and stay where they are.
    pub file_bytes: u64,
    /// Memory that could be used now, bytes; zero where not known.
    pub memory_available: u64,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
}

/// Which steps a knob shows in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActsOn {
    /// Those of single tokens.
    Decode,
    /// Those of a prompt.
    Prefill,
    /// Both.
    Both,
}

/// What it takes to turn a knob in a running session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    /// The engine is built again, and the text so far read again.
    Rebuild,
    /// The weights are loaded again as well.
    Reload,
}

/// What changes in the numbers a model computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// Logits are the same to the last bit.
    Same,
    /// Sums are in another order: logits differ by rounding.
    Rounding,
    /// Logits differ by more than that.
    Precision,
}

/// One choice of the engine.
pub struct Knob {
    /// Name in profiles, in the store and among what a user set.
    pub name: &'static str,
    /// The flag that sets it.
    pub flag: &'static str,
    /// What it is, without its full stop.
    pub what: &'static str,
    /// What may become worse.
    pub risk: &'static str,
    /// Which steps show it.
    pub acts_on: ActsOn,
    /// What turning it takes.
    pub cost: Cost,
    /// What it does to the numbers.
    pub numbers: Numbers,
    /// The value now.
    pub get: fn(&Setup) -> String,
    /// Sets a value; the error says what would be one. Ranges are checked by [`Config::check`].
    pub set: fn(&mut Setup, &str) -> Result<(), String>,
    /// Values worth trying here, in a stable order; the present one may be among them.
    pub values: fn(&Around) -> Vec<String>,
    /// Whether turning it to one of its values changes anything in a setup, where that is known without a try.
    pub has_effect: fn(&Around, &Setup, &str) -> bool,
    /// Names of the columns that stand for it in a feature vector.
    pub columns: &'static [&'static str],
    /// Fills them, each from 0 to 1; a value that is not known leaves all of them zero.
    pub encode: fn(&str, &mut [f32]),
    /// The flags of llama.cpp that do the same, where there are some.
    pub llama_cpp: fn(&str) -> Option<String>,
}

/// A knob and a value for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// Name of the knob.
    pub knob: String,
    /// Its value.
    pub value: String,
}

impl Setting {
    /// A setting.
    pub fn new(knob: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            knob: knob.into(),
            value: value.into(),
        }
    }
}

/// The knob of a name.
pub fn knob(name: &str) -> Option<&'static Knob> {
    KNOBS.iter().find(|k| k.name == name)
}

/// Number of columns that all knobs have in a feature vector.
pub const KNOB_COLUMNS: usize = {
    let (mut n, mut i) = (0, 0);
    while i < KNOBS.len() {
        n += KNOBS[i].columns.len();
        i += 1;
    }
    n
};

impl Setup {
    /// The values of all knobs, in the order of the table.
    pub fn settings(&self) -> Vec<Setting> {
        let setting = |k: &Knob| Setting::new(k.name, (k.get)(self));
        KNOBS.iter().map(setting).collect()
    }

    /// This with some knobs turned, checked.
    ///
    /// # Errors
    /// A knob that does not exist, a value it does not have, or a combination that cannot run, in one line.
    pub fn with(&self, settings: &[Setting]) -> Result<Self, String> {
        let mut setup = self.clone();
        for s in settings {
            let knob = knob(&s.knob).ok_or_else(|| {
                let names: Vec<_> = KNOBS.iter().map(|k| k.name).collect();
                format!(
                    "there is no knob '{}'; these are: {}",
                    s.knob,
                    names.join(", ")
                )
            })?;
            (knob.set)(&mut setup, &s.value)?;
        }
        setup.config.check().map_err(|e| e.to_string())?;
        Ok(setup)
    }

    /// The knobs that stand otherwise in `other`, with its values.
    pub fn changes_to(&self, other: &Self) -> Vec<Setting> {
        let now = self.settings();
        let then = other.settings();
        let differs = |(a, b): (&Setting, Setting)| (*a != b).then_some(b);
        now.iter().zip(then).filter_map(differs).collect()
    }
}

/// `n` as a share of `most` on a logarithmic scale, 0 to 1.
fn log_share(n: f64, most: f64) -> f32 {
    ((1.0 + n.max(0.0)).log2() / (1.0 + most).log2()).clamp(0.0, 1.0) as f32
}

fn number(value: &str, knob: &str) -> Result<usize, String> {
    value
        .parse()
        .map_err(|_| format!("'{value}' is no number for {knob}; give a whole one"))
}

fn one_hot(value: &str, names: &[&str], columns: &mut [f32]) {
    for (column, name) in columns.iter_mut().zip(names) {
        *column = f32::from(*name == value);
    }
}

fn names(values: impl IntoIterator<Item = &'static str>) -> Vec<String> {
    values.into_iter().map(str::to_owned).collect()
}

/// For knobs of which nothing better is known.
fn always(_: &Around, _: &Setup, _: &str) -> bool {
    true
}

/// Kernel sets as they stand in a feature vector; the last one is every other.
const KERNEL_COLUMNS: &[&str] = &["scalar", "avx2", "avx512", "neon", "dotprod"];

/// Every choice of the engine.
pub const KNOBS: &[Knob] = &[
    Knob {
        name: "threads",
        flag: "--threads",
        what: "threads that compute, the calling one included",
        risk: "other programs lose the CPUs it takes",
        acts_on: ActsOn::Both,
        cost: Cost::Rebuild,
        numbers: Numbers::Same,
        get: |s| s.config.threads.to_string(),
        set: |s, v| {
            s.config.threads = number(v, "threads")?;
            Ok(())
        },
        values: |a| {
            let mut n: Vec<usize> = (0..)
                .map(|i| 1 << i)
                .take_while(|n| *n < a.cpus)
                .chain([a.cores, a.cores.saturating_sub(1), a.cpus])
                .filter(|n| *n > 0)
                .collect();
            n.sort_unstable();
            n.dedup();
            n.iter().map(ToString::to_string).collect()
        },
        has_effect: always,
        columns: &["threads_log"],
        encode: |v, c| c[0] = log_share(v.parse().unwrap_or(0.0), 512.0),
        llama_cpp: |v| Some(format!("--threads {v}")),
    },
    Knob {
        name: "pin",
        flag: "--pin",
        what: "every thread on a CPU of its own",
        risk: "a busy CPU is not left to others",
        acts_on: ActsOn::Both,
        cost: Cost::Rebuild,
        numbers: Numbers::Same,
        get: |s| on_off(s.config.pin),
        set: |s, v| {
            s.config.pin = is_on(v, "pin")?;
            Ok(())
        },
        values: |_| names(["off", "on"]),
        has_effect: always,
        columns: &["pin"],
        encode: |v, c| c[0] = f32::from(v == "on"),
        llama_cpp: |v| (v == "on").then(|| "--cpu-strict 1".into()),
    },
    Knob {
        name: "backend",
        flag: "--backend",
        what: "kernel set",
        risk: "sums in another order: logits differ by rounding",
        acts_on: ActsOn::Both,
        cost: Cost::Rebuild,
        numbers: Numbers::Rounding,
        get: |s| s.config.kernels.name().into(),
        set: |s, v| {
            s.config.kernels = kernel_set(v)?;
            Ok(())
        },
        values: |_| names(KernelSet::available().iter().map(|k| k.name())),
        has_effect: always,
        columns: &[
            "kernel_scalar",
            "kernel_avx2",
            "kernel_avx512",
            "kernel_neon",
            "kernel_dotprod",
        ],
        encode: |v, c| one_hot(v, KERNEL_COLUMNS, c),
        llama_cpp: |_| None,
    },
    Knob {
        name: "kernels-for",
        flag: "--kernels-for",
        what: "kernel sets of single weight types",
        risk: "sums in another order: logits differ by rounding",
        acts_on: ActsOn::Both,
        cost: Cost::Rebuild,
        numbers: Numbers::Rounding,
        get: |s| s.config.kernels_for.to_string(),
        set: |s, v| {
            s.config.kernels_for = v.parse()?;
            Ok(())
        },
        values: |a| {
            // One other set for one type at a time: together they are what a search puts together.
            let best = KernelSet::best();
            let sets: Vec<KernelSet> = KernelSet::available()
                .into_iter()
                .filter(|k| *k != best && *k != KernelSet::Scalar)
                .collect();
            let one = |ty: &GgmlType, set: KernelSet| {
                let mut choice = KernelsFor::default();
                choice.insert(*ty, set);
                choice.to_string()
            };
            let types = a.types.iter();
            let all = types.flat_map(|ty| sets.iter().map(move |set| one(ty, *set)));
            std::iter::once("none".to_owned()).chain(all).collect()
        },
        has_effect: |_, s, v| {
            let Ok(choice) = v.parse::<KernelsFor>() else {
                return true;
            };
            choice.is_empty()
                || choice
                    .iter()
                    .any(|(ty, set)| s.config.kernels_of(ty) != set)
        },
        columns: &["kernels_mixed"],
        encode: |v, c| c[0] = f32::from(!v.is_empty() && v != "none"),
        llama_cpp: |_| None,
    },
    Knob {
        name: "schedule",
        flag: "--schedule",
        what: "how matrix rows are given to threads",
        risk: "fixed shares wait for the slowest thread",
        acts_on: ActsOn::Both,
        cost: Cost::Rebuild,
        numbers: Numbers::Same,
        get: |s| s.config.schedule.name().into(),
        set: |s, v| {
            s.config.schedule = v.parse()?;
            Ok(())
        },
        values: |_| names([Schedule::Dynamic.name(), Schedule::Static.name()]),
        has_effect: always,
        columns: &["schedule_static"],
        encode: |v, c| c[0] = f32::from(v == "static"),
        llama_cpp: |_| None,
    },
    Knob {
        name: "waiting",
        flag: "--waiting",
        what: "how threads wait for each other",
        risk: "spinning takes the CPU from others; sleeping costs a wake at every barrier",
        acts_on: ActsOn::Both,
        cost: Cost::Rebuild,
        numbers: Numbers::Same,
        get: |s| s.config.waiting.name().into(),
        set: |s, v| {
            s.config.waiting = v.parse()?;
            Ok(())
        },
        values: |_| names(Waiting::ALL.iter().map(|w| w.name())),
        has_effect: always,
        columns: &["waiting_sleep"],
        encode: |v, c| c[0] = f32::from(v == "sleep"),
        llama_cpp: |v| match v {
            "spin" => Some("--poll 100".into()),
            "sleep" => Some("--poll 0".into()),
            _ => None,
        },
    },
    Knob {
        name: "prefetch",
        flag: "--prefetch",
        what: "bytes ahead that decode fetches weights",
        risk: "fetched too far ahead, weights leave the cache before they are used",
        acts_on: ActsOn::Decode,
        cost: Cost::Rebuild,
        numbers: Numbers::Same,
        get: |s| s.config.prefetch.to_string(),
        set: |s, v| {
            s.config.prefetch = v.parse()?;
            Ok(())
        },
        values: |_| names(["0", "1024", "4096", "8192", "4096:none"]),
        has_effect: always,
        columns: &["prefetch_log", "prefetch_past_caches"],
        encode: |v, c| {
            let prefetch = Prefetch::from_str(v);
            c[0] = prefetch
                .as_ref()
                .map_or(0.0, |p| log_share(p.ahead as f64, 65536.0));
            c[1] = f32::from(v.ends_with(":none"));
        },
        llama_cpp: |_| None,
    },
    Knob {
        name: "attention",
        flag: "--attention",
        what: "how queries read the kv cache",
        risk: "a pass for every query reads the cache more often",
        acts_on: ActsOn::Both,
        cost: Cost::Rebuild,
        numbers: Numbers::Rounding,
        get: |s| s.config.attention.name().into(),
        set: |s, v| {
            s.config.attention = v.parse()?;
            Ok(())
        },
        values: |_| names(AttentionPasses::ALL.iter().map(|a| a.name())),
        has_effect: always,
        columns: &["attention_single"],
        encode: |v, c| c[0] = f32::from(v == "single"),
        llama_cpp: |_| None,
    },
    Knob {
        name: "kv-type",
        flag: "--kv-type",
        what: "element type of the kv cache",
        risk: "another type rounds keys and values otherwise: answers may differ",
        acts_on: ActsOn::Both,
        cost: Cost::Rebuild,
        numbers: Numbers::Precision,
        get: |s| s.config.kv_type.name().into(),
        set: |s, v| {
            s.config.kv_type = v.parse()?;
            Ok(())
        },
        values: |a| {
            let fits = |t: &KvType| {
                [a.hparams.head_dim_k, a.hparams.head_dim_v]
                    .iter()
                    .all(|d| d.is_multiple_of(t.block()))
            };
            names(KvType::ALL.iter().filter(|t| fits(t)).map(|t| t.name()))
        },
        has_effect: always,
        columns: &["kv_bytes"],
        encode: |v, c| {
            let bytes = KvType::from_str(v).map_or(0, |t| t.bytes(32));
            c[0] = bytes as f32 / KvType::F32.bytes(32) as f32;
        },
        llama_cpp: |v| Some(format!("--cache-type-k {v} --cache-type-v {v}")),
    },
    Knob {
        name: "chunk",
        flag: "--chunk",
        what: "tokens of a prompt processed at once",
        risk: "a larger chunk takes more memory and answers commands later",
        acts_on: ActsOn::Prefill,
        cost: Cost::Rebuild,
        numbers: Numbers::Rounding,
        get: |s| s.config.chunk.to_string(),
        set: |s, v| {
            s.config.chunk = number(v, "chunk")?;
            Ok(())
        },
        values: |a| {
            let useful = |n: &usize| n / 2 < a.prompt_tokens.max(512);
            let sizes = [32, 64, 128, 256, 512, 1024].into_iter().filter(useful);
            sizes.map(|n| n.to_string()).collect()
        },
        has_effect: |a, s, v| {
            let chunks = |size: usize| a.prompt_tokens.div_ceil(size.max(1));
            v.parse().is_ok_and(|n| chunks(n) != chunks(s.config.chunk))
        },
        columns: &["chunk_log"],
        encode: |v, c| c[0] = log_share(v.parse().unwrap_or(0.0), 4096.0),
        llama_cpp: |v| Some(format!("--ubatch-size {v}")),
    },
    Knob {
        name: "load",
        flag: "--load, --load-advice, --huge-pages",
        what: "how the weights are in memory",
        risk: "a copy takes memory that no other process shares, and time at the start",
        acts_on: ActsOn::Both,
        cost: Cost::Reload,
        numbers: Numbers::Same,
        get: |s| load_name(s.load),
        set: |s, v| {
            s.load = load_options(v)?;
            Ok(())
        },
        values: |a| {
            if a.file_bytes == 0 {
                return Vec::new();
            }
            let copies = a.memory_available / 4 >= a.file_bytes;
            names(["mmap,willneed", "mmap,random"])
                .into_iter()
                .chain(
                    names(["read", "read,huge-pages"])
                        .into_iter()
                        .filter(|_| copies),
                )
                .collect()
        },
        has_effect: always,
        columns: &["weights_copied", "huge_pages"],
        encode: |v, c| {
            c[0] = f32::from(v.starts_with("read") || v.starts_with("direct"));
            c[1] = f32::from(v.ends_with("huge-pages"));
        },
        llama_cpp: |v| {
            (v.starts_with("read") || v.starts_with("direct")).then(|| "--no-mmap".into())
        },
    },
    Knob {
        name: "sync-mode",
        flag: "--sync-mode",
        what: "how far the profiler keeps threads in step",
        risk: "with none, times of bricks are not known",
        acts_on: ActsOn::Both,
        cost: Cost::Rebuild,
        numbers: Numbers::Same,
        get: |s| s.sync_mode.name().into(),
        set: |s, v| {
            s.sync_mode = v.parse()?;
            Ok(())
        },
        values: |_| names(SyncMode::ALL.iter().map(|m| m.name())),
        has_effect: always,
        columns: &["sync_kept"],
        encode: |v, c| {
            c[0] = match v {
                "immediate" => 1.0,
                "per-layer" => 0.5,
                _ => 0.0,
            }
        },
        llama_cpp: |_| None,
    },
];

fn on_off(on: bool) -> String {
    (if on { "on" } else { "off" }).into()
}

fn is_on(value: &str, knob: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("'{value}' is no value of {knob}; give on or off")),
    }
}

fn kernel_set(name: &str) -> Result<KernelSet, String> {
    name.parse()
        .map_err(|e: super::cpu::KernelSetError| e.to_string())
}

/// `mmap,willneed`, `read` or `read,huge-pages`.
fn load_name(load: LoadOptions) -> String {
    match (load.method, load.huge_pages) {
        (LoadMethod::Mmap, _) => format!("{},{}", load.method.name(), load.advice.name()),
        (method, true) => format!("{},huge-pages", method.name()),
        (method, false) => method.name().into(),
    }
}

fn load_options(value: &str) -> Result<LoadOptions, String> {
    let (method, how) = value.split_once(',').unwrap_or((value, ""));
    let method: LoadMethod = method.parse()?;
    let mut load = LoadOptions {
        method,
        ..LoadOptions::default()
    };
    match (method, how) {
        (_, "") => {}
        (LoadMethod::Mmap, advice) => load.advice = MapAdvice::from_str(advice)?,
        (_, "huge-pages") => load.huge_pages = true,
        _ => {
            return Err(format!(
                "'{value}' is no way of loading; mmap,willneed and read,huge-pages are some"
            ));
        }
    }
    Ok(load)
}
