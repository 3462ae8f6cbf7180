//! What a trial must move and compute for a token, and the rate that the machine's peaks allow.

use super::run::{Hardware, MachineKind, Trial};
use crate::engine::KvType;

/// The peaks that a token meets: of one card where a machine has several. What is not known is what is usual for its kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Read bandwidth, bytes a second.
    pub bytes_per_s: f64,
    /// Whether it was known.
    pub bandwidth_known: bool,
    /// Peak rate of the fastest arithmetic that kernels use, operations a second.
    pub ops_per_s: f64,
    /// Whether it was known.
    pub compute_known: bool,
    /// What no arithmetic of it exceeds, operations a second; infinite where nothing is known.
    pub most_ops_per_s: f64,
    /// Last-level cache, bytes.
    pub cache_bytes: Option<f64>,
}

/// How much faster a last-level cache is usually read than memory.
const CACHE_SPEED: f64 = 4.0;

/// What is usual for a kind.
struct Usual {
    kind: MachineKind,
    /// Bandwidth, bytes a second.
    bytes_per_s: f64,
    /// FP32 operations for a byte of it.
    balance: f64,
    /// How much faster products of small integers or halves are than the FP32 peak of a table.
    narrow: f64,
    /// The most that is known of any machine: data-centre cards do 16 half products where FP32 does one.
    narrow_most: f64,
}

/// Bandwidths and balances are about the medians of the hardware table of the public data. VNNI and dotprod do four int8
/// products where FP32 does one, consumer tensor cores eight.
const USUAL: [Usual; 3] = [
    usual(MachineKind::Cpu, 40e9, 20.0, 4.0, 4.0),
    usual(MachineKind::Apple, 400e9, 30.0, 2.0, 2.0),
    usual(MachineKind::Gpu, 600e9, 45.0, 8.0, 16.0),
];

const fn usual(
    kind: MachineKind,
    bytes_per_s: f64,
    balance: f64,
    narrow: f64,
    narrow_most: f64,
) -> Usual {
    Usual {
        kind,
        bytes_per_s,
        balance,
        narrow,
        narrow_most,
    }
}

/// The peaks of a machine.
pub fn machine(hardware: &Hardware) -> Machine {
    let of_kind = USUAL.iter().find(|u| u.kind == hardware.kind);
    let usual = of_kind.unwrap_or(&USUAL[0]);
    let cards = cards(&hardware.name);
    let known_bandwidth = positive(hardware.mem_gbps).map(|b| b * 1e9 / cards);
    let bytes_per_s = known_bandwidth.unwrap_or(usual.bytes_per_s);
    let fp32 = positive(hardware.gflops).map(|f| f * 1e9 / cards);
    let int8 = positive(hardware.int8_gops).map(|f| f * 1e9 / cards);
    let known_ops = match (fp32, int8) {
        (Some(f), Some(i)) => Some(f.max(i)),
        (Some(f), None) => Some(f * usual.narrow),
        (None, i) => i,
    };
    Machine {
        bytes_per_s,
        bandwidth_known: known_bandwidth.is_some(),
        ops_per_s: known_ops.unwrap_or(bytes_per_s * usual.balance * usual.narrow),
        compute_known: known_ops.is_some(),
        most_ops_per_s: match (fp32, int8) {
            (Some(f), None) => f * usual.narrow_most * cards,
            _ => known_ops.map_or(f64::INFINITY, |o| o * cards),
        },
        cache_bytes: positive(hardware.cache_mb).map(|c| c * 1e6 / cards),
    }
}

/// Cards of a machine named `RTX 4090 x4`, whose figures are those of all together. Programs give each card some of the
/// layers, so that a token passes one after the other: the rates of one card hold for it, and only of a long prompt several
/// parts are under way at once.
fn cards(name: &str) -> f64 {
    let number = name.rsplit_once(" x").and_then(|(_, n)| n.parse().ok());
    f64::from(number.unwrap_or(1_u8).max(1))
}

fn positive(figure: Option<f64>) -> Option<f64> {
    figure.filter(|f| f.is_finite() && *f > 0.0)
}

/// Bytes that are at least moved to make one token (generation) or to take one in (prompts): each weight once for all
/// tokens of a pass, and a sequence's kv cache. Where experts are chosen, as if all tokens of a pass chose the same: how
/// many they choose together depends on the text. At least 1.
pub fn bytes_per_token(trial: &Trial) -> f64 {
    at_least(pass_bytes(trial) / tokens_of_pass(trial), 1.0)
}

