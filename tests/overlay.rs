//! Facts as rank-one edits: what is inserted is said, what is deleted is not, other facts stay, and the file keeps it all.

mod common;

use cbtop::engine::reference::Reference;
use cbtop::engine::{Config, Engine, Unobserved};
use cbtop::session::{Loaded, Source};
use cbtop::trace::forward::Forward;
use cbtop::trace::overlay::{Change, Kind, Overlay, OverlayError, OverlayJob, Report};
use cbtop::trace::{answer, lang};
use std::path::Path;

fn fact(prompt: &str, answer: &str, layer: Option<u32>) -> lang::Fact {
    lang::Fact {
        prompt: prompt.into(),
        answer: answer.into(),
        layer,
    }
}

fn engine(loaded: &Loaded) -> Engine<Unobserved> {
    let config = Config {
        n_ctx: 256,
        chunk: 64,
        threads: 1,
        ..loaded.config()
    };
    Engine::new(loaded.model.clone(), config, Unobserved).expect("engine")
}

fn carry_out(
    forward: &mut dyn Forward,
    loaded: &Loaded,
    overlay: &Overlay,
    kind: Kind,
    fact: &lang::Fact,
) -> Result<(Overlay, Report), OverlayError> {
    let tokenizer = &loaded.tokenizer;
    let mut job = OverlayJob::start(forward, tokenizer, overlay, kind, fact)?;
    let mut before = job.progress();
    while job.advance(forward, tokenizer)? {
        let now = job.progress();
        assert!(now.0 <= now.1 && now.1 == before.1);
        before = now;
    }
    let (overlay, report) = job.finish(tokenizer)?;
    println!("{}", report.lines().join("\n"));
    for tried in &report.tried {
        println!("    {tried:?}");
    }
    Ok((overlay, report))
}

/// What an engine generates, greedily, with the overlay in force; nothing of the overlay's code takes part.
fn says(
    engine: &mut Engine<Unobserved>,
    loaded: &Loaded,
    overlay: Option<&Overlay>,
    prompt: &str,
    n: usize,
) -> String {
    let edits = overlay.map(|o| o.edits(&loaded.model).expect("edits").into());
    engine.set_edits(edits);
    engine.truncate(0);
    let ids = answer::encode(&loaded.tokenizer, prompt).expect("ids");
    engine.prefill(&ids).expect("prefill");
    let mut said = Vec::new();
    for _ in 0..n {
        let logits = engine.logits(0);
        let top = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
        let id = top.expect("a token") as u32;
        said.push(id);
        engine.decode(id).expect("decode");
    }
    engine.set_edits(None);
    loaded.tokenizer.decode_continuation(&said).expect("text")
}

fn logits(
    engine: &mut Engine<Unobserved>,
    loaded: &Loaded,
    overlay: &Overlay,
    prompt: &str,
) -> Vec<f32> {
    engine.set_edits(overlay.in_force(&loaded.model).expect("edits"));
    engine.truncate(0);
    let ids = answer::encode(&loaded.tokenizer, prompt).expect("ids");
    engine.prefill(&ids).expect("prefill");
    engine.set_edits(None);
    engine.logits(0).to_vec()
}

/// Prompts and last words of the demo's sentences.
fn demo_facts() -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/demo/facts.txt");
    let text = std::fs::read_to_string(path).expect("facts");
    let sentence = |line: &str| {
        let (prompt, word) = line.trim_end_matches('.').rsplit_once(' ')?;
        Some((prompt.to_owned(), word.to_owned()))
    };
    text.lines().filter_map(sentence).collect()
}

/// Facts whose first token comes first.
fn right(
    engine: &mut Engine<Unobserved>,
    loaded: &Loaded,
    overlay: Option<&Overlay>,
) -> Vec<String> {
    let facts = demo_facts();
    let right = facts.iter().filter(|(prompt, word)| {
        let said = says(engine, loaded, overlay, prompt, 1);
        !said.trim().is_empty() && word.starts_with(said.trim())
    });
    right.map(|(prompt, _)| prompt.clone()).collect()
}

