//! Building and exports: F111, F113, F114, F116, F117, F120 to F127.

use super::*;

/// Every kind of node and edge.
pub(super) fn everything() -> ExecutionGraph {
    let mut graph = ExecutionGraph::new();
    graph
        .push_scope(Node::Function {
            name: "forward".into(),
            file: Some("src/a.rs".into()),
            line: Some(7),
        })
        .unwrap();
    layer(&mut graph, 0);
    let called = graph
        .push_scope(function("sample \"top\\k\"\n\u{1b}[2J{<|>}"))
        .unwrap();
    let up = graph
        .record_transfer("logits", 64, Direction::H2d, Some(1500))
        .unwrap();
    let down = graph
        .record_transfer("logits", 48, Direction::D2h, None)
        .unwrap();
    let within = graph
        .record_transfer("logits", 8, Direction::D2d, None)
        .unwrap();
    let barrier = graph.record(Node::Barrier { event: Some(3) }).unwrap();
    let poll = graph
        .record(Node::AsyncTask {
            name: "keys".into(),
            polls: 9,
            ready: 2,
            time_ns: Some(800),
        })
        .unwrap();
    let work = graph
        .record_task(CpuTask {
            name: "rows".into(),
            thread: 2,
            core: Some(5),
            time_ns: 9,
            pieces: 4,
            stolen: 1,
            ..CpuTask::default()
        })
        .unwrap();
    graph.pop_scope().unwrap();
    graph.pop_scope().unwrap();
    graph
        .connect(
            up,
            down,
            EdgeKind::Transfer {
                bytes: 48,
                direction: Direction::D2h,
            },
        )
        .unwrap();
    graph.connect(down, within, EdgeKind::DependsOn).unwrap();
    graph.connect(work, barrier, EdgeKind::Join).unwrap();
    graph.connect(barrier, poll, EdgeKind::Fork).unwrap();
    graph.connect(called, poll, EdgeKind::Sequence).unwrap();
    graph
}

#[test]
fn f111_csr_has_every_node_and_edge() {
    let graph = everything();
    let csr = graph.to_csr();
    csr.check().unwrap();
    assert_eq!(csr.node_count(), graph.nodes().len());
    assert_eq!(csr.edge_count(), graph.edges().len());
    let mut listed: Vec<(NodeId, NodeId, EdgeKind)> = Vec::new();
    for (from, _) in graph.iter() {
        listed.extend(csr.outgoing(from).map(|(to, kind)| (from, to, kind)));
    }
    let mut added: Vec<_> = graph
        .edges()
        .iter()
        .map(|e| (e.from, e.to, e.kind))
        .collect();
    added.sort_by_key(|e| e.0);
    assert_eq!(listed, added);
    let qproj = csr.find("QProj").unwrap();
    let (launched, kind) = csr.outgoing(qproj).next().unwrap();
    assert_eq!(
        (csr.names[launched.index()].as_str(), kind),
        ("batched_q4k_gemv", EdgeKind::Launches)
    );
    assert_eq!(csr.outgoing(NodeId(u32::MAX)).count(), 0);
    assert_eq!(ExecutionGraph::new().to_csr().offsets, [0]);
}

#[test]
fn f113_every_kernel_launch_is_recorded() {
    let mut graph = ExecutionGraph::new();
    for index in 0..5 {
        layer(&mut graph, index);
    }
    let kernels = graph
        .nodes()
        .iter()
        .filter(|n| matches!(n, Node::Kernel(_)))
        .count();
    let launches = graph
        .edges()
        .iter()
        .filter(|e| e.kind == EdgeKind::Launches);
    for edge in launches.clone() {
        assert!(matches!(graph.node(edge.from), Some(Node::Brick { .. })));
        assert!(
            matches!(graph.node(edge.to), Some(Node::Kernel(k)) if k.source_hash == Some(fnv1a_64(k.name.as_bytes())))
        );
    }
    assert_eq!((kernels, launches.count()), (10, 10));
}

