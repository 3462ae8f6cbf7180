//! The critical path: F128, F129, F133, F135, and F115 for it.

use super::*;
use proptest::prelude::*;

fn chain(graph: &mut ExecutionGraph, times: &[u64]) -> Vec<NodeId> {
    let ids: Vec<NodeId> = times
        .iter()
        .map(|&ns| graph.add(task("t", ns)).unwrap())
        .collect();
    for pair in ids.windows(2) {
        graph.connect(pair[0], pair[1], EdgeKind::Sequence).unwrap();
    }
    ids
}

/// Two nodes and the kind of their edge.
type Link = (usize, usize, u8);

/// Node times and edges from lower to higher nodes, of kinds that order time; none is `DependsOn`.
fn dag() -> impl Strategy<Value = (Vec<u64>, Vec<Link>)> {
    (1usize..9).prop_flat_map(|n| {
        let edge = (0..n, 0..n, 0u8..4);
        (
            proptest::collection::vec(0u64..50, n),
            proptest::collection::vec(edge, 0..16),
        )
    })
}

fn build(times: &[u64], edges: &[Link], order: &[usize]) -> (ExecutionGraph, Vec<(usize, usize)>) {
    let mut graph = ExecutionGraph::new();
    // Ids are a permutation of the topological order, so that nothing relies on it.
    for &at in order {
        graph.add(task("t", times[at])).unwrap();
    }
    let id = |node: usize| order.iter().position(|&o| o == node).unwrap();
    let mut pairs = Vec::new();
    for &(a, b, kind) in edges {
        if a == b {
            continue;
        }
        let (from, to) = (id(a.min(b)), id(a.max(b)));
        let kind = [
            EdgeKind::Sequence,
            EdgeKind::Fork,
            EdgeKind::Join,
            EdgeKind::Transfer {
                bytes: 1,
                direction: Direction::H2d,
            },
        ][kind as usize];
        graph
            .connect(NodeId(from as u32), NodeId(to as u32), kind)
            .unwrap();
        pairs.push((from, to));
    }
    (graph, pairs)
}

/// Every path of the graph, by brute force.
fn all_paths(nodes: usize, edges: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let mut paths: Vec<Vec<usize>> = (0..nodes).map(|n| vec![n]).collect();
    let mut i = 0;
    while i < paths.len() {
        let last = paths[i][paths[i].len() - 1];
        let targets: std::collections::BTreeSet<usize> =
            edges.iter().filter(|e| e.0 == last).map(|e| e.1).collect();
        for to in targets {
            let mut longer = paths[i].clone();
            longer.push(to);
            paths.push(longer);
        }
        i += 1;
    }
    paths
}

fn shuffled() -> impl Strategy<Value = ((Vec<u64>, Vec<Link>), Vec<usize>)> {
    dag().prop_flat_map(|d| {
        let order: Vec<usize> = (0..d.0.len()).collect();
        (Just(d), Just(order).prop_shuffle())
    })
}

