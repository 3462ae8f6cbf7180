//! The graph in compressed sparse rows, the form that graph libraries take.

use super::build::ExecutionGraph;
use super::node::{Edge, EdgeKind, GraphError, Node, NodeId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Edges by source: those of node `n` are at `offsets[n]..offsets[n + 1]` of `targets` and `kinds`, in the order they
/// were added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Csr {
    /// Start of every row, and the number of edges last: nodes + 1 numbers that do not fall.
    pub offsets: Vec<u32>,
    /// Target of every edge.
    pub targets: Vec<NodeId>,
    /// Kind of every edge.
    pub kinds: Vec<EdgeKind>,
    /// Name of every node.
    pub names: Vec<String>,
}

impl Csr {
    /// Number of nodes.
    pub fn node_count(&self) -> usize {
        self.names.len()
    }

    /// Number of edges.
    pub fn edge_count(&self) -> usize {
        self.targets.len()
    }

    /// Targets of a node with the kinds of their edges; nothing for a node that is not there.
    pub fn outgoing(&self, node: NodeId) -> impl Iterator<Item = (NodeId, EdgeKind)> {
        let at = |i: usize| self.offsets.get(i).map(|&o| o as usize);
        let row = match (at(node.index()), at(node.index() + 1)) {
            (Some(from), Some(to)) => from..to,
            _ => 0..0,
        };
        let targets = self.targets.get(row.clone()).unwrap_or_default();
        let kinds = self.kinds.get(row).unwrap_or_default();
        targets.iter().copied().zip(kinds.iter().copied())
    }

    /// The first node with this name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        let index = self.names.iter().position(|n| n == name)?;
        u32::try_from(index).ok().map(NodeId)
    }

    /// Whether the arrays fit together.
    ///
    /// # Errors
    ///
    /// [`GraphError::BadCsr`].
    pub fn check(&self) -> Result<(), GraphError> {
        let nodes = self.names.len();
        if self.offsets.len() != nodes + 1 || self.offsets.first() != Some(&0) {
            return Err(GraphError::BadCsr(
                "offsets are not one more than nodes, from 0",
            ));
        }
        if self.offsets.windows(2).any(|w| w[0] > w[1]) {
            return Err(GraphError::BadCsr("offsets fall"));
        }
        let edges = self.offsets.last().map_or(0, |&o| o as usize);
        if self.targets.len() != edges || self.kinds.len() != edges {
            return Err(GraphError::BadCsr(
                "the last offset is not the number of edges",
            ));
        }
        if self.targets.iter().any(|t| t.index() >= nodes) {
            return Err(GraphError::BadCsr("a target does not exist"));
        }
        Ok(())
    }
}

impl ExecutionGraph {
    /// The graph in compressed rows, in O(nodes + edges).
    pub fn to_csr(&self) -> Csr {
        let mut offsets = vec![0u32; self.nodes().len() + 1];
        for edge in self.edges() {
            offsets[edge.from.index() + 1] += 1;
        }
        for i in 1..offsets.len() {
            offsets[i] += offsets[i - 1];
        }
        let mut next = offsets.clone();
        let mut targets = vec![NodeId(0); self.edges().len()];
        let mut kinds = vec![EdgeKind::Calls; self.edges().len()];
        for edge in self.edges() {
            let place = &mut next[edge.from.index()];
            targets[*place as usize] = edge.to;
            kinds[*place as usize] = edge.kind;
            *place += 1;
        }
        Csr {
            offsets,
            targets,
            kinds,
            names: self.nodes().iter().map(Node::name).collect(),
        }
    }

    /// The graph with these nodes and the edges of `csr`, by source.
    ///
    /// # Errors
    ///
    /// [`GraphError::BadCsr`] where the arrays do not fit together or are not of these nodes, [`GraphError::Full`].
    pub fn from_csr(nodes: Vec<Node>, csr: &Csr) -> Result<Self, GraphError> {
        csr.check()?;
        if nodes.len() != csr.node_count() {
            return Err(GraphError::BadCsr("it has another number of nodes"));
        }
        let edges = (0u32..)
            .map(NodeId)
            .take(nodes.len())
            .flat_map(|from| {
                csr.outgoing(from)
                    .map(move |(to, kind)| Edge { from, to, kind })
            })
            .collect();
        Self::from_parts(nodes, edges)
    }
}
