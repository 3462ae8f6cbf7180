//! What the engine tells about a step while it runs: a type parameter, so that an engine nobody watches has nothing of it.

use crate::model::brick::BrickId;
use crate::model::work::Work;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Layer of bricks outside layers (embedding, output head, sampling).
pub const NO_LAYER: u16 = u16::MAX;

/// What a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// One token.
    Decode,
    /// One chunk of the prompt.
    Prefill,
}

/// How far threads are kept in step for the sake of watching them. Every brick has its own stamps on every thread in all
/// modes but `None`; what differs is how much waiting is added, and so what a brick's time on thread 0 can be taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SyncMode {
    /// All threads wait for each other after every brick: its time and waiting together are those of its slowest thread.
    Immediate,
    /// All threads wait for each other after every layer.
    PerLayer,
    /// No waiting is added.
    #[default]
    Deferred,
    /// Nothing but whole steps is timed: times of bricks are not known.
    None,
}

impl SyncMode {
    /// All modes, the least intrusive last.
    pub const ALL: [Self; 4] = [Self::Immediate, Self::PerLayer, Self::Deferred, Self::None];

    /// As on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Immediate => "immediate",
            Self::PerLayer => "per-layer",
            Self::Deferred => "deferred",
            Self::None => "none",
        }
    }

    /// What its times are.
    pub fn says(self) -> &'static str {
        match self {
            Self::Immediate => {
                "all threads wait for each other after every brick: slower, but a brick's time is that of its slowest thread"
            }
            Self::PerLayer => {
                "all threads wait for each other after every layer: a layer's time is that of its slowest thread"
            }
            Self::Deferred => {
                "every brick has its own stamps on every thread, and no waiting is added"
            }
            Self::None => "only whole steps are timed: what a brick takes is not known",
        }
    }
}

impl std::str::FromStr for SyncMode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|m| m.name() == name)
            .ok_or_else(|| format!("'{name}' is not a way to profile; there are {names}"))
    }
}

/// What a thread did of a brick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Done {
    /// Pieces of work it took, where the brick is dealt out in pieces.
    pub pieces: u16,
    /// Of them those that an even split would have given to another thread.
    pub stolen: u16,
    /// Ticks spent on scores, softmax and weighted values, where the brick is attention.
    pub attention: [u64; 3],
}

/// One call of a brick, as thread 0 reports it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Call {
    /// Which brick.
    pub id: BrickId,
    /// Its layer, or [`NO_LAYER`].
    pub layer: u16,
    /// Its place in the plan; `None` for what is not in it (sampling).
    pub brick: Option<u32>,
    /// Whether all threads wait for each other after it.
    pub barrier: bool,
    /// What it did, all threads together.
    pub work: Work,
    /// What thread 0 did of it.
    pub done: Done,
}

impl Call {
    /// A call outside the plan.
    pub fn outside(id: BrickId, layer: u16, work: Work) -> Self {
        Self {
            id,
            layer,
            brick: None,
            barrier: false,
            work,
            done: Done::default(),
        }
    }
}

/// Time as the observer counts it, for what is timed inside a brick.
pub trait Ticks: Sync {
    /// Ticks now; only differences mean something.
    fn ticks(&self) -> u64;
}

impl Ticks for () {
    #[inline]
    fn ticks(&self) -> u64 {
        0
    }
}

/// Watches one worker thread, on that thread: nothing here may allocate or wait.
pub trait Lane: Send {
    /// Stamp before a brick.
    fn start(&mut self) -> u64;

    /// Stamp after the thread's part of brick `brick` of the plan, which began at `start`. Returns the end of the work.
    fn worked(&mut self, start: u64, brick: u32, done: Done) -> u64;

    /// Stamp after the barrier behind the brick last reported, whose work ended at `work_end`; returned.
    fn synced(&mut self, work_end: u64) -> u64;
}

impl Lane for () {
    #[inline]
    fn start(&mut self) -> u64 {
        0
    }

    #[inline]
    fn worked(&mut self, _: u64, _: u32, _: Done) -> u64 {
        0
    }

    #[inline]
    fn synced(&mut self, _: u64) -> u64 {
        0
    }
}

/// Watches the steps of an engine: thread 0 reports to the observer itself, every worker to a lane of its own, so that
/// nobody takes a lock. Called in the token loop: nothing here may allocate or wait.
pub trait Observer: Send {
    /// What watches a worker thread.
    type Lane: Lane;
    /// Its clock.
    type Ticks: Ticks;

    /// An engine of `threads` threads and a plan of `bricks` bricks will be watched. May allocate.
    fn prepare(&mut self, threads: usize, bricks: usize);

    /// Waiting to add.
    fn sync_mode(&self) -> SyncMode;

    /// The clock for what is timed inside a brick.
    fn clock(&self) -> Self::Ticks;

    /// Hands out the lanes of threads 1, 2 and so on for one dispatch; a thread without one is not watched.
    fn take_lanes(&mut self) -> Vec<Self::Lane>;

    /// Takes them back.
    fn put_lanes(&mut self, lanes: Vec<Self::Lane>);

    /// A step of `tokens` tokens begins; `position` is that of its last one.
    fn begin_step(&mut self, kind: StepKind, position: u32, tokens: u32);

    /// Stamp before a brick.
    fn start(&self) -> u64;

    /// Stamp after thread 0's own part of a call, which began at `start`. Returns the end of the work.
    fn worked(&mut self, start: u64, call: Call) -> u64;

    /// Stamp after the barrier behind the brick last reported, whose work ended at `work_end`.
    fn synced(&mut self, work_end: u64) -> u64;

    /// The step stands still between two layers, until [`Self::resume`].
    fn pause(&mut self);

    /// The step goes on.
    fn resume(&mut self);

    /// The step is over.
    fn end_step(&mut self);
}

/// Watches nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    type Lane = ();
    type Ticks = ();

    fn prepare(&mut self, _: usize, _: usize) {}

    #[inline]
    fn sync_mode(&self) -> SyncMode {
        SyncMode::None
    }

    #[inline]
    fn clock(&self) {}

    #[inline]
    fn take_lanes(&mut self) -> Vec<()> {
        Vec::new()
    }

    #[inline]
    fn put_lanes(&mut self, _: Vec<()>) {}

    #[inline]
    fn begin_step(&mut self, _: StepKind, _: u32, _: u32) {}

    #[inline]
    fn start(&self) -> u64 {
        0
    }

    #[inline]
    fn worked(&mut self, _: u64, _: Call) -> u64 {
        0
    }

    #[inline]
    fn synced(&mut self, _: u64) -> u64 {
        0
    }

    #[inline]
    fn pause(&mut self) {}

    #[inline]
    fn resume(&mut self) {}

    #[inline]
    fn end_step(&mut self) {}
}
