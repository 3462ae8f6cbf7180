//! `cbtop --recommend --headless`, profiles, and what is refused about them.

use cbtop::engine::knobs::{Setup, knob};
use cbtop::engine::{Config, SyncMode};
use cbtop::gguf::LoadOptions;
use cbtop::headless::recommend::RecommendReport;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// Runs cbtop with data of its own, so that no other run's store is read or written.
fn cbtop(data: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cbtop"))
        .args(args)
        .env("XDG_DATA_HOME", data)
        .env_remove("CBTOP_RUNS")
        .output()
        .expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn good(data: &Path, args: &[&str]) -> Output {
    let done = cbtop(data, args);
    assert_eq!(
        done.status.code(),
        Some(0),
        "{args:?}: {}",
        text(&done.stderr)
    );
    done
}

fn report(done: &Output) -> RecommendReport {
    serde_json::from_slice(&done.stdout).expect("a report")
}

const SAY: [&str; 9] = [
    "--recommend",
    "--headless",
    "--format",
    "json",
    "-n",
    "40",
    "-t",
    "1",
    "--no-store",
];

#[test]
fn f062_cbtop_says_what_to_change_without_a_terminal() {
    let data = tempfile::tempdir().expect("a folder");
    let said = report(&good(data.path(), &SAY));
    let tuner = said.tuner.expect("models");
    assert!(said.tok_s.is_some_and(|r| r > 0.0) && !tuner.says.is_empty());
    assert_eq!(said.explicit, ["threads"]);
    let args = ["--recommend", "--headless", "-n", "40", "--no-store"];
    let said = text(&good(data.path(), &args).stdout);
    assert!(
        said.contains("current ") && said.contains("predicted "),
        "{said}"
    );
    // Nothing was measured, nothing is kept.
    assert_eq!(std::fs::read_dir(data.path()).expect("a folder").count(), 0);
}

#[test]
fn f066_recommendations_are_as_their_schema_says() {
    let schema = include_str!("../docs/src/recommend.schema.json");
    let schema: Value = serde_json::from_str(schema).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let data = tempfile::tempdir().expect("a folder");
    let deterministic = [
        "--recommend",
        "--headless",
        "--format",
        "json",
        "--deterministic",
    ];
    for args in [&SAY[..], &deterministic] {
        let done = good(data.path(), args);
        let value: Value = serde_json::from_slice(&done.stdout).expect("JSON");
        let errors: Vec<String> = validator
            .iter_errors(&value)
            .map(|e| e.to_string())
            .collect();
        assert!(errors.is_empty(), "{args:?}: {errors:?}");
    }
    // With modelled time there is no tuner to depend on.
    assert!(report(&good(data.path(), &deterministic)).tuner.is_none());
}

#[test]
fn f067_recommendations_are_changes_that_can_be_made() {
    let data = tempfile::tempdir().expect("a folder");
    let said = report(&good(data.path(), &SAY));
    let base = Setup {
        config: Config::for_context(512),
        load: LoadOptions::default(),
        sync_mode: SyncMode::Deferred,
    };
    let setup = base.with(&said.setup).expect("the setup can run");
    for r in said.recommendations.iter().filter(|r| r.applicable) {
        assert!(!r.change.is_empty(), "{r:?}");
        let changed = setup.with(&r.change).expect("it can be made");
        assert_ne!(changed, setup);
        for s in &r.change {
            let knob = knob(&s.knob).expect("a knob");
            assert_eq!((knob.get)(&changed), s.value);
        }
    }
}

#[test]
fn what_is_saved_is_loaded_and_flags_go_first() {
    let data = tempfile::tempdir().expect("a folder");
    let path = data.path().join("fast.toml");
    let path = path.to_str().expect("text");
    let mut args = vec!["--prefetch", "1024", "--waiting", "sleep", "--save", path];
    args.extend(SAY);
    let done = good(data.path(), &args);
    let told = text(&done.stderr);
    assert!(
        told.contains("--threads 1 ") && told.contains("prefetch 1024"),
        "{told}"
    );
    let load = |more: &[&str]| {
        let mut args = vec![
            "--recommend",
            "--headless",
            "--format",
            "json",
            "-n",
            "2",
            "--profile",
            path,
        ];
        args.extend(more);
        let said = report(&good(data.path(), &args));
        let value = |name: &str| {
            let s = said.setup.iter().find(|s| s.knob == name);
            s.expect("a knob").value.clone()
        };
        ["threads", "prefetch", "waiting"].map(value)
    };
    assert_eq!(load(&[]), ["1", "1024", "sleep"]);
    assert_eq!(load(&["--prefetch", "0"]), ["1", "0", "sleep"]);
    good(
        data.path(),
        &["run", "-p", "The", "-n", "2", "--profile", path],
    );
}

#[test]
fn what_cannot_be_loaded_or_written_is_told_in_a_line() {
    let data = tempfile::tempdir().expect("a folder");
    let path = data.path().join("notes.toml");
    std::fs::write(&path, "version = 1\n[settings]\nspeed = 9\n").expect("written");
    let path = path.to_str().expect("text");
    let mut save = vec!["--save", path];
    save.extend(SAY);
    for (args, what) in [
        (vec!["--headless", "--profile", path], "no knob 'speed'"),
        (vec!["--headless", "--profile", "/nowhere"], "/nowhere"),
        (save, "--force"),
    ] {
        let done = cbtop(data.path(), &args);
        let told = text(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{told}");
        assert!(told.contains(what) && told.lines().count() == 1, "{told}");
        assert!(done.stdout.is_empty());
    }
    let done = cbtop(data.path(), &["--apply"]);
    assert_eq!(done.status.code(), Some(2));
}
