//! The JSON report: its schema as checked in, and real reports held against it.

mod common;

use cbtop::engine::SyncMode;
use cbtop::engine::sampler::SamplerConfig;
use cbtop::headless::Report;
use cbtop::headless::recommend::RecommendReport;
use cbtop::headless::report::SCHEMA_VERSION;
use cbtop::profiler::Clock;
use cbtop::profiler::probe::Bandwidth;
use cbtop::session::snapshot::{BrickRow, RunState, Snapshot};
use cbtop::session::{Loaded, Options, Session, Source};
use cbtop::tracer::ModelTracerConfig;
use cbtop::tracer::export::TracerExport;
use cbtop::tracer::figures::TracerSet;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};

const TRACER_SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/src/tracer.schema.json");
const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/src/report.schema.json");
const FORMATS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/src/formats.md");

#[test]
fn schema_as_checked_in_is_that_of_the_types() {
    let schema = serde_json::to_string_pretty(&Report::schema()).expect("a schema") + "\n";
    checked_in(&schema, SCHEMA, "headless::Report");
}

/// A schema in the book is that of its type.
fn checked_in(schema: &str, path: &str, what: &str) {
    if std::env::var_os("UPDATE_SCHEMA").is_some_and(|v| v == "1") {
        // Other tests may be reading it.
        let beside = format!("{path}.part");
        std::fs::write(&beside, schema).expect("written");
        std::fs::rename(&beside, path).expect("renamed");
    }
    let checked_in = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        checked_in == schema,
        "{path} is not the schema of {what}. If the change is meant, write it anew with\n    \
         UPDATE_SCHEMA=1 cargo nextest run --release -E 'test(schema)'\n\
         and raise its SCHEMA_VERSION if a field went or changed its meaning."
    );
}

#[test]
fn schema_of_recommendations_as_checked_in_is_that_of_the_type() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/docs/src/recommend.schema.json"
    );
    let schema = serde_json::to_string_pretty(&RecommendReport::schema()).expect("a schema") + "\n";
    checked_in(&schema, path, "headless::recommend::RecommendReport");
}

#[test]
fn schema_version_is_in_the_report_and_the_book() {
    let report = Report::new(&run(demo(), Clock::modelled(), 2));
    assert_eq!(report.schema_version, SCHEMA_VERSION);
    assert!(report.generator.starts_with("cbtop "));
    let page = std::fs::read_to_string(FORMATS).expect("the page");
    assert!(page.contains(&format!("`schema_version` is {SCHEMA_VERSION}")));
}

#[test]
fn the_book_names_every_field() {
    let page = std::fs::read_to_string(FORMATS).expect("the page");
    let mut traced = run_with(TracerSet::ALL, demo(), Clock::modelled(), 8);
    let report = serde_json::to_value(Report::new(&traced.snapshot()));
    let mut names = BTreeSet::new();
    field_names(&report.expect("JSON"), &mut names);
    let missing: Vec<_> = names
        .iter()
        .filter(|n| !page.contains(&format!("`{n}`")))
        .collect();
    assert!(missing.is_empty(), "docs/src/formats.md lacks {missing:?}");
}

fn field_names(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            names.insert(name.clone());
            field_names(value, names);
        }),
        Value::Array(items) => items.iter().for_each(|v| field_names(v, names)),
        _ => {}
    }
}

#[test]
fn real_reports_are_as_the_schema_says_and_come_back_equal() {
    let validator = validator();
    for_each_run(|name, snapshot| {
        let report = Report::new(snapshot);
        let mut json = Vec::new();
        report.write(&mut json).expect("written");
        let value: Value = serde_json::from_slice(&json).expect("JSON");
        complies(&validator, &value, name);
        let back: Report = serde_json::from_slice(&json).expect("a report");
        assert_eq!(back, report, "{name}");
    });
}

