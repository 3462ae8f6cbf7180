//! `cbtop diff` as CI runs it: on reports, on a recording, and on files that are neither.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn output(args: &[&str]) -> Output {
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

/// Exit code and standard output; there is nothing on standard error unless the code is 2.
fn diff(args: &[&str]) -> (Option<i32>, String) {
    let done = output(&[&["diff"], args].concat());
    let error = text(&done.stderr);
    assert!(done.status.code() == Some(2) || error.is_empty(), "{error}");
    (done.status.code(), text(&done.stdout) + &error)
}

/// A real report with figures of our making: `sd` of every brick's step as a share of its mean.
fn report(sd: Option<f64>) -> Value {
    let done = output(&[
        "--headless",
        "--deterministic",
        "--format",
        "json",
        "-n",
        "16",
    ]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let mut report: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let snapshot = &mut report["snapshot"];
    let mut total = 0.0;
    for row in snapshot["bricks"].as_array_mut().expect("rows") {
        let us = row["us_per_step"].as_f64().expect("a time");
        total += us;
        row["steps"] = json!(200);
        row["step_stddev_us"] = json!(sd.map(|sd| us * sd));
    }
    snapshot["latency"] = json!({
        "count": 200, "mean_us": total, "stddev_us": sd.map(|sd| total * sd), "min_us": null, "p50_us": null,
        "p90_us": null, "p99_us": null, "max_us": null, "buckets": []
    });
    report
}

/// `report` with one brick's time multiplied.
fn slower(mut report: Value, id: &str, by: f64) -> Value {
    let rows = report["snapshot"]["bricks"].as_array_mut().expect("rows");
    let row = rows.iter_mut().find(|r| r["id"] == id).expect("the brick");
    let us = row["us_per_step"].as_f64().expect("a time");
    row["us_per_step"] = json!(us * by);
    let mean = report["snapshot"]["latency"]["mean_us"]
        .as_f64()
        .expect("a time");
    report["snapshot"]["latency"]["mean_us"] = json!(mean + us * (by - 1.0));
    report
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn write(&self, name: &str, report: &Value) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, report.to_string()).expect("written");
        path
    }
}

#[test]
fn a_slower_brick_fails_the_check_and_is_named() {
    let files = Files::new();
    let a = files.write("a.json", &report(Some(0.03)));
    let b = files.write("b.json", &slower(report(Some(0.03)), "down_proj", 1.3));
    let (a, b) = (utf8(&a), utf8(&b));
    let (code, table) = diff(&[a, b]);
    assert_eq!(code, Some(0), "{table}");
    let row = table
        .lines()
        .find(|l| l.starts_with("DownProj"))
        .expect("the row");
    assert!(row.contains("+30.0%") && row.ends_with("+ slower"), "{row}");
    assert!(
        !table.contains('\x1b') && !table.contains("not of the same"),
        "{table}"
    );

    let (code, table) = diff(&[a, b, "--fail-above", "5%"]);
    assert_eq!(code, Some(1), "{table}");
    let last = table.lines().last().expect("a verdict");
    assert!(
        last.starts_with("FAILED") && last.contains("DownProj"),
        "{last}"
    );
    assert_eq!(diff(&[b, a, "--fail-above", "5"]).0, Some(0));
    assert_eq!(diff(&[a, b, "--fail-above", "40%"]).0, Some(0));
    assert_eq!(diff(&[a, a, "--fail-above", "0"]).0, Some(0));

    let (code, printed) = diff(&[a, b, "--fail-above", "5%", "--json"]);
    assert_eq!(code, Some(1));
    let printed: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(printed["bricks"][0]["name"], "DownProj");
    assert_eq!(printed["bricks"][0]["verdict"], "slower");
    assert_eq!(printed["check"]["passed"], false);
    let slower: Vec<_> = printed["check"]["slower"]
        .as_array()
        .expect("names")
        .iter()
        .collect();
    assert!(slower.contains(&&json!("DownProj")), "{slower:?}");
    assert_eq!(printed["unlike"], json!([]));
    let interval = &printed["bricks"][0]["interval_us"];
    let change = printed["bricks"][0]["change_us"].as_f64();
    assert!(interval["low"].as_f64() < change && change < interval["high"].as_f64());
}

