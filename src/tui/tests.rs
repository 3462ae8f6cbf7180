//! The dashboard as a whole: what it looks like at each size, and that nothing makes it fail.

mod figures;

use super::columns::{Column, Sort};
use super::fixture::{advised, decode, hostile, measured, starting};
use super::keymap::{Action, Key, Keymap};
use super::state::{App, Overlay, Panel};
use super::update::{Message, update};
use super::{Options, panels};
use crate::headless::text;
use crate::session::snapshot::{Command, RunState, Snapshot};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use proptest::prelude::*;
use ratatui::layout::Rect;
use std::sync::Arc;

mod advice;
mod profile;
mod trace;
mod tracer;

fn app(snapshot: Snapshot, width: u16, height: u16) -> App {
    Options::default().app(Arc::new(snapshot), Rect::new(0, 0, width, height))
}

fn press(app: &mut App, keys: &str) -> Vec<Command> {
    keys.chars()
        .flat_map(|c| {
            update(
                app,
                Message::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE)),
            )
        })
        .collect()
}

fn key(app: &mut App, code: KeyCode) -> Vec<Command> {
    update(app, Message::Key(KeyEvent::new(code, KeyModifiers::NONE)))
}

fn click(app: &mut App, column: u16, row: u16) {
    let kind = MouseEventKind::Down(MouseButton::Left);
    update(
        app,
        Message::Mouse(MouseEvent {
            kind,
            column,
            row,
            modifiers: KeyModifiers::NONE,
        }),
    );
}

fn screen(app: &App) -> String {
    text::draw(app, app.area.width, app.area.height)
}

fn looks_like(name: &str, screen: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(format!("tui-{name}"), screen));
}

#[test]
fn each_size_has_its_layout() {
    let options = Options::default();
    for (w, h) in [
        (200, 60),
        (120, 40),
        (100, 30),
        (80, 24),
        (60, 15),
        (40, 12),
        (20, 5),
        (10, 3),
    ] {
        looks_like(
            &format!("{w}x{h}"),
            &text::render(&decode(120), w, h, &options),
        );
    }
}

/// F144: the dashboard of a CPU run names kernels, threads and CPU, and shows times, shares and rates of every brick.
#[test]
fn f144_the_dashboard_shows_the_cpu() {
    let screen = text::render(&decode(120), 120, 40, &Options::default());
    for shown in [
        "cpu avx2",
        "2 threads",
        "Xeon",
        "GateProj",
        "1116.0",
        "15.1%",
        "GB/s",
        "tok/s",
    ] {
        assert!(screen.contains(shown), "{shown}");
    }
}

#[test]
fn each_state_explains_itself() {
    looks_like(
        "starting",
        &text::render(&starting(), 80, 24, &Options::default()),
    );
    let mut s = decode(40);
    s.state = RunState::PausedAtLayer { next_layer: 12 };
    looks_like(
        "paused-at-layer",
        &text::render(&s, 80, 24, &Options::default()),
    );
    s.state = RunState::Failed {
        error: "the kv cache is full: 2048 tokens".into(),
    };
    looks_like("failed", &text::render(&s, 80, 24, &Options::default()));
    s.state = RunState::Finished {
        reason: "token limit".into(),
    };
    looks_like("finished", &text::render(&s, 80, 24, &Options::default()));
    looks_like(
        "ascii",
        &text::render(
            &decode(120),
            80,
            24,
            &Options {
                ascii: true,
                ..Options::default()
            },
        ),
    );
    looks_like(
        "hostile",
        &text::render(&hostile(), 120, 40, &Options::default()),
    );
}

#[test]
fn windows_and_zoom() {
    let mut a = app(decode(120), 120, 40);
    press(&mut a, "?");
    looks_like("help", &screen(&a));
    press(&mut a, "?z");
    looks_like("bricks-zoomed", &screen(&a));
    press(&mut a, "z2z");
    looks_like("layers-zoomed", &screen(&a));
    press(&mut a, "zpWhy is the sky");
    looks_like("prompt", &screen(&a));
}

#[test]
fn nothing_steers_the_terminal() {
    for ascii in [false, true] {
        let out = text::render(
            &hostile(),
            200,
            60,
            &Options {
                ascii,
                ..Options::default()
            },
        );
        assert!(!out.chars().any(|c| c.is_control() && c != '\n'));
        assert!(!ascii || out.is_ascii());
    }
}

