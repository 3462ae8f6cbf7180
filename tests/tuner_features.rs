//! What the columns of a trial are worth: criteria F021 to F040.

mod tuner_common;

use cbtop::tuner::features::{DIM, PREDICTORS, TunerFeatures, names, one_hots};
use cbtop::tuner::learn::evaluate::{Method, score};
use cbtop::tuner::learn::split::By;
use cbtop::tuner::learn::stats::correlation;
use cbtop::tuner::learn::throughput::{ThroughputRegressor, TrainOptions};
use cbtop::tuner::run::{Hardware, Origin, Run};
use std::collections::BTreeSet;
use tuner_common::{data, held_out, mids_only, predict, runs};

fn rows() -> Vec<TunerFeatures> {
    let row = |r: &Run| TunerFeatures::of(&r.trial, Some(&r.into()));
    data().iter().map(row).collect()
}

/// The model's R2 of logarithms on held-out runs without some predictors.
fn without(by: By, hidden: &[&str], slope: f64) -> f64 {
    let options = TrainOptions {
        hidden: hidden.iter().map(ToString::to_string).collect(),
        slope,
        ..mids_only()
    };
    let outcomes = predict(by, Method::GradientBoosting, &options);
    score(&outcomes).and_then(|s| s.r2_log).unwrap_or(f64::NAN)
}

fn with_all(by: By) -> f64 {
    let all = score(held_out(by)).and_then(|s| s.r2_log);
    all.unwrap_or(f64::NAN)
}

const INTERACTIONS: &[&str] = &["intensity", "weights_per_cache", "threads_per_core"];
const ROOFLINE: &[&str] = &["roofline", "bytes_per_token", "intensity"];
const HARDWARE: &[&str] = &[
    "bandwidth",
    "bandwidth_known",
    "compute",
    "accelerator",
    "weights_per_cache",
    "threads_per_core",
    "roofline",
];

#[test]
fn f021_f022_f023_features_are_numbers_from_0_to_1() {
    for row in rows() {
        assert!(row.as_slice().iter().all(|v| (0.0..=1.0).contains(v)));
    }
}

#[test]
fn f024_importances_sum_to_1() {
    let model = ThroughputRegressor::train(&runs(), &mids_only()).expect("trains");
    let sum: f64 = model.importances().iter().map(|i| i.1).sum();
    assert!((sum - 1.0).abs() < 1e-9);
}

fn top(runs: &[&Run], n: usize) -> Vec<&'static str> {
    let model = ThroughputRegressor::train(runs, &mids_only()).expect("trains");
    model.importances().iter().take(n).map(|i| i.0).collect()
}

#[test]
fn f025_the_most_important_features_are_stable() {
    let all = runs();
    let tops: Vec<BTreeSet<&str>> = (0..5)
        .map(|part| {
            // Four fifths of the runs, other ones each time.
            let some = all.iter().enumerate().filter(|(i, _)| i % 5 != part);
            let some: Vec<&Run> = some.map(|(_, r)| *r).collect();
            top(&some, 5).into_iter().collect()
        })
        .collect();
    let mut shares = Vec::new();
    for (i, a) in tops.iter().enumerate() {
        shares.extend(
            tops[..i]
                .iter()
                .map(|b| a.intersection(b).count() as f64 / 5.0),
        );
    }
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    println!("F025: the five most important overlap by {mean:.2} between parts: {tops:?}");
    assert!(mean > 0.6);
}

