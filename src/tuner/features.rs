//! A trial as numbers: the columns that every model of the tuner sees.
//!
//! The columns stand in three parts: what is known before a run (model, test, machine and what follows from them), the knobs
//! as [`KNOBS`] encodes them, and what was measured. Predictions of a rate are made from the first two parts alone
//! ([`TunerFeatures::predictors`]), so that no label can leak into them. Every value lies in 0 to 1 and is a number; scales
//! of sizes are logarithmic. What is not known has a neutral value, told in the column's comment.

use super::roofline::{self, Machine};
use super::run::{MachineKind, Run, Trial};
use crate::engine::knobs::{KNOB_COLUMNS, KNOBS};
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// A column with its name and how it follows from a trial.
struct Column {
    name: &'static str,
    of: fn(&Known) -> f32,
}

/// A trial with what is computed from it more than once.
struct Known<'a> {
    trial: &'a Trial,
    machine: Machine,
    bytes_per_token: f64,
    flops_per_token: f64,
    bound: f64,
}

/// Which way a predicted rate may go when a column rises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Either.
    Free,
    /// Only up.
    Up,
    /// Only down.
    Down,
}

/// Columns of numbers known before a run.
const SCALES: &[Column] = &[
    // Parameters, 10^5 to 10^12.
    Column {
        name: "params",
        of: |k| log_scale(k.trial.model.params, 1e5, 1e12),
    },
    // Share of the parameters that a token uses: 1 where it is not known that experts are chosen.
    Column {
        name: "active_share",
        of: |k| {
            let m = &k.trial.model;
            let active = m.active_params.unwrap_or(m.params);
            share(active / m.params, 1.0)
        },
    },
    // Layers, 1 to 128. Not known: 0.5.
    Column {
        name: "layers",
        of: |k| {
            let layers = k.trial.model.layers.map(f64::from);
            layers.map_or(0.5, |n| log_scale(n, 1.0, 128.0))
        },
    },
    // Sequences run together, 1 to 256.
    Column {
        name: "batch",
        of: |k| log_scale(f64::from(k.trial.test.batch.max(1)), 1.0, 256.0),
    },
    // Mean tokens of context, 1 to 131,072.
    Column {
        name: "context",
        of: |k| log_scale(k.trial.test.mean_context(), 1.0, 131_072.0),
    },
    // FLOP for a byte moved, 0.1 to 10^5: tells prompts and generation apart.
    Column {
        name: "intensity",
        of: |k| log_scale(k.flops_per_token / k.bytes_per_token, 0.1, 1e5),
    },
    // A processor 0, Apple silicon 0.5, a graphics card 1.
    Column {
        name: "accelerator",
        of: |k| match k.trial.hardware.kind {
            MachineKind::Cpu => 0.0,
            MachineKind::Apple => 0.5,
            MachineKind::Gpu => 1.0,
        },
    },
    // Read bandwidth, 1 to 10,000 GB/s. Not known: what is usual for the kind.
    Column {
        name: "bandwidth",
        of: |k| log_scale(k.machine.bytes_per_s, 1e9, 1e13),
    },
    // Whether it is known.
    Column {
        name: "bandwidth_known",
        of: |k| f32::from(k.machine.bandwidth_known),
    },
    // Peak rate of arithmetic, 1 to 10^7 GOP/s. Not known: what is usual for the kind and bandwidth.
    Column {
        name: "compute",
        of: |k| log_scale(k.machine.ops_per_s, 1e9, 1e16),
    },
    // Bytes moved for a token, 10^2 to 10^12.
    Column {
        name: "bytes_per_token",
        of: |k| log_scale(k.bytes_per_token, 1e2, 1e12),
    },
    // The bound of the rate, 10^-2 to 10^8 tokens a second.
    Column {
        name: "roofline",
        of: |k| log_scale(k.bound, 1e-2, 1e8),
    },
    // Weights by last-level cache, 2^-10 to 2^10. Not known: 0.9, as of weights far larger than it (2^8 times), which most are.
    Column {
        name: "weights_per_cache",
        of: |k| {
            let cache = k.machine.cache_bytes;
            let weights = k.trial.model.weight_bytes;
            cache.map_or(0.9, |c| log_scale(weights / c, 1.0 / 1024.0, 1024.0))
        },
    },
    // Threads by cores, 0 to 2. Not known, and on graphics cards, whose rate they do not make: 0.5, one for each core.
    Column {
        name: "threads_per_core",
        of: |k| {
            let h = &k.trial.hardware;
            let threads = k.trial.setting("threads").and_then(|v| v.parse().ok());
            match (h.kind, threads, h.cores) {
                (MachineKind::Cpu, Some(t), Some(cores)) if cores > 0 => {
                    let threads: f64 = t;
                    share(threads / f64::from(cores), 2.0)
                }
                _ => 0.5,
            }
        },
    },
    // Off 0, on 1, not known 0.5.
    Column {
        name: "cuda_graphs",
        of: |k| switch(k.trial.setting("cuda-graphs")),
    },
    // Off 0, on 1, not known 0.5.
    Column {
        name: "flash_attention",
        of: |k| switch(k.trial.setting("flash-attn")),
    },
];

