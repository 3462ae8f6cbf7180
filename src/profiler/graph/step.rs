//! The graph of a step.

use super::build::ExecutionGraph;
use super::node::{CpuTask, EdgeKind, GraphError, Kernel, Node, NodeId, Shape};
use crate::engine::StepKind;
use crate::profiler::figures::{KernelInfo, StepTrace, ThreadSpan, ThreadTrace};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Nanoseconds of microseconds; what is negative or not a number counts as nothing.
pub(super) fn nanos(us: f64) -> u64 {
    // Conversion from float saturates, and takes what is not a number as 0.
    (us * 1e3).round() as u64
}

/// What the threads did: as recorded, else thread 0 by the events. Checked: every span has its event, in ascending order.
///
/// # Errors
///
/// [`GraphError::NoEvent`] and [`GraphError::OutOfOrder`].
pub(super) fn lanes(trace: &StepTrace) -> Result<Cow<'_, [ThreadTrace]>, GraphError> {
    if trace.threads.is_empty() && !trace.events.is_empty() {
        return Ok(Cow::Owned(vec![thread_zero(trace)]));
    }
    for lane in &trace.threads {
        let thread = lane.thread;
        if let Some(span) = lane
            .spans
            .iter()
            .find(|s| s.event as usize >= trace.events.len())
        {
            return Err(GraphError::NoEvent {
                thread,
                event: span.event,
                events: trace.events.len(),
            });
        }
        if !lane.spans.is_sorted_by_key(|s| s.event) {
            return Err(GraphError::OutOfOrder { thread });
        }
    }
    Ok(Cow::Borrowed(&trace.threads))
}

fn thread_zero(trace: &StepTrace) -> ThreadTrace {
    let spans: Vec<ThreadSpan> = (0u32..)
        .zip(&trace.events)
        .map(|(event, e)| ThreadSpan {
            event,
            start_us: e.start_us,
            work_us: e.work_us,
            wait_us: e.sync_us,
            core: None,
            pieces: 0,
            stolen: 0,
            slack_us: 0.0,
        })
        .collect();
    let (work_us, wait_us) = spans.iter().fold((0.0, 0.0), |(work, wait), s| {
        (work + s.work_us, wait + s.wait_us)
    });
    ThreadTrace {
        thread: 0,
        work_us,
        wait_us,
        idle_us: trace.wall_us - work_us - wait_us,
        pieces: 0,
        stolen: 0,
        migrations: 0,
        spans,
    }
}

/// The graph of a step: a function contains layers, layers contain bricks (those of no layer hang from the function), a
/// brick launches its kernel and contains the threads' shares of it. Shares of a thread follow each other. After an event
/// with a barrier the shares of all threads join in a barrier node, which forks into every thread's next share.
///
/// Kernels that are equal are one node. `kernels` are those of the model's plan, by [`crate::profiler::figures::StepEvent::brick`];
/// an event of none of them launches nothing. A brick's time is that of thread 0.
///
/// # Errors
///
/// [`GraphError::NoEvent`], [`GraphError::OutOfOrder`] and [`GraphError::Full`].
pub fn from_step(trace: &StepTrace, kernels: &[KernelInfo]) -> Result<ExecutionGraph, GraphError> {
    let lanes = lanes(trace)?;
    let mut graph = ExecutionGraph::new();
    let bricks = structure(&mut graph, trace, kernels)?;
    Barriers::of(&mut graph, trace, &bricks)?.link(&mut graph, trace, &bricks, &lanes)?;
    Ok(graph)
}

/// Function, layers, bricks and kernels; gives the brick of every event.
fn structure(
    graph: &mut ExecutionGraph,
    trace: &StepTrace,
    kernels: &[KernelInfo],
) -> Result<Vec<NodeId>, GraphError> {
    let name = match trace.kind {
        StepKind::Decode => "decode step",
        StepKind::Prefill => "prefill chunk",
    };
    let root = graph.add(Node::Function {
        name: name.to_owned(),
        file: None,
        line: None,
    })?;
    let mut layers: BTreeMap<u32, NodeId> = BTreeMap::new();
    let mut launched = Launched::default();
    let mut bricks = Vec::with_capacity(trace.events.len());
    for event in &trace.events {
        let parent = match event.layer {
            None => root,
            Some(index) => match layers.get(&index) {
                Some(&layer) => layer,
                None => {
                    let layer = graph.add(Node::Layer { index })?;
                    graph.connect(root, layer, EdgeKind::Contains)?;
                    layers.insert(index, layer);
                    layer
                }
            },
        };
        let brick = graph.add(Node::Brick {
            id: event.id,
            time_ns: Some(nanos(event.work_us)),
            elements: None,
            bytes: None,
            flops: None,
        })?;
        graph.connect(parent, brick, EdgeKind::Contains)?;
        if let Some(info) = event.brick.and_then(|b| kernels.get(b as usize)) {
            let kernel = launched.node(graph, info)?;
            graph.connect(brick, kernel, EdgeKind::Launches)?;
        }
        bricks.push(brick);
    }
    Ok(bricks)
}

