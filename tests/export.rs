//! What a headless run can be written as: traces, graphs, files.

use serde_json::Value;
use std::io::Read;
use std::process::{Command, Output};

fn cbtop(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cbtop"))
        .args(["--headless", "-n", "4", "-t", "2"])
        .args(args)
        .output()
        .expect("runs")
}

fn printed(args: &[&str]) -> String {
    let done = cbtop(args);
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert_eq!((done.status.code(), &*stderr), (Some(0), ""), "{args:?}");
    String::from_utf8(done.stdout).expect("UTF-8")
}

#[test]
fn a_trace_has_layers_bricks_threads_kernels_and_counters() {
    let trace: Value = serde_json::from_str(&printed(&["--format", "chrome"])).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let of_kind = |ph: &str| events.iter().filter(|e| e["ph"] == ph).count();
    // Four tokens of the demo: a prompt, three decoded tokens, eight layers, two threads.
    assert!(of_kind("X") > 4 * 8 * 15 * 2, "{}", of_kind("X"));
    assert!(of_kind("C") >= 4);
    let named = |e: &&Value| e["ph"] == "M";
    let names: Vec<&str> = events
        .iter()
        .filter(named)
        .filter_map(|e| e["args"]["name"].as_str())
        .collect();
    for track in ["layers", "bricks", "kernels", "thread 0", "thread 1"] {
        assert!(
            names.iter().any(|n| n.contains(track)),
            "{track} of {names:?}"
        );
    }
    let steps = events.iter().filter(|e| e["cat"] == "step").count();
    assert_eq!(steps, 4);
}

#[test]
fn the_graph_is_written_in_every_form() {
    let tree = printed(&["--format", "tree"]);
    assert!(
        tree.starts_with("wall time")
            && tree.contains("\ndecode step")
            && tree.contains("critical path: "),
        "{tree}"
    );
    assert!(tree.contains("Layer 7") && tree.contains("thread 1"));
    let dot = printed(&["--format", "dot"]);
    assert!(dot.starts_with("digraph") && dot.trim_end().ends_with('}'));
    let graph: Value = serde_json::from_str(&printed(&["--format", "graph"])).expect("JSON");
    let nodes = graph["nodes"].as_array().expect("nodes").len();
    let rows: Value = serde_json::from_str(&printed(&["--format", "csr"])).expect("JSON");
    assert!(nodes > 100);
    assert_eq!(rows["nodes"].as_array().expect("nodes").len(), nodes);
}

#[test]
fn without_bricks_there_is_no_graph() {
    let done = cbtop(&["--format", "tree", "--sync-mode", "none"]);
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2));
    assert!(stderr.contains("--sync-mode"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1);
}

#[test]
fn a_file_is_whole_or_not_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let (plain, packed) = (
        folder.path().join("t.json"),
        folder.path().join("t.json.gz"),
    );
    for path in [&plain, &packed] {
        let out = printed(&["--format", "chrome", "--out", path.to_str().expect("UTF-8")]);
        assert!(out.is_empty());
    }
    let mut text = String::new();
    let file = std::fs::File::open(&packed).expect("written");
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .expect("gzip");
    for text in [text, std::fs::read_to_string(&plain).expect("written")] {
        assert!(serde_json::from_str::<Value>(&text).expect("JSON")["traceEvents"].is_array());
    }
    // What is no file stays what it is, a link too, and so do permissions.
    #[cfg(unix)]
    {
        use std::os::unix::fs::{PermissionsExt, symlink};
        printed(&["--format", "tree", "--out", "/dev/null"]);
        assert!(!std::fs::metadata("/dev/null").expect("there").is_file());
        std::fs::set_permissions(&plain, PermissionsExt::from_mode(0o600)).expect("set");
        let link = folder.path().join("link");
        symlink(&plain, &link).expect("linked");
        printed(&["--format", "tree", "--out", link.to_str().expect("UTF-8")]);
        assert!(
            std::fs::symlink_metadata(&link)
                .expect("there")
                .is_symlink()
        );
        assert!(
            std::fs::read_to_string(&plain)
                .expect("there")
                .starts_with("wall time")
        );
        let mode = std::fs::metadata(&plain)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::remove_file(&link).expect("removed");
    }
    // A run that fails leaves what was there, and nothing else.
    std::fs::write(&plain, "mine").expect("written");
    let path = plain.to_str().expect("UTF-8");
    let done = cbtop(&["--format", "dot", "--sync-mode", "none", "--out", path]);
    assert_eq!(done.status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(&plain).expect("there"), "mine");
    assert_eq!(
        std::fs::read_dir(folder.path()).expect("a folder").count(),
        2
    );
    let nowhere = folder.path().join("none/t.json");
    let done = cbtop(&["--format", "dot", "--out", nowhere.to_str().expect("UTF-8")]);
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert_eq!(
        (done.status.code(), stderr.lines().count()),
        (Some(2), 1),
        "{stderr}"
    );
}
