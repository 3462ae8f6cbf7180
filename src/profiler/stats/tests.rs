use super::*;
use crate::engine::NO_LAYER;
use crate::profiler::recorder::StepRecorder;
use proptest::prelude::*;

/// One call: brick, layer, bytes.
type Call = (usize, u16, u64);

fn run(rec: &mut StepRecorder, kind: StepKind, calls: &[Call]) -> f64 {
    rec.begin_step(kind, 0, 1);
    for &(brick, layer, bytes) in calls {
        let t = rec.start();
        rec.worked(
            t,
            BrickId::ALL[brick],
            layer,
            Work {
                elements: 3,
                bytes,
                flops: 2 * bytes,
            },
        );
    }
    rec.end_step().wall_us()
}

#[test]
fn rows_follow_the_order_of_bricks_and_end_in_overhead() {
    let mut rec = StepRecorder::new(Clock::modelled(), 64);
    let mut all = Aggregate::new(2);
    assert!(all.rows(StepKind::Decode).is_empty() && all.layer_rows().is_empty());
    let q = BrickId::QProj as usize;
    let gate = BrickId::GateProj as usize;
    let head = BrickId::LmHead as usize;
    run(
        &mut rec,
        StepKind::Decode,
        &[(gate, 1, 5000), (q, 0, 1000), (head, NO_LAYER, 0)],
    );
    all.add_step(rec.last());
    run(
        &mut rec,
        StepKind::Decode,
        &[(gate, 1, 5000), (q, 0, 3000), (head, NO_LAYER, 0)],
    );
    all.add_step(rec.last());

    let rows = all.rows(StepKind::Decode);
    let ids: Vec<_> = rows.iter().map(|r| r.id).collect();
    assert_eq!(
        ids,
        [
            BrickId::QProj,
            BrickId::GateProj,
            BrickId::LmHead,
            BrickId::Sync,
            BrickId::Unattributed
        ]
    );
    assert_eq!(
        (rows[0].calls, rows[0].steps, rows[0].bytes_per_step),
        (2, 2, 2000)
    );
    assert_eq!(
        (rows[0].elements_per_step, rows[0].flops_per_step),
        (3, 4000)
    );
    assert!((rows[0].mean_us - 0.7).abs() < 1e-9);
    assert!((rows[0].min_us - 0.6).abs() < 1e-9 && (rows[0].max_us - 0.8).abs() < 1e-9);
    assert_eq!((rows[3].calls, rows[4].calls), (0, 2));

    let layers = all.layer_rows();
    assert!((layers[0].attention_us - 0.7).abs() < 1e-9 && (layers[0].last_us - 0.8).abs() < 1e-9);
    assert!((layers[1].ffn_us - 1.0).abs() < 1e-9 && layers[1].attention_us == 0.0);
    assert!(all.rows(StepKind::Prefill).is_empty());

    all.clear();
    assert!(all.rows(StepKind::Decode).is_empty() && all.layer_rows().is_empty());
}

#[test]
fn one_call_has_no_deviation_and_no_calls_no_figures() {
    let mut s = Spread::default();
    assert!(
        s.mean_ns().is_none()
            && s.min_ns().is_none()
            && s.max_ns().is_none()
            && s.quantile_ns(0.5).is_none()
    );
    s.add(5.0);
    assert_eq!(
        (s.mean_ns(), s.stddev_ns(), s.quantile_ns(0.99)),
        (Some(5.0), None, Some(5.0))
    );
}

#[test]
fn latency_is_the_spread_in_microseconds() {
    let mut s = Spread::default();
    assert_eq!(s.latency(), Latency::default());
    for ns in 1..=100u32 {
        s.add(f64::from(ns) * 1000.0);
    }
    let l = s.latency();
    assert_eq!((l.count, l.min_us, l.max_us), (100, Some(1.0), Some(100.0)));
    let near = |got: Option<f64>, want: f64| got.is_some_and(|g| (g / want - 1.0).abs() <= 0.04);
    assert!(near(l.p50_us, 50.0) && near(l.p90_us, 90.0) && near(l.p99_us, 99.0));
    assert!(near(l.mean_us, 50.5) && near(l.stddev_us, 29.01));
    assert_eq!(l.buckets.iter().map(|b| b.count).sum::<u64>(), 100);
    let ends = (l.buckets.first(), l.buckets.last());
    assert!(ends.0.is_some_and(|b| b.from_us <= 1.0 && 1.0 < b.to_us));
    assert!(
        ends.1
            .is_some_and(|b| b.from_us <= 100.0 && 100.0 < b.to_us)
    );
}

