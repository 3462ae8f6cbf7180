//! What identifies a machine without naming its owner.

use super::run::{Hardware, MachineKind};
use crate::engine::config::cpus;
use crate::engine::cpu::KernelSet;
use crate::profiler::graph::fnv1a_64;
use crate::profiler::os;

/// This machine. Peaks are those that were probed, with all threads. The fingerprint is made of the processor's name, the
/// CPUs and cores this process may use, the last-level cache, the memory in whole GiB and the kernel sets that can run:
/// equal at every start, and without the name of host or user.
pub fn this_machine(
    mem_gbps: Option<f64>,
    gflops: Option<f64>,
    int8_gops: Option<f64>,
) -> Hardware {
    let name = os::cpu_name().unwrap_or_else(|| "unknown CPU".into());
    let cores = os::physical_cores();
    let cache = os::last_level_cache_bytes();
    let memory = os::memory_total_bytes();
    let sets: Vec<&str> = KernelSet::available().iter().map(|k| k.name()).collect();
    let facts = [
        name.clone(),
        cpus().to_string(),
        optional(cores),
        optional(cache),
        optional(memory.map(|m| m.div_ceil(1 << 30))),
        sets.join(","),
    ];
    Hardware {
        name,
        kind: MachineKind::Cpu,
        fingerprint: fingerprint(&facts),
        mem_gbps,
        gflops,
        int8_gops,
        cores: cores.or(u32::try_from(cpus()).ok()),
        cache_mb: cache.map(|b| b as f64 * 1e-6),
        memory_gb: memory.map(|b| b as f64 * 1e-9),
    }
}

fn optional(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "unknown".into(), |v| v.to_string())
}

/// Sixteen hexadecimal digits of the facts, in their order.
pub fn fingerprint(facts: &[String]) -> String {
    format!("{:016x}", fnv1a_64(facts.join("\u{1f}").as_bytes()))
}

/// The fingerprint of hardware that only a name is known of, as in public data: the name in short, and a hash of all of it.
pub fn of_name(name: &str) -> String {
    let letters = name.chars().map(|c| match c {
        c if c.is_ascii_alphanumeric() => c.to_ascii_lowercase(),
        _ => '-',
    });
    let letters: String = letters.collect();
    let words: Vec<&str> = letters.split('-').filter(|w| !w.is_empty()).collect();
    let short: String = words.join("-").chars().take(40).collect();
    let hash = fnv1a_64(name.as_bytes());
    format!("public-{short}-{:08x}", (hash ^ (hash >> 32)) as u32)
}
