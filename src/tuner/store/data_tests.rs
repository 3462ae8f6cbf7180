use super::tests::{any_run, run};
use super::{dataset, json, parquet};
use crate::tuner::run::{Origin, Run};
use proptest::prelude::*;
use std::path::Path;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("folder")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn every_run_comes_back_from_json_and_parquet(runs in proptest::collection::vec(any_run(), 0..12)) {
        let dir = folder();
        let (lines, columns) = (dir.path().join("a.jsonl"), dir.path().join("a.parquet"));
        json::write(&lines, &runs).expect("written");
        prop_assert_eq!(&json::read(&lines).expect("read"), &runs);
        parquet::write(&columns, &runs).expect("written");
        prop_assert_eq!(&parquet::read(&columns).expect("read"), &runs);
    }

    #[test]
    fn damaged_parquet_is_an_error_or_other_runs_never_a_panic(
        at in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
        keep in any::<proptest::sample::Index>(),
    ) {
        let dir = folder();
        let path = dir.path().join("a.parquet");
        let runs: Vec<Run> = (0..3).map(run).collect();
        let whole = parquet::to_bytes(&path, &runs).expect("bytes");
        let mut flipped = whole.clone();
        let at = at.index(flipped.len());
        flipped[at] = byte;
        std::fs::write(&path, &flipped).expect("written");
        let _ = parquet::read(&path);
        std::fs::write(&path, &whole[..keep.index(whole.len())]).expect("written");
        let e = parquet::read(&path).expect_err("cut short");
        prop_assert!(e.to_string().contains("a.parquet"), "{}", e);
    }

    #[test]
    fn any_bytes_are_lines_of_runs_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = json::read_from(bytes.as_slice(), Path::new("a.jsonl"));
        let _ = super::columns::settings_of(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn more_rows_than_a_batch_come_back() {
    let dir = folder();
    let path = dir.path().join("a.parquet");
    let runs: Vec<Run> = (0..20_000).map(run).collect();
    parquet::write(&path, &runs).expect("written");
    assert!(parquet::read(&path).expect("read") == runs);
    let bytes = std::fs::metadata(&path).expect("there").len();
    assert!(bytes < 1_000_000, "{bytes} bytes");
}

#[test]
fn lines_that_are_no_runs_are_named() {
    let error = |text: &str| {
        let e = json::read_from(text.as_bytes(), Path::new("a.jsonl"));
        e.expect_err("no run").to_string()
    };
    let line = serde_json::to_string(&run(0)).expect("json");
    let cases = [
        (format!("{line}\n\n{{}}\n"), "a.jsonl: line 3 is no run"),
        (line.replace("\"collect\"", "\"dream\""), "line 1 is no run"),
        (
            line.replace("\"tok_s\":100.0", "\"tok_s\":-1"),
            "row 1: column tok_s",
        ),
        (
            line.replace("\"tok_s\":100.0,", ""),
            "missing field `tok_s`",
        ),
        ("x".repeat(2 << 20), "line 1 has more than"),
    ];
    for (text, what) in cases {
        let e = error(&text);
        assert!(e.contains(what), "{e}");
    }
}

#[test]
fn a_text_that_is_too_long_is_refused_before_it_is_copied() {
    let dir = folder();
    let path = dir.path().join("a.parquet");
    let mut long = run(0);
    long.trial.model.name = "x".repeat(1 << 20);
    let mut file = std::fs::File::create(&path).expect("made");
    // All rows share the text of one dictionary.
    parquet::encode(&mut file, &vec![long; 1024]).expect("written");
    let e = parquet::read(&path).expect_err("too long");
    assert!(matches!(e, super::DataError::Format { .. }), "{e:?}");
    assert!(e.to_string().contains("column model: "), "{e}");
    assert!(
        e.to_string()
            .contains("has 1048576 bytes, at most 4096 are allowed"),
        "{e}"
    );
}

#[test]
fn times_that_no_run_has_are_refused() {
    for (at, holds) in [
        (None, true),
        (Some(0), true),
        (Some(946_684_800), true),
        // Milliseconds.
        (Some(1_790_000_000_000), false),
        (Some(i64::MAX), false),
        (Some(-1), false),
    ] {
        let timed = Run {
            unix_s: at,
            ..run(0)
        };
        let checked = super::columns::check(&timed);
        assert_eq!(checked.is_ok(), holds, "{at:?}");
        assert!(checked.err().is_none_or(|e| e.column == "unix_s"), "{at:?}");
    }
}

#[cfg(unix)]
#[test]
fn what_is_written_may_be_read_by_others() {
    use std::os::unix::fs::PermissionsExt;
    let dir = folder();
    let (lines, model) = (
        dir.path().join("a.ndjson"),
        dir.path().join("new/m.safetensors"),
    );
    assert!(json::is_json(&lines) && !json::is_json(&model));
    json::write(&lines, &[run(0)]).expect("written");
    crate::tuner::learn::brick_tuner::BrickTuner::cold_start()
        .save(&model)
        .expect("saved");
    let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode();
    assert_eq!(mode(&lines), mode(&model));
    assert_eq!(mode(&model) & 0o600, 0o600);
}

#[test]
fn parquet_without_our_columns_names_the_first_that_is_wrong() {
    use ::parquet::data_type::Int64Type;
    use ::parquet::file::writer::SerializedFileWriter;
    use ::parquet::schema::parser::parse_message_type;
    let dir = folder();
    let path = dir.path().join("a.parquet");
    let of = |message: &str| {
        let schema = std::sync::Arc::new(parse_message_type(message).expect("schema"));
        let file = std::fs::File::create(&path).expect("made");
        let mut writer =
            SerializedFileWriter::new(file, schema, std::sync::Arc::default()).expect("writer");
        let mut rows = writer.next_row_group().expect("group");
        while let Some(mut column) = rows.next_column().expect("column") {
            let levels = Some([1_i16].as_slice());
            let column_writer = column.typed::<Int64Type>();
            column_writer
                .write_batch(&[1], levels, levels.map(|_| [0].as_slice()))
                .expect("value");
            column.close().expect("closed");
        }
        rows.close().expect("closed");
        writer.close().expect("closed");
        parquet::read(&path).expect_err("no runs").to_string()
    };
    let e = of("message m { OPTIONAL INT64 x; }");
    assert!(e.contains("column origin: is missing"), "{e}");
    let e = of("message m { OPTIONAL INT64 origin; }");
    assert!(e.contains("column origin: is INT64, not text"), "{e}");
}

#[test]
fn data_sets_of_machines_are_put_together_and_read_once() {
    let dir = folder();
    let here: Vec<Run> = (0..5).map(run).collect();
    dataset::write(dir.path(), &here[..3]).expect("written");
    // The store has grown; the part that is there already stays, its runs count once.
    dataset::write(dir.path(), &here).expect("written");
    let mut there = run(0);
    there.trial.hardware.fingerprint = "../odd name/é".into();
    there.origin = Origin::Public;
    dataset::write(dir.path(), std::slice::from_ref(&there)).expect("written");
    let other = dir
        .path()
        .join("origin=public/machine=..%2Fodd%20name%2F%C3%A9");
    assert!(other.is_dir());
    let mut runs = dataset::read(dir.path()).expect("read");
    runs.sort_by_key(|r| (r.origin, r.unix_s));
    let mut all = here;
    all.push(there);
    assert_eq!(runs, all);
    // The same runs make the same file.
    let files = |d: &Path| std::fs::read_dir(d).expect("listed").count();
    dataset::write(dir.path(), &all[5..]).expect("written");
    assert_eq!(files(&other), 1);
}

#[test]
fn long_names_of_machines_become_hashes() {
    let dir = folder();
    let long = |end: &str| {
        let mut run = run(0);
        run.trial.hardware.fingerprint = format!("{}{end}", "f".repeat(400));
        run
    };
    dataset::write(dir.path(), &[long("a"), long("b")]).expect("written");
    assert_eq!(dataset::read(dir.path()).expect("read").len(), 2);
}

#[cfg(unix)]
#[test]
fn links_hidden_and_other_files_are_left_out() {
    let dir = folder();
    let e = dataset::read(dir.path()).expect_err("empty").to_string();
    assert!(e.contains("no *.parquet file"), "{e}");
    dataset::write(dir.path(), &[run(0)]).expect("written");
    std::os::unix::fs::symlink(dir.path(), dir.path().join("loop")).expect("linked");
    for name in ["_SUCCESS", "notes.txt", ".half.parquet", "_half.parquet"] {
        std::fs::write(dir.path().join(name), "x").expect("written");
    }
    assert_eq!(dataset::read(dir.path()).expect("read"), [run(0)]);
    std::fs::write(dir.path().join("bad.parquet"), "PAR1PAR1").expect("written");
    let e = dataset::read(dir.path()).expect_err("bad").to_string();
    assert!(e.contains("bad.parquet"), "{e}");
}
