//! Neighbours of every node, in rows.

use super::node::{Edge, EdgeKind, NodeId};

/// Edges by source (or target), in the order they were added. Built in O(nodes + edges).
pub(super) struct Adjacency {
    offsets: Vec<u32>,
    neighbours: Vec<NodeId>,
    #[cfg(test)]
    visits: std::cell::Cell<usize>,
}

impl Adjacency {
    /// Targets of every node along the edges that `keep` lets through.
    pub(super) fn forward(nodes: usize, edges: &[Edge], keep: impl Fn(&Edge) -> bool) -> Self {
        let pairs = || edges.iter().filter(|e| keep(e)).map(|e| (e.from, e.to));
        Self::new(nodes, pairs)
    }

    /// Sources of every node along the edges that `keep` lets through.
    pub(super) fn backward(nodes: usize, edges: &[Edge], keep: impl Fn(&Edge) -> bool) -> Self {
        let pairs = || edges.iter().filter(|e| keep(e)).map(|e| (e.to, e.from));
        Self::new(nodes, pairs)
    }

    fn new<I: Iterator<Item = (NodeId, NodeId)>>(nodes: usize, pairs: impl Fn() -> I) -> Self {
        let mut offsets = vec![0u32; nodes + 1];
        for (row, _) in pairs() {
            offsets[row.index() + 1] += 1;
        }
        for i in 0..nodes {
            offsets[i + 1] += offsets[i];
        }
        let mut next = offsets.clone();
        let mut neighbours = vec![NodeId(0); offsets[nodes] as usize];
        for (row, neighbour) in pairs() {
            let place = &mut next[row.index()];
            neighbours[*place as usize] = neighbour;
            *place += 1;
        }
        Self {
            offsets,
            neighbours,
            #[cfg(test)]
            visits: std::cell::Cell::new(0),
        }
    }

    pub(super) fn of(&self, node: NodeId) -> &[NodeId] {
        let row = self.offsets[node.index()] as usize..self.offsets[node.index() + 1] as usize;
        #[cfg(test)]
        self.visits.set(self.visits.get() + 1 + row.len());
        &self.neighbours[row]
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.offsets.len() as u32 - 1).map(NodeId)
    }

    /// Nodes and edges looked at so far.
    #[cfg(test)]
    pub(super) fn visits(&self) -> usize {
        self.visits.get()
    }
}

/// Whether an edge belongs to the tree of what is a part of what.
pub(super) fn structural(edge: &Edge) -> bool {
    edge.kind.is_structural()
}

/// The edges that order time: those of a kind that does, without the `Sequence` edges into nodes that have `DependsOn` edges.
pub(super) fn ordering(nodes: usize, edges: &[Edge]) -> impl Fn(&Edge) -> bool {
    let mut depends = vec![false; nodes];
    for edge in edges.iter().filter(|e| e.kind == EdgeKind::DependsOn) {
        depends[edge.to.index()] = true;
    }
    move |edge| {
        edge.kind.orders_time() && !(edge.kind == EdgeKind::Sequence && depends[edge.to.index()])
    }
}
