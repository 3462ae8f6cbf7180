//! The report of known predictions.

use super::super::oracle::Forecast;
use super::super::recommendation::Interval;
use super::super::run::ModelShape;
use super::*;
use crate::engine::knobs::Setting;
use crate::model::brick::BrickId;

fn subject(kernels: &str) -> Subject {
    Subject {
        model: ModelShape {
            name: "m".into(),
            quant: "Q4_K_M".into(),
            ..ModelShape::default()
        },
        backend: "cbtop cpu".into(),
        settings: vec![
            Setting::new("threads", "2"),
            Setting::new("backend", kernels),
            Setting::new("load", "read,huge-pages"),
        ],
        ..Subject::default()
    }
}

/// A brick that reads at 80% of the roof.
fn brick() -> BrickRow {
    BrickRow {
        id: BrickId::GateProj,
        category: BrickId::GateProj.category(),
        calls: 10,
        steps: 10,
        total_us: 1000.0,
        us_per_step: 100.0,
        mean_us: 100.0,
        stddev_us: 1.0,
        min_us: 99.0,
        max_us: 102.0,
        p50_us: 100.0,
        p99_us: 102.0,
        elements_per_step: 1,
        bytes_per_step: 1_600_000,
        flops_per_step: 100,
        share: 1.0,
        step_stddev_us: None,
        history_us: Vec::new(),
        cycles_per_call: None,
    }
}

fn says(trial: &Trial, mid: f64, best: &str) -> Forecast {
    assert_eq!(trial.setting("load"), Some("read,huge-pages"));
    assert_eq!(trial.model.quant, "Q4_K_M");
    Forecast {
        tok_s: Some(Interval {
            low: mid * 0.9,
            mid,
            high: mid * 1.1,
        }),
        method: "test".into(),
        kernels: vec![("neon".into(), 0.5), (best.into(), 0.3)],
        bottleneck: Some("memory".into()),
        warnings: Vec::new(),
    }
}

#[test]
fn f064_predictions_are_graded_against_what_was_measured() {
    let (fast, slow) = (subject("avx512"), subject("avx2"));
    let bricks = [brick()];
    let base = Profiled {
        subject: &fast,
        bandwidth_gbps: Some(20.0),
        tok_s: 100.0,
        tokens: (5, 32),
        bricks: &bricks,
        kernels: &[],
    };
    let both = [
        base,
        Profiled {
            subject: &slow,
            tok_s: 80.0,
            ..base
        },
    ];
    // 4% and 5% off, the right kernels, the right bottleneck.
    let right = validate(&both, &|t| {
        let rate = if t.setting("backend") == Some("avx512") {
            104.0
        } else {
            84.0
        };
        says(t, rate, "avx512")
    });
    let score = right.score.expect("a score");
    assert!(
        (score - (95.5 + 100.0 + 100.0) / 3.0).abs() < 1e-9,
        "{score}"
    );
    assert_eq!((right.grade, right.passed, right.profiles), ('A', true, 2));
    assert!(
        right
            .notes
            .iter()
            .any(|n| n.contains("2 profiles show little"))
    );
    // The wrong kernel and rates that are twice the truth.
    let wrong = validate(&both, &|t| says(t, 200.0, "avx2"));
    assert_eq!((wrong.grade, wrong.passed), ('F', false));
    assert_eq!(wrong.measures[1].value, Some(0.0));
    // One profile: no kernels to compare, which is said and not counted.
    let one = validate(&both[..1], &|t| says(t, 98.0, "avx512"));
    assert_eq!(one.measures[1].value, None);
    assert!(one.measures[1].missing.is_some());
    assert_eq!((one.grade, one.passed), ('A', true));
    assert!(one.notes[0].contains("one profile shows little"));
    // The same with the bandit's rates: one session is enough.
    let arms = [("avx2".to_string(), 130.0)];
    let session = [Profiled {
        kernels: &arms,
        ..base
    }];
    let found = validate(&session, &|t| says(t, 98.0, "avx512"));
    assert_eq!(found.measures[1].value, Some(0.0));
    let none = validate(&[], &|t| says(t, 1.0, "avx2"));
    assert_eq!((none.score, none.grade, none.passed), (None, '-', false));
}

#[test]
fn the_specification_s_example_has_its_score() {
    let measure = |value| Measure {
        name: "",
        value: Some(value),
        of: 1,
        target: 0.0,
        holds: None,
        missing: None,
    };
    let s = score(&[measure(0.042), measure(0.87), measure(0.94)]).expect("a score");
    assert_eq!((s.round(), grade(Some(s))), (92.0, 'A'));
    for (score, letter) in [
        (90.0, 'A'),
        (89.9, 'B'),
        (70.0, 'C'),
        (60.0, 'D'),
        (0.0, 'F'),
    ] {
        assert_eq!(grade(Some(score)), letter);
    }
}
