//! A pool of lock-step worker threads: one dispatch runs one closure on every thread, with barriers inside.
//!
//! Nothing here allocates or takes a lock once the pool is built. Waiting threads spin for a while (a barrier between
//! two bricks is far shorter than a system call), then sleep on a futex: a paused session is idle, and where other
//! programs want the CPU too, the scheduler brings a woken sleeper back sooner than a spinner that used up its slice.

use super::binding;
use core_affinity::CoreId;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

/// A worker thread panicked; the pool cannot be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Poisoned;

/// A number that threads wait on until it changes. On lines of its own: who spins on one must not be disturbed by writes
/// to another. Two lines, since x86 fetches them in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Signal {
    value: AtomicU32,
    sleepers: AtomicU32,
}

impl Signal {
    fn get(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    /// Adds one and wakes who sleeps.
    fn advance(&self) {
        // Sequentially consistent with the sleeper's count below: either this load sees it, or it sees the new value.
        self.value.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            atomic_wait::wake_all(&self.value);
        }
    }

    /// Returns when the value is no longer `old`.
    #[inline]
    fn wait_while(&self, old: u32, spin: u32) {
        for _ in 0..spin {
            if self.get() != old {
                return;
            }
            std::hint::spin_loop();
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while self.value.load(Ordering::SeqCst) == old {
            atomic_wait::wait(&self.value, old);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A value on lines of its own, as a [`Signal`].
#[derive(Default)]
#[repr(align(128))]
struct Alone<T>(T);

type Job = *const (dyn Fn(usize) + Sync);

struct Shared {
    threads: u32,
    /// Counts dispatches; a worker runs the job when it changes.
    epoch: Signal,
    job: UnsafeCell<Option<Job>>,
    /// Counts workers that finished a job, over all dispatches.
    finished: Signal,
    arrived: Alone<AtomicU32>,
    /// Counts barriers passed.
    phase: Signal,
    poisoned: AtomicBool,
    quit: AtomicBool,
    /// Busy-wait rounds before a waiting thread sleeps: inside a dispatch, and between two.
    spin: Spin,
}

/// Busy-wait rounds before a waiting thread sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spin {
    /// At a barrier.
    pub barrier: u32,
    /// Between two dispatches.
    pub idle: u32,
}

// SAFETY: `job` is written only by the dispatching thread while no worker runs a job (all have `finished`), and read by
// workers only after they saw the new `epoch` (release/acquire); the pointee is `Sync` and outlives the dispatch.
unsafe impl Sync for Shared {}
// SAFETY: as above; the raw pointer is never dereferenced outside a dispatch.
unsafe impl Send for Shared {}

/// The barrier that a job's threads share.
#[derive(Clone, Copy)]
pub struct Barrier<'a>(&'a Shared);

impl Barrier<'_> {
    /// Waits until every thread of the pool is here; `false`, at once, when a thread has panicked: the job must then end.
    #[inline]
    #[must_use]
    pub fn wait(&self) -> bool {
        let s = self.0;
        if s.threads == 1 {
            return true;
        }
        let phase = s.phase.get();
        if s.arrived.0.fetch_add(1, Ordering::AcqRel) + 1 == s.threads {
            s.arrived.0.store(0, Ordering::Relaxed);
            s.phase.advance();
        } else if !s.poisoned.load(Ordering::Acquire) {
            s.phase.wait_while(phase, s.spin.barrier);
        }
        !s.poisoned.load(Ordering::Acquire)
    }
}

/// Worker threads, the calling one included.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Where the thread that dispatches is to be bound.
    caller_core: Option<CoreId>,
}

