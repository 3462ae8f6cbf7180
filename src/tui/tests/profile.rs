//! The panels that show a step: timeline, layer by brick map, execution tree, brick table with roofs and history.

use super::*;
use crate::model::brick::BrickId;
use crate::session::snapshot::{HeatRow, LayerRow, StepTrace};
use crate::tui::theme::Theme;
use crate::tui::views::{HeatScale, Node};
use ratatui::buffer::Buffer;

/// Sizes every panel is looked at in, zoomed.
const SIZES: [(u16, u16); 5] = [(120, 40), (80, 24), (40, 12), (200, 60), (300, 100)];

fn zoomed(snapshot: Snapshot, w: u16, h: u16, keys: &str) -> App {
    let mut a = app(snapshot, w, h);
    press(&mut a, keys);
    a.zoomed = true;
    a
}

fn ascii(snapshot: Snapshot, w: u16, h: u16, keys: &str) -> App {
    let mut a = zoomed(snapshot, w, h, keys);
    a.theme = Theme::new(false, true);
    a
}

/// Figures out of all bounds in everything these panels read.
fn hostile_profile(seed: usize) -> Snapshot {
    let mut s = hostile();
    let bad = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -1.0,
        0.0,
        1e300,
        f64::MIN_POSITIVE,
        123.0,
    ];
    let mut at = seed;
    let mut next = || {
        at = at.wrapping_mul(31).wrapping_add(7);
        bad[at % bad.len()]
    };
    let step = s.last_step.get_or_insert_with(|| unreachable!());
    if seed.is_multiple_of(3) {
        step.wall_us = next();
    }
    for e in &mut step.events {
        (e.start_us, e.work_us, e.sync_us) = (next(), next(), next());
        if seed.is_multiple_of(2) {
            e.layer = [None, Some(0), Some(u32::MAX)][e.start_us.to_bits() as usize % 3];
            e.brick = Some(u32::MAX);
        }
    }
    for t in &mut step.threads {
        (t.work_us, t.wait_us, t.idle_us) = (next(), next(), next());
        for (i, span) in t.spans.iter_mut().enumerate() {
            (span.start_us, span.work_us, span.wait_us) = (next(), next(), next());
            span.slack_us = next();
            if i.is_multiple_of(5) {
                span.event = u32::MAX;
            }
        }
    }
    match seed % 5 {
        0 => step.threads.clear(),
        1 => {
            let thread = step.threads[0].clone();
            step.threads = (0..200).map(|_| thread.clone()).collect();
        }
        2 => step.events.clear(),
        _ => {}
    }
    for row in &mut s.heat {
        for us in &mut row.us {
            *us = Some(next());
        }
    }
    if seed.is_multiple_of(4) {
        s.heat.truncate(1);
        s.heat[0].us.truncate(3);
    }
    for row in &mut s.bricks {
        row.history_us = (0..40).map(|_| next()).collect();
    }
    for p in &mut s.roofline.points {
        p.of_roof = next();
        p.bound = s.model.name.clone();
    }
    for t in &mut s.token_times {
        t.us = next();
    }
    for a in &mut s.anomalies {
        a.says = s.model.name.clone();
    }
    let mut kernels = (*s.kernels).clone();
    for k in &mut kernels {
        k.name = s.model.name.clone();
        k.source = s.model.name.clone();
        k.source_hash = s.model.name.clone();
        k.rows = Some(u64::MAX);
    }
    s.kernels = Arc::new(kernels);
    if let Some(p) = &mut s.critical_path {
        for n in &mut p.nodes {
            (n.slack_us, n.tok_s_if_2x) = (next(), next());
        }
    }
    s
}

/// A model of 200 layers on 12 threads.
fn large() -> Snapshot {
    let mut s = decode(400);
    let layer = s.layers[3].clone();
    s.layers = (0..200)
        .map(|i| LayerRow {
            layer: i,
            us_per_step: layer.us_per_step * (1.0 + f64::from(i % 7) * 0.02),
            ..layer.clone()
        })
        .collect();
    for row in &mut s.heat {
        let us = row.us[3];
        row.us = (0..200)
            .map(|i| us.map(|v| if i == 131 { v * 1.9 } else { v }))
            .collect();
    }
    if let Some(step) = &mut s.last_step {
        let thread = step.threads[1].clone();
        while step.threads.len() < 12 {
            let mut t = thread.clone();
            t.thread = step.threads.len() as u32;
            step.threads.push(t);
        }
    }
    s
}

