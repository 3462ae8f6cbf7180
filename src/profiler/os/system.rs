//! Frequency, temperature, steal time and the like: what changes under a run without anybody asking for it.

use super::parse::{self, CpuTimes, Shares};
use crate::profiler::Clock;
use crate::profiler::figures::SystemFigures;
use procfs::process::Process;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Least time between two readings, and the time that shares are of.
const INTERVAL: Duration = Duration::from_secs(1);
/// CPUs whose frequency is read, at most: each is a file that asks the processor.
const MOST_CPUS: usize = 32;
/// Sensors read, at most.
const MOST_SENSORS: usize = 16;

/// Frequency under this share of the highest is worth a warning.
const LOW_FREQUENCY: f64 = 0.9;
/// Steal above this share is worth a warning.
const HIGH_STEAL: f64 = 0.02;
/// A drop of throughput above this is worth a warning.
const HIGH_DROP: f64 = 0.05;

/// Names of drivers of CPU temperature sensors, in `hwmon`.
const CPU_SENSORS: [&str; 7] = [
    "coretemp",
    "k10temp",
    "zenpower",
    "k8temp",
    "cpu_thermal",
    "scpi_sensors",
    "via_cputemp",
];

/// What the warnings need to know of the run.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// CPUs that the model's threads were last seen on; those that this process may use where empty.
    pub cores: &'a [u32],
    /// As [`SystemFigures::throughput_drop`].
    pub throughput_drop: Option<f64>,
}

/// Reads the system's figures, at most once a second. On a machine of many CPUs a reading takes some milliseconds.
#[derive(Debug)]
pub struct SystemSampler {
    cpus: Vec<u32>,
    sensors: Vec<PathBuf>,
    frequency_max_mhz: Option<f64>,
    tsc_mhz: Option<f64>,
    governor: Option<String>,
    times: Option<CpuTimes>,
    last: Option<Instant>,
    figures: SystemFigures,
    /// Frequency and highest frequency by CPU.
    frequencies: Vec<(u32, f64, Option<f64>)>,
}

impl Default for SystemSampler {
    fn default() -> Self {
        Self::new()
    }
}

impl SystemSampler {
    /// Finds out what there is to read.
    pub fn new() -> Self {
        let cpus = allowed_cpus();
        let highest = cpus.iter().filter_map(|&cpu| highest_mhz(cpu));
        Self {
            sensors: sensors(Path::new("/sys/class")),
            frequency_max_mhz: highest.reduce(f64::max).or_else(cpuid_max_mhz),
            tsc_mhz: Clock::calibrated().tsc_mhz(),
            governor: super::governor().as_deref().and_then(parse::word),
            cpus,
            times: None,
            last: None,
            figures: SystemFigures::default(),
            frequencies: Vec::new(),
        }
    }

    /// The figures, at most a second old. Shares of time are unknown at first: they are of the time between two readings.
    /// `run` is `None` while the model does not work; frequency and throughput are then no warning.
    pub fn figures(&mut self, run: Option<&Run>) -> SystemFigures {
        if self.last.is_none_or(|at| at.elapsed() >= INTERVAL) {
            self.last = Some(Instant::now());
            self.read(run.map_or(&[], |r| r.cores));
        }
        let mut figures = self.figures.clone();
        figures.throughput_drop = run.and_then(|r| r.throughput_drop);
        let share = run.and_then(|r| frequency_share(&self.frequencies, r.cores));
        figures.warnings = warnings(&figures, share);
        figures
    }

