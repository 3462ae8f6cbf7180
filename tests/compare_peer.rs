//! `cbtop bench --compare llama.cpp` beside a peer that does as told: answers, refuses, prints garbage, hangs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Answers as llama-bench does, with the numbers that its flags ask for.
const ANSWERS: &str = r#"
while [ $# -gt 0 ]; do
  case "$1" in
    -p) p=$2 ;; -n) n=$2 ;; -t) t=$2 ;; -pg) p=${2%,*}; n=${2#*,} ;;
  esac
  shift
done
echo noise >&2
echo "[{\"build_commit\":\"abc\",\"build_number\":77,\"n_prompt\":$p,\"n_gen\":$n,\"n_threads\":$t,\"samples_ns\":[1000]}]"
"#;

/// A folder with a program of this name, which runs `script`.
fn fake(name: &str, script: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    folder
}

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models/llama.Q4_K_M.gguf")
}

fn compare(path: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cbtop"));
    command
        .args(["bench", "--compare", "llama.cpp", "-t", "1", "-m"])
        .arg(model())
        .args(args)
        .env("PATH", path)
        .env_remove("CBTOP_PEER_PYTHON")
        .stdin(Stdio::null());
    command
}

fn run(path: &Path, args: &[&str]) -> Output {
    compare(path, args).output().expect("runs")
}

fn error(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn both_sides_and_their_ratio_are_in_every_format() {
    let folder = fake("llama-bench", ANSWERS);
    let tests = ["-p", "4", "-n", "2", "-pg", "3,2", "-r", "3"];
    for format in ["md", "csv", "json", "jsonl", "sql"] {
        let output = run(folder.path(), &[&tests[..], &["-o", format]].concat());
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        match format {
            "md" => {
                assert!(
                    text.contains("|        llama.cpp t/s |     ratio (quartiles) |"),
                    "{text}"
                );
                assert!(text.ends_with("; peer: llama-bench b77 (abc)\n"), "{text}");
                let widths: Vec<_> = text.lines().take(5).map(|l| l.chars().count()).collect();
                assert!(widths.windows(2).all(|w| w[0] == w[1]), "{text}");
            }
            "csv" => assert!(
                text.lines().next().is_some_and(|l| l.ends_with(
                    "major_faults,peer_build,peer_avg_ts,peer_stddev_ts,ratio,ratio_q1,ratio_q3"
                )),
                "{text}"
            ),
            "sql" => assert!(text.contains("  ratio REAL"), "{text}"),
            _ => {
                let rows: Vec<serde_json::Value> = if format == "json" {
                    serde_json::from_str(&text).expect("an array")
                } else {
                    text.lines()
                        .map(|l| serde_json::from_str(l).expect("a row"))
                        .collect()
                };
                assert_eq!(rows.len(), 3);
                for row in rows {
                    assert_eq!(
                        row["peer_samples_ns"],
                        serde_json::json!([1000, 1000, 1000])
                    );
                    assert_eq!(row["ratios"].as_array().map(Vec::len), Some(3));
                    let ours = row["samples_ns"][0].as_f64().expect("a time");
                    assert_eq!(row["ratios"][0].as_f64(), Some(1000.0 / ours));
                    assert!(row["ratio"].is_f64() && row["peer_build"] == "llama-bench b77 (abc)");
                }
            }
        }
    }
}

#[test]
fn what_the_peer_is_asked_is_what_we_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let peer = fake(
        "llama-bench",
        &format!("echo \"$@\" >> {}\n{ANSWERS}", log.display()),
    );
    let args = [
        "-p", "0", "-n", "2", "-d", "8", "-ub", "16", "-ctk", "f32", "-ctv", "f32", "-r", "1",
    ];
    assert!(run(peer.path(), &args).status.success());
    let asked = fs::read_to_string(log).expect("asked");
    let wanted = "-p 0 -n 2 -d 8 -t 1 -b 16 -ub 16 -ctk f32 -ctv f32 -ngl 0 -r 1 -o json";
    assert_eq!(asked.trim(), format!("-m {} {wanted}", model().display()));
}