#[test]
fn keys_give_commands() {
    let mut a = app(decode(3), 80, 24);
    assert_eq!(
        press(&mut a, " nNsrcu"),
        [
            Command::TogglePause,
            Command::StepToken,
            Command::StepLayer,
            Command::StepToken,
            Command::Restart,
            Command::ResetStats,
            Command::Undo
        ]
    );
    assert_eq!(press(&mut a, "a"), [], "shown first");
    assert_eq!(a.focus, Panel::Advice);
    assert_eq!(press(&mut a, "a"), [Command::Apply("threads".into())]);
    assert_eq!(press(&mut a, "ja"), [], "not applicable in a session");
    assert!(
        a.notice
            .as_deref()
            .is_some_and(|n| n.contains("outside a running session"))
    );
    press(&mut a, "phi");
    update(&mut a, Message::Paste(" you\r\nthere".into()));
    assert_eq!(
        key(&mut a, KeyCode::Enter),
        [Command::NewPrompt("hi you\nthere".into())]
    );
    assert_eq!(a.overlay, Overlay::None);
    press(&mut a, "pq");
    assert_eq!(key(&mut a, KeyCode::Esc), []);
    assert!(!a.quit);
    assert_eq!(press(&mut a, "q"), [Command::Quit]);
    assert!(a.quit);
    let mut a = app(decode(3), 80, 24);
    let ctrl_c = Key {
        code: KeyCode::Char('c'),
        ctrl: true,
    };
    press(&mut a, "p");
    assert_eq!(
        update(&mut a, Message::Key(ctrl_c.event())),
        [Command::Quit]
    );
}

#[test]
fn every_bound_key_does_something_and_stands_in_help() {
    for (w, h) in [(120, 40), (200, 60), (80, 24)] {
        let mut a = app(measured(), w, h);
        a.overlay = Overlay::Help(0);
        let mut help = String::new();
        for top in 0..=panels::help::last_top(&a, a.area) {
            a.overlay = Overlay::Help(top);
            help.push_str(&screen(&a));
        }
        for binding in Keymap::default().bindings {
            assert!(
                help.contains(binding.help),
                "{} is not in help at {w}x{h}",
                binding.help
            );
            for k in &binding.keys {
                assert!(help.contains(&k.label()));
            }
        }
    }
    for binding in Keymap::default().bindings {
        let k = binding.keys[0];
        // From the middle of things, so that a move in any direction shows.
        let mut a = app(measured(), 120, 40);
        match binding.action {
            Action::Back => a.zoomed = true,
            Action::MoveSide(_) => press(&mut a, "2lll").clear(),
            Action::Focus(0) => a.focus = Panel::Text,
            Action::Magnify(_) => press(&mut a, "7jjj++").clear(),
            Action::Undo | Action::Apply => a.advice_cursor = Some("waiting".into()),
            _ => press(&mut a, "jjjj").clear(),
        }
        let before = format!("{a:?}");
        let commands = update(&mut a, Message::Key(k.event()));
        assert!(
            !commands.is_empty() || before != format!("{a:?}"),
            "{} does nothing",
            k.label()
        );
    }
}

#[test]
fn titles_are_where_the_mouse_finds_them() {
    for (w, h, zoomed) in [
        (80, 24, false),
        (120, 40, false),
        (200, 60, false),
        (120, 40, true),
        (45, 12, false),
    ] {
        let mut a = app(decode(120), w, h);
        a.zoomed = zoomed;
        let area = a.layout().panel(Panel::Bricks).unwrap_or_default();
        let drawn = screen(&a);
        for placed in panels::bricks::columns(&a, area) {
            let hit = placed.title_area(panels::bricks::title_line(area));
            let line = drawn.lines().nth(hit.y.into()).unwrap_or_default();
            let text: String = line
                .chars()
                .skip(hit.x.into())
                .take(hit.width.into())
                .collect();
            assert!(
                text.contains(&placed.title),
                "{:?} at {w}x{h}: {text:?}",
                placed.column
            );
            if matches!(placed.column, Column::Bar | Column::History) {
                continue;
            }
            let before = a.sort;
            click(&mut a, hit.right() - 1, hit.y);
            let expected = Sort {
                column: placed.column,
                reversed: before.column == placed.column && !before.reversed,
            };
            assert_eq!(a.sort, expected);
        }
    }
}

#[test]
fn tabs_and_rows_can_be_clicked() {
    let mut a = app(decode(120), 140, 40);
    let header = a.layout().header;
    let line: String = screen(&a)
        .lines()
        .nth(usize::from(header.bottom()) - 1)
        .unwrap_or_default()
        .into();
    for (panel, tab) in panels::header::tabs(&a, header) {
        let text: String = line
            .chars()
            .skip(tab.x.into())
            .take(tab.width.into())
            .collect();
        assert!(text.contains(panel.short()));
        click(&mut a, tab.x + 1, tab.y);
        assert_eq!(a.focus, panel);
    }
    let area = a.layout().panel(Panel::Bricks).unwrap_or_default();
    click(&mut a, area.x + 3, area.y + 4);
    let (rows, at) = a.sorted_rows();
    assert_eq!((at, a.focus), (2, Panel::Bricks));
    assert!(
        screen(&a)
            .lines()
            .nth(usize::from(area.y) + 4)
            .is_some_and(|l| l.contains(rows[2].id.name()))
    );
}

#[test]
fn freezing_keeps_the_display_and_not_the_commands() {
    let mut a = app(decode(10), 80, 24);
    press(&mut a, "f");
    let frozen = screen(&a);
    assert!(frozen.contains("display frozen (f)"));
    update(&mut a, Message::Snapshot(Arc::new(decode(11))));
    assert_eq!(screen(&a), frozen);
    assert_eq!(press(&mut a, " "), [Command::TogglePause]);
    press(&mut a, "f");
    assert_eq!(a.snapshot().generated, 11);
}

