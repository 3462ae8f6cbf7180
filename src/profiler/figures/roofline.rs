//! The roofline (Williams et al. 2009): what this machine can do, and how near each brick comes to it.

use crate::model::brick::BrickId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a peak limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PeakKind {
    /// Bytes read from memory; the value is GB/s (10^9).
    Memory,
    /// FP32 multiply-adds; the value is GFLOP/s.
    Fp32,
    /// int8 dot products; the value is Gop/s, a multiply and an add each counting one.
    Int8,
}

/// A peak of the machine, measured by the built-in probe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Peak {
    /// What it limits.
    pub kind: PeakKind,
    /// Kernel set it holds for (`scalar`, `avx2`, `avx512`); empty for memory.
    pub isa: String,
    /// Threads that reached it.
    pub threads: u32,
    /// GB/s, GFLOP/s or Gop/s.
    pub value: f64,
    /// Whether it is that of the kernels and the thread count in use.
    pub in_use: bool,
}

/// A brick on the roofline plot, over decode steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoofPoint {
    /// Which brick.
    pub id: BrickId,
    /// Arithmetic intensity: FLOP per byte moved.
    pub intensity: f64,
    /// Achieved GFLOP/s.
    pub gflops: f64,
    /// Achieved GB/s (10^9).
    pub gbps: f64,
    /// Attainable GFLOP/s at this intensity: the lower of the compute peak and intensity times bandwidth.
    pub roof_gflops: f64,
    /// `gflops / roof_gflops`; above 1 where the caches serve the bytes.
    pub of_roof: f64,
    /// Which peak is the compute roof of this brick.
    pub compute: PeakKind,
    /// `memory`, `compute`, `cache` or `overhead`: which roof it is under, and whether it is near it.
    pub bound: String,
}

/// The machine's roofs and the bricks under them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Roofline {
    /// Peaks, memory first, by thread count.
    pub peaks: Vec<Peak>,
    /// Bricks that count operations and bytes, longest time first.
    pub points: Vec<RoofPoint>,
    /// One sentence: what it says.
    pub reading: String,
}
