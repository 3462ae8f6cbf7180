//! The kv cache: a bar of its slots, bytes, evictions and hits, its history, and how smaller caches would have done.

use super::parts::{self, MARK};
use crate::tracer::figures::{KvCacheStateTrace, KvView};
use crate::tui::format::{bytes, count, percent};
use crate::tui::layout::top;
use crate::tui::panels::chrome;
use crate::tui::panels::table::{Cell, Column, lines};
use crate::tui::state::App;
use crate::tui::update::moved;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// From this size on the smaller caches stand beside the figures.
const BESIDE: (u16, u16) = (110, 12);
/// Columns of a fact: label, value, gap.
const FACT: (usize, usize, usize) = (13, 10, 3);

/// The glyphs of kept, live and free slots.
fn slots(app: &App) -> [(&'static str, Style); 3] {
    let theme = &app.theme;
    let (kept, live) = if theme.glyphs.ascii {
        ("K", "#")
    } else {
        ("▓", "█")
    };
    [
        (kept, theme.warn),
        (live, theme.accent),
        (theme.glyphs.track, theme.dim),
    ]
}

/// A slot count that is not larger than what the cache has.
fn kept(view: &KvView, step: &KvCacheStateTrace) -> u32 {
    view.keep.min(step.valid_positions)
}

/// Draws the view.
pub(super) fn render(app: &App, view: &KvView, body: Rect, buf: &mut Buffer) {
    let all = content(app, view, body);
    let first = app.views.model.kv_top.min(last_top(&all.main, body));
    let shown: Vec<Line<'_>> = all.main.into_iter().skip(first).collect();
    parts::put_all(&shown, body, buf);
    parts::put_all(&all.side, all.side_area, buf);
}

/// The lines of the view, and those beside them.
struct Content {
    main: Vec<Line<'static>>,
    side: Vec<Line<'static>>,
    side_area: Rect,
}

fn content(app: &App, view: &KvView, body: Rect) -> Content {
    let none = Rect { width: 0, ..body };
    let Some(last) = view.session.steps.last() else {
        return Content {
            main: super::tabs::waits(app, body.width.into()),
            side: Vec::new(),
            side_area: none,
        };
    };
    let width = usize::from(body.width);
    let mut main = vec![parts::sentence(
        app,
        sentence(view, last),
        app.theme.strong,
        width,
    )];
    main.extend(view.notes.iter().map(|n| {
        let text = format!("{MARK} {}", n.text);
        parts::line(app, &text, app.theme.bad, width)
    }));
    main.push(bar(app, view, last, width));
    let what_if = what_if(app, view, width.min(60));
    let is_beside = body.width >= BESIDE.0 && body.height >= BESIDE.1;
    let above = main.len();
    let room = if is_beside { width - 62 } else { width };
    main.extend(figures(app, view, last, room));
    let (side, side_area) = if is_beside {
        let (_, below) = top(body, above.min(body.height.into()) as u16);
        (what_if, parts::beside(below, body.width - 62).1)
    } else {
        main.extend(what_if);
        (Vec::new(), none)
    };
    let spare = usize::from(body.height).saturating_sub(main.len());
    main.extend(history(app, view, room, spare));
    Content {
        main,
        side,
        side_area,
    }
}

/// How full the cache is and what that cost.
fn sentence(view: &KvView, last: &KvCacheStateTrace) -> Vec<(u8, String)> {
    let share = f64::from(last.valid_positions) / f64::from(last.max_positions.max(1));
    let full = last.valid_positions >= last.max_positions;
    let then = match (view.session.total_evictions, full, view.overflow.as_str()) {
        (0, true, _) => "full".into(),
        (0, false, "ring") => "nothing was evicted yet".into(),
        (0, false, _) => "generation stops when it is full".into(),
        (n, ..) => format!("{} evicted", count(n)),
    };
    vec![
        (
            0,
            format!(
                "{} of {} positions held ({})",
                last.valid_positions,
                last.max_positions,
                percent(share)
            ),
        ),
        (1, then),
        (2, format!("oldest held: {}", last.oldest_position)),
    ]
}

/// The slots to scale.
fn bar(app: &App, view: &KvView, last: &KvCacheStateTrace, width: usize) -> Line<'static> {
    let all = f64::from(last.max_positions.max(1));
    let columns = |n: u32| ((f64::from(n) / all).min(1.0) * width as f64).round() as usize;
    let held = columns(last.valid_positions)
        .max(usize::from(last.valid_positions > 0))
        .min(width);
    let kept_columns = match kept(view, last) {
        0 => 0,
        n => columns(n).clamp(1, held.max(1)).min(held),
    };
    let [k, l, f] = slots(app);
    let part =
        |(glyph, style): (&'static str, Style), n: usize| Span::styled(glyph.repeat(n), style);
    Line::from(vec![
        part(k, kept_columns),
        part(l, held - kept_columns),
        part(f, width - held),
    ])
}

/// Figures with their labels, side by side where there is room.
fn figures(app: &App, view: &KvView, last: &KvCacheStateTrace, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let s = &view.session;
    let rate = |v: Option<f32>| v.map_or("-".into(), |v| percent(v.into()));
    let all = [
        ("held", bytes(last.cache_size_bytes)),
        ("peak", bytes(s.peak_memory_bytes)),
        ("allocated", bytes(view.allocated_bytes)),
        ("a position", bytes(view.bytes_per_position)),
        ("element type", view.kv_type.clone()),
        ("when full", view.overflow.clone()),
        ("evicted", count(s.total_evictions)),
        ("in this step", last.evictions_this_step.to_string()),
        ("hit rate", rate(last.cache_hit_rate)),
        ("mean hit rate", rate(s.avg_hit_rate)),
        ("fragmentation", percent(last.fragmentation.into())),
        ("steps full", count(s.window_exhaustions)),
    ];
    let (label, value, gap) = FACT;
    let columns = ((width + gap) / (label + value + gap)).clamp(1, 4);
    let rows = all.len().div_ceil(columns);
    let mut lines = Vec::new();
    for row in 0..rows {
        let mut spans = Vec::new();
        for (name, text) in all.iter().skip(row).step_by(rows) {
            if !spans.is_empty() {
                spans.push(Span::raw(" ".repeat(gap)));
            }
            let ellipsis = theme.glyphs.ellipsis;
            let text = parts::clean(app, text, value);
            spans.push(Span::styled(chrome::left(name, label, ellipsis), theme.dim));
            spans.push(Span::raw(chrome::right(&text, value, ellipsis)));
        }
        lines.push(Line::from(spans));
    }
    lines
}

/// The newest steps: positions held, evictions, hits, as high as there is room.
fn history(app: &App, view: &KvView, width: usize, rows: usize) -> Vec<Line<'static>> {
    let steps = &view.session.steps;
    let most = |f: Figure| steps.iter().map(f).fold(0.0, f64::max);
    let held: Figure = |s| s.valid_positions.into();
    let evicted: Figure = |s| s.evictions_this_step.into();
    let hits: Figure = |s| s.cache_hit_rate.map_or(f64::NAN, f64::from);
    let slots = steps
        .last()
        .map_or(1.0, |s| f64::from(s.max_positions.max(1)));
    let mut all = vec![("held", held, slots, format!("of {slots}"))];
    let evictions = most(evicted);
    if evictions > 0.0 {
        all.push(("evicted", evicted, evictions, format!("of {evictions}")));
    }
    if steps.iter().any(|s| s.cache_hit_rate.is_some()) {
        all.push(("hit rate", hits, 1.0, "of 100%".into()));
    }
    let room = width.saturating_sub(FACT.0 + 1 + 10);
    let newest = steps
        .get(steps.len().saturating_sub(room)..)
        .unwrap_or_default();
    // A row between them where they are several rows high.
    let height = (rows / all.len()).saturating_sub(1).clamp(1, 8);
    let mut lines = Vec::new();
    for (name, value, high, end) in all {
        if height > 1 {
            lines.push(Line::default());
        }
        let values: Vec<f64> = newest.iter().map(|s| value(s) / high).collect();
        lines.extend(columns_of(app, name, &values, &end, height));
    }
    lines
}

