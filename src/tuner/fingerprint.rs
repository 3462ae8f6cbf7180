//! What identifies a machine: facts of its hardware, hashed. No name of a host or user goes into it.

use super::run::{Hardware, MachineKind};
use crate::profiler::graph::fnv1a_64;
use crate::profiler::os;
use procfs::Current;

/// Facts that stay the same as long as the hardware does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// The processor's brand string.
    pub cpu: String,
    /// Vendor, family, model and stepping, where CPUID tells them.
    pub signature: String,
    /// Logical CPUs of the system, whether this process may use them or not.
    pub cpus: u64,
    /// Largest cache, bytes.
    pub cache_bytes: u64,
    /// Memory that the kernel manages, bytes.
    pub memory_bytes: u64,
}

impl Facts {
    /// Those of the machine this runs on; zero and empty where the system does not say.
    pub fn here() -> Self {
        let cpus = procfs::CpuInfo::current().map_or(0, |info| info.num_cores());
        Self {
            cpu: os::cpu_name().unwrap_or_default(),
            signature: signature(),
            cpus: cpus as u64,
            cache_bytes: os::last_level_cache_bytes().unwrap_or(0),
            memory_bytes: os::memory_total_bytes().unwrap_or(0),
        }
    }

    /// `cpu-` and sixteen hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        let text = format!(
            "{}\n{}\n{}\n{}\n{}",
            self.cpu,
            self.signature,
            self.cpus,
            self.cache_bytes,
            quarter_octave(self.memory_bytes)
        );
        format!("cpu-{:016x}", fnv1a_64(text.as_bytes()))
    }
}

/// Memory in steps of 19%: a new kernel takes some percent more or less for itself, a new module of memory adds more.
fn quarter_octave(bytes: u64) -> u64 {
    ((bytes.max(1) as f64).log2() * 4.0).round() as u64
}

#[cfg(target_arch = "x86_64")]
fn signature() -> String {
    let cpuid = raw_cpuid::CpuId::new();
    let vendor = cpuid.get_vendor_info();
    let vendor = vendor.as_ref().map_or("", |v| v.as_str());
    let model = cpuid.get_feature_info().map_or_else(String::new, |f| {
        format!(
            "{:x} {:x} {:x}",
            f.family_id(),
            f.model_id(),
            f.stepping_id()
        )
    });
    format!("{vendor} {model}")
}

#[cfg(not(target_arch = "x86_64"))]
fn signature() -> String {
    std::env::consts::ARCH.to_owned()
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

/// This machine, with what a probe measured of it: read bandwidth in GB/s (10^9), FP32 GFLOP/s and int8 GOP/s, all threads.
/// What was measured is no part of the fingerprint.
pub fn this_machine(
    mem_gbps: Option<f64>,
    gflops: Option<f64>,
    int8_gops: Option<f64>,
) -> Hardware {
    let facts = Facts::here();
    let amount = |bytes: u64, unit: f64| (bytes > 0).then(|| bytes as f64 / unit);
    Hardware {
        fingerprint: facts.fingerprint(),
        name: match facts.cpu.as_str() {
            "" => "unknown CPU".to_owned(),
            cpu => cpu.to_owned(),
        },
        kind: match (std::env::consts::OS, std::env::consts::ARCH) {
            ("macos", "aarch64") => MachineKind::Apple,
            _ => MachineKind::Cpu,
        },
        mem_gbps,
        gflops,
        int8_gops,
        cores: os::physical_cores(),
        cache_mb: amount(facts.cache_bytes, 1e6),
        memory_gb: amount(facts.memory_bytes, 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_same_machine_is_the_same_at_another_time() {
        let once = this_machine(None, None, None);
        let again = this_machine(Some(10.0), Some(100.0), Some(200.0));
        assert_eq!(once.fingerprint, again.fingerprint);
        assert_eq!(again.mem_gbps, Some(10.0));
    }

    #[test]
    fn every_fact_counts_and_kernels_differ_in_memory() {
        let facts = Facts {
            cpu: "CPU".into(),
            signature: "V 6 1 1".into(),
            cpus: 8,
            cache_bytes: 32 << 20,
            memory_bytes: 16 << 30,
        };
        let changes: [fn(&mut Facts); 6] = [
            |f| f.cpu.push('2'),
            |f| f.signature.push('2'),
            |f| f.cpus = 16,
            |f| f.cache_bytes *= 2,
            |f| f.memory_bytes *= 2,
            |f| f.memory_bytes += f.memory_bytes / 2,
        ];
        let mut seen = HashSet::from([facts.fingerprint()]);
        for change in changes {
            let mut other = facts.clone();
            change(&mut other);
            assert!(seen.insert(other.fingerprint()), "{other:?}");
        }
        let mut other_kernel = facts.clone();
        other_kernel.memory_bytes -= 100 << 20;
        assert_eq!(other_kernel.fingerprint(), facts.fingerprint());
    }
}
