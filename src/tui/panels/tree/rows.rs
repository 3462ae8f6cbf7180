//! The rows of the execution tree: step, layers, calls, and of a call its kernel and each thread's share. What is folded
//! makes no rows.

use crate::session::snapshot::{KernelInfo, StepEvent, StepTrace};
use crate::tui::panels::timeline::sane;
use crate::tui::views::Node;
use std::collections::BTreeSet;

/// A row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// What it is about.
    pub node: Node,
    /// How far it is indented.
    pub depth: u16,
    /// Whether it is unfolded; `None` where there is nothing to unfold.
    pub open: Option<bool>,
    /// Work and waiting after it, microseconds; `None` for a kernel, which takes no time of its own.
    pub us: Option<f64>,
    /// Of it waiting, microseconds.
    pub wait_us: Option<f64>,
    /// Calls in a layer or in the step.
    pub calls: u32,
}

/// The rows of `step` with the nodes in `open` unfolded. Times of layers are the sums of their calls on thread 0, which is
/// in every call.
pub fn tree_rows(step: &StepTrace, kernels: &[KernelInfo], open: &BTreeSet<Node>) -> Vec<Row> {
    let root_open = open.contains(&Node::Step);
    let mut rows = vec![Row {
        node: Node::Step,
        depth: 0,
        open: Some(root_open),
        us: Some(sane(step.wall_us)),
        wait_us: Some(step.events.iter().map(|e| sane(e.sync_us)).sum()),
        calls: step.events.len() as u32,
    }];
    if !root_open {
        return rows;
    }
    let mut events = step.events.iter().enumerate().peekable();
    while let Some((first, event)) = events.next() {
        let Some(layer) = event.layer else {
            call(&mut rows, step, kernels, open, first, 1);
            continue;
        };
        let node = Node::Layer(first as u32);
        let at = rows.len();
        let is_open = open.contains(&node);
        rows.push(Row {
            node,
            depth: 1,
            open: Some(is_open),
            us: Some(0.0),
            wait_us: Some(0.0),
            calls: 0,
        });
        let (mut us, mut wait, mut calls) = (0.0, 0.0, 0);
        let mut next = Some((first, event));
        while let Some((i, e)) = next {
            us += whole(e);
            wait += sane(e.sync_us);
            calls += 1;
            if is_open {
                call(&mut rows, step, kernels, open, i, 2);
            }
            next = events.next_if(|(_, e)| e.layer == Some(layer));
        }
        if let Some(row) = rows.get_mut(at) {
            (row.us, row.wait_us, row.calls) = (Some(us), Some(wait), calls);
        }
    }
    let calls: f64 = step.events.iter().map(whole).sum();
    rows.push(Row {
        node: Node::Rest,
        depth: 1,
        open: None,
        us: Some((sane(step.wall_us) - calls).max(0.0)),
        wait_us: None,
        calls: 0,
    });
    rows
}

fn whole(e: &StepEvent) -> f64 {
    sane(e.work_us) + sane(e.sync_us)
}

fn call(
    rows: &mut Vec<Row>,
    step: &StepTrace,
    kernels: &[KernelInfo],
    open: &BTreeSet<Node>,
    event: usize,
    depth: u16,
) {
    let Some(e) = step.events.get(event) else {
        return;
    };
    let node = Node::Brick(event as u32);
    let kernel = e.brick.and_then(|i| kernels.get(i as usize));
    let has_tasks = step.threads.iter().any(|t| !t.spans.is_empty());
    let is_open = open.contains(&node);
    rows.push(Row {
        node,
        depth,
        open: (kernel.is_some() || has_tasks).then_some(is_open),
        us: Some(whole(e)),
        wait_us: Some(sane(e.sync_us)),
        calls: 1,
    });
    if !is_open {
        return;
    }
    let leaf = |node, us, wait_us| Row {
        node,
        depth: depth + 1,
        open: None,
        us,
        wait_us,
        calls: 1,
    };
    if kernel.is_some() {
        rows.push(leaf(Node::Kernel(event as u32), None, None));
    }
    for (thread, trace) in step.threads.iter().enumerate() {
        if let Some(s) = trace.spans.iter().find(|s| s.event as usize == event) {
            let (work, wait) = (sane(s.work_us), sane(s.wait_us));
            rows.push(leaf(
                Node::Task(event as u32, thread as u32),
                Some(work + wait),
                Some(wait),
            ));
        }
    }
}

/// The row of `cursor`, or of the nearest unfolded node that holds it.
pub fn row_of(rows: &[Row], cursor: Node) -> usize {
    if let Some(at) = rows.iter().position(|r| r.node == cursor) {
        return at;
    }
    let event = match cursor {
        Node::Step | Node::Rest => return 0,
        Node::Layer(e) | Node::Brick(e) | Node::Kernel(e) | Node::Task(e, _) => e,
    };
    // Layers and calls are in the order of their events.
    rows.iter()
        .rposition(|r| matches!(r.node, Node::Layer(e) | Node::Brick(e) if e <= event))
        .unwrap_or(0)
}

/// The row that holds row `at`.
pub fn parent_of(rows: &[Row], at: usize) -> usize {
    let depth = rows.get(at).map_or(0, |r| r.depth);
    rows.get(..at)
        .and_then(|above| above.iter().rposition(|r| r.depth < depth))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::fixture::decode;

    #[test]
    fn folded_layers_and_unfolded_calls_hold_the_same_time() {
        let s = decode(3);
        let step = s.last_step.as_ref().unwrap_or_else(|| unreachable!());
        let mut open = BTreeSet::from([Node::Step]);
        let folded = tree_rows(step, &s.kernels, &open);
        // The step, 30 layers, Embed, FinalNorm, LmHead, Sample, and what lies between.
        assert_eq!(folded.len(), 36);
        let below: f64 = folded.iter().skip(1).filter_map(|r| r.us).sum();
        assert!((below - step.wall_us).abs() < 1e-6);
        let layer = folded[2];
        assert_eq!(layer.node, Node::Layer(1));
        open.insert(layer.node);
        open.insert(Node::Brick(3));
        let rows = tree_rows(step, &s.kernels, &open);
        let sum: f64 = rows
            .iter()
            .filter(|r| r.depth == 2)
            .filter_map(|r| r.us)
            .sum();
        assert!((sum - layer.us.unwrap_or(0.0)).abs() < 1e-9);
        let at = row_of(&rows, Node::Brick(3));
        assert_eq!(rows[at + 1].node, Node::Kernel(3));
        assert_eq!(rows[at + 2].node, Node::Task(3, 0));
        assert_eq!(rows[at + 3].node, Node::Task(3, 1));
        assert_eq!(parent_of(&rows, at + 3), at);
        assert_eq!(rows[parent_of(&rows, at)].node, layer.node);
        // What is folded away is found at the layer that holds it.
        assert_eq!(row_of(&folded, Node::Task(3, 1)), 2);
    }
}
