//! The program's commands as a user runs them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models/llama.Q4_K_M.gguf")
}

fn cbtop(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cbtop"));
    command.args(args).stdin(Stdio::null());
    command
}

fn output(args: &[&str]) -> Output {
    cbtop(args).output().expect("runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn bench_takes_llama_benchs_flags() {
    let model = model();
    let model = model.to_str().expect("UTF-8");
    let done = output(&[
        "bench", "-m", model, "-p", "8", "-n", "2,4", "-pg", "4,2", "-t", "1-2", "-r", "2", "-ub",
        "4", "-o", "md",
    ]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let table = text(&done.stdout);
    assert!(table.starts_with("| model "), "{table}");
    for test in [" pp8 |", " tg2 |", " tg4 |", " pp4+tg2 |"] {
        assert_eq!(table.matches(test).count(), 2, "{table}");
    }
}

#[test]
fn a_closed_output_ends_quietly() {
    let model = model();
    let model = model.to_str().expect("UTF-8");
    for args in [
        &["inspect", model][..],
        &["inspect", "--json", model],
        &[
            "bench", "-m", model, "-p", "4", "-n", "1-20", "-t", "1", "-r", "1",
        ],
    ] {
        let mut child = cbtop(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("runs");
        drop(child.stdout.take());
        let done = child.wait_with_output().expect("ends");
        assert_eq!(done.status.code(), Some(0), "{args:?}");
        assert_eq!(text(&done.stderr), "", "{args:?}");
    }
}

#[test]
fn bad_input_is_one_clear_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let garbage = folder.path().join("garbage.gguf");
    std::fs::write(&garbage, b"GGUF\x03\0\0\0 and then nothing of the kind").expect("written");
    let model = model();
    let model = model.to_str().expect("UTF-8");
    let garbage = garbage.to_str().expect("UTF-8");
    for args in [
        &["inspect", "/nowhere/model.gguf"][..],
        &["inspect", folder.path().to_str().expect("UTF-8")],
        &["inspect", garbage],
        &["inspect", model, "--ctx", "0"],
        &["bench", "-m", garbage],
        &["bench", "-m", "/nowhere/model.gguf"],
        &["bench", "-m", model, "-t", "0"],
        &["bench", "-m", model, "-t", "10000"],
        &["bench", "-m", model, "-p", "0", "-n", "0"],
        &["bench", "-m", model, "-n", "99999999999"],
        &["bench", "-m", model, "-p", "", "-n", "1"],
        &["bench", "-m", model, "--backend", "abacus"],
    ] {
        let done = output(args);
        let error = text(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{args:?}: {error}");
        assert_eq!(text(&done.stdout), "", "{args:?}");
        assert!(
            !error.contains("panicked") && !error.trim().is_empty(),
            "{args:?}: {error}"
        );
    }
}

#[test]
fn a_file_that_cannot_run_is_described() {
    let Some(shared) = common::shared() else {
        return;
    };
    for (file, why) in [("vocab/ggml-vocab-gpt-2.gguf", "vocabulary")] {
        let done = output(&["inspect", shared.join(file).to_str().expect("UTF-8")]);
        assert_eq!(done.status.code(), Some(0));
        let out = text(&done.stdout);
        let reason = out
            .lines()
            .find(|l| l.starts_with("  cannot run"))
            .expect("a reason");
        assert!(reason.contains(why), "{reason}");
    }
}

mod common;
