//! Clocks: the time-stamp counter where it is invariant, `Instant` elsewhere, and modelled time for `--deterministic`.
#![allow(unsafe_code)]

use std::sync::OnceLock;
#[cfg(any(test, target_arch = "x86_64"))]
use std::time::Duration;
use std::time::Instant;

/// Bandwidth of the modelled clock's machine, GB/s (10^9).
pub const MODELLED_GBPS: f64 = 10.0;
/// Fixed cost of one call under the modelled clock, nanoseconds.
pub const MODELLED_CALL_NS: f64 = 500.0;

/// Ticks of modelled time in a nanosecond: at 10 GB/s one byte is then exactly one tick, so sums stay whole.
const MODELLED_TICKS_PER_NS: u64 = 10;

/// A source of ticks and the length of a tick. `Copy`; all copies tell the same time.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    source: Source,
    ns_per_tick: f64,
}

#[derive(Debug, Clone, Copy)]
enum Source {
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
    Tsc,
    Instant(Instant),
    Modelled,
}

impl Clock {
    /// The best clock here: the time-stamp counter where CPUID says that it is invariant and two halves of a
    /// calibration of about 10 ms against `Instant` agree, else `Instant`. The first call in a process calibrates.
    pub fn calibrated() -> Self {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        *CLOCK.get_or_init(|| calibrate_tsc().unwrap_or_else(Self::instant))
    }

    /// `Instant` as a clock: ticks are nanoseconds.
    pub fn instant() -> Self {
        Self {
            source: Source::Instant(Instant::now()),
            ns_per_tick: 1.0,
        }
    }

    /// Modelled time: every call costs [`MODELLED_CALL_NS`] plus its bytes at [`MODELLED_GBPS`], whatever the machine
    /// does. The time itself is kept by the recorder, which is told what each call moved; [`Clock::now`] stays 0.
    /// Whoever shows such times says "modelled".
    pub fn modelled() -> Self {
        Self {
            source: Source::Modelled,
            ns_per_tick: 1.0 / MODELLED_TICKS_PER_NS as f64,
        }
    }

    /// Ticks now; differences mean something, absolute values do not. Always 0 for a modelled clock.
    #[inline]
    pub fn now(&self) -> u64 {
        match self.source {
            Source::Tsc => tsc(),
            Source::Instant(origin) => {
                u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
            }
            Source::Modelled => 0,
        }
    }

    /// Ticks now, and the core (logical CPU) they were read on where the clock tells: on Linux the counter's own
    /// instruction reads both at once.
    #[inline]
    pub fn stamp(&self) -> (u64, Option<u16>) {
        match self.source {
            Source::Tsc => tsc_and_core(),
            _ => (self.now(), None),
        }
    }

    /// Length of `ticks` in nanoseconds.
    #[inline]
    pub fn ns(&self, ticks: u64) -> f64 {
        ticks as f64 * self.ns_per_tick
    }

    /// Length of `ticks` in microseconds.
    #[inline]
    pub fn us(&self, ticks: u64) -> f64 {
        self.ns(ticks) * 1e-3
    }

    /// What one stamp costs, nanoseconds: the median of short series; `None` for modelled time. About 50 us.
    pub fn stamp_cost_ns(&self) -> Option<f64> {
        const STAMPS: u32 = 64;
        if self.is_modelled() {
            return None;
        }
        let mut series: [f64; 15] = std::array::from_fn(|_| {
            let began = self.now();
            for _ in 0..STAMPS {
                std::hint::black_box(self.stamp());
            }
            self.ns(self.now().saturating_sub(began)) / f64::from(STAMPS)
        });
        series.sort_by(f64::total_cmp);
        Some(series[series.len() / 2])
    }

    /// Cycles of the time-stamp counter in `ns` nanoseconds; `None` with another clock.
    pub fn cycles(&self, ns: f64) -> Option<f64> {
        matches!(self.source, Source::Tsc).then(|| ns / self.ns_per_tick)
    }

    /// Whether times come from the cost model instead of a measurement.
    #[inline]
    pub fn is_modelled(&self) -> bool {
        matches!(self.source, Source::Modelled)
    }

