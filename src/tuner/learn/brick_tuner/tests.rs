use super::*;
use crate::engine::knobs::Setting;
use crate::tuner::learn::arrays::{Array, Arrays};
use crate::tuner::learn::file::{self, FORMAT, ModelFileError};
use crate::tuner::learn::forest::ForestOptions;
use crate::tuner::learn::gbt::GbtOptions;
use crate::tuner::learn::online::{Doubt, Learned, OnlineTuner};
use crate::tuner::learn::split::By;
use crate::tuner::learn::throughput::TrainOptions;
use crate::tuner::learn::train::{BrickOptions, Part};
use crate::tuner::run::TimeShares;
use crate::tuner::run::{Hardware, ModelShape, Origin, Test};
use proptest::prelude::*;

/// A run of a machine that obeys a formula: for tests of the machinery alone, never for a model that is kept.
pub fn formula_run(n: u32) -> Run {
    let threads = 1 + n % 4;
    let kernels = ["avx2", "avx512"][(n / 4 % 2) as usize];
    let layers = 8 + n / 8 % 5 * 4;
    let decode = !n.is_multiple_of(3);
    // The second set is faster for large models alone.
    let faster = if (kernels == "avx512") == (layers > 16) {
        1.2
    } else {
        1.0
    };
    let params = f64::from(layers) * 5e7;
    let rate = 40e9 / params * f64::from(threads).sqrt() / 2.0 * faster;
    let trial = Trial {
        hardware: Hardware {
            name: "test".into(),
            fingerprint: "test".into(),
            mem_gbps: Some(40.0),
            gflops: Some(500.0),
            cores: Some(4),
            ..Hardware::default()
        },
        model: ModelShape {
            name: format!("m{layers}"),
            quant: "Q8_0".into(),
            params,
            weight_bytes: params,
            layers: Some(layers),
            ..ModelShape::default()
        },
        backend: "cbtop cpu".into(),
        test: Test {
            prompt: if decode { 0 } else { 64 << (n % 2) },
            generated: if decode { 32 + n % 7 } else { 0 },
            depth: 0,
            batch: 1,
        },
        settings: vec![
            Setting::new("threads", threads.to_string()),
            Setting::new("backend", kernels),
            Setting::new("kernels-for", "none"),
        ],
    };
    Run {
        trial,
        origin: Origin::Collect,
        source: "test".into(),
        unix_s: Some(i64::from(n)),
        tok_s: rate * if decode { 1.0 } else { 8.0 },
        stddev: Some(rate * 0.01),
        repetitions: 5,
        warm: Some(true),
        background: Some(0.0),
        shares: Some(TimeShares {
            memory: if decode { 0.8 } else { 0.1 },
            compute: if decode { 0.1 } else { 0.8 },
            launch: 0.1,
            ..TimeShares::default()
        }),
    }
}

/// Small models train quickly.
pub fn quick() -> BrickOptions {
    BrickOptions {
        forest: ForestOptions {
            trees: 8,
            depth: 4,
            ..ForestOptions::default()
        },
        rates: TrainOptions {
            folds: 2,
            gbt: GbtOptions {
                trees: 10,
                bins: 32,
                ..GbtOptions::default()
            },
            ..TrainOptions::default()
        },
        trained_at: 1_796_083_200,
        ..BrickOptions::default()
    }
}

fn small() -> &'static BrickTuner {
    static MODEL: LazyLock<BrickTuner> = LazyLock::new(|| {
        let runs: Vec<Run> = (0..240).map(formula_run).collect();
        BrickTuner::train(&runs, &quick()).expect("runs").tuner
    });
    &MODEL
}

#[test]
fn a_trained_model_has_all_parts_and_says_what_it_is() {
    let model = small();
    assert!(model.kernels.is_some() && model.bottleneck.is_some() && model.novelty.is_some());
    assert_eq!(model.title(), "1, 240 runs of 1 machines, 2026-12-01");
    let run = formula_run(5);
    let answer = model.predict(&run.trial, None);
    assert_eq!(answer.warnings, Vec::<String>::new());
    let sum: f64 = answer.kernels.iter().map(|k| k.1).sum();
    assert!((sum - 1.0).abs() < 1e-5, "{:?}", answer.kernels);
    let limit = answer.bottleneck.expect("a class");
    assert_eq!(limit.class, "memory");
    assert!(!limit.why.is_empty());
    assert!(model.agrees(&run.trial).is_some());
    let far = Measured { tok_s: 1e9 };
    assert_eq!(model.predict(&run.trial, Some(&far)).warnings.len(), 1);
}