type KernelKey<'a> = (&'a str, &'a str, &'a str, [Option<u64>; 3]);

/// Kernels that have a node already.
#[derive(Default)]
struct Launched<'a> {
    nodes: BTreeMap<KernelKey<'a>, NodeId>,
}

impl<'a> Launched<'a> {
    fn node(
        &mut self,
        graph: &mut ExecutionGraph,
        info: &'a KernelInfo,
    ) -> Result<NodeId, GraphError> {
        let key = (
            info.name.as_str(),
            info.variant.as_str(),
            info.source_hash.as_str(),
            [info.rows, info.columns, info.tile_rows],
        );
        if let Some(&node) = self.nodes.get(&key) {
            return Ok(node);
        }
        let shape = info
            .rows
            .zip(info.columns)
            .map(|(rows, columns)| Shape::Tiles {
                rows,
                columns,
                tile_rows: info.tile_rows,
            });
        let node = graph.add(Node::Kernel(Kernel {
            name: info.name.clone(),
            variant: info.variant.clone(),
            source_hash: u64::from_str_radix(&info.source_hash, 16).ok(),
            shape,
            ..Kernel::default()
        }))?;
        self.nodes.insert(key, node);
        Ok(node)
    }
}

/// The barriers of a step divide its events into segments: segment `n` ends with barrier `n`, the last with the step.
struct Barriers {
    nodes: Vec<NodeId>,
    segments: Vec<usize>,
}

impl Barriers {
    fn of(
        graph: &mut ExecutionGraph,
        trace: &StepTrace,
        bricks: &[NodeId],
    ) -> Result<Self, GraphError> {
        let mut nodes = Vec::new();
        let mut segments = Vec::with_capacity(trace.events.len());
        for (number, (event, &brick)) in (0u32..).zip(trace.events.iter().zip(bricks)) {
            segments.push(nodes.len());
            if event.barrier {
                let barrier = graph.add(Node::Barrier {
                    event: Some(number),
                })?;
                graph.connect(brick, barrier, EdgeKind::Contains)?;
                nodes.push(barrier);
            }
        }
        Ok(Self { nodes, segments })
    }

    fn link(
        &self,
        graph: &mut ExecutionGraph,
        trace: &StepTrace,
        bricks: &[NodeId],
        lanes: &[ThreadTrace],
    ) -> Result<(), GraphError> {
        let mut busy = vec![0usize; self.nodes.len() + 1];
        for lane in lanes {
            let mut before: Option<(NodeId, usize)> = None;
            for span in &lane.spans {
                let event = &trace.events[span.event as usize];
                let segment = self.segments[span.event as usize];
                let task = graph.add(Node::CpuTask(CpuTask {
                    name: event.id.name().to_owned(),
                    brick: Some(event.id),
                    thread: lane.thread,
                    core: span.core,
                    start_ns: nanos(span.start_us),
                    time_ns: nanos(span.work_us),
                    wait_ns: Some(nanos(span.wait_us)),
                    pieces: span.pieces,
                    stolen: span.stolen,
                }))?;
                graph.connect(bricks[span.event as usize], task, EdgeKind::Contains)?;
                if let Some((last, _)) = before {
                    graph.connect(last, task, EdgeKind::Sequence)?;
                }
                if before.is_none_or(|(_, s)| s != segment) {
                    busy[segment] += 1;
                    self.join(graph, before)?;
                    if let Some(&barrier) = segment.checked_sub(1).and_then(|s| self.nodes.get(s)) {
                        graph.connect(barrier, task, EdgeKind::Fork)?;
                    }
                }
                before = Some((task, segment));
            }
            self.join(graph, before)?;
        }
        // A thread without a share between two barriers goes from one straight to the other.
        for (pair, &threads) in self.nodes.windows(2).zip(&busy[1..]) {
            if threads < lanes.len() {
                graph.connect(pair[0], pair[1], EdgeKind::Sequence)?;
            }
        }
        Ok(())
    }

    /// A thread's last share of a segment joins its barrier, where it has one.
    fn join(
        &self,
        graph: &mut ExecutionGraph,
        last: Option<(NodeId, usize)>,
    ) -> Result<(), GraphError> {
        let Some((task, segment)) = last else {
            return Ok(());
        };
        match self.nodes.get(segment) {
            Some(&barrier) => graph.connect(task, barrier, EdgeKind::Join),
            None => Ok(()),
        }
    }
}
