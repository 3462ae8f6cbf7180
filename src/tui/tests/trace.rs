//! The residual trace at every size, its keys, and frames out of all bounds.

use super::*;
use crate::session::snapshot::TraceFrame;
use crate::trace::figures::{PatchMap, TraceView};
use crate::tui::fixture::trace::{full, single, traced, view, without_lens};
use crate::tui::theme::Theme;

const SIZES: [(u16, u16); 5] = [(80, 24), (120, 40), (200, 60), (40, 12), (20, 5)];

fn pane(frame: TraceFrame, w: u16, h: u16, zoomed: bool) -> App {
    let mut a = app(traced(frame), w, h);
    a.focus = Panel::Trace;
    a.zoomed = zoomed;
    a
}

fn heads() -> TraceFrame {
    TraceFrame {
        map: None,
        beside: None,
        ..full()
    }
}

fn compared() -> TraceFrame {
    TraceFrame {
        map: None,
        ..full()
    }
}

#[test]
fn each_view_at_each_size() {
    for (w, h) in SIZES {
        for (name, frame) in [
            ("", heads()),
            ("-compared", compared()),
            ("-map", full()),
            ("-norms", without_lens()),
            ("-empty", TraceFrame::default()),
        ] {
            let drawn = screen(&pane(frame, w, h, true));
            looks_like(&format!("trace{name}-{w}x{h}"), &drawn);
        }
    }
}

#[test]
fn beside_other_panels_it_says_what_decided() {
    for (w, h) in [(80, 24), (120, 40), (200, 60)] {
        let drawn = screen(&pane(single(), w, h, false));
        assert!(
            drawn.contains("decided after layer 6 by attention"),
            "{w}x{h}"
        );
        looks_like(&format!("trace-beside-{w}x{h}"), &drawn);
    }
}

/// Without colour and beyond ASCII nothing is lost.
#[test]
fn ascii_without_colour_says_the_same() {
    for (name, frame) in [("", heads()), ("-compared", compared()), ("-map", full())] {
        let mut a = pane(frame, 100, 30, true);
        a.theme = Theme::new(false, true);
        let drawn = screen(&a);
        assert!(drawn.is_ascii(), "{drawn}");
        looks_like(&format!("trace{name}-ascii"), &drawn);
    }
}

/// In the smallest usual terminal the layer, the part and both figures of it stand in the first lines.
#[test]
fn the_layer_and_part_that_decided_are_seen_at_once() {
    let drawn = screen(&pane(single(), 80, 24, true));
    for shown in [
        "decided after layer 6 by attention",
        "P 0.011 → 0.592",
        "rank 1 from layer 6",
        "▸  6* 0.592      1  +6.31",
        "logit 18.19 = 1.48 embedding + 8.05 attention + 8.59 FFN + 0.07 constant",
    ] {
        assert!(drawn.contains(shown), "{shown}\n{drawn}");
    }
}

#[test]
fn keys_move_over_layers_positions_and_answers() {
    let mut a = pane(single(), 120, 40, true);
    press(&mut a, "j");
    assert_eq!(a.views.trace.layer, Some(7));
    press(&mut a, "g");
    assert_eq!(a.views.trace.layer, Some(0));
    press(&mut a, "G");
    assert_eq!(a.views.trace.layer, Some(8));
    press(&mut a, "J");
    assert_eq!(a.views.trace.layer, Some(6));
    press(&mut a, "hh");
    assert_eq!(a.views.trace.position, Some(3));
    assert!(screen(&a).contains("\"The capital of France\" → \" Paris\" rank 1, P 0.290"));
    press(&mut a, "hhhhhhhl");
    assert_eq!(a.views.trace.position, Some(1));
    press(&mut a, "lllllll");
    assert_eq!(a.views.trace.position, None, "the end is followed again");
    press(&mut a, "w");
    assert!(screen(&a).contains("answer 2 of 2"));
    assert!(screen(&a).contains("decided after layer 4 by FFN"));
    press(&mut a, "w");
    assert!(screen(&a).contains("answer 1 of 2"));
}