#[test]
fn f070_models_survive_a_file() {
    let bytes = small().to_bytes().expect("written");
    let again = BrickTuner::from_bytes(&bytes).expect("read");
    assert_eq!(again, *small());
    assert_eq!(again.to_bytes().expect("written"), bytes);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sub/model.safetensors");
    small().save(&path).expect("saved");
    assert_eq!(BrickTuner::load(&path).expect("loaded"), *small());
    assert!(matches!(
        BrickTuner::load(folder.path()),
        Err(ModelFileError::Io { .. } | ModelFileError::Arrays(_))
    ));
}

#[test]
fn f080_files_of_version_1_load() {
    let bytes = file::write(small(), 1).to_bytes().expect("written");
    let old = BrickTuner::from_bytes(&bytes).expect("read");
    assert!(old.novelty.is_none() && old.correction.is_none());
    assert_eq!(
        (&old.rates, &old.kernels),
        (&small().rates, &small().kernels)
    );
    let question = formula_run(1).trial;
    assert_eq!(
        old.predict(&question, None),
        small().predict(&question, None)
    );
}

#[test]
fn f079_later_versions_are_refused_by_name() {
    let bytes = file::write(small(), FORMAT + 1)
        .to_bytes()
        .expect("written");
    let error = BrickTuner::from_bytes(&bytes).expect_err("too new");
    assert!(matches!(error, ModelFileError::Newer(n) if n == FORMAT + 1));
    assert!(error.to_string().contains("newer cbtop"), "{error}");
}

/// The arrays of a model that was trained when the last column was not yet there, and all stood in another order.
fn before_the_last_column(model: &BrickTuner) -> Arrays {
    let mut a = file::write(model, FORMAT);
    let names = a.texts("columns").expect("names");
    let n = names.len();
    let mut short: Vec<String> = names[..n - 1].to_vec();
    short.reverse();
    a.header.insert("columns".into(), short.into());
    let cut = |v: &[f32]| -> Vec<f32> {
        v.chunks(n)
            .flat_map(|row| row[..n - 1].iter().rev().copied())
            .collect()
    };
    for name in [
        "bottleneck.mean",
        "bottleneck.coefficients",
        "novelty.scale",
        "novelty.prototypes",
    ] {
        let values = cut(a.f32(name).expect("floats"));
        a.put(name, Array::F32(values));
    }
    for name in ["rates.gain", "rates.error_gain"] {
        let Ok(gain) = a.numbers(name) else { continue };
        let gain: Vec<f64> = gain[..n - 1].iter().rev().copied().collect();
        a.header.insert(name.into(), gain.into());
    }
    for name in ["kernels", "rates", "rates.error"] {
        let Ok(feature) = a.u16(&format!("{name}.feature")) else {
            continue;
        };
        let moved = |f: &u16| if *f == u16::MAX { *f } else { n as u16 - 2 - f };
        let feature = feature.iter().map(moved).collect();
        a.put(format!("{name}.feature"), Array::U16(feature));
    }
    if let Ok(rows) = a.f32("rates.rows") {
        let (rows, scale) = (cut(rows), cut(a.f32("rates.scale").expect("floats")));
        a.put("rates.rows", Array::F32(rows));
        a.put("rates.scale", Array::F32(scale));
    }
    a
}

#[test]
fn f080_models_from_before_a_knob_load_and_answer_the_same() {
    let bytes = before_the_last_column(small()).to_bytes().expect("written");
    let old = BrickTuner::from_bytes(&bytes).expect("read");
    for n in 0..40 {
        let question = formula_run(n).trial;
        let (a, b) = (
            old.predict(&question, None),
            small().predict(&question, None),
        );
        assert_eq!((a.tok_s, a.kernels), (b.tok_s, b.kernels));
    }
    let mut unknown = file::write(small(), FORMAT);
    unknown
        .header
        .insert("columns".into(), vec!["no such column"].into());
    let bytes = unknown.to_bytes().expect("written");
    assert!(matches!(
        BrickTuner::from_bytes(&bytes),
        Err(ModelFileError::Column(_))
    ));
}

#[test]
fn f091_f292_without_a_single_run_the_roofline_answers() {
    let cold = BrickTuner::cold_start();
    let answer = cold.predict(&formula_run(1).trial, None);
    let rate = answer.tok_s.expect("a rate");
    assert!(0.0 < rate.low && rate.low < rate.mid && rate.mid < rate.high);
    assert_eq!((answer.method, cold.title().as_str()), ("roofline", "none"));
    assert_eq!(answer.warnings.len(), 1);
    let mut nothing = formula_run(1).trial;
    nothing.hardware = Hardware::default();
    assert_eq!(cold.predict(&nothing, None).tok_s, None);
    assert!(BrickTuner::train(&[], &quick()).is_err());
    let again = BrickTuner::from_bytes(&cold.to_bytes().expect("written")).expect("read");
    assert_eq!(again, cold);
}