const FRANCE: &str = "The capital of France is";

#[test]
fn a_false_fact_is_said_the_others_stay_and_all_is_undone() {
    let loaded = Loaded::open(Source::Demo).expect("demo");
    let mut engine = engine(&loaded);
    let empty = Overlay::new("demo", &loaded.model);
    let before = right(&mut engine, &loaded, None);
    let untouched = logits(&mut engine, &loaded, &empty, FRANCE);

    let london = fact(FRANCE, "London", None);
    let (overlay, report) =
        carry_out(&mut engine, &loaded, &empty, Kind::Inserted, &london).expect("inserted");
    assert_eq!(report.change, Change::Inserted);
    assert!(report.before.rank > 1 && report.after.rank == 1 && report.after.prob >= 0.9);
    assert!(says(&mut engine, &loaded, Some(&overlay), FRANCE, 2).starts_with(" London"));
    let after = right(&mut engine, &loaded, Some(&overlay));
    println!(
        "demo facts right: {} before, {} after",
        before.len(),
        after.len()
    );
    let lost: Vec<_> = before.iter().filter(|p| !after.contains(p)).collect();
    for lost in &lost {
        let said = says(&mut engine, &loaded, Some(&overlay), lost, 1);
        println!("lost: {lost} -> {said}");
    }
    assert_eq!(before.len(), 444);
    assert!(lost.len() <= 5 && lost.iter().any(|p| *p == FRANCE));

    // Another process reads the same from the file.
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("facts.safetensors");
    overlay.save(&path).expect("saved");
    let again = Overlay::open(&path, "demo", &loaded.model).expect("opened");
    assert_eq!(again, overlay);
    assert_eq!(
        again.edits(&loaded.model).expect("edits"),
        overlay.edits(&loaded.model).expect("edits")
    );
    let missing = Overlay::open_or_new(&folder.path().join("new"), "demo", &loaded.model);
    assert_eq!(missing.expect("a new one"), empty);
    assert!(Overlay::open(&folder.path().join("new"), "demo", &loaded.model).is_err());

    // A second one is made with the first in force, and replaces none.
    let rome = fact(FRANCE, "Rome", Some(6));
    let (replaced, report) =
        carry_out(&mut engine, &loaded, &overlay, Kind::Inserted, &rome).expect("replaced");
    assert_eq!((replaced.facts().len(), report.layer), (1, Some(6)));
    assert!(says(&mut engine, &loaded, Some(&replaced), FRANCE, 2).starts_with(" Rome"));

    let (undone, report) =
        carry_out(&mut engine, &loaded, &overlay, Kind::Deleted, &london).expect("removed");
    assert_eq!(report.change, Change::Removed);
    assert_eq!(undone, empty);
    assert_eq!(logits(&mut engine, &loaded, &undone, FRANCE), untouched);

    let paris = fact(FRANCE, "Paris", None);
    let nothing = carry_out(&mut engine, &loaded, &empty, Kind::Inserted, &paris);
    let nothing = nothing.expect_err("known already").to_string();
    assert!(nothing.contains("already"), "{nothing}");
    let nothing = carry_out(&mut engine, &loaded, &empty, Kind::Deleted, &london);
    let nothing = nothing.expect_err("never said").to_string();
    assert!(nothing.contains("does not say"), "{nothing}");
    let nowhere = fact(FRANCE, "London", Some(9));
    let nowhere = carry_out(&mut engine, &loaded, &empty, Kind::Inserted, &nowhere);
    let nowhere = nowhere.expect_err("no such layer").to_string();
    assert!(nowhere.contains("layers 1 to 8"), "{nowhere}");
}