/// Programs, one of which is 1. llama.cpp on processors, Apple silicon and ROCm are `other` and told apart by
/// `accelerator`.
const PROGRAMS: [&str; 4] = [
    "program_cbtop",
    "program_cuda",
    "program_vulkan",
    "program_other",
];

/// Quantisations, one of which is 1; close relatives share a column.
const QUANTS: [&str; 8] = [
    "quant_q4_0",
    "quant_q4_k",
    "quant_q5_k",
    "quant_q6_k",
    "quant_q8_0",
    "quant_f16",
    "quant_f32",
    "quant_other",
];

/// Columns of what was measured; 0 without a measurement.
const MEASURED: [&str; 3] = ["bandwidth_use", "compute_use", "layer_time"];

/// Columns that are known before a run, knobs apart.
const STATIC: usize = SCALES.len() + PROGRAMS.len() + QUANTS.len();

/// Columns that a rate is predicted from: all but the measured ones. They come first.
pub const PREDICTORS: usize = STATIC + KNOB_COLUMNS;

/// Columns of a trial.
pub const DIM: usize = PREDICTORS + MEASURED.len();

// More columns than this overfit what there is to learn from (F040): a knob whose columns do not fit asks for another
// column's place.
const _: () = assert!(DIM <= 50);

/// Names of the columns.
pub fn names() -> &'static [&'static str; DIM] {
    static NAMES: LazyLock<[&'static str; DIM]> = LazyLock::new(|| {
        let knobs = KNOBS.iter().flat_map(|k| k.columns.iter().copied());
        let all = SCALES
            .iter()
            .map(|c| c.name)
            .chain(PROGRAMS)
            .chain(QUANTS)
            .chain(knobs)
            .chain(MEASURED);
        let mut names = [""; DIM];
        names.iter_mut().zip(all).for_each(|(n, name)| *n = name);
        names
    });
    &NAMES
}

/// Place of a column.
pub fn column(name: &str) -> Option<usize> {
    names().iter().position(|n| *n == name)
}

/// Groups of columns of which at most one is 1, as names: program, quantisation, kernel set. The first two always have one;
/// the kernel set of programs that do not tell it has none.
pub fn one_hots() -> [&'static [&'static str]; 3] {
    let kernels = KNOBS.iter().find(|k| k.name == "backend");
    [&PROGRAMS, &QUANTS, kernels.map_or(&[], |k| k.columns)]
}

/// Which way a rate may go with each of the predictors. More bandwidth, arithmetic, sequences or intensity never slow a
/// machine down; more bytes never speed it up.
pub fn directions() -> [Direction; PREDICTORS] {
    let mut directions = [Direction::Free; PREDICTORS];
    for (d, name) in directions.iter_mut().zip(names()) {
        *d = match *name {
            "batch" | "bandwidth" | "compute" | "intensity" | "roofline" => Direction::Up,
            "bytes_per_token" | "weights_per_cache" => Direction::Down,
            _ => Direction::Free,
        };
    }
    directions
}

/// What a run showed.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Rate over all sequences, tokens a second.
    pub tok_s: f64,
}

impl From<&Run> for Measured {
    fn from(run: &Run) -> Self {
        Self { tok_s: run.tok_s }
    }
}

/// The columns of a trial, in the order of [`names`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(into = "Vec<f32>", try_from = "Vec<f32>")]
pub struct TunerFeatures([f32; DIM]);

/// A row of another length, or with values outside 0 to 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a row of features has {DIM} values from 0 to 1; write it again with this version")]
pub struct FeaturesError;

impl From<TunerFeatures> for Vec<f32> {
    fn from(f: TunerFeatures) -> Self {
        f.0.to_vec()
    }
}

impl TryFrom<Vec<f32>> for TunerFeatures {
    type Error = FeaturesError;

    fn try_from(v: Vec<f32>) -> Result<Self, FeaturesError> {
        let values: [f32; DIM] = v.try_into().map_err(|_| FeaturesError)?;
        let whole = values.iter().all(|v| (0.0..=1.0).contains(v));
        whole.then_some(Self(values)).ok_or(FeaturesError)
    }
}