#[test]
fn f092_a_few_runs_give_what_they_carry() {
    for n in [1, 5, 19, 30] {
        let runs: Vec<Run> = (0..n).map(formula_run).collect();
        let trained = BrickTuner::train(&runs, &quick()).expect("runs");
        let answer = trained.tuner.predict(&runs[0].trial, None);
        assert!(answer.tok_s.is_some_and(|r| r.mid > 0.0), "{n}: {answer:?}");
    }
}

/// Runs of one of five models.
fn of_model(model: u32, n: usize) -> impl Iterator<Item = Run> {
    let of = (0..).filter(move |n| n / 8 % 5 == model);
    of.take(n).map(formula_run)
}

fn only(part: Part) -> BrickOptions {
    BrickOptions {
        only: vec![part],
        ..quick()
    }
}

#[test]
fn a_model_with_few_runs_keeps_no_other_from_being_learned() {
    let runs: Vec<Run> = of_model(0, 290).chain(of_model(1, 10)).collect();
    let trained = BrickTuner::train(&runs, &only(Part::Rates)).expect("runs");
    let evaluation = trained.rates.expect("measured");
    assert_eq!(evaluation.decided_by, By::Trial.name());
    assert_eq!(trained.tuner.rates.name(), evaluation.chosen.name());
    assert_ne!(trained.tuner.rates, Rates::Untrained);
    assert_eq!(trained.tuner.caveats, Vec::<String>::new());
    assert!(trained.tuner.about.error.is_some());
}

#[test]
fn the_method_for_one_model_is_the_best_on_its_trials() {
    let runs: Vec<Run> = of_model(0, 100).collect();
    let trained = BrickTuner::train(&runs, &only(Part::Rates)).expect("runs");
    let evaluation = trained.rates.expect("measured");
    assert_eq!(evaluation.decided_by, By::Trial.name());
    let trials = &evaluation.splits[0];
    assert_eq!(
        (trials.held_out.as_str(), trials.best),
        (By::Trial.name(), evaluation.chosen)
    );
}

#[test]
fn rates_that_cannot_be_measured_are_learned_all_the_same() {
    let runs: Vec<Run> = (0..22).map(formula_run).collect();
    let trained = BrickTuner::train(&runs, &only(Part::Rates)).expect("runs");
    assert_eq!(trained.tuner.rates.name(), "gradient boosting");
    let why = trained.rates.expect_err("too few to hold out");
    assert!(why.contains("not measured: of 22 runs"), "{why}");
    let few = BrickTuner::train(&runs[..19], &only(Part::Rates)).expect("runs");
    assert_eq!(few.tuner.caveats.len(), 1);
    let why = few.rates.expect_err("too few");
    assert!(why.contains("not learned: 19 runs"), "{why}");
}

#[test]
fn parts_that_are_not_trained_keep_what_they_rest_on() {
    let runs: Vec<Run> = (0..240).map(formula_run).collect();
    let trained = BrickTuner::train(&runs, &only(Part::Kernels)).expect("runs");
    let (new, before) = (trained.tuner, BrickTuner::pretrained());
    assert_eq!(
        (&new.rates, &new.novelty, &new.caveats),
        (&before.rates, &before.novelty, &before.caveats)
    );
    assert_eq!(new.kernels, small().kernels);
    let about = About {
        version: before.about.version + 1,
        trained_at: quick().trained_at,
        ..before.about.clone()
    };
    assert_eq!(new.about, about);
}

/// A run that is off the model's rate by a logarithm.
fn off(n: u32, log: f64) -> Run {
    let mut run = formula_run(n);
    run.tok_s = small().base_rate(&run.trial).expect("a rate") * log.exp();
    run
}

#[test]
fn a_correction_is_no_drift() {
    let mut online = OnlineTuner::new(small().clone(), "test", &[]);
    let slower = off(1, -0.5);
    let mut updates = 0;
    for _ in 0..24 {
        updates += usize::from(matches!(online.observe(&slower), Learned::Updated { .. }));
        assert!(!matches!(online.doubt(), Some(Doubt::Drift(_))));
    }
    assert_eq!(updates, 3);
}

#[test]
fn a_refused_batch_does_not_block_other_tasks() {
    let mut online = OnlineTuner::new(small().clone(), "test", &[]);
    let mut batch = |n: u32, logs: [f64; 8]| {
        let learned = logs.map(|log| online.observe(&off(n, log)));
        learned[7]
    };
    assert!(matches!(batch(1, [0.0; 8]), Learned::Updated { .. }));
    // Three outliers pull the fit away from the five others.
    let outliers = [0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0];
    assert_eq!(batch(1, outliers), Learned::Refused);
    assert!(matches!(batch(35, [-0.5; 8]), Learned::Updated { .. }));
}

#[test]
fn f073_many_threads_ask_at_once() {
    let expected = small().predict(&formula_run(3).trial, None);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert_eq!(small().predict(&formula_run(3).trial, None), expected);
                }
            });
        }
    });
}

