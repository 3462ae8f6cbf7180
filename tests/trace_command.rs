//! `cbtop trace` as a user runs it: statements from everywhere, all outputs, files, errors.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const FRANCE: &str = "TRACE \"The capital of France is\" FOR \"Paris\"";

/// The same figures on every machine.
const SAME: [&str; 4] = ["--backend", "scalar", "-t", "1"];

fn cbtop(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cbtop"));
    command.arg("trace").args(args).stdin(Stdio::null());
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn output(args: &[&str]) -> Output {
    cbtop(args).output().expect("runs")
}

/// What a good run prints.
fn good(args: &[&str]) -> String {
    let done = output(&[args, &SAME].concat());
    assert_eq!(
        done.status.code(),
        Some(0),
        "{args:?}: {}",
        text(&done.stderr)
    );
    assert_eq!(text(&done.stderr), "", "{args:?}");
    text(&done.stdout)
}

fn with_stdin(args: &[&str], stdin: &[u8]) -> Output {
    let mut child = cbtop(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut pipe = child.stdin.take().expect("a pipe");
    // A refused one is closed before all is written.
    let _ = pipe.write_all(stdin);
    drop(pipe);
    child.wait_with_output().expect("ends")
}

/// Refused with exit code 2; returns what is printed and what is said.
fn refused(done: &Output, what: &str) -> (String, String) {
    let (out, error) = (text(&done.stdout), text(&done.stderr));
    assert_eq!(done.status.code(), Some(2), "{error}");
    assert!(!error.contains("panicked"), "{error}");
    assert!(error.contains(what), "{error:?} lacks {what:?}");
    (out, error)
}

/// Numbers of a text with four digits: the last ones are the C library's.
fn rounded(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Number(n) if n.is_f64() => {
            let x = n.as_f64().unwrap_or_default();
            *value = format!("{x:.3e}").into();
        }
        serde_json::Value::Array(list) => list.iter_mut().for_each(rounded),
        serde_json::Value::Object(map) => map.values_mut().for_each(rounded),
        _ => {}
    }
}

#[test]
fn tables_are_these() {
    let all =
        "TRACE \"The capital of France is\"; TRACE 'The capital of France is' TOP 7 LAYERS 0, 4, 8;
        TRACE \"The capital of France is\" FOR \"Paris\", \"Lyon\" POSITIONS 3-4 LAYERS EVERY 2;
        TRACE \"The capital of France is\" DECOMPOSE HEADS;
        PATCH \"The capital of France is\" FROM \"The capital of Italy is\" FOR \"Rome\";";
    insta::assert_snapshot!(good(&[all]));
}

#[test]
fn json_is_this() {
    let source = "TRACE \"The capital of France is\" FOR \"Paris\" HEADS TOP 2 LAYERS 0, 8";
    let out = good(&[source, "--format", "json"]);
    assert_eq!(out.lines().count(), 1);
    let mut value: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    rounded(&mut value);
    // It has the version.
    value["generator"] = "cbtop".into();
    insta::assert_snapshot!(serde_json::to_string_pretty(&value).expect("text"));
}

#[test]
fn csv_is_this() {
    let out = good(&[FRANCE, "--format", "csv"]);
    let mut reader = csv::Reader::from_reader(out.as_bytes());
    let mut rows = vec![
        reader
            .headers()
            .expect("a header")
            .iter()
            .collect::<Vec<_>>()
            .join(","),
    ];
    for row in reader.records() {
        let field = |f: &str| match f.parse::<f64>() {
            Ok(x) if f.contains('.') => format!("{x:.3e}"),
            _ => f.to_owned(),
        };
        rows.push(
            row.expect("a row")
                .iter()
                .map(field)
                .collect::<Vec<_>>()
                .join(","),
        );
    }
    insta::assert_snapshot!(rows.join("\n"));
}

#[test]
fn statements_come_from_anywhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("france.trql");
    std::fs::write(&file, format!("-- a comment\n{FRANCE};\n")).expect("written");
    let file = file.to_str().expect("UTF-8");
    let as_argument = good(&[FRANCE]);
    assert_eq!(good(&["-f", file]), as_argument);
    for args in [&["-f", "-"][..], &[]] {
        let done = with_stdin(&[args, &SAME].concat(), FRANCE.as_bytes());
        assert_eq!(text(&done.stdout), as_argument, "{}", text(&done.stderr));
    }
    let named = good(&[FRANCE, "-m", "assets/demo.gguf"]);
    assert_eq!(named, as_argument);
}