#[test]
fn keys_of_the_pane_bring_it_forward_and_give_commands() {
    let mut a = app(traced(single()), 80, 24);
    assert_eq!(press(&mut a, "F"), [Command::FollowTrace(true)]);
    assert_eq!(a.focus, Panel::Trace);
    assert_eq!(press(&mut a, "K"), [Command::KeepTrace]);
    let mut a = app(traced(full()), 80, 24);
    assert_eq!(press(&mut a, "F"), [Command::FollowTrace(false)]);
    let mut s = decode(3);
    s.prompt = "say \"a\\b\"\n".into();
    let mut a = app(s.clone(), 80, 24);
    let statement = r#"TRACE "say \"a\\b\"\n" POSITIONS ALL TOP 10"#;
    assert_eq!(press(&mut a, "P"), [Command::Trace(statement.into())]);
    press(&mut a, "J");
    assert!(a.notice.as_deref().is_some_and(|n| n.contains("P traces")));
    press(&mut a, "m");
    assert!(a.notice.as_deref().is_some_and(|n| n.contains("PATCH")));
    s.prompt.clear();
    let mut a = app(s, 80, 24);
    assert_eq!(press(&mut a, "P"), []);
    assert!(a.notice.is_some());
}

#[test]
fn the_line_takes_statements_and_remembers_them() {
    let mut a = app(decode(3), 80, 24);
    press(&mut a, ":FACTS");
    assert!(screen(&a).contains("statement"));
    assert_eq!(
        key(&mut a, KeyCode::Enter),
        [Command::Trace("FACTS".into())]
    );
    assert_eq!((a.focus, &a.overlay), (Panel::Trace, &Overlay::None));
    press(&mut a, "1:TRACE \"a\"");
    assert_eq!(
        key(&mut a, KeyCode::Enter),
        [Command::Trace("TRACE \"a\"".into())]
    );
    press(&mut a, ":half");
    key(&mut a, KeyCode::Up);
    assert!(screen(&a).contains("TRACE \"a\""));
    key(&mut a, KeyCode::Up);
    assert!(screen(&a).contains("FACTS"));
    key(&mut a, KeyCode::Down);
    key(&mut a, KeyCode::Down);
    assert!(screen(&a).contains("half"));
    key(&mut a, KeyCode::Up);
    assert_eq!(
        key(&mut a, KeyCode::Enter),
        [Command::Trace("TRACE \"a\"".into())]
    );
    assert_eq!(a.statements, ["FACTS", "TRACE \"a\""]);
    press(&mut a, "p");
    key(&mut a, KeyCode::Up);
    assert!(screen(&a).contains("The capital of France") || !a.snapshot().prompt.is_empty());
    looks_like("statement", &{
        let mut a = app(decode(3), 80, 24);
        press(&mut a, ":");
        screen(&a)
    });
}

#[test]
fn a_new_trace_starts_at_what_decided_it_and_a_token_more_moves_nothing() {
    let mut a = pane(single(), 80, 24, true);
    press(&mut a, "kkh");
    let before = a.views.trace;
    let mut longer = view(false);
    let mut last = longer.positions[5].clone();
    last.position = 6;
    longer.positions.push(last);
    longer.tokens.push(longer.tokens[3].clone());
    let grown = TraceFrame {
        shown: Some(Arc::new(longer)),
        ..single()
    };
    update(&mut a, Message::Snapshot(Arc::new(traced(grown.clone()))));
    assert_eq!(a.views.trace, before);
    // At the end the newest token is looked at.
    let mut at_end = pane(single(), 80, 24, true);
    update(&mut at_end, Message::Snapshot(Arc::new(traced(grown))));
    assert!(screen(&at_end).contains("position 6 of 0–6"));
    let other = TraceFrame {
        number: 9,
        ..single()
    };
    update(&mut a, Message::Snapshot(Arc::new(traced(other))));
    assert_eq!(a.views.trace, crate::tui::views::TracePlace::default());
}

