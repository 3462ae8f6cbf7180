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
    let file = shared.join("vocab/ggml-vocab-gpt-2.gguf");
    let done = output(&["inspect", file.to_str().expect("UTF-8")]);
    assert_eq!(done.status.code(), Some(0));
    let out = text(&done.stdout);
    let reason = out
        .lines()
        .find(|l| l.starts_with("  cannot run"))
        .expect("a reason");
    assert!(reason.contains("vocabulary"), "{reason}");
}

mod common;

#[test]
fn a_ring_goes_on_beyond_the_context() {
    let model = model();
    let model = model.to_str().expect("UTF-8");
    let report = |more: &[&str]| {
        let mut args = vec!["-m", model, "--headless", "--format", "json", "-p", "The"];
        args.extend(["-n", "40", "-c", "16", "--deterministic"]);
        args.extend(more);
        let done = output(&args);
        assert!(done.status.success(), "{}", text(&done.stderr));
        serde_json::from_slice::<serde_json::Value>(&done.stdout).expect("JSON")
    };
    let stopped = report(&[]);
    assert_eq!(stopped["snapshot"]["engine"]["n_ctx"], 16);
    for kv in ["f16", "f32", "q8_0"] {
        let ring = report(&["--overflow", "ring", "--keep", "2", "--kv-type", kv]);
        let s = &ring["snapshot"];
        assert_eq!(s["engine"]["kv_type"], kv);
        assert_eq!(s["context_used"], 16);
        assert_eq!(s["memory"]["kv_used_bytes"], s["memory"]["kv_bytes"]);
        assert!(
            s["tokens"].as_array().map(Vec::len)
                > stopped["snapshot"]["tokens"].as_array().map(Vec::len),
            "{s}"
        );
    }
    let refused = |args: &[&str], word: &str| {
        let done = output(&[&["run", "-m", model, "-p", "The"], args].concat());
        assert_eq!(done.status.code(), Some(2));
        let error = text(&done.stderr);
        assert!(error.contains(word), "{error}");
    };
    refused(&["--keep", "2"], "--overflow ring");
    refused(&["--overflow", "round"], "round");
    refused(
        &["-c", "16", "--overflow", "ring", "--keep", "16"],
        "--chunk",
    );
}

#[test]
fn memory_is_forecast_for_every_cache_type() {
    let model = model();
    let model = model.to_str().expect("UTF-8");
    let kv_bytes = |ty: &str| {
        let done = output(&["inspect", model, "--json", "--kv-type", ty]);
        let json: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
        json["memory"]["kv_bytes"].as_u64().expect("bytes")
    };
    assert_eq!(kv_bytes("f32"), 2 * kv_bytes("f16"));
    assert_eq!(kv_bytes("q8_0") * 32, kv_bytes("f32") / 4 * 34);
}
