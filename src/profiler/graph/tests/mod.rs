//! Criteria F111 to F135 and F146, F147, F149, and what else the graph promises.

mod export;
mod paths;
mod pools;
mod queries;
pub(super) mod steps;

use super::*;
use crate::model::brick::BrickId;

pub(super) fn brick(id: BrickId, us: u64) -> Node {
    Node::Brick {
        id,
        time_ns: Some(us * 1000),
        elements: Some(4096),
        bytes: None,
        flops: None,
    }
}

pub(super) fn kernel(name: &str) -> Kernel {
    Kernel {
        name: name.into(),
        source_hash: Some(fnv1a_64(name.as_bytes())),
        shape: Some(Shape::Grid {
            grid: [16, 1, 1],
            block: [256, 1, 1],
            shared_bytes: 1024,
        }),
        ..Kernel::default()
    }
}

pub(super) fn function(name: &str) -> Node {
    Node::Function {
        name: name.into(),
        file: None,
        line: None,
    }
}

pub(super) fn task(name: &str, ns: u64) -> Node {
    Node::CpuTask(CpuTask {
        name: name.into(),
        time_ns: ns,
        ..CpuTask::default()
    })
}

/// A layer with two bricks, each with its kernel.
pub(super) fn layer(graph: &mut ExecutionGraph, index: u32) {
    graph.push_scope(Node::Layer { index }).unwrap();
    for (id, us, name) in [
        (BrickId::AttnNorm, 50, "rmsnorm_kernel"),
        (BrickId::QProj, 200, "batched_q4k_gemv"),
    ] {
        graph.push_scope(brick(id, us)).unwrap();
        graph.record_kernel(kernel(name)).unwrap();
        graph.pop_scope().unwrap();
    }
    graph.pop_scope().unwrap();
}