#[test]
fn a_new_map_is_shown_and_its_cells_are_walked() {
    let mut a = pane(compared(), 120, 40, true);
    assert!(!a.views.trace.map);
    update(&mut a, Message::Snapshot(Arc::new(traced(full()))));
    assert!(a.views.trace.map);
    assert!(
        screen(&a).contains("+6.38 logits · layer 7, position 5"),
        "{}",
        screen(&a)
    );
    press(&mut a, "gg");
    key(&mut a, KeyCode::Left);
    assert_eq!(a.views.trace.cell, Some((1, 4)));
    press(&mut a, "GllJ");
    assert_eq!(a.views.trace.cell, None, "the largest effect again");
    press(&mut a, "m");
    assert!(screen(&a).contains("A-B attn"));
    press(&mut a, "m");
    // The cell of layer 2 and the fourth token.
    let drawn = screen(&a);
    let (y, line) = drawn
        .lines()
        .enumerate()
        .find(|(_, l)| l.contains("+5.07"))
        .expect("the cell");
    let x = line.split("+5.07").next().unwrap_or("").chars().count();
    click(&mut a, x as u16, y as u16);
    assert_eq!(a.views.trace.cell, Some((2, 3)));
    // Cells that come in move nothing.
    let mut more = full();
    let mut map = (*more.map.take().expect("a map")).clone();
    map.cells[7][5] = Some(9.0);
    more.map = Some(Arc::new(map));
    update(&mut a, Message::Snapshot(Arc::new(traced(more))));
    assert_eq!(a.views.trace.cell, Some((2, 3)));
}

#[test]
fn clicks_and_the_wheel_select_what_they_are_over() {
    let mut a = pane(single(), 80, 24, true);
    let drawn = screen(&a);
    let at = |text: &str| {
        let (y, line) = drawn
            .lines()
            .enumerate()
            .find(|(_, l)| l.contains(text))
            .expect("on the screen");
        let x = line.split(text).next().unwrap_or("").chars().count();
        (x as u16 + 1, y as u16)
    };
    let (x, y) = at("8e-5");
    click(&mut a, x, y);
    assert_eq!(a.views.trace.layer, Some(3));
    let (x, y) = at("│ France│");
    click(&mut a, x + 1, y);
    assert_eq!(a.views.trace.position, Some(3));
    let wheel = |a: &mut App, kind, (column, row): (u16, u16)| {
        let modifiers = KeyModifiers::NONE;
        update(
            a,
            Message::Mouse(MouseEvent {
                kind,
                column,
                row,
                modifiers,
            }),
        );
    };
    wheel(&mut a, MouseEventKind::ScrollDown, (10, 10));
    assert_eq!(a.views.trace.layer, Some(4));
    wheel(&mut a, MouseEventKind::ScrollUp, (x, y));
    assert_eq!(a.views.trace.position, Some(2));
    wheel(&mut a, MouseEventKind::ScrollRight, (10, 10));
    assert_eq!(a.views.trace.position, Some(3));
    // The last layer, at the right end of the chart.
    let (x, y) = at("8 │");
    click(&mut a, x - 1, y - 2);
    assert_eq!(a.views.trace.layer, Some(8));
}

#[test]
fn what_the_last_statement_said_is_shown() {
    for frame in [single(), full(), without_lens(), TraceFrame::default()] {
        let frame = TraceFrame {
            lines: vec![
                "an older line".into(),
                "saved 6 positions to france.trace".into(),
            ],
            ..frame
        };
        for (w, h) in [(80, 24), (120, 40)] {
            let drawn = screen(&pane(frame.clone(), w, h, true));
            assert!(
                drawn.contains("saved 6 positions to france.trace"),
                "{drawn}"
            );
        }
    }
}

#[test]
fn parts_that_do_not_add_up_are_told() {
    let mut frame = single();
    let mut view = view(false);
    view.positions[5].embedding_logits[0] += 3.0;
    frame.shown = Some(Arc::new(view));
    let drawn = screen(&pane(frame, 80, 24, true));
    assert!(drawn.contains("off by +3.00: logit 18.19"), "{drawn}");
}