#[test]
fn the_reference_says_the_same() {
    let value = |path: &str| -> serde_json::Value {
        let out = good(&[FRANCE, "--format", "json", "--path", path]);
        serde_json::from_str(&out).expect("JSON")
    };
    let (fast, reference) = (value("fast"), value("reference"));
    for layer in 0..=8 {
        let prob = |v: &serde_json::Value| {
            let w = &v["trace"]["positions"][0]["waypoints"][layer];
            w["tracks"][0]["prob"].as_f64().expect("a number")
        };
        assert!(
            (prob(&fast) - prob(&reference)).abs() < 0.02,
            "layer {layer}"
        );
    }
}

#[test]
fn a_format_clause_goes_before_the_flag() {
    let out = good(&[
        &format!("{FRANCE} FORMAT JSON; {FRANCE} LAYERS 8"),
        "--format",
        "csv",
    ]);
    let (json, csv) = out.split_once("\n\n").expect("two");
    assert!(
        json.starts_with('{') && csv.starts_with("position,"),
        "{out}"
    );
}

#[test]
fn one_wrong_statement_and_none_runs() {
    let source = format!("{FRANCE};\nTRACE \"The capital of France is\" FRO \"Paris\"");
    let (out, error) = refused(&output(&[&source]), "did you mean FOR?");
    assert_eq!(out, "");
    assert!(
        error.contains("^^^") && error.contains("line 2, column 34"),
        "{error}"
    );
    let (out, _) = refused(
        &output(&[&format!("{FRANCE}; {FRANCE} LAYERS 9")]),
        "layer 9 does not exist",
    );
    assert_eq!(out, "");
}

#[test]
fn what_was_printed_before_an_error_stays() {
    let source = format!("{FRANCE}; TRACE \"Two\" POSITIONS 7");
    let (out, error) = refused(
        &output(&[&[source.as_str()][..], &SAME].concat()),
        "position 7 does not exist",
    );
    assert_eq!(out, good(&[FRANCE]));
    assert_eq!(error.lines().count(), 1);
    assert!(error.starts_with("cbtop: statement 2: "), "{error}");
}

#[test]
fn bad_input_is_one_clear_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let latin = at("latin", b"\n-- caf\xe9\n");
    let empty = at("empty", b" -- nothing\n;;");
    let large = at("large", &vec![b' '; (1 << 20) + 1]);
    let no_tab = at("no-tab", b"a\tb\nno tab\n");
    let none = at("none", b"# nothing\n\n");
    let long = at("long", format!("{}\tx\n", "a ".repeat(3000)).as_bytes());
    let garbage = at("garbage.trace", b"TRAC and then nothing of the kind");
    for (args, what) in [
        (vec![], "no statement; give one, for example"),
        (vec!["-f", "/nowhere/x"], "cannot be read"),
        (
            vec!["-f", folder.path().to_str().expect("UTF-8")],
            "cannot be read",
        ),
        (vec!["-f", &latin], "line 2 is not UTF-8"),
        (vec!["-f", &empty], "no statement"),
        (vec!["-f", &large], "larger than"),
        (vec!["--prompts", &no_tab], "line 2: it has no tab"),
        (vec!["--prompts", &none], "has no prompts"),
        (vec!["--prompts", &long], "line 1: "),
        (vec!["--prompts", "/nowhere/x"], "cannot be read"),
        (vec!["--open", "/nowhere/x"], "/nowhere/x"),
        (vec!["--open", &garbage], "garbage.trace"),
        (vec![FRANCE, "-m", "/nowhere/model.gguf"], "no such file"),
        (vec![FRANCE, "-t", "0"], "threads"),
        (vec!["TRACE \"a\" SAVE \"x.trace\""], "POSITIONS ALL"),
        (vec!["TRACE \"a\" WITH ZERO FFN AT LAYER 99"], "layer 99"),
    ] {
        let (out, error) = refused(&output(&args), what);
        assert_eq!(out, "", "{args:?}");
        assert!(
            error.starts_with("cbtop: ") && error.ends_with('\n') && error.lines().count() == 1,
            "{args:?}: {error:?}"
        );
    }
    for args in [
        vec![FRANCE, "-f", "x"],
        vec![FRANCE, "--open", "x"],
        vec!["--open", "x", "--prompts", "y"],
        vec![FRANCE, "--format", "xml"],
        vec![FRANCE, "--path", "slow"],
    ] {
        refused(&output(&args), "error: ");
    }
}