#[test]
fn f078_an_unseen_kernel_set_is_answered_and_told() {
    let odd = formula_run(3)
        .trial
        .with(&[Setting::new("backend", "amx9")]);
    let answer = small().predict(&odd, None);
    assert!(answer.tok_s.is_some_and(|r| r.mid > 0.0));
    assert!(
        answer.warnings.iter().any(|w| w.contains("amx9")),
        "{:?}",
        answer.warnings
    );
}

#[test]
fn f077_unseen_hardware_is_answered_and_told() {
    let mut far = formula_run(3).trial;
    far.hardware = Hardware {
        name: "a new card".into(),
        kind: crate::tuner::run::MachineKind::Gpu,
        fingerprint: "new".into(),
        mem_gbps: Some(8000.0),
        gflops: Some(1e6),
        ..Hardware::default()
    };
    let answer = small().predict(&far, None);
    assert!(answer.tok_s.is_some_and(|r| r.mid > 0.0));
    assert!(
        answer.warnings.iter().any(|w| w.contains("unlike")),
        "{:?}",
        answer.warnings
    );
}

#[test]
fn f291_a_slower_machine_is_learned_from_a_few_runs() {
    let slower = |n: u32| {
        let mut run = formula_run(n);
        run.trial.hardware.fingerprint = "slower".into();
        run.tok_s *= 0.6;
        run
    };
    let local: Vec<Run> = (0..30).map(slower).collect();
    let local: Vec<&Run> = local.iter().collect();
    let fitted = small().transfer(&local).expect("better");
    let error = |m: &BrickTuner| {
        let one = |n| {
            (m.rate(&slower(n).trial).expect("a rate") / slower(n).tok_s)
                .ln()
                .abs()
        };
        (100..160).map(one).sum::<f64>() / 60.0
    };
    let (before, after) = (error(small()), error(&fitted));
    assert!(after < before / 2.0, "{before} {after}");
    let other = formula_run(100).trial;
    assert_eq!(fitted.predict(&other, None), small().predict(&other, None));
    let again = BrickTuner::from_bytes(&fitted.to_bytes().expect("written")).expect("read");
    assert_eq!(again, fitted);
    assert!(small().transfer(&[]).is_none());
}

fn odd_number() -> impl Strategy<Value = f64> {
    prop_oneof![prop::num::f64::ANY, Just(0.0), 1e-3..1e12]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn f075_f076_f085_no_question_breaks_it(
        numbers in prop::collection::vec(odd_number(), 8),
        wholes in prop::collection::vec(any::<u32>(), 8),
        texts in prop::collection::vec("\\PC{0,12}", 4),
        known: bool,
    ) {
        let some = |v: f64| known.then_some(v);
        let trial = Trial {
            hardware: Hardware {
                name: texts[0].clone(),
                fingerprint: texts[1].clone(),
                mem_gbps: some(numbers[0]),
                gflops: some(numbers[1]),
                int8_gops: some(numbers[2]),
                cores: known.then_some(wholes[0]),
                cache_mb: some(numbers[3]),
                memory_gb: some(numbers[4]),
                ..Hardware::default()
            },
            model: ModelShape {
                quant: texts[2].clone(),
                params: numbers[5],
                active_params: some(numbers[6]),
                weight_bytes: numbers[7],
                layers: known.then_some(wholes[1]),
                heads: known.then_some(wholes[2]),
                head_dim: known.then_some(wholes[3]),
                ..ModelShape::default()
            },
            backend: texts[3].clone(),
            test: Test { prompt: wholes[4], generated: wholes[5], depth: wholes[6], batch: wholes[7] },
            settings: vec![Setting::new("threads", &*texts[0]), Setting::new("prefetch", &*texts[1])],
        };
        let measured = Measured { tok_s: numbers[0] };
        for model in [small(), &BrickTuner::cold_start()] {
            let a = model.predict(&trial, Some(&measured));
            let b = model.predict(&trial, Some(&measured));
            // F071, F072: the same question has the same answer.
            prop_assert_eq!(format!("{a:?}"), format!("{b:?}"));
            if let Some(rate) = a.tok_s {
                prop_assert!(!rate.mid.is_nan() && rate.low <= rate.mid && rate.mid <= rate.high);
            }
            let _ = model.agrees(&trial);
        }
    }

    #[test]
    fn f075_damaged_files_are_refused_or_answer(at in any::<prop::sample::Index>(), byte: u8, cut in any::<prop::sample::Index>()) {
        static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| small().to_bytes().expect("written"));
        let mut bytes = BYTES.clone();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(model) = BrickTuner::from_bytes(&bytes) {
            let _ = model.predict(&formula_run(3).trial, None);
        }
        prop_assert!(BrickTuner::from_bytes(&bytes[..cut.index(bytes.len())]).is_err());
    }
}