/// A frame whose figures and lengths lie.
fn hostile_frame(seed: usize) -> TraceFrame {
    let bad = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -1.0,
        0.0,
        1e300,
        -1e300,
        f64::MIN_POSITIVE,
        12.5,
    ];
    let mut at = seed.wrapping_mul(2_654_435_761).wrapping_add(17);
    let mut next = || {
        at = at
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        at >> 33
    };
    let mut frame = match next() % 4 {
        0 => single(),
        1 => without_lens(),
        _ => full(),
    };
    let evil = "\x1b]0;owned\x07日本語\u{202e}\r\n👩‍👩‍👧‍👦";
    let spoil = |view: &TraceView, next: &mut dyn FnMut() -> usize| {
        let mut v = view.clone();
        match next() % 7 {
            0 => v.positions.clear(),
            1 => v.tokens.clear(),
            2 => v.answers.clear(),
            3 => v.answers.truncate(1),
            4 => v.tokens.extend((0..300).map(|_| view.tokens[0].clone())),
            _ => {}
        }
        if next().is_multiple_of(3) {
            v.prompt = evil.repeat(20);
            v.model = evil.into();
            v.notes = vec![evil.into(); 3];
            v.edits = vec![evil.into(); 3];
            for t in &mut v.tokens {
                t.text = evil.into();
            }
        }
        for p in &mut v.positions {
            match next() % 9 {
                0 => p.waypoints.clear(),
                1 => p.waypoints.truncate(1),
                2 => p.phases.clear(),
                3 => p.embedding_logits.clear(),
                4 => p.position = u32::MAX,
                5 => p.waypoints.reverse(),
                _ => {}
            }
            for phase in &mut p.phases {
                if next().is_multiple_of(2) {
                    (phase.largest_rise, phase.rise) = (u32::MAX, bad[next() % bad.len()]);
                    phase.settled = Some(u32::MAX);
                }
            }
            for w in &mut p.waypoints {
                w.residual_norm = bad[next() % bad.len()];
                w.attn_norm = bad[next() % bad.len()];
                w.entropy = Some(bad[next() % bad.len()]);
                match next() % 6 {
                    0 => w.tracks.clear(),
                    1 => w.top.clear(),
                    2 => w.layer = u32::MAX,
                    _ => {}
                }
                for t in &mut w.tracks {
                    t.prob = bad[next() % bad.len()];
                    t.attn_logit = bad[next() % bad.len()];
                    t.ffn_logit = bad[next() % bad.len()];
                    t.logit = bad[next() % bad.len()];
                    t.rank = [0, 1, u32::MAX][next() % 3];
                    t.head_logits = vec![bad[next() % bad.len()]; next() % 70];
                }
                for c in &mut w.top {
                    c.prob = bad[next() % bad.len()];
                    c.token.text = evil.into();
                }
            }
        }
        Arc::new(v)
    };
    frame.shown = frame.shown.map(|v| spoil(&v, &mut next));
    frame.beside = frame.beside.map(|v| spoil(&v, &mut next));
    if next().is_multiple_of(5) {
        frame.shown = None;
    }
    frame.map = frame.map.map(|m| {
        let mut m: PatchMap = (*m).clone();
        match next() % 7 {
            0 => m.cells.clear(),
            1 => m.tokens.clear(),
            2 => m.layers.clear(),
            3 => m.source_tokens.clear(),
            4 => m.tokens = (0..200).map(|_| m.tokens[0].clone()).collect(),
            5 => m.layers = (0..200).map(|i| i * 77).collect(),
            _ => {}
        }
        for v in m.cells.iter_mut().flatten() {
            *v = Some(bad[next() % bad.len()]);
        }
        (m.base_logit, m.source_logit) = (bad[next() % bad.len()], bad[next() % bad.len()]);
        m.site = evil.into();
        m.notes = vec![evil.into(); 20];
        Arc::new(m)
    });
    if next().is_multiple_of(2) {
        frame.lines = vec![evil.into(); next() % 40];
        frame.work = Some((evil.into(), u32::MAX, 0));
    }
    frame.number = next() as u64 % 3;
    frame
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn no_frame_makes_it_fail(
        seed: usize, zoomed: bool, ascii: bool, steps in proptest::collection::vec((step(), any::<usize>()), 1..20), w in 0u16..220, h in 0u16..70,
    ) {
        let mut a = pane(hostile_frame(seed), w, h, zoomed);
        a.theme = Theme::new(true, ascii);
        for (s, seed) in steps {
            let message = match s {
                Step::Key(k) => Message::Key(k.event()),
                Step::Mouse(kind, column, row) => Message::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }),
                Step::Paste(t) => Message::Paste(t),
                Step::Resize(w, h) => Message::Resize(w, h),
                Step::Take(_) => Message::Snapshot(Arc::new(traced(hostile_frame(seed)))),
            };
            update(&mut a, message);
            if seed % 3 > 0 {
                a.focus = Panel::Trace;
            }
            let drawn = screen(&a);
            prop_assert_eq!(drawn.lines().count(), usize::from(a.area.height));
            prop_assert!(!drawn.chars().any(|c| c.is_control() && c != '\n'));
            let unicode = !a.theme.glyphs.ascii;
            prop_assert!(unicode || drawn.is_ascii());
        }
    }
}