#[test]
fn a_saved_trace_opens_to_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("france.trace");
    let path = path.to_str().expect("UTF-8");
    let source = format!("{FRANCE} TOP 3 DECOMPOSE LAYERS 0, 5 POSITIONS ALL SAVE \"{path}\"");
    let saved = good(&[&source]);
    let opened = good(&["--open", path]);
    let note = format!("note: saved to {path}\n");
    assert!(saved.ends_with(&note), "{saved}");
    assert_eq!(saved.trim_end_matches(&note), opened);
    for format in ["json", "csv"] {
        let opened = good(&["--open", path, "--format", format]);
        assert!(opened.contains("residual_norm"), "{opened}");
    }
    let whole = std::fs::read(path).expect("read");
    for cut in [0, 3, 63, 64, 1000, whole.len() - 1] {
        std::fs::write(path, &whole[..cut]).expect("written");
        let done = output(&["--open", path]);
        let error = text(&done.stderr);
        assert!(!error.contains("panicked"), "{cut}: {error}");
        assert!(matches!(done.status.code(), Some(0 | 2)), "{cut}: {error}");
    }
}

#[test]
fn prompts_are_taken_together() {
    let table = good(&["--prompts", "tests/fixtures/trace/capitals.tsv"]);
    insta::assert_snapshot!(table);
    let csv = good(&[
        "--prompts",
        "tests/fixtures/trace/demo.jsonl",
        "--format",
        "csv",
    ]);
    assert_eq!(csv.lines().count(), 10, "{csv}");
    let json = good(&[
        "--prompts",
        "tests/fixtures/trace/demo.jsonl",
        "--format",
        "json",
    ]);
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let summary = &value["summary"];
    assert_eq!(summary["prompts"], 18);
    // These are what the demo was trained on.
    assert_eq!(summary["layers"][8]["top1_percent"], 100.0);
    let one = with_stdin(
        &[&["--prompts", "-", "--format", "json"][..], &SAME].concat(),
        b"The capital of France is\tParis\n",
    );
    let one: serde_json::Value = serde_json::from_slice(&one.stdout).expect("JSON");
    let alone = good(&[FRANCE, "--format", "json"]);
    let alone: serde_json::Value = serde_json::from_str(&alone).expect("JSON");
    for layer in 0..=8 {
        let sum = &one["summary"]["layers"][layer];
        let own = &alone["trace"]["positions"][0]["waypoints"][layer];
        assert_eq!(sum["mean_prob"], own["tracks"][0]["prob"]);
        assert_eq!(sum["attn_logit"], own["tracks"][0]["attn_logit"]);
        assert_eq!(sum["residual_norm"], own["residual_norm"]);
    }
}

#[test]
fn a_closed_output_ends_quietly() {
    let mut child = cbtop(&[&format!("{FRANCE};{FRANCE}"), "--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    drop(child.stdout.take());
    let done = child.wait_with_output().expect("ends");
    assert_eq!(done.status.code(), Some(0));
    assert_eq!(text(&done.stderr), "");
}

#[test]
fn prompt_files_are_there() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/trace");
    for file in ["capitals.tsv", "demo.jsonl"] {
        let bytes = std::fs::read(folder.join(file)).expect("read");
        let all: Result<Vec<_>, _> = cbtop::trace::prompts::prompts(&bytes).collect();
        assert!(all.expect("prompts").len() >= 18);
    }
}