impl TunerFeatures {
    /// The columns of a trial. Without a measurement the measured ones are 0.
    pub fn of(trial: &Trial, measured: Option<&Measured>) -> Self {
        let machine = roofline::machine(&trial.hardware);
        let known = Known {
            trial,
            bytes_per_token: roofline::bytes_per_token(trial),
            flops_per_token: roofline::flops_per_token(trial),
            bound: roofline::bound(trial, &machine),
            machine,
        };
        let mut row = [0.0; DIM];
        let (scales, rest) = row.split_at_mut(SCALES.len());
        for (value, column) in scales.iter_mut().zip(SCALES) {
            *value = (column.of)(&known);
        }
        let (programs, rest) = rest.split_at_mut(PROGRAMS.len());
        set(programs, program(&trial.backend));
        let (quants, rest) = rest.split_at_mut(QUANTS.len());
        set(quants, quant(&trial.model.quant));
        let (knobs, dynamic) = rest.split_at_mut(KNOB_COLUMNS);
        encode_knobs(trial, knobs);
        if let Some(m) = measured {
            fill_measured(&known, m, dynamic);
        }
        // Whatever an encoder or a broken figure left outside is brought back: models rely on the range.
        for value in &mut row {
            *value = if value.is_nan() {
                0.0
            } else {
                value.clamp(0.0, 1.0)
            };
        }
        Self(row)
    }

    /// All columns.
    pub fn as_slice(&self) -> &[f32; DIM] {
        &self.0
    }

    /// Those known before a run.
    pub fn predictors(&self) -> &[f32] {
        &self.0[..PREDICTORS]
    }

    /// A column by name.
    pub fn get(&self, name: &str) -> Option<f32> {
        self.0.get(column(name)?).copied()
    }
}

fn set(one_hot: &mut [f32], at: usize) {
    if let Some(v) = one_hot.get_mut(at) {
        *v = 1.0;
    }
}

fn encode_knobs(trial: &Trial, mut columns: &mut [f32]) {
    for knob in KNOBS {
        let (own, rest) = columns.split_at_mut(knob.columns.len());
        if let Some(value) = trial.setting(knob.name) {
            (knob.encode)(value, own);
        }
        columns = rest;
    }
}

fn fill_measured(known: &Known, measured: &Measured, columns: &mut [f32]) {
    let rate = measured.tok_s;
    let layers = known.trial.model.layers.map_or(1.0, f64::from).max(1.0);
    let batch = f64::from(known.trial.test.batch.max(1));
    let values = [
        share(rate * known.bytes_per_token, known.machine.bytes_per_s),
        share(rate * known.flops_per_token, known.machine.ops_per_s),
        // A layer's share of a step, 100 ns to 1 s.
        log_scale(batch / (rate * layers), 1e-7, 1.0),
    ];
    columns.iter_mut().zip(values).for_each(|(c, v)| *c = v);
}

/// Column of [`PROGRAMS`] for the name of a program and its backend.
fn program(backend: &str) -> usize {
    let name = backend.to_ascii_lowercase();
    if name.starts_with("cbtop") {
        0
    } else if name.contains("cuda") {
        1
    } else if name.contains("vulkan") {
        2
    } else {
        3
    }
}

/// Column of [`QUANTS`] for a quantisation in llama.cpp's naming.
fn quant(name: &str) -> usize {
    let name = name.to_ascii_uppercase();
    let starts = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
    if starts(&["Q4_0", "Q4_1"]) {
        0
    } else if starts(&["Q4_K"]) {
        1
    } else if starts(&["Q5_"]) {
        2
    } else if starts(&["Q6_K"]) {
        3
    } else if starts(&["Q8_"]) {
        4
    } else if starts(&["F16", "BF16"]) {
        5
    } else if starts(&["F32"]) {
        6
    } else {
        7
    }
}

fn switch(value: Option<&str>) -> f32 {
    match value {
        Some("on" | "1" | "true") => 1.0,
        Some("off" | "0" | "false") => 0.0,
        _ => 0.5,
    }
}

/// Where `value` stands between `low` and `high` on a logarithmic scale; the low end for what is no positive number.
fn log_scale(value: f64, low: f64, high: f64) -> f32 {
    if value.is_nan() || value <= low {
        return 0.0;
    }
    ((value / low).ln() / (high / low).ln()).min(1.0) as f32
}

/// `value` as a share of `most`, 0 to 1; 0 for what is no number.
fn share(value: f64, most: f64) -> f32 {
    let share = value / most;
    if share.is_nan() {
        return 0.0;
    }
    share.clamp(0.0, 1.0) as f32
}

#[cfg(test)]
mod tests;