proptest! {
    #[test]
    fn f128_f129_path_and_slack_equal_brute_force(((times, edges), order) in shuffled(), slower in 0usize..9, factor in 0u32..5) {
        let (graph, pairs) = build(&times, &edges, &order);
        let ns = |i: usize| graph.nodes()[i].time_ns().unwrap();
        let paths = all_paths(times.len(), &pairs);
        let length = |p: &Vec<usize>| p.iter().map(|&i| ns(i)).sum::<u64>();
        let longest = paths.iter().map(length).max().unwrap();
        let schedule = graph.schedule().unwrap();
        prop_assert_eq!(schedule.length_ns(), longest);
        let path: Vec<usize> = schedule.path().iter().map(|n| n.index()).collect();
        prop_assert!(paths.contains(&path));
        prop_assert_eq!(length(&path), longest);
        for (id, _) in graph.iter() {
            let through = paths.iter().filter(|p| p.contains(&id.index())).map(length).max().unwrap();
            let slot = schedule.slot(id).unwrap();
            prop_assert_eq!(slot.slack_ns(), longest - through);
            prop_assert_eq!(slot.time_ns, ns(id.index()));
        }
        // What if: by brute force again, with one node slower.
        let slower = slower % times.len();
        let changed = |i: usize| if i == slower { ns(i) * u64::from(factor) } else { ns(i) };
        let longest = paths.iter().map(|p| p.iter().map(|&i| changed(i)).sum::<u64>()).max().unwrap();
        let what_if = graph.schedule_if(|n, _| if n.index() == slower { f64::from(factor) } else { 1.0 }).unwrap();
        prop_assert_eq!(what_if.length_ns(), longest);
    }

    #[test]
    fn circles_are_refused((times, edges) in dag(), from in 0usize..9, to in 0usize..9) {
        let (from, to) = (from % times.len(), to % times.len());
        let (mut graph, pairs) = build(&times, &edges, &(0..times.len()).collect::<Vec<_>>());
        graph.connect(NodeId(to as u32), NodeId(from as u32), EdgeKind::Join).unwrap();
        let closes = all_paths(times.len(), &pairs).iter().any(|p| p.first() == Some(&from) && p.last() == Some(&to));
        prop_assert_eq!(matches!(graph.schedule(), Err(GraphError::Cycle(_))), closes);
    }
}

#[test]
fn f128_longest_chain_is_found_among_forks() {
    let mut graph = ExecutionGraph::new();
    let [a, b, c, d] = [5, 20, 7, 1].map(|ns| graph.add(task("t", ns)).unwrap());
    for (from, to, kind) in [
        (a, b, EdgeKind::Fork),
        (a, c, EdgeKind::Fork),
        (b, d, EdgeKind::Join),
        (c, d, EdgeKind::Join),
    ] {
        graph.connect(from, to, kind).unwrap();
    }
    let schedule = graph.schedule().unwrap();
    assert_eq!(
        (schedule.length_ns(), schedule.path()),
        (26, &[a, b, d][..])
    );
    assert_eq!(schedule.slot(c).unwrap().slack_ns(), 13);
    assert_eq!(ExecutionGraph::new().schedule().unwrap().length_ns(), 0);
}

#[test]
fn f129_what_contains_work_is_not_counted_beside_it() {
    let mut graph = ExecutionGraph::new();
    let outer = graph.push_scope(brick(BrickId::QProj, 90)).unwrap();
    let ids = chain(&mut graph, &[40_000, 30_000]);
    for id in &ids {
        graph.connect(outer, *id, EdgeKind::Contains).unwrap();
    }
    let schedule = graph.schedule().unwrap();
    assert_eq!((schedule.length_ns(), schedule.slot(outer)), (70_000, None));
    // One that stands in the order of time itself counts.
    let next = graph.add(brick(BrickId::KProj, 5)).unwrap();
    graph.connect(outer, next, EdgeKind::Sequence).unwrap();
    assert_eq!(graph.schedule().unwrap().length_ns(), 95_000);
}

#[test]
fn f133_depends_on_overrides_sequence() {
    let mut graph = ExecutionGraph::new();
    let [first, second, third] = chain(&mut graph, &[10, 20, 5])[..] else {
        panic!("three nodes")
    };
    assert_eq!(graph.schedule().unwrap().length_ns(), 35);
    // Issued after the second, but it needs only the first.
    graph.connect(first, third, EdgeKind::DependsOn).unwrap();
    let schedule = graph.schedule().unwrap();
    assert_eq!(schedule.length_ns(), 30);
    assert_eq!(schedule.slot(third).unwrap().earliest_ns, 10);
    assert_eq!(schedule.slot(third).unwrap().slack_ns(), 15);
    assert_eq!(schedule.path(), [first, second]);
}