/// A figure of a step.
type Figure = fn(&KvCacheStateTrace) -> f64;

/// Columns of `height` rows, the newest step on the right: 1 is a full one.
fn columns_of(
    app: &App,
    name: &str,
    values: &[f64],
    end: &str,
    height: usize,
) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let ramp = theme.glyphs.ramp;
    let levels = ramp.len().saturating_sub(1);
    let filled = |v: &f64| {
        if !v.is_finite() {
            return 0;
        }
        let all = (v.clamp(0.0, 1.0) * (levels * height) as f64).round() as usize;
        // The lowest height stands for little, nothing for none.
        all.max(usize::from(*v > 0.0))
    };
    let filled: Vec<usize> = values.iter().map(filled).collect();
    (0..height)
        .rev()
        .map(|row| {
            let glyph = |n: &usize| {
                let level = n.saturating_sub(row * levels).min(levels);
                ramp.get(level).copied().unwrap_or(" ")
            };
            let text: String = filled.iter().map(glyph).collect();
            let is_top = row + 1 == height;
            let label = if row == 0 { name } else { "" };
            let end = if is_top { end } else { "" };
            Line::from(vec![
                Span::styled(chrome::left(label, FACT.0, ""), theme.dim),
                Span::styled(text, theme.category[1]),
                Span::styled(format!(" {end}"), theme.dim),
            ])
        })
        .collect()
}

