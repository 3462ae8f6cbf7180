//! What the rules look at, and the figures several of them derive from it.

use crate::engine::config::EngineInfo;
use crate::model::ModelInfo;
use crate::model::brick::BrickId;
use crate::profiler::critical::{Roof, bound_shares};
use crate::profiler::figures::{BrickRow, MachineInfo, MemoryInfo, Rates};
use crate::profiler::probe::Bandwidth;
use std::collections::BTreeSet;

/// Decode steps before shares of time are taken for more than chance.
pub const ENOUGH_STEPS: u64 = 16;

/// Everything a rule may use. `None` and empty mean "not known"; a rule whose figures are not known stays silent.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The machine; its bandwidth is that at the current thread count.
    pub machine: &'a MachineInfo,
    /// The model.
    pub model: &'a ModelInfo,
    /// The engine as it is configured now.
    pub engine: &'a EngineInfo,
    /// Throughput.
    pub rates: &'a Rates,
    /// Decode rows.
    pub bricks: &'a [BrickRow],
    /// Memory and faults.
    pub memory: &'a MemoryInfo,
    /// The probe's figures by thread count, as far as it ran.
    pub bandwidth: &'a [Bandwidth],
    /// Kernel sets that can run here, by name, the best one last.
    pub kernels_available: &'a [&'a str],
    /// How rows are given to threads: `static` or `dynamic`.
    pub schedule: Option<&'a str>,
    /// Cores behind the CPUs of this process, hyperthreads counted once.
    pub physical_cores: Option<u32>,
    /// Frequency governor.
    pub governor: Option<&'a str>,
    /// Memory that could be used now, bytes.
    pub memory_available: Option<u64>,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Major faults since the first decode step: those of loading do not count.
    pub decode_major_faults: Option<u64>,
    /// Names of the knobs that the user set ([`crate::engine::knobs::Knob::name`]).
    pub explicit: &'a BTreeSet<&'static str>,
}

/// A rate to expect and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Expected {
    /// Tokens a second.
    pub tok_s: f64,
    /// How it was estimated, one sentence without its full stop.
    pub how: String,
}

impl Facts<'_> {
    /// Whether times were measured; modelled ones say nothing about this machine.
    pub fn measured(&self) -> bool {
        self.engine.clock != "modelled"
    }

    /// Mean decode rate, tokens a second, once it rests on [`ENOUGH_STEPS`].
    pub fn decode_rate(&self) -> Option<f64> {
        self.rates
            .decode_mean_tok_s
            .filter(|_| self.bricks.first().is_some_and(|b| b.steps >= ENOUGH_STEPS))
    }

    /// Probed bandwidth at a thread count, GB/s.
    pub fn bandwidth_at(&self, threads: u32) -> Option<f64> {
        let probed = self
            .bandwidth
            .iter()
            .find(|b| b.threads == threads)
            .map(|b| b.gbps);
        probed.or(self
            .machine
            .read_bandwidth_gbps
            .filter(|_| threads == self.engine.threads))
    }

    /// The roof at the current thread count.
    pub fn roof(&self) -> Roof {
        Roof::probed(self.bandwidth_at(self.engine.threads))
    }

    /// A brick's row, if the brick ran.
    pub fn brick(&self, id: BrickId) -> Option<&BrickRow> {
        self.bricks.iter().find(|b| b.id == id)
    }

    /// Share of a decode step spent at barriers, once it rests on [`ENOUGH_STEPS`].
    pub fn sync_share(&self) -> Option<f64> {
        self.brick(BrickId::Sync)
            .filter(|b| b.steps >= ENOUGH_STEPS)
            .map(|b| b.share)
    }

    /// Cores to use: hyperthreads of one core share what a mat-mul needs.
    pub fn cores(&self) -> u32 {
        self.physical_cores
            .map_or(self.machine.cpus, |cores| cores.min(self.machine.cpus))
            .max(1)
    }

    /// The decode rate to expect with `threads` threads (Amdahl): the part limited by memory changes with the probed
    /// bandwidth, the part limited by compute with the cores in use, waiting and short calls not at all. `None` without
    /// the probe's figures for both counts.
    pub fn expected_with_threads(&self, threads: u32) -> Option<Expected> {
        let now = self.decode_rate()?;
        let shares = bound_shares(self.bricks, self.roof()).filter(|s| s.unknown == 0.0)?;
        let (from, to) = (
            self.bandwidth_at(self.engine.threads)?,
            self.bandwidth_at(threads)?,
        );
        let cores = |threads: u32| threads.min(self.cores()).max(1);
        let (cores_from, cores_to) = (cores(self.engine.threads), cores(threads));
        let time = shares.overhead
            + shares.memory * from / to
            + shares.compute * f64::from(cores_from) / f64::from(cores_to);
        let tok_s = now / time;
        let percent = |share: f64| share * 100.0;
        let how = format!(
            "{tok_s:.1} tok/s expected: {:.0}% of a token is limited by memory, which gives {from:.1} GB/s to {} and {to:.1} GB/s to {}; \
             {:.0}% by compute, on {cores_from} and {cores_to} cores; {:.0}% does not change with threads",
            percent(shares.memory),
            count(self.engine.threads, "thread"),
            threads,
            percent(shares.compute),
            percent(shares.overhead),
        );
        tok_s.is_finite().then_some(Expected { tok_s, how })
    }
}

/// `1 thread`, `2 threads`.
pub fn count(n: u32, what: &str) -> String {
    if n == 1 {
        format!("1 {what}")
    } else {
        format!("{n} {what}s")
    }
}

/// Decimal units, as in the rest of the reports.
pub fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 * 1e-6)
}