/// F265: what tracers find is as the published schemas say, in the report and in their own export.
#[test]
fn f265_exports_of_tracers_are_as_their_schema_says() {
    let schema = serde_json::to_string_pretty(&TracerExport::schema()).expect("a schema") + "\n";
    checked_in(&schema, TRACER_SCHEMA, "tracer::export::TracerExport");
    let value = serde_json::from_str(&schema).expect("JSON");
    let validator = jsonschema::validator_for(&value).expect("a schema");
    for file in ["llama.Q4_K_M.gguf", "gemma3.Q8_0.gguf"] {
        let loaded = common::fixture(file);
        let session = run_with(TracerSet::ALL, loaded, Clock::calibrated(), 20);
        let export = session.tracer_export();
        let mut json = Vec::new();
        export.to_json(&mut json).expect("written");
        complies(
            &validator,
            &serde_json::from_slice(&json).expect("JSON"),
            file,
        );
        assert_eq!(TracerExport::from_json(&json).expect("an export"), export);
        // Of every token: the prompt is one step.
        assert_eq!(export.activations.len(), 20, "{file}");
        assert_eq!(export.logits.len(), 20, "{file}");
        assert_eq!(export.kv.steps.len(), 20, "{file}");
        let last = export.activations.last().expect("a step");
        let queries = last.position as usize + 1;
        let (layers, heads) = (last.layers.len(), export.attention.len());
        assert_eq!(heads % (queries * layers), 0, "{file}");
        let model = export.quantisation.expect("measured");
        assert!(model.logits_cosine > 0.99 && !model.brick_errors.is_empty());
    }
}

/// F110: every row says its category, and the whole is as the published schema says (see above).
#[test]
fn f110_the_report_has_categories() {
    let schema: Value = serde_json::to_value(Report::schema()).expect("JSON");
    assert!(schema.to_string().contains("\"category\""));
    for_each_run(|name, snapshot| {
        let report = serde_json::to_value(Report::new(snapshot)).expect("JSON");
        for rows in ["bricks", "prefill_bricks"] {
            let rows = report["snapshot"][rows].as_array().expect("rows");
            assert!(!rows.is_empty(), "{name}");
            for row in rows {
                let category = row["category"].as_str().expect("a category");
                let known = ["norm", "attention", "ffn", "head", "overhead"];
                assert!(known.contains(&category), "{name}: {category}");
            }
        }
    });
}

#[test]
fn times_and_shares_add_up() {
    for_each_run(|name, s| {
        for (kind, rows) in [("decode", &s.bricks), ("prefill", &s.prefill_bricks)] {
            rows_add_up(&format!("{name}, {kind}"), rows);
        }
        let token_us = total(&s.bricks, |r| r.us_per_step);
        // One row of statistics a decode step, and a decode step for every token but the first.
        let decoded: f64 = s.tokens.iter().skip(1).map(|t| t.us).sum();
        let ended_early =
            matches!(&s.state, RunState::Finished { reason } if reason == "end of text");
        if !ended_early {
            close(decoded, total(&s.bricks, |r| r.total_us), name);
        }
        let mean = s.rates.decode_mean_tok_s.expect("many tokens");
        close(mean, 1e6 / token_us, name);
        let gbps = s.rates.decode_gbps.expect("many tokens");
        // Bytes a step are rounded to whole ones in the rows.
        let counted = total(&s.bricks, |r| r.bytes_per_step as f64) / token_us * 1e-3;
        assert!(
            (gbps / counted - 1.0).abs() < 1e-3,
            "{name}: {gbps}, {counted}"
        );
        let ttft = s.rates.ttft_s.expect("a token");
        close(ttft * 1e6, total(&s.prefill_bricks, |r| r.total_us), name);

        assert_eq!(s.layers.len(), s.model.n_layers as usize, "{name}");
        for l in &s.layers {
            let parts = l.attention_us + l.ffn_us + l.norm_us + l.sync_us;
            close(l.us_per_step, parts, name);
        }
        let layers: f64 = s.layers.iter().map(|l| l.us_per_step).sum();
        assert!(layers > 0.0 && layers <= token_us * (1.0 + 1e-9), "{name}");

        let path = s.critical_path.as_ref().expect("many tokens");
        close(path.length_us, token_us, name);
        close(path.nodes.iter().map(|n| n.share).sum(), 1.0, name);
        assert!(path.nodes.windows(2).all(|w| w[0].us >= w[1].us), "{name}");

        let step = s.last_step.as_ref().expect("a step");
        let accounted: f64 = step.events.iter().map(|e| e.work_us + e.sync_us).sum();
        assert!(accounted <= step.wall_us * (1.0 + 1e-9), "{name}");
        let in_order = |w: &[cbtop::session::snapshot::StepEvent]| w[0].start_us <= w[1].start_us;
        assert!(step.events.windows(2).all(in_order), "{name}");
    });
}

