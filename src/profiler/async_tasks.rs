//! What an event loop's polls cost and what wakes it.
//!
//! ```
//! # use cbtop::profiler::{Clock, async_tasks::LoopWatch};
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let watch = LoopWatch::new("loop", Clock::calibrated());
//! let mut pause = watch.source("pause");
//! watch.watch(pause.watch(tokio::task::yield_now())).await;
//! let [whole, pause] = watch.figures().try_into().unwrap();
//! assert_eq!((pause.polls, pause.ready), (2, 1)); // not yet, then ready
//! assert_eq!(whole.wakes[0], ("pause".to_owned(), 1));
//! # });
//! ```
//! A poll is timed with two stamps of a precise clock. Waking costs one atomic operation more than without, on whatever thread
//! it happens.

use super::clock::Clock;
use super::figures::AsyncTask;
use super::stats::Spread;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// A poll longer than this blocks everything else on its loop; one of exactly this does not yet.
pub const BLOCKING_NS: f64 = 100_000.0;

/// Sources whose wakes are told apart, in one loop.
pub const MAX_SOURCES: usize = 16;

/// Causes of a poll: the sources, then these two.
const CAUSES: usize = MAX_SOURCES + 2;
/// The loop came round again by itself: its last poll went on after something was ready.
const AGAIN: usize = MAX_SOURCES;
/// The first poll of all, or a wake that no source made.
const UNNAMED: usize = MAX_SOURCES + 1;

/// An event loop: itself, what it waits for, and named spans of its work. Clones are of the same loop.
#[derive(Debug, Clone)]
pub struct LoopWatch(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Clock,
    whole: Task,
    parts: Mutex<Vec<Arc<Task>>>,
    /// One bit for each source that woke the loop since its last poll.
    woken: AtomicU64,
    /// Those of the poll that is going on.
    causes: AtomicU64,
    /// Polls of the loop so far.
    polls: AtomicU64,
    /// Ticks of the poll that is going on that are not its own.
    left_out: AtomicU64,
}

#[derive(Debug)]
struct Task {
    name: String,
    record: Mutex<Record>,
}

#[derive(Debug, Clone, Default)]
struct Record {
    time: Spread,
    ready: u64,
    blocking: u64,
    causes: [u64; CAUSES],
}

impl Record {
    fn add(&mut self, ns: f64, ready: bool) {
        self.time.add(ns);
        self.ready += u64::from(ready);
        self.blocking += u64::from(ns > BLOCKING_NS);
    }

    /// Counts every source of which `sources` has the bit; none is a cause too.
    fn caused_by(&mut self, sources: u64) {
        for (i, count) in self.causes.iter_mut().enumerate().take(MAX_SOURCES) {
            *count += sources >> i & 1;
        }
        self.causes[UNNAMED] += u64::from(sources == 0);
    }
}

/// A lock whose holder panicked guards counts all the same.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Task {
    fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            record: Mutex::default(),
        }
    }

    fn figures(&self, cause_name: &dyn Fn(usize) -> Option<String>) -> AsyncTask {
        let record = lock(&self.record).clone();
        let us = |ns: Option<f64>| ns.map(|ns| ns * 1e-3);
        let causes = record.causes.iter().enumerate().filter(|&(_, &n)| n > 0);
        let mut wakes: Vec<_> = causes
            .filter_map(|(i, &n)| Some((cause_name(i)?, n)))
            .collect();
        wakes.sort_by_key(|w| std::cmp::Reverse(w.1));
        AsyncTask {
            name: self.name.clone(),
            polls: record.time.count(),
            ready: record.ready,
            total_us: record.time.total_ns() * 1e-3,
            p50_us: us(record.time.quantile_ns(0.50)),
            p99_us: us(record.time.quantile_ns(0.99)),
            max_us: us(record.time.max_ns()),
            blocking: record.blocking,
            wakes,
        }
    }
}

impl LoopWatch {
    /// A loop that nothing is known of yet.
    pub fn new(name: impl Into<String>, clock: Clock) -> Self {
        Self(Arc::new(Shared {
            clock,
            whole: Task::new(name),
            parts: Mutex::default(),
            woken: AtomicU64::new(0),
            causes: AtomicU64::new(0),
            polls: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        }))
    }

    /// Something that the loop waits for. Its wakes have its name in the figures; those of sources past [`MAX_SOURCES`] are
    /// counted as unnamed.
    pub fn source(&self, name: impl Into<String>) -> Source {
        let (task, index) = self.part(name);
        let waker = Arc::new(NamedWaker {
            bit: 1u64
                .checked_shl(index)
                .filter(|_| (index as usize) < MAX_SOURCES)
                .unwrap_or(0),
            shared: self.0.clone(),
            inner: Mutex::default(),
        });
        Source {
            task,
            shared: self.0.clone(),
            std_waker: Waker::from(waker.clone()),
            waker,
            polled_in: None,
        }
    }

    /// Some work inside the loop's polls, timed apart.
    pub fn span(&self, name: impl Into<String>) -> Span {
        Span {
            task: self.part(name).0,
            clock: self.0.clock,
        }
    }