#[test]
fn f028_hardware_is_populated() {
    type Field = (&'static str, fn(&Hardware) -> bool);
    let fields: [Field; 4] = [
        ("bandwidth", |h| h.mem_gbps.is_some()),
        ("arithmetic", |h| {
            h.gflops.is_some() || h.int8_gops.is_some()
        }),
        ("cores", |h| h.cores.is_some()),
        ("cache", |h| h.cache_mb.is_some()),
    ];
    let (here, public): (Vec<&Run>, Vec<&Run>) =
        data().iter().partition(|r| r.origin != Origin::Public);
    for (name, known) in fields {
        let share = |runs: &[&Run]| {
            let n = runs.iter().filter(|r| known(&r.trial.hardware)).count();
            n as f64 / runs.len().max(1) as f64
        };
        println!("F028: {name} known in {:.3} of public runs", share(&public));
        assert!(here.is_empty() || share(&here) == 1.0, "{name}");
    }
}

#[test]
fn f029_one_hots_sum_to_1() {
    let [programs, quants, kernels] = one_hots();
    for (run, row) in data().iter().zip(rows()) {
        let sum = |names: &[&str]| names.iter().filter_map(|n| row.get(n)).sum::<f32>();
        assert_eq!((sum(programs), sum(quants)), (1.0, 1.0));
        // Other programs do not tell which kernels they run.
        let told = run.trial.setting("backend").is_some();
        assert_eq!(sum(kernels), f32::from(told));
    }
}

#[test]
fn f030_features_are_not_the_same_thing_twice() {
    let rows = rows();
    let column =
        |c: usize| -> Vec<f64> { rows.iter().map(|r| f64::from(r.as_slice()[c])).collect() };
    let columns: Vec<Vec<f64>> = (0..PREDICTORS).map(column).collect();
    let mut twins = Vec::new();
    for a in 0..PREDICTORS {
        for b in 0..a {
            if let Some(r) = correlation(&columns[a], &columns[b])
                && r.abs() >= 0.95
            {
                twins.push((names()[b], names()[a], (r * 1000.0).round() / 1000.0));
            }
        }
    }
    println!("F030: pairs that correlate by 0.95 or more: {twins:?}");
    // One machine gave three quarters of the rows: what tells it from all others, tells it everywhere.
    assert!(twins.len() <= 20);
}

#[test]
fn f031_logarithms_of_parameters_explain_more() {
    let decode: Vec<&Run> = data().iter().filter(|r| r.trial.test.is_decode()).collect();
    let rate: Vec<f64> = decode.iter().map(|r| r.tok_s.ln()).collect();
    let params: Vec<f64> = decode.iter().map(|r| r.trial.model.params).collect();
    let logs: Vec<f64> = params.iter().map(|p| p.ln()).collect();
    let r2 = |x: &[f64]| correlation(x, &rate).map_or(0.0, |r| r * r);
    println!(
        "F031: R2 of a line over parameters {:.3}, over their logarithm {:.3}",
        r2(&params),
        r2(&logs)
    );
    assert!(r2(&logs) > r2(&params));
}

#[test]
fn f032_f033_f039_what_derived_features_bring() {
    let all = with_all(By::New);
    let interactions = all - without(By::New, INTERACTIONS, TrainOptions::default().slope);
    let roofline = all - without(By::New, ROOFLINE, 0.0);
    let derived = all - without(By::New, &[INTERACTIONS, ROOFLINE].concat(), 0.0);
    println!(
        "F032: interactions bring {interactions:.4} of R2, F033: the roofline {roofline:.4}, F039: both {derived:.4}"
    );
    assert!(derived > 0.0);
}

#[test]
fn f034_what_hardware_features_bring() {
    let hardware = with_all(By::New) - without(By::New, HARDWARE, 0.0);
    println!("F034: hardware brings {hardware:.4} of R2");
    assert!(hardware > 0.0);
}

#[test]
fn f035_what_the_kernel_brings() {
    let kernels = one_hots()[2];
    let told = |r: &Run| r.trial.setting("backend").is_some();
    if !data().iter().any(told) {
        println!("F035: not measurable here: no run tells its kernels");
        return;
    }
    let options = TrainOptions {
        hidden: kernels.iter().map(ToString::to_string).collect(),
        ..mids_only()
    };
    let of = |o: &[Vec<_>]| score(&tuner_common::only(o, told)).map_or(f64::NAN, |s| s.mape);
    let with = of(held_out(By::Trial));
    let without = of(&predict(By::Trial, Method::GradientBoosting, &options));
    println!(
        "F035: mean error of runs that tell their kernels {with:.3}, without the columns {without:.3}"
    );
    assert!(without > with);
}

#[test]
fn f036_f037_f038_what_matters_most() {
    let order = top(&runs(), PREDICTORS);
    let rank = |name: &str| order.iter().position(|n| *n == name).map(|i| i + 1);
    println!(
        "F036: batch is {:?}; F037: bandwidth {:?}; F038: parameters {:?}, bytes a token {:?}; first: {:?}",
        rank("batch"),
        rank("bandwidth"),
        rank("params"),
        rank("bytes_per_token"),
        &order[..8]
    );
    assert!(rank("params").min(rank("bytes_per_token")) <= Some(10));
}

#[test]
fn f040_dimension_is_at_most_50() {
    println!("F040: {DIM} columns, {PREDICTORS} of them to predict rates from");
    assert!(DIM <= 50 && names().len() == DIM);
}