#[test]
fn timeline_zoomed() {
    for (w, h) in SIZES {
        let a = zoomed(decode(120), w, h, "7");
        looks_like(&format!("timeline-{w}x{h}"), &screen(&a));
    }
    let a = zoomed(decode(120), 120, 40, "7jjjjjjjjjjjjjjjjjjjjjjjj+++++");
    looks_like("timeline-magnified", &screen(&a));
    let a = zoomed(large(), 100, 30, "7");
    looks_like("timeline-large", &screen(&a));
    let a = ascii(decode(120), 80, 24, "7jjjjjjjjjjjjjjjj++++");
    let drawn = screen(&a);
    assert!(drawn.is_ascii());
    looks_like("timeline-ascii", &drawn);
}

#[test]
fn layers_zoomed() {
    for (w, h) in SIZES {
        let a = zoomed(decode(120), w, h, "2");
        looks_like(&format!("layers-{w}x{h}"), &screen(&a));
    }
    let a = zoomed(large(), 120, 40, "2+");
    assert_eq!(a.views.heat.scale, HeatScale::Hottest);
    looks_like("layers-large", &screen(&a));
    let mut a = ascii(decode(120), 80, 24, "2");
    press(&mut a, "jjjlllll");
    let drawn = screen(&a);
    assert!(drawn.is_ascii() && drawn.contains("KProj in layer 4 takes"));
    looks_like("layers-ascii", &drawn);
}

#[test]
fn tree_zoomed() {
    for (w, h) in SIZES {
        let mut a = zoomed(decode(120), w, h, "tjjl");
        press(&mut a, "jjlj");
        looks_like(&format!("tree-{w}x{h}"), &screen(&a));
    }
    let mut a = ascii(decode(120), 80, 24, "t");
    press(&mut a, "jjljjl");
    let drawn = screen(&a);
    assert!(drawn.is_ascii());
    looks_like("tree-ascii", &drawn);
}

#[test]
fn bricks_and_path_zoomed() {
    for (w, h) in [(80, 24), (40, 12), (200, 60), (300, 100)] {
        let a = zoomed(decode(120), w, h, "1");
        looks_like(&format!("bricks-{w}x{h}"), &screen(&a));
    }
    let drawn = screen(&zoomed(decode(120), 120, 40, "1"));
    assert!(drawn.contains("of roof") && drawn.contains("history"));
    assert!(drawn.contains("88% mem"));
    for (w, h) in [(120, 40), (80, 24)] {
        let a = zoomed(decode(120), w, h, "4");
        looks_like(&format!("path-{w}x{h}"), &screen(&a));
    }
}

#[test]
fn the_roof_is_in_the_table_unzoomed() {
    let a = app(decode(120), 120, 40);
    assert!(screen(&a).contains("of roof"));
    let mut a = app(decode(120), 120, 40);
    press(&mut a, "d");
    assert_eq!(a.points(), []);
}

#[test]
fn the_table_sorts_by_roof() {
    let s = decode(3);
    let sort = Sort {
        column: Column::Roof,
        reversed: false,
    };
    let rows = sort.apply(&s.bricks, &s.roofline.points);
    assert_eq!(rows[0].id, BrickId::Attention);
    assert_eq!(rows[1].id, BrickId::LmHead);
}

#[test]
fn the_timeline_stays_where_it_is_while_snapshots_change() {
    let mut a = zoomed(decode(10), 120, 40, "7jjjjjjjjj++++l");
    let view = a.views.timeline;
    let mut later = decode(11);
    if let Some(step) = &mut later.last_step {
        step.wall_us += 300.0;
        for e in &mut step.events {
            e.start_us += 300.0;
        }
    }
    update(&mut a, Message::Snapshot(Arc::new(later)));
    assert_eq!(a.views.timeline, view);
    press(&mut a, "----------");
    assert_eq!(a.views.timeline.width_us, None);
    key(&mut a, KeyCode::PageDown);
    assert_eq!(a.views.timeline.lane, 2);
    key(&mut a, KeyCode::Home);
    assert_eq!(a.views.timeline.event, 0);
}

