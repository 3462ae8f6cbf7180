//! What the graph is made of: nodes, edges and what can go wrong.

use crate::model::brick::BrickId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most nodes, and most edges, of one graph; a decode step of the largest models on 64 threads has under 200 000.
pub const MAX_ITEMS: usize = 1 << 22;

/// A node by its place in [`super::ExecutionGraph::nodes`].
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct NodeId(pub u32);

impl NodeId {
    /// As an index of arrays.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Something that ran. Times are nanoseconds; `None` is "not known", and counts as nothing on a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum Node {
    /// A call of the forward pass.
    Brick {
        /// Which brick.
        id: BrickId,
        /// Its time, nanoseconds.
        time_ns: Option<u64>,
        /// Elements it wrote.
        elements: Option<u64>,
        /// Bytes it moved.
        bytes: Option<u64>,
        /// Floating-point operations.
        flops: Option<u64>,
    },
    /// A kernel.
    Kernel(Kernel),
    /// A function.
    Function {
        /// Its name.
        name: String,
        /// Its source file.
        file: Option<String>,
        /// Line in that file, from 1.
        line: Option<u32>,
    },
    /// A layer of the model.
    Layer {
        /// From 0.
        index: u32,
    },
    /// A piece of work on one thread.
    CpuTask(CpuTask),
    /// All threads waiting for each other; takes no time itself.
    Barrier {
        /// The event of the step that it follows, where it is one.
        event: Option<u32>,
    },
    /// A copy between memories.
    Transfer {
        /// What is copied: transfers of one name are looked at together.
        name: String,
        /// Bytes copied.
        bytes: u64,
        /// From where to where.
        direction: Direction,
        /// Its time, nanoseconds.
        time_ns: Option<u64>,
    },
    /// A task of an event loop.
    AsyncTask {
        /// Its name.
        name: String,
        /// Times it was polled.
        polls: u64,
        /// Times it was ready.
        ready: u64,
        /// Time inside polls, nanoseconds.
        time_ns: Option<u64>,
    },
}

/// A kernel, and what it was measured to do where it was.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Kernel {
    /// Name, for example `q4_1_dot`.
    pub name: String,
    /// Variant, for example `avx512`; empty where there is one only.
    pub variant: String,
    /// FNV-1a (64 bits) of its source; hexadecimal in JSON, where 64 bits do not fit a number.
    #[serde(with = "hex")]
    #[schemars(with = "Option<String>")]
    pub source_hash: Option<u64>,
    /// How its work is divided.
    pub shape: Option<Shape>,
    /// Its time, nanoseconds.
    pub time_ns: Option<u64>,
    /// Arithmetic intensity: FLOP per byte moved.
    pub intensity: Option<f64>,
    /// Achieved GFLOP/s (10^9).
    pub gflops: Option<f64>,
}

/// How the work of a kernel is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Shape {
    /// CUDA launch.
    Grid {
        /// Blocks in x, y and z.
        grid: [u32; 3],
        /// Threads of a block in x, y and z.
        block: [u32; 3],
        /// Dynamic shared memory of a block, bytes.
        shared_bytes: u32,
    },
    /// Matrix product on the CPU.
    Tiles {
        /// Rows of the weights.
        rows: u64,
        /// Columns of the weights.
        columns: u64,
        /// Rows taken at a time, where the kernel has tiles.
        tile_rows: Option<u64>,
    },
}

/// A piece of work on one thread.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CpuTask {
    /// Its name.
    pub name: String,
    /// The brick it is a share of, where it is one.
    pub brick: Option<BrickId>,
    /// Number of the thread.
    pub thread: u32,
    /// Core (logical CPU), where known.
    pub core: Option<u32>,
    /// Start, nanoseconds since the recording's start.
    pub start_ns: u64,
    /// Its work, nanoseconds.
    pub time_ns: u64,
    /// Waiting after it, nanoseconds.
    pub wait_ns: Option<u64>,
    /// Pieces of work taken.
    pub pieces: u32,
    /// Of them those taken from another thread.
    pub stolen: u32,
}

