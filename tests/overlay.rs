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
fn a_false_fact_is_said_and_the_others_stay() {
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
    for lost in before.iter().filter(|p| !after.contains(p)) {
        println!(
            "lost: {lost} -> {}",
            says(&mut engine, &loaded, Some(&overlay), lost, 1)
        );
    }
}
