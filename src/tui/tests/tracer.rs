//! The pane of the five tracers at every size, its keys, and frames out of all bounds.

use super::*;
use crate::session::snapshot::{TracerFrame, TracerKind};
use crate::tui::fixture::tracer::{attention, broken, full, quantisation, traced};
use crate::tui::theme::Theme;
use crate::tui::views::ModelPlace;

const SIZES: [(u16, u16); 4] = [(80, 24), (120, 40), (200, 60), (40, 12)];

fn pane(frame: TracerFrame, view: TracerKind, w: u16, h: u16, zoomed: bool) -> App {
    let mut a = app(traced(frame), w, h);
    (a.focus, a.zoomed) = (Panel::Model, zoomed);
    a.views.model.view = view;
    a
}

fn with_broken() -> TracerFrame {
    TracerFrame {
        activations: Some(Arc::new(broken())),
        ..full()
    }
}

fn measuring() -> TracerFrame {
    TracerFrame {
        quantisation: Some(Arc::new(quantisation(false))),
        ..full()
    }
}

#[test]
fn each_view_of_the_tracers_at_each_size() {
    for (w, h) in SIZES {
        for view in TracerKind::ALL {
            let name = view.name();
            let drawn = screen(&pane(full(), view, w, h, true));
            looks_like(&format!("model-{name}-{w}x{h}"), &drawn);
            let off = screen(&pane(TracerFrame::default(), view, w, h, true));
            if (w, h) == (80, 24) {
                looks_like(&format!("model-{name}-off"), &off);
            }
            if w > 40 {
                let beside = screen(&pane(full(), view, w, h, false));
                looks_like(&format!("model-{name}-beside-{w}x{h}"), &beside);
            }
        }
        let drawn = screen(&pane(with_broken(), TracerKind::Activations, w, h, true));
        looks_like(&format!("model-broken-{w}x{h}"), &drawn);
        let drawn = screen(&pane(measuring(), TracerKind::Quantisation, w, h, true));
        looks_like(&format!("model-measuring-{w}x{h}"), &drawn);
        let mut a = pane(full(), TracerKind::Attention, w, h, true);
        press(&mut a, "m");
        looks_like(&format!("model-by-key-{w}x{h}"), &screen(&a));
    }
    let mut long = full();
    long.attention = Some(Arc::new(attention(900)));
    let mut a = pane(long, TracerKind::Attention, 80, 24, true);
    press(&mut a, "m");
    looks_like("model-by-key-long", &screen(&a));
}

/// Without colour and beyond ASCII nothing is lost.
#[test]
fn tracers_in_ascii_without_colour_say_the_same() {
    for view in TracerKind::ALL {
        let mut a = pane(with_broken(), view, 100, 30, true);
        a.theme = Theme::new(false, true);
        let drawn = screen(&a);
        assert!(drawn.is_ascii(), "{drawn}");
        looks_like(&format!("model-{}-ascii", view.name()), &drawn);
    }
}

/// The theme without colour has none in any view, and no view paints a background.
#[test]
fn no_view_of_the_tracers_has_a_colour_of_its_own() {
    use ratatui::style::Color;
    for view in TracerKind::ALL {
        for colour in [true, false] {
            let mut a = pane(with_broken(), view, 120, 40, true);
            a.theme = Theme::new(colour, false);
            let backend = ratatui::backend::TestBackend::new(120, 40);
            let mut terminal = ratatui::Terminal::new(backend).expect("a terminal");
            let draw = |f: &mut ratatui::Frame<'_>| crate::tui::view::view(&a, f);
            terminal.draw(draw).expect("drawn");
            let cells = &terminal.backend().buffer().content;
            assert!(cells.iter().all(|c| c.bg == Color::Reset));
            let any = cells.iter().any(|c| c.fg != Color::Reset);
            assert_eq!(any, colour, "{view:?}");
        }
    }
}