#[test]
fn layers_past_the_models_are_ignored() {
    let mut rec = StepRecorder::new(Clock::modelled(), 64);
    let mut all = Aggregate::new(1);
    run(
        &mut rec,
        StepKind::Decode,
        &[(BrickId::QProj as usize, 9, 10)],
    );
    all.add_step(rec.last());
    assert_eq!(all.layer_rows().len(), 1);
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    // The two overhead rows are the aggregate's own.
    prop::collection::vec(
        (
            0..BrickId::Launch as usize,
            prop_oneof![0u16..4, Just(NO_LAYER)],
            0u64..10_000_000,
        ),
        0..40,
    )
}

fn exact(sorted: &[f64], q: f64) -> f64 {
    sorted[((q * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len()) - 1]
}

proptest! {
    #[test]
    fn totals_sum_to_wall_time_and_shares_to_one(steps in prop::collection::vec(calls(), 1..8)) {
        let mut rec = StepRecorder::new(Clock::modelled(), 64);
        let mut all = Aggregate::new(4);
        let mut wall = 0.0;
        for step in &steps {
            wall += run(&mut rec, StepKind::Decode, step);
            all.add_step(rec.last());
        }
        let rows = all.rows(StepKind::Decode);
        let total: f64 = rows.iter().map(|r| r.total_us).sum();
        let a_step: f64 = rows.iter().map(|r| r.us_per_step).sum();
        let share: f64 = rows.iter().map(|r| r.share).sum();
        prop_assert!((total - wall).abs() <= 1e-9 * wall.max(1.0), "{total} of {wall}");
        prop_assert!((a_step * steps.len() as f64 - wall).abs() <= 1e-9 * wall.max(1.0));
        prop_assert!(wall == 0.0 || (share - 1.0).abs() < 1e-9, "{share}");
    }

    #[test]
    fn measured_totals_sum_to_wall_time_too(
        stamps in prop::collection::vec((0u64..1000, 0u64..5000, 0u64..900), 1..30),
    ) {
        let mut rec = StepRecorder::new(Clock::instant(), 64);
        rec.begin_step(StepKind::Decode, 0, 1);
        let mut now = rec.now();
        for &(gap, work, sync) in &stamps {
            let (start, work_end) = (now + gap, now + gap + work);
            rec.record(BrickId::UpProj, 0, start, work_end, work_end + sync, Work::default());
            now = work_end + sync;
        }
        // Invented stamps may lie ahead of the real clock; wait until it has passed them.
        while rec.now() < now {
            std::thread::yield_now();
        }
        let wall = rec.end_step().wall_us();
        let mut all = Aggregate::new(1);
        all.add_step(rec.last());
        let rows = all.rows(StepKind::Decode);
        let total: f64 = rows.iter().map(|r| r.total_us).sum();
        prop_assert!((total - wall).abs() <= 1e-9 * wall, "{total} of {wall}");
        prop_assert!((rows.iter().map(|r| r.share).sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn percentiles_are_within_four_percent_and_inside_the_range(
        mut values in prop::collection::vec(prop_oneof![0.1f64..100.0, 100.0f64..1e6, 1e6f64..1e12], 1..400),
    ) {
        let mut spread = Spread::default();
        values.iter().for_each(|&v| spread.add(v));
        values.sort_by(f64::total_cmp);
        let (min, max) = (spread.min_ns().unwrap(), spread.max_ns().unwrap());
        for q in [0.5, 0.99] {
            let (near, exact) = (spread.quantile_ns(q).unwrap(), exact(&values, q));
            prop_assert!((near / exact - 1.0).abs() <= 0.04, "{q}: {near} for {exact}");
            prop_assert!(min <= near && near <= max);
        }
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        prop_assert!((spread.mean_ns().unwrap() / mean - 1.0).abs() < 1e-9);
        if values.len() > 1 {
            let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
            prop_assert!((spread.stddev_ns().unwrap() - variance.sqrt()).abs() <= 1e-6 * variance.sqrt().max(1e-3));
        }
    }
}
