//! The run store on disk: versions, other programs' files, several processes, a killed one.

use cbtop::tuner::run::{Origin, Run};
use cbtop::tuner::store::{Store, StoreError, json};
use rusqlite::Connection;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Set in a child process that writes, to the path of its store.
const WRITER: &str = "CBTOP_TEST_WRITER";
/// What a child's keys are told apart by.
const TAG: &str = "CBTOP_TEST_TAG";
/// Runs a child keeps before it ends by itself.
const RUNS: u32 = 150;

fn run(tag: &str, n: u32) -> Run {
    let text = format!(
        r#"{{"trial":{{"hardware":{{"name":"CPU","kind":"cpu","fingerprint":"cpu-1","mem_gbps":10.5,"gflops":null,
        "int8_gops":null,"cores":2,"cache_mb":null,"memory_gb":null}},"model":{{"name":"{tag}","arch":"llama","quant":"Q8_0",
        "params":1e6,"active_params":null,"weight_bytes":1e6,"kv_bytes_per_token":0.0,"hidden":64,"layers":null,"heads":null,
        "head_dim":null,"vocab":null}},"backend":"cbtop cpu","test":{{"prompt":0,"generated":16,"depth":{n},"batch":1}},
        "settings":[{{"knob":"threads","value":"2"}}]}},"origin":"collect","source":"test","unix_s":{n},"tok_s":12.5,"stddev":0.5,
        "repetitions":5,"warm":true,"background":0.0,"shares":null}}"#
    );
    let line = text.replace('\n', " ");
    let runs = json::read_from(line.as_bytes(), Path::new("run")).expect("a run");
    runs.into_iter().next().expect("one")
}

/// Not a test by itself: what the child processes of the tests below do.
#[test]
fn child_writes() {
    let (Ok(path), Ok(tag)) = (std::env::var(WRITER), std::env::var(TAG)) else {
        return;
    };
    let mut store = Store::open(Path::new(&path)).expect("opens");
    for n in 0..RUNS {
        store.insert(&run(&tag, n)).expect("kept");
        // Only what is committed is told.
        println!("\nkept {n}");
    }
}

fn writer(path: &Path, tag: &str) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "child_writes", "--nocapture", "--test-threads=1"])
        .env(WRITER, path)
        .env(TAG, tag)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts")
}

fn intact(path: &Path) {
    let db = Connection::open(path).expect("opens");
    let check: String = db
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .expect("checks");
    assert_eq!(check, "ok");
}

#[test]
fn two_processes_write_at_once_and_nothing_is_lost() {
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("deep/er/runs.sqlite");
    let children = ["a", "b", "c"].map(|tag| writer(&path, tag));
    for child in children {
        let output = child.wait_with_output().expect("ends");
        assert!(output.status.success(), "{output:?}");
    }
    let store = Store::open(&path).expect("opens");
    assert_eq!(store.count().expect("read"), u64::from(3 * RUNS));
    drop(store);
    intact(&path);
}

#[test]
fn a_killed_process_loses_nothing_that_it_committed() {
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("runs.sqlite");
    for (round, until) in [1_u32, 7, 23, 60].into_iter().enumerate() {
        let tag = format!("round {round}");
        let mut child = writer(&path, &tag);
        let out = child.stdout.take().expect("piped");
        let mut told = 0;
        for line in BufReader::new(out).lines() {
            let line = line.expect("text");
            let Some(n) = line.strip_prefix("kept ") else {
                continue;
            };
            told = n.parse::<u32>().expect("a number") + 1;
            if told == until {
                // SIGKILL, wherever it is in the next insert.
                child.kill().expect("killed");
            }
        }
        child.wait().expect("ended");
        assert!(told >= until);
        let store = Store::open(&path).expect("opens");
        for n in 0..told {
            let key = run(&tag, n).trial.key();
            assert!(store.contains(&key, Origin::Collect).expect("read"), "{n}");
        }
        store.runs().expect("every row is a run");
        drop(store);
        intact(&path);
    }
}

/// The tables of version 1, as they were; never to be changed.
const VERSION_1: &str = "
    CREATE TABLE runs (id INTEGER PRIMARY KEY, trial_key TEXT NOT NULL, origin TEXT NOT NULL, source TEXT NOT NULL,
      unix_s INTEGER, hardware TEXT NOT NULL, hardware_kind TEXT NOT NULL, fingerprint TEXT NOT NULL, mem_gbps REAL,
      gflops REAL, int8_gops REAL, cores INTEGER, cache_mb REAL, memory_gb REAL, model TEXT NOT NULL, arch TEXT NOT NULL,
      quant TEXT NOT NULL, params REAL NOT NULL, active_params REAL, weight_bytes REAL NOT NULL, kv_bytes_per_token REAL,
      hidden INTEGER, layers INTEGER, heads INTEGER, head_dim INTEGER, vocab INTEGER, backend TEXT NOT NULL,
      prompt INTEGER NOT NULL, generated INTEGER NOT NULL, depth INTEGER NOT NULL, batch INTEGER NOT NULL,
      settings TEXT NOT NULL, tok_s REAL NOT NULL, stddev REAL, repetitions INTEGER NOT NULL) STRICT;
    CREATE UNIQUE INDEX same_run ON runs (trial_key, origin, source, ifnull(unix_s, -1), tok_s);
    INSERT INTO runs VALUES (1, 'key', 'collect', 'cbtop 0.0.9', 5, 'CPU', 'cpu', 'cpu-1', 10.5, NULL, NULL, 2, NULL, NULL,
      'tiny', 'llama', 'Q8_0', 1e6, NULL, 1e6, 0.0, 64, NULL, NULL, NULL, NULL, 'cbtop cpu', 0, 16, 0, 1,
      '{\"threads\":\"2\"}', 12.5, 0.5, 5);
    PRAGMA application_id = 1667396720;
    PRAGMA user_version = 1;";

