//! Roofs of the machine and the bricks under them, log-log (Williams, Waterman and Patterson 2009).

mod plot;

use super::chrome;
use super::table::{self, Column};
use crate::session::snapshot::{Peak, PeakKind, RoofPoint, Roofline};
use crate::tui::format::{number, percent};
use crate::tui::layout::top;
use crate::tui::state::{App, Panel};
use crate::tui::text::{self, sanitise, wrap};
use crate::tui::update::moved;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Width of the list with all columns, and with the main ones.
const LIST: u16 = 48;
const SHORT_LIST: u16 = 31;
/// Least size of a plot that says something.
const PLOT: (u16, u16) = (30, 7);

/// Where the parts are inside the frame.
struct Parts {
    reading: Rect,
    plot: Option<Rect>,
    list: Rect,
}

fn parts(app: &App, area: Rect) -> Parts {
    let inner = chrome::inner(area);
    let points = app.snapshot().roofline.points.len() as u16;
    let lines = match inner.height {
        0..4 => inner.height.min(1),
        4..12 => 1,
        _ => 2,
    };
    let lines = if inner.width < 60 && inner.height >= 8 {
        lines + 1
    } else {
        lines
    };
    let (reading, rest) = top(inner, lines);
    let list = match inner.width {
        w if w >= PLOT.0 * 2 + LIST => LIST,
        w if w >= PLOT.0 + SHORT_LIST + 4 => SHORT_LIST,
        _ => 0,
    };
    if list > 0 && rest.height >= PLOT.1 {
        let plot = Rect {
            width: rest.width - list - 2,
            ..rest
        };
        let list = Rect {
            x: plot.right() + 2,
            width: list,
            ..rest
        };
        return Parts {
            reading,
            plot: Some(plot),
            list,
        };
    }
    // Below each other: the list needs its title and some rows.
    let rows = (points + 1).clamp(4, 12).min(rest.height / 2);
    if rest.width >= PLOT.0 && rest.height >= PLOT.1 + 4 && rest.height - rows >= PLOT.1 {
        let (plot, list) = top(rest, rest.height - rows);
        return Parts {
            reading,
            plot: Some(plot),
            list,
        };
    }
    Parts {
        reading,
        plot: None,
        list: rest,
    }
}

/// The letter of a point; after `z` come capitals, then `*`.
fn letter(index: usize) -> char {
    ('a'..='z').chain('A'..='Z').nth(index).unwrap_or('*')
}

fn cursor(app: &App) -> usize {
    let len = app.snapshot().roofline.points.len();
    app.roof_cursor.min(len.saturating_sub(1))
}

/// Draws the panel.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let roofline = &app.snapshot().roofline;
    let parts = parts(app, area);
    let bottom = if parts.plot.is_some() {
        legend(app, usize::from(area.width).saturating_sub(4))
    } else {
        Line::default()
    };
    let heading = Line::styled(" decode, GFLOP/s over FLOP/byte ", theme.dim);
    chrome::panel(app, Panel::Roofline, area, buf, heading, bottom);
    if roofline.points.is_empty() && roofline.peaks.is_empty() {
        let what = "waits for the first decode steps; no roofs measured";
        return chrome::put(&Line::styled(what, theme.dim), parts.reading, buf);
    }
    reading(app, roofline, parts.reading, buf);
    if let Some(place) = parts.plot {
        plot::render(app, roofline, cursor(app), place, buf);
    }
    list(app, roofline, &parts, buf);
}