/// How smaller caches would have done.
fn what_if(app: &App, view: &KvView, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    if view.what_if.is_empty() {
        let text = "smaller caches: nothing was read yet";
        return vec![parts::line(app, text, theme.dim, width)];
    }
    let by = if view.by_weight {
        "reads: positions with weight"
    } else {
        "reads: all visible positions"
    };
    let columns = [
        Column::number("slots", 8, 0),
        Column::number("bytes", 11, 1),
        Column::number("ring hits", 9, 0),
        Column::number("LRU hits", 9, 0),
        Column::text("better", 6, 2),
    ];
    let rows = view
        .what_if
        .iter()
        .map(|w| -> Vec<Cell> {
            let size = u64::from(w.slots).saturating_mul(view.bytes_per_position);
            let better = match w.lru_hit_rate - w.ring_hit_rate {
                d if d >= 0.0005 => "LRU",
                d if d <= -0.0005 => "ring",
                _ => "same",
            };
            vec![
                (w.slots.to_string(), theme.strong),
                (bytes(size), theme.dim),
                (percent(w.ring_hit_rate.into()), Style::new()),
                (percent(w.lru_hit_rate.into()), Style::new()),
                (better.into(), theme.dim),
            ]
        })
        .collect();
    let title = format!("had the cache been smaller ({by})");
    let mut all = vec![parts::line(app, &title, theme.dim, width)];
    all.extend(lines(app, &columns, rows, width));
    all
}

fn last_top(lines: &[Line<'_>], body: Rect) -> usize {
    lines.len().saturating_sub(body.height.into())
}

/// What the bar's parts are.
pub(super) fn legend(app: &App, view: &KvView, inner: Rect, columns: usize) -> Line<'static> {
    let theme = &app.theme;
    let (mut spans, last) = (Vec::new(), view.session.steps.last());
    let Some(last) = last else {
        return Line::default();
    };
    let kept = kept(view, last);
    let counts = [
        ("kept", kept),
        ("live", last.valid_positions.saturating_sub(kept)),
        (
            "free",
            last.max_positions.saturating_sub(last.valid_positions),
        ),
    ];
    for ((glyph, style), (name, n)) in slots(app).into_iter().zip(counts) {
        if !spans.is_empty() {
            spans.push(Span::styled(", ", theme.dim));
        }
        spans.push(Span::styled(glyph, style));
        spans.push(Span::styled(format!(" {name} {n}"), theme.dim));
    }
    let (_, body) = super::areas(inner);
    let lines = content(app, view, body).main;
    let first = app.views.model.kv_top.min(last_top(&lines, body));
    let position = chrome::position(app, first, body.height.into(), lines.len());
    parts::legend(
        app,
        vec![
            (0, spans),
            (1, position),
            (2, parts::dim(app, "LRU: evicts what was read longest ago")),
            (3, parts::dim(app, "newest step on the right")),
        ],
        columns,
    )
}

/// Scrolls by so many lines.
pub(super) fn scroll(app: &mut App, body: Rect, by: i64) {
    let super::Shown::Kv(view) = super::Shown::new(app) else {
        return;
    };
    let last = last_top(&content(app, view, body).main, body);
    app.views.model.kv_top = moved(app.views.model.kv_top.min(last), by, last + 1);
}