#[test]
fn the_text_follows_its_end_unless_scrolled() {
    let mut a = app(decode(400), 80, 24);
    press(&mut a, "3kk");
    let top = a.text_top;
    assert!(top.is_some());
    update(&mut a, Message::Snapshot(Arc::new(decode(500))));
    assert_eq!(a.text_top, top);
    press(&mut a, "G");
    assert_eq!(a.text_top, None);
}

#[test]
fn messages_give_way_but_errors_stay() {
    let mut s = measured();
    let mut a = app(s.clone(), 120, 40);
    assert!(screen(&a).contains("threads: 92.1"));
    s.seq += 1000;
    update(&mut a, Message::Snapshot(Arc::new(s.clone())));
    assert!(!screen(&a).contains("threads: 92.1"));
    if let Some(m) = &mut s.message {
        m.is_error = true;
    }
    update(&mut a, Message::Snapshot(Arc::new(s.clone())));
    s.seq += 1000;
    update(&mut a, Message::Snapshot(Arc::new(s)));
    assert!(screen(&a).contains("threads: 92.1"));
    key(&mut a, KeyCode::Esc);
    assert!(!screen(&a).contains("threads: 92.1"));
}

#[derive(Debug, Clone)]
enum Step {
    Key(Key),
    Mouse(MouseEventKind, u16, u16),
    Paste(String),
    Resize(u16, u16),
    Take(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let keys: Vec<Key> = Keymap::default()
        .bindings
        .into_iter()
        .flat_map(|b| b.keys)
        .chain(
            super::editor::editor_bindings()
                .into_iter()
                .flat_map(|(_, keys, _)| keys),
        )
        .collect();
    let mouse = proptest::sample::select(vec![
        MouseEventKind::Down(MouseButton::Left),
        MouseEventKind::ScrollUp,
        MouseEventKind::ScrollDown,
        MouseEventKind::Up(MouseButton::Left),
    ]);
    prop_oneof![
        6 => proptest::sample::select(keys).prop_map(Step::Key),
        3 => (mouse, 0u16..260, 0u16..90).prop_map(|(k, x, y)| Step::Mouse(k, x, y)),
        1 => "\\PC{0,40}".prop_map(Step::Paste),
        2 => (0u16..310, 0u16..105).prop_map(|(w, h)| Step::Resize(w, h)),
        1 => (0usize..8).prop_map(Step::Take),
    ]
}

fn some_snapshot(which: usize) -> Snapshot {
    match which {
        0 => starting(),
        1 => hostile(),
        2 => measured(),
        4 => advised(),
        3 => Snapshot {
            state: RunState::PausedAtLayer {
                next_layer: u32::MAX,
            },
            ..decode(1)
        },
        n => decode(n * 30),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn nothing_makes_it_fail(which in 0usize..8, w in 0u16..310, h in 0u16..105, steps in proptest::collection::vec(step(), 1..40)) {
        let mut a = app(some_snapshot(which), w, h);
        for s in steps {
            let message = match s {
                Step::Key(k) => Message::Key(k.event()),
                Step::Mouse(kind, column, row) => Message::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }),
                Step::Paste(t) => Message::Paste(t),
                Step::Resize(w, h) => Message::Resize(w, h),
                Step::Take(n) => Message::Snapshot(Arc::new(some_snapshot(n))),
            };
            update(&mut a, message);
            let drawn = screen(&a);
            prop_assert_eq!(drawn.lines().count(), usize::from(a.area.height));
            prop_assert!(!drawn.chars().any(|c| c.is_control() && c != '\n'));
        }
    }

    #[test]
    fn small_screens_show_the_rate(w in 10u16..250, h in 1u16..80) {
        prop_assert!(text::render(&decode(120), w, h, &Options::default()).contains("139.9") || w < 12, "{}x{}", w, h);
    }

    #[test]
    fn sorting_is_a_stable_permutation(seed in proptest::collection::vec(0u64..4, 21), reversed: bool, column in 0usize..5) {
        let mut s = decode(5);
        for (row, calls) in s.bricks.iter_mut().zip(seed) {
            row.calls = calls;
            row.us_per_step = calls as f64;
        }
        let column = [Column::Calls, Column::Time, Column::Brick, Column::Elements, Column::P99][column];
        let sorted = Sort { column, reversed }.apply(&s.bricks, &s.roofline.points);
        prop_assert_eq!(sorted.len(), s.bricks.len());
        if matches!(column, Column::Calls | Column::Time) {
            for pair in sorted.windows(2) {
                let ordered = if reversed { pair[0].calls < pair[1].calls } else { pair[0].calls > pair[1].calls };
                prop_assert!(ordered || (pair[0].calls == pair[1].calls && pair[0].id < pair[1].id));
            }
        }
    }
}
