//! `cbtop --headless --deterministic`: the same bytes whatever the machine, the environment and the knobs, and what the
//! frame looks like (snapshots/headless-*.snap).

use std::process::{Command, Stdio};

const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/fixtures/models/gemma3.Q8_0.gguf"
);

/// Standard output of a deterministic headless run.
fn frame(args: &[&str], env: &[(&str, &str)]) -> String {
    let done = Command::new(env!("CARGO_BIN_EXE_cbtop"))
        .args(["--headless", "--deterministic"])
        .args(args)
        .env_clear()
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("runs");
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert_eq!((done.status.code(), &*stderr), (Some(0), ""), "{args:?}");
    String::from_utf8(done.stdout).expect("UTF-8")
}

const UTF8: &[(&str, &str)] = &[("LANG", "C.UTF-8")];

#[test]
fn frames_look_like_their_snapshots() {
    for size in ["80x24", "120x40", "200x60"] {
        let text = frame(&["--size", size], UTF8);
        let (width, height) = size.split_once('x').expect("a size");
        assert_eq!(text.lines().count(), height.parse::<usize>().expect("rows"));
        let width: usize = width.parse().expect("columns");
        // Every glyph in a frame of the demo is one column wide.
        assert!(text.lines().all(|l| l.chars().count() <= width), "{size}");
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots"));
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!(format!("headless-{size}"), text));
    }
}

#[test]
fn nothing_but_the_question_changes_a_byte() {
    let environments: [&[(&str, &str)]; 4] = [
        UTF8,
        &[],
        &[("LC_ALL", "POSIX"), ("TERM", "dumb"), ("NO_COLOR", "1")],
        &[
            ("LANG", "de_DE.ISO-8859-1"),
            ("COLUMNS", "33"),
            ("TZ", "Asia/Tokyo"),
        ],
    ];
    for question in [
        &["--size", "120x40"][..],
        &["--format", "json"],
        &[
            "--size", "200x60", "-m", MODEL, "-n", "40", "--temp", "0.7", "--seed", "3",
        ],
        &[
            "--format", "json", "-m", MODEL, "-n", "40", "--temp", "0.7", "--seed", "3",
        ],
    ] {
        let first = frame(question, UTF8);
        for env in environments {
            assert!(frame(question, env) == first, "{question:?} under {env:?}");
        }
        // Threads and kernels are the model's of time, not the machine's.
        for knobs in [
            &["-t", "1"][..],
            &["-t", "7"],
            &["--pin"],
            &["--schedule", "static"],
            &["--backend", "scalar"],
        ] {
            let args = [question, knobs].concat();
            assert!(frame(&args, UTF8) == first, "{args:?}");
        }
    }
}

#[test]
fn nothing_of_the_machine_shows() {
    let json = frame(&["--format", "json"], UTF8);
    let text = frame(&["--size", "200x60"], UTF8);
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(report["snapshot"]["machine"]["cpu"], "modelled machine");
    assert_eq!(report["snapshot"]["model"]["path"], "(embedded demo)");
    assert_eq!(report["snapshot"]["engine"]["clock"], "modelled");
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu.lines().find_map(|l| l.strip_prefix("model name"));
    let here = [
        cpu.map(|l| l.trim_start_matches([' ', '\t', ':']).to_owned()),
        std::env::current_dir()
            .ok()
            .map(|d| d.display().to_string()),
        std::env::var("HOME").ok().filter(|h| h.len() > 1),
        Some("avx".into()),
    ];
    for name in here.into_iter().flatten().filter(|n| !n.is_empty()) {
        assert!(!json.contains(&name) && !text.contains(&name), "{name}");
    }
}

#[test]
fn ascii_is_ascii_at_every_size() {
    for size in ["1x1", "10x3", "40x12", "80x24", "120x40", "200x60"] {
        let text = frame(&["--ascii", "--size", size], UTF8);
        assert!(text.is_ascii(), "{size}: {text}");
    }
}
