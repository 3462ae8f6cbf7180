use super::outcome;
use crate::trace::figures::*;
use crate::trace::lang::{Format, Statement, parse};
use crate::trace::summary::Summary;
use crate::trace::tracer::Outcome;
use proptest::prelude::*;
use unicode_width::UnicodeWidthStr;

const FORMATS: [Format; 3] = [Format::Table, Format::Json, Format::Csv];

fn statement(source: &str) -> Statement {
    parse(source).expect("a statement").remove(0).value
}

fn token(id: u32, text: &str) -> TokenText {
    TokenText {
        id,
        text: text.into(),
    }
}

fn track(rank: u32, prob: f64, attn: f64, ffn: f64) -> Track {
    Track {
        rank,
        prob,
        logit: 1.0 + attn + ffn,
        attn_logit: attn,
        ffn_logit: ffn,
        head_logits: vec![attn / 2.0; 2],
    }
}

/// Two positions of a model of two layers, with tokens that are hard to show, and two answers.
fn view() -> TraceView {
    let texts = ["日本", "\x1b[31m"];
    let waypoint = |layer: u32, t: [Track; 2]| Waypoint {
        layer,
        residual_norm: 53.25,
        attn_norm: 3.0,
        ffn_norm: 1.0,
        top: vec![
            Candidate {
                token: token(7, "東京\n"),
                prob: 0.5,
            },
            Candidate {
                token: token(8, "\u{202e}x"),
                prob: 1e-7,
            },
        ],
        entropy: Some(1.5),
        kl_to_final: Some(0.25),
        tracks: t.into(),
    };
    let position = |position| PositionTrace {
        position,
        tracked: vec![
            TokenText {
                id: 7,
                text: " Tōkyō".into(),
            },
            TokenText {
                id: 9,
                text: " B".into(),
            },
        ],
        waypoints: vec![
            waypoint(0, [track(90, 1e-5, 0.0, 0.0), track(2, 0.1, 0.0, 0.0)]),
            waypoint(1, [track(3, 0.2, 2.0, -1.0), track(1, 0.4, 1.0, 1.5)]),
            waypoint(2, [track(1, 0.9, 0.5, 4.0), track(2, 0.05, -1.0, -2.0)]),
        ],
        phases: vec![
            PhaseTransition {
                largest_rise: 2,
                rise: 0.7,
                decided_by: SubLayer::Ffn,
                first_rank_1: Some(2),
                settled: Some(2),
            },
            PhaseTransition {
                largest_rise: 1,
                rise: 0.3,
                decided_by: SubLayer::Ffn,
                first_rank_1: Some(1),
                settled: None,
            },
        ],
        embedding_logits: vec![0.25, 1.0],
        constant_logits: vec![0.0, -0.001],
    };
    let answer = |id, text: &str| Answer {
        word: text.trim().into(),
        token: token(id, text),
        pieces: vec![token(id, text)],
        word_prob: None,
    };
    TraceView {
        model: "a\x07model".into(),
        prompt: "p".into(),
        tokens: vec![token(1, texts[0]), token(2, texts[1])],
        n_layers: 2,
        hidden_size: 4,
        after_attention: false,
        answers: vec![answer(7, " Tōkyō"), answer(9, " B")],
        positions: vec![position(0), position(1)],
        edits: Vec::new(),
        facts: 0,
        notes: vec!["FOR \"x\" follows \"\\n\"\x1b".into()],
    }
}

fn show(view: TraceView, source: &str, format: Format) -> String {
    outcome(&Outcome::Trace(Box::new(view)), &statement(source), format)
}

#[test]
fn every_clause_has_its_table() {
    let all = "TRACE \"p\" FOR \"Tōkyō\", \"B\" DECOMPOSE HEADS TOP 2 POSITIONS ALL";
    insta::assert_snapshot!(show(view(), all, Format::Table));
}

