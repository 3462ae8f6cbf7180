//! The groups of all threads that run the model.

use super::bricks::BrickSampler;
use super::group::{Counted, Group, Kind, MAX_EVENTS, SOFTWARE};
use super::proc_task::Task;
use super::support::{self, Limits};
use crate::profiler::figures::{Support, ThreadCounters};
use std::io::Error;
use std::sync::Arc;

/// Counter groups, opened for each of some threads of this process.
#[derive(Debug)]
pub struct ThreadGroups {
    threads: Vec<Thread>,
    hardware: Support,
    software: Support,
}

#[derive(Debug)]
struct Thread {
    tid: i32,
    hardware: Option<Arc<Group>>,
    software: Option<Arc<Group>>,
    at_start: Task,
}

impl ThreadGroups {
    /// Starts counting for the threads `tids`, thread 0 of the engine's pool first. Whatever cannot be counted is left out;
    /// [`Self::hardware`] and [`Self::software`] then say why.
    pub fn open(tids: &[i32]) -> Self {
        let limits = Limits::read();
        let open = |kind| match open_all(tids, kind) {
            Ok(groups) => (groups, Support::Available),
            Err(Refusal::TooManyFiles) => (Vec::new(), support::too_many_files()),
            Err(Refusal::NoThreads) => (Vec::new(), support::no_threads()),
            Err(Refusal::Kernel(e)) => (Vec::new(), support::explain(&e, kind, limits)),
        };
        let (hardware_groups, hardware) = open(Kind::Hardware);
        let (software_groups, software) = open(Kind::Software);
        let of = |groups: &[Option<Arc<Group>>], i: usize| groups.get(i).cloned().flatten();
        let thread = |(i, &tid): (usize, &i32)| Thread {
            tid,
            hardware: of(&hardware_groups, i),
            software: of(&software_groups, i),
            at_start: Task::read(tid),
        };
        Self {
            threads: tids.iter().enumerate().map(thread).collect(),
            hardware,
            software,
        }
    }

    /// Whether the processor's counters are read. They may be open and yet never get their turn: that shows in a reading only.
    pub fn hardware(&self) -> &Support {
        &self.hardware
    }

    /// Whether the kernel's counters are read. Without them the figures hold what `/proc` shows.
    pub fn software(&self) -> &Support {
        &self.software
    }

    /// What each thread has counted since [`Self::open`], in the order given there. Some files a thread are read.
    pub fn read(&mut self) -> Vec<ThreadCounters> {
        let hardware: Vec<_> = (0..self.threads.len())
            .map(|i| self.sample(i, Kind::Hardware))
            .collect();
        let ran = |c: &Counted| c.enabled_ns > MUST_HAVE_RUN_NS;
        let starved = |c: &Counted| ran(c) && c.running_ns == 0;
        if self.hardware == Support::Available
            && hardware.iter().flatten().any(starved)
            && !hardware.iter().flatten().any(|c| c.running_ns > 0)
        {
            self.hardware = support::never_scheduled();
        }
        let threads = self.threads.iter().zip(hardware).enumerate();
        threads
            .map(|(i, (t, hardware))| t.figures(i, hardware))
            .collect()
    }

    /// What the group of thread number `thread` has counted so far: one system call, and nothing allocated. From the thread
    /// itself it takes a microsecond or two; another thread that runs is interrupted for it. `None` where the group is not open.
    #[inline]
    pub fn sample(&self, thread: usize, kind: Kind) -> Option<Counted> {
        self.group(thread, kind)?.read().ok()
    }

    /// A sampler of the bricks that thread number `thread` runs; `None` without hardware counters.
    pub fn brick_sampler(&self, thread: usize) -> Option<BrickSampler> {
        (self.hardware == Support::Available)
            .then(|| self.group(thread, Kind::Hardware).cloned())
            .flatten()
            .map(BrickSampler::new)
    }

    fn group(&self, thread: usize, kind: Kind) -> Option<&Arc<Group>> {
        let thread = self.threads.get(thread)?;
        match kind {
            Kind::Hardware => thread.hardware.as_ref(),
            Kind::Software => thread.software.as_ref(),
        }
    }
}

