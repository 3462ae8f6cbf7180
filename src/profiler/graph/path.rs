//! The critical path: the longest chain of work, and how much longer everything else could take.
//!
//! Only edges that order time make a chain. A node that belongs to no such edge is a chain of its own, unless it stands for
//! what it contains, calls or launches: then that counts, not it.

use super::adjacency::{Adjacency, ordering};
use super::build::ExecutionGraph;
use super::node::{GraphError, Node, NodeId};
use std::collections::BTreeMap;
use std::fmt::Write;

/// When every node could run at the earliest and at the latest, with as many threads as it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    length_ns: u64,
    path: Vec<NodeId>,
    slots: Vec<Option<Slot>>,
}

/// A node's place in a schedule, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Earliest start: when the longest chain before it ends.
    pub earliest_ns: u64,
    /// Latest start that does not make the whole longer.
    pub latest_ns: u64,
    /// Its time.
    pub time_ns: u64,
}

impl Slot {
    /// How much longer the node could take without making the whole longer; 0 for nodes of a longest chain.
    pub fn slack_ns(&self) -> u64 {
        self.latest_ns - self.earliest_ns
    }
}

impl Schedule {
    /// Length of the longest chain.
    pub fn length_ns(&self) -> u64 {
        self.length_ns
    }

    /// Nodes of a longest chain, first to last; of several, the one through the nodes added first, from its end.
    pub fn path(&self) -> &[NodeId] {
        &self.path
    }

    /// The node's place; `None` for one that is not work in time (a layer, a function), or is not there.
    pub fn slot(&self, node: NodeId) -> Option<&Slot> {
        self.slots.get(node.index())?.as_ref()
    }
}

impl ExecutionGraph {
    /// The critical path, in O(nodes + edges).
    ///
    /// # Errors
    ///
    /// [`GraphError::Cycle`].
    pub fn schedule(&self) -> Result<Schedule, GraphError> {
        self.schedule_if(|_, _| 1.0)
    }

    /// The critical path as it would be if the time of every node were what it was times `factor`. A factor that is
    /// negative or not a number counts as 0; times are rounded to nanoseconds.
    ///
    /// # Errors
    ///
    /// [`GraphError::Cycle`].
    pub fn schedule_if(
        &self,
        factor: impl Fn(NodeId, &Node) -> f64,
    ) -> Result<Schedule, GraphError> {
        let nodes = self.nodes().len();
        let keep = ordering(nodes, self.edges());
        let after = Adjacency::forward(nodes, self.edges(), &keep);
        let before = Adjacency::backward(nodes, self.edges(), &keep);
        self.schedule_over(&after, &before, factor)
    }

    pub(super) fn schedule_over(
        &self,
        after: &Adjacency,
        before: &Adjacency,
        factor: impl Fn(NodeId, &Node) -> f64,
    ) -> Result<Schedule, GraphError> {
        let times: Vec<Option<u64>> = self
            .works(after, before)
            .into_iter()
            .zip(self.iter())
            .map(|(works, (id, node))| {
                works.then(|| scale(node.time_ns().unwrap_or(0), factor(id, node)))
            })
            .collect();
        let order = topological(after, before)?;
        Ok(schedule(&times, &order, after, before))
    }

    /// Which nodes are work in time.
    fn works(&self, after: &Adjacency, before: &Adjacency) -> Vec<bool> {
        let mut works = vec![true; self.nodes().len()];
        for edge in self.edges().iter().filter(|e| e.kind.is_structural()) {
            let alone = after.of(edge.from).is_empty() && before.of(edge.from).is_empty();
            works[edge.from.index()] &= !alone;
        }
        works
    }