#[test]
fn f114_scopes_are_balanced_and_leave_no_orphans() {
    let mut graph = ExecutionGraph::new();
    assert_eq!(graph.pop_scope(), Err(GraphError::NoScope));
    graph.push_scope(function("a")).unwrap();
    graph.push_scope(function("b")).unwrap();
    assert_eq!(graph.edges()[0].kind, EdgeKind::Calls);
    assert_eq!(graph.check_balanced(), Err(GraphError::OpenScopes(2)));
    layer(&mut graph, 0);
    assert_eq!(graph.open_scopes(), 2);
    graph.pop_scope().unwrap();
    graph.pop_scope().unwrap();
    graph.check_balanced().unwrap();
    let children: Vec<NodeId> = graph.edges().iter().map(|e| e.to).collect();
    for (id, _) in graph.iter().skip(1) {
        assert!(children.contains(&id), "{id:?} hangs from nothing");
    }
}

#[test]
fn f116_dot_escapes_and_is_bounded() {
    let dot = everything().to_dot(DOT_NODES);
    assert!(
        dot.contains(r#"label="sample \"top\\k\"\n\\u{1b}[2J{<|>}"#),
        "{dot}"
    );
    assert!(dot.chars().all(|c| c == '\n' || !c.is_control()));
    let mut graph = ExecutionGraph::new();
    for index in 0..3 {
        graph.add(function(&"x".repeat(10_000 + index))).unwrap();
    }
    let dot = graph.to_dot(2);
    assert!(
        dot.len() < 1_000 && dot.contains("1 nodes left out"),
        "{dot}"
    );
}

#[test]
fn f117_edge_kinds_survive_csr_and_json() {
    let graph = everything();
    let back = ExecutionGraph::from_csr(graph.nodes().to_vec(), &graph.to_csr()).unwrap();
    assert_eq!(back.to_csr(), graph.to_csr());
    let csr: Csr = serde_json::from_str(&serde_json::to_string(&graph.to_csr()).unwrap()).unwrap();
    assert_eq!(csr, graph.to_csr());
    let json = serde_json::to_string(&graph).unwrap();
    let back: ExecutionGraph = serde_json::from_str(&json).unwrap();
    assert_eq!(back, graph);
    let names: std::collections::BTreeSet<_> = back.edges().iter().map(|e| e.kind.name()).collect();
    assert_eq!(names.len(), 8, "{names:?}");
}

#[test]
fn broken_csr_and_json_are_refused() {
    let graph = everything();
    type Spoil = fn(&mut Csr);
    let spoils: [Spoil; 6] = [
        |c| c.offsets.clear(),
        |c| c.offsets[1] = 1_000,
        |c| c.targets[0] = NodeId(999),
        |c| drop(c.kinds.pop()),
        |c| c.offsets[0] = 1,
        |c| c.names.push("one more".into()),
    ];
    for spoil in spoils {
        let mut csr = graph.to_csr();
        spoil(&mut csr);
        assert!(ExecutionGraph::from_csr(graph.nodes().to_vec(), &csr).is_err());
    }
    let json =
        r#"{"nodes":[{"type":"layer","index":0}],"edges":[{"from":0,"to":1,"kind":"calls"}]}"#;
    let error = serde_json::from_str::<ExecutionGraph>(json).unwrap_err();
    assert!(
        error.to_string().contains("node 1 does not exist"),
        "{error}"
    );
}

#[test]
fn f120_clear_removes_nodes_edges_and_scopes() {
    let mut graph = everything();
    graph.push_scope(function("open")).unwrap();
    graph.clear();
    assert_eq!(graph, ExecutionGraph::new());
    assert_eq!(graph.open_scopes(), 0);
    layer(&mut graph, 0);
    assert_eq!(graph.nodes().len(), 5);
}

fn labels(node: &TreeNode) -> Vec<&str> {
    node.children.iter().map(|c| c.label.as_str()).collect()
}

#[test]
fn f121_tree_goes_from_layer_to_brick_to_kernel() {
    let mut graph = ExecutionGraph::new();
    layer(&mut graph, 0);
    let tree = graph.to_tree_node();
    assert_eq!(tree.label, "Layer 0");
    assert_eq!(tree.us, Some(250.0));
    assert_eq!(labels(&tree), ["AttnNorm", "QProj"]);
    assert_eq!(labels(&tree.children[1]), ["batched_q4k_gemv"]);
    assert_eq!(tree.children[1].us, Some(200.0));
    assert_eq!(tree.children[1].children[0].us, None);
    assert_eq!(tree.count(), 5);
}

#[test]
fn f122_several_roots_get_one_above_them() {
    let mut graph = ExecutionGraph::new();
    layer(&mut graph, 0);
    layer(&mut graph, 1);
    let tree = graph.to_tree_node();
    assert_eq!(tree.label, "Execution Graph");
    assert_eq!(labels(&tree), ["Layer 0", "Layer 1"]);
    assert_eq!(tree.us, Some(500.0));
}

#[test]
fn f123_empty_graph_has_its_own_label() {
    let tree = ExecutionGraph::new().to_tree_node();
    assert_eq!(
        (tree.label.as_str(), tree.children.len(), tree.us),
        ("Empty Graph", 0, None)
    );
}

#[test]
fn f124_ascii_tree_is_indented_by_level() {
    let mut graph = ExecutionGraph::new();
    layer(&mut graph, 0);
    let tree = graph.to_ascii_tree();
    let starts: Vec<&str> = tree
        .lines()
        .map(|l| &l[..l.find(|c: char| c.is_alphabetic()).unwrap()])
        .collect();
    assert_eq!(starts, ["", "├── ", "│   └── ", "└── ", "    └── "]);
}

#[test]
fn f125_ascii_tree_of_several_roots_has_one_above_them() {
    let mut graph = ExecutionGraph::new();
    layer(&mut graph, 0);
    layer(&mut graph, 1);
    let tree = graph.to_ascii_tree();
    assert!(
        tree.starts_with("Execution Graph  500.0µs\n├── Layer 0"),
        "{tree}"
    );
    assert_eq!(tree.lines().count(), 11);
}

#[test]
fn f126_ascii_tree_of_nothing_says_so() {
    assert_eq!(ExecutionGraph::new().to_ascii_tree(), "(empty graph)");
}

#[test]
fn f127_ascii_tree_is_stable() {
    let first = everything().to_ascii_tree();
    assert_eq!(first, everything().to_ascii_tree());
    insta::assert_snapshot!(first, @r#"
forward  252.3µs src/a.rs:7
├── Layer 0  250.0µs
│   ├── AttnNorm  50.0µs (4096 elem)
│   │   └── rmsnorm_kernel  <<<16,256>>> smem=1024B
│   └── QProj  200.0µs (4096 elem)
│       └── batched_q4k_gemv  <<<16,256>>> smem=1024B
└── sample "top\k"\n\u{1b}[2J{<|>}  2.3µs
    ├── logits  1.5µs H2D 64 B
    ├── logits  D2H 48 B
    ├── logits  D2D 8 B
    ├── barrier  after event 3
    ├── keys  0.8µs 9 polls, 2 ready
    └── rows  0.0µs thread 2, core 5, 1 of 4 pieces stolen
"#);
}

#[test]
fn trees_of_circles_and_of_shared_parts_stay_small() {
    let mut graph = ExecutionGraph::new();
    let ids: Vec<NodeId> = (0..200)
        .map(|i| graph.add(Node::Layer { index: i }).unwrap())
        .collect();
    for pair in ids.windows(2) {
        // Two ways from each to the next: paths double with every node.
        graph.connect(pair[0], pair[1], EdgeKind::Contains).unwrap();
        graph.connect(pair[0], pair[1], EdgeKind::Calls).unwrap();
    }
    let tree = graph.to_tree_node();
    assert!(tree.count() <= 400);
    assert!(graph.to_ascii_tree().contains("(deeper levels left out)"));
    assert!(graph.to_ascii_tree().contains("(see above)"));
    graph.connect(ids[199], ids[0], EdgeKind::Calls).unwrap();
    assert_eq!(graph.to_tree_node().label, "Layer 0");
}
