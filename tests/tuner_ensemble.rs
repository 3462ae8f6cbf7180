//! The ensemble on real runs: those under `assets/runs`, each from this program or a public report, none made up.
//!
//! Where the runs do not reach a criterion's threshold the test prints the figure and asserts what they do reach.

use cbtop::tuner::calibrate::gain;
use cbtop::tuner::features::{DIM, PREDICTORS, TunerFeatures};
use cbtop::tuner::learn::brick_tuner::BrickTuner;
use cbtop::tuner::learn::evaluate::Method;
use cbtop::tuner::learn::examples::{bottleneck_examples, kernel_examples, kernel_groups};
use cbtop::tuner::learn::forest::{ForestOptions, KernelForest};
use cbtop::tuner::learn::gbt::GbtOptions;
use cbtop::tuner::learn::logistic::{BottleneckModel, CLASSES};
use cbtop::tuner::learn::metrics::{self, ClassReport};
use cbtop::tuner::learn::online::{Learned, OnlineTuner};
use cbtop::tuner::learn::rates::Rates;
use cbtop::tuner::learn::split::{By, k_fold};
use cbtop::tuner::learn::throughput::TrainOptions;
use cbtop::tuner::run::{Run, Trial};
use cbtop::tuner::store::{dataset, quality};
use ndarray::{Array2, ArrayView1};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

/// Rows of a kind that figures are measured on; fewer say nothing.
const ENOUGH: usize = 60;

static RUNS: LazyLock<Vec<Run>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/runs");
    let mut runs = dataset::read(&folder).expect("the committed runs");
    let verdicts = quality::judge(&runs);
    let mut verdicts = verdicts.iter();
    runs.retain(|_| verdicts.next().is_some_and(quality::Verdict::accepted));
    runs
});

fn all() -> Vec<&'static Run> {
    RUNS.iter().collect()
}

/// Trees enough to tell a figure, few enough for a test.
fn quick() -> TrainOptions {
    TrainOptions {
        folds: 3,
        gbt: GbtOptions {
            trees: 60,
            bins: 64,
            ..GbtOptions::default()
        },
        ..TrainOptions::default()
    }
}

fn trained(runs: &[&Run]) -> BrickTuner {
    let fitted = Method::GradientBoosting
        .train(runs, &quick())
        .expect("runs");
    BrickTuner {
        rates: Rates::Learned(Method::GradientBoosting, fitted),
        ..BrickTuner::cold_start()
    }
}

static KERNELS: LazyLock<Option<(ClassReport, f64)>> = LazyLock::new(|| {
    let groups = kernel_groups(&all());
    let examples = kernel_examples(&groups);
    println!(
        "kernel classes: {:?} {:?}",
        examples.classes,
        examples.counts()
    );
    if examples.rows().len() < ENOUGH {
        println!(
            "{} trials ran with several kernels, {ENOUGH} are needed",
            groups.len()
        );
        return None;
    }
    let options = ForestOptions::default();
    let grown = KernelForest::train(examples.classes.clone(), &examples.rows(), &options).ok()?;
    let commonest = examples.counts().into_iter().max().unwrap_or(0);
    let guess = commonest as f64 / examples.rows().len() as f64;
    Some((
        metrics::report(&grown.held_out, examples.classes.len()),
        guess,
    ))
});

#[test]
fn f003_f004_f009_kernels_on_held_out_groups() {
    let Some((r, guess)) = &*KERNELS else { return };
    println!(
        "F003: kernel accuracy {:.3} (threshold 0.80; always the commonest: {guess:.3}); F004: top 3 {:.3} (0.95); F009: ECE {:.3} (0.1)",
        r.accuracy, r.top3, r.ece
    );
    assert!(r.accuracy > 0.5 && r.top3 >= r.accuracy, "{r:?}");
    assert!(r.ece < 0.2, "{r:?}");
}

static BOTTLENECKS: LazyLock<Option<ClassReport>> = LazyLock::new(|| {
    let examples = bottleneck_examples(&all());
    println!("bottleneck classes: {CLASSES:?} {:?}", examples.counts());
    if examples.rows().len() < ENOUGH {
        println!(
            "{} runs were timed by brick, {ENOUGH} are needed",
            examples.rows().len()
        );
        return None;
    }
    let fitted = BottleneckModel::train(&examples.rows()).ok()?;
    Some(metrics::report(&fitted.held_out, CLASSES.len()))
});

