//! Questions to a graph: who calls what, what is slow, what moves to and fro, how near a kernel comes to the roof.

use super::adjacency::{Adjacency, structural};
use super::build::ExecutionGraph;
use super::node::{Direction, EdgeKind, GraphError, Node, NodeId};
use std::collections::BTreeMap;

/// Transfers of one thing that went to the device and back, or back and to the device again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PingPong {
    /// What was copied.
    pub name: String,
    /// The transfers, each in the other direction than the one before.
    pub transfers: Vec<NodeId>,
    /// Bytes that came back from where the transfer before had taken them: of each pair the smaller transfer.
    pub wasted_bytes: u64,
}

/// How near a kernel comes to the roof (Williams et al. 2009).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoofDistance {
    /// Achieved GFLOP/s.
    pub gflops: f64,
    /// The lower of the compute peak and intensity times bandwidth, GFLOP/s.
    pub roof_gflops: f64,
    /// `gflops / roof_gflops`.
    pub of_roof: f64,
    /// `1 - of_roof`; below 0 where caches serve the bytes.
    pub distance: f64,
    /// Whether the compute peak is the lower one.
    pub under_compute: bool,
}

impl ExecutionGraph {
    /// Nodes whose name starts with `prefix`, in the order they were added.
    pub fn find_by_prefix(&self, prefix: &str) -> Vec<NodeId> {
        let matches = |n: &Node| n.name().starts_with(prefix);
        self.iter()
            .filter(|(_, n)| matches(n))
            .map(|(id, _)| id)
            .collect()
    }

    /// Nodes that contain, call or launch `node`, over at most `levels` levels, nearest first. O(nodes + edges).
    ///
    /// # Errors
    ///
    /// [`GraphError::NoNode`].
    pub fn callers(&self, node: NodeId, levels: usize) -> Result<Vec<NodeId>, GraphError> {
        self.check(node)?;
        let parents = Adjacency::backward(self.nodes().len(), self.edges(), structural);
        Ok(reach(&parents, node, levels))
    }

    /// Nodes that `node` leads to along edges of this kind, in the order they were added.
    pub fn targets(&self, node: NodeId, kind: EdgeKind) -> Vec<NodeId> {
        let along = self
            .edges()
            .iter()
            .filter(|e| e.from == node && e.kind == kind);
        along.map(|e| e.to).collect()
    }

    /// Nodes that launch more than `limit` kernels, with how many, in the order they were added.
    pub fn god_class(&self, limit: usize) -> Vec<(NodeId, usize)> {
        let mut launches = vec![0usize; self.nodes().len()];
        for edge in self.edges().iter().filter(|e| e.kind == EdgeKind::Launches) {
            launches[edge.from.index()] += 1;
        }
        let ids = (0u32..).map(NodeId);
        ids.zip(launches).filter(|(_, n)| *n > limit).collect()
    }

    /// The kernel that took longest and its time, nanoseconds: its own where known, else that of the bricks that launch it.
    /// Of equal ones that added first; `None` where no kernel's time is known.
    pub fn slowest_kernel(&self) -> Option<(NodeId, u64)> {
        let mut launchers: Vec<Option<u64>> = vec![None; self.nodes().len()];
        for edge in self.edges().iter().filter(|e| e.kind == EdgeKind::Launches) {
            if let Some(ns) = self.nodes()[edge.from.index()].time_ns() {
                let sum = &mut launchers[edge.to.index()];
                *sum = Some(sum.unwrap_or(0).saturating_add(ns));
            }
        }
        let kernels = self.iter().filter_map(|(id, node)| match node {
            Node::Kernel(kernel) => Some((id, kernel.time_ns.or(launchers[id.index()])?)),
            _ => None,
        });
        kernels.fold(None, |best, next| match best {
            Some((_, ns)) if ns >= next.1 => best,
            _ => Some(next),
        })
    }