/// From where to where a transfer goes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Host to device.
    H2d,
    /// Device to host.
    D2h,
    /// Device to device.
    D2d,
}

impl Direction {
    /// As in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::H2d => "H2D",
            Self::D2h => "D2H",
            Self::D2d => "D2D",
        }
    }
}

/// How two nodes are related.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum EdgeKind {
    /// The source calls the target.
    Calls,
    /// The target is a part of the source.
    Contains,
    /// The source launches the target.
    Launches,
    /// The target was issued after the source, on the same thread or stream.
    Sequence,
    /// The target needs the source's result: it cannot start before the source ends. Who has such edges is ordered by them
    /// alone, not by the `Sequence` edges it may have too.
    DependsOn,
    /// The source ends where tasks fork; the target is one of them.
    Fork,
    /// The source ends at a join; the target goes on after it.
    Join,
    /// The source's data goes to the target.
    Transfer {
        /// Bytes copied.
        bytes: u64,
        /// From where to where.
        direction: Direction,
    },
}

impl EdgeKind {
    /// Whether the target starts only when the source has ended; the others tell what belongs to what.
    pub fn orders_time(self) -> bool {
        !self.is_structural()
    }

    /// Whether the target is a part of the source, or was called or launched by it.
    pub fn is_structural(self) -> bool {
        matches!(self, Self::Calls | Self::Contains | Self::Launches)
    }

    /// As in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Contains => "contains",
            Self::Launches => "launches",
            Self::Sequence => "sequence",
            Self::DependsOn => "depends on",
            Self::Fork => "fork",
            Self::Join => "join",
            Self::Transfer { .. } => "transfer",
        }
    }
}

/// A directed edge; where it orders time it goes from earlier to later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Edge {
    /// Source.
    pub from: NodeId,
    /// Target.
    pub to: NodeId,
    /// What it says.
    #[serde(flatten)]
    pub kind: EdgeKind,
}

/// What is wrong with a graph, or with what one is made from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// [`MAX_ITEMS`] nodes or edges are there already.
    #[error("the graph is full: {MAX_ITEMS} nodes or edges")]
    Full,
    /// A node that is not there.
    #[error("node {id} does not exist: the graph has {nodes}")]
    NoNode {
        /// The node asked for.
        id: u32,
        /// Nodes in the graph.
        nodes: usize,
    },
    /// A scope was closed that nobody opened.
    #[error("a scope was closed, but none is open")]
    NoScope,
    /// Scopes were left open.
    #[error("{0} scopes are still open")]
    OpenScopes(usize),
    /// Nodes wait for each other.
    #[error("{0} nodes wait for each other in a circle, so there is no longest path")]
    Cycle(usize),
    /// Row offsets, targets and kinds do not make a graph.
    #[error("not a graph in compressed rows: {0}")]
    BadCsr(&'static str),
    /// Two sources have one hash.
    #[error("source of kernel {new} has the hash of another source, that of {old}")]
    HashCollision {
        /// Registered before.
        old: String,
        /// Refused.
        new: String,
    },
    /// A span refers to an event that the step does not have.
    #[error("a span of thread {thread} refers to event {event}, but the step has {events}")]
    NoEvent {
        /// The thread.
        thread: u32,
        /// The event referred to.
        event: u32,
        /// Events of the step.
        events: usize,
    },
    /// The spans of a thread are not in the order of the events.
    #[error("spans of thread {thread} are not in the order of their events")]
    OutOfOrder {
        /// The thread.
        thread: u32,
    },
}

impl Node {
    /// Its time, nanoseconds, where known.
    pub fn time_ns(&self) -> Option<u64> {
        match self {
            Self::Brick { time_ns, .. }
            | Self::Transfer { time_ns, .. }
            | Self::AsyncTask { time_ns, .. } => *time_ns,
            Self::Kernel(kernel) => kernel.time_ns,
            Self::CpuTask(task) => Some(task.time_ns),
            Self::Barrier { .. } => Some(0),
            Self::Function { .. } | Self::Layer { .. } => None,
        }
    }