fn rows_add_up(name: &str, rows: &[BrickRow]) {
    let shares = total(rows, |r| r.share);
    assert!(
        (shares - 1.0).abs() < 1e-9,
        "{name}: shares sum to {shares}"
    );
    let all = total(rows, |r| r.total_us);
    for r in rows {
        let name = format!("{name}, {:?}", r.id);
        assert!(r.steps > 0, "{name}");
        close(r.us_per_step * r.steps as f64, r.total_us, &name);
        close(r.mean_us * r.calls as f64, r.total_us, &name);
        close(r.share * all, r.total_us, &name);
        let ordered = [0.0, r.min_us, r.p50_us, r.p99_us, r.max_us];
        // The mean of equal times may be a rounding error away from them.
        let slack = 1e-9 * r.max_us;
        assert!(
            ordered.windows(2).all(|w| w[0] <= w[1] + slack),
            "{name}: {r:?}"
        );
        let within = r.min_us - slack..=r.max_us + slack;
        assert!(within.contains(&r.mean_us), "{name}: {r:?}");
    }
}

#[test]
fn figures_are_in_their_units() {
    for_each_run(|name, s| {
        assert!(s.context_used <= s.engine.n_ctx, "{name}");
        assert_eq!(s.memory.kv_bytes % u64::from(s.engine.n_ctx), 0, "{name}");
        let used = s.memory.kv_bytes / u64::from(s.engine.n_ctx) * u64::from(s.context_used);
        assert_eq!(s.memory.kv_used_bytes, used, "{name}");
        assert!(s.memory.weights_bytes <= s.model.file_bytes, "{name}");
        assert!(
            s.model.weight_bytes_per_token <= s.model.file_bytes,
            "{name}"
        );
        assert!(
            s.tokens.iter().all(|t| (0.0..=1.0).contains(&t.prob)),
            "{name}"
        );
        assert_eq!(s.generated, s.tokens.len() as u64, "{name}");
        let rates = &s.rates.history_tok_s;
        for (rate, token) in rates.iter().zip(s.tokens.iter().skip(1)) {
            close(*rate, 1e6 / token.us, name);
        }
        // Every weight matrix is read once a token, whole: the rows count no less than the file's own figure.
        let bytes = total(&s.bricks, |r| r.bytes_per_step as f64);
        assert!(
            bytes >= s.model.weight_bytes_per_token as f64,
            "{name}: {bytes}"
        );
        assert!(
            total(&s.bricks, |r| r.flops_per_step as f64) > 0.0,
            "{name}"
        );
    });
}

#[test]
fn what_is_not_known_is_null() {
    let one = run(demo(), Clock::modelled(), 1);
    let one = serde_json::to_value(Report::new(&one)).expect("JSON");
    // A rate takes two tokens; a path takes a decode step.
    for field in [
        "/rates/decode_now_tok_s",
        "/rates/decode_mean_tok_s",
        "/rates/decode_stddev_tok_s",
        "/rates/decode_gbps",
        "/critical_path",
        // Nothing of the machine under the modelled clock.
        "/machine/memory_bytes",
        "/memory/rss_bytes",
        "/memory/peak_rss_bytes",
        "/memory/minor_faults",
        "/memory/major_faults",
        "/memory/minor_faults_per_step",
        "/memory/voluntary_switches",
        "/memory/involuntary_switches",
        "/memory/huge_page_bytes",
        // Nobody was drawn for, nobody set a pace.
        "/rates/overhead_share",
        "/engine/pace_tok_s",
        "/message",
    ] {
        let value = one.pointer(&format!("/snapshot{field}"));
        assert_eq!(value, Some(&Value::Null), "{field}");
    }
    let measured = run(demo(), Clock::calibrated(), 8);
    // The options above give the bandwidth of one thread, two run.
    assert_eq!(measured.machine.read_bandwidth_gbps, None);
    assert!(measured.rates.decode_mean_tok_s.is_some());
    #[cfg(target_os = "linux")]
    assert!(measured.memory.rss_bytes.is_some() && measured.machine.memory_bytes.is_some());
}

