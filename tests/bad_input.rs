//! Bad input of every kind: one clear line on standard error, exit code 2, nothing printed. And places that are hard to
//! live in: no terminal, no home, a closed output.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const DEMO: &[u8] = include_bytes!("../assets/demo.gguf");

fn model() -> String {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models/llama.Q4_K_M.gguf");
    path.to_str().expect("UTF-8").to_owned()
}

fn cbtop<A: AsRef<std::ffi::OsStr>>(args: &[A]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cbtop"));
    command.args(args).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Refused with exit code 2 and nothing on standard output; the error has `what` in it.
fn refused(done: &Output, args: &[&str], what: &str) -> String {
    let error = text(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{args:?}: {error}");
    assert_eq!(text(&done.stdout), "", "{args:?}");
    assert!(!error.contains("panicked"), "{args:?}: {error}");
    assert!(error.contains(what), "{args:?}: {error:?} lacks {what:?}");
    error
}

/// As [`refused`], by one line of the program's own.
fn refused_in_a_line(args: &[&str], what: &str) {
    let done = cbtop(args).output().expect("runs");
    let error = refused(&done, args, what);
    assert!(
        error.starts_with("cbtop: ") && error.ends_with('\n') && error.lines().count() == 1,
        "{args:?}: {error:?}"
    );
}

/// As [`refused`], by the parser of the command line, in its own form.
fn refused_by_usage(args: &[&str], what: &str) {
    let done = cbtop(args).output().expect("runs");
    let error = refused(&done, args, what);
    assert!(error.starts_with("error: "), "{args:?}: {error:?}");
}

/// Every command that opens a model, on `file`.
fn opening(file: &str) -> [Vec<&str>; 6] {
    [
        vec!["--headless", "-m", file],
        vec!["run", "-p", "x", "-m", file],
        vec!["eval", "--text", "x", "-m", file],
        vec!["eval", "--ids", "1", "--path", "reference", "-m", file],
        vec!["tokenize", "--text", "x", "-m", file],
        vec!["bench", "-p", "1", "-n", "1", "-r", "1", "-m", file],
    ]
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self) -> &str {
        self.0.path().to_str().expect("UTF-8")
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path: PathBuf = self.0.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    }
}

/// `bytes` with one piece of the same length in place of another, everywhere.
fn patched(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut out = bytes.to_vec();
    let mut found = 0;
    for i in 0..=out.len() - from.len() {
        if out[i..].starts_with(from) {
            out[i..i + to.len()].copy_from_slice(to);
            found += 1;
        }
    }
    assert!(found > 0);
    out
}

#[test]
fn files_that_are_no_model() {
    let folder = Folder::new();
    let files = [
        ("/nowhere/model.gguf".to_owned(), "no such file"),
        (folder.path().to_owned(), "directory"),
        ("/dev/null".to_owned(), "regular file"),
        (folder.file("empty.gguf", b""), "empty.gguf"),
        (
            folder.file("text.gguf", b"not a model at all\n"),
            "text.gguf",
        ),
        (folder.file("magic.gguf", b"GGUF"), "magic.gguf"),
        (folder.file("cut.gguf", &DEMO[..DEMO.len() / 2]), "cut"),
        (folder.file("byte.gguf", &DEMO[..DEMO.len() - 1]), "cut"),
        (folder.file("header.gguf", &DEMO[..5000]), "header.gguf"),
    ];
    for (file, what) in &files {
        for args in opening(file).iter().chain([&vec!["inspect", file]]) {
            refused_in_a_line(args, what);
        }
    }
}

#[test]
fn models_without_a_vocabulary_or_without_weights() {
    let folder = Folder::new();
    let mute = folder.file(
        "mute.gguf",
        &patched(DEMO, b"tokenizer.ggml.tokens", b"tokenizer.ggml.tokenz"),
    );
    for args in opening(&mute).iter().take(5) {
        refused_in_a_line(args, "tokenizer.ggml.tokens");
    }
    let hollow = folder.file(
        "hollow.gguf",
        &patched(DEMO, b"token_embd.weight", b"token_embd.weighs"),
    );
    for args in opening(&hollow).iter().take(4) {
        refused_in_a_line(args, "token_embd.weight");
    }
    let Some(shared) = common::shared() else {
        return;
    };
    let vocabulary = shared.join("vocab/ggml-vocab-gpt-2.gguf");
    let vocabulary = vocabulary.to_str().expect("UTF-8");
    for args in opening(vocabulary).iter().take(4) {
        refused_in_a_line(args, "cbtop: ");
    }
    let done = cbtop(&opening(vocabulary)[4]).output().expect("runs");
    assert!(done.status.success(), "a vocabulary is enough to tokenize");
}

#[test]
fn a_file_name_cannot_break_the_line_or_the_terminal() {
    refused_in_a_line(&["run", "-p", "x", "-m", "/nowhere/a\nb\x1b[2J"], "a?b?[2J");
}

#[test]
fn engine_knobs_out_of_range() {
    let m = &model();
    for command in [
        &["--headless"][..],
        &["run", "-p", "x"],
        &["eval", "--text", "hello there"],
    ] {
        for (knob, what) in [
            (["--threads", "0"], "threads is 0"),
            (["--threads", "513"], "threads is 513"),
            (["--threads", "10000"], "expected 1 to 512"),
            (["--ctx", "0"], "context length is 0"),
            (["--ctx", "1"], "do not fit into a context of 1"),
            (["--ctx", "1000000000"], "context length is 1000000000"),
            (["--chunk", "0"], "chunk is 0"),
            (["--chunk", "1000000"], "chunk is 1000000"),
            (["--backend", "abacus"], "abacus"),
            (["--backend", "cuda"], "no CUDA"),
        ] {
            let args: Vec<&str> = command
                .iter()
                .copied()
                .chain(["-m", m])
                .chain(knob)
                .collect();
            refused_in_a_line(&args, what);
        }
        for (knob, what) in [
            (["--threads", "-1"], "-1"),
            (["--threads", "many"], "many"),
            (["--ctx", "99999999999999999999"], "99999999999999999999"),
            (["--kv-type", "q4_0"], "q4_0"),
            (["--schedule", "random"], "random"),
        ] {
            let args: Vec<&str> = command
                .iter()
                .copied()
                .chain(["-m", m])
                .chain(knob)
                .collect();
            refused_by_usage(&args, what);
        }
    }
    if !cbtop::engine::cpu::KernelSet::Avx512.is_available() {
        refused_in_a_line(
            &["run", "-p", "x", "-m", m, "--backend", "avx512"],
            "avx512",
        );
    }
}

#[test]
fn sampling_knobs_out_of_range() {
    for (knob, what) in [
        ("--temp=NaN", "--temp is NaN"),
        ("--temp=-1", "--temp is -1"),
        ("--temp=inf", "--temp is inf"),
        ("--top-p=1.5", "--top-p is 1.5"),
        ("--min-p=-0.1", "--min-p is -0.1"),
        ("--top-p=nan", "--top-p is NaN"),
    ] {
        refused_in_a_line(&["run", "-p", "x", knob], what);
        refused_in_a_line(&["--headless", knob], what);
    }
    refused_by_usage(&["run", "-p", "x", "--temp", "-1"], "-1");
    refused_by_usage(&["run", "-p", "x", "--seed", "x"], "x");
}

#[test]
fn prompts_and_ids_that_cannot_run() {
    let m = &model();
    let long = "a b c d e f g ".repeat(400);
    refused_in_a_line(&["run", "-m", m, "-p", &long], "do not fit into a context");
    refused_in_a_line(
        &["--headless", "-m", m, "-p", &long],
        "do not fit into a context",
    );
    refused_in_a_line(
        &["eval", "-m", m, "--text", &long],
        "do not fit into a context",
    );
    refused_in_a_line(&["run", "-p", ""], "empty");
    refused_in_a_line(&["--headless", "-p", ""], "empty");
    refused_in_a_line(&["eval", "-m", m, "--ids", ""], "empty");
    refused_in_a_line(
        &["eval", "-m", m, "--ids", "", "--path", "reference"],
        "empty",
    );
    refused_in_a_line(&["eval", "-m", m, "--ids", "512"], "512");
    refused_in_a_line(
        &["eval", "-m", m, "--ids", "512", "--path", "reference"],
        "512",
    );
    refused_in_a_line(
        &["eval", "-m", m, "--ids", "1 two"],
        "'two' is not a token id",
    );
    refused_in_a_line(&["tokenize", "-m", m, "--decode", "--text", "512"], "512");
    refused_in_a_line(&["tokenize", "-m", m, "--decode", "--text=-5"], "'-5'");
    refused_in_a_line(&["run", "-m", m, "-p", "x", "--chat"], "chat");
    refused_by_usage(&["eval", "-m", m], "--text");
    refused_by_usage(&["run", "-m", m], "--prompt");
}

#[test]
fn standard_input_that_is_not_text() {
    let folder = Folder::new();
    let bytes = folder.file("bytes", b"caf\xE9 \xFF");
    let args = ["tokenize", "-m", &model()];
    let input = std::fs::File::open(bytes).expect("there");
    let done = cbtop(&args).stdin(input).output().expect("runs");
    let error = refused(&done, &args, "not UTF-8");
    assert!(
        error.starts_with("cbtop: ") && error.lines().count() == 1,
        "{error:?}"
    );
    let folder = std::fs::File::open(folder.path()).expect("there");
    let done = cbtop(&args).stdin(folder).output().expect("runs");
    refused(&done, &args, "reading standard input");
}

#[test]
fn sizes_and_flags_of_the_headless_form() {
    for size in [
        "0x0", "99999x1", "1x99999", "abc", "", "120", "120x", "-1x5", "120x40x1",
    ] {
        let size = format!("--size={size}");
        refused_by_usage(&["--headless", &size], "120x40");
    }
    for alone in [
        &["--deterministic"][..],
        &["--format", "json"],
        &["--size", "80x24"],
    ] {
        refused_by_usage(alone, "--headless");
    }
    refused_by_usage(&["--headless", "--format", "xml"], "xml");
    refused_by_usage(&["--no-such-flag"], "--no-such-flag");
    refused_by_usage(&["no-such-command"], "no-such-command");
}

#[test]
fn without_a_terminal_the_dashboard_names_the_way_out() {
    refused_in_a_line(&[], "--headless");
    refused_in_a_line(&["-m", &model(), "--recommend"], "--headless");
}

/// Commands that print, each more than one line or piece.
fn printing(m: &str) -> Vec<Vec<&str>> {
    vec![
        vec!["--headless", "-n", "2"],
        vec!["--headless", "-n", "2", "--format", "json"],
        vec!["run", "-p", "The capital", "-n", "40"],
        vec!["inspect", m],
        vec!["inspect", "--json", m],
        vec!["eval", "-m", m, "--text", "hello there", "--logits"],
        vec!["tokenize", "-m", m, "--text", "hello there"],
        vec!["tokenize", "-m", m, "--decode", "--text", "300 301"],
        vec![
            "bench", "-m", m, "-p", "4", "-n", "1-9", "-t", "1", "-r", "1",
        ],
        vec!["--help"],
        vec!["--version"],
    ]
}

#[test]
fn a_closed_output_is_no_error() {
    let m = model();
    for args in printing(&m) {
        let mut child = cbtop(&args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("runs");
        drop(child.stdout.take());
        let done = child.wait_with_output().expect("ends");
        assert_eq!(text(&done.stderr), "", "{args:?}");
        assert_eq!(done.status.code(), Some(0), "{args:?}");
    }
}

#[test]
fn a_closed_error_output_is_no_panic() {
    for args in [
        &["run", "-p", "x", "-m", "/nowhere"][..],
        &["inspect", "/nowhere"],
        &[],
    ] {
        let mut child = cbtop(args).stderr(Stdio::piped()).spawn().expect("runs");
        drop(child.stderr.take());
        assert_eq!(child.wait().expect("ends").code(), Some(2), "{args:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_said() {
    let m = model();
    for args in printing(&m)
        .iter()
        .filter(|a| !a[0].starts_with("--help") && a[0] != "--version")
    {
        let full = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .expect("there");
        let done = cbtop(args).stdout(full).output().expect("runs");
        let error = refused(&done, args, "writing the output: ");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn bare_and_hostile_surroundings_do_not_matter() {
    let folder = Folder::new();
    let mut readonly = std::fs::metadata(folder.path())
        .expect("there")
        .permissions();
    readonly.set_readonly(true);
    std::fs::set_permissions(folder.path(), readonly).expect("set");
    let surroundings: [&[(&str, Option<&str>)]; 6] = [
        &[("HOME", Some(folder.path())), ("XDG_CACHE_HOME", None)],
        &[("HOME", None), ("XDG_CACHE_HOME", None)],
        &[("HOME", Some("/nowhere"))],
        &[("TERM", None)],
        &[
            ("TERM", Some("dumb")),
            ("COLUMNS", Some("0")),
            ("LINES", Some("x")),
        ],
        &[
            ("LANG", Some("C")),
            ("LC_ALL", Some("C")),
            ("LC_CTYPE", None),
        ],
    ];
    for set in surroundings {
        for args in [
            &["--headless", "-n", "3", "--size", "80x24"][..],
            &["--headless", "-n", "3", "--format", "json"],
            &["run", "-p", "The capital", "-n", "3"],
        ] {
            let mut command = cbtop(args);
            command.current_dir(folder.path());
            for (name, value) in set {
                match value {
                    Some(value) => command.env(name, value),
                    None => command.env_remove(name),
                };
            }
            let done = command.output().expect("runs");
            let error = text(&done.stderr);
            assert!(done.status.success(), "{set:?} {args:?}: {error}");
            assert_eq!(error, "", "{set:?} {args:?}");
            let out = text(&done.stdout);
            assert!(
                !out.is_empty() && !out.contains('\x1b'),
                "{set:?} {args:?}: {out}"
            );
            let plain = set.iter().any(|(name, _)| *name == "LANG");
            if plain && args.contains(&"--size") {
                assert!(out.is_ascii(), "{out}");
            }
        }
    }
}
