//! `cbtop oracle`, `cbtop brick-tune`, `cbtop calibrate` and `cbtop tune run` as a user starts them.

use cbtop::engine::knobs::KNOBS;
use cbtop::session::snapshot::PeakKind;
use cbtop::session::{Loaded, Source};
use cbtop::tuner::describe::model_shape;
use cbtop::tuner::fingerprint::this_machine;
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
    assert!(said.starts_with("1. collect: sweep over "), "{said}");
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

#[test]
fn the_oracle_refuses_a_context_that_is_too_short() {
    let done = cbtop(&[
        "oracle",
        "--hardware",
        "rtx4090",
        "-p",
        "512",
        "--ctx",
        "100",
    ]);
    assert_eq!(done.status.code(), Some(2));
    let error = text(&done.stderr);
    assert!(
        error.contains("need a context of 640, --ctx is 100"),
        "{error}"
    );
    let done = cbtop(&["oracle", "--hardware", "rtx4090", "-p", "9000000"]);
    let error = text(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{error}");
    assert!(error.contains("the model's context is"), "{error}");
}

#[test]
fn a_store_that_is_not_there_is_not_made_to_learn_from() {
    let folder = tempfile::tempdir().expect("a folder");
    let typo = folder.path().join("rnus.sqlite");
    for command in ["train", "validate"] {
        let done = cbtop(&["tune", command, "--store", utf8(&typo)]);
        assert_eq!(done.status.code(), Some(2), "{command}");
        assert!(text(&done.stderr).contains("rnus.sqlite"), "{command}");
        assert!(!typo.exists(), "{command}");
    }
}

/// What `brick-tune` asks is what a session asks: the machine as it is known elsewhere, all knobs, the model's own shape.
#[test]
fn a_report_has_what_the_tuner_is_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = std::fs::read(report(folder.path())).expect("there");
    let report: cbtop::headless::Report = serde_json::from_slice(&json).expect("a report");
    let subject = report.snapshot.subject.expect("with measured time");
    let here = this_machine(None, None, None);
    assert_eq!(subject.hardware.fingerprint, here.fingerprint);
    assert_eq!(
        (subject.hardware.cores, subject.hardware.cache_mb.is_some()),
        (here.cores, here.cache_mb.is_some())
    );
    let knobs: Vec<&str> = subject.settings.iter().map(|s| s.knob.as_str()).collect();
    assert_eq!(knobs, KNOBS.iter().map(|k| k.name).collect::<Vec<_>>());
    let demo = Loaded::open(Source::Demo).expect("the demo");
    let shape = model_shape(&demo.model, &demo.name());
    assert_eq!(subject.model.head_dim, shape.head_dim);
    assert_eq!(subject.model.kv_bytes_per_token, shape.kv_bytes_per_token);
    let peaks = &report.snapshot.roofline.peaks;
    let fp32 = peaks
        .iter()
        .filter(|p| p.kind == PeakKind::Fp32)
        .map(|p| p.value);
    assert_eq!(subject.hardware.gflops, fp32.reduce(f64::max));
    // A report of an older cbtop has none: it is loaded, and refused here.
    let mut old: Value = serde_json::from_slice(&json).expect("JSON");
    old["snapshot"]
        .as_object_mut()
        .expect("fields")
        .remove("subject");
    let path = folder.path().join("old.json");
    std::fs::write(&path, old.to_string()).expect("written");
    let done = cbtop(&["brick-tune", "--input", utf8(&path)]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("make the report again"));
}

/// Its time is not asserted on: the report says it, and `cbtop calibrate` on a real model is on the falsification page.
#[test]
fn f282_calibration_says_how_long_it_took_and_what_it_brought() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let (model, store) = (at("tuner.safetensors"), at("runs.sqlite"));
    // A training that is there is what is fitted, and never lost.
    let mut trained = BrickTuner::pretrained().clone();
    trained.about.version = 41;
    trained.save(&model).expect("saved");
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
    let after = BrickTuner::load(&model).expect("a model");
    assert_eq!(after.about.version, 41);
    assert_eq!(json["fitted"], after.correction.is_some());
}
