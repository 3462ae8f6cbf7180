//! Roofline, counters, latency and cbtop itself at every size; themes; keys bound anew.

use super::*;
use crate::session::snapshot::{LatencyBucket, Roofline};
use crate::tui::config::Config;
use crate::tui::fixture::{counted, own};
use crate::tui::theme::{Depth, Theme, ThemeName};
use ratatui::buffer::Buffer;

const FIGURES: [Panel; 4] = [
    Panel::Roofline,
    Panel::Counters,
    Panel::Latency,
    Panel::Debug,
];

fn zoomed(snapshot: Snapshot, panel: Panel, w: u16, h: u16) -> App {
    let mut a = app(snapshot, w, h);
    a.focus = panel;
    a.zoomed = true;
    a.own = own();
    a
}

#[test]
fn each_panel_at_each_size() {
    for panel in FIGURES {
        for (w, h) in [(120, 40), (80, 24), (40, 12)] {
            let name = format!("{}-{w}x{h}", panel.name());
            looks_like(&name, &screen(&zoomed(decode(120), panel, w, h)));
        }
    }
    let counted = zoomed(counted(), Panel::Counters, 120, 40);
    looks_like("counters-hardware", &screen(&counted));
    looks_like(
        "300x100",
        &text::render(&decode(120), 300, 100, &Options::default()),
    );
}

#[test]
fn a_focused_panel_finds_its_place() {
    for (w, h) in [(120, 40), (80, 24)] {
        for panel in FIGURES {
            let mut a = app(decode(120), w, h);
            a.focus = panel;
            let name = format!("{}-beside-{w}x{h}", panel.name());
            looks_like(&name, &screen(&a));
        }
    }
}

#[test]
fn the_figures_are_drawn_in_ascii_too() {
    let options = Options {
        ascii: true,
        ..Options::default()
    };
    for panel in FIGURES {
        let mut a = options.app(Arc::new(decode(120)), Rect::new(0, 0, 100, 30));
        (a.focus, a.zoomed, a.own) = (panel, true, own());
        let drawn = screen(&a);
        assert!(drawn.is_ascii(), "{drawn}");
        looks_like(&format!("{}-ascii", panel.name()), &drawn);
    }
}

#[test]
fn the_roofline_has_a_cursor_and_takes_clicks() {
    let mut a = zoomed(decode(120), Panel::Roofline, 120, 40);
    press(&mut a, "jj");
    assert_eq!(a.roof_cursor, 2);
    assert!(screen(&a).contains("UpProj: 47.4 of 57.9 GFLOP/s = 81.8% of its roof"));
    press(&mut a, "G");
    assert_eq!(a.roof_cursor, 7);
    let drawn = screen(&a);
    let (y, line) = drawn
        .lines()
        .enumerate()
        .find(|(_, l)| l.contains("b DownProj"))
        .expect("in the list");
    let x = line
        .split("b DownProj")
        .next()
        .unwrap_or("")
        .chars()
        .count();
    click(&mut a, x as u16 + 3, y as u16);
    assert_eq!(a.roof_cursor, 1);
    // The letter of the last point stands alone in the plot.
    let (x, y) = drawn
        .lines()
        .enumerate()
        .skip(8)
        .find_map(|(y, l)| {
            let x = l.chars().take(60).position(|c| c == 'h')?;
            Some((x, y))
        })
        .expect("in the plot");
    click(&mut a, x as u16, y as u16);
    assert_eq!(a.roof_cursor, 7);
}

#[test]
fn sheets_scroll_to_their_end() {
    for panel in [Panel::Counters, Panel::Debug] {
        let mut a = zoomed(counted(), panel, 60, 15);
        let first = screen(&a);
        press(&mut a, "G");
        let last = screen(&a);
        assert_ne!(first, last, "{panel:?}");
        press(&mut a, "g");
        assert_eq!(screen(&a), first);
    }
}

#[test]
fn what_is_missing_is_said() {
    let mut s = decode(3);
    s.counters = None;
    let mut engine = (*s.engine).clone();
    engine.clock = "modelled".into();
    s.engine = Arc::new(engine);
    let drawn = screen(&zoomed(s, Panel::Counters, 80, 24));
    assert!(
        drawn.contains("with modelled time the machine has no say"),
        "{drawn}"
    );
    for panel in FIGURES {
        let mut a = zoomed(starting(), panel, 80, 24);
        a.own = Vec::new();
        let drawn = screen(&a);
        let says = ["waits for", "nothing has been counted", "not watched here"];
        assert!(says.iter().any(|s| drawn.contains(s)), "{drawn}");
    }
}

#[test]
fn themes_change_colours_and_nothing_else() {
    let mut a = app(decode(120), 120, 40);
    let drawn = screen(&a);
    let mut seen: Vec<Theme> = Vec::new();
    for expected in ["light", "colour-blind", "none", "dark"] {
        press(&mut a, "T");
        assert!(screen(&a).contains(&format!("theme: {expected}")));
        a.notice = None;
        assert_eq!(screen(&a), drawn);
        assert!(!seen.contains(&a.theme));
        seen.push(a.theme.clone());
    }
    assert_eq!(a.theme.name, ThemeName::Dark);
}

