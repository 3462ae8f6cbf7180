//! How a file is loaded changes speed and memory, never results; what it took is told.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models/llama.Q4_K_M.gguf")
}

fn run(command: &str, model: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cbtop"))
        .args(command.split_whitespace())
        .arg("-m")
        .arg(model)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_way_to_load_gives_the_same_logits() {
    let eval = |args: &[&str]| {
        let output = run("eval --ids 1,2,3 --logits -t 1", &model(), args);
        assert!(output.status.success(), "{}", text(&output.stderr));
        output.stdout
    };
    let mapped = eval(&[]);
    for args in [
        &["--load", "mmap", "--load-advice", "none"][..],
        &["--load-advice", "populate"],
        &["--load-advice", "sequential"],
        &["--load-advice", "random"],
        &["--load", "read"],
        &["--load", "read", "--huge-pages"],
        &["--load", "direct"],
        &["--load", "direct", "--huge-pages"],
        &["--prefetch", "0"],
        &["--prefetch", "1024:none"],
        &["--prefetch", "64:low"],
    ] {
        assert_eq!(eval(args), mapped, "{args:?}");
    }
}

#[test]
fn choices_that_contradict_are_refused() {
    for (args, why) in [
        (&["--huge-pages"][..], "needs --load read or direct"),
        (
            &["--load", "read", "--load-advice", "none"],
            "give one of them",
        ),
        (&["--load", "fast"], "these do: mmap, read, direct"),
        (
            &["--load-advice", "fast"],
            "these do: none, willneed, populate, sequential, random",
        ),
        (&["--prefetch", "far"], "4096:low"),
        (&["--prefetch", "100"], "a multiple of 64"),
    ] {
        for command in ["run -p a", "bench -p 1 -n 0", "--headless"] {
            let output = run(command, &model(), args);
            assert_eq!(output.status.code(), Some(2), "{command} {args:?}");
            let message = text(&output.stderr);
            assert!(message.contains(why), "{command} {args:?}: {message}");
        }
    }
}

#[test]
fn statistics_go_to_standard_error_and_change_nothing() {
    let plain = run("run -p hello -n 3 -t 1", &model(), &[]);
    let told = run("run -p hello -n 3 -t 1 --stats --load read", &model(), &[]);
    assert!(plain.status.success() && told.status.success());
    assert_eq!(plain.stdout, told.stdout);
    assert_eq!(text(&plain.stderr), "");
    let message = text(&told.stderr);
    assert_eq!(message.lines().count(), 3, "{message}");
    for part in [
        "load ",
        "(read)",
        "first token after",
        "prompt ",
        "resident ",
        "weights",
        "page faults",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

fn report(model: &Path, args: &[&str]) -> serde_json::Value {
    let output = run("--headless --format json -t 1 -n 4", model, args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    report["snapshot"].clone()
}

#[test]
fn f159_the_report_tells_the_phases() {
    let s = report(&model(), &["-p", "hello", "--load", "read", "--huge-pages"]);
    assert_eq!(s["engine"]["load"], "read, huge pages");
    let (p, rates) = (&s["phases"], &s["rates"]);
    let number = |v: &serde_json::Value| v.as_f64().expect("a number");
    assert_eq!(p["decode_tokens"], 3);
    assert!(number(&p["load_ms"]) > 0.0 && number(&p["engine_ms"]) > 0.0);
    let parts = number(&p["load_ms"]) + number(&p["engine_ms"]) + 1e3 * number(&rates["ttft_s"]);
    assert!(
        (number(&p["first_token_ms"]) / parts - 1.0).abs() < 1e-9,
        "{p}"
    );
    let rate = 1e3 * number(&p["decode_tokens"]) / number(&p["decode_ms"]);
    assert!(
        (rate / number(&rates["decode_mean_tok_s"]) - 1.0).abs() < 1e-9,
        "{p}"
    );
    let modelled = report(&model(), &["--deterministic"]);
    assert!(modelled["phases"]["load_ms"].is_null());
    assert!(modelled["memory"]["load_minor_faults"].is_null());
}

#[test]
fn resident_memory_is_weights_and_a_seventh_and_the_cache() {
    for file in [common::SMOLLM2, common::GEMMA3] {
        let Some(path) = common::real_model(file) else {
            continue;
        };
        // The probe of the memory's bandwidth is not part of a model: `run` does without.
        let output = run("run -p Hello -n 4 -t 1 --ctx 512 --stats", &path, &[]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let message = text(&output.stderr);
        let mib = |after: &str| -> f64 {
            let rest = message.split(after).nth(1).unwrap_or_default();
            let number = rest.split_whitespace().next().unwrap_or_default();
            number
                .parse()
                .unwrap_or_else(|_| panic!("{after}: {message}"))
        };
        let (peak, weights, cache) = (mib("(peak "), mib("weights "), mib(" of "));
        assert!(peak <= 1.15 * weights + cache, "{file}: {message}");
    }
}