/// FLOP of one token: two for every parameter it uses, and attention over the mean context. At least 1.
pub fn flops_per_token(trial: &Trial) -> f64 {
    let m = &trial.model;
    let active = positive(m.active_params).unwrap_or(m.params);
    // Two products over the context for every query head; without the shapes at least one query for each key.
    let attention = match (m.heads, m.head_dim, m.layers) {
        (Some(h), Some(d), Some(l)) => 4.0 * f64::from(h) * f64::from(d) * f64::from(l),
        _ => positive(m.kv_bytes_per_token).unwrap_or(0.0),
    };
    at_least(2.0 * active + trial.test.mean_context() * attention, 1.0)
}

/// The rate that the machine's peaks allow, tokens a second over all sequences: what the bandwidth allows for the bytes that
/// its last-level cache cannot hold, or what the arithmetic allows, the smaller. `None` where the bandwidth is not known,
/// and where a model fits the cache and the arithmetic is not known either.
pub fn roofline_tok_s(trial: &Trial) -> Option<f64> {
    let machine = machine(&trial.hardware);
    let uncached = beyond_cache(trial, &machine);
    let by_bandwidth = machine.bytes_per_s * tokens_of_pass(trial) / uncached;
    let by_compute = machine.most_ops_per_s / flops_per_token(trial);
    match (machine.bandwidth_known, machine.compute_known) {
        (true, true) => Some(by_bandwidth.min(by_compute)),
        (true, false) if uncached > 0.0 => Some(by_bandwidth),
        _ => None,
    }
    .filter(|b| b.is_finite())
}

/// What a trial might reach, tokens a second: as [`roofline_tok_s`] but no bound, with what is usual in place of what is not
/// known, and caches that are some times as fast as memory. It never falls with more sequences: weights alone stay in the
/// cache, so that a pass takes a fixed time and one for each sequence.
pub(super) fn bound(trial: &Trial, machine: &Machine) -> f64 {
    let weights = weight_bytes(trial);
    let cached = machine.cache_bytes.unwrap_or(0.0).min(weights);
    let moved = weights - cached + cached / CACHE_SPEED + kv_bytes(trial);
    let by_bandwidth = machine.bytes_per_s * tokens_of_pass(trial) / moved;
    let by_compute = machine.ops_per_s / flops_per_token(trial);
    at_least(by_bandwidth.min(by_compute), 1e-9)
}

/// As [`bound`], of one of the sequences alone.
pub(super) fn bound_of_one(trial: &Trial, machine: &Machine) -> f64 {
    if trial.test.batch <= 1 {
        return bound(trial, machine);
    }
    let mut one = trial.clone();
    one.test.batch = 1;
    bound(&one, machine)
}

/// Bytes of a pass that must come from memory: whatever stayed in the last-level cache since the pass before need not.
fn beyond_cache(trial: &Trial, machine: &Machine) -> f64 {
    let cached = machine.cache_bytes.unwrap_or(0.0);
    (pass_bytes(trial) - cached).max(0.0)
}

/// Tokens that share one reading of the weights.
fn tokens_of_pass(trial: &Trial) -> f64 {
    let test = &trial.test;
    let batch = f64::from(test.batch.max(1));
    if test.is_decode() {
        return batch;
    }
    // llama.cpp's default, where the row does not tell it.
    let chunk = trial.setting("chunk").and_then(|c| c.parse().ok());
    let chunk: u32 = chunk.unwrap_or(512);
    f64::from(test.prompt.min(chunk).max(1)) * batch
}

fn pass_bytes(trial: &Trial) -> f64 {
    weight_bytes(trial) + kv_bytes(trial)
}

fn weight_bytes(trial: &Trial) -> f64 {
    positive(Some(trial.model.weight_bytes)).unwrap_or(1.0)
}

/// Of all sequences, over their mean context.
fn kv_bytes(trial: &Trial) -> f64 {
    let sequences = f64::from(trial.test.batch.max(1));
    let kv = positive(trial.model.kv_bytes_per_token).unwrap_or(0.0) * kv_scale(trial);
    sequences * trial.test.mean_context() * kv
}

/// Bytes of the cache's element type by those of f16.
fn kv_scale(trial: &Trial) -> f64 {
    let kind = trial.setting("kv-type").unwrap_or("f16").parse();
    let kind: KvType = kind.unwrap_or(KvType::F16);
    kind.bytes(32) as f64 / KvType::F16.bytes(32) as f64
}

fn at_least(value: f64, low: f64) -> f64 {
    if value.is_finite() {
        value.max(low)
    } else {
        low
    }
}
