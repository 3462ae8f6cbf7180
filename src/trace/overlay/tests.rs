//! Files of overlays: what is written is read, and nothing else is.

use super::file::hostile::{bytes, parse_only};
use super::rules::{self, Task};
use super::*;
use proptest::prelude::*;
use safetensors::tensor::{Dtype, TensorView};
use std::collections::HashMap;

fn fact(kind: Kind, prompt: &str, answer: &str, edits: usize) -> Fact {
    let edit = |i: usize| RankOne {
        layer: 2,
        key: vec![0.5, -1.0, i as f32].into(),
        value: vec![1.0, f32::MIN_POSITIVE / 2.0].into(),
    };
    let piece = |i: usize| TokenText {
        id: i as u32,
        text: format!("\"{i}\"\u{0}"),
    };
    Fact {
        kind,
        prompt: prompt.into(),
        answer: answer.into(),
        pieces: (0..edits).map(piece).collect(),
        layer: 2,
        before: Reached {
            rank: 7,
            prob: 1e-300,
        },
        after: Reached { rank: 1, prob: 1.0 },
        size: 0.1 + 0.2,
        edits: (0..edits).map(edit).collect(),
    }
}

fn overlay(facts: Vec<Fact>) -> Overlay {
    Overlay {
        provenance: Provenance {
            name: "a model".into(),
            architecture: "llama".into(),
            n_layers: 2,
            n_embd: 2,
            n_vocab: 9,
            fingerprint: "00ff".into(),
        },
        facts,
    }
}

fn two() -> Overlay {
    overlay(vec![
        fact(Kind::Inserted, "p\n\"é", "a", 2),
        fact(Kind::Deleted, "q", "b", 1),
    ])
}

/// The file of an overlay whose metadata and tensors were changed on the way.
fn changed(
    meta: impl Fn(&mut serde_json::Value),
    tensors: impl Fn(&mut Vec<(String, Dtype, Vec<usize>, Vec<u8>)>),
) -> Vec<u8> {
    let file = bytes(&two());
    let (_, metadata) = safetensors::SafeTensors::read_metadata(&file).expect("a file");
    let text = &metadata.metadata().as_ref().expect("metadata")["cbtop.overlay"];
    let mut json = serde_json::from_str(text).expect("json");
    meta(&mut json);
    let read = safetensors::SafeTensors::deserialize(&file).expect("a file");
    let own = |(name, view): (String, TensorView<'_>)| {
        (
            name,
            view.dtype(),
            view.shape().to_vec(),
            view.data().to_vec(),
        )
    };
    let mut all: Vec<_> = read.tensors().into_iter().map(own).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    tensors(&mut all);
    let views = all.iter().map(|(name, dtype, shape, data)| {
        let view = TensorView::new(*dtype, shape.clone(), data).expect("a view");
        (name.as_str(), view)
    });
    let metadata = HashMap::from([("cbtop.overlay".to_owned(), json.to_string())]);
    safetensors::serialize(views, Some(metadata)).expect("bytes")
}

#[test]
fn what_is_written_is_read() {
    for overlay in [overlay(vec![]), two()] {
        assert_eq!(parse_only(&bytes(&overlay)), Ok(overlay));
    }
    assert_eq!(
        parse_only(&changed(|_| {}, |_| {})),
        Ok(two()),
        "the tests' own changes start from a sound file"
    );
    // The same overlay is the same bytes.
    assert_eq!(bytes(&two()), bytes(&two()));
}