#[test]
fn f005_f006_f007_f008_bottlenecks_on_held_out_groups() {
    let Some(r) = &*BOTTLENECKS else { return };
    let total: usize = r.classes.iter().map(|c| c.count).sum();
    for (name, c) in CLASSES.iter().zip(&r.classes) {
        println!(
            "{name}: F008 share {:.3} (0.05), F005 precision {:?} (0.85), F006 recall {:?} (0.85), F007 F1 {:.3} (0.85)",
            c.count as f64 / total as f64,
            c.precision,
            c.recall,
            c.f1()
        );
    }
    println!("accuracy {:.3}, ECE {:.3}", r.accuracy, r.ece);
    assert!(r.accuracy > 0.6, "{r:?}");
}

#[test]
fn f011_f065_f288_the_embedded_model_is_whole_and_small() {
    let bytes = BrickTuner::embedded();
    println!("F011, F288: {} bytes (5,000,000)", bytes.len());
    assert!(bytes.len() < 5_000_000);
    let model = BrickTuner::from_bytes(bytes).expect("whole");
    assert_eq!(&model, BrickTuner::pretrained());
    assert_ne!(model.title(), "none");
    assert_eq!(model.caveats, Vec::<String>::new());
    assert_eq!(model.to_bytes().expect("written"), bytes);
}

#[test]
fn f012_the_three_models_agree() {
    let model = BrickTuner::pretrained();
    let local = all().into_iter().filter(|r| r.shares.is_some());
    let votes: Vec<bool> = local.filter_map(|r| model.agrees(&r.trial)).collect();
    if votes.is_empty() {
        println!("F012: the embedded model lacks a classifier");
        return;
    }
    let share = votes.iter().filter(|v| **v).count() as f64 / votes.len() as f64;
    println!(
        "F012: the models agree on {share:.3} of {} trials (0.70)",
        votes.len()
    );
    assert!(share > 0.2);
}

#[test]
fn f068_f069_features_are_ndarrays_vectors_and_matrices() {
    let rows: Vec<TunerFeatures> = all()
        .iter()
        .take(10)
        .map(|r| TunerFeatures::of(&r.trial, None))
        .collect();
    let vector = ArrayView1::from(rows[0].as_slice().as_slice());
    assert_eq!(vector.len(), DIM);
    let flat: Vec<f32> = rows.iter().flat_map(|r| r.predictors().to_vec()).collect();
    let matrix = Array2::from_shape_vec((rows.len(), PREDICTORS), flat).expect("a matrix");
    assert_eq!(matrix.row(0).to_vec(), rows[0].predictors());
}

#[test]
fn f071_f072_one_question_has_one_answer() {
    for run in all().iter().step_by(37) {
        let features = || TunerFeatures::of(&run.trial, None);
        assert_eq!(features(), features());
        let answer = || BrickTuner::pretrained().predict(&run.trial, None);
        assert_eq!(answer(), answer());
    }
}

#[test]
fn f086_unlike_questions_are_told_and_most_others_are_not() {
    let model = BrickTuner::pretrained();
    let told = |t: &Trial| !model.predict(t, None).warnings.is_empty();
    let known = all().iter().filter(|r| told(&r.trial)).count();
    println!(
        "F086: {known} of {} known runs are called unlike",
        RUNS.len()
    );
    assert!(known * 50 < RUNS.len());
    let mut far = RUNS[0].trial.clone();
    far.hardware.mem_gbps = Some(9000.0);
    far.hardware.gflops = Some(9e6);
    far.model.params = 5e5;
    far.model.weight_bytes = 5e5;
    far.test.batch = 256;
    assert!(told(&far));
}

