//! What the operating system says: memory, faults, context switches, the CPU. Everything is `None` where it is not shown.

mod parse;
pub mod system;

use crate::profiler::figures::{MachineInfo, MemoryInfo};
use procfs::Current;
use procfs::process::Process;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Page faults of the process since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// Served without the disk.
    pub minor: u64,
    /// Read from the disk.
    pub major: u64,
}

impl Faults {
    /// Those since an earlier reading.
    pub fn since(self, then: Self) -> Self {
        Self {
            minor: self.minor.saturating_sub(then.minor),
            major: self.major.saturating_sub(then.major),
        }
    }
}

/// Reads the process's page faults without allocating: a step is bracketed by two readings to count its own.
#[derive(Debug)]
pub struct FaultCounter(File);

impl FaultCounter {
    /// `None` where `/proc/self/stat` does not exist.
    pub fn open() -> Option<Self> {
        File::open("/proc/self/stat").ok().map(Self)
    }

    /// Faults so far; a few microseconds. Allocates nothing.
    pub fn read(&self) -> Option<Faults> {
        self.read_with_rss().map(|(faults, _)| faults)
    }

    /// Faults and the resident set in pages.
    fn read_with_rss(&self) -> Option<(Faults, u64)> {
        let mut buffer = [0u8; 1024];
        let length = self.0.read_at(&mut buffer, 0).ok()?;
        parse_stat(buffer.get(..length)?)
    }
}

/// Resident set of the process now, bytes. `None` where `/proc/self/stat` does not exist.
pub fn resident_bytes() -> Option<u64> {
    let (_, pages) = FaultCounter::open()?.read_with_rss()?;
    pages.checked_mul(procfs::page_size())
}

/// Fields 10, 12 and 24 of proc_pid_stat(5). The name, field 2, may hold blanks and brackets; the last `)` ends it.
fn parse_stat(stat: &[u8]) -> Option<(Faults, u64)> {
    let after_name = stat.iter().rposition(|&b| b == b')')? + 1;
    let mut fields = std::str::from_utf8(stat.get(after_name..)?)
        .ok()?
        .split_ascii_whitespace();
    let minor = fields.nth(7)?.parse().ok()?;
    let major = fields.nth(1)?.parse().ok()?;
    let rss_pages = fields.nth(11)?.parse().ok()?;
    Some((Faults { minor, major }, rss_pages))
}

/// Context switches of a thread or a sum of them.
#[derive(Debug, Clone, Copy, Default)]
struct Switches {
    voluntary: u64,
    involuntary: u64,
}

/// Per-thread counts are a file a thread.
const SLOW_INTERVAL: Duration = Duration::from_secs(1);
/// `smaps_rollup` walks every page table of the process: milliseconds.
const RARE_INTERVAL: Duration = Duration::from_secs(5);

/// Samples the process's counters at a bounded cost: resident set and faults at most once an interval, peak and switches
/// once a second, huge pages every five.
#[derive(Debug)]
pub struct OsSampler {
    process: Option<Process>,
    faults: Option<FaultCounter>,
    at_start: Option<Faults>,
    now: Option<Faults>,
    often: Due,
    slow: Due,
    rare: Due,
    rss: Option<u64>,
    peak_rss: Option<u64>,
    huge_pages: Option<u64>,
    /// Last counts by thread. The process has no sum of its own, and a thread's count goes when it ends.
    threads: Option<HashMap<i32, Switches>>,
    switches: Option<Switches>,
}

/// When something was last done, and how long it then rests.
#[derive(Debug)]
struct Due {
    interval: Duration,
    last: Option<Instant>,
}

impl Due {
    fn every(interval: Duration) -> Self {
        Self {
            interval,
            last: None,
        }
    }

    /// Whether it is time; if so, it counts as done.
    fn now(&mut self) -> bool {
        let due = self.last.is_none_or(|last| last.elapsed() >= self.interval);
        if due {
            self.last = Some(Instant::now());
        }
        due
    }
}

impl OsSampler {
    /// Counters start now. `interval` bounds how often any of them is read.
    pub fn new(interval: Duration) -> Self {
        let faults = FaultCounter::open();
        let mut sampler = Self {
            process: Process::myself().ok(),
            at_start: faults.as_ref().and_then(FaultCounter::read),
            faults,
            now: None,
            often: Due::every(interval),
            slow: Due::every(interval.max(SLOW_INTERVAL)),
            rare: Due::every(interval.max(RARE_INTERVAL)),
            rss: None,
            peak_rss: None,
            huge_pages: None,
            threads: None,
            switches: None,
        };
        sampler.count_switches();
        sampler
    }