#[test]
fn a_peer_that_fails_is_named_with_its_words() {
    for (script, words) in [
        (
            "echo 'error: invalid parameter for argument: -d' >&2; exit 1",
            "invalid parameter",
        ),
        ("exit 3", "it printed nothing"),
        ("kill -SEGV $$", "signal: 11"),
        ("echo '| model | t/s |'", "no result that can be read"),
        ("true", "no result that can be read"),
        (
            "echo '[{\"n_prompt\":4,\"n_gen\":0,\"n_threads\":1}]'",
            "no result that can be read",
        ),
        ("head -c 3000000 /dev/zero", "more than 1048576 bytes"),
        (
            "echo '[{\"n_prompt\":4,\"n_gen\":0,\"n_threads\":9,\"samples_ns\":[5]}]'",
            "it measured another test",
        ),
        (
            "echo '[{\"n_prompt\":4,\"n_gen\":0,\"n_threads\":1,\"samples_ns\":[]}]'",
            "it gave 0 times",
        ),
    ] {
        let folder = fake("llama-bench", &format!("PATH=/usr/bin:/bin\n{script}\n"));
        let message = error(&run(folder.path(), &["-p", "4", "-n", "0", "-r", "1"]));
        assert!(
            message.contains("llama-bench") && message.contains(words),
            "{script}: {message}"
        );
    }
}

#[test]
fn without_a_peer_it_says_what_to_install() {
    let empty = tempfile::tempdir().expect("a folder");
    let message = error(&run(empty.path(), &["-p", "4"]));
    assert!(
        message.contains("no llama.cpp to compare with") && message.contains("pip install"),
        "{message}"
    );

    let bare = fake(
        "python3",
        "echo \"ModuleNotFoundError: No module named 'llama_cpp'\" >&2; exit 1",
    );
    let message = error(&run(bare.path(), &["-p", "4"]));
    assert!(
        message.contains("no llama.cpp") && message.contains("No module named"),
        "{message}"
    );

    let named = bare.path().join("python3").display().to_string();
    let message = error(&run(empty.path(), &["-p", "4", "--peer-python", &named]));
    assert!(message.contains("cannot import llama_cpp"), "{message}");

    let message = error(&run(
        empty.path(),
        &["-p", "4", "--peer-python", "/nowhere/python"],
    ));
    assert!(
        message.contains("/nowhere/python cannot start"),
        "{message}"
    );
}

#[test]
fn the_demo_cannot_be_compared() {
    let output = Command::new(env!("CARGO_BIN_EXE_cbtop"))
        .args(["bench", "--compare", "llama.cpp"])
        .output()
        .expect("runs");
    assert!(error(&output).contains("--model FILE"));
}

#[test]
fn a_peer_that_hangs_dies_with_the_interrupted_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let pid = folder.path().join("pid");
    let peer = fake(
        "llama-bench",
        &format!(
            "trap '' INT TERM\necho $$ > {0}.new\n/bin/mv {0}.new {0}\nwhile :; do /bin/sleep 1; done\n",
            pid.display()
        ),
    );
    for signal in ["-INT", "-TERM"] {
        let mut ours = compare(peer.path(), &["-p", "4", "-n", "0"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("runs");
        while !pid.exists() {
            assert!(
                ours.try_wait().expect("asked").is_none(),
                "ended before it was interrupted"
            );
            sleep(Duration::from_millis(10));
        }
        let theirs = fs::read_to_string(&pid).expect("a process id");
        let kill = |args: [&str; 2]| {
            let mut shell = Command::new("sh");
            shell.args(["-c", "kill \"$@\"", "kill"]).args(args);
            shell.stderr(Stdio::null()).status().expect("a shell")
        };
        assert!(kill([signal, &ours.id().to_string()]).success());
        assert_eq!(ours.wait().expect("ended").code(), Some(130));
        assert!(!kill(["-0", theirs.trim()]).success(), "the peer lives on");
        fs::remove_file(&pid).expect("removed");
    }
}