/// Runs of the machine that most runs are of, in an order that mixes models and tests.
fn stream() -> (String, Vec<&'static Run>) {
    let mut of: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
    for run in all() {
        of.entry(&run.trial.hardware.fingerprint)
            .or_default()
            .push(run);
    }
    let (machine, mut runs) = of
        .into_iter()
        .max_by_key(|(_, runs)| runs.len())
        .expect("runs");
    let mixed = |r: &Run| {
        r.trial.key().bytes().fold(7u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    runs.sort_by_key(|r| mixed(r));
    (machine.to_owned(), runs)
}

/// A model that has seen no run of a machine.
fn without(machine: &str) -> BrickTuner {
    let others: Vec<&Run> = all()
        .into_iter()
        .filter(|r| r.trial.hardware.fingerprint != machine)
        .collect();
    trained(&others)
}

fn error(model: &BrickTuner, runs: &[&Run]) -> f64 {
    let one = |r: &&Run| model.rate(&r.trial).map(|p| (p / r.tok_s).ln().abs());
    let errors: Vec<f64> = runs.iter().filter_map(one).collect();
    errors.iter().sum::<f64>() / errors.len().max(1) as f64
}

static STREAM: LazyLock<(String, Vec<&'static Run>, BrickTuner)> = LazyLock::new(|| {
    let (machine, runs) = stream();
    let model = without(&machine);
    (machine, runs, model)
});

#[test]
fn f284_f294_errors_fall_over_a_thousand_runs_and_do_not_swing() {
    let (machine, runs, model) = &*STREAM;
    let mut online = OnlineTuner::new(model.clone(), machine, &[]);
    let fixed: Vec<&Run> = runs
        .iter()
        .step_by(runs.len().div_ceil(20))
        .copied()
        .collect();
    let (mut errors, mut watched) = (Vec::new(), Vec::new());
    for run in runs.iter().cycle().take(1000) {
        let predicted = online.tuner().rate(&run.trial).expect("a rate");
        errors.push((predicted / run.tok_s).ln().abs());
        if matches!(online.observe(run), Learned::Updated { .. }) {
            let rates = fixed
                .iter()
                .map(|r| online.tuner().rate(&r.trial).expect("a rate").ln());
            watched.push(rates.collect::<Vec<f64>>());
        }
    }
    let mean = |e: &[f64]| e.iter().sum::<f64>() / e.len() as f64;
    let (first, last) = (mean(&errors[..100]), mean(&errors[900..]));
    println!(
        "F284: mean log error of the first 100 of 1000 runs {first:.3}, of the last 100 {last:.3}"
    );
    assert!(last < first, "{first} {last}");
    let steps: Vec<f64> = watched
        .windows(2)
        .map(|w| {
            w[0].iter()
                .zip(&w[1])
                .map(|(a, b)| (a - b).abs())
                .fold(0.0, f64::max)
        })
        .collect();
    let late = &steps[steps.len() * 3 / 4..];
    let largest = late.iter().copied().fold(0.0, f64::max);
    println!(
        "F294: largest change of a fixed prediction by one of the last {} updates: {largest:.4}",
        late.len()
    );
    assert!(largest < 0.05, "{largest}");
}

#[test]
fn f285_learning_one_model_does_not_forget_another() {
    let (machine, runs, model) = &*STREAM;
    let kind = |r: &Run| (r.trial.model.name.clone(), r.trial.test.is_decode());
    let mut kinds: BTreeMap<_, Vec<&Run>> = BTreeMap::new();
    runs.iter()
        .for_each(|r| kinds.entry(kind(r)).or_default().push(r));
    let mut kinds: Vec<Vec<&Run>> = kinds.into_values().filter(|k| k.len() >= 16).collect();
    kinds.sort_by_key(|k| std::cmp::Reverse(k.len()));
    let mut online = OnlineTuner::new(model.clone(), machine, &[]);
    let mut learned: Vec<(Vec<&Run>, f64)> = Vec::new();
    for task in kinds.into_iter().take(4) {
        for run in &task {
            online.observe(run);
        }
        let error = error(online.tuner(), &task);
        learned.push((task, error));
    }
    let mut worst = 0.0f64;
    for (task, was) in &learned[..learned.len() - 1] {
        let is = error(online.tuner(), task);
        println!("F285: log error of a task {was:.4} when learned, {is:.4} after the others");
        worst = worst.max((is - 0.002) / was - 1.0);
    }
    println!(
        "F285: an old task became worse by {:.1}% at most (5%)",
        worst * 100.0
    );
    assert!(worst < 0.05, "{worst}");
}

#[test]
fn f283_what_calibration_brings_on_runs_held_out() {
    let (machine, runs, model) = &*STREAM;
    let runs: Vec<Run> = runs.iter().map(|r| (*r).clone()).collect();
    let gain = gain(model, &runs).expect("runs of this machine");
    println!(
        "F283: {machine}, {} runs learned from, {} held out: median error {:.3} -> {:.3}, mean {:.3} -> {:.3} (5%)",
        gain.learned,
        gain.held_out,
        gain.median_before,
        gain.median_after,
        gain.mean_before,
        gain.mean_after
    );
    assert!(gain.median_after < gain.median_before * 0.95, "{gain:?}");
}

#[test]
fn f291_fewer_than_fifty_runs_fit_a_new_machine() {
    let (_, runs, model) = &*STREAM;
    let n = 40.min(runs.len() / 2);
    let (few, rest) = runs.split_at(n);
    let Some(fitted) = model.transfer(few) else {
        println!("F291: nothing does better than the model as it is");
        return;
    };
    let (before, after) = (error(model, rest), error(&fitted, rest));
    println!(
        "F291: log error on {} other runs: {before:.3} before, {after:.3} after {n} runs",
        rest.len()
    );
    assert!(after < before, "{before} {after}");
}

/// Rates of what is chosen among the measured configurations of one model and test.
struct Choice {
    /// By the rule of thumb.
    usual: f64,
    /// The fastest measured.
    best: f64,
    /// What the model foretells to be fastest, and by how much it foretells it to be faster than the rule of thumb's.
    ours: f64,
    promised: f64,
}

impl Choice {
    /// The rate if the rule of thumb is left only for what promises at least so much.
    fn at(&self, margin: f64) -> f64 {
        if self.promised > 1.0 + margin {
            self.ours
        } else {
            self.usual
        }
    }
}

/// For every model and test of this program's own runs: the measured rate of the configuration that a model which has not
/// seen this model says is fastest, and that of the configuration the engine has by itself.
fn choices() -> Vec<Choice> {
    let own: Vec<&Run> = all()
        .into_iter()
        .filter(|r| r.trial.backend.starts_with("cbtop"))
        .collect();
    let mut out = Vec::new();
    for fold in k_fold(&own, By::Model, 5, 1) {
        let (train, test) = fold.parts(&own);
        if train.len() < ENOUGH || test.is_empty() {
            continue;
        }
        let model = trained(&train);
        let mut groups: BTreeMap<String, Vec<&Run>> = BTreeMap::new();
        for run in test {
            let key = format!(
                "{} {} {}",
                run.trial.model.name, run.trial.model.quant, run.trial.test
            );
            groups.entry(key).or_default().push(run);
        }
        for runs in groups.into_values().filter(|g| g.len() >= 4) {
            let fastest = |a: &&&Run, b: &&&Run| a.tok_s.total_cmp(&b.tok_s);
            let foretold = |r: &Run| model.rate(&r.trial).unwrap_or(0.0);
            let ours = runs
                .iter()
                .max_by(|a, b| foretold(a).total_cmp(&foretold(b)));
            let usual = runs.iter().filter(|r| is_usual(&r.trial)).max_by(fastest);
            let best = runs.iter().max_by(fastest);
            if let (Some(ours), Some(usual), Some(best)) = (ours, usual, best) {
                out.push(Choice {
                    usual: usual.tok_s,
                    best: best.tok_s,
                    ours: ours.tok_s,
                    promised: foretold(ours) / foretold(usual),
                });
            }
        }
    }
    out
}

/// Whether a trial is what the rule of thumb would set: a thread for every core, the widest kernels, all else untouched.
fn is_usual(trial: &Trial) -> bool {
    let is = |knob, value: &str| trial.setting(knob).is_none_or(|v| v == value);
    let cores = trial.hardware.cores.unwrap_or(1).to_string();
    is("threads", &cores)
        && is("backend", "avx512")
        && is("kernels-for", "none")
        && is("pin", "off")
        && is("schedule", "dynamic")
        && is("waiting", "auto")
        && is("prefetch", "4096")
        && is("attention", "shared")
        && is("kv-type", "f16")
}

#[test]
fn f280_f281_choices_of_the_model_against_the_rule_of_thumb() {
    let choices = choices();
    if choices.len() < 10 {
        println!(
            "F280, F281: {} groups of own runs with the usual setting among them, 10 are needed",
            choices.len()
        );
        return;
    }
    let n = choices.len() as f64;
    let lift = |rate: &dyn Fn(&Choice) -> f64| {
        let sum: f64 = choices.iter().map(|c| (rate(c) / c.usual).ln()).sum();
        (sum / n).exp_m1()
    };
    let best = lift(&|c| c.best);
    println!(
        "F280, F281: {n} groups; the fastest measured configuration is {:+.1}% over the rule of thumb",
        best * 100.0
    );
    for margin in [0.0, 0.02, 0.05, 0.1, 0.2, 0.3] {
        let worse = choices
            .iter()
            .filter(|c| c.at(margin) < c.usual * 0.98)
            .count();
        println!(
            "changed where at least {:.0}% is foretold: F280 lift {:+.2}% (10%), F281 slower in {:.1}% (1%)",
            margin * 100.0,
            lift(&|c| c.at(margin)) * 100.0,
            worse as f64 / n * 100.0
        );
    }
    assert!(lift(&|c| c.at(0.0)) > -0.1 && best >= 0.0);
}

#[test]
fn f074_gpu_memory() {
    println!(
        "F074: not measurable here: the models run on the CPU alone, no GPU memory is used, and this machine has no GPU"
    );
}

#[test]
fn f097_several_gpus() {
    println!(
        "F097: not measurable here: the engine runs on one machine's CPUs; public rows of several cards are learned from as hardware of their own"
    );
}

#[test]
fn f098_wasm() {
    println!(
        "F098: not measurable here: there is no WASM runtime, and the program needs threads, mmap and a terminal"
    );
}

#[test]
fn f099_arm() {
    println!(
        "F099: not measurable here: this machine is x86-64; tests/check-aarch64.sh compiles the crate for it"
    );
}
