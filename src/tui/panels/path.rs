//! What bounds a decode step, and what twice as fast a brick would bring.

use super::chrome;
use crate::session::snapshot::{CriticalNode, CriticalPath};
use crate::tui::format::{Scale, micros, number, percent, tok_s};
use crate::tui::state::{App, Panel};
use crate::tui::text::{sanitise, wrap};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Columns with their widths, most important first; they are drawn in [`ORDER`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Brick,
    Time,
    Share,
    If2x,
    Bound,
    Bandwidth,
    Intensity,
    Slack,
    Bar,
}

const PRIORITY: [(Field, usize); 9] = [
    (Field::Brick, 13),
    (Field::Share, 6),
    (Field::If2x, 9),
    (Field::Time, 7),
    (Field::Bound, 9),
    (Field::Slack, 9),
    (Field::Bandwidth, 7),
    (Field::Bar, 10),
    (Field::Intensity, 8),
];
const ORDER: [Field; 9] = [
    Field::Brick,
    Field::Time,
    Field::Share,
    Field::Slack,
    Field::Bar,
    Field::Bound,
    Field::Bandwidth,
    Field::Intensity,
    Field::If2x,
];

/// Draws the panel.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let Some(path) = &app.snapshot().critical_path else {
        let inner = chrome::panel(
            app,
            Panel::Path,
            area,
            buf,
            Line::default(),
            Line::default(),
        );
        chrome::put(&Line::styled(chrome::no_step(app), theme.dim), inner, buf);
        return;
    };
    // Milliseconds from 10 ms on, so that the narrow column holds them.
    let scale = Scale::time(path.length_us * 10.0, theme.glyphs.micro);
    let heading = Line::styled(
        format!(" {} a token ", micros(path.length_us, theme.glyphs.micro)),
        theme.dim,
    );
    let legend = Line::styled(
        format!(
            " 2{}: if this brick took half the time ",
            theme.glyphs.times
        ),
        theme.dim,
    );
    let wide = Line::styled(
        format!(
            " 2{}: if this brick took half the time {dot} slack: how much longer it could take at no cost ",
            theme.glyphs.times,
            dot = theme.glyphs.dot
        ),
        theme.dim,
    );
    let legend = if wide.width() + 4 <= usize::from(area.width) {
        wide
    } else {
        legend
    };
    let inner = chrome::panel(app, Panel::Path, area, buf, heading, legend);
    let verdict = sanitise(&path.verdict, theme.glyphs.ascii);
    let lines = wrap(&verdict, inner.width.into());
    let room = usize::from(inner.height);
    // The table keeps its title and two rows; what the row under the cursor would bring needs two rows more.
    let what_if = usize::from(room >= lines.len() + 5);
    let sentence = lines
        .len()
        .min(room.saturating_sub(3 + what_if))
        .max(usize::from(room > 0));
    for (i, range) in lines.into_iter().take(sentence).enumerate() {
        let text = verdict.get(range).unwrap_or_default().to_string();
        chrome::put(
            &Line::styled(text, theme.strong),
            chrome::row(inner, i),
            buf,
        );
    }
    let above = Rect {
        height: inner.height - what_if as u16,
        ..inner
    };
    table(app, path, scale, above, sentence, buf);
    if what_if > 0 {
        let text = chrome::left(&bring(app, path), inner.width.into(), theme.glyphs.ellipsis);
        chrome::put(
            &Line::styled(text, theme.accent),
            // With air before it where there is some.
            chrome::row(inner, (sentence + path.nodes.len() + 2).min(room - 1)),
            buf,
        );
    }
}

/// What the row under the cursor would bring at twice the speed, and the slack of all rows.
fn bring(app: &App, path: &CriticalPath) -> String {
    let g = &app.theme.glyphs;
    let at = app.path_cursor.min(path.nodes.len().saturating_sub(1));
    let Some(node) = path.nodes.get(at) else {
        return String::new();
    };
    let gain = node.tok_s_if_2x * path.length_us / 1e6 - 1.0;
    let gain = if gain.is_finite() {
        format!(" (+{}%)", number(gain.max(0.0) * 100.0, 1))
    } else {
        String::new()
    };
    let slack: f64 = path
        .nodes
        .iter()
        .map(|n| n.slack_us)
        .filter(|s| s.is_finite() && *s > 0.0)
        .sum();
    format!(
        "{} 2{} faster: {} tok/s{gain}; slack in all {}",
        node.id.name(),
        g.times,
        tok_s(Some(node.tok_s_if_2x)),
        micros(slack, g.micro)
    )
}

