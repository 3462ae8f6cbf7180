//! The graph of a step, and the same path without it.

use super::*;
use crate::engine::StepKind;
use crate::profiler::figures::{KernelInfo, StepEvent, StepTrace, ThreadSpan, ThreadTrace};
use proptest::prelude::*;

/// Shares of one event: brick, barrier, and by thread its time in nanoseconds, where it has a share.
pub(in crate::profiler::graph) type Row = (u8, bool, Vec<Option<u64>>);

/// A step as threads would run it that wait for each other at barriers.
pub(in crate::profiler::graph) fn trace(threads: usize, rows: &[Row]) -> StepTrace {
    let mut at = vec![1.5f64; threads];
    let mut spans: Vec<Vec<ThreadSpan>> = vec![Vec::new(); threads];
    let mut events = Vec::new();
    for (event, (id, barrier, shares)) in rows.iter().enumerate() {
        let work = |t: usize| shares[t].map(|ns| ns as f64 * 1e-3);
        let starts = at.clone();
        let ends: Vec<f64> = (0..threads)
            .map(|t| at[t] + work(t).unwrap_or(0.0))
            .collect();
        let all = ends.iter().fold(0.0, |a: f64, b| a.max(*b)) + 0.3;
        for t in 0..threads {
            at[t] = if *barrier { all } else { ends[t] };
            let Some(work_us) = work(t) else { continue };
            spans[t].push(ThreadSpan {
                event: event as u32,
                start_us: starts[t],
                work_us,
                wait_us: at[t] - ends[t],
                core: Some(t as u32),
                pieces: 3,
                stolen: (t == 1) as u32,
                slack_us: -1.0,
            });
        }
        let id = BrickId::ALL[*id as usize % BrickId::COUNT];
        events.push(StepEvent {
            id,
            layer: (event % 3 > 0).then_some(event as u32 / 3),
            start_us: starts[0],
            work_us: work(0).unwrap_or(0.0),
            sync_us: at[0] - ends[0],
            brick: (event % 5 > 0).then_some(event as u32),
            barrier: *barrier,
        });
    }
    let wall_us = at.iter().fold(0.0, |a: f64, b| a.max(*b)) + 2.0;
    let lane = |(thread, spans): (usize, Vec<ThreadSpan>)| ThreadTrace {
        thread: thread as u32,
        work_us: spans.iter().map(|s| s.work_us).sum(),
        wait_us: spans.iter().map(|s| s.wait_us).sum(),
        idle_us: wall_us - spans.iter().map(|s| s.work_us + s.wait_us).sum::<f64>(),
        pieces: 0,
        stolen: 0,
        migrations: 0,
        spans,
    };
    StepTrace {
        kind: StepKind::Decode,
        position: 7,
        tokens: 1,
        wall_us,
        events,
        threads: spans.into_iter().enumerate().map(lane).collect(),
    }
}

pub(in crate::profiler::graph) fn kernels(count: usize) -> Vec<KernelInfo> {
    (0..count)
        .map(|i| KernelInfo {
            id: BrickId::QProj,
            layer: None,
            name: format!("k{}", i % 3),
            variant: "avx2".into(),
            source: "src/k.rs".into(),
            source_hash: "cbf29ce484222325".into(),
            rows: Some(64),
            columns: Some(32),
            tile_rows: None,
        })
        .collect()
}

fn traces() -> impl Strategy<Value = StepTrace> {
    (1usize..5).prop_flat_map(|threads| {
        let share = proptest::option::weighted(0.8, 0u64..40);
        let row = (
            0u8..6,
            any::<bool>(),
            proptest::collection::vec(share, threads),
        );
        proptest::collection::vec(row, 0..14).prop_map(move |rows| trace(threads, &rows))
    })
}