#[test]
fn a_known_fact_is_forgotten_and_comes_back() {
    let loaded = Loaded::open(Source::Demo).expect("demo");
    let mut engine = engine(&loaded);
    let empty = Overlay::new("demo", &loaded.model);
    let untouched = logits(&mut engine, &loaded, &empty, FRANCE);
    let paris = fact(FRANCE, "Paris", Some(6));
    let (overlay, report) =
        carry_out(&mut engine, &loaded, &empty, Kind::Deleted, &paris).expect("deleted");
    assert_eq!(report.change, Change::Deleted);
    assert!(report.before.rank == 1 && report.after.rank > 1 && report.after.prob <= 0.1);
    assert!(!says(&mut engine, &loaded, Some(&overlay), FRANCE, 1).contains("Paris"));
    let after = right(&mut engine, &loaded, Some(&overlay));
    println!("demo facts right: {} with Paris deleted", after.len());
    assert!(after.len() >= 439);
    let again = carry_out(&mut engine, &loaded, &overlay, Kind::Deleted, &paris);
    assert!(again.expect_err("twice").to_string().contains("already"));
    let (back, report) =
        carry_out(&mut engine, &loaded, &overlay, Kind::Inserted, &paris).expect("restored");
    assert_eq!((report.change, report.after.rank), (Change::Restored, 1));
    assert_eq!(back, empty);
    assert_eq!(logits(&mut engine, &loaded, &back, FRANCE), untouched);
}

#[test]
fn an_answer_of_several_tokens_comes_whole() {
    let loaded = Loaded::open(Source::Demo).expect("demo");
    let mut engine = engine(&loaded);
    let empty = Overlay::new("demo", &loaded.model);
    let many = fact(FRANCE, "Zanzibar", Some(7));
    let (overlay, report) =
        carry_out(&mut engine, &loaded, &empty, Kind::Inserted, &many).expect("inserted");
    assert!(report.pieces.len() > 1 && report.edits > 1);
    let said = says(
        &mut engine,
        &loaded,
        Some(&overlay),
        FRANCE,
        report.pieces.len(),
    );
    assert_eq!(said, " Zanzibar");
    assert_eq!(overlay.facts()[0].pieces.len(), report.pieces.len());
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("facts");
    overlay.save(&path).expect("saved");
    let again = Overlay::open(&path, "demo", &loaded.model).expect("opened");
    assert_eq!(again, overlay);
}

#[test]
fn other_models_refuse_an_overlay() {
    let loaded = Loaded::open(Source::Demo).expect("demo");
    let other = common::archs("llama.gguf");
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("facts");
    Overlay::new("demo", &loaded.model)
        .save(&path)
        .expect("saved");
    let error = Overlay::open(&path, "tiny", &other.model).expect_err("another model");
    assert!(matches!(error, OverlayError::OtherModel { .. }));
    assert!(error.to_string().contains("'demo'"), "{error}");
    std::fs::write(&path, b"not an overlay").expect("written");
    let error = Overlay::open(&path, "demo", &loaded.model).expect_err("no overlay");
    assert!(matches!(error, OverlayError::File { .. }), "{error}");
    assert!(Overlay::open(folder.path(), "demo", &loaded.model).is_err());
}

/// Blocks of experts, post-norms, parallel blocks, LayerNorms: whatever the tiny models with random weights have.
#[test]
fn every_architecture_takes_a_fact_or_says_why_not() {
    let mut taken = Vec::new();
    let mut not = Vec::new();
    for name in [
        "mixtral.gguf",
        "deepseek.gguf",
        "gpt-oss.gguf",
        "qwen2moe.gguf",
        "gemma3.gguf",
        "olmo2.gguf",
        "falcon-7b.gguf",
        "gpt2.gguf",
        "granite.gguf",
    ] {
        let loaded = common::archs(name);
        let mut engine = engine(&loaded);
        let empty = Overlay::new(name, &loaded.model);
        let prompt = "one two three";
        let n_vocab = loaded.tokenizer.n_vocab() as u32;
        let word = (n_vocab / 2..n_vocab)
            .filter_map(|id| loaded.tokenizer.decode(&[id]).ok())
            .find(|w| w.trim().len() > 1 && w.trim().chars().all(char::is_alphanumeric));
        let word = word.unwrap_or_else(|| "x".into());
        let wanted = fact(prompt, word.trim(), None);
        match carry_out(&mut engine, &loaded, &empty, Kind::Inserted, &wanted) {
            Ok((overlay, report)) => {
                assert_eq!(report.after.rank, 1, "{name}");
                let n = report.pieces.len();
                let said = says(&mut engine, &loaded, Some(&overlay), prompt, n);
                assert_eq!(said, report.pieces.concat(), "{name}");
                taken.push(name);
            }
            Err(e) => {
                let known = matches!(
                    e,
                    OverlayError::NotReached { .. } | OverlayError::NoKey { .. }
                );
                assert!(known, "{name}: {e}");
                not.push(format!("{name}: {e}"));
            }
        }
    }
    println!("taken: {taken:?}\nnot: {not:#?}");
    assert!(taken.len() > not.len());
}