/// What the lines and letters of the plot stand for.
fn legend(app: &App, room: usize) -> Line<'static> {
    let theme = &app.theme;
    let [used, other] = if theme.glyphs.ascii {
        ["**", ".."]
    } else {
        ["⠤⠤", "⠄⠄"]
    };
    let part = |rank, mark: &'static str, style, text: &'static str| {
        let mark = Span::styled(mark, style);
        chrome::Part::new(rank, vec![mark, Span::styled(text, theme.dim)])
    };
    let parts = vec![
        part(0, used, theme.accent, " in use"),
        part(1, other, theme.dim, " other roofs"),
        part(2, "a b c", theme.strong, " bricks"),
        part(3, "+", theme.dim, " more in the same place"),
    ];
    let line = chrome::join(parts, &Span::raw("  "), room.saturating_sub(2));
    let mut spans = vec![Span::raw(" ")];
    spans.extend(line.spans);
    spans.push(Span::raw(" "));
    Line::from(spans)
}

/// What the plot says, then what the point under the cursor says.
fn reading(app: &App, roofline: &Roofline, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let ascii = theme.glyphs.ascii;
    let focused = app.focus == Panel::Roofline;
    let says = sanitise(&roofline.reading, ascii);
    let point = roofline.points.get(cursor(app)).map(|p| sentence(p, ascii));
    let mut texts = vec![
        (says, theme.strong),
        (point.unwrap_or_default(), Style::new()),
    ];
    if focused && app.roof_cursor > 0 && area.height < 3 {
        texts.swap(0, 1);
    }
    let mut lines: Vec<(String, Style)> = Vec::new();
    for (text, style) in texts.into_iter().filter(|(t, _)| !t.is_empty()) {
        let ranges = wrap(&text, area.width.into());
        let parts = ranges.into_iter().filter_map(|r| text.get(r));
        lines.extend(parts.map(|part| (part.to_string(), style)));
    }
    let rows = usize::from(area.height);
    if let Some((next, _)) = lines.get(rows).cloned()
        && let Some((last, _)) = lines.get_mut(rows.saturating_sub(1))
    {
        let whole = format!("{} {next}", last.trim_end());
        *last = text::fit(&whole, area.width.into(), theme.glyphs.ellipsis);
    }
    for (i, (part, style)) in lines.into_iter().take(rows).enumerate() {
        chrome::put(&Line::styled(part, style), chrome::row(area, i), buf);
    }
}

/// What one point says.
fn sentence(p: &RoofPoint, ascii: bool) -> String {
    format!(
        "{}: {} of {} GFLOP/s = {} of its roof, {} FLOP/B, {} GB/s: {}",
        p.id.name(),
        number(p.gflops, 1),
        number(p.roof_gflops, 1),
        percent(p.of_roof),
        number(p.intensity, 2),
        number(p.gbps, 1),
        bound(&p.bound, ascii)
    )
}

fn bound(bound: &str, ascii: bool) -> String {
    match bound {
        "memory" => "bound by memory, fewer bytes help".into(),
        "compute" => "not by memory: its kernel can be faster".into(),
        "cache" => "served by the caches".into(),
        "overhead" => "far below both roofs, overhead".into(),
        other => sanitise(other, ascii),
    }
}

/// Value of a roof, and its unit with what it holds for.
fn peak_text(p: &Peak, ascii: bool) -> (String, String) {
    let threads = p.threads;
    let isa = text::fit(&sanitise(&p.isa, ascii), 12, "");
    match p.kind {
        PeakKind::Memory => (number(p.value, 1), format!("GB/s memory {threads}T")),
        PeakKind::Fp32 => (number(p.value, 0), format!("GFLOP/s fp32 {isa} {threads}T")),
        PeakKind::Int8 => (number(p.value, 0), format!("Gop/s int8 {isa} {threads}T")),
    }
}

/// The label of a roof: `310 Gop/s int8 avx2 2T`.
fn peak_label(p: &Peak, ascii: bool) -> String {
    let (value, what) = peak_text(p, ascii);
    format!("{value} {what}")
}

fn columns() -> Vec<Column> {
    vec![
        Column::text("", 1, 0),
        Column::text("brick", 12, 0),
        Column::number("FLOP/B", 6, 4),
        Column::number("GFLOP/s", 7, 3),
        Column::number("of roof", 7, 1),
        Column::text("limit", 8, 2),
    ]
}

