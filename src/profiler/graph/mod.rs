//! The execution graph: which brick ran which kernel, on which threads, and what waited for what.
//!
//! [`from_step`] makes the graph of a step; [`threads_critical_path`] gives its critical path and slack without making it.
//! [`ForkJoin`] records the graph of any thread pool, and [`ExecutionGraph::record`] and its like that of anything else.
//! Exports: [`ExecutionGraph::to_csr`], [`ExecutionGraph::to_dot`], JSON by serde, [`ExecutionGraph::to_ascii_tree`],
//! [`ExecutionGraph::to_tree_node`], and [`chrome`] traces for Perfetto.

mod adjacency;
mod build;
pub mod chrome;
mod csr;
mod dot;
mod forkjoin;
mod hash;
mod node;
mod path;
mod query;
mod rank;
mod step;
#[cfg(test)]
mod tests;
mod threads;
mod tree;

pub use build::ExecutionGraph;
pub use csr::Csr;
pub use dot::DOT_NODES;
pub use forkjoin::{Fork, ForkJoin, Merged, Task};
pub use hash::{KernelRegistry, KernelSource, fnv1a_64};
pub use node::{
    CpuTask, Direction, Edge, EdgeKind, GraphError, Kernel, MAX_ITEMS, Node, NodeId, Shape,
};
pub use path::{Schedule, Slot};
pub use query::{PingPong, RoofDistance};
pub use rank::PageRank;
pub use step::from_step;
pub use threads::{BrickPath, SpanPath, StepPath, fill_slack, threads_critical_path};
pub use tree::TreeNode;
