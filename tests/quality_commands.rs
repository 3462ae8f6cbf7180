//! `cbtop perplexity` and `cbtop quant-error` as they are called: what they print, and how they refuse.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cbtop"))
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .output()
        .expect("runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// The one line of an error of exit code 2.
fn refused(args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
    assert!(output.stdout.is_empty(), "{args:?}");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "{args:?}: {text}");
    text
}

const LLAMA: &str = "tests/fixtures/models/llama.Q4_K_M.gguf";
const LICENSE: &str = "LICENSE-MIT";

/// A copy of the fixture with its last bytes, which are weights, changed.
fn changed(folder: &Path, by: impl Fn(&mut [u8])) -> PathBuf {
    let mut bytes = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(LLAMA)).expect("read");
    let from = bytes.len() / 2;
    by(&mut bytes[from..]);
    let path = folder.join("changed.gguf");
    fs::write(&path, bytes).expect("written");
    path
}

#[test]
fn perplexity_says_the_same_in_both_formats_and_on_both_paths() {
    let args = ["perplexity", "-f", LICENSE, "-c", "64", "--chunks", "3"];
    let json = |more: &[&str]| -> serde_json::Value {
        let output = run(&[&args[..], more, &["--format", "json"]].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_str(&stdout(&output)).expect("JSON")
    };
    let (fast, slow) = (json(&[]), json(&["--path", "reference"]));
    assert_eq!((&fast["windows"], &fast["scored"]), (&3.into(), &93.into()));
    assert_eq!(
        (&fast["path"], &slow["path"]),
        (&"fast".into(), &"reference".into())
    );
    let of = |v: &serde_json::Value| v["perplexity"].as_f64().expect("a number");
    assert!((of(&fast) / of(&slow) - 1.0).abs() < 0.01, "{fast} {slow}");
    assert!((fast["nll"].as_f64().expect("a number").exp() - of(&fast)).abs() < 1e-6 * of(&fast));
    let text = stdout(&run(&args));
    assert!(
        text.contains(&format!("PPL {:.4} +/- ", of(&fast))),
        "{text}"
    );

    let both = json(&["--reference", "assets/demo.gguf"]);
    assert_eq!(both["reference_file"], "demo.gguf");
    assert_eq!(both["reference"]["perplexity"], both["perplexity"]);
    assert_eq!(both["reference"]["same_top"], 1.0);
}

#[test]
fn quant_error_judges_by_its_exit_code() {
    let args = ["quant-error", "-m", LLAMA, "-f", LICENSE, "-n", "24"];
    let good = run(&args);
    assert!(good.status.success(), "{good:?}");
    let text = stdout(&good);
    assert!(
        text.contains("A acceptable: the worst of own errors and logits\n"),
        "{text}"
    );
    assert!(
        text.contains("24 tokens against F32 of the same weights\n"),
        "{text}"
    );
    assert!(!text.contains('\x1b'), "colours where nobody sees them");
    let all = stdout(&run(&[&args[..], &["--all"]].concat()));
    let rows = |text: &str| text.lines().filter(|l| l.starts_with("A QProj")).count();
    assert_eq!((rows(&text), rows(&all)), (2, 6));

    let json = stdout(&run(&[&args[..], &["--format", "json"]].concat()));
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (&json["grade"], &json["tokens"]),
        (&"acceptable".into(), &24.into())
    );
    let csv = stdout(&run(&[&args[..], &["--format", "csv"]].concat()));
    assert_eq!(
        csv.lines().count() - 1,
        json["brick_errors"].as_array().map_or(0, Vec::len)
    );
    assert!(csv.starts_with("of,brick,layer,weights,cosine,"), "{csv}");

    // Other weights; then weights that are no numbers.
    let folder = tempfile::tempdir().expect("a folder");
    for byte in [0x5a, 0xff] {
        let path = changed(folder.path(), |b| {
            b.iter_mut()
                .step_by(if byte == 0xff { 1 } else { 3 })
                .for_each(|b| *b = byte)
        });
        let path = path.to_str().expect("UTF-8");
        let bad = run(&[&args[..], &["--reference", path]].concat());
        assert_eq!(bad.status.code(), Some(1), "{bad:?}");
        assert!(stdout(&bad).contains("C critical: the worst"), "{bad:?}");
        let json = run(&[&args[..], &["--reference", path, "--format", "json"]].concat());
        let json: serde_json::Value = serde_json::from_str(&stdout(&json)).expect("JSON");
        assert_eq!(json["grade"], "critical");
        assert_eq!(json["reference"], "changed.gguf");
    }
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let whole = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(LLAMA)).expect("read");
    let cut = file("cut.gguf", &whole[..whole.len() / 2]);
    let (empty, binary) = (
        file("empty.txt", b""),
        file("binary.txt", &[b'a', 0xff, 0xfe]),
    );
    let qwen = "tests/fixtures/models/qwen2.Q4_K_M.gguf";
    for (args, words) in [
        (&["quant-error", "--text", ""][..], "at least 2 are needed"),
        (&["quant-error", "-f", &empty], "at least 2 are needed"),
        (&["quant-error", "-n", "0"], "--tokens is 0"),
        (&["quant-error", "-f", &binary], "no UTF-8 text (byte 1)"),
        (
            &["quant-error", "-n", "100000"],
            "do not fit into a context",
        ),
        (
            &["quant-error", "-m", LLAMA, "--reference", qwen],
            "is another model: architecture",
        ),
        (
            &["quant-error", "-m", LLAMA, "--reference", &cut],
            "cut.gguf",
        ),
        (&["quant-error", "-m", &cut], "cut.gguf"),
        (
            &["quant-error", "--reference", "/nowhere.gguf"],
            "no such file",
        ),
        (&["perplexity", "-f", &empty], "needs at least 1024"),
        (&["perplexity", "-f", &binary], "no UTF-8 text"),
        (&["perplexity", "-f", "/nowhere.txt"], "/nowhere.txt"),
        (
            &["perplexity", "-f", LICENSE, "-c", "100000"],
            "needs at least 200000",
        ),
        (
            &["perplexity", "-f", LICENSE, "-c", "2"],
            "nothing to score",
        ),
        (
            &["perplexity", "-f", LICENSE, "--chunks", "0"],
            "--chunks is 0",
        ),
        (
            &[
                "perplexity",
                "-m",
                LLAMA,
                "-f",
                LICENSE,
                "-c",
                "32",
                "--reference",
                qwen,
            ],
            "another model",
        ),
        (
            &["perplexity", "-f", LICENSE, "-c", "32", "--reference", &cut],
            "cut.gguf",
        ),
    ] {
        let text = refused(args);
        assert!(text.contains(words), "{args:?}: {text}");
    }
}