    /// For reports: `tsc`, `instant` or `modelled`.
    pub fn name(&self) -> &'static str {
        match self.source {
            Source::Tsc => "tsc",
            Source::Instant(_) => "instant",
            Source::Modelled => "modelled",
        }
    }

    /// Ticks that the cost model charges for a call moving `bytes`; saturates.
    #[inline]
    pub(super) fn modelled_cost(bytes: u64) -> u64 {
        const CALL: u64 = MODELLED_CALL_NS as u64 * MODELLED_TICKS_PER_NS;
        const TICKS_PER_BYTE: u64 = (MODELLED_TICKS_PER_NS as f64 / MODELLED_GBPS) as u64;
        const { assert!(TICKS_PER_BYTE == 1) };
        CALL.saturating_add(bytes)
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn tsc() -> u64 {
    // SAFETY: RDTSC exists on every x86-64 CPU and touches no memory. A system that forbids it to user code (CR4.TSD)
    // would have ended the process in `calibrate_tsc`; Linux does so only on request of the process itself (prctl).
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// `RDTSCP`: the counter, and TSC_AUX, in whose low 12 bits Linux keeps the number of the CPU.
#[cfg(target_arch = "x86_64")]
#[inline]
fn tsc_and_core() -> (u64, Option<u16>) {
    let mut aux = 0;
    // SAFETY: `calibrate_tsc` chose this clock only where CPUID lists RDTSCP; it writes `aux` and nothing else.
    let ticks = unsafe { core::arch::x86_64::__rdtscp(&mut aux) };
    (
        ticks,
        cfg!(target_os = "linux").then_some((aux & 0xfff) as u16),
    )
}

#[cfg(not(target_arch = "x86_64"))]
fn tsc() -> u64 {
    0
}

#[cfg(not(target_arch = "x86_64"))]
fn tsc_and_core() -> (u64, Option<u16>) {
    (0, None)
}

/// The system's id of the calling thread; `None` where the system is not Linux.
pub fn os_thread_id() -> Option<i32> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: takes nothing and cannot fail (gettid(2)).
        Some(unsafe { libc::gettid() })
    }
    #[cfg(not(target_os = "linux"))]
    {
        None
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn calibrate_tsc() -> Option<Clock> {
    None
}

#[cfg(target_arch = "x86_64")]
fn calibrate_tsc() -> Option<Clock> {
    let invariant = raw_cpuid::CpuId::new()
        .get_advanced_power_mgmt_info()
        .is_some_and(|i| i.has_invariant_tsc());
    let with_core = raw_cpuid::CpuId::new()
        .get_extended_processor_and_feature_identifiers()
        .is_some_and(|i| i.has_rdtscp());
    if !invariant || !with_core {
        return None;
    }
    let half = Duration::from_millis(5);
    let a = paired_reading();
    std::thread::sleep(half);
    let b = paired_reading();
    std::thread::sleep(half);
    let c = paired_reading();
    let first = ns_per_tick(a, b)?;
    let second = ns_per_tick(b, c)?;
    // A counter that a hypervisor scales or rewinds shows up as halves that disagree.
    if (first / second - 1.0).abs() > 1e-3 {
        return None;
    }
    Some(Clock {
        source: Source::Tsc,
        ns_per_tick: ns_per_tick(a, c)?,
    })
}

/// The two clocks at one moment. Of several tries the tightest wins: an interrupt between the readings would skew them.
#[cfg(target_arch = "x86_64")]
fn paired_reading() -> (u64, Instant) {
    let read = || {
        let before = tsc();
        let instant = Instant::now();
        let width = tsc().saturating_sub(before);
        (width, (before + width / 2, instant))
    };
    let mut best = read();
    for _ in 0..15 {
        let next = read();
        if next.0 < best.0 {
            best = next;
        }
    }
    best.1
}

/// `None` for a counter that stands still, runs backward or is outside 0.1 to 20 GHz.
#[cfg(target_arch = "x86_64")]
fn ns_per_tick(from: (u64, Instant), to: (u64, Instant)) -> Option<f64> {
    let ticks = to.0.checked_sub(from.0).filter(|&t| t > 0)?;
    let ns = to.1.duration_since(from.1).as_nanos() as f64 / ticks as f64;
    (0.05..=10.0).contains(&ns).then_some(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_clocks_run_forward() {
        for clock in [Clock::calibrated(), Clock::instant()] {
            assert!(!clock.is_modelled());
            let a = clock.now();
            std::thread::sleep(Duration::from_millis(2));
            let b = clock.now();
            // Sleep guarantees a lower bound only, so only that is asserted.
            assert!(
                clock.ns(b - a) > 1e6,
                "{}: {} ns",
                clock.name(),
                clock.ns(b - a)
            );
        }
    }

    #[test]
    fn modelled_cost_is_call_plus_bytes_at_ten_gbps() {
        let clock = Clock::modelled();
        assert!(clock.is_modelled());
        assert_eq!(clock.now(), 0);
        let ns = clock.ns(Clock::modelled_cost(1_000_000));
        assert!((ns - (500.0 + 100_000.0)).abs() < 1e-6, "{ns}");
        assert_eq!(Clock::modelled_cost(u64::MAX), u64::MAX);
    }
}