    /// Transfers of one name that alternate between host to device and device to host, in the order they were recorded.
    /// Transfers within the device do not count. The most bytes wasted first, then by name and place.
    pub fn ping_pong(&self) -> Vec<PingPong> {
        let mut by_name: BTreeMap<&str, Vec<Copy>> = BTreeMap::new();
        for (id, node) in self.iter() {
            if let Node::Transfer {
                name,
                bytes,
                direction,
                ..
            } = node
                && *direction != Direction::D2d
            {
                let copy = Copy {
                    id,
                    bytes: *bytes,
                    direction: *direction,
                };
                by_name.entry(name).or_default().push(copy);
            }
        }
        let mut found: Vec<PingPong> = by_name
            .into_iter()
            .flat_map(|(name, copies)| alternating(name, &copies))
            .collect();
        found.sort_by_key(|p| std::cmp::Reverse(p.wasted_bytes));
        found
    }

    /// Bytes moved in each direction: host to device, device to host, within the device.
    pub fn transferred(&self) -> [u64; 3] {
        let mut sums = [0u64; 3];
        for node in self.nodes() {
            if let Node::Transfer {
                bytes, direction, ..
            } = node
            {
                let sum = &mut sums[*direction as usize];
                *sum = sum.saturating_add(*bytes);
            }
        }
        sums
    }

    /// How near a kernel comes to the roof of a machine that does `peak_gflops` GFLOP/s and moves `peak_gbps` GB/s (10^9).
    /// `None` where the node is no kernel, its intensity or rate is not known, or a peak is not above 0.
    pub fn roofline_distance(
        &self,
        node: NodeId,
        peak_gflops: f64,
        peak_gbps: f64,
    ) -> Option<RoofDistance> {
        let Node::Kernel(kernel) = self.node(node)? else {
            return None;
        };
        let (gflops, intensity) = kernel.gflops.zip(kernel.intensity)?;
        let roof_gflops = peak_gflops.min(intensity * peak_gbps);
        (roof_gflops > 0.0 && roof_gflops.is_finite()).then(|| RoofDistance {
            gflops,
            roof_gflops,
            of_roof: gflops / roof_gflops,
            distance: 1.0 - gflops / roof_gflops,
            under_compute: peak_gflops <= intensity * peak_gbps,
        })
    }

    /// Achieved TFLOP/s (10^12) of a kernel; `None` where the node is no kernel or its rate is not known.
    pub fn achieved_tflops(&self, node: NodeId) -> Option<f64> {
        match self.node(node)? {
            Node::Kernel(kernel) => kernel.achieved_tflops(),
            _ => None,
        }
    }
}

/// Breadth first, each node once.
pub(super) fn reach(rows: &Adjacency, from: NodeId, levels: usize) -> Vec<NodeId> {
    let mut seen = vec![false; rows.nodes().count()];
    seen[from.index()] = true;
    let mut found = Vec::new();
    let mut level = vec![from];
    for _ in 0..levels {
        let mut next = Vec::new();
        for &node in &level {
            for &neighbour in rows.of(node) {
                if !std::mem::replace(&mut seen[neighbour.index()], true) {
                    next.push(neighbour);
                }
            }
        }
        if next.is_empty() {
            break;
        }
        found.extend_from_slice(&next);
        level = next;
    }
    found
}

struct Copy {
    id: NodeId,
    bytes: u64,
    direction: Direction,
}

/// Runs of two and more in turn.
fn alternating(name: &str, copies: &[Copy]) -> Vec<PingPong> {
    copies
        .chunk_by(|a, b| a.direction != b.direction)
        .filter(|run| run.len() > 1)
        .map(|run| PingPong {
            name: name.to_owned(),
            transfers: run.iter().map(|c| c.id).collect(),
            wasted_bytes: run.windows(2).fold(0, |sum: u64, w| {
                sum.saturating_add(w[0].bytes.min(w[1].bytes))
            }),
        })
        .collect()
}