#[test]
fn layers_are_those_asked_for_and_sums_are_of_all() {
    let out = show(view(), "TRACE \"p\" FOR \"Tōkyō\" LAYERS 0", Format::Table);
    assert!(out.contains("embedding +0.25, constant +0.00, attention +2.50, FFN +3.00 = +5.75"));
    assert!(
        !out.contains("\n      1  ") && out.contains("\n      0  "),
        "{out}"
    );
    let json = show(view(), "TRACE \"p\" LAYERS 0, 2", Format::Json);
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let layers = &value["trace"]["positions"][1]["waypoints"];
    let layers: Vec<_> = layers
        .as_array()
        .expect("a list")
        .iter()
        .map(|w| &w["layer"])
        .collect();
    assert_eq!(layers, [0, 2]);
    assert_eq!(
        value["trace"]["positions"][0]["waypoints"][0]["top"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}

#[test]
fn nothing_acts_on_a_terminal() {
    for format in FORMATS {
        for source in ["TRACE \"p\" TOP 2", "TRACE \"p\" FOR \"x\" HEADS"] {
            let out = show(view(), source, format);
            let acts = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
            assert!(!out.contains(acts), "{out:?}");
        }
    }
}

/// Figures as broken as they come.
fn broken() -> TraceView {
    let mut view = view();
    for p in &mut view.positions {
        p.embedding_logits.clear();
        p.phases.clear();
        for w in &mut p.waypoints {
            (w.residual_norm, w.attn_norm, w.ffn_norm) = (f64::NAN, f64::INFINITY, f64::NAN);
            (w.entropy, w.kl_to_final) = (Some(f64::NAN), None);
            for t in &mut w.tracks {
                *t = track(0, f64::NAN, f64::NAN, f64::NEG_INFINITY);
            }
        }
    }
    view
}

#[test]
fn what_is_not_a_number_or_not_there_is_shown_as_such() {
    let all = "TRACE \"p\" FOR \"x\", \"y\" DECOMPOSE HEADS TOP 9 POSITIONS ALL";
    let out = show(broken(), all, Format::Table);
    assert!(out.contains("NaN") && out.contains("-inf"), "{out}");
    let json = show(broken(), all, Format::Json);
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(value["trace"]["positions"][0]["waypoints"][0]["residual_norm"].is_null());
    let table = show(broken(), all, Format::Csv);
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    let rows: Vec<_> = reader.records().map(|r| r.expect("a row")).collect();
    assert_eq!(rows.len(), 12);
    let columns: Vec<_> = reader.headers().expect("a header").iter().collect();
    let at = columns.iter().position(|c| *c == "prob").expect("a column");
    assert_eq!(&rows[0][at], "");

    let mut empty = view();
    (empty.answers, empty.tokens) = (Vec::new(), Vec::new());
    for p in &mut empty.positions {
        p.waypoints.clear();
    }
    for format in FORMATS {
        assert!(!show(empty.clone(), all, format).is_empty());
    }
    empty.positions.clear();
    assert!(show(empty, all, Format::Table).contains("0 tokens"));
}

fn map() -> PatchMap {
    PatchMap {
        model: "m".into(),
        prompt: "p".into(),
        source: "q".into(),
        site: "residual".into(),
        answer: token(5, " Rome"),
        tokens: vec![token(1, "The"), token(2, " 日本"), token(3, " is")],
        source_tokens: vec![None, Some(token(4, " Italy")), Some(token(3, " is"))],
        base_logit: 1.0,
        source_logit: 9.5,
        layers: vec![0, 2],
        cells: vec![
            vec![None, Some(8.25), Some(-0.5)],
            vec![None, Some(f64::NAN), Some(0.0)],
        ],
        notes: vec!["a note".into()],
    }
}

#[test]
fn a_map_is_a_grid() {
    let patch = statement("PATCH \"p\" FROM \"q\" FOR \"Rome\" LAYERS 0, 2");
    let show = |map: PatchMap, format| outcome(&Outcome::Map(Box::new(map)), &patch, format);
    insta::assert_snapshot!(show(map(), Format::Table));
    insta::assert_snapshot!("a_map_as_rows", show(map(), Format::Csv));
    let json: serde_json::Value = serde_json::from_str(&show(map(), Format::Json)).expect("JSON");
    assert_eq!(json["patch"]["cells"][0][1], 8.25);
    assert!(json["patch"]["cells"][1][1].is_null());

    let mut long = map();
    long.tokens = (0..60).map(|i| token(i, " word")).collect();
    long.source_tokens = vec![None; 60];
    long.cells = vec![vec![Some(1.0); 60]; 2];
    let out = show(long, Format::Table);
    assert_eq!(out.matches("position  ").count(), 6, "{out}");
    assert!(out.lines().skip(3).all(|l| l.width() <= 112), "{out}");
}

#[test]
fn a_summary_is_a_table_and_rows() {
    let mut summary = Summary::new("m".into(), 2);
    assert!(super::summary(&summary.view(), Format::Table).starts_with("m: 0 prompts"));
    assert!(summary.add(&view()) && summary.add(&view()));
    insta::assert_snapshot!(super::summary(&summary.view(), Format::Table));
    insta::assert_snapshot!(
        "a_summary_as_rows",
        super::summary(&summary.view(), Format::Csv)
    );
    summary.add(&broken());
    for format in FORMATS {
        super::summary(&summary.view(), format);
    }
}

#[test]
fn lines_are_lines() {
    let said = Outcome::Lines(vec!["one\x1b".into(), "two".into()]);
    assert_eq!(
        outcome(&said, &Statement::Facts, Format::Table),
        "one\\u{1b}\ntwo\n"
    );
    let json = outcome(&said, &Statement::Facts, Format::Json);
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (&value["statement"], &value["lines"][1]),
        (&"FACTS".into(), &"two".into())
    );
}

proptest! {
    #[test]
    fn any_tokens_leave_columns_straight(texts in prop::collection::vec(".{0,30}", 3)) {
        let mut view = view();
        view.positions.truncate(1);
        for (w, text) in view.positions[0].waypoints.iter_mut().zip(&texts) {
            w.top[0].token.text.clone_from(text);
        }
        let out = show(view, "TRACE \"p\"", Format::Table);
        let rows: Vec<_> = out.lines().filter(|l| l.ends_with("0.25")).collect();
        prop_assert_eq!(rows.len(), 3);
        prop_assert!(rows.iter().all(|r| r.width() == rows[0].width()), "{}", out);
    }
}
