//! `cbtop oracle`, `cbtop brick-tune`, `cbtop calibrate` and `cbtop tune run` as a user starts them.

use cbtop::tuner::learn::brick_tuner::BrickTuner;
use cbtop::tuner::run::Origin;
use cbtop::tuner::store::Store;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn cbtop(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cbtop"))
        .args(args)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .output()
        .expect("runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn utf8(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A report of a short run of the demo, with real times.
fn report(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("profile.json");
    let done = cbtop(&[
        "--headless",
        "--format",
        "json",
        "-n",
        "16",
        "--pace",
        "0",
        "--out",
        utf8(&path),
    ]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    path
}

#[test]
fn f063_the_oracle_answers_for_hardware_that_is_not_here() {
    let args = [
        "oracle",
        "--hardware",
        "rtx4090",
        "--batch",
        "1,4",
        "-o",
        "json",
    ];
    let done = cbtop(&args);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let json: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!(json["hardware"]["name"], "RTX 4090");
    let rows = json["rows"].as_array().expect("rows");
    assert!(rows.iter().any(|r| r["front"] == true));
    for r in rows {
        let rate = &r["tok_s"];
        let [low, mid, high] = ["low", "mid", "high"].map(|k| rate[k].as_f64().expect("a rate"));
        assert!(0.0 <= low && low <= mid && mid <= high, "{r}");
        assert_eq!(r["fits"], true);
    }
    let table = cbtop(&["oracle", "--hardware", "rtx4090"]);
    let table = text(&table.stdout);
    assert!(table.contains("on RTX 4090 (1008 GB/s"), "{table}");
    assert!(table.contains("nothing was run"), "{table}");
}

#[test]
fn f077_unseen_hardware_is_refused_by_name_and_answered_where_figures_lack() {
    let done = cbtop(&["oracle", "--hardware", "RTX 4091"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("did you mean RTX 4090"));
    let done = cbtop(&["oracle", "--hardware", "Ryzen 7950X"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("no figures known"));
}

#[test]
fn f064_brick_tune_grades_a_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = report(folder.path());
    let done = cbtop(&["brick-tune", "--input", utf8(&path)]);
    let said = text(&done.stdout);
    assert_eq!(done.status.code(), Some(0), "{said}{}", text(&done.stderr));
    for part in [
        "Throughput prediction error",
        "Overall score",
        "Grade: ",
        "one profile shows little",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Judged: 0 where the report says that it passes, else 1.
    let done = cbtop(&["brick-tune", "--input", utf8(&path), "--validate", "--json"]);
    let json: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    println!("F064: demo on this machine: {json}");
    let expected = i32::from(json["passed"] == false);
    assert_eq!(done.status.code(), Some(expected), "{json}");
    let bad = folder.path().join("bad.json");
    std::fs::write(&bad, "{}").expect("written");
    let done = cbtop(&["brick-tune", "--input", utf8(&bad), "--validate"]);
    assert_eq!(done.status.code(), Some(2));
}

#[test]
fn recipes_are_planned_and_their_mistakes_named() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/tuner-training.yaml");
    let done = cbtop(&["tune", "run", example, "--dry-run"]);
    let said = text(&done.stdout);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(said.lines().count(), 3, "{said}");
    assert!(said.starts_with("1. collect: measure "), "{said}");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("r.yaml");
    let text_of = std::fs::read_to_string(example).expect("there");
    std::fs::write(&path, text_of.replace("warmup_runs", "warm_runs")).expect("written");
    let done = cbtop(&["tune", "run", utf8(&path)]);
    assert_eq!(done.status.code(), Some(2));
    let error = text(&done.stderr);
    assert!(
        error.contains("warm_runs") && error.contains("line "),
        "{error}"
    );
    // A stage that needs what no stage made says so.
    std::fs::write(
        &path,
        "name: a\nversion: \"1\"\nstages:\n  - name: t\n    type: ml\n    input: none.sqlite\n",
    )
    .expect("written");
    let done = cbtop(&["tune", "run", utf8(&path)]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("no such run store"));
    assert!(!folder.path().join("none.sqlite").exists());
}

/// Its time is not asserted on: the report says it, and `cbtop calibrate` on a real model is on the falsification page.
#[test]
fn f282_calibration_says_how_long_it_took_and_what_it_brought() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let (model, store) = (at("tuner.safetensors"), at("runs.sqlite"));
    let done = cbtop(&[
        "calibrate",
        "--time",
        "3",
        "--json",
        "--out",
        utf8(&model),
        "--store",
        utf8(&store),
    ]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let json: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    println!("F282: {} s for 3 s of runs", json["seconds"]);
    assert!(json["hardware"]["mem_gbps"].as_f64() > Some(0.0));
    let runs = Store::open(&store).expect("a store").runs().expect("runs");
    assert_eq!(json["runs"], runs.len());
    assert!(runs.iter().all(|r| r.origin == Origin::Calibrate));
    assert_eq!(json["fitted"], model.exists());
    if model.exists() {
        BrickTuner::load(&model).expect("a model");
    }
}
