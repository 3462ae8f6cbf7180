//! Runs without what could name their owner, for a file that the user names; without one nothing is written anywhere.
//!
//! A line holds the fields of [`Line`] and no others. Texts in it come from lists of the program: names of a run are
//! looked up there, and what is not in a list is left out.

use super::run::{MachineKind, Origin, Run, Test, TimeShares};
use super::store::public::bits_per_weight;
use super::store::{DataError, write_whole};
use crate::engine::knobs::{Setting, Setup, knob};
use crate::engine::{Config, SyncMode};
use crate::gguf::LoadOptions;
use crate::model::arch::Architecture;
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Version of the lines.
pub const VERSION: u32 = 1;
/// Seconds of a day: the time of a run is told to the day.
const DAY: i64 = 86_400;

/// A run, anonymised.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// [`VERSION`].
    pub version: u32,
    /// Where the run comes from.
    pub origin: Origin,
    /// Day, counted from 1970.
    pub day: Option<i64>,
    /// Kind of the processor.
    pub kind: MachineKind,
    /// Read bandwidth, GB/s.
    pub mem_gbps: Option<f64>,
    /// Peak of FP32, GFLOP/s.
    pub gflops: Option<f64>,
    /// Peak of int8, GOP/s.
    pub int8_gops: Option<f64>,
    /// Cores.
    pub cores: Option<u32>,
    /// Last-level cache, MB.
    pub cache_mb: Option<f64>,
    /// Memory, GB.
    pub memory_gb: Option<f64>,
    /// Architecture, if the engine knows it.
    pub arch: Option<&'static str>,
    /// Bits of a weight of the quantisation, if it is known.
    pub bits_per_weight: Option<f64>,
    /// Parameters.
    pub params: f64,
    /// Parameters read for one token.
    pub active_params: Option<f64>,
    /// Bytes of weights read for one token.
    pub weight_bytes: f64,
    /// Layers.
    pub layers: Option<u32>,
    /// Width of the residual stream.
    pub hidden: Option<u32>,
    /// The test.
    pub test: Test,
    /// Knobs of the engine with values that they have.
    pub settings: Vec<Setting>,
    /// Mean rate, tokens a second.
    pub tok_s: f64,
    /// Standard deviation of the repetitions.
    pub stddev: Option<f64>,
    /// Repetitions.
    pub repetitions: u32,
    /// Whether a warm-up ran.
    pub warm: Option<bool>,
    /// Share of the CPUs that other programs had.
    pub background: Option<f64>,
    /// Where the time went.
    pub shares: Option<TimeShares>,
}

impl Line {
    /// The line of a run.
    pub fn of(run: &Run) -> Self {
        let (hw, model) = (&run.trial.hardware, &run.trial.model);
        Self {
            version: VERSION,
            origin: run.origin,
            day: run.unix_s.map(|s| s.div_euclid(DAY)),
            kind: hw.kind,
            mem_gbps: hw.mem_gbps,
            gflops: hw.gflops,
            int8_gops: hw.int8_gops,
            cores: hw.cores,
            cache_mb: hw.cache_mb,
            memory_gb: hw.memory_gb,
            arch: Architecture::from_name(&model.arch).map(|a| a.name),
            bits_per_weight: bits_per_weight(&model.quant),
            params: model.params,
            active_params: model.active_params,
            weight_bytes: model.weight_bytes,
            layers: model.layers,
            hidden: model.hidden,
            test: run.trial.test,
            settings: run.trial.settings.iter().filter_map(known).collect(),
            tok_s: run.tok_s,
            stddev: run.stddev,
            repetitions: run.repetitions,
            warm: run.warm,
            background: run.background,
            shares: run.shares,
        }
    }
}

/// A setting as the engine itself writes it, if it is one of the engine's.
fn known(setting: &Setting) -> Option<Setting> {
    let knob = knob(&setting.knob)?;
    let mut setup = Setup {
        config: Config::for_context(usize::MAX),
        load: LoadOptions::default(),
        sync_mode: SyncMode::default(),
    };
    (knob.set)(&mut setup, &setting.value).ok()?;
    Some(Setting::new(knob.name, (knob.get)(&setup)))
}

fn line(run: &Run) -> std::io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&Line::of(run))?;
    line.push(b'\n');
    Ok(line)
}

/// Whether a file can be appended to, made if it is not there.
///
/// # Errors
/// What is no file, or cannot be written.
pub fn check(path: &Path) -> std::io::Result<()> {
    if path.exists() && !path.is_file() {
        return Err(std::io::Error::other("it is no file"));
    }
    File::options()
        .create(true)
        .append(true)
        .open(path)
        .map(drop)
}

/// Appends a run to a file that the user named, in one write.
///
/// # Errors
/// A file that cannot be written.
pub fn append(path: &Path, run: &Run) -> std::io::Result<()> {
    let mut file = File::options().create(true).append(true).open(path)?;
    file.write_all(&line(run)?)
}

/// Writes a file of runs.
///
/// # Errors
/// A file that cannot be written.
pub fn write(path: &Path, runs: &[Run]) -> Result<(), DataError> {
    let mut each = runs.iter();
    write_whole(path, |out| {
        each.try_for_each(|run| out.write_all(&line(run)?))
    })
    .map_err(|source| DataError::Io {
        path: path.to_owned(),
        source,
    })
}