#[test]
fn the_mouse_selects_and_magnifies() {
    let mut a = zoomed(decode(120), 120, 40, "7");
    let drawn = screen(&a);
    let y = drawn
        .lines()
        .position(|l| l.contains("│ thread 1  "))
        .unwrap_or_default() as u16;
    click(&mut a, 60, y);
    assert_eq!(a.views.timeline.lane, 2);
    assert!(a.views.timeline.event > 100);
    let wheel = |a: &mut App, kind| {
        let modifiers = KeyModifiers::NONE;
        let (column, row) = (60, y);
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
    wheel(&mut a, MouseEventKind::ScrollUp);
    assert!(a.views.timeline.width_us.is_some());
    wheel(&mut a, MouseEventKind::ScrollDown);
    assert_eq!(a.views.timeline.width_us, None);

    let mut a = zoomed(decode(120), 120, 40, "t");
    let y = screen(&a)
        .lines()
        .position(|l| l.contains("layer 2 "))
        .unwrap_or_default() as u16;
    click(&mut a, 10, y);
    click(&mut a, 10, y);
    assert!(a.views.tree.open.contains(&a.views.tree.cursor));

    let mut a = zoomed(decode(120), 120, 40, "2");
    let y = screen(&a)
        .lines()
        .position(|l| l.contains("DownProj  "))
        .unwrap_or_default() as u16;
    click(&mut a, 40, y);
    assert_eq!(a.views.heat.brick, Some(BrickId::DownProj));
    assert!(a.layer_cursor.is_some());
}

#[test]
fn the_tree_cursor_stays_on_its_call() {
    let mut a = zoomed(decode(10), 120, 40, "t");
    press(&mut a, "jjljjlj");
    let cursor = a.views.tree.cursor;
    assert!(matches!(cursor, Node::Kernel(_)));
    update(&mut a, Message::Snapshot(Arc::new(decode(11))));
    assert_eq!(a.views.tree.cursor, cursor);
    press(&mut a, "hhh");
    assert_eq!(a.views.tree.open.len(), 1 + 1, "{:?}", a.views.tree);
    // A step without what was unfolded.
    let mut other = decode(12);
    other.last_step = Some(StepTrace {
        events: Vec::new(),
        threads: Vec::new(),
        ..other.last_step.unwrap_or_else(|| unreachable!())
    });
    update(&mut a, Message::Snapshot(Arc::new(other)));
    press(&mut a, "jklh");
    screen(&a);
}

#[test]
fn nothing_to_show_is_said() {
    let mut s = starting();
    s.heat = vec![HeatRow {
        id: BrickId::Embed,
        us: vec![None; 4],
    }];
    for keys in ["7", "2", "t", "1", "4"] {
        let a = zoomed(s.clone(), 80, 24, keys);
        let drawn = screen(&a);
        assert!(
            ["waits for", "no decode step", "no prefill chunk"]
                .iter()
                .any(|t| drawn.contains(t)),
            "{drawn}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn nothing_makes_the_profile_fail(
        seed in 0usize..10_000,
        panel in 0usize..5,
        (w, h) in (20u16..=300, 5u16..=100),
        zoom: bool,
        plain: bool,
        steps in proptest::collection::vec(step(), 0..25),
    ) {
        let mut a = app(hostile_profile(seed), w, h);
        a.theme = Theme::new(!plain, plain);
        a.focus = [Panel::Timeline, Panel::Layers, Panel::Tree, Panel::Bricks, Panel::Path][panel];
        a.zoomed = zoom;
        for s in steps {
            match s {
                Step::Key(k) if !matches!(a.keymap.action(&k.event()), Some(Action::Focus(_) | Action::FocusNext | Action::EditPrompt)) => {
                    update(&mut a, Message::Key(k.event()));
                }
                Step::Mouse(kind, column, row) => {
                    update(&mut a, Message::Mouse(MouseEvent { kind, column: column % w, row: row % h, modifiers: KeyModifiers::NONE }));
                }
                Step::Take(n) => {
                    update(&mut a, Message::Snapshot(Arc::new(hostile_profile(seed + n))));
                }
                _ => {}
            }
            a.overlay = Overlay::None;
            let drawn = screen(&a);
            prop_assert_eq!(drawn.lines().count(), usize::from(h));
            prop_assert!(!drawn.chars().any(|c| c.is_control() && c != '\n'));
            prop_assert!(!plain || drawn.is_ascii());
        }
    }

    #[test]
    fn every_panel_draws_in_every_area(
        seed in 0usize..10_000,
        (w, h) in (0u16..=120, 0u16..=40),
        hostile: bool,
    ) {
        let a = app(if hostile { hostile_profile(seed) } else { large() }, 120, 40);
        let area = Rect::new(1, 1, w, h);
        let mut buf = Buffer::empty(Rect::new(0, 0, w + 2, h + 2));
        let outside = Buffer::empty(buf.area);
        for draw in [
            panels::timeline::render,
            panels::layers::render,
            panels::tree::render,
            panels::bricks::render,
            panels::path::render,
        ] {
            draw(&a, area, &mut buf);
        }
        for x in 0..w + 2 {
            for y in 0..h + 2 {
                let inside = area.contains((x, y).into());
                prop_assert!(inside || buf[(x, y)] == outside[(x, y)], "drew at {}, {}", x, y);
            }
        }
    }
}
