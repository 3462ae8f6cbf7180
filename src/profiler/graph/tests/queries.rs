//! Queries: F115, F118, F119, F130 to F132, F134.

use super::*;
use proptest::prelude::*;

#[test]
fn f115_callers_visit_each_edge_once_at_most() {
    use crate::profiler::graph::adjacency::{Adjacency, structural};
    use crate::profiler::graph::query::reach;
    let mut graph = ExecutionGraph::new();
    let ids: Vec<NodeId> = (0..1_000)
        .map(|i| graph.add(Node::Layer { index: i }).unwrap())
        .collect();
    for i in 1..1_000usize {
        for step in [1, 2, 30] {
            if let Some(from) = i.checked_sub(step) {
                graph.connect(ids[from], ids[i], EdgeKind::Calls).unwrap();
            }
        }
    }
    let rows = Adjacency::backward(1_000, graph.edges(), structural);
    assert_eq!(reach(&rows, ids[999], usize::MAX).len(), 999);
    assert!(
        rows.visits() <= 1_000 + graph.edges().len(),
        "{}",
        rows.visits()
    );
}

#[test]
fn callers_and_prefixes() {
    let mut graph = ExecutionGraph::new();
    let forward = graph.push_scope(function("forward")).unwrap();
    layer(&mut graph, 0);
    let attention = graph.find_by_prefix("Attn");
    assert_eq!(attention.len(), 1);
    let layer = graph.find_by_prefix("Layer")[0];
    assert_eq!(graph.callers(attention[0], 10).unwrap(), [layer, forward]);
    assert_eq!(graph.callers(attention[0], 1).unwrap(), [layer]);
    assert_eq!(graph.callers(forward, 10).unwrap(), []);
    assert_eq!(
        graph.callers(NodeId(99), 10),
        Err(GraphError::NoNode { id: 99, nodes: 6 })
    );
    let kernels = graph.targets(attention[0], EdgeKind::Launches);
    assert_eq!(graph.node(kernels[0]).unwrap().name(), "rmsnorm_kernel");
}