#[test]
fn damaged_files_are_refused_with_the_reason() {
    let nan = f32::NAN.to_le_bytes();
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (vec![], "too short"),
        (u64::MAX.to_le_bytes().to_vec(), "header would have"),
        ((1u64 << 20).to_le_bytes().to_vec(), "no safetensors"),
        (changed(|m| m["version"] = 2.into(), |_| {}), "version 2"),
        (
            changed(|m| m["facts"][0]["x"] = 1.into(), |_| {}),
            "unknown field",
        ),
        (
            changed(|m| m["facts"][0]["kind"] = "told".into(), |_| {}),
            "unknown variant",
        ),
        (
            changed(|m| m["facts"][0]["after"]["prob"] = 1.5.into(), |_| {}),
            "probability",
        ),
        (
            changed(|m| m["facts"][0]["size"] = (-1.0).into(), |_| {}),
            "size",
        ),
        (
            changed(|m| m["facts"][0]["pieces"] = serde_json::json!([]), |_| {}),
            "no tokens",
        ),
        (
            changed(|m| m["facts"] = serde_json::json!([]), |_| {}),
            "4 tensors for 0 facts",
        ),
        (
            changed(|_| {}, |t| t[0].0 = "fact.7.key".into()),
            "fact.0.key is missing",
        ),
        (changed(|_| {}, |t| t[0].1 = Dtype::I32), "not of F32"),
        (changed(|_| {}, |t| t[0].2 = vec![6]), "no matrix"),
        (
            changed(|_| {}, |t| t[0].2 = vec![3, 2]),
            "3 keys and 2 values",
        ),
        (
            changed(|_| {}, |t| t[1].3[4..8].copy_from_slice(&nan)),
            "holds NaN",
        ),
    ];
    for (i, (file, why)) in cases.into_iter().enumerate() {
        let error = parse_only(&file).expect_err("damaged");
        assert!(error.contains(why), "case {i}: {error}");
    }
    let plain = safetensors::serialize(Vec::<(&str, TensorView<'_>)>::new(), None).expect("bytes");
    let error = parse_only(&plain).expect_err("no overlay");
    assert!(error.contains("no overlay"), "{error}");
}

#[test]
fn statements_undo_each_other() {
    let make = |kind, prompt: &str, answer: &str| fact(kind, prompt, answer, 1);
    let start = || {
        overlay(vec![
            make(Kind::Deleted, "p", "native"),
            make(Kind::Inserted, "p", "false"),
            make(Kind::Inserted, "q", "false"),
        ])
    };
    let left = |o: &Overlay| o.facts.len();
    let apply = |o: &mut Overlay, kind, prompt, answer| rules::apply(o, kind, prompt, answer);

    let mut o = start();
    let task = apply(&mut o, Kind::Inserted, "p", " native").expect("restored");
    assert_eq!((task, left(&o)), (Task::TakenOut(Change::Restored), 1));
    let mut o = start();
    let task = apply(&mut o, Kind::Inserted, "p", "third").expect("replaced");
    assert_eq!((task, left(&o)), (Task::Make(Kind::Inserted), 2));
    let mut o = start();
    let task = apply(&mut o, Kind::Deleted, "p", "false").expect("removed");
    assert_eq!((task, left(&o)), (Task::TakenOut(Change::Removed), 2));
    let mut o = start();
    let task = apply(&mut o, Kind::Deleted, "q", "native").expect("made");
    assert_eq!((task, left(&o)), (Task::Make(Kind::Deleted), 3));
    let error = apply(&mut start(), Kind::Deleted, "p", "native").expect_err("twice");
    assert!(error.to_string().contains("already"), "{error}");
}

#[test]
fn a_full_overlay_says_so() {
    let mut o = overlay(vec![fact(Kind::Inserted, "p", "a", 1); MAX_FACTS]);
    let error = o.add(fact(Kind::Inserted, "q", "a", 1)).expect_err("full");
    assert!(error.to_string().contains("4096 facts"), "{error}");
}

#[test]
fn provenance_says_what_differs() {
    let ours = two().provenance;
    let mut theirs = ours.clone();
    theirs.name = "renamed".into();
    assert_eq!(ours.differs(&theirs), None);
    theirs.fingerprint = "1".into();
    assert_eq!(ours.differs(&theirs).as_deref(), Some("other weights"));
    theirs.n_layers = 3;
    assert_eq!(ours.differs(&theirs).as_deref(), Some("2 layers, not 3"));
    theirs.architecture = "gemma".into();
    let why = ours.differs(&theirs);
    assert_eq!(why.as_deref(), Some("architecture llama, not gemma"));
}

proptest! {
    #[test]
    fn no_bytes_break_the_reader(
        at in 0usize..2000,
        by in 1u8..=255,
        cut in 0usize..2000,
        junk in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let file = bytes(&two());
        let mut flipped = file.clone();
        let at = at % file.len();
        flipped[at] ^= by;
        if let Ok(read) = parse_only(&flipped) {
            // What is read is sound: every number finite, every fact whole.
            for edit in read.facts.iter().flat_map(|f| &f.edits) {
                prop_assert!(edit.key.iter().chain(edit.value.iter()).all(|v| v.is_finite()));
            }
        }
        prop_assert!(parse_only(&file[..cut % file.len()]).is_err());
        prop_assert!(parse_only(&junk).is_err());
    }
}
