//! Knobs as data: every value can be set and read back, runs, and does to the numbers what the table says.

mod common;

use cbtop::engine::knobs::{Cost, KNOB_COLUMNS, KNOBS, Numbers, Setting, Setup};
use cbtop::engine::{Config, Engine, Logits, StepKind, SyncMode, Unobserved};
use cbtop::gguf::LoadOptions;
use cbtop::session::Loaded;
use cbtop::tuner::describe::{around, matrix_types};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

const FILES: [&str; 3] = ["llama.Q4_K_M.gguf", "gemma3.Q8_0.gguf", "qwen2.Q4_K_M.gguf"];

fn setup(loaded: &Loaded) -> Setup {
    Setup {
        config: Config {
            n_ctx: 64,
            chunk: 32,
            ..loaded.config()
        },
        load: LoadOptions::default(),
        sync_mode: SyncMode::default(),
    }
}

/// Logits after a prompt and some tokens, in bits.
fn logits(loaded: &Loaded, setup: &Setup) -> Vec<f32> {
    let loaded = Loaded::open_with(loaded.source.clone(), Some(setup.load)).expect("loads");
    let mut engine =
        Engine::new(Arc::clone(&loaded.model), setup.config.clone(), Unobserved).expect("engine");
    let ids: Vec<u32> = (0..24).map(|i| (i * 37 + 5) % 256).collect();
    engine.prefill(&ids).expect("prefill");
    for id in 7..12 {
        engine
            .step(&[id], Logits::Last, StepKind::Decode)
            .expect("step");
    }
    engine.logits(0).to_vec()
}

#[test]
fn every_value_runs_and_changes_the_numbers_only_as_the_table_says() {
    for file in FILES {
        let loaded = common::fixture(file);
        let types = matrix_types(&loaded.model);
        let around = around(&loaded.model, &types, 24);
        let base = setup(&loaded);
        let usual = logits(&loaded, &base);
        let norm = |v: &[f32]| v.iter().map(|x| f64::from(x * x)).sum::<f64>().sqrt();
        for knob in KNOBS {
            let values = (knob.values)(&around);
            assert!(!values.is_empty(), "{}", knob.name);
            for value in values {
                let what = format!("{file}: {} {value}", knob.name);
                let turned = base
                    .with(&[Setting::new(knob.name, &value)])
                    .unwrap_or_else(|e| panic!("{what}: {e}"));
                assert_eq!((knob.get)(&turned), value, "{what}");
                let changed = logits(&loaded, &turned);
                if knob.numbers == Numbers::Same {
                    assert_eq!(usual, changed, "{what}");
                }
                let dot: f64 = usual
                    .iter()
                    .zip(&changed)
                    .map(|(a, b)| f64::from(a * b))
                    .sum();
                let cosine = dot / (norm(&usual) * norm(&changed));
                assert!(cosine > 0.99, "{what}: {cosine}");
            }
        }
    }
}

#[test]
fn names_and_columns_are_unique_and_what_is_not_there_is_named() {
    let names: BTreeSet<_> = KNOBS.iter().map(|k| k.name).collect();
    assert_eq!(names.len(), KNOBS.len());
    let columns: Vec<_> = KNOBS.iter().flat_map(|k| k.columns).collect();
    assert_eq!(columns.len(), KNOB_COLUMNS);
    assert_eq!(columns.iter().collect::<BTreeSet<_>>().len(), columns.len());
    let loaded = common::fixture(FILES[0]);
    let base = setup(&loaded);
    let error = base.with(&[Setting::new("turbo", "on")]).expect_err("none");
    assert!(
        error.contains("'turbo'") && error.contains("threads"),
        "{error}"
    );
    for knob in KNOBS {
        let error = base
            .with(&[Setting::new(knob.name, "no such value")])
            .expect_err(knob.name);
        assert!(!error.contains('\n') && error.len() > 20, "{error}");
    }
    assert!(KNOBS.iter().any(|k| k.cost == Cost::Reload));
}

#[test]
fn changes_are_those_that_differ() {
    let loaded = common::fixture(FILES[0]);
    let base = setup(&loaded);
    assert_eq!(base.changes_to(&base), []);
    let change = [Setting::new("kv-type", "f32"), Setting::new("chunk", "16")];
    let turned = base.with(&change).expect("runs");
    assert_eq!(base.changes_to(&turned), change);
    assert_eq!(base.with(&turned.settings()), Ok(turned));
}

proptest! {
    #[test]
    fn encodings_lie_between_nought_and_one(value in ".{0,20}") {
        for knob in KNOBS {
            let mut columns = vec![0.0; knob.columns.len()];
            (knob.encode)(&value, &mut columns);
            prop_assert!(columns.iter().all(|c| (0.0..=1.0).contains(c)), "{} {value:?}", knob.name);
        }
    }
}

#[test]
fn the_page_has_a_row_for_every_knob() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/src/tuner.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let rows = KNOBS.iter().map(|k| {
        let flags: Vec<_> = k.flag.split(", ").map(|f| format!("`{f}`")).collect();
        let numbers = match k.numbers {
            Numbers::Same => "the same",
            Numbers::Rounding => "rounding",
            Numbers::Precision => "precision",
        };
        let (name, what, risk) = (k.name, k.what, k.risk);
        format!("| {name} | {} | {what} | {risk} | {numbers} |\n", flags.join(" "))
    });
    let table: String = rows.collect();
    assert!(page.contains(&table), "the table of knobs is:\n{table}");
}