proptest! {
    #[test]
    fn f118_page_rank_converges_in_under_100_rounds(nodes in 1u32..40, edges in proptest::collection::vec((0u32..40, 0u32..40), 0..120)) {
        let mut graph = ExecutionGraph::new();
        for index in 0..nodes {
            graph.add(Node::Layer { index }).unwrap();
        }
        for (from, to) in edges {
            graph.connect(NodeId(from % nodes), NodeId(to % nodes), EdgeKind::Calls).unwrap();
        }
        let found = graph.page_rank();
        prop_assert!(found.converged && found.rounds < 100);
        prop_assert!((found.ranks.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }
}

#[test]
fn f118_page_rank_of_known_graphs() {
    let mut graph = ExecutionGraph::new();
    let ids: Vec<NodeId> = (0..3)
        .map(|i| graph.add(Node::Layer { index: i }).unwrap())
        .collect();
    for (a, b) in [(0, 1), (1, 2), (2, 0)] {
        graph.connect(ids[a], ids[b], EdgeKind::Calls).unwrap();
    }
    for rank in graph.page_rank().ranks {
        assert!((rank - 1.0 / 3.0).abs() < 1e-6);
    }
    // Two bricks that launch one kernel: x = s, k = s + 2 * 0.85 x, with s the same for all and the sum 1.
    let mut graph = ExecutionGraph::new();
    let [a, b, k] = [0, 1, 2].map(|i| graph.add(Node::Layer { index: i }).unwrap());
    graph.connect(a, k, EdgeKind::Launches).unwrap();
    graph.connect(b, k, EdgeKind::Launches).unwrap();
    let found = graph.page_rank();
    let x = 1.0 / 4.7;
    for (rank, right) in found.ranks.iter().zip([x, x, 2.7 * x]) {
        assert!((rank - right).abs() < 1e-6, "{:?}", found.ranks);
    }
    assert_eq!(found.order(), [k, a, b]);
    assert!(ExecutionGraph::new().page_rank().converged);
}

#[test]
fn f119_god_class_is_found() {
    let mut graph = ExecutionGraph::new();
    let mut ids = Vec::new();
    for launches in [10, 11, 3] {
        ids.push(graph.push_scope(brick(BrickId::Attention, 1)).unwrap());
        for _ in 0..launches {
            graph.record_kernel(kernel("k")).unwrap();
        }
        graph.pop_scope().unwrap();
    }
    assert_eq!(graph.god_class(10), [(ids[1], 11)]);
}

#[test]
fn slowest_kernel_by_own_time_or_its_bricks() {
    let mut graph = ExecutionGraph::new();
    assert_eq!(graph.slowest_kernel(), None);
    layer(&mut graph, 0);
    let (slowest, ns) = graph.slowest_kernel().unwrap();
    assert_eq!(
        (graph.node(slowest).unwrap().name().as_str(), ns),
        ("batched_q4k_gemv", 200_000)
    );
    let own = graph
        .record_kernel(kernel("slow").measured(1, 1, 200_001))
        .unwrap();
    assert_eq!(graph.slowest_kernel(), Some((own, 200_001)));
}

#[test]
fn f130_roofline_distance_follows_the_model() {
    let mut graph = ExecutionGraph::new();
    // 2 FLOP a byte under 18 GB/s: at most 36 GFLOP/s; it does 20 MFLOP in a millisecond.
    let memory = graph
        .record_kernel(kernel("m").measured(20_000_000, 10_000_000, 1_000_000))
        .unwrap();
    let found = graph.roofline_distance(memory, 82.0, 18.0).unwrap();
    assert!((found.roof_gflops - 36.0).abs() < 1e-9 && !found.under_compute);
    assert!(
        (found.gflops - 20.0).abs() < 1e-9 && (found.distance - (1.0 - 20.0 / 36.0)).abs() < 1e-9
    );
    let compute = graph
        .record_kernel(kernel("c").measured(82_000_000, 1_000_000, 1_000_000))
        .unwrap();
    let found = graph.roofline_distance(compute, 82.0, 18.0).unwrap();
    assert!(found.under_compute && found.distance.abs() < 1e-9);
    let unknown = graph.record_kernel(kernel("u")).unwrap();
    assert_eq!(graph.roofline_distance(unknown, 82.0, 18.0), None);
    assert_eq!(graph.roofline_distance(compute, 0.0, 18.0), None);
    assert_eq!(graph.roofline_distance(NodeId(77), 82.0, 18.0), None);
}

#[test]
fn f131_ping_pong_is_found() {
    use Direction::{D2d, D2h, H2d};
    let mut graph = ExecutionGraph::new();
    let mut add =
        |name: &str, bytes, direction| graph.record_transfer(name, bytes, direction, None).unwrap();
    let x: Vec<NodeId> = [(100, H2d), (80, D2h), (100, H2d)]
        .map(|(b, d)| add("x", b, d))
        .to_vec();
    add("weights", 1_000, H2d);
    add("x", 5, D2d);
    let back = add("x", 100, D2h);
    add("x", 100, D2h);
    let other = [add("y", 7, D2h), add("y", 9, H2d)];
    let found = graph.ping_pong();
    assert_eq!(found.len(), 2);
    assert_eq!(
        (found[0].name.as_str(), found[0].wasted_bytes),
        ("x", 80 + 80 + 100)
    );
    assert_eq!(found[0].transfers, [x[0], x[1], x[2], back]);
    assert_eq!((found[1].name.as_str(), found[1].wasted_bytes), ("y", 7));
    assert_eq!(found[1].transfers, other);
}

proptest! {
    #[test]
    fn f131_every_alternation_is_found(directions in proptest::collection::vec(0u8..3, 0..30)) {
        let mut graph = ExecutionGraph::new();
        let all = [Direction::H2d, Direction::D2h, Direction::D2d];
        for &d in &directions {
            graph.record_transfer("x", 3, all[d as usize], None).unwrap();
        }
        let crossing: Vec<u8> = directions.into_iter().filter(|&d| d < 2).collect();
        let turns = crossing.windows(2).filter(|w| w[0] != w[1]).count() as u64;
        prop_assert_eq!(graph.ping_pong().iter().map(|p| p.wasted_bytes).sum::<u64>(), 3 * turns);
    }

    #[test]
    fn f132_transfers_are_recorded_to_the_byte(copies in proptest::collection::vec((0u64..1 << 40, 0usize..3), 0..30)) {
        let mut graph = ExecutionGraph::new();
        let all = [Direction::H2d, Direction::D2h, Direction::D2d];
        let mut sums = [0; 3];
        for &(bytes, d) in &copies {
            let id = graph.record_transfer("x", bytes, all[d], None).unwrap();
            let exact = matches!(graph.node(id), Some(Node::Transfer { bytes: b, direction, .. }) if *b == bytes && *direction == all[d]);
            prop_assert!(exact);
            sums[d] += bytes;
        }
        prop_assert_eq!(graph.transferred(), sums);
    }
}

#[test]
fn f134_achieved_tflops_equal_the_manual_figure() {
    let mut graph = ExecutionGraph::new();
    // 4096 x 4096 x 4096 multiply-adds in 2 ms: 2 * 4096^3 / 0.002 s = 68.72 TFLOP/s.
    let flops = 2 * 4096u64.pow(3);
    let id = graph
        .record_kernel(kernel("gemm").measured(flops, 3 * 4096 * 4096 * 4, 2_000_000))
        .unwrap();
    assert!((graph.achieved_tflops(id).unwrap() - 68.719_476_736).abs() < 1e-9);
    let Some(Node::Kernel(k)) = graph.node(id) else {
        panic!("a kernel")
    };
    assert!((k.intensity.unwrap() - 4096.0 / 6.0).abs() < 1e-9);
    assert_eq!(kernel("k").measured(1, 0, 0).gflops, None);
    assert_eq!(kernel("k").achieved_tflops(), None);
}