#[test]
fn a_view_whose_tracer_is_off_says_what_it_shows_costs_and_wants() {
    for view in TracerKind::ALL {
        let drawn = screen(&pane(TracerFrame::default(), view, 200, 60, true));
        for said in [
            "shows ",
            "x switches it on",
            "cost: ",
            &format!("[{} off]", view.name()),
        ] {
            assert!(drawn.contains(said), "{said}\n{drawn}");
        }
        let mut a = app(decode(3), 120, 40);
        (a.focus, a.views.model.view) = (Panel::Model, view);
        assert!(screen(&a).contains("it is off"), "without any frame too");
        let on = TracerFrame {
            on: full().on,
            ..TracerFrame::default()
        };
        assert!(screen(&pane(on, view, 120, 40, true)).contains("waits for the next step"));
    }
}

#[test]
fn brackets_go_through_the_views_and_x_switches_their_tracers() {
    let mut a = app(decode(3), 80, 24);
    assert_eq!(
        press(&mut a, "x"),
        [],
        "from elsewhere it brings the pane forward"
    );
    assert_eq!(
        (a.focus, a.views.model.view),
        (Panel::Model, TracerKind::Activations)
    );
    assert_eq!(
        press(&mut a, "x"),
        [Command::Tracer(TracerKind::Activations, true)]
    );
    press(&mut a, "[");
    assert_eq!(a.views.model.view, TracerKind::Kv);
    press(&mut a, "]]}");
    assert_eq!(a.views.model.view, TracerKind::Logits);
    assert_eq!(
        press(&mut a, "x"),
        [Command::Tracer(TracerKind::Logits, true)]
    );
    let all: Vec<_> = TracerKind::ALL.map(|k| Command::Tracer(k, true)).into();
    assert_eq!(press(&mut a, "X"), all);
    let mut some = full();
    some.on.kv = false;
    let mut a = pane(some, TracerKind::Kv, 80, 24, true);
    assert_eq!(press(&mut a, "X"), [Command::Tracer(TracerKind::Kv, true)]);
    let mut a = pane(full(), TracerKind::Kv, 80, 24, true);
    assert_eq!(press(&mut a, "x"), [Command::Tracer(TracerKind::Kv, false)]);
    let none: Vec<_> = TracerKind::ALL.map(|k| Command::Tracer(k, false)).into();
    assert_eq!(press(&mut a, "X"), none);
}

#[test]
fn the_measurement_starts_and_stops_where_it_is_shown() {
    let mut a = pane(full(), TracerKind::Kv, 80, 24, true);
    assert_eq!(press(&mut a, "E"), []);
    assert_eq!(a.views.model.view, TracerKind::Quantisation);
    assert!(a.notice.as_deref().is_some_and(|n| n.starts_with('E')));
    assert_eq!(press(&mut a, "E"), [Command::MeasureError(true)]);
    let mut a = pane(measuring(), TracerKind::Quantisation, 80, 24, true);
    assert_eq!(press(&mut a, "E"), [Command::MeasureError(false)]);
}

#[test]
fn the_footer_has_the_keys_that_mean_something() {
    let has = |view, key: &str| screen(&pane(full(), view, 160, 40, true)).contains(key);
    assert!(has(TracerKind::Kv, "x on/off"));
    assert!(!has(TracerKind::Kv, "E measure") && has(TracerKind::Quantisation, "E measure"));
    assert!(!has(TracerKind::Kv, "m map") && has(TracerKind::Attention, "m map"));
    assert!(!screen(&app(decode(3), 160, 40)).contains("x on/off"));
}

#[test]
fn layers_of_activations_are_walked() {
    let mut a = pane(full(), TracerKind::Activations, 120, 40, true);
    assert!(
        screen(&a).contains("largest output: layer 29"),
        "{}",
        screen(&a)
    );
    press(&mut a, "k");
    assert_eq!(a.views.model.layer, Some(28));
    press(&mut a, "gj");
    assert_eq!(a.views.model.layer, Some(1));
    press(&mut a, "Gj");
    assert_eq!(a.views.model.layer, Some(29));
    let mut a = pane(with_broken(), TracerKind::Activations, 120, 40, true);
    let drawn = screen(&a);
    for said in [
        "first broken: NaN",
        "▸ 12 N",
        "!N NaN in what",
        "!E explosion",
    ] {
        assert!(drawn.contains(said), "{said}\n{drawn}");
    }
    press(&mut a, "j");
    assert_eq!(a.views.model.layer, Some(13), "from the first that broke");
}