fn table(app: &App, path: &CriticalPath, scale: Scale, inner: Rect, from: usize, buf: &mut Buffer) {
    let theme = &app.theme;
    let mut left = usize::from(inner.width);
    let mut fields = Vec::new();
    for (field, width) in PRIORITY {
        if width > left {
            break;
        }
        left -= width;
        fields.push((field, width));
    }
    fields.sort_by_key(|(f, _)| ORDER.iter().position(|o| o == f));
    for (field, width) in &mut fields {
        if *field == Field::Bar {
            *width += left.min(20);
        }
    }
    let titles: Vec<Span> = fields
        .iter()
        .map(|(f, w)| Span::styled(title(app, *f, *w, scale), theme.dim))
        .collect();
    chrome::put(&Line::from(titles), chrome::row(inner, from), buf);
    let rows = usize::from(inner.height).saturating_sub(from + 1);
    let cursor = app.path_cursor.min(path.nodes.len().saturating_sub(1));
    let top = chrome::scroll_to(cursor, rows);
    let largest = path.nodes.iter().map(|n| n.share).fold(0.0, f64::max);
    for (i, node) in path.nodes.iter().enumerate().skip(top).take(rows) {
        let line = chrome::row(inner, from + 1 + i - top);
        let spans: Vec<Span> = fields
            .iter()
            .flat_map(|(f, w)| cell(app, *f, *w, node, scale, largest))
            .collect();
        chrome::put(&Line::from(spans), line, buf);
        if app.focus == Panel::Path && i == cursor {
            let name = fields.first().map_or(0, |(_, w)| *w as u16);
            buf.set_style(
                Rect {
                    width: line.width.min(name),
                    ..line
                },
                theme.selected,
            );
        }
    }
}

fn title(app: &App, field: Field, width: usize, scale: Scale) -> String {
    let g = &app.theme.glyphs;
    match field {
        Field::Brick => chrome::left("brick", width, ""),
        Field::Bar => " ".repeat(width),
        Field::Time => chrome::right(scale.unit, width, ""),
        Field::Share => chrome::right("share", width, ""),
        Field::Slack => chrome::right(&format!("slack {}", scale.unit), width, ""),
        Field::Bound => chrome::left(" limit", width, ""),
        Field::Bandwidth => chrome::right("GB/s", width, ""),
        Field::Intensity => chrome::right("FLOP/B", width, ""),
        Field::If2x => chrome::right(&format!("2{} tok/s", g.times), width, ""),
    }
}

fn cell(
    app: &App,
    field: Field,
    width: usize,
    node: &CriticalNode,
    scale: Scale,
    largest: f64,
) -> Vec<Span<'static>> {
    let theme = &app.theme;
    let block = theme.category(node.id.category());
    let ellipsis = theme.glyphs.ellipsis;
    let figure = |text: String, style: Style| {
        vec![Span::styled(chrome::right(&text, width, ellipsis), style)]
    };
    let known = |v: Option<f64>| v.map_or("-".into(), |v| number(v, 1));
    match field {
        Field::Brick => vec![Span::styled(
            chrome::left(node.id.name(), width, ellipsis),
            block,
        )],
        Field::Bar => {
            let share = if largest > 0.0 {
                node.share / largest
            } else {
                0.0
            };
            let mut spans = vec![Span::raw(" ")];
            spans.extend(chrome::bar(
                share,
                width - 1,
                &theme.glyphs,
                block,
                theme.dim,
            ));
            spans
        }
        Field::Time => figure(scale.show(Some(node.us)), Style::new()),
        Field::Share => figure(percent(node.share), theme.strong),
        Field::Slack => figure(scale.show(Some(node.slack_us)), theme.dim),
        Field::Bound => {
            let style = match node.bound.as_str() {
                "memory" => theme.warn,
                "compute" => theme.good,
                _ => theme.dim,
            };
            let text = format!(" {}", sanitise(&node.bound, theme.glyphs.ascii));
            vec![Span::styled(chrome::left(&text, width, ellipsis), style)]
        }
        Field::Bandwidth => figure(known(node.gbps), Style::new()),
        Field::Intensity => figure(known(node.intensity), Style::new()),
        Field::If2x => figure(tok_s(Some(node.tok_s_if_2x)), theme.strong),
    }
}