    /// Fills the fields that the system knows: resident sets, faults, switches, huge pages. `minor_faults_per_step` and
    /// the sizes of the engine's own buffers are the caller's.
    pub fn fill(&mut self, info: &mut MemoryInfo) {
        if self.slow.now() {
            self.sample_peak();
            self.count_switches();
        }
        if self.often.now() {
            self.sample_rss_and_faults();
        }
        if self.rare.now() {
            self.huge_pages = self.process.as_ref().and_then(huge_page_bytes);
        }
        let since_start = self.now.zip(self.at_start);
        info.rss_bytes = self.rss;
        info.peak_rss_bytes = self.peak_rss;
        info.minor_faults = since_start.map(|(now, then)| now.minor.saturating_sub(then.minor));
        info.major_faults = since_start.map(|(now, then)| now.major.saturating_sub(then.major));
        info.voluntary_switches = self.switches.map(|s| s.voluntary);
        info.involuntary_switches = self.switches.map(|s| s.involuntary);
        info.huge_page_bytes = self.huge_pages;
    }

    fn sample_rss_and_faults(&mut self) {
        let read = self.faults.as_ref().and_then(FaultCounter::read_with_rss);
        self.now = read.map(|(faults, _)| faults);
        self.rss = read.map(|(_, pages)| pages.saturating_mul(procfs::page_size()));
        // The peak is asked for less often, and must not be seen below the present.
        self.peak_rss = self.peak_rss.max(self.rss);
    }

    fn sample_peak(&mut self) {
        // The kernel shows it in kB.
        let peak = self.process.as_ref().and_then(|p| p.status().ok()?.vmhwm);
        self.peak_rss = self.peak_rss.max(peak.map(|kb| kb.saturating_mul(1024)));
    }

    fn count_switches(&mut self) {
        let Some(now) = self.process.as_ref().and_then(switches_by_thread) else {
            return;
        };
        let mut sum = self.switches.unwrap_or_default();
        if let Some(before) = &self.threads {
            for (thread, switches) in &now {
                let then = before.get(thread).copied().unwrap_or_default();
                sum.voluntary += switches.voluntary.saturating_sub(then.voluntary);
                sum.involuntary += switches.involuntary.saturating_sub(then.involuntary);
            }
        }
        self.switches = Some(sum);
        self.threads = Some(now);
    }
}

fn switches_by_thread(process: &Process) -> Option<HashMap<i32, Switches>> {
    let mut all = HashMap::new();
    // A thread may end while its file is read; then it is left out.
    for task in process.tasks().ok()?.filter_map(Result::ok) {
        if let Ok(status) = task.status()
            && let (Some(voluntary), Some(involuntary)) = (
                status.voluntary_ctxt_switches,
                status.nonvoluntary_ctxt_switches,
            )
        {
            all.insert(
                task.tid,
                Switches {
                    voluntary,
                    involuntary,
                },
            );
        }
    }
    (!all.is_empty()).then_some(all)
}

fn huge_page_bytes(process: &Process) -> Option<u64> {
    let rollup = process.smaps_rollup().ok()?.memory_map_rollup;
    rollup
        .iter()
        .next()?
        .extension
        .map
        .get("AnonHugePages")
        .copied()
}

/// The machine's facts. `isa` is what the kernels found usable; `read_bandwidth_gbps` is the probe's, if it ran.
pub fn machine_info(isa: &str, read_bandwidth_gbps: Option<f64>) -> MachineInfo {
    MachineInfo {
        cpu: cpu_name().unwrap_or_else(|| "unknown CPU".to_owned()),
        cpus: cpus_allowed(),
        isa: isa.to_owned(),
        memory_bytes: memory_total_bytes(),
        read_bandwidth_gbps,
    }
}

/// The CPU's brand string.
pub fn cpu_name() -> Option<String> {
    let tidy = |s: &str| {
        Some(s.split_whitespace().collect::<Vec<_>>().join(" ")).filter(|s| !s.is_empty())
    };
    brand_string().as_deref().and_then(tidy).or_else(|| {
        let info = procfs::CpuInfo::current().ok()?;
        info.model_name(0).and_then(tidy)
    })
}

#[cfg(target_arch = "x86_64")]
fn brand_string() -> Option<String> {
    raw_cpuid::CpuId::new()
        .get_processor_brand_string()
        .map(|b| b.as_str().to_owned())
}

#[cfg(not(target_arch = "x86_64"))]
fn brand_string() -> Option<String> {
    None
}

/// Logical CPUs that this process may use: affinity and cgroup quota, at least 1.
pub fn cpus_allowed() -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cpus).unwrap_or(u32::MAX)
}

