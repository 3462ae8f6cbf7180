use super::escape;
use super::run;
use crate::cli::InspectArgs;
use cbtop::gguf::{Array, GgmlType, Strings, Value};
use cbtop::session::{Loaded, Source};
use std::path::{Path, PathBuf};

#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../../../tests/gguf_file/mod.rs"]
mod gguf_file;

fn inspect(file: &Path, json: bool, ctx: Option<usize>) -> Result<String, String> {
    let mut out = Vec::new();
    let args = InspectArgs {
        file: file.into(),
        json,
        ctx,
        kv_type: None,
    };
    run(&args, &mut out).map_err(|e| format!("{e:#}"))?;
    Ok(String::from_utf8(out).expect("UTF-8"))
}

fn steers(c: char) -> bool {
    (c.is_control() && c != '\n')
        || ('\u{200b}'..='\u{200f}').contains(&c)
        || ('\u{202a}'..='\u{202e}').contains(&c)
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/models")
        .join(name)
}

#[test]
fn every_file_is_described_and_judged_as_loading_does() {
    let Some(shared) = common::shared() else {
        return;
    };
    let folders = [shared.join("models"), shared.join("vocab")];
    let files = folders
        .iter()
        .flat_map(|f| std::fs::read_dir(f).expect("folder"))
        .map(|e| e.expect("entry").path());
    let mut seen = 0;
    for file in files.filter(|f| f.extension().is_some_and(|e| e == "gguf")) {
        let loads = Loaded::open(Source::File(file.clone()));
        let text = inspect(&file, false, None).expect("described");
        let name = file.display();
        assert_eq!(
            text.contains("\n  can run "),
            loads.is_ok(),
            "{name}: {text}"
        );
        assert_eq!(text.contains("\n  cannot run "), loads.is_err(), "{name}");
        assert_eq!(text.contains("Memory needed"), loads.is_ok(), "{name}");
        assert!(!text.chars().any(steers), "{name}");
        let json: serde_json::Value =
            serde_json::from_str(&inspect(&file, true, None).expect("described")).expect("JSON");
        assert_eq!(json["can_run"], loads.is_ok());
        assert_eq!(
            json["refusals"].as_array().is_some_and(Vec::is_empty),
            loads.is_ok()
        );
        if let Ok(loaded) = loads {
            let tensors = json["tensors"].as_array().expect("tensors");
            assert_eq!(tensors.len(), loaded.model.gguf().tensors().len());
            assert_eq!(json["vocabulary"], loaded.tokenizer.n_vocab());
        }
        seen += 1;
    }
    assert!(seen > 20, "{seen} files");
}

#[test]
fn sums_agree() {
    let file = fixture("llama.Q4_K_M.gguf");
    let json: serde_json::Value =
        serde_json::from_str(&inspect(&file, true, Some(64)).expect("described")).expect("JSON");
    let number = |v: &serde_json::Value| v.as_u64().expect("a number");
    let sum = |rows: &serde_json::Value, field: &str| -> u64 {
        rows.as_array()
            .expect("rows")
            .iter()
            .map(|r| number(&r[field]))
            .sum()
    };
    assert_eq!(
        sum(&json["tensors"], "bytes"),
        number(&json["weight_bytes"])
    );
    assert_eq!(sum(&json["types"], "bytes"), number(&json["weight_bytes"]));
    assert_eq!(sum(&json["types"], "elements"), number(&json["parameters"]));
    let m = &json["memory"];
    assert_eq!(m["context"], 64);
    let parts = number(&m["weights_bytes"]) + number(&m["kv_bytes"]) + number(&m["buffer_bytes"]);
    assert_eq!(number(&m["total_bytes"]), parts);
    assert!(number(&json["read_per_token"]["weight_bytes"]) <= number(&json["weight_bytes"]));
}

#[test]
fn memory_is_what_the_engine_allocates() {
    for name in ["llama.Q4_K_M.gguf", "gemma3.Q8_0.gguf", "qwen2.Q4_K_M.gguf"] {
        let loaded = Loaded::open(Source::File(fixture(name))).expect("loads");
        let config = cbtop::engine::Config {
            n_ctx: 96,
            chunk: 96,
            ..loaded.config()
        };
        let engine = cbtop::engine::Engine::new(loaded.model, config, cbtop::engine::Unobserved)
            .expect("an engine");
        let text = inspect(&fixture(name), true, Some(96)).expect("described");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(json["memory"]["kv_bytes"], engine.kv_bytes(), "{name}");
        assert_eq!(
            json["memory"]["buffer_bytes"],
            engine.scratch_bytes(),
            "{name}"
        );
    }
}

#[test]
fn a_context_out_of_range_is_refused() {
    for ctx in [0, 1 << 25, usize::MAX] {
        let error = inspect(&fixture("llama.Q4_K_M.gguf"), false, Some(ctx)).expect_err("refused");
        assert!(
            error.starts_with("--ctx: ") && !error.contains('\n'),
            "{error}"
        );
    }
    // The largest is only counted, not allocated.
    inspect(&fixture("llama.Q4_K_M.gguf"), false, Some(1 << 24)).expect("described");
}

#[test]
fn a_hostile_file_cannot_steer_the_terminal() {
    let evil = "\x1b]0;owned\x07\x1b[2J\u{9b}31m\r\n\u{202e}txet\u{200b}\x7f\\n";
    let file = gguf_file::File::default()
        .with("general.architecture", Value::String(format!("arch{evil}")))
        .with("general.name", Value::String(evil.into()))
        .with("bytes", Value::Bytes(b"\x1b[31m\xff".to_vec()))
        .with("long", Value::String("x".repeat(100_000)))
        .with("list", Value::Array(Array::String(vec![evil; 20].into())))
        .with(evil, Value::F32(f32::NAN))
        .tensor(gguf_file::Tensor::new(
            &format!("t{evil}"),
            GgmlType::F32,
            &[4],
        ));
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("evil\x1b[31m.gguf");
    std::fs::write(&path, file.build()).expect("written");
    let text = inspect(&path, false, None).expect("described");
    assert!(!text.chars().any(steers), "{text:?}");
    assert!(
        text.contains("\\u{1b}]0;owned\\u{7}") && text.contains("\\\\n"),
        "{text}"
    );
    assert!(text.contains("… (+99,904 characters)"), "{text}");
    assert!(text.lines().all(|l| l.chars().count() < 1200), "{text}");
    let json = inspect(&path, true, None).expect("described");
    assert!(!json.chars().any(steers), "{json:?}");
    let back: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(back["name"], evil);
}

#[test]
fn text_is_cut_and_escaped() {
    assert_eq!(
        escape::text("Grüße, 世界 'x' \"y\"", 100),
        "Grüße, 世界 'x' \"y\""
    );
    assert_eq!(escape::text("abcdef", 4), "abcd… (+2 characters)");
    assert_eq!(escape::text("a\nb\tc\0", 10), "a\\nb\\tc\\0");
    assert_eq!(escape::grouped(0), "0");
    assert_eq!(escape::grouped(999), "999");
    assert_eq!(escape::grouped(1_234_567), "1,234,567");
    let value = Value::Array(Array::I32((0..49_152).collect()));
    assert_eq!(escape::value(&value, 96), "[49,152] 0, 1, 2, 3, 4, 5, …");
    assert_eq!(
        escape::value(&Value::Array(Array::String(Strings::default())), 96),
        "[0]"
    );
    assert_eq!(escape::value(&Value::F32(1e-5), 96), "1e-5");
}
