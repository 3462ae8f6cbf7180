//! What the views share: figures as text, lines, areas side by side.

use crate::tracer::figures::{TracerFrame, TracerKind};
use crate::tui::format::number;
use crate::tui::panels::chrome;
use crate::tui::state::App;
use crate::tui::text::{fit, sanitise, wrap};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Columns between areas side by side.
const GAP: u16 = 2;

/// What the tracers found.
pub(super) fn frame(app: &App) -> Option<&TracerFrame> {
    app.snapshot().tracer.as_deref()
}

/// Whether a tracer is on.
pub(super) fn is_on(app: &App, kind: TracerKind) -> bool {
    frame(app).is_some_and(|f| f.on.has(kind))
}

/// A figure of any size in at most eight columns; `-` where there is none.
pub(super) fn figure(v: f64) -> String {
    match v.abs() {
        a if !a.is_finite() => "-".into(),
        0.0 => "0".into(),
        a if a < 9.995e-4 => format!("{v:.1e}"),
        a if a < 9.9995 => number(v, 3),
        a if a < 99.995 => number(v, 2),
        a if a < 999.95 => number(v, 1),
        a if a < 99_999.5 => number(v, 0),
        _ => format!("{v:.1e}"),
    }
}

/// A share of 0 to 1 in percent without decimals.
pub(super) fn share(v: f64) -> String {
    if v.is_finite() {
        format!("{}%", number(v * 100.0, 0))
    } else {
        "-".into()
    }
}

/// Where `v` lies between `low` and `high` on a logarithmic scale, 0 to 1; the middle where all are the same.
pub(super) fn log_place(v: f64, (low, high): (f64, f64)) -> f64 {
    let t = (v / low).ln() / (high / low).ln();
    if t.is_finite() {
        t.clamp(0.0, 1.0)
    } else if v > 0.0 && low > 0.0 {
        0.5
    } else {
        0.0
    }
}

/// The smallest and the largest of what is finite and positive; both 0 where nothing is.
pub(super) fn ends(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let known = values.filter(|v| v.is_finite() && *v > 0.0);
    let high = known.clone().fold(0.0, f64::max);
    (known.fold(high, f64::min), high)
}

/// Text from outside in at most `columns`.
pub(super) fn clean(app: &App, text: &str, columns: usize) -> String {
    let g = &app.theme.glyphs;
    fit(&sanitise(text, g.ascii), columns, g.ellipsis)
}

/// One styled line, cut to `columns`.
pub(super) fn line(app: &App, text: &str, style: Style, columns: usize) -> Line<'static> {
    Line::styled(clean(app, text, columns), style)
}

/// As many lines as `text` takes in `columns`.
pub(super) fn wrapped(app: &App, text: &str, style: Style, columns: usize) -> Vec<Line<'static>> {
    let text = sanitise(text, app.theme.glyphs.ascii);
    let part = |range: std::ops::Range<usize>| text.get(range).unwrap_or_default().to_string();
    let lines = wrap(&text, columns).into_iter();
    lines.map(|r| Line::styled(part(r), style)).collect()
}

/// Draws lines below each other, as many as fit.
pub(super) fn put_all(lines: &[Line<'_>], area: Rect, buf: &mut Buffer) {
    for (i, line) in lines.iter().take(area.height.into()).enumerate() {
        chrome::put(line, chrome::row(area, i), buf);
    }
}

/// What stands between facts in a line.
pub(super) fn gap(app: &App) -> Span<'static> {
    Span::styled(format!(" {} ", app.theme.glyphs.dot), app.theme.dim)
}

/// The first `columns` of an area, and what is left behind a gap.
pub(super) fn beside(area: Rect, columns: u16) -> (Rect, Rect) {
    let left = columns.min(area.width);
    let x = (area.x + left + GAP).min(area.right());
    (
        Rect {
            width: left,
            ..area
        },
        Rect {
            x,
            width: area.right() - x,
            ..area
        },
    )
}

/// The cursor's mark in the first column of a row.
pub(super) fn pointer(app: &App, here: bool) -> &'static str {
    if here { app.theme.glyphs.pointer } else { " " }
}

/// A warning's mark.
pub(super) const MARK: &str = "!";

/// Joins facts, the least important left out first: rank and text.
pub(super) fn facts(app: &App, facts: Vec<(u8, String)>, columns: usize) -> Line<'static> {
    let parts = facts
        .into_iter()
        .map(|(rank, text)| {
            let text = sanitise(&text, app.theme.glyphs.ascii);
            chrome::Part::new(rank, vec![Span::raw(text)])
        })
        .collect();
    chrome::join(parts, &gap(app), columns)
}

/// As [`facts`], the first of them cut where it alone is too long, all in one style.
pub(super) fn sentence(
    app: &App,
    mut all: Vec<(u8, String)>,
    style: Style,
    columns: usize,
) -> Line<'static> {
    if let Some((_, first)) = all.first_mut() {
        *first = clean(app, first, columns);
    }
    let mut line = facts(app, all, columns);
    for span in &mut line.spans {
        span.style = style;
    }
    line
}

/// The glyphs of the heat ramp between what its ends stand for.
pub(super) fn ramp(app: &App, low: &str, high: &str) -> Vec<Span<'static>> {
    let theme = &app.theme;
    let steps = theme.glyphs.ramp.len().saturating_sub(1).max(1);
    let mut spans = vec![Span::styled(low.to_string(), theme.dim)];
    spans.extend((0..steps).map(|i| {
        let (glyph, style) = theme.heat((i as f64 + 0.5) / steps as f64);
        Span::styled(glyph, style)
    }));
    spans.push(Span::styled(high.to_string(), theme.dim));
    spans
}

/// A legend of parts in the bottom line of the frame.
pub(super) fn legend(
    app: &App,
    parts: Vec<(u8, Vec<Span<'static>>)>,
    columns: usize,
) -> Line<'static> {
    let parts = parts.into_iter().map(|(r, s)| chrome::Part::new(r, s));
    let mut line = chrome::join(parts.collect(), &gap(app), columns.saturating_sub(2));
    line.spans.insert(0, Span::raw(" "));
    line.spans.push(Span::raw(" "));
    line
}

/// A dim piece of a legend.
pub(super) fn dim(app: &App, text: &str) -> Vec<Span<'static>> {
    vec![Span::styled(text.to_string(), app.theme.dim)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_take_eight_columns_at_most() {
        for (v, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (0.000_32, "3.2e-4"),
            (0.001_2, "0.001"),
            (-9.999, "-9.999"),
            (9.999_6, "10.00"),
            (312.04, "312.0"),
            (99_999.4, "99999"),
            (1e7, "1.0e7"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(figure(v), text);
        }
        assert!(figure(-f64::MIN_POSITIVE).len() <= 9);
    }

    #[test]
    fn places_on_a_log_scale() {
        assert_eq!(log_place(10.0, (1.0, 100.0)), 0.5);
        assert_eq!(log_place(1e9, (1.0, 100.0)), 1.0);
        assert_eq!(log_place(3.0, (3.0, 3.0)), 0.5);
        assert_eq!(log_place(f64::NAN, (1.0, 2.0)), 0.0);
        assert_eq!(log_place(0.0, (0.0, 0.0)), 0.0);
        assert_eq!(ends([f64::NAN, 4.0, 0.0, 2.0].into_iter()), (2.0, 4.0));
        assert_eq!(ends([f64::NAN].into_iter()), (0.0, 0.0));
    }
}
