//! A pool of lock-step worker threads: one dispatch runs one closure on every thread, with barriers inside.
//!
//! Nothing here allocates or takes a lock once the pool is built. Waiting threads spin for a while (a barrier between
//! two bricks is far shorter than a system call), then yield, and between dispatches park, so a paused session is idle.

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// A worker thread panicked; the pool cannot be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Poisoned;

type Job = *const (dyn Fn(usize) + Sync);

struct Shared {
    threads: usize,
    /// Counts dispatches; a worker runs the job when it changes.
    epoch: AtomicU64,
    job: UnsafeCell<Option<Job>>,
    /// Workers that finished the current job.
    finished: AtomicUsize,
    arrived: AtomicUsize,
    phase: AtomicUsize,
    poisoned: AtomicBool,
    quit: AtomicBool,
    /// Busy-wait rounds before a waiting thread yields or parks.
    spin: u32,
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
        let phase = s.phase.load(Ordering::Acquire);
        if s.arrived.fetch_add(1, Ordering::AcqRel) + 1 == s.threads {
            s.arrived.store(0, Ordering::Relaxed);
            s.phase.store(phase.wrapping_add(1), Ordering::Release);
            return true;
        }
        let mut rounds = 0u32;
        while s.phase.load(Ordering::Acquire) == phase {
            if s.poisoned.load(Ordering::Relaxed) {
                return false;
            }
            relax(&mut rounds, s.spin);
        }
        true
    }
}

/// One round of waiting: spin first, then give the core away, so that more threads than cores still advance.
#[inline]
fn relax(rounds: &mut u32, spin: u32) {
    *rounds = rounds.saturating_add(1);
    if *rounds < spin {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// Worker threads, the calling one included.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts `threads - 1` workers. `spin` is the number of busy-wait rounds before a waiting thread yields or parks;
    /// with `pin`, thread `i` is bound to the `i`-th CPU this process may use.
    ///
    /// # Errors
    /// When the system refuses a thread; those already started are joined.
    pub fn new(threads: usize, spin: u32, pin: bool) -> std::io::Result<Self> {
        let cores = if pin {
            core_affinity::get_core_ids().unwrap_or_default()
        } else {
            Vec::new()
        };
        let mut pool = Self {
            shared: Arc::new(Shared {
                threads,
                epoch: AtomicU64::new(0),
                job: UnsafeCell::new(None),
                finished: AtomicUsize::new(0),
                arrived: AtomicUsize::new(0),
                phase: AtomicUsize::new(0),
                poisoned: AtomicBool::new(false),
                quit: AtomicBool::new(false),
                spin,
            }),
            workers: Vec::with_capacity(threads.saturating_sub(1)),
        };
        for tid in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let core = cores.get(tid % cores.len().max(1)).copied();
            let worker = std::thread::Builder::new()
                .name(format!("cbtop-worker-{tid}"))
                .spawn(move || {
                    if let Some(core) = core {
                        core_affinity::set_for_current(core);
                    }
                    work(&shared, tid);
                })?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// Number of threads, the calling one included.
    pub fn threads(&self) -> usize {
        self.shared.threads
    }

    /// Runs `job(thread, barrier)` once on every thread and returns when all are done.
    ///
    /// # Errors
    /// [`Poisoned`] when a thread panicked, now or earlier.
    pub fn run(&mut self, job: &(dyn Fn(usize, Barrier<'_>) + Sync)) -> Result<(), Poisoned> {
        let s = &*self.shared;
        if s.poisoned.load(Ordering::Acquire) {
            return Err(Poisoned);
        }
        let call = |tid: usize| job(tid, Barrier(s));
        if s.threads > 1 {
            let erased: &(dyn Fn(usize) + Sync) = &call;
            // SAFETY: only the lifetime is erased; `run` does not return before every worker has finished the job.
            let erased: Job = unsafe { std::mem::transmute(std::ptr::from_ref(erased)) };
            s.finished.store(0, Ordering::Relaxed);
            // SAFETY: no worker reads `job` now: all finished the previous one, and the next epoch is not yet published.
            unsafe { *s.job.get() = Some(erased) };
            s.epoch.fetch_add(1, Ordering::Release);
            for w in &self.workers {
                w.thread().unpark();
            }
        }
        guarded(s, || call(0));
        let mut rounds = 0;
        while s.finished.load(Ordering::Acquire) + 1 < s.threads {
            relax(&mut rounds, s.spin);
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
        for w in self.workers.drain(..) {
            w.thread().unpark();
            // A worker's panic was already reported as `Poisoned`.
            let _ = w.join();
        }
    }
}

fn guarded(s: &Shared, f: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(f)).is_err() {
        s.poisoned.store(true, Ordering::Release);
    }
}

fn work(s: &Shared, tid: usize) {
    let mut seen = 0;
    loop {
        let mut rounds = 0u32;
        while s.epoch.load(Ordering::Acquire) == seen {
            if s.quit.load(Ordering::Acquire) {
                return;
            }
            rounds = rounds.saturating_add(1);
            // `unpark` before `park` makes `park` return at once, so no dispatch is lost between the check and it.
            if rounds < s.spin {
                std::hint::spin_loop()
            } else {
                std::thread::park()
            }
        }
        seen = seen.wrapping_add(1);
        // SAFETY: the new epoch was seen with acquire, so `job` holds this dispatch's closure, alive until `finished`.
        if let Some(job) = unsafe { *s.job.get() } {
            // SAFETY: as above.
            guarded(s, || unsafe { (*job)(tid) });
        }
        s.finished.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_runs_once_and_barriers_order_phases() {
        for threads in [1, 2, 3, 7] {
            let mut pool = Pool::new(threads, 100, false).unwrap();
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

    #[test]
    fn a_panic_poisons_instead_of_hanging() {
        let mut pool = Pool::new(3, 100, false).unwrap();
        let r = pool.run(&|tid, barrier| {
            assert!(tid != 1, "meant to fail");
            assert!(!barrier.wait());
        });
        assert_eq!(r, Err(Poisoned));
        assert_eq!(pool.run(&|_, _| {}), Err(Poisoned));
    }

    #[test]
    fn parked_workers_wake() {
        let mut pool = Pool::new(2, 10, false).unwrap();
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