    /// Does `work` inside a poll of the loop without counting its time as the poll's: the process stands still meanwhile.
    pub fn leave_out<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = self.0.clock.now();
        let result = work();
        let ticks = self.0.clock.now().saturating_sub(start);
        self.0.left_out.fetch_add(ticks, Ordering::Relaxed);
        result
    }

    fn part(&self, name: impl Into<String>) -> (Arc<Task>, u32) {
        let task = Arc::new(Task::new(name));
        let mut parts = lock(&self.0.parts);
        let index = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        parts.push(task.clone());
        (task, index)
    }

    /// The loop's own future, watched.
    pub fn watch<F: Future>(&self, future: F) -> WatchedLoop<F> {
        WatchedLoop {
            future,
            shared: self.0.clone(),
        }
    }

    /// The loop first, then its sources and spans as they were made. The counts of `wakes` are polls that a wake led to: one
    /// poll may have several causes.
    pub fn figures(&self) -> Vec<AsyncTask> {
        let parts = lock(&self.0.parts).clone();
        let cause_name = |i: usize| match i {
            AGAIN => Some("the loop itself".to_owned()),
            UNNAMED => Some("start or unnamed".to_owned()),
            _ => parts.get(i).map(|p| p.name.clone()),
        };
        std::iter::once(&self.0.whole)
            .chain(parts.iter().map(Arc::as_ref))
            .map(|task| task.figures(&cause_name))
            .collect()
    }
}

pin_project! {
    /// The future of a whole loop, see [`LoopWatch::watch`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct WatchedLoop<F> {
        #[pin]
        future: F,
        shared: Arc<Shared>,
    }
}

impl<F: Future> Future for WatchedLoop<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let shared = &**this.shared;
        // Acquire, with the release in `NamedWaker`: what the source did before it woke us is done.
        let causes = shared.woken.swap(0, Ordering::AcqRel);
        shared.causes.store(causes, Ordering::Relaxed);
        shared.polls.fetch_add(1, Ordering::Relaxed);
        shared.left_out.store(0, Ordering::Relaxed);
        let start = shared.clock.now();
        let poll = this.future.poll(cx);
        let ticks = shared.clock.now().saturating_sub(start);
        let left_out = shared.left_out.load(Ordering::Relaxed);
        let ns = shared.clock.ns(ticks.saturating_sub(left_out));
        let mut record = lock(&shared.whole.record);
        record.add(ns, poll.is_ready());
        record.caused_by(causes);
        poll
    }
}

/// Something that a loop waits for: a name for the wakes of what it watches, and the record of its polls.
#[derive(Debug)]
pub struct Source {
    task: Arc<Task>,
    shared: Arc<Shared>,
    waker: Arc<NamedWaker>,
    /// The same, as futures want it.
    std_waker: Waker,
    /// The poll of the loop that last polled it.
    polled_in: Option<u64>,
}

impl Source {
    /// `future`, watched. One at a time, since a wake goes to the task that polled last.
    pub fn watch<F: Future>(&mut self, future: F) -> Watched<'_, F> {
        Watched {
            future,
            source: self,
        }
    }

    fn poll<T>(
        &mut self,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.waker.pass_on_to(cx.waker());
        let start = self.shared.clock.now();
        let poll = poll(&mut Context::from_waker(&self.std_waker));
        let clock = self.shared.clock;
        let ns = clock.ns(clock.now().saturating_sub(start));
        let mut record = lock(&self.task.record);
        record.add(ns, poll.is_ready());
        let poll_of_loop = Some(self.shared.polls.load(Ordering::Relaxed));
        if std::mem::replace(&mut self.polled_in, poll_of_loop) == poll_of_loop {
            record.causes[AGAIN] += 1;
        } else {
            record.caused_by(self.shared.causes.load(Ordering::Relaxed));
        }
        poll
    }
}

pin_project! {
    /// A future of a source, see [`Source::watch`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct Watched<'a, F> {
        #[pin]
        future: F,
        source: &'a mut Source,
    }
}

impl<F: Future> Future for Watched<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let future = this.future;
        this.source.poll(cx, |cx| future.poll(cx))
    }
}

/// Wakes the task that last polled, and leaves its source's name.
#[derive(Debug)]
struct NamedWaker {
    bit: u64,
    shared: Arc<Shared>,
    inner: Mutex<Option<Waker>>,
}

impl NamedWaker {
    fn pass_on_to(&self, waker: &Waker) {
        match &mut *lock(&self.inner) {
            // Does nothing where they wake the same task, which is the rule.
            Some(inner) => inner.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }
}

impl Wake for NamedWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Before the wake, so that the poll it leads to finds it.
        self.shared.woken.fetch_or(self.bit, Ordering::Release);
        // Not while the lock is held: an executor may poll at once.
        let inner = lock(&self.inner).clone();
        if let Some(inner) = inner {
            inner.wake();
        }
    }
}

/// Work inside a loop's polls. Its runs stand in the figures as polls that were ready.
#[derive(Debug)]
pub struct Span {
    task: Arc<Task>,
    clock: Clock,
}

impl Span {
    /// Times one run of `work`.
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = self.clock.now();
        let result = work();
        let ns = self.clock.ns(self.clock.now().saturating_sub(start));
        lock(&self.task.record).add(ns, true);
        result
    }
}

#[cfg(test)]
mod tests;