    /// Its name as recorded; control characters are not escaped.
    pub fn name(&self) -> String {
        match self {
            Self::Brick { id, .. } => id.name().to_owned(),
            Self::Kernel(kernel) => kernel.name.clone(),
            Self::Layer { index } => format!("Layer {index}"),
            Self::CpuTask(task) => task.name.clone(),
            Self::Barrier { .. } => "barrier".to_owned(),
            Self::Function { name, .. }
            | Self::Transfer { name, .. }
            | Self::AsyncTask { name, .. } => name.clone(),
        }
    }

    /// What is known beyond name and time, in one line; empty where nothing is.
    pub fn detail(&self) -> String {
        match self {
            Self::Brick { elements, .. } => {
                elements.map_or_else(String::new, |n| format!("({n} elem)"))
            }
            Self::Kernel(kernel) => kernel.detail(),
            Self::Function { file, line, .. } => match (file, line) {
                (Some(file), Some(line)) => format!("{file}:{line}"),
                (Some(file), None) => file.clone(),
                (None, _) => String::new(),
            },
            Self::Layer { .. } => String::new(),
            Self::CpuTask(task) => task.detail(),
            Self::Barrier { event } => {
                event.map_or_else(String::new, |e| format!("after event {e}"))
            }
            Self::Transfer {
                bytes, direction, ..
            } => format!("{} {bytes} B", direction.name()),
            Self::AsyncTask { polls, ready, .. } => format!("{polls} polls, {ready} ready"),
        }
    }
}

impl Kernel {
    /// A kernel that did `flops` operations and moved `bytes` in `time_ns`. A rate is `None` where its divisor is 0.
    pub fn measured(mut self, flops: u64, bytes: u64, time_ns: u64) -> Self {
        let over = |divisor: u64| (divisor > 0).then(|| flops as f64 / divisor as f64);
        self.time_ns = Some(time_ns);
        self.intensity = over(bytes);
        self.gflops = over(time_ns);
        self
    }

    /// Achieved TFLOP/s (10^12), where known.
    pub fn achieved_tflops(&self) -> Option<f64> {
        self.gflops.map(|g| g * 1e-3)
    }

    fn detail(&self) -> String {
        let mut words = Vec::new();
        if !self.variant.is_empty() {
            words.push(self.variant.clone());
        }
        match self.shape {
            Some(Shape::Grid {
                grid,
                block,
                shared_bytes,
            }) => words.push(format!(
                "<<<{},{}>>> smem={shared_bytes}B",
                three(grid),
                three(block)
            )),
            Some(Shape::Tiles {
                rows,
                columns,
                tile_rows,
            }) => {
                let tiles = tile_rows.map_or_else(String::new, |t| format!(", {t} rows a tile"));
                words.push(format!("{rows}x{columns}{tiles}"));
            }
            None => {}
        }
        if let Some(gflops) = self.gflops {
            words.push(format!("{gflops:.1} GFLOP/s"));
        }
        words.join(" ")
    }
}

fn three([x, y, z]: [u32; 3]) -> String {
    match (y, z) {
        (1, 1) => format!("{x}"),
        _ => format!("({x},{y},{z})"),
    }
}

impl CpuTask {
    fn detail(&self) -> String {
        let core = self
            .core
            .map_or_else(String::new, |c| format!(", core {c}"));
        let stolen = match self.stolen {
            0 => String::new(),
            n => format!(", {n} of {} pieces stolen", self.pieces),
        };
        format!("thread {}{core}{stolen}", self.thread)
    }
}

/// 64-bit hashes as hexadecimal text.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(hash: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
        match hash {
            Some(hash) => to.collect_str(&format_args!("{hash:016x}")),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        Option::<String>::deserialize(from)?
            .map(|text| u64::from_str_radix(&text, 16).map_err(D::Error::custom))
            .transpose()
    }
}