#[test]
fn f060_schema_is_versioned_and_old_stores_open() {
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("runs.sqlite");
    let db = Connection::open(&path).expect("made");
    db.execute_batch(VERSION_1).expect("version 1");
    drop(db);
    let mut store = Store::open(&path).expect("opens");
    let old = store.runs().expect("read").remove(0);
    assert_eq!(
        (old.tok_s, old.stddev, old.repetitions),
        (12.5, Some(0.5), 5)
    );
    assert_eq!((old.warm, old.background, old.shares), (None, None, None));
    assert_eq!(old.trial.setting("threads"), Some("2"));
    store.insert(&run("new", 1)).expect("kept");
    assert_eq!(store.runs().expect("read")[1], run("new", 1));
    drop(store);
    let version = |path: &Path| -> i64 {
        let db = Connection::open(path).expect("opens");
        db.pragma_query_value(None, "user_version", |row| row.get(0))
            .expect("read")
    };
    assert_eq!(version(&path), 2);
    // What this version makes and what it brings an old store to are the same tables.
    let fresh = dir.path().join("fresh.sqlite");
    Store::open(&fresh).expect("made");
    let columns = |path: &Path| -> Vec<(String, String, bool)> {
        let db = Connection::open(path).expect("opens");
        let query = "SELECT name, type, \"notnull\" FROM pragma_table_info('runs')";
        let mut statement = db.prepare(query).expect("query");
        let rows = statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)));
        rows.expect("rows").collect::<Result<_, _>>().expect("row")
    };
    assert_eq!(columns(&path), columns(&fresh));
    assert_eq!(columns(&fresh).len(), 42);
}

fn refused(path: &Path) -> String {
    let before = std::fs::read(path).expect("there");
    let error = Store::open(path)
        .and_then(|s| s.runs())
        .expect_err("no store");
    assert_eq!(std::fs::read(path).expect("there"), before, "{error}");
    error.to_string()
}

#[test]
fn files_that_are_no_stores_are_refused_and_left_as_they_are() {
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("f");
    std::fs::write(&path, "dear diary, ".repeat(1000)).expect("written");
    assert!(refused(&path).contains("no SQLite database"));
    std::fs::write(&path, "x").expect("written");
    assert!(refused(&path).contains("holds no runs"));
    let other = |sql: &str| {
        std::fs::remove_file(&path).expect("removed");
        Connection::open(&path)
            .expect("made")
            .execute_batch(sql)
            .expect("tables");
        refused(&path)
    };
    let e = other("CREATE TABLE bookmarks (url TEXT)");
    assert!(e.contains("another program"), "{e}");
    let e = other("PRAGMA user_version = 7");
    assert!(e.contains("another program"), "{e}");
    let e = other("PRAGMA application_id = 1667396720; PRAGMA user_version = 99");
    assert!(
        e.contains("schema version 99") && e.contains("up to 2"),
        "{e}"
    );
    let e = other("PRAGMA application_id = 1667396720; PRAGMA user_version = -1");
    assert!(e.contains("schema version is -1"), "{e}");
    let e = other(
        "CREATE TABLE runs (id); PRAGMA application_id = 1667396720; PRAGMA user_version = 2",
    );
    assert!(e.contains("no such column"), "{e}");
    assert!(matches!(
        Store::open(dir.path()),
        Err(StoreError::Foreign { .. })
    ));
    let below_a_file = Store::open(&path.join("runs.sqlite"));
    assert!(
        matches!(below_a_file, Err(StoreError::Io { .. })),
        "{below_a_file:?}"
    );
}

#[test]
fn a_store_cut_short_or_overwritten_is_an_error_never_a_panic() {
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("runs.sqlite");
    let mut store = Store::open(&path).expect("made");
    let runs: Vec<Run> = (0..200).map(|n| run("whole", n)).collect();
    store.insert_all(&runs).expect("kept");
    drop(store);
    let whole = std::fs::read(&path).expect("there");
    for keep in [1, 50, 100, 1000, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..keep]).expect("cut");
        let e = refused(&path);
        assert!(
            e.contains("damaged") || e.contains("holds no runs"),
            "{keep}: {e}"
        );
    }
    for at in (0..whole.len()).step_by(997) {
        let mut bytes = whole.clone();
        let end = (at + 64).min(bytes.len());
        bytes[at..end].fill(0xff);
        std::fs::write(&path, &bytes).expect("written");
        if let Ok(mut store) = Store::open(&path) {
            let _ = (store.runs(), store.count(), store.insert(&run("more", 1)));
        }
        for end in ["-wal", "-shm"] {
            let mut beside = path.clone().into_os_string();
            beside.push(end);
            let _ = std::fs::remove_file(beside);
        }
    }
}

#[test]
fn names_that_mean_something_to_sqlite_are_names_of_files() {
    let dir = tempfile::tempdir().expect("folder");
    for name in [":memory:", "file:x?mode=memory"] {
        let path = dir.path().join(name);
        Store::open(&path)
            .expect("opens")
            .insert(&run("odd", 0))
            .expect("kept");
        assert!(path.is_file(), "{name}");
    }
}