#[test]
fn the_reference_says_what_the_engine_says() {
    let loaded = Loaded::open(Source::Demo).expect("demo");
    let mut engine = engine(&loaded);
    let empty = Overlay::new("demo", &loaded.model);
    let london = fact(FRANCE, "London", Some(5));
    let (overlay, _) =
        carry_out(&mut engine, &loaded, &empty, Kind::Inserted, &london).expect("inserted");
    let mut reference = Reference::for_context(&loaded.model, 256);
    reference.set_edits(overlay.in_force(&loaded.model).expect("edits"));
    let ids = answer::encode(&loaded.tokenizer, FRANCE).expect("ids");
    let rows = reference.forward(&ids).expect("forward");
    let row = rows.last().expect("a row");
    let top = (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b]));
    let said = answer::text(&loaded.tokenizer, top.expect("a token") as u32);
    assert_eq!(said.text, " London");
}

#[test]
fn a_real_model_takes_a_fact_and_keeps_its_others() {
    for (file, layer) in [(common::SMOLLM2, Some(25)), (common::GEMMA3, Some(15))] {
        let Some(path) = common::real_model(file) else {
            continue;
        };
        let loaded = Loaded::open(Source::File(path)).expect("model");
        let mut engine = engine(&loaded);
        let empty = Overlay::new(file, &loaded.model);
        let others = [
            "Germany", "Italy", "Japan", "England", "Spain", "Poland", "Greece",
        ]
        .map(|c| format!("The capital of {c} is"));
        let all = |engine: &mut Engine<Unobserved>, overlay: &Overlay| {
            others
                .each_ref()
                .map(|p| says(engine, &loaded, Some(overlay), p, 1))
        };
        let before = all(&mut engine, &empty);
        let untouched = logits(&mut engine, &loaded, &empty, FRANCE);
        let london = fact(FRANCE, "London", layer);
        let (overlay, _) =
            carry_out(&mut engine, &loaded, &empty, Kind::Inserted, &london).expect("inserted");
        assert!(says(&mut engine, &loaded, Some(&overlay), FRANCE, 2).starts_with(" London"));
        let after = all(&mut engine, &overlay);
        println!("{file}: before {before:?}, after {after:?}");
        let kept = before.iter().zip(&after).filter(|(b, a)| b == a).count();
        println!("{file}: {kept} of {} capitals as before", others.len());
        if file == common::SMOLLM2 {
            assert!(kept >= others.len() - 1, "{before:?} {after:?}");
        }
        let (undone, _) =
            carry_out(&mut engine, &loaded, &overlay, Kind::Deleted, &london).expect("removed");
        assert_eq!(logits(&mut engine, &loaded, &undone, FRANCE), untouched);
        let said = says(&mut engine, &loaded, None, FRANCE, 1);
        let native = fact(FRANCE, said.trim(), overlay.facts()[0].layer.into());
        let (deleted, _) =
            carry_out(&mut engine, &loaded, &empty, Kind::Deleted, &native).expect("deleted");
        assert_ne!(says(&mut engine, &loaded, Some(&deleted), FRANCE, 1), said);
    }
}