#[test]
fn f135_summary_is_the_same_for_the_same_graph() {
    let make = || {
        let mut graph = ExecutionGraph::new();
        let mut last = None;
        for i in 0..40u32 {
            let node = graph
                .add(brick(
                    BrickId::ALL[i as usize % 12],
                    u64::from(i % 12 * 7 + 3),
                ))
                .unwrap();
            if let Some(last) = last {
                graph.connect(last, node, EdgeKind::Sequence).unwrap();
            }
            last = Some(node);
        }
        graph
    };
    let summary = make().critical_path_summary().unwrap();
    for _ in 0..20 {
        assert_eq!(make().critical_path_summary().unwrap(), summary);
    }
    insta::assert_snapshot!(summary, @r"
critical path: 1548.0 us through 40 of 40 nodes
  weigh values         240.0 us  15.5%  3 nodes
  softmax              219.0 us  14.1%  3 nodes
  score                198.0 us  12.8%  3 nodes
  Attention            177.0 us  11.4%  3 nodes
  KvWrite              156.0 us  10.1%  3 nodes
  Rope                 135.0 us   8.7%  3 nodes
  QkNorm               114.0 us   7.4%  3 nodes
  KProj                 96.0 us   6.2%  4 nodes
  VProj                 93.0 us   6.0%  3 nodes
  QProj                 68.0 us   4.4%  4 nodes
  2 more names 52.0 us
");
    insta::assert_snapshot!(ExecutionGraph::new().critical_path_summary().unwrap(), @"critical path: 0.0 us through 0 of 0 nodes");
}

#[test]
fn f115_path_visits_each_edge_a_fixed_number_of_times() {
    use crate::profiler::graph::adjacency::{Adjacency, ordering};
    let visits = |n: usize| {
        let mut graph = ExecutionGraph::new();
        let ids = chain(&mut graph, &vec![3; n]);
        for (a, b) in ids.iter().zip(ids.iter().skip(7)) {
            graph.connect(*a, *b, EdgeKind::Join).unwrap();
        }
        let keep = ordering(n, graph.edges());
        let after = Adjacency::forward(n, graph.edges(), &keep);
        let before = Adjacency::backward(n, graph.edges(), &keep);
        graph.schedule_over(&after, &before, |_, _| 1.0).unwrap();
        (after.visits() + before.visits(), n + graph.edges().len())
    };
    for n in [100, 1_000, 10_000] {
        let (visits, size) = visits(n);
        assert!(
            visits <= 6 * size,
            "{visits} visits for {size} nodes and edges"
        );
    }
}

/// A measurement, not a test: `cargo test --release f115 -- --ignored --nocapture`.
#[test]
#[ignore = "measures time"]
fn f115_time_of_queries_on_1000_nodes() {
    let mut graph = ExecutionGraph::new();
    for index in 0..200 {
        layer(&mut graph, index);
    }
    let bricks: Vec<NodeId> = graph
        .iter()
        .filter(|(_, n)| matches!(n, Node::Brick { .. }))
        .map(|(id, _)| id)
        .collect();
    for pair in bricks.windows(2) {
        graph.connect(pair[0], pair[1], EdgeKind::Sequence).unwrap();
    }
    assert_eq!(graph.nodes().len(), 1_000);
    type Query<'a> = (&'a str, &'a dyn Fn(&ExecutionGraph) -> usize);
    let queries: [Query; 6] = [
        ("schedule", &|g| g.schedule().unwrap().path().len()),
        ("callers", &|g| g.callers(NodeId(999), 10).unwrap().len()),
        ("prefix", &|g| g.find_by_prefix("Attn").len()),
        ("god class", &|g| g.god_class(10).len()),
        ("slowest", &|g| g.slowest_kernel().unwrap().0.index()),
        ("csr", &|g| g.to_csr().edge_count()),
    ];
    for (name, query) in queries {
        let start = std::time::Instant::now();
        let found = std::hint::black_box(query(&graph));
        println!(
            "f115: {name} {:.1} us, {found} found",
            start.elapsed().as_secs_f64() * 1e6
        );
    }
}