#[test]
fn the_session_follows_the_head_under_the_cursor() {
    let mut a = pane(full(), TracerKind::Attention, 120, 40, true);
    assert_eq!(press(&mut a, "l"), [Command::FocusHead(8, 4)]);
    assert_eq!(press(&mut a, "j"), [Command::FocusHead(8, 5)]);
    assert_eq!(
        press(&mut a, "hk"),
        [Command::FocusHead(7, 5), Command::FocusHead(7, 4)]
    );
    assert_eq!(press(&mut a, "G"), [Command::FocusHead(7, 8)]);
    assert_eq!(press(&mut a, "j"), [], "at the end nothing moves");
    press(&mut a, "m");
    assert!(a.views.model.by_key);
    assert!(screen(&a).contains("its queries come with the next step"));
    press(&mut a, "m");
    press(&mut a, "kkkk");
    press(&mut a, "m");
    let drawn = screen(&a);
    assert!(drawn.contains("layer 7, head 4: query 47"), "{drawn}");
    assert_eq!(press(&mut a, "k"), [], "over queries no head moves");
    assert_eq!(a.views.model.cell.map(|c| c.0), Some(46));
    press(&mut a, "g");
    assert_eq!(a.views.model.cell.map(|c| c.0), Some(0));
    let mut b = pane(full(), TracerKind::Activations, 120, 40, true);
    press(&mut b, "m");
    assert!(b.notice.is_some() && b.focus == Panel::Model);
}

#[test]
fn tokens_and_layers_of_logits_are_walked() {
    let mut a = pane(full(), TracerKind::Logits, 120, 40, true);
    assert!(screen(&a).contains("\" Paris\" (rank 1, P 0.612) raised most by layer 20"));
    press(&mut a, "h");
    assert_eq!(a.views.model.position, Some(46));
    assert!(screen(&a).contains("never first"));
    press(&mut a, "ll");
    assert_eq!(a.views.model.position, None, "the newest is followed");
    press(&mut a, "j");
    assert_eq!(a.views.model.passed, Some(22));
    press(&mut a, "g");
    assert!(screen(&a).contains("logitemb"));
}

#[test]
fn bricks_are_walked_and_the_cache_scrolls() {
    let mut a = pane(full(), TracerKind::Quantisation, 80, 24, true);
    assert!(screen(&a).contains("worst: DownProj in layer"));
    press(&mut a, "j");
    assert_eq!(
        a.views.model.brick,
        Some(crate::model::brick::BrickId::KProj)
    );
    press(&mut a, "G");
    assert_eq!(
        a.views.model.brick,
        Some(crate::model::brick::BrickId::LmHead)
    );
    let mut a = pane(full(), TracerKind::Kv, 40, 12, true);
    press(&mut a, "G");
    assert!(a.views.model.kv_top > 0);
    press(&mut a, "g");
    assert_eq!(a.views.model.kv_top, 0);
}

#[test]
fn tabs_and_cells_of_the_tracers_can_be_clicked() {
    let find = |drawn: &str, text: &str| {
        let found = drawn.lines().enumerate().find(|(_, l)| l.contains(text));
        let (y, line) = found.expect("on the screen");
        let x = line.split(text).next().unwrap_or("").chars().count();
        (x as u16, y as u16)
    };
    let mut a = pane(full(), TracerKind::Activations, 120, 40, true);
    let (x, y) = find(&screen(&a), "attention on");
    click(&mut a, x, y);
    assert_eq!(a.views.model.view, TracerKind::Attention);
    let (x, y) = find(&screen(&a), " h2 ");
    let at = MouseEvent {
        kind: MouseEventKind::Down(MouseButton::Left),
        column: x + 8,
        row: y,
        modifiers: KeyModifiers::NONE,
    };
    let commands = update(&mut a, Message::Mouse(at));
    assert!(
        matches!(commands[..], [Command::FocusHead(_, 2)]),
        "{commands:?}"
    );
    a.views.model.view = TracerKind::Quantisation;
    let (x, y) = find(&screen(&a), " OProj");
    click(&mut a, x + 2, y);
    assert_eq!(
        a.views.model.brick,
        Some(crate::model::brick::BrickId::OProj)
    );
    a.views.model.view = TracerKind::Activations;
    let (x, y) = find(&screen(&a), "  27 ");
    click(&mut a, x + 2, y);
    assert_eq!(a.views.model.layer, Some(27));
}

