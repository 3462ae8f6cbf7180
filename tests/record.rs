//! `cbtop record` and `cbtop replay` as a user runs them, one of them killed in the middle.

use cbtop::recording::Recording;
use cbtop::session::snapshot::RunState;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn cbtop(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cbtop"));
    command
        .args(args)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null());
    command
}

fn output(args: &[&str]) -> Output {
    cbtop(args).output().expect("runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A good run's standard output.
fn good(args: &[&str]) -> String {
    let done = output(args);
    assert_eq!(
        done.status.code(),
        Some(0),
        "{args:?}: {}",
        text(&done.stderr)
    );
    text(&done.stdout)
}

fn refused(args: &[&str], word: &str) {
    let done = output(args);
    let error = text(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{args:?}: {error}");
    assert_eq!(text(&done.stdout), "", "{args:?}");
    assert!(
        error.contains(word) && error.lines().count() == 1,
        "{args:?}: {error}"
    );
}

fn utf8(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_recorded_run_replays() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("run.cbtop");
    let file = utf8(&file);
    let run = ["--headless", "-n", "24", "--pace", "60", "--format", "json"];
    let report = good(&[&["record", file], &run[..]].concat());
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["snapshot"]["generated"], 24);

    let frame = good(&["replay", file, "--headless", "--size", "100x30"]);
    assert_eq!(frame.lines().count(), 30);
    assert!(
        frame.contains("recording") && frame.contains("finished"),
        "{frame}"
    );
    let last = good(&["replay", file, "--headless", "--format", "json"]);
    let last: serde_json::Value = serde_json::from_str(&last).expect("JSON");
    for field in ["generated", "tokens", "bricks", "model", "state"] {
        // Times in series are kept to the nanosecond; of the bricks compare what is not a series.
        let (mut a, mut b) = (
            report["snapshot"][field].clone(),
            last["snapshot"][field].clone(),
        );
        for rows in [&mut a, &mut b] {
            for row in rows.as_array_mut().into_iter().flatten() {
                row.as_object_mut().and_then(|r| r.remove("history_us"));
            }
        }
        assert_eq!(a, b, "{field}");
    }
    let first = good(&[
        "replay",
        file,
        "--headless",
        "--at",
        "0",
        "--format",
        "json",
    ]);
    let first: serde_json::Value = serde_json::from_str(&first).expect("JSON");
    assert!(first["snapshot"]["generated"].as_u64() < Some(24));
    let ascii = good(&["replay", file, "--headless", "--ascii", "--at", "0.1"]);
    assert!(ascii.is_ascii());

    refused(&["record", file, "--headless", "-n", "1"], "--force");
    good(&["record", file, "--force", "--headless", "-n", "1"]);
    let recording = Recording::open(Path::new(file)).expect("a recording");
    assert_eq!(recording.generator(), cbtop::session::GENERATOR);
}

#[cfg(unix)]
#[test]
fn what_a_killed_run_wrote_replays() {
    use std::os::unix::process::ExitStatusExt;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("killed.cbtop");
    let mut child = cbtop(&["record", utf8(&file), "--headless", "-n", "100000"])
        .args(["--loop", "--pace", "50"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    // Until there are some frames; a run that writes none fails by the test's own time limit.
    while Recording::open(&file).map_or(0, |r| r.frames()) < 6 {
        assert!(child.try_wait().expect("runs").is_none(), "ended early");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    child.kill().expect("killed");
    let status = child.wait().expect("ends");
    assert_eq!(status.signal(), Some(9));
    let mut recording = Recording::open(&file).expect("a recording");
    assert!(recording.frames() >= 6);
    let last = recording.frame(recording.frames() - 1).expect("reads");
    assert!(last.generated > 0 && last.state == RunState::Decode);

    // And with a frame that was being written.
    let whole = std::fs::read(&file).expect("reads");
    std::fs::write(&file, &whole[..whole.len() - 3]).expect("written");
    let done = output(&["replay", utf8(&file), "--headless"]);
    assert_eq!(done.status.code(), Some(0));
    assert!(text(&done.stderr).contains("not written to its end"));
    assert!(text(&done.stdout).contains("recording"));
}

#[test]
fn bad_files_are_one_clear_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    };
    let other = at("other", b"GGUF and a model");
    let newer = at("newer", b"cbtoprec\x07\0\0\0\0\0\0\0");
    let torn = at("torn", b"cbtoprec\x01\0\0\0");
    refused(&["replay", utf8(&other), "--headless"], "not a recording");
    refused(&["replay", utf8(&newer), "--headless"], "version 7");
    refused(&["replay", utf8(&torn), "--headless"], "header");
    refused(
        &["replay", utf8(folder.path()), "--headless"],
        "not a recording",
    );
    refused(
        &["replay", "/nowhere/run.cbtop", "--headless"],
        "/nowhere/run.cbtop",
    );
    refused(&["replay", utf8(&other)], "--headless");
    // What is no recording is never replaced.
    for force in [&[][..], &["--force"]] {
        let args = [&["record", utf8(&other), "--headless", "-n", "1"], force].concat();
        refused(&args, "another name");
    }
    assert_eq!(std::fs::read(&other).expect("reads"), b"GGUF and a model");
    refused(
        &["record", "/nowhere/run.cbtop", "--headless"],
        "/nowhere/run.cbtop",
    );
}
