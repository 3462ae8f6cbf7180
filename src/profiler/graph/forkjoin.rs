//! Records tasks that fork and join on any thread pool, without locks where they run.
//!
//! A task is a chain of strands: it runs, forks, and goes on after the join. Each thread writes its strands to a lane of its
//! own, whose memory is there from the start; [`ForkJoin::merge_threads`] puts the lanes together into one graph.

use super::build::ExecutionGraph;
use super::node::{CpuTask, EdgeKind, GraphError, Node, NodeId};
use crate::profiler::clock::Clock;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Strands that are not in any lane: none, or left out because the lane was full.
const NOWHERE: u64 = u64::MAX;
/// Lanes and strands that a recording may have at most in all: 64 MiB of memory.
const MAX_STRANDS: usize = 1 << 20;
/// Recordings whose lanes a thread remembers; one that it forgets gets a further lane from it.
const REMEMBERED: usize = 16;

static RECORDINGS: AtomicU64 = AtomicU64::new(1);
static THREADS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static THREAD: u32 = THREADS.fetch_add(1, Ordering::Relaxed);
    /// The lane last used: recording and number.
    static LANE: Cell<(u64, usize)> = const { Cell::new((0, 0)) };
    static LANES: RefCell<Vec<(u64, usize)>> = const { RefCell::new(Vec::new()) };
}

/// A recording.
pub struct ForkJoin {
    id: u64,
    clock: Clock,
    start: u64,
    names: Vec<String>,
    lanes: Vec<Lane>,
    claimed: AtomicU64,
    dropped: AtomicU64,
}

/// The strands of one thread, written by it alone. Atomics so that others may read what is published: on the machines
/// that matter a relaxed store is a plain store.
struct Lane {
    thread: AtomicU32,
    used: AtomicU64,
    strands: Vec<[AtomicU64; 5]>,
}

/// How a strand came to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    /// The first of a task that nobody forked.
    Alone,
    /// The first of a forked task.
    Forked,
    /// After a join.
    Joined,
}

/// The strand that runs.
#[derive(Clone, Copy)]
struct Strand {
    came: Came,
    /// The strand before: that which forked, or the one that the join goes on from.
    from: u64,
    start: u64,
}

/// A task that runs, for forking inside it.
pub struct Task<'a> {
    recording: &'a ForkJoin,
    name: u16,
    /// The strand that forked this task.
    origin: u64,
    strand: Cell<Strand>,
}

/// Where tasks fork from; may be sent to the threads that run them.
#[derive(Clone, Copy)]
pub struct Fork<'a> {
    recording: &'a ForkJoin,
    origin: u64,
}

/// All lanes in one graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Merged {
    /// Strands as tasks with their threads, `Fork` and `Join` edges, and `Sequence` from before a fork to after its join.
    /// Threads are numbered in the order in which they first ran a task. A task is `stolen` where another thread runs it than the one that forked it.
    pub graph: ExecutionGraph,
    /// Strands left out: more threads than lanes, or a full lane. With any, edges are missing too.
    pub dropped: u64,
}

