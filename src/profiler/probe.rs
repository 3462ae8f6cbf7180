//! Probes of what this machine can do: the roofs that a decode step is judged against.
//!
//! For read bandwidth, threads sum a buffer larger than the last-level cache, each its own part, as a decode step reads
//! weights. For arithmetic, they multiply and add in registers with the instructions of a kernel set. The best of three
//! rounds counts: other work on the machine can only make a round slower.

use super::os;
use crate::engine::config::cpus;
use crate::engine::cpu::KernelSet;
use crate::engine::cpu::peak::{Arithmetic, PeakLoop};
use crate::profiler::figures::{Peak, PeakKind};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Buffer where memory and caches allow.
const BUFFER_BYTES: u64 = 256 << 20;
/// Largest buffer, for machines with huge caches.
const MAX_BUFFER_BYTES: u64 = 1 << 30;
/// Below this a buffer measures nothing but start-up.
const MIN_BUFFER_BYTES: u64 = 16 << 20;
/// Rounds for a thread count and the time of each: about 60 ms in all.
const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_millis(20);
/// The time of each round of arithmetic: about 30 ms in all for a peak.
const ARITHMETIC_ROUND: Duration = Duration::from_millis(10);
/// The same for kernel sets that are not in use, whose peaks are there to compare with.
const BRIEF_ROUND: Duration = Duration::from_millis(4);
/// Rounds of a loop between two looks at the clock, some 5 to 20 us; no sum overflows in them.
const BLOCK_ROUNDS: u32 = 4096;
/// Words read between two looks at the clock: 512 KiB, some 50 us.
const BLOCK_WORDS: usize = 64 << 10;
/// More threads than this are a mistake of the caller.
const MAX_THREADS: usize = 1024;

/// The bandwidth that `threads` threads reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bandwidth {
    /// Threads that read.
    pub threads: u32,
    /// GB/s (10^9), all together.
    pub gbps: f64,
}

/// Measures each of the thread counts, about 60 ms each after filling the buffer (about 0.1 s); counts of zero or above
/// 1024 are left out. Empty where the memory available does not allow a buffer larger than the last-level cache.
pub fn read_bandwidth(thread_counts: &[usize]) -> Vec<Bandwidth> {
    let Some(bytes) = buffer_bytes(os::memory_available_bytes(), os::last_level_cache_bytes())
    else {
        return Vec::new();
    };
    let measured = measure(bytes, thread_counts);
    // The buffer is gone; without this it would stand as the session's peak for good.
    os::reset_peak_resident();
    measured
}

/// An eighth of what is available, up to 256 MiB or four times the cache, whichever is more; `None` when that is no
/// larger than twice the cache (its upper half would be served from there) or tiny.
fn buffer_bytes(available: Option<u64>, cache: Option<u64>) -> Option<u64> {
    let cache = cache.unwrap_or(0);
    let wanted = BUFFER_BYTES
        .max(cache.saturating_mul(4))
        .min(MAX_BUFFER_BYTES);
    let bytes = wanted.min(available? / 8);
    (bytes >= MIN_BUFFER_BYTES && bytes > cache.saturating_mul(2)).then_some(bytes)
}

fn measure(bytes: u64, thread_counts: &[usize]) -> Vec<Bandwidth> {
    let Ok(words) = usize::try_from(bytes / 8) else {
        return Vec::new();
    };
    let mut buffer: Vec<u64> = Vec::new();
    if buffer.try_reserve_exact(words).is_err() {
        return Vec::new();
    }
    // Written, not zeroed: zero pages all map to one page and would be read from the cache.
    buffer.extend((0..words).map(|i| i as u64 | 1));
    let best = |&threads: &usize| -> Option<Bandwidth> {
        let gbps = (0..ROUNDS)
            .filter_map(|_| round(&buffer, threads))
            .reduce(f64::max)?;
        Some(Bandwidth {
            threads: u32::try_from(threads).ok()?,
            gbps,
        })
    };
    thread_counts
        .iter()
        .filter(|n| (1..=MAX_THREADS).contains(*n))
        .filter_map(best)
        .collect()
}

/// All threads read for [`ROUND`]; GB/s of them together. `None` if a thread could not be started.
fn round(buffer: &[u64], threads: usize) -> Option<f64> {
    let parts = buffer.chunks(buffer.len().div_ceil(threads).max(1));
    together(parts.map(|part| move || read_for(part)).collect())
}