fn ns(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

proptest! {
    #[test]
    fn lean_path_equals_the_graphs(mut trace in traces()) {
        let graph = from_step(&trace, &kernels(20)).unwrap();
        let schedule = graph.schedule().unwrap();
        let lean = fill_slack(&mut trace).unwrap();
        let again = threads_critical_path(&trace).unwrap();
        prop_assert_eq!(&again, &lean);
        prop_assert_eq!(ns(lean.length_us), schedule.length_ns());
        let whole = lean.length_us + lean.barrier_us + lean.gap_us;
        prop_assert!((whole - trace.wall_us).abs() < 1e-9);
        // Tasks were added thread by thread in the order of the spans.
        let mut tasks = graph.iter().filter(|(_, n)| matches!(n, Node::CpuTask(_)));
        let mut on_path = 0;
        for (lane, found) in trace.threads.iter().zip(&lean.spans) {
            for (span, found) in lane.spans.iter().zip(found) {
                let (id, _) = tasks.next().unwrap();
                let slack = schedule.slot(id).unwrap().slack_ns();
                prop_assert_eq!(ns(found.slack_us), slack);
                prop_assert_eq!(span.slack_us, found.slack_us);
                prop_assert!(!found.on_path || slack == 0);
                on_path += if found.on_path { ns(span.work_us) } else { 0 };
            }
        }
        prop_assert!(tasks.next().is_none());
        prop_assert_eq!(on_path, schedule.length_ns());
        for brick in &lean.bricks {
            let is_it = |n: &Node| matches!(n, Node::CpuTask(t) if t.brick == Some(brick.id));
            let half = graph.schedule_if(|_, n| if is_it(n) { 0.5 } else { 1.0 }).unwrap();
            prop_assert_eq!(ns(brick.length_if_half_us), half.length_ns(), "{:?}", brick.id);
            let mine = graph.iter().filter(|(_, n)| is_it(n));
            let slack: u64 = mine.map(|(id, _)| schedule.slot(id).unwrap().slack_ns()).sum();
            prop_assert_eq!(ns(brick.slack_us), slack);
            prop_assert!(brick.call_slack_us <= brick.slack_us + 1e-9);
        }
        let path: f64 = lean.bricks.iter().map(|b| b.path_us).sum();
        prop_assert!((path - lean.length_us).abs() < 1e-9);
    }
}

#[test]
fn step_graph_has_layers_bricks_kernels_and_joins() {
    let rows: Vec<Row> = vec![
        (0, true, vec![Some(900), None]),
        (2, false, vec![Some(4_000), Some(3_000)]),
        (3, true, vec![Some(1_000), Some(2_500)]),
        (28, false, vec![Some(700), Some(600)]),
        (29, true, vec![Some(100), None]),
        (29, true, vec![None, None]),
    ];
    let mut trace = trace(2, &rows);
    let graph = from_step(&trace, &kernels(6)).unwrap();
    insta::assert_snapshot!(graph.to_ascii_tree(), @r"
decode step  6.7µs
├── Embed  0.9µs
│   ├── barrier  after event 0
│   └── Embed  0.9µs thread 0, core 0
├── Layer 0  5.0µs
│   ├── QProj  4.0µs
│   │   ├── k1  avx2 64x32
│   │   ├── QProj  4.0µs thread 0, core 0
│   │   └── QProj  3.0µs thread 1, core 1, 1 of 3 pieces stolen
│   └── KProj  1.0µs
│       ├── k2  avx2 64x32
│       ├── barrier  after event 2
│       ├── KProj  1.0µs thread 0, core 0
│       └── KProj  2.5µs thread 1, core 1, 1 of 3 pieces stolen
├── FfnPostNorm  0.7µs
│   ├── k0  avx2 64x32
│   ├── FfnPostNorm  0.7µs thread 0, core 0
│   └── FfnPostNorm  0.6µs thread 1, core 1, 1 of 3 pieces stolen
└── Layer 1  0.1µs
    ├── FfnResidual  0.1µs
    │   ├── k1  avx2 64x32
    │   ├── barrier  after event 4
    │   └── FfnResidual  0.1µs thread 0, core 0
    └── FfnResidual  0.0µs
        └── barrier  after event 5
");
    let count = |kind| graph.edges().iter().filter(|e| e.kind == kind).count();
    // Thread 1 has no share before the first barrier, and none between the third and the fourth.
    assert_eq!(
        (count(EdgeKind::Join), count(EdgeKind::Fork)),
        (1 + 2 + 2, 2 + 2)
    );
    let path = fill_slack(&mut trace).unwrap();
    assert_eq!(path.length_us, 0.9 + 5.5 + 0.8);
    assert_eq!(trace.threads[0].spans[1].slack_us, 0.5);
    assert_eq!(trace.threads[1].spans[0].slack_us, 0.0);
    assert!(path.spans[1][0].on_path && !path.spans[0][1].on_path);
    let csr = graph.to_csr();
    assert_eq!(
        csr.names.iter().filter(|n| n.starts_with('k')).count(),
        3,
        "equal kernels are one node"
    );
}

#[test]
fn step_without_threads_is_thread_zero_alone() {
    let mut trace = trace(1, &[(0, true, vec![Some(900)]), (2, true, vec![Some(100)])]);
    let with = threads_critical_path(&trace).unwrap();
    trace.threads.clear();
    let without = threads_critical_path(&trace).unwrap();
    assert_eq!(with, without);
    assert_eq!(
        from_step(&trace, &[])
            .unwrap()
            .schedule()
            .unwrap()
            .length_ns(),
        1_000
    );
    trace.events.clear();
    assert_eq!(threads_critical_path(&trace).unwrap().length_us, 0.0);
}

#[test]
fn broken_traces_are_refused_and_wild_numbers_do_no_harm() {
    let good = trace(
        2,
        &[
            (0, false, vec![Some(9), Some(8)]),
            (1, true, vec![Some(1), Some(1)]),
        ],
    );
    let mut far = good.clone();
    far.threads[1].spans[0].event = 2;
    let no_event = GraphError::NoEvent {
        thread: 1,
        event: 2,
        events: 2,
    };
    assert_eq!(threads_critical_path(&far), Err(no_event.clone()));
    assert_eq!(from_step(&far, &[]), Err(no_event));
    let mut turned = good.clone();
    turned.threads[0].spans.reverse();
    assert_eq!(
        fill_slack(&mut turned),
        Err(GraphError::OutOfOrder { thread: 0 })
    );
    for wild in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -5.0, 1e300] {
        let mut trace = good.clone();
        trace.events[0].work_us = wild;
        trace.threads[0].spans[0].work_us = wild;
        trace.threads[1].spans[1].work_us = wild;
        trace.threads[1].spans[1].start_us = wild;
        let lean = threads_critical_path(&trace).unwrap();
        let graph = from_step(&trace, &[]).unwrap();
        assert_eq!(ns(lean.length_us), graph.schedule().unwrap().length_ns());
    }
}