#[test]
fn without_colour_there_is_none_and_backgrounds_are_the_terminals() {
    for name in ThemeName::ALL {
        for panel in Panel::ALL {
            let mut a = zoomed(decode(120), panel, 120, 40);
            a.theme = Theme::named(name, Depth::True, false);
            let area = a.area;
            let mut terminal =
                ratatui::Terminal::new(ratatui::backend::TestBackend::new(area.width, area.height))
                    .expect("a terminal");
            terminal
                .draw(|f| crate::tui::view::view(&a, f))
                .expect("drawn");
            let buffer: &Buffer = terminal.backend().buffer();
            for cell in &buffer.content {
                assert_eq!(cell.bg, ratatui::style::Color::Reset);
                let plain = cell.fg == ratatui::style::Color::Reset;
                assert!(plain || name != ThemeName::None, "{panel:?}");
            }
        }
    }
}

#[test]
fn keys_bound_anew_stand_in_help_footer_and_titles() {
    let text =
        "[keys]\npause = \"F9\"\nfocus-bricks = \"Ctrl-b\"\npage-up = \"PgUp\"\nfocus-layers = []";
    let config = Config::parse(text.as_bytes()).expect("good");
    let options = config.apply(&Options::default(), false);
    let mut a = options.app(Arc::new(decode(120)), Rect::new(0, 0, 160, 40));
    let drawn = screen(&a);
    assert!(drawn.contains(" F9 pause "), "{drawn}");
    assert!(drawn.contains("Ctrl-B bricks"), "{drawn}");
    let tabs = panels::header::tabs(&a, a.layout().header);
    assert_eq!(tabs.len(), Panel::ALL.len());
    press(&mut a, "?");
    assert!(screen(&a).contains("F9                pause, or go on"));
}

#[test]
fn tabs_fit_every_width_and_can_be_clicked() {
    for w in [60, 80, 100, 119, 120, 140, 200, 300] {
        for focus in Panel::ALL {
            let mut a = app(decode(120), w, 40);
            a.focus = focus;
            let header = a.layout().header;
            let tabs = panels::header::tabs(&a, header);
            assert_eq!(tabs.len(), Panel::ALL.len(), "at {w}");
            let line: String = screen(&a)
                .lines()
                .nth(usize::from(header.bottom()) - 1)
                .unwrap_or_default()
                .into();
            for (panel, tab) in tabs {
                let text: String = line
                    .chars()
                    .skip(tab.x.into())
                    .take(tab.width.into())
                    .collect();
                assert!(text.contains(panel.key()), "{text:?} at {w}");
                a.focus = focus;
                click(&mut a, tab.x + 1, tab.y);
                assert_eq!(a.focus, panel);
            }
        }
    }
}

fn odd() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => 1e-3f64..1e5,
        1 => proptest::sample::select(vec![
            f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0, 1e300, 1e-300, 5e-324,
        ]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn figures_are_drawn_whatever_they_are(
        which in 0usize..4, w in 10u16..310, h in 3u16..105, zoom: bool, ascii: bool, hostile_one: bool,
        numbers in proptest::collection::vec(odd(), 24), buckets in proptest::collection::vec((odd(), odd(), any::<u64>()), 0..40),
        cursor in any::<usize>(), no_peaks: bool,
    ) {
        let mut s = if hostile_one { hostile() } else { counted() };
        let mut n = numbers.into_iter().cycle();
        let mut next = || n.next().unwrap_or(0.0);
        for p in &mut s.roofline.peaks {
            p.value = next();
        }
        for p in &mut s.roofline.points {
            (p.intensity, p.gflops, p.roof_gflops) = (next(), next(), next());
        }
        if no_peaks {
            s.roofline = Roofline { peaks: Vec::new(), ..s.roofline };
        }
        s.latency.buckets = buckets
            .into_iter()
            .map(|(from_us, to_us, count)| LatencyBucket { from_us, to_us, count })
            .collect();
        (s.latency.p50_us, s.latency.p90_us, s.latency.p99_us) = (Some(next()), None, Some(next()));
        let options = Options { ascii, ..Options::default() };
        let mut a = options.app(Arc::new(s), Rect::new(0, 0, w, h));
        (a.focus, a.zoomed, a.own) = (FIGURES[which], zoom, own());
        for t in &mut a.own {
            (t.max_us, t.total_us, t.polls) = (Some(next()), next(), u64::MAX);
        }
        (a.roof_cursor, a.counters_top, a.debug_top) = (cursor, cursor, cursor);
        let drawn = screen(&a);
        prop_assert!(!drawn.chars().any(|c| c.is_control() && c != '\n'));
        prop_assert!(!ascii || drawn.is_ascii());
        press(&mut a, "jkGg");
        click(&mut a, w / 2, h / 2);
        screen(&a);
    }
}