/// Runs every piece of work on a thread of its own, the first on this one, all let go at once; the sum of what they
/// return. `None` if a thread could not be started or the sum is not positive.
fn together<W: FnOnce() -> f64 + Send>(work: Vec<W>) -> Option<f64> {
    let go = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut work = work.into_iter();
        let own = work.next()?;
        let start = |work: W| {
            let waiting = move || {
                while !go.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                work()
            };
            std::thread::Builder::new()
                .spawn_scoped(scope, waiting)
                .ok()
        };
        let workers: Option<Vec<_>> = work.map(start).collect();
        // Also when not all could be started: those that were must not wait for ever.
        go.store(true, Ordering::Release);
        let mut total = own();
        for worker in workers? {
            total += worker.join().ok()?;
        }
        (total > 0.0).then_some(total)
    })
}

/// Sums `part` over and over for [`ROUND`]; GB/s of this thread.
fn read_for(part: &[u64]) -> f64 {
    let start = Instant::now();
    let mut words = 0usize;
    for block in part.chunks(BLOCK_WORDS).cycle() {
        black_box(sum(block));
        words += block.len();
        if start.elapsed() >= ROUND {
            break;
        }
    }
    words as f64 * 8.0 / start.elapsed().as_secs_f64() * 1e-9
}

/// The peaks of this machine, memory first: the bandwidth that [`read_bandwidth`] found, float and int8 arithmetic of
/// the kernel set `set` on one thread, on `threads` and on every CPU, and of the other kernel sets on one thread. Those
/// of `set` and `threads` are marked as in use. Takes about 60 ms a thread count and 25 ms a further kernel set.
pub fn peaks(bandwidth: &[Bandwidth], set: KernelSet, threads: usize) -> Vec<Peak> {
    let memory = bandwidth.iter().map(|b| Peak {
        kind: PeakKind::Memory,
        isa: String::new(),
        threads: b.threads,
        value: b.gbps,
        in_use: false,
    });
    let mut peaks: Vec<Peak> = memory.collect();
    for other in KernelSet::available() {
        let round = if other == set {
            ARITHMETIC_ROUND
        } else {
            BRIEF_ROUND
        };
        add_arithmetic(&mut peaks, other, 1, round);
    }
    add_arithmetic(&mut peaks, set, cpus(), ARITHMETIC_ROUND);
    in_use(&mut peaks, set, threads);
    peaks
}

/// Marks the peaks of `set` and `threads` as those in use, and measures their arithmetic where it is not among `peaks`
/// (60 ms): call it when the configuration of the engine has changed, with its threads at rest.
pub fn in_use(peaks: &mut Vec<Peak>, set: KernelSet, threads: usize) {
    add_arithmetic(peaks, set, threads, ARITHMETIC_ROUND);
    for peak in &mut *peaks {
        let here = peak.kind == PeakKind::Memory || peak.isa == set.name();
        peak.in_use = here && usize::try_from(peak.threads).is_ok_and(|t| t == threads);
    }
    peaks.sort_by_key(|p| (p.kind as u8, place(&p.isa), p.threads));
}

/// Kernel sets in their own order, slowest first; memory, which has none, before them.
fn place(isa: &str) -> Option<usize> {
    KernelSet::ALL.iter().position(|set| set.name() == isa)
}

fn add_arithmetic(peaks: &mut Vec<Peak>, set: KernelSet, threads: usize, time: Duration) {
    let Ok(count) = u32::try_from(threads) else {
        return;
    };
    for (kind, arithmetic) in [
        (PeakKind::Fp32, Arithmetic::Fp32),
        (PeakKind::Int8, Arithmetic::Int8),
    ] {
        let known = |p: &Peak| p.kind == kind && p.isa == set.name() && p.threads == count;
        if peaks.iter().any(known) {
            continue;
        }
        let value = PeakLoop::new(set, arithmetic).and_then(|l| best_of(l, threads, time));
        peaks.extend(value.map(|value| Peak {
            kind,
            isa: set.name().into(),
            threads: count,
            value,
            in_use: false,
        }));
    }
}

/// Operations a nanosecond (10^9 a second) of all threads together, the best of [`ROUNDS`].
fn best_of(l: PeakLoop, threads: usize, time: Duration) -> Option<f64> {
    if !(1..=MAX_THREADS).contains(&threads) {
        return None;
    }
    let round = || together((0..threads).map(|_| move || compute_for(l, time)).collect());
    (0..ROUNDS).filter_map(|_| round()).reduce(f64::max)
}

/// Runs a loop for `time`; operations a nanosecond of this thread.
fn compute_for(l: PeakLoop, time: Duration) -> f64 {
    let start = Instant::now();
    let mut ops = 0u64;
    loop {
        black_box(l.run(BLOCK_ROUNDS, 1, 1));
        ops += l.ops(BLOCK_ROUNDS);
        let took = start.elapsed();
        if took >= time {
            return ops as f64 / took.as_secs_f64() * 1e-9;
        }
    }
}

