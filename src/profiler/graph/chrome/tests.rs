//! Traces are valid by the schema, nest, carry exact times, and end within their limit.

use super::*;
use crate::profiler::graph::tests::steps::{Row, kernels, trace};
use proptest::prelude::*;
use serde_json::Value;
use std::collections::BTreeMap;

const SCHEMA: &str = include_str!("schema.json");

fn check(json: &[u8]) -> Vec<Value> {
    let document: Value = serde_json::from_slice(json).expect("JSON");
    let schema: Value = serde_json::from_str(SCHEMA).expect("the schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<String> = validator
        .iter_errors(&document)
        .map(|e| e.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:?}");
    document["traceEvents"].as_array().expect("events").clone()
}

fn ns(value: &Value) -> u64 {
    (value.as_f64().expect("a number") * 1e3).round() as u64
}

type Slice = (u64, u64, String);

/// Slices by track, in the order written: start, end, name.
fn slices(events: &[Value]) -> BTreeMap<(u64, u64), Vec<Slice>> {
    let mut tracks: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for e in events.iter().filter(|e| e["ph"] == "X") {
        let track = (e["pid"].as_u64().unwrap(), e["tid"].as_u64().unwrap());
        let start = ns(&e["ts"]);
        let name = e["name"].as_str().unwrap().to_owned();
        tracks
            .entry(track)
            .or_default()
            .push((start, start + ns(&e["dur"]), name));
    }
    tracks
}

fn rows() -> Vec<Row> {
    vec![
        (0, true, vec![Some(900), None]),
        (2, false, vec![Some(4_001), Some(3_000)]),
        (3, true, vec![Some(1_000), Some(2_500)]),
        (28, false, vec![Some(700), Some(600)]),
        (29, true, vec![Some(100), None]),
    ]
}

fn write(limit: u64) -> (TraceSize, Vec<u8>) {
    let step = trace(2, &rows());
    let steps = [0.0, 50.0].map(|start_us| TraceStep {
        trace: &step,
        start_us,
    });
    let counters = [
        (0.0, "tok/s", 93.5),
        (50.0, "tok/s", f64::NAN),
        (50.0, "page\u{1} faults", 3.0),
    ]
    .map(|(at_us, name, value)| CounterSample { at_us, name, value });
    let mut out = Vec::new();
    let size = chrome_trace(&mut out, &steps, &kernels(6), &counters, limit).unwrap();
    assert_eq!(size.bytes, out.len() as u64);
    (size, out)
}

#[test]
fn trace_is_valid_and_has_every_track() {
    let (size, out) = write(LIMIT_BYTES);
    let events = check(&out);
    assert_eq!((size.events, size.left_out), (events.len() as u64, 0));
    let names: Vec<&str> = events
        .iter()
        .filter(|e| e["name"] == "thread_name")
        .map(|e| e["args"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "steps", "layers", "bricks", "kernels", "thread 0", "thread 1"
        ]
    );
    let tracks = slices(&events);
    let count = |pid, tid, name: &str| {
        tracks[&(pid, tid)]
            .iter()
            .filter(|s| s.2.starts_with(name))
            .count()
    };
    assert_eq!(count(1, 1, "decode"), 2);
    assert_eq!(count(1, 2, "layer"), 4);
    assert_eq!((count(1, 3, "QProj"), count(1, 3, "sync")), (2, 6));
    assert_eq!(count(1, 4, "k"), 8);
    assert_eq!(
        (
            count(2, 1, "QProj"),
            count(2, 2, "KProj"),
            count(2, 2, "wait")
        ),
        (2, 2, 2)
    );
    let counters: Vec<&Value> = events.iter().filter(|e| e["ph"] == "C").collect();
    assert_eq!(counters.len(), 2, "what is not a number is left out");
    assert_eq!(counters[0]["args"]["value"], 93.5);
    assert!(!out.contains(&1), "control characters are escaped");
    // 50 us after the trace's start, 1.5 us after the step's and 0.9 + 0.3 us of the brick before.
    assert_eq!(
        tracks[&(2, 1)]
            .iter()
            .filter(|s| s.2 == "QProj")
            .nth(1)
            .unwrap()
            .0,
        52_700
    );
}

proptest! {
    #[test]
    fn slices_of_a_track_never_overlap(starts in proptest::collection::vec(0.0f64..60.0, 1..4), wild in any::<f64>(), at in 0usize..5) {
        let mut step = trace(2, &rows());
        step.events[at].work_us = wild;
        step.threads[0].spans[at].start_us = wild;
        step.threads[0].spans[at].slack_us = wild;
        let steps: Vec<_> = starts.iter().map(|&start_us| TraceStep { trace: &step, start_us }).collect();
        let mut out = Vec::new();
        chrome_trace(&mut out, &steps, &kernels(6), &[], LIMIT_BYTES).unwrap();
        let document: Value = serde_json::from_slice(&out).unwrap();
        for slices in slices(document["traceEvents"].as_array().unwrap()).values() {
            for pair in slices.windows(2) {
                prop_assert!(pair[0].1 <= pair[1].0, "{pair:?}");
            }
        }
    }
}

#[test]
fn trace_ends_within_its_limit_with_a_note() {
    let (all, _) = write(LIMIT_BYTES);
    for limit in [3_000, 4_000, 6_000] {
        let (size, out) = write(limit);
        assert!(size.bytes <= limit && size.left_out > 0);
        let events = check(&out);
        let last = events.last().unwrap();
        assert_eq!(
            (last["ph"].as_str(), last["args"]["left_out"].is_string()),
            (Some("i"), true)
        );
        assert_eq!(size.events - 1 + size.left_out, all.events);
    }
}

#[test]
fn schema_refuses_what_is_not_a_trace() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    for bad in [
        r#"{"displayTimeUnit":"ns","traceEvents":[{"ph":"X","name":"a","cat":"b","pid":1,"tid":1,"ts":0,"args":{}}]}"#,
        r#"{"displayTimeUnit":"ns","traceEvents":[{"ph":"C","name":"a","pid":1,"tid":1,"ts":0,"args":{"v":"1"}}]}"#,
        r#"{"displayTimeUnit":"ns","traceEvents":[{"ph":"M","name":"thread_name","pid":1,"tid":1,"ts":0,"args":{}}]}"#,
        r#"{"displayTimeUnit":"ns"}"#,
    ] {
        assert!(
            !jsonschema::is_valid(&schema, &serde_json::from_str(bad).unwrap()),
            "{bad}"
        );
    }
}