    /// The critical path in words, the same for the same graph: its length, and what its time goes to by name, longest
    /// first, at most ten names.
    ///
    /// # Errors
    ///
    /// [`GraphError::Cycle`].
    pub fn critical_path_summary(&self) -> Result<String, GraphError> {
        const SHOWN: usize = 10;
        let schedule = self.schedule()?;
        let length = schedule.length_ns();
        let mut names: BTreeMap<String, (u64, usize)> = BTreeMap::new();
        for slot in schedule
            .path
            .iter()
            .filter_map(|id| Some((id, schedule.slot(*id)?)))
        {
            let (id, slot) = slot;
            if slot.time_ns > 0 {
                let name = self.nodes()[id.index()].name().escape_debug().to_string();
                let entry = names.entry(name).or_default();
                *entry = (entry.0.saturating_add(slot.time_ns), entry.1 + 1);
            }
        }
        let mut rows: Vec<_> = names.into_iter().collect();
        rows.sort_by(|a, b| b.1.0.cmp(&a.1.0).then_with(|| a.0.cmp(&b.0)));
        let nodes: usize = rows.iter().map(|r| r.1.1).sum();
        let work = schedule
            .slots
            .iter()
            .flatten()
            .filter(|s| s.time_ns > 0)
            .count();
        let mut text = format!(
            "critical path: {} through {nodes} of {work} nodes\n",
            micros(length)
        );
        for (name, (ns, calls)) in rows.iter().take(SHOWN) {
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "  {name:<16} {:>12} {:>5.1}%  {calls} nodes",
                micros(*ns),
                *ns as f64 / length as f64 * 100.0
            );
        }
        if rows.len() > SHOWN {
            let rest: u64 = rows[SHOWN..].iter().map(|r| r.1.0).sum();
            let _ = writeln!(text, "  {} more names {}", rows.len() - SHOWN, micros(rest));
        }
        Ok(text)
    }
}

pub(super) fn scale(ns: u64, factor: f64) -> u64 {
    if factor == 1.0 {
        return ns;
    }
    // Conversion from float saturates and takes what is not a number as 0.
    (ns as f64 * factor).round() as u64
}

fn micros(ns: u64) -> String {
    format!("{}.{:01} us", ns / 1000, ns % 1000 / 100)
}

/// Every node after all it waits for (Kahn 1962).
fn topological(after: &Adjacency, before: &Adjacency) -> Result<Vec<NodeId>, GraphError> {
    let mut waits: Vec<usize> = before.nodes().map(|n| before.of(n).len()).collect();
    let mut order: Vec<NodeId> = after.nodes().filter(|n| waits[n.index()] == 0).collect();
    let mut done = 0;
    while let Some(&node) = order.get(done) {
        done += 1;
        for &next in after.of(node) {
            waits[next.index()] -= 1;
            if waits[next.index()] == 0 {
                order.push(next);
            }
        }
    }
    match waits.len() - order.len() {
        0 => Ok(order),
        waiting => Err(GraphError::Cycle(waiting)),
    }
}

/// Forward for the earliest start, backward for the latest, and back from the end along the chain that fixed them.
fn schedule(
    times: &[Option<u64>],
    order: &[NodeId],
    after: &Adjacency,
    before: &Adjacency,
) -> Schedule {
    let time = |n: NodeId| times[n.index()].unwrap_or(0);
    let mut earliest = vec![0u64; times.len()];
    for &node in order {
        let ends = before.of(node).iter().map(|&b| end(&earliest, times, b));
        earliest[node.index()] = ends.max().unwrap_or(0);
    }
    let works = |n: &NodeId| times[n.index()].is_some();
    let last = after
        .nodes()
        .filter(works)
        .fold(None, |best: Option<(NodeId, u64)>, n| {
            let end = end(&earliest, times, n);
            match best {
                Some((_, longest)) if longest >= end => best,
                _ => Some((n, end)),
            }
        });
    let length_ns = last.map_or(0, |(_, end)| end);
    let mut latest = vec![0u64; times.len()];
    for &node in order.iter().rev() {
        let starts = after.of(node).iter().map(|&a| latest[a.index()]);
        latest[node.index()] = starts.min().unwrap_or(length_ns).saturating_sub(time(node));
    }
    let slot = |n: NodeId| {
        times[n.index()].map(|time_ns| Slot {
            earliest_ns: earliest[n.index()],
            latest_ns: latest[n.index()].max(earliest[n.index()]),
            time_ns,
        })
    };
    Schedule {
        length_ns,
        path: chain(last.map(|(n, _)| n), &earliest, times, before),
        slots: after.nodes().map(slot).collect(),
    }
}

fn end(earliest: &[u64], times: &[Option<u64>], node: NodeId) -> u64 {
    earliest[node.index()].saturating_add(times[node.index()].unwrap_or(0))
}

/// Back from `last`, each time to the first of those that ended just when the node could start.
fn chain(
    last: Option<NodeId>,
    earliest: &[u64],
    times: &[Option<u64>],
    before: &Adjacency,
) -> Vec<NodeId> {
    let mut path = Vec::new();
    let mut at = last;
    while let Some(node) = at {
        path.push(node);
        let start = earliest[node.index()];
        let fixed = |b: &&NodeId| end(earliest, times, **b) == start;
        at = before.of(node).iter().filter(fixed).min().copied();
    }
    path.reverse();
    path
}