#[test]
fn stdout_is_one_json_document_and_nothing_else() {
    let validator = validator();
    let model = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/models/qwen2.Q4_K_M.gguf"
    );
    for args in [
        &["-n", "4"][..],
        &["-n", "4", "--deterministic"],
        &["-n", "4", "-m", model, "-t", "1"],
    ] {
        let done = headless_json(args);
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert_eq!((done.status.code(), &*stderr), (Some(0), ""), "{args:?}");
        let documents: Vec<Value> = serde_json::Deserializer::from_slice(&done.stdout)
            .into_iter()
            .collect::<Result<_, _>>()
            .expect("JSON to the end");
        assert_eq!(documents.len(), 1, "{args:?}");
        assert!(done.stdout.starts_with(b"{") && done.stdout.ends_with(b"}\n"));
        complies(&validator, &documents[0], &format!("{args:?}"));
    }
}

#[test]
fn an_error_leaves_stdout_empty() {
    for args in [
        &["-m", "/nowhere/model.gguf"][..],
        &["-t", "0"],
        &["--ctx", "4"],
        &["--chat"],
        &["--top-p=2"],
    ] {
        let done = headless_json(args);
        assert_eq!(done.status.code(), Some(2), "{args:?}");
        assert!(done.stdout.is_empty(), "{args:?}");
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert!(stderr.starts_with("cbtop: "), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
    }
}

fn headless_json(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cbtop"))
        .args(["--headless", "--format", "json"])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("runs")
}

fn validator() -> jsonschema::Validator {
    let text = std::fs::read_to_string(SCHEMA).expect("the schema");
    let schema = serde_json::from_str(&text).expect("JSON");
    jsonschema::validator_for(&schema).expect("a schema")
}

fn complies(validator: &jsonschema::Validator, report: &Value, name: &str) {
    let errors: Vec<String> = validator
        .iter_errors(report)
        .map(|e| e.to_string())
        .collect();
    assert!(errors.is_empty(), "{name}: {errors:?}");
}

fn demo() -> Loaded {
    Loaded::open(Source::Demo).expect("the demo")
}

/// A run of at most `tokens` tokens to its end: one thread in modelled time, else two.
fn run(loaded: Loaded, clock: Clock, tokens: u64) -> Snapshot {
    run_with(TracerSet::default(), loaded, clock, tokens).snapshot()
}

/// As [`run`], with tracers.
fn run_with(on: TracerSet, loaded: Loaded, clock: Clock, tokens: u64) -> Session {
    let mut config = loaded.config();
    config.threads = if clock.is_modelled() { 1 } else { 2 };
    config.n_ctx = 128;
    config.chunk = 64;
    let options = Options {
        config,
        explicit: BTreeSet::new(),
        sampler: SamplerConfig {
            temperature: 0.0,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            seed: 42,
        },
        prompt: "The capital of France is".into(),
        chat: false,
        max_tokens: Some(tokens),
        endless: false,
        pace: None,
        clock,
        sync_mode: SyncMode::Deferred,
        beside: None,
        overlay: None,
        tracers: ModelTracerConfig {
            on,
            ..ModelTracerConfig::default()
        },
        reference: None,
        peaks: Vec::new(),
        bandwidth: vec![Bandwidth {
            threads: 1,
            gbps: 10.0,
        }],
        tuner: None,
    };
    let mut session = Session::new(loaded, options).expect("a session");
    while !session.is_over() {
        session.tick();
    }
    session.finish_tracers().expect("measured");
    session
}

/// Every model in the repository, in measured and in modelled time.
fn for_each_run(check: impl Fn(&str, &Snapshot)) {
    for clock in [Clock::modelled(), Clock::calibrated()] {
        let name = |model: &str| format!("{model}, {} time", clock.name());
        check(&name("demo"), &run(demo(), clock, 20));
        let traced = &mut run_with(TracerSet::ALL, demo(), clock, 20);
        check(&name("demo, traced"), &traced.snapshot());
        for file in ["llama.Q4_K_M.gguf", "qwen2.Q4_K_M.gguf", "gemma3.Q8_0.gguf"] {
            check(&name(file), &run(common::fixture(file), clock, 20));
        }
    }
}

fn total(rows: &[BrickRow], figure: impl Fn(&BrickRow) -> f64) -> f64 {
    rows.iter().map(figure).sum()
}

fn close(a: f64, b: f64, name: &str) {
    assert!(
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs()),
        "{name}: {a} and {b}"
    );
}
