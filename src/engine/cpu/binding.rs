//! Binds threads to CPUs, and lets them go again: engines with and without bound threads follow each other in a session.

use core_affinity::CoreId;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    static BOUND: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Whether a thread was ever bound: threads that it starts inherit that.
static EVER: AtomicBool = AtomicBool::new(false);

/// CPUs of this process. Read once: later the answer is that of a thread which may be bound to one of them.
pub(super) fn cores() -> &'static [CoreId] {
    static CORES: OnceLock<Vec<CoreId>> = OnceLock::new();
    CORES.get_or_init(|| core_affinity::get_core_ids().unwrap_or_default())
}

/// Binds this thread to a CPU, or lets it run on all of this process where there is none. Costs nothing where it is so
/// already.
pub(super) fn bind(core: Option<CoreId>) {
    let id = core.map(|c| c.id);
    if BOUND.replace(id) != id {
        set(core);
    }
}

/// Lets the calling thread run on all CPUs of the process again, until an engine binds it the next time: threads that are
/// started meanwhile do not share one CPU.
pub fn unbind() {
    bind(None);
}

/// As [`bind`], for a thread that has just been started and may have inherited its starter's CPU.
pub(super) fn bind_new(core: Option<CoreId>) {
    BOUND.set(core.map(|c| c.id));
    if core.is_some() || EVER.load(Ordering::Relaxed) {
        set(core);
    }
}

fn set(core: Option<CoreId>) {
    match core {
        Some(core) => {
            EVER.store(true, Ordering::Relaxed);
            core_affinity::set_for_current(core);
        }
        None => release(),
    }
}

#[cfg(target_os = "linux")]
fn release() {
    let mut all = rustix::thread::CpuSet::new();
    let known = |id: &usize| *id < rustix::thread::CpuSet::MAX_CPU;
    cores()
        .iter()
        .map(|c| c.id)
        .filter(known)
        .for_each(|id| all.set(id));
    // Refused only where the CPUs were taken from the process meanwhile: then it stays where it is.
    let _ = rustix::thread::sched_setaffinity(None, &all);
}

/// Elsewhere a binding is a hint that cannot be taken back.
#[cfg(not(target_os = "linux"))]
fn release() {}
