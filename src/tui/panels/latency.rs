//! Times of tokens: histogram and percentiles.

mod histogram;

use super::chrome::{self, Part};
use crate::session::snapshot::Latency;
use crate::tui::format::{Scale, count, number};
use crate::tui::state::{App, Panel};
use crate::tui::text::{sanitise, wrap};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Draws the panel.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let latency = &app.snapshot().latency;
    let heading = Line::styled(format!(" {} tokens ", count(latency.count)), theme.dim);
    let room = usize::from(area.width).saturating_sub(4);
    let bottom = if latency.count > 0 && area.height > 6 {
        legend(app, room)
    } else {
        Line::default()
    };
    let inner = chrome::panel(app, Panel::Latency, area, buf, heading, bottom);
    if latency.count == 0 {
        let what = "waits for the first decoded tokens";
        return chrome::put(&Line::styled(what, theme.dim), inner, buf);
    }
    let mut line = 0;
    let most = match inner.height {
        0..6 => 1,
        6..12 => 2,
        _ => 4,
    };
    for (text, style) in [
        (reading(app, latency), theme.strong),
        (last_slow(app), Style::new()),
    ] {
        for range in wrap(&text, inner.width.into()) {
            let part = text.get(range).unwrap_or_default().to_string();
            if line < most && !part.is_empty() {
                chrome::put(&Line::styled(part, style), chrome::row(inner, line), buf);
                line += 1;
            }
        }
    }
    let rows = usize::from(inner.height).saturating_sub(line);
    let facts = facts(app, latency, inner.width.into());
    // The chart needs five rows; the figures come first.
    let shown = facts.len().min(if rows > facts.len() + 5 {
        facts.len()
    } else {
        rows.saturating_sub(5).clamp(1, 2)
    });
    for fact in facts.iter().take(shown.min(rows)) {
        chrome::put(fact, chrome::row(inner, line), buf);
        line += 1;
    }
    let line = line.min(inner.height.into()) as u16;
    let chart = Rect {
        y: inner.y + line,
        height: inner.height - line,
        ..inner
    };
    histogram::render(app, latency, scale(latency, theme.glyphs.micro), chart, buf);
}

/// `p99 is 1.3x the median: 2 of the last 120 tokens were slow.`
fn reading(app: &App, latency: &Latency) -> String {
    let tokens = &app.snapshot().token_times;
    let slow = tokens.iter().filter(|t| t.slow).count();
    let slow = match (slow, tokens.len()) {
        (_, 0) => String::new(),
        (0, n) => format!("none of the last {n} tokens was slow"),
        (1, n) => format!("1 of the last {n} tokens was slow"),
        (slow, n) => format!("{slow} of the last {n} tokens were slow"),
    };
    let ratio = latency
        .p99_us
        .zip(latency.p50_us)
        .map(|(p99, p50)| p99 / p50)
        .filter(|r| r.is_finite());
    let tail = match ratio {
        Some(r) => format!(
            "p99 is {}{} the median",
            number(r, 2),
            app.theme.glyphs.times
        ),
        None => "too few tokens for percentiles".into(),
    };
    match slow.as_str() {
        "" => format!("{tail}."),
        slow => format!("{tail}: {slow}."),
    }
}

/// What made the newest slow token slow.
fn last_slow(app: &App) -> String {
    match app.snapshot().anomalies.last() {
        Some(a) => format!(
            "last slow, token {}: {}",
            a.position,
            sanitise(&a.says, app.theme.glyphs.ascii)
        ),
        None => String::new(),
    }
}

/// What the shades of the bars stand for.
fn legend(app: &App, room: usize) -> Line<'static> {
    let theme = &app.theme;
    let block = theme.glyphs.bar.last().copied().unwrap_or("#");
    let part = |rank, text: &str, zone| {
        Part::new(
            rank,
            vec![
                Span::styled(block, histogram::zone_style(theme, zone)),
                Span::styled(format!(" {text}"), theme.dim),
            ],
        )
    };
    let to = theme.glyphs.to;
    let line = chrome::join(
        vec![
            part(0, "to p90", 0),
            part(1, &format!("p90{to}p99"), 1),
            part(2, "beyond p99", 2),
            Part::new(
                3,
                vec![
                    Span::styled(
                        if theme.glyphs.ascii {
                            "^^^"
                        } else {
                            "▲▲▲"
                        },
                        theme.strong,
                    ),
                    Span::styled(" p50, p90, p99", theme.dim),
                ],
            ),
        ],
        &Span::raw("  "),
        room.saturating_sub(2),
    );
    let mut spans = vec![Span::raw(" ")];
    spans.extend(line.spans);
    spans.push(Span::raw(" "));
    Line::from(spans)
}

/// The unit of all times of the panel: that of the median, or of the longest bucket.
fn scale(l: &Latency, micro: &'static str) -> Scale {
    let longest = l.buckets.last().map(|b| b.to_us);
    let (div, unit, decimals) = match l.p50_us.or(longest).unwrap_or(0.0) {
        v if v < 1e3 => (1.0, micro, 1),
        v if v < 1e6 => (1e3, "ms", 2),
        _ => (1e6, "s", 2),
    };
    Scale {
        div,
        unit,
        decimals,
    }
}

/// Figures in as many lines as the width asks for.
fn facts(app: &App, l: &Latency, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let g = &theme.glyphs;
    let scale = scale(l, g.micro);
    let plain = |v: Option<f64>| scale.show(v);
    let time = |v: Option<f64>| format!("{} {}", scale.show(v), scale.unit);
    let mean = match l.stddev_us {
        Some(sd) => format!("{} {} {}", plain(l.mean_us), g.plus_minus, time(Some(sd))),
        None => time(l.mean_us),
    };
    let facts = [
        ("p50", time(l.p50_us), theme.strong),
        ("p90", time(l.p90_us), theme.strong),
        ("p99", time(l.p99_us), theme.strong),
        ("mean", mean, Style::new()),
        ("min", time(l.min_us), Style::new()),
        ("max", time(l.max_us), Style::new()),
    ];
    let mut lines: Vec<Line<'static>> = Vec::new();
    for (name, value, style) in facts {
        let spans = [
            Span::styled(format!("{name} "), theme.dim),
            Span::styled(format!("{value:>8}"), style),
        ];
        let len: usize = spans.iter().map(Span::width).sum();
        match lines.last_mut() {
            Some(line) if line.width() + 3 + len <= width => {
                line.spans.push(Span::raw("   "));
                line.spans.extend(spans);
            }
            _ => lines.push(Line::from(spans.to_vec())),
        }
    }
    lines
}
