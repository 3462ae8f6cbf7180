//! A clock that costs one load: a thread of its own writes the time down every so often.
//!
//! It is for coarse stamps only, such as how far apart two frames are. What is shorter than its period it cannot see, so bricks
//! and polls are timed with [`super::clock::Clock`]. Its thread wakes once a period: 100 us are ten thousand wake-ups a
//! second, a tenth of a core and more on a small virtual machine, which a profiler must not take from the model it watches. So
//! nobody gets the time without holding a [`CoarseClock`], the thread ends with the last of them, and the period is the
//! holder's choice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Period at which the clock is at most 200 us behind on a machine that wakes threads in time.
pub const FINEST_PERIOD: Duration = Duration::from_micros(100);

/// On cache lines of its own, so that reading it is never held up by a write to a neighbour. Two lines: x86 fetches them in pairs.
#[repr(align(128))]
struct Alone(AtomicU64);

struct Shared {
    nanos: Alone,
    origin: Instant,
}

impl Shared {
    fn update(&self) {
        let now = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // Nothing else is published with the time, so no order is needed.
        self.nanos.0.store(now, Ordering::Relaxed);
    }
}

/// The right to read the time. Clones read the same clock.
#[derive(Clone)]
pub struct CoarseClock(Arc<Shared>);

impl std::fmt::Debug for CoarseClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CoarseClock").field(&self.now_ns()).finish()
    }
}

impl CoarseClock {
    /// Starts a clock that is brought up to date every `period`, [`FINEST_PERIOD`] at least. Its thread ends within a period
    /// after the last clone is dropped.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(period: Duration) -> std::io::Result<Self> {
        let period = period.max(FINEST_PERIOD);
        let shared = Arc::new(Shared {
            nanos: Alone(AtomicU64::new(0)),
            origin: Instant::now(),
        });
        let of_thread = shared.clone();
        std::thread::Builder::new()
            .name("coarse clock".into())
            .spawn(move || {
                // The thread's own reference is one; nobody can make another from none.
                while Arc::strong_count(&of_thread) > 1 {
                    std::thread::sleep(period);
                    of_thread.update();
                }
            })?;
        Ok(Self(shared))
    }

    /// Nanoseconds since the clock was started, as of its last update. Never runs backward.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.0.nanos.0.load(Ordering::Relaxed)
    }

    /// Time since `then`, an earlier reading of this clock.
    pub fn since(&self, then: u64) -> Duration {
        Duration::from_nanos(self.now_ns().saturating_sub(then))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> CoarseClock {
        CoarseClock::start(FINEST_PERIOD).expect("a thread")
    }

    /// Waits for the clock to move: sleeping is all it needs, however busy the machine.
    fn wait_for(clock: &CoarseClock, ns: u64) {
        while clock.now_ns() < ns {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    #[test]
    fn f151_time_never_runs_backward_and_is_never_ahead() {
        let clock = start();
        let mut before = 0;
        let origin = clock.0.origin;
        while before < 5_000_000 {
            let now = clock.now_ns();
            assert!(now >= before);
            assert!(u128::from(now) <= origin.elapsed().as_nanos());
            before = now;
            std::thread::yield_now();
        }
    }

    #[test]
    fn f211_readings_of_64_threads_are_in_order() {
        let clock = start();
        for threads in [1, 4, 16, 64] {
            let started = Instant::now();
            let reads = 20_000;
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        let mut before = 0;
                        for _ in 0..reads {
                            let now = clock.now_ns();
                            assert!(now >= before);
                            before = now;
                        }
                    });
                }
            });
            let each = started.elapsed().as_secs_f64() * 1e9 / f64::from(threads * reads);
            println!("{threads} threads: {each:.2} ns a reading, all threads together");
        }
        wait_for(&clock, clock.now_ns() + 1);
    }

    #[test]
    fn f211_the_time_has_a_cache_line_of_its_own() {
        assert_eq!(std::mem::align_of::<Alone>(), 128);
        assert_eq!(std::mem::size_of::<Alone>(), 128);
        let clock = start();
        assert_eq!(std::ptr::from_ref(&clock.0.nanos).addr() % 128, 0);
    }

    #[test]
    fn f211_the_thread_ends_with_the_last_clock() {
        let clock = start();
        let shared = Arc::downgrade(&clock.0);
        let second = clock.clone();
        drop(clock);
        wait_for(&second, 1);
        assert!(shared.upgrade().is_some());
        drop(second);
        while shared.strong_count() > 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    #[test]
    fn f152_an_age_counts_from_the_stamp() {
        let clock = start();
        let then = clock.now_ns();
        wait_for(&clock, then + 2_000_000);
        assert!(clock.since(then) >= Duration::from_millis(2));
        assert_eq!(clock.since(u64::MAX), Duration::ZERO);
    }

    /// `cargo test --release --lib f152_ -- --ignored --nocapture` prints how far the clock is behind, and its cost.
    #[test]
    #[ignore = "a measurement, not a check"]
    fn f152_f153_drift_and_cost() {
        let clock = start();
        wait_for(&clock, 1_000_000);
        let mut behind: Vec<u64> = (0..20_000)
            .map(|_| {
                std::thread::sleep(Duration::from_micros(20));
                let coarse = clock.now_ns();
                let now = clock.0.origin.elapsed().as_nanos() as u64;
                now.saturating_sub(coarse)
            })
            .collect();
        behind.sort_unstable();
        let at = |q: f64| behind[((behind.len() - 1) as f64 * q) as usize] as f64 * 1e-3;
        println!(
            "f152 behind Instant: median {:.0} us, 99% {:.0} us, most {:.0} us",
            at(0.5),
            at(0.99),
            at(1.0)
        );
        let start = Instant::now();
        for _ in 0..1_000_000 {
            std::hint::black_box(clock.now_ns());
        }
        println!(
            "f153 a reading: {:.2} ns",
            start.elapsed().as_secs_f64() * 1e3
        );
    }

    /// `cargo test --release --lib f211_cost -- --ignored --nocapture` prints what the thread takes of a core.
    #[cfg(target_os = "linux")]
    #[test]
    #[ignore = "a measurement, not a check"]
    fn f211_cost_of_the_thread() {
        let ticks = || {
            let stat = procfs::process::Process::myself()
                .and_then(|p| p.stat())
                .expect("/proc");
            stat.utime + stat.stime
        };
        for period in [100, 1_000, 10_000] {
            let clock = CoarseClock::start(Duration::from_micros(period)).expect("a thread");
            let before = ticks();
            std::thread::sleep(Duration::from_secs(3));
            let used = (ticks() - before) as f64 / procfs::ticks_per_second() as f64 / 3.0;
            println!("every {period} us: {:.1}% of a core", used * 100.0);
            drop(clock);
        }
    }
}