impl ForkJoin {
    /// A recording of tasks with these names, on at most `threads` threads, of at most `strands` strands each (a task that
    /// forks n times has n + 1). Allocates all it needs; sizes are cut so that it stays below 64 MiB.
    pub fn new(names: &[&str], threads: usize, strands: usize, clock: Clock) -> Self {
        let threads = threads.clamp(1, MAX_STRANDS);
        let strands = strands.clamp(1, MAX_STRANDS / threads);
        let lane = || Lane {
            thread: AtomicU32::new(0),
            used: AtomicU64::new(0),
            strands: std::iter::repeat_with(Default::default)
                .take(strands)
                .collect(),
        };
        Self {
            id: RECORDINGS.fetch_add(1, Ordering::Relaxed),
            clock,
            start: clock.now(),
            names: names
                .iter()
                .take(usize::from(u16::MAX))
                .map(|&n| n.to_owned())
                .collect(),
            lanes: std::iter::repeat_with(lane).take(threads).collect(),
            claimed: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Runs and records a task that nobody forked; `name` is an index of the names.
    pub fn task<R>(&self, name: u16, run: impl FnOnce(&Task<'_>) -> R) -> R {
        self.run(name, Came::Alone, NOWHERE, run)
    }

    /// What all threads recorded, for when the tasks are over: of tasks that still run only the strands that have ended
    /// are there. Tasks are in the order they started.
    ///
    /// # Errors
    ///
    /// [`GraphError::Full`].
    pub fn merge_threads(&self) -> Result<Merged, GraphError> {
        let mut ended = self.ended();
        ended.sort_by_key(|s| (s.start, s.at));
        let mut graph = ExecutionGraph::new();
        let threads: BTreeMap<u64, u32> = ended.iter().map(|s| (s.at, s.thread)).collect();
        let mut nodes: BTreeMap<u64, NodeId> = BTreeMap::new();
        for strand in &ended {
            let forker = threads
                .get(&strand.from)
                .filter(|_| strand.came == Came::Forked);
            let stolen = forker.is_some_and(|&thread| thread != strand.thread);
            let node = graph.add(Node::CpuTask(self.cpu_task(strand, stolen)))?;
            nodes.insert(strand.at, node);
        }
        let mut joins: BTreeMap<u64, NodeId> = BTreeMap::new();
        for strand in &ended {
            let Some((&from, &node)) = nodes.get(&strand.from).zip(nodes.get(&strand.at)) else {
                continue;
            };
            let kind = match strand.came {
                Came::Joined => EdgeKind::Sequence,
                Came::Forked | Came::Alone => EdgeKind::Fork,
            };
            graph.connect(from, node, kind)?;
            if strand.came == Came::Joined {
                joins.insert(strand.from, node);
            }
        }
        for strand in ended.iter().filter(|s| s.last) {
            if let Some((&node, &after)) = nodes.get(&strand.at).zip(joins.get(&strand.origin)) {
                graph.connect(node, after, EdgeKind::Join)?;
            }
        }
        Ok(Merged {
            graph,
            dropped: self.dropped.load(Ordering::Relaxed),
        })
    }

    fn cpu_task(&self, strand: &Ended, stolen: bool) -> CpuTask {
        let ns = |ticks: u64| self.clock.ns(ticks).round() as u64;
        let name = self.names.get(usize::from(strand.name));
        CpuTask {
            name: name
                .cloned()
                .unwrap_or_else(|| format!("task {}", strand.name)),
            thread: strand.thread,
            start_ns: ns(strand.start.saturating_sub(self.start)),
            time_ns: ns(strand.end.saturating_sub(strand.start)),
            pieces: 1,
            stolen: u32::from(stolen),
            ..CpuTask::default()
        }
    }

    fn run<R>(&self, name: u16, came: Came, origin: u64, run: impl FnOnce(&Task<'_>) -> R) -> R {
        let task = Task {
            recording: self,
            name,
            origin,
            strand: Cell::new(Strand {
                came,
                from: origin,
                start: self.clock.now(),
            }),
        };
        run(&task)
    }

    /// This thread's lane; `None` where all are taken.
    fn lane(&self) -> Option<usize> {
        let (recording, lane) = LANE.get();
        let lane = if recording == self.id {
            lane
        } else {
            let lane = self.find_lane();
            LANE.set((self.id, lane));
            lane
        };
        (lane < self.lanes.len()).then_some(lane)
    }

    #[cold]
    fn find_lane(&self) -> usize {
        LANES.with_borrow_mut(|known| {
            if let Some((_, lane)) = known.iter().find(|(id, _)| *id == self.id) {
                return *lane;
            }
            let lane = self.claimed.fetch_add(1, Ordering::Relaxed);
            let lane = usize::try_from(lane).unwrap_or(usize::MAX);
            if let Some(lane) = self.lanes.get(lane) {
                lane.thread.store(THREAD.with(|t| *t), Ordering::Relaxed);
            }
            if known.len() >= REMEMBERED {
                known.remove(0);
            }
            known.push((self.id, lane));
            lane
        })
    }

    /// Writes a strand that ended to this thread's lane and says where it is.
    fn write(&self, task: &Task<'_>, strand: Strand, last: bool) -> u64 {
        let end = self.clock.now();
        let Some((number, lane)) = self.lane().and_then(|n| Some((n, self.lanes.get(n)?))) else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return NOWHERE;
        };
        let used = lane.used.load(Ordering::Relaxed);
        let Some(words) = lane.strands.get(used as usize) else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return NOWHERE;
        };
        let head = u64::from(task.name) | (strand.came as u64) << 16 | u64::from(last) << 24;
        let values = [head, strand.from, task.origin, strand.start, end];
        for (word, value) in words.iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
        // Whoever sees the new length sees the words too.
        lane.used.store(used + 1, Ordering::Release);
        (number as u64) << 32 | used
    }

    fn ended(&self) -> Vec<Ended> {
        let mut ended = Vec::new();
        let mut threads: BTreeMap<u32, u32> = BTreeMap::new();
        for (number, lane) in (0u64..).zip(&self.lanes) {
            let used = lane.used.load(Ordering::Acquire);
            if used == 0 {
                continue;
            }
            let next = threads.len() as u32;
            let thread = lane.thread.load(Ordering::Relaxed);
            let thread = *threads.entry(thread).or_insert(next);
            for (index, words) in (0..used).zip(&lane.strands) {
                let [head, from, origin, start, end] =
                    [0, 1, 2, 3, 4].map(|i: usize| words[i].load(Ordering::Relaxed));
                ended.push(Ended {
                    at: number << 32 | index,
                    thread,
                    name: head as u16,
                    came: match head >> 16 & 0xff {
                        0 => Came::Alone,
                        1 => Came::Forked,
                        _ => Came::Joined,
                    },
                    last: head >> 24 != 0,
                    from,
                    origin,
                    start,
                    end,
                });
            }
        }
        ended
    }
}

/// A strand as read back.
struct Ended {
    at: u64,
    thread: u32,
    name: u16,
    came: Came,
    last: bool,
    from: u64,
    origin: u64,
    start: u64,
    end: u64,
}

impl<'a> Task<'a> {
    /// Runs `both`, in which tasks fork from here and end, for example in `rayon::join`. This task's own time stops until
    /// it returns.
    pub fn fork_join<R>(&self, both: impl FnOnce(Fork<'a>) -> R) -> R {
        let origin = self.recording.write(self, self.strand.get(), false);
        let result = both(Fork {
            recording: self.recording,
            origin,
        });
        self.strand.set(Strand {
            came: Came::Joined,
            from: origin,
            start: self.recording.clock.now(),
        });
        result
    }
}

impl Drop for Task<'_> {
    fn drop(&mut self) {
        self.recording.write(self, self.strand.get(), true);
    }
}

impl Fork<'_> {
    /// Runs and records a forked task, on whichever thread this is; `name` is an index of the names.
    pub fn task<R>(&self, name: u16, run: impl FnOnce(&Task<'_>) -> R) -> R {
        self.recording.run(name, Came::Forked, self.origin, run)
    }
}
