//! The front is what it says, and the figures follow from each other.

use super::*;
use crate::tuner::hardware;
use crate::tuner::learn::brick_tuner::BrickTuner;
use crate::tuner::roofline::roofline_tok_s;
use crate::tuner::run::ModelShape;
use proptest::prelude::*;

fn row(rate: f64, ms: f64, bytes: f64, fits: Option<bool>) -> Outlook {
    let point = |mid| {
        Some(Interval {
            low: mid,
            mid,
            high: mid,
        })
    };
    Outlook {
        batch: 1,
        change: Vec::new(),
        tok_s: point(rate),
        ms_per_token: point(ms),
        first_token_ms: None,
        memory: Memory {
            weights: bytes,
            ..Memory::default()
        },
        fits,
        front: false,
        bottleneck: None,
    }
}

proptest! {
    #[test]
    fn no_point_of_the_front_is_beaten_and_every_other_is(
        points in prop::collection::vec((1u32..9, 1u32..9, 1u32..9, prop::option::of(any::<bool>())), 0..40),
    ) {
        let point = |&(r, m, b, fits): &(u32, u32, u32, Option<bool>)| row(r.into(), m.into(), b.into(), fits);
        let mut rows: Vec<Outlook> = points.iter().map(point).collect();
        mark_front(&mut rows);
        let beats = |a: &Outlook, b: &Outlook| {
            let [a, b] = [a, b].map(|o| (o.tok_s.map_or(0.0, |i| i.mid), o.ms_per_token.map_or(0.0, |i| i.mid), o.memory.total()));
            a.0 >= b.0 && a.1 <= b.1 && a.2 <= b.2 && a != b
        };
        let front: Vec<&Outlook> = rows.iter().filter(|o| o.front).collect();
        for o in &rows {
            if o.front {
                prop_assert!(o.fits != Some(false));
                prop_assert!(!rows.iter().any(|other| other.fits != Some(false) && beats(other, o)));
            } else if o.fits != Some(false) {
                prop_assert!(front.iter().any(|f| beats(f, o)));
            }
        }
        prop_assert_eq!(front.is_empty(), rows.iter().all(|o| o.fits == Some(false)));
    }

    #[test]
    fn wild_forecasts_do_no_harm(low in prop::num::f64::ANY, mid in prop::num::f64::ANY, high in prop::num::f64::ANY, batch: u32, prompt: u32) {
        let base = qwen("RTX 4090");
        let q = Question {
            base: &base,
            batches: &[batch, 0],
            prompt,
            generated: 0,
            alternatives: &[vec![Setting::new("kv-type", "q8_0")]],
            memory: &|_, _| Memory::default(),
            available: Some(f64::NAN),
        };
        let answer = ask(&q, &|_| Forecast { tok_s: Some(Interval { low, mid, high }), ..Forecast::default() });
        prop_assert!(answer.rows.len() >= 2);
    }
}

/// Qwen2.5 1.5B Q4_K_M, by its public configuration and the size of its public file.
fn qwen(machine: &str) -> Trial {
    Trial {
        hardware: hardware::find(machine).expect("in the table").clone(),
        model: ModelShape {
            name: "Qwen2.5-Coder 1.5B".into(),
            arch: "qwen2".into(),
            quant: "Q4_K_M".into(),
            params: 1.54e9,
            active_params: Some(1.54e9),
            weight_bytes: 986e6,
            kv_bytes_per_token: Some(28.0 * 2.0 * 2.0 * 128.0 * 2.0),
            hidden: Some(1536),
            layers: Some(28),
            heads: Some(12),
            head_dim: Some(128),
            vocab: Some(151_936),
        },
        backend: "llama.cpp CUDA".into(),
        test: Test {
            prompt: 0,
            generated: 128,
            depth: 0,
            batch: 1,
        },
        settings: Vec::new(),
    }
}

/// The bound alone: what any predictor must stay under.
fn bound(trial: &Trial) -> Forecast {
    Forecast {
        tok_s: roofline_tok_s(trial).map(|mid| Interval {
            low: 0.0,
            mid,
            high: mid,
        }),
        method: "roofline".into(),
        ..Forecast::default()
    }
}

#[test]
fn f063_the_oracle_answers_before_anything_runs() {
    let base = qwen("RTX 4090");
    let kv = |trial: &Trial| match trial.setting("kv-type") {
        Some("q8_0") => 34.0 / 64.0,
        _ => 1.0,
    };
    let q = Question {
        base: &base,
        batches: &[1, 4, 8, 4096],
        prompt: 512,
        generated: 128,
        alternatives: &[
            vec![Setting::new("kv-type", "q8_0")],
            vec![Setting::new("pin", "on")],
        ],
        memory: &|trial, batch| Memory {
            weights: trial.model.weight_bytes,
            kv: kv(trial)
                * trial.model.kv_bytes_per_token.unwrap_or(0.0)
                * 8192.0
                * f64::from(batch),
            buffers: 1e8,
        },
        available: Some(24e9),
    };
    let answer = ask(&q, &bound);
    assert_eq!(answer.method, "roofline");
    let rates: Vec<f64> = answer
        .rows
        .iter()
        .filter(|r| r.change.is_empty())
        .filter_map(|r| Some(r.tok_s?.mid))
        .collect();
    assert!(rates.windows(2).all(|w| w[0] < w[1]), "{rates:?}");
    // Pinning changes nothing here and is left out; 4096 sequences do not fit and are on no front.
    assert!(
        answer
            .rows
            .iter()
            .all(|r| r.change.iter().all(|s| s.knob == "kv-type"))
    );
    let last = answer.rows.last().expect("rows");
    assert_eq!(
        (last.batch, last.fits, last.front),
        (4096, Some(false), false)
    );
    assert!(answer.rows.iter().any(|r| r.front));
    for r in &answer.rows {
        let (rate, ms) = (
            r.tok_s.expect("a rate").mid,
            r.ms_per_token.expect("a time").mid,
        );
        assert!((rate * ms / 1e3 - f64::from(r.batch)).abs() < 1e-6 * f64::from(r.batch));
        assert!(r.first_token_ms.is_some());
    }
}

#[test]
fn f295_qwen_on_an_rtx_4090_is_predicted_and_not_measured() {
    let trial = qwen("RTX 4090");
    let said: Forecast = BrickTuner::pretrained().predict(&trial, None).into();
    let rate = said.tok_s.expect("a rate");
    println!(
        "F295: Qwen2.5-Coder 1.5B Q4_K_M on RTX 4090 predicted {:.0} tok/s ({:.0} to {:.0}) by {}; not measurable here: no RTX \
         4090",
        rate.mid, rate.low, rate.high, said.method
    );
    assert!(rate.low <= rate.mid && rate.mid <= rate.high);
    let bound = roofline_tok_s(&trial).expect("its bandwidth is known");
    assert!(rate.mid <= bound, "{} of {bound}", rate.mid);
}

#[test]
fn f077_a_machine_without_figures_is_answered_without_a_rate() {
    let base = qwen("Ryzen 7950X");
    let q = Question {
        base: &base,
        batches: &[1],
        prompt: 0,
        generated: 16,
        alternatives: &[],
        memory: &|_, _| Memory::default(),
        available: None,
    };
    let answer = ask(&q, &bound);
    assert_eq!((answer.rows[0].tok_s, answer.rows[0].fits), (None, None));
    assert!(!answer.rows[0].front);
}
