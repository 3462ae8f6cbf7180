//! Read-bandwidth probe: the attainable roof that a decode step's traffic is judged against.
//!
//! Threads sum a buffer larger than the last-level cache, each its own part, as a decode step reads weights. The best
//! of three rounds counts: other work on the machine can only make a round slower.

use super::os;
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
    let go = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut parts = buffer.chunks(buffer.len().div_ceil(threads).max(1));
        let own = parts.next()?;
        let start = |part| {
            std::thread::Builder::new()
                .spawn_scoped(scope, move || read_for(part, go))
                .ok()
        };
        let workers: Option<Vec<_>> = parts.map(start).collect();
        // Also when not all could be started: those that were must not wait for ever.
        go.store(true, Ordering::Release);
        let mut total = read_for(own, go);
        for worker in workers? {
            total += worker.join().ok()?;
        }
        (total > 0.0).then_some(total)
    })
}

/// Once told to go, sums `part` over and over for [`ROUND`]; GB/s of this thread.
fn read_for(part: &[u64], go: &AtomicBool) -> f64 {
    while !go.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
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

    /// `cargo test --release --lib probe -- --ignored --nocapture` prints this machine's figures.
    #[test]
    #[ignore = "a measurement, not a check"]
    fn print_bandwidth() {
        let start = Instant::now();
        println!("{:?} in {:?}", read_bandwidth(&[1, 2]), start.elapsed());
    }
}