impl Pool {
    /// Starts `threads - 1` workers; with `pin`, thread `i` is bound to the `i`-th CPU this process may use.
    ///
    /// # Errors
    /// When the system refuses a thread; those already started are joined.
    pub fn new(threads: usize, spin: Spin, pin: bool) -> std::io::Result<Self> {
        let all = binding::cores();
        let cores: &[CoreId] = if pin { all } else { &[] };
        let mut pool = Self {
            shared: Arc::new(Shared {
                threads: threads as u32,
                epoch: Signal::default(),
                job: UnsafeCell::new(None),
                finished: Signal::default(),
                arrived: Alone::default(),
                phase: Signal::default(),
                poisoned: AtomicBool::new(false),
                quit: AtomicBool::new(false),
                spin,
            }),
            workers: Vec::with_capacity(threads.saturating_sub(1)),
            caller_core: cores.first().copied(),
        };
        for tid in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let core = cores.get(tid % cores.len().max(1)).copied();
            let worker = std::thread::Builder::new()
                .name(format!("cbtop-worker-{tid}"))
                .spawn(move || {
                    binding::bind_new(core);
                    work(&shared, tid);
                })?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// Number of threads, the calling one included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `job(thread, barrier)` once on every thread and returns when all are done.
    ///
    /// # Errors
    /// [`Poisoned`] when a thread panicked, now or earlier.
    pub fn run(&mut self, job: &(dyn Fn(usize, Barrier<'_>) + Sync)) -> Result<(), Poisoned> {
        binding::bind(self.caller_core);
        let s = &*self.shared;
        if s.poisoned.load(Ordering::Acquire) {
            return Err(Poisoned);
        }
        let call = |tid: usize| job(tid, Barrier(s));
        if s.threads == 1 {
            guarded(s, || call(0));
        } else {
            let erased: &(dyn Fn(usize) + Sync) = &call;
            // SAFETY: only the lifetime is erased; `run` does not return before every worker has finished the job.
            let erased: Job = unsafe { std::mem::transmute(std::ptr::from_ref(erased)) };
            // SAFETY: no worker reads `job` now: all finished the previous one, and the next epoch is not yet published.
            unsafe { *s.job.get() = Some(erased) };
            let all = s.finished.get().wrapping_add(s.threads - 1);
            s.epoch.advance();
            guarded(s, || call(0));
            loop {
                let finished = s.finished.get();
                if finished == all {
                    break;
                }
                s.finished.wait_while(finished, s.spin.barrier);
            }
        }
        if s.poisoned.load(Ordering::Acquire) {
            Err(Poisoned)
        } else {
            Ok(())
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::Release);
        self.shared.epoch.advance();
        for w in self.workers.drain(..) {
            // A worker's panic was already reported as `Poisoned`.
            let _ = w.join();
        }
    }
}

fn guarded(s: &Shared, f: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(f)).is_err() {
        s.poisoned.store(true, Ordering::Release);
        // Whoever waits at a barrier must not wait for this thread.
        s.phase.advance();
    }
}

fn work(s: &Shared, tid: usize) {
    let mut seen = 0u32;
    loop {
        s.epoch.wait_while(seen, s.spin.idle);
        if s.quit.load(Ordering::Acquire) {
            return;
        }
        seen = seen.wrapping_add(1);
        // SAFETY: the new epoch was seen with acquire, so `job` holds this dispatch's closure, alive until `finished`.
        if let Some(job) = unsafe { *s.job.get() } {
            // SAFETY: as above.
            guarded(s, || unsafe { (*job)(tid) });
        }
        s.finished.advance();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    const SPIN: Spin = Spin {
        barrier: 100,
        idle: 10,
    };

    #[test]
    fn every_thread_runs_once_and_barriers_order_phases() {
        for threads in [1, 2, 3, 7] {
            let mut pool = Pool::new(threads, SPIN, false).unwrap();
            for _ in 0..200 {
                let counter = AtomicUsize::new(0);
                let wrong = AtomicUsize::new(0);
                pool.run(&|_, barrier| {
                    counter.fetch_add(1, Ordering::SeqCst);
                    assert!(barrier.wait());
                    if counter.load(Ordering::SeqCst) != threads {
                        wrong.fetch_add(1, Ordering::SeqCst);
                    }
                    assert!(barrier.wait());
                    counter.fetch_add(1, Ordering::SeqCst);
                })
                .unwrap();
                assert_eq!(counter.load(Ordering::SeqCst), 2 * threads);
                assert_eq!(wrong.load(Ordering::SeqCst), 0);
            }
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn threads_are_let_go_by_the_next_pool() {
        let allowed = || rustix::thread::sched_getaffinity(None).map(|s| s.count());
        std::thread::spawn(move || {
            let before = allowed().unwrap();
            let mut bound = Pool::new(2, SPIN, true).unwrap();
            let mut free = Pool::new(2, SPIN, false).unwrap();
            for _ in 0..2 {
                bound
                    .run(&|_, _| assert_eq!(allowed().unwrap(), 1))
                    .unwrap();
                // One that is made while its maker is bound is no different.
                let mut later = Pool::new(3, SPIN, false).unwrap();
                free.run(&|_, _| assert_eq!(allowed().unwrap(), before))
                    .unwrap();
                later
                    .run(&|_, _| assert_eq!(allowed().unwrap(), before))
                    .unwrap();
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_panic_poisons_instead_of_hanging() {
        let mut pool = Pool::new(3, SPIN, false).unwrap();
        let r = pool.run(&|tid, barrier| {
            assert!(tid != 1, "meant to fail");
            assert!(!barrier.wait());
        });
        assert_eq!(r, Err(Poisoned));
        assert_eq!(pool.run(&|_, _| {}), Err(Poisoned));
    }

    #[test]
    fn f161_what_threads_write_shares_no_line() {
        use std::mem::offset_of;
        let mut places = [
            offset_of!(Shared, epoch),
            offset_of!(Shared, finished),
            offset_of!(Shared, arrived),
            offset_of!(Shared, phase),
        ];
        places.sort_unstable();
        assert!(places.windows(2).all(|p| p[1] - p[0] >= 128), "{places:?}");
        for read_only in [offset_of!(Shared, threads), offset_of!(Shared, spin)] {
            assert!(
                places.iter().all(|p| read_only.abs_diff(*p) >= 64),
                "{read_only} {places:?}"
            );
        }
    }

    #[test]
    fn sleeping_workers_wake() {
        let mut pool = Pool::new(2, SPIN, false).unwrap();
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            let n = AtomicUsize::new(0);
            pool.run(&|_, _| {
                n.fetch_add(1, Ordering::SeqCst);
            })
            .unwrap();
            assert_eq!(n.load(Ordering::SeqCst), 2);
        }
    }
}