/// A group that has had no counters after this long will get none.
const MUST_HAVE_RUN_NS: u64 = 50_000_000;

enum Refusal {
    TooManyFiles,
    NoThreads,
    Kernel(Error),
}

/// Groups for every thread, `None` for one that is gone meanwhile.
fn open_all(tids: &[i32], kind: Kind) -> Result<Vec<Option<Arc<Group>>>, Refusal> {
    if !fits(tids.len()) {
        return Err(Refusal::TooManyFiles);
    }
    let groups = tids
        .iter()
        .map(|&tid| match Group::open(tid, kind) {
            Ok(group) => Ok(Some(Arc::new(group))),
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(None),
            Err(e) => Err(Refusal::Kernel(e)),
        })
        .collect::<Result<Vec<_>, _>>()?;
    if groups.iter().all(Option::is_none) {
        return Err(Refusal::NoThreads);
    }
    Ok(groups)
}

/// Whether the files of so many threads leave half of those allowed to the rest of the program.
fn fits(threads: usize) -> bool {
    use procfs::process::{LimitValue, Process};
    let needed = threads.saturating_mul(MAX_EVENTS + SOFTWARE.len()) as u64;
    let limits = Process::myself().and_then(|p| p.limits());
    match limits.map(|l| l.max_open_files.soft_limit) {
        Ok(LimitValue::Value(most)) => needed <= most / 2,
        Ok(LimitValue::Unlimited) | Err(_) => true,
    }
}

impl Thread {
    fn figures(&self, number: usize, hardware: Option<Counted>) -> ThreadCounters {
        let software = self.software.as_ref().and_then(|g| g.read().ok());
        let of = |c: &Option<Counted>, event| c.as_ref()?.scaled(event);
        let (cycles, instructions) = (of(&hardware, 0), of(&hardware, 1));
        let mut figures = ThreadCounters {
            thread: u32::try_from(number).unwrap_or(u32::MAX),
            core: None,
            cycles,
            instructions,
            ipc: ratio(instructions, cycles),
            cache_references: of(&hardware, 2),
            cache_misses: of(&hardware, 3),
            branches: of(&hardware, 4),
            branch_misses: of(&hardware, 5),
            cpu_ms: of(&software, 0).map(|ns| ns as f64 * 1e-6),
            page_faults: of(&software, 1),
            context_switches: of(&software, 2),
            migrations: of(&software, 3),
        };
        if software.is_some() {
            figures.core = Task::core_of(self.tid);
        } else {
            self.fill_from_proc(&mut figures);
        }
        figures
    }

    fn fill_from_proc(&self, figures: &mut ThreadCounters) {
        let task = Task::read(self.tid).since(self.at_start);
        figures.core = task.core;
        figures.cpu_ms = task.cpu.map(|t| t.as_secs_f64() * 1e3);
        figures.page_faults = task.page_faults;
        figures.context_switches = task.context_switches;
        figures.migrations = task.migrations;
    }
}

/// `part / whole` where both are known and there is something to divide by.
pub(super) fn ratio(part: Option<u64>, whole: Option<u64>) -> Option<f64> {
    let whole = whole.filter(|&n| n > 0)?;
    Some(part? as f64 / whole as f64)
}

#[cfg(test)]
impl ThreadGroups {
    /// As where perf_event_open is forbidden.
    pub(super) fn without_perf(tids: &[i32]) -> Self {
        let mut groups = Self::open(tids);
        let denied = Error::from_raw_os_error(libc::EPERM);
        groups.hardware = support::explain(&denied, Kind::Hardware, Limits::default());
        groups.software = support::explain(&denied, Kind::Software, Limits::default());
        for thread in &mut groups.threads {
            (thread.hardware, thread.software) = (None, None);
        }
        groups
    }

    /// A sampler over the software group, whose code is the same.
    pub(super) fn software_brick_sampler(&self, thread: usize) -> Option<BrickSampler> {
        self.group(thread, Kind::Software)
            .cloned()
            .map(BrickSampler::new)
    }
}