#[test]
fn noise_is_no_regression() {
    let files = Files::new();
    // Six per cent slower, but steps vary by half: nothing can be said of it.
    let a = files.write("a.json", &report(Some(0.5)));
    let b = files.write("b.json", &slower(report(Some(0.5)), "down_proj", 1.06));
    let (code, table) = diff(&[utf8(&a), utf8(&b), "--fail-above", "5%"]);
    assert_eq!(code, Some(0), "{table}");
    assert!(table.contains("= within chance"), "{table}");
}

#[test]
fn old_reports_have_no_interval_and_cannot_be_judged() {
    let files = Files::new();
    let mut old = report(None);
    let snapshot = old["snapshot"].as_object_mut().expect("fields");
    snapshot.remove("latency");
    for row in snapshot["bricks"].as_array_mut().expect("rows") {
        row.as_object_mut()
            .expect("fields")
            .remove("step_stddev_us");
    }
    let a = files.write("a.json", &old);
    let b = files.write("b.json", &slower(report(Some(0.03)), "down_proj", 1.3));
    let (code, table) = diff(&[utf8(&a), utf8(&b)]);
    assert_eq!(code, Some(0));
    assert!(
        table.contains("? no interval") && table.contains("A does not say"),
        "{table}"
    );
    let (code, error) = diff(&[utf8(&a), utf8(&b), "--fail-above", "5%"]);
    assert_eq!((code, error.lines().count()), (Some(2), 1), "{error}");
    assert!(error.contains("cannot judge"), "{error}");
}

#[test]
fn other_machines_and_models_are_said_at_the_top() {
    let files = Files::new();
    let a = files.write("a.json", &report(Some(0.03)));
    let mut other = report(Some(0.03));
    other["snapshot"]["machine"]["cpu"] = json!("Another\u{1b}[2J CPU");
    other["snapshot"]["model"]["name"] = json!("another model");
    other["snapshot"]["engine"]["threads"] = json!(9);
    let b = files.write("b.json", &other);
    let (code, table) = diff(&[utf8(&a), utf8(&b)]);
    assert_eq!(code, Some(0));
    let top: Vec<_> = table.lines().skip(2).take(4).collect();
    assert!(top[0].contains("not of the same thing"), "{table}");
    for (line, words) in top[1..]
        .iter()
        .zip(["another model", "processor", "threads"])
    {
        assert!(line.contains(words), "{table}");
    }
    assert!(!table.contains('\x1b'));
}

#[test]
fn a_recording_is_compared_by_its_last_frame() {
    let files = Files::new();
    let tape = files.0.path().join("run.cbtop");
    let done = output(&[
        "record",
        utf8(&tape),
        "--headless",
        "-n",
        "8",
        "--format",
        "json",
    ]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let report: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let file = files.write("run.json", &report);
    let (code, table) = diff(&[utf8(&tape), utf8(&file)]);
    assert_eq!(code, Some(0), "{table}");
    let step = table
        .lines()
        .find(|l| l.starts_with("step "))
        .expect("a row");
    assert!(step.contains("+0.0%"), "{table}");
}

#[test]
fn bad_files_and_limits_are_one_clear_error() {
    let files = Files::new();
    let good = files.write("good.json", &report(Some(0.03)));
    let good = utf8(&good);
    let mut later = report(None);
    later["schema_version"] = json!(99);
    let mut torn = report(None);
    torn["snapshot"]["bricks"][0]["us_per_step"] = Value::Null;
    for (name, value) in [
        ("later.json", later),
        ("null.json", torn),
        ("object.json", json!({})),
        ("list.json", json!([1, 2])),
    ] {
        let bad = files.write(name, &value);
        for args in [[utf8(&bad), good], [good, utf8(&bad)]] {
            let (code, error) = diff(&args);
            assert_eq!((code, error.lines().count()), (Some(2), 1), "{error}");
            assert!(error.contains(name), "{error}");
        }
    }
    let raw = |name: &str, bytes: &[u8]| {
        let path = files.0.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    };
    for path in [
        raw("empty", b""),
        raw("half", &std::fs::read(good).expect("reads")[..500]),
        raw("bytes", &[0xff; 300]),
        raw("tape", b"cbtoprec\x01\0\0\0"),
        files.0.path().to_owned(),
        "/nowhere/a.json".into(),
    ] {
        let (code, error) = diff(&[utf8(&path), good]);
        assert_eq!((code, error.lines().count()), (Some(2), 1), "{error}");
        assert!(error.contains(utf8(&path)), "{error}");
    }
    for limit in ["-1%", "much", "nan", "1e9", ""] {
        assert_eq!(
            diff(&[good, good, &format!("--fail-above={limit}")]).0,
            Some(2)
        );
    }
}