#[test]
fn a_recording_keeps_its_views_and_refuses_to_switch() {
    use crate::session::snapshot::{Playback, Speed};
    use std::time::Duration;
    let mut s = traced(full());
    s.playback = Some(Playback {
        frame: 1,
        frames: 2,
        at: Duration::from_secs(1),
        total: Duration::from_secs(2),
        playing: false,
        speed: Speed::default(),
    });
    let mut a = Options::default().app(Arc::new(s), Rect::new(0, 0, 120, 40));
    press(&mut a, "M}");
    assert_eq!(a.views.model.view, TracerKind::Attention);
    assert_eq!(press(&mut a, "x"), []);
    assert!(a.notice.is_some());
    assert!(screen(&a).contains("of 270 heads"));
}

/// A frame whose figures and lengths lie.
fn hostile_frame(seed: usize) -> TracerFrame {
    let mut json = serde_json::to_value(with_broken()).expect("a frame");
    let mut at = seed as u64 | 1;
    let mut next = move || {
        at = at
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (at >> 33) as usize
    };
    let evil = "\x1b]0;owned\x07日本語\u{202e}\r\n👩‍👩‍👧‍👦";
    let numbers = [0.0, -1.0, 1e30, -1e30, 4_294_967_295.0, 0.5];
    spoil(&mut json, &mut next, evil, &numbers);
    // What is no frame is refused by the reader.
    serde_json::from_value(json).unwrap_or_else(|_| with_broken())
}

fn spoil(
    value: &mut serde_json::Value,
    next: &mut dyn FnMut() -> usize,
    evil: &str,
    numbers: &[f64],
) {
    use serde_json::Value;
    match value {
        Value::Array(items) => {
            match next() % 12 {
                0 => items.clear(),
                1 => items.truncate(1),
                2 => items.reverse(),
                3 => items.extend(items.clone()),
                _ => {}
            }
            items.iter_mut().for_each(|v| spoil(v, next, evil, numbers));
        }
        Value::Object(fields) => fields
            .values_mut()
            .for_each(|v| spoil(v, next, evil, numbers)),
        // Names of kinds stay what they are, or nothing could be read.
        Value::String(s) if s.contains(' ') && next().is_multiple_of(3) => *s = evil.into(),
        Value::Number(n) if next().is_multiple_of(6) => {
            let with = numbers[next() % numbers.len()];
            let whole = n.is_u64();
            *value = if whole {
                serde_json::json!(with.clamp(0.0, 4_294_967_295.0) as u32)
            } else {
                serde_json::json!(with)
            };
        }
        _ => {}
    }
}

#[test]
fn a_spoiled_frame_is_still_a_frame() {
    let read = (0..40).filter(|i| hostile_frame(*i * 7919) != with_broken());
    assert!(read.count() > 30);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn no_frame_of_tracers_makes_it_fail(
        seed: usize, view in 0usize..5, zoomed: bool, ascii: bool, by_key: bool, w in 0u16..220, h in 0u16..70,
        steps in proptest::collection::vec((step(), any::<usize>()), 1..16),
    ) {
        let mut a = pane(hostile_frame(seed), TracerKind::ALL[view], w, h, zoomed);
        a.views.model = ModelPlace { by_key, ..a.views.model };
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
                a.focus = Panel::Model;
                a.views.model.view = TracerKind::ALL[seed % 5];
            }
            let drawn = screen(&a);
            prop_assert_eq!(drawn.lines().count(), usize::from(a.area.height));
            prop_assert!(!drawn.chars().any(|c| c.is_control() && c != '\n'));
            let unicode = !a.theme.glyphs.ascii;
            prop_assert!(unicode || drawn.is_ascii());
        }
    }
}