    fn read(&mut self, cores: &[u32]) {
        let times = text("/proc/stat").and_then(|t| CpuTimes::parse(&t));
        let shares = times
            .zip(self.times)
            .and_then(|(now, then)| now.shares_since(then));
        self.times = times;
        self.read_frequencies(cores);
        let own = self.frequencies.iter().filter(|f| self.cpus.contains(&f.0));
        let sensors = self.sensors.iter();
        self.figures = SystemFigures {
            frequency_mhz: mean(own.map(|f| f.1)),
            frequency_max_mhz: self.frequency_max_mhz,
            tsc_mhz: self.tsc_mhz,
            governor: self.governor.clone(),
            temperature_c: sensors
                .filter_map(|path| parse::millidegrees(&text(path)?))
                .reduce(f64::max),
            steal_share: shares.and_then(|s: Shares| s.steal),
            busy_share: shares.map(|s| s.busy),
            load_1m: text("/proc/loadavg").and_then(|t| parse::load_1m(&t)),
            huge_page_mode: text("/sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|t| parse::chosen(&t)),
            throughput_drop: None,
            warnings: Vec::new(),
        };
    }

    fn read_frequencies(&mut self, cores: &[u32]) {
        let mut cpus = self.cpus.clone();
        let others = cores.iter().filter(|c| !self.cpus.contains(c));
        cpus.extend(others.take(MOST_CPUS));
        self.frequencies.clear();
        for &cpu in &cpus {
            if let Some(now) = text(cpufreq(cpu, "scaling_cur_freq")).and_then(|t| parse::khz(&t)) {
                self.frequencies.push((cpu, now, highest_mhz(cpu)));
            }
        }
        if self.frequencies.is_empty()
            && let Some(all) = text("/proc/cpuinfo").and_then(|t| parse::cpuinfo_mhz(&t))
        {
            let wanted = all.into_iter().filter(|(cpu, _)| cpus.contains(cpu));
            let highest = self.frequency_max_mhz;
            self.frequencies
                .extend(wanted.map(|(cpu, mhz)| (cpu, mhz, highest)));
        }
    }
}

/// Mean of each CPU's frequency over its highest, of `cores` or, without any of them, of all: CPUs differ in what they can do.
fn frequency_share(frequencies: &[(u32, f64, Option<f64>)], cores: &[u32]) -> Option<f64> {
    let share = |f: &(u32, f64, Option<f64>)| Some(f.1 / f.2?);
    let of_cores = frequencies.iter().filter(|f| cores.contains(&f.0));
    mean(of_cores.filter_map(share)).or_else(|| mean(frequencies.iter().filter_map(share)))
}

fn warnings(figures: &SystemFigures, frequency_share: Option<f64>) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(governor) = figures.governor.as_deref()
        && governor != "performance"
    {
        all.push(format!(
            "the frequency governor is {governor}, not performance: sudo cpupower frequency-set -g performance"
        ));
    }
    if let Some(share) = frequency_share.filter(|&s| s < LOW_FREQUENCY) {
        all.push(format!(
            "the model's cores run at {:.0}% of their highest frequency: heat, a power limit, or many cores at once",
            share * 100.0
        ));
    }
    if let Some(steal) = figures.steal_share.filter(|&s| s > HIGH_STEAL) {
        all.push(format!(
            "the hypervisor gave {:.0}% of the CPU time to others: times vary with what they do",
            steal * 100.0
        ));
    }
    if let Some(drop) = figures.throughput_drop.filter(|&d| d > HIGH_DROP) {
        all.push(format!(
            "decode fell {:.0}% below the rate that the run began with: heat, other programs, or a context that grows",
            drop * 100.0
        ));
    }
    all
}

fn text(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0u32), |(sum, n), x| (sum + x, n + 1));
    (n > 0).then(|| sum / f64::from(n))
}

fn cpufreq(cpu: u32, file: &str) -> String {
    format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/{file}")
}

fn highest_mhz(cpu: u32) -> Option<f64> {
    text(cpufreq(cpu, "cpuinfo_max_freq")).and_then(|t| parse::khz(&t))
}

/// CPUID leaf 16h; virtual machines and other makers than Intel have none.
#[cfg(target_arch = "x86_64")]
fn cpuid_max_mhz() -> Option<f64> {
    let info = raw_cpuid::CpuId::new().get_processor_frequency_info()?;
    Some(f64::from(info.processor_max_frequency())).filter(|&mhz| mhz > 0.0)
}

#[cfg(not(target_arch = "x86_64"))]
fn cpuid_max_mhz() -> Option<f64> {
    None
}

/// CPUs that this process may use; of more than [`MOST_CPUS`] so many, spread over all.
fn allowed_cpus() -> Vec<u32> {
    let allowed = Process::myself().and_then(|p| p.status());
    let ranges = allowed.ok().and_then(|s| s.cpus_allowed_list);
    let all: Vec<u32> = ranges
        .unwrap_or_default()
        .into_iter()
        .flat_map(|(from, to)| from..=to.min(from.saturating_add(8191)))
        .collect();
    let step = all.len().div_ceil(MOST_CPUS).max(1);
    all.into_iter().step_by(step).collect()
}

/// Files of the CPU's temperature sensors under `class`, which is `/sys/class`: those of its own drivers, else thermal zones.
fn sensors(class: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for chip in entries(&class.join("hwmon")) {
        let name = text(chip.join("name")).unwrap_or_default();
        if CPU_SENSORS.contains(&name.trim()) {
            found.extend(entries(&chip).into_iter().filter(|file| {
                let file = file.file_name().unwrap_or_default().to_string_lossy();
                file.starts_with("temp") && file.ends_with("_input")
            }));
        }
    }
    if found.is_empty() {
        let of_cpu = |zone: &PathBuf| {
            let kind = text(zone.join("type")).unwrap_or_default().to_lowercase();
            kind.contains("cpu") || kind.trim() == "x86_pkg_temp" || kind.starts_with("soc")
        };
        let zones = entries(&class.join("thermal")).into_iter().filter(of_cpu);
        found.extend(zones.map(|zone| zone.join("temp")));
    }
    found.truncate(MOST_SENSORS);
    found
}