/// Eight independent sums, which the compiler keeps in vector registers: one alone would wait for each addition.
fn sum(block: &[u64]) -> u64 {
    let (rows, rest) = block.as_chunks::<16>();
    let mut sums = [0u64; 16];
    for row in rows {
        for (s, v) in sums.iter_mut().zip(row) {
            *s = s.wrapping_add(*v);
        }
    }
    sums.iter().chain(rest).fold(0, |a, v| a.wrapping_add(*v))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_fits_memory_and_exceeds_the_cache() {
        const MIB: u64 = 1 << 20;
        let cases = [
            (Some(24 << 30), Some(32 * MIB), Some(256 * MIB)),
            (Some(24 << 30), Some(128 * MIB), Some(512 * MIB)),
            (Some(1 << 30), Some(32 * MIB), Some(128 * MIB)),
            (Some(512 * MIB), Some(32 * MIB), None),
            (Some(512 * MIB), None, Some(64 * MIB)),
            (Some(64 * MIB), None, None),
            (Some(64 << 30), Some(u64::MAX), None),
            (None, Some(32 * MIB), None),
        ];
        for (available, cache, expected) in cases {
            assert_eq!(
                buffer_bytes(available, cache),
                expected,
                "{available:?} {cache:?}"
            );
        }
    }

    #[test]
    fn sums_every_word() {
        for n in [0, 1, 15, 16, 17, 1000] {
            let block: Vec<u64> = (0..n).collect();
            assert_eq!(sum(&block), (0..n).sum::<u64>());
        }
    }

    #[test]
    fn every_sensible_thread_count_gets_a_figure() {
        let got = measure(1 << 20, &[0, 1, 3, MAX_THREADS + 1]);
        assert_eq!(got.iter().map(|b| b.threads).collect::<Vec<_>>(), [1, 3]);
        assert!(got.iter().all(|b| b.gbps > 0.0 && b.gbps.is_finite()));
    }

    #[test]
    fn f143_every_available_kernel_set_has_peaks_of_its_own() {
        let bandwidth = [Bandwidth {
            threads: 3,
            gbps: 12.5,
        }];
        let set = KernelSet::best();
        let mut all = peaks(&bandwidth, set, 3);
        assert!(all.iter().all(|p| p.value > 0.0 && p.value.is_finite()));
        assert_eq!((all[0].kind, all[0].value), (PeakKind::Memory, 12.5));
        for other in KernelSet::available() {
            let has = |kind, threads| {
                all.iter()
                    .any(|p| p.kind == kind && p.isa == other.name() && p.threads == threads)
            };
            assert!(has(PeakKind::Fp32, 1), "{other}");
            assert_eq!(
                has(PeakKind::Int8, 1),
                other != KernelSet::Scalar,
                "{other}"
            );
            assert_eq!(has(PeakKind::Fp32, 3), other == set, "{other}");
        }
        let used = |all: &[Peak]| -> Vec<(PeakKind, String, u32)> {
            let used = all.iter().filter(|p| p.in_use);
            used.map(|p| (p.kind, p.isa.clone(), p.threads)).collect()
        };
        assert_eq!(
            used(&all)[..2],
            [
                (PeakKind::Memory, String::new(), 3),
                (PeakKind::Fp32, set.name().into(), 3)
            ]
        );
        in_use(&mut all, KernelSet::Scalar, 2);
        assert_eq!(used(&all), [(PeakKind::Fp32, "scalar".into(), 2)]);
        let (kinds, before) = (all.iter().map(|p| p.kind as u8), all.len());
        assert!(kinds.is_sorted());
        in_use(&mut all, KernelSet::Scalar, 2);
        assert_eq!(all.len(), before);
    }

    #[test]
    fn hopeless_thread_counts_have_no_peak() {
        let l = PeakLoop::new(KernelSet::Scalar, Arithmetic::Fp32).unwrap();
        for threads in [0, MAX_THREADS + 1] {
            assert_eq!(best_of(l, threads, Duration::from_millis(1)), None);
        }
    }

    /// `cargo test --release --lib probe -- --ignored --nocapture` prints this machine's figures.
    #[test]
    #[ignore = "a measurement, not a check"]
    fn print_bandwidth() {
        let start = Instant::now();
        let bandwidth = read_bandwidth(&[1, cpus()]);
        println!("{bandwidth:?} in {:?}", start.elapsed());
        let start = Instant::now();
        let peaks = peaks(&bandwidth, KernelSet::best(), cpus());
        println!("{peaks:#?} in {:?}", start.elapsed());
    }
}