fn list(app: &App, roofline: &Roofline, parts: &Parts, buf: &mut Buffer) {
    let theme = &app.theme;
    let area = parts.list;
    let rows = roofline
        .points
        .iter()
        .enumerate()
        .map(|(i, p)| {
            let plain = Style::new();
            let style = match p.bound.as_str() {
                "memory" => theme.warn,
                "compute" | "cache" => theme.good,
                _ => theme.dim,
            };
            vec![
                (letter(i).to_string(), theme.accent),
                (p.id.name().to_string(), theme.category(p.id.category())),
                (number(p.intensity, 2), plain),
                (number(p.gflops, 1), plain),
                (percent(p.of_roof), theme.strong),
                (sanitise(&p.bound, theme.glyphs.ascii), style),
            ]
        })
        .collect();
    let lines = table::lines(app, &columns(), rows, area.width.into());
    let (first, visible) = window(app, area);
    if let Some(title) = lines.first() {
        chrome::put(title, chrome::row(area, 0), buf);
    }
    let shown = lines.iter().skip(1 + first).take(visible);
    for (i, line) in shown.enumerate() {
        let place = chrome::row(area, i + 1);
        chrome::put(line, place, buf);
        if app.focus == Panel::Roofline && first + i == cursor(app) {
            let width = place.width.min(14);
            buf.set_style(Rect { width, ..place }, theme.selected);
        }
    }
    peaks(
        app,
        roofline,
        area,
        1 + visible.min(roofline.points.len()),
        buf,
    );
}

/// All roofs below the list, where there is room.
fn peaks(app: &App, roofline: &Roofline, area: Rect, from: usize, buf: &mut Buffer) {
    let theme = &app.theme;
    let room = usize::from(area.height).saturating_sub(from + 2);
    if room == 0 || roofline.peaks.is_empty() {
        return;
    }
    let title = Line::styled("roofs measured (T: threads)", theme.dim);
    chrome::put(&title, chrome::row(area, from + 1), buf);
    let mut peaks: Vec<&Peak> = roofline.peaks.iter().collect();
    if peaks.len() > room {
        peaks.retain(|p| p.in_use);
    }
    for (i, p) in peaks.into_iter().take(room).enumerate() {
        let (value, what) = peak_text(p, theme.glyphs.ascii);
        // Tenths stand behind the others' last digit.
        let value = if p.kind == PeakKind::Memory {
            value
        } else {
            format!("{value}  ")
        };
        let label = format!("{} {what}", chrome::right(&value, 6, ""));
        let (mark, style) = if p.in_use {
            (theme.glyphs.pointer, theme.strong)
        } else {
            (" ", theme.dim)
        };
        let line = Line::from(vec![
            Span::styled(format!("{mark} "), theme.accent),
            Span::styled(label, style),
        ]);
        chrome::put(&line, chrome::row(area, from + 2 + i), buf);
    }
}

/// First row of the list and number of rows.
fn window(app: &App, list: Rect) -> (usize, usize) {
    let rows = usize::from(list.height.saturating_sub(1));
    (chrome::scroll_to(cursor(app), rows), rows)
}

/// Moves the cursor by so many rows.
pub fn move_cursor(app: &mut App, by: i64) {
    let len = app.snapshot().roofline.points.len();
    app.roof_cursor = moved(cursor(app), by, len);
}

/// A click on a row of the list or on a letter of the plot.
pub fn click(app: &mut App, area: Rect, at: Position) {
    let parts = parts(app, area);
    let (first, rows) = window(app, parts.list);
    let roofline = &app.snapshot().roofline;
    let hit = if parts.list.contains(at) {
        usize::from(at.y - parts.list.y)
            .checked_sub(1)
            .filter(|i| *i < rows)
            .map(|i| first + i)
            .filter(|i| *i < roofline.points.len())
    } else {
        parts
            .plot
            .and_then(|place| plot::point_at(roofline, place, at))
    };
    if let Some(i) = hit {
        app.roof_cursor = i;
    }
}