/// Entries of a folder in the order of their names.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = std::fs::read_dir(folder).into_iter().flatten();
    let mut all: Vec<_> = read.filter_map(|e| Some(e.ok()?.path())).collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A last reading that stays new however slow the test is.
    fn not_due() -> Option<Instant> {
        Some(Instant::now() + 100 * INTERVAL)
    }

    #[test]
    fn shares_need_two_readings() {
        let mut sampler = SystemSampler::new();
        let first = sampler.figures(None);
        assert_eq!((first.busy_share, first.steal_share), (None, None));
        assert!(first.load_1m.is_some());
        sampler.last = not_due();
        assert_eq!(sampler.figures(None), first);
        sampler.times = CpuTimes::parse("cpu  0 0 0 0 0 0 0 0");
        sampler.last = None;
        let second = sampler.figures(None);
        assert!(second.busy_share.is_some_and(|b| (0.0..=1.0).contains(&b)));
    }

    #[test]
    fn what_is_worth_acting_on_is_warned_of() {
        let mut figures = SystemFigures {
            governor: Some("performance".into()),
            steal_share: Some(0.02),
            throughput_drop: Some(0.05),
            ..SystemFigures::default()
        };
        assert!(warnings(&figures, Some(0.9)).is_empty());
        assert!(warnings(&SystemFigures::default(), None).is_empty());
        figures.governor = Some("powersave".into());
        (figures.steal_share, figures.throughput_drop) = (Some(0.04), Some(0.12));
        let all = warnings(&figures, Some(0.64));
        let parts = ["powersave", "64%", "4%", "12%"];
        assert_eq!(all.len(), parts.len());
        for (warning, part) in all.iter().zip(parts) {
            assert!(warning.contains(part), "{warning}");
        }
    }

    #[test]
    fn an_idle_machine_is_not_warned_of_its_frequency() {
        let mut sampler = SystemSampler::new();
        sampler.governor = None;
        let of = |cores: &'static [u32]| Run {
            cores,
            throughput_drop: Some(0.5),
        };
        sampler.last = not_due();
        sampler.frequencies = vec![(0, 900.0, Some(3000.0)), (1, 2900.0, Some(3000.0))];
        assert!(sampler.figures(None).warnings.is_empty());
        assert_eq!(sampler.figures(Some(&of(&[1]))).warnings.len(), 1);
        assert_eq!(sampler.figures(Some(&of(&[0]))).warnings.len(), 2);
        assert_eq!(sampler.figures(Some(&of(&[]))).warnings.len(), 2);
        assert_eq!(sampler.figures(None).throughput_drop, None);
    }

    #[test]
    fn frequencies_are_judged_by_each_cpus_own_highest() {
        let mixed = [
            (0, 1900.0, Some(2000.0)),
            (1, 3800.0, Some(4000.0)),
            (2, 1000.0, None),
        ];
        assert_eq!(frequency_share(&mixed, &[0, 1]), Some(0.95));
        assert_eq!(frequency_share(&mixed, &[2]), Some(0.95));
        assert_eq!(frequency_share(&[], &[0]), None);
    }

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        folder
    }

    #[test]
    fn sensors_of_the_cpu_are_found_and_no_others() {
        let class = folder(&[
            ("hwmon/hwmon0/name", "nvme\n"),
            ("hwmon/hwmon0/temp1_input", "40000\n"),
            ("hwmon/hwmon1/name", "coretemp\n"),
            ("hwmon/hwmon1/temp1_input", "61000\n"),
            ("hwmon/hwmon1/temp2_input", "0\n"),
            ("hwmon/hwmon1/temp1_label", "Package id 0\n"),
            ("thermal/thermal_zone0/type", "x86_pkg_temp\n"),
            ("thermal/thermal_zone0/temp", "99000\n"),
        ]);
        let found = sensors(class.path());
        let ends = ["hwmon1/temp1_input", "hwmon1/temp2_input"];
        assert_eq!(found.len(), 2);
        assert!(
            found
                .iter()
                .zip(ends)
                .all(|(path, end)| path.ends_with(end))
        );
        let zones = folder(&[
            ("thermal/thermal_zone0/type", "acpitz\n"),
            ("thermal/thermal_zone1/type", "cpu-thermal\n"),
        ]);
        let found = sensors(zones.path());
        assert_eq!(found, [zones.path().join("thermal/thermal_zone1/temp")]);
        assert!(sensors(Path::new("/nowhere")).is_empty());
    }

    /// `cargo test --release --lib system:: -- --ignored --nocapture` prints what a reading costs here, and what it says.
    #[test]
    #[ignore = "a measurement, not a check"]
    fn cost_of_a_reading() {
        let mut sampler = SystemSampler::new();
        let start = Instant::now();
        (0..200).for_each(|_| sampler.read(&[]));
        println!("{:?} {:#?}", start.elapsed() / 200, sampler.figures);
    }
}
