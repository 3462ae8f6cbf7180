//! Fork and join on thread pools: F146, F147, F149.

use super::*;
use crate::profiler::clock::Clock;
use std::sync::Barrier;

fn pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap()
}

/// Names of the edges' ends, sorted, with their kind.
fn edges(graph: &ExecutionGraph) -> Vec<(String, String, &'static str)> {
    let name = |n: NodeId| graph.nodes()[n.index()].name();
    let mut edges: Vec<_> = graph
        .edges()
        .iter()
        .map(|e| (name(e.from), name(e.to), e.kind.name()))
        .collect();
    edges.sort();
    edges
}

fn cpu_task<'a>(graph: &'a ExecutionGraph, name: &str) -> &'a CpuTask {
    graph
        .nodes()
        .iter()
        .find_map(|n| match n {
            Node::CpuTask(t) if t.name == name => Some(t),
            _ => None,
        })
        .unwrap()
}

#[test]
fn f147_the_dag_of_rayon_join_is_rebuilt() {
    let names = ["root", "left", "right", "deep a", "deep b"];
    let recording = ForkJoin::new(&names, 8, 64, Clock::instant());
    let sum = pool(3).install(|| {
        recording.task(0, |root| {
            root.fork_join(|fork| {
                rayon::join(
                    || fork.task(1, |_| 1),
                    || {
                        fork.task(2, |right| {
                            let (a, b) = right.fork_join(|fork| {
                                rayon::join(|| fork.task(3, |_| 2), || fork.task(4, |_| 4))
                            });
                            a + b
                        })
                    },
                )
            })
        })
    });
    assert_eq!(sum, (1, 6));
    let merged = recording.merge_threads().unwrap();
    assert_eq!(merged.dropped, 0);
    let right: Vec<(String, String, &str)> = [
        ("deep a", "right", "join"),
        ("deep b", "right", "join"),
        ("left", "root", "join"),
        ("right", "deep a", "fork"),
        ("right", "deep b", "fork"),
        ("right", "right", "sequence"),
        ("right", "root", "join"),
        ("root", "left", "fork"),
        ("root", "right", "fork"),
        ("root", "root", "sequence"),
    ]
    .map(|(a, b, k)| (a.into(), b.into(), k))
    .to_vec();
    assert_eq!(edges(&merged.graph), right);
    let graph = merged.graph;
    assert_eq!(graph.nodes().len(), 7);
    // The join comes after what it joins, so there is a longest path through it.
    let path = graph.schedule().unwrap();
    let ends = [path.path()[0], path.path()[path.path().len() - 1]];
    assert!(
        ends.iter()
            .all(|n| graph.nodes()[n.index()].name() == "root")
    );
}

#[test]
fn f149_a_stolen_task_shows_its_thread() {
    let recording = ForkJoin::new(&["root", "mine", "stolen"], 8, 64, Clock::instant());
    // Each waits for the other: they can only run at the same time, on two threads.
    let meet = Barrier::new(2);
    pool(2).install(|| {
        recording.task(0, |root| {
            root.fork_join(|fork| {
                rayon::join(
                    || fork.task(1, |_| meet.wait()),
                    || fork.task(2, |_| meet.wait()),
                )
            })
        })
    });
    let graph = recording.merge_threads().unwrap().graph;
    let (root, mine, stolen) = (
        cpu_task(&graph, "root"),
        cpu_task(&graph, "mine"),
        cpu_task(&graph, "stolen"),
    );
    assert_eq!((mine.thread, mine.stolen), (root.thread, 0));
    assert_ne!(stolen.thread, root.thread);
    assert_eq!(stolen.stolen, 1);
}

#[test]
fn f146_full_lanes_and_too_many_threads_are_counted() {
    let recording = ForkJoin::new(&["t"], 1, 3, Clock::instant());
    for _ in 0..5 {
        recording.task(0, |_| ());
    }
    std::thread::scope(|s| {
        s.spawn(|| recording.task(7, |t| t.fork_join(|f| f.task(0, |_| ()))));
    });
    let merged = recording.merge_threads().unwrap();
    assert_eq!((merged.graph.nodes().len(), merged.dropped), (3, 2 + 3));
    assert_eq!(
        ForkJoin::new(&[], usize::MAX, usize::MAX, Clock::instant())
            .merge_threads()
            .unwrap()
            .dropped,
        0
    );
}

#[test]
fn recordings_on_one_thread_do_not_mix() {
    let a = ForkJoin::new(&["a"], 1, 8, Clock::instant());
    let b = ForkJoin::new(&["b"], 1, 8, Clock::instant());
    for _ in 0..4 {
        a.task(0, |_| b.task(0, |_| ()));
    }
    for (recording, name) in [(a, "a"), (b, "b")] {
        let merged = recording.merge_threads().unwrap();
        assert_eq!(
            (
                merged.graph.find_by_prefix(name).len(),
                merged.graph.nodes().len(),
                merged.dropped
            ),
            (4, 4, 0)
        );
    }
}

#[test]
fn a_task_that_panics_is_recorded() {
    let recording = ForkJoin::new(&["t"], 1, 8, Clock::instant());
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        recording.task(0, |_| panic!("as meant"))
    }));
    assert!(caught.is_err());
    assert_eq!(recording.merge_threads().unwrap().graph.nodes().len(), 1);
}

/// A measurement, not a test: `cargo test --release f146 -- --ignored --nocapture`.
#[test]
#[ignore = "measures time"]
fn f146_overhead_of_a_span() {
    const SPANS: u32 = 100_000;
    let recording = ForkJoin::new(&["t"], 2, SPANS as usize + 1, Clock::calibrated());
    recording.task(0, |_| ());
    let start = std::time::Instant::now();
    for i in 0..SPANS {
        recording.task(0, |_| std::hint::black_box(i));
    }
    let ns = start.elapsed().as_nanos() as f64 / f64::from(SPANS);
    println!(
        "f146: {ns:.1} ns a span, clock {}",
        Clock::calibrated().name()
    );
    assert_eq!(
        recording.merge_threads().unwrap().graph.nodes().len(),
        SPANS as usize + 1
    );
}