/// Cores behind the CPUs that this process may use, hyperthreads counted once.
pub fn physical_cores() -> Option<u32> {
    let allowed = Process::myself().ok()?.status().ok()?.cpus_allowed_list?;
    let cpus = allowed
        .into_iter()
        .flat_map(|(from, to)| from..=to.min(from.saturating_add(8191)));
    let mut cores = HashSet::new();
    for cpu in cpus {
        if let Some(siblings) = read_line(format!(
            "/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        )) {
            cores.insert(siblings);
        }
    }
    u32::try_from(cores.len()).ok().filter(|&n| n > 0)
}

/// The frequency governor of the first CPU, for example `performance`. Virtual machines have none.
pub fn governor() -> Option<String> {
    read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
}

/// Starts the peak resident set afresh (proc_pid_clear_refs(5)); without effect where the system does not allow it.
pub fn reset_peak_resident() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Physical memory, bytes.
pub fn memory_total_bytes() -> Option<u64> {
    procfs::Meminfo::current().ok().map(|m| m.mem_total)
}

/// Memory that can be used without swapping, bytes; a cgroup's limit counts too.
pub fn memory_available_bytes() -> Option<u64> {
    let system = procfs::Meminfo::current().ok()?.mem_available?;
    let number = |name: &str| {
        read_line(Path::new("/sys/fs/cgroup").join(name))?
            .parse::<u64>()
            .ok()
    };
    // "max" is no number and no limit.
    let group =
        number("memory.max").map(|max| max.saturating_sub(number("memory.current").unwrap_or(0)));
    Some(system.min(group.unwrap_or(u64::MAX)))
}

/// Size of the first CPU's largest cache, bytes.
pub fn last_level_cache_bytes() -> Option<u64> {
    (0..8)
        .filter_map(|i| read_line(format!("/sys/devices/system/cpu/cpu0/cache/index{i}/size")))
        .filter_map(|size| parse_size(&size))
        .max()
}

/// `32768K`, `1M` or plain bytes.
fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..)? {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

fn read_line(path: impl AsRef<Path>) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|t| !t.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_found_behind_an_awkward_name() {
        let stat = b"42 (a) b (c) R 1 42 42 0 -1 4194304 1234 0 7 0 3 1 0 0 20 0 1 0 5 1000 200";
        assert_eq!(
            parse_stat(stat),
            Some((
                Faults {
                    minor: 1234,
                    major: 7
                },
                200
            ))
        );
        for bad in [
            &b""[..],
            b"42",
            b"42 (x)",
            b"42 (x) R 1 2 3",
            b"42 (x) R 1 42 42 0 -1 4 many 0 7 0",
            b"\xff)\xff",
        ] {
            assert_eq!(parse_stat(bad), None);
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("32768K"), Some(32 << 20));
        assert_eq!(parse_size("1M"), Some(1 << 20));
        assert_eq!(parse_size("64"), Some(64));
        for bad in [
            "",
            "K",
            "12Q",
            "-1K",
            "99999999999999999999G",
            "18446744073709551615G",
        ] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn linux_shows_the_process() {
        let mut sampler = OsSampler::new(Duration::ZERO);
        let mut info = MemoryInfo {
            weights_bytes: 5,
            ..MemoryInfo::default()
        };
        let pages = std::hint::black_box(vec![1u8; 4 << 20]);
        sampler.fill(&mut info);
        drop(pages);
        assert!(info.rss_bytes.is_some_and(|b| b > 1 << 20), "{info:?}");
        assert!(info.peak_rss_bytes >= info.rss_bytes);
        assert!(info.minor_faults.is_some() && info.major_faults.is_some());
        assert_eq!((info.weights_bytes, info.minor_faults_per_step), (5, None));

        let machine = machine_info("AVX2", None);
        assert!(machine.cpus >= 1 && !machine.cpu.is_empty());
        assert!(memory_available_bytes() <= memory_total_bytes());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn counters_never_run_backward() {
        let mut sampler = OsSampler::new(Duration::ZERO);
        let mut before = (Some(0), Some(0));
        for _ in 0..3 {
            std::thread::spawn(|| std::thread::sleep(Duration::from_millis(1)))
                .join()
                .expect("sleeping cannot fail");
            sampler.count_switches();
            let now = (
                sampler.switches.map(|s| s.voluntary),
                sampler.switches.map(|s| s.involuntary),
            );
            assert!(now >= before, "{now:?} {before:?}");
            before = now;
        }
    }

    /// `cargo test --release --lib os:: -- --ignored --nocapture` prints what a reading costs here.
    #[test]
    #[ignore = "a measurement, not a check"]
    fn print_costs() {
        let time = |name: &str, mut f: Box<dyn FnMut()>| {
            let start = Instant::now();
            (0..200).for_each(|_| f());
            println!("{name}: {:?}", start.elapsed() / 200);
        };
        let counter = FaultCounter::open().expect("/proc");
        time(
            "faults",
            Box::new(move || _ = std::hint::black_box(counter.read())),
        );
        let mut sampler = OsSampler::new(Duration::ZERO);
        time(
            "resident set and faults",
            Box::new(move || sampler.sample_rss_and_faults()),
        );
        let mut sampler = OsSampler::new(Duration::ZERO);
        time("peak", Box::new(move || sampler.sample_peak()));
        let mut sampler = OsSampler::new(Duration::ZERO);
        time("switches", Box::new(move || sampler.count_switches()));
        let process = Process::myself().expect("/proc");
        time(
            "huge pages",
            Box::new(move || _ = std::hint::black_box(huge_page_bytes(&process))),
        );
        println!(
            "{:?} {:?} {:?}",
            machine_info("", None),
            physical_cores(),
            governor()
        );
    }
}
