//! The help window, made from the live keymap.

use super::chrome;
use crate::tui::editor::editor_bindings;
use crate::tui::keymap::{Binding, Group};
use crate::tui::state::{App, Overlay};
use crate::tui::text::width;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};

const COLUMN: u16 = 58;
const KEYS: usize = 18;

fn window(app: &App, area: Rect) -> Rect {
    let columns = if area.width >= 2 * COLUMN + 4 { 2 } else { 1 };
    let width = (COLUMN * columns + 4).min(area.width);
    let height = (lines(app, width).len() as u16 + 2).min(area.height);
    Rect::new(
        area.x + (area.width - width) / 2,
        area.y + (area.height - height) / 2,
        width,
        height,
    )
}

/// The largest first line.
pub fn last_top(app: &App, area: Rect) -> u16 {
    let window = window(app, area);
    (lines(app, window.width).len() as u16).saturating_sub(chrome::inner(window).height)
}

/// Draws the window over everything.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let Overlay::Help(top) = app.overlay else {
        return;
    };
    let theme = &app.theme;
    let window = window(app, area);
    Clear.render(window, buf);
    let last = last_top(app, area);
    let top = top.min(last);
    let total = lines(app, window.width).len();
    let more = Line::from(chrome::position(
        app,
        top.into(),
        chrome::inner(window).height.into(),
        total,
    ));
    let title = Line::styled(" keys ", theme.accent);
    let hint = Line::styled(
        " mouse: click selects, column title sorts, wheel scrolls, zooms timeline ",
        theme.dim,
    );
    let inner = chrome::frame(app, window, buf, true, title, more, hint);
    for (i, line) in lines(app, window.width)
        .iter()
        .skip(top.into())
        .take(inner.height.into())
        .enumerate()
    {
        chrome::put(line, chrome::row(inner, i), buf);
    }
}

fn lines(app: &App, width: u16) -> Vec<Line<'static>> {
    let blocks: Vec<Vec<Line<'static>>> = Group::ALL
        .into_iter()
        .map(|g| block(app, g))
        // In a recording there is no prompt to type.
        .chain(app.snapshot().playback.is_none().then(|| editor(app)))
        .collect();
    if width < 2 * COLUMN {
        return blocks.into_iter().flatten().collect();
    }
    let total: usize = blocks.iter().map(Vec::len).sum();
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for b in blocks {
        if second.is_empty() && (first.len() + b.len() / 2) * 2 <= total {
            first.extend(b)
        } else {
            second.extend(b)
        }
    }
    let rows = first.len().max(second.len());
    first.resize(rows, Line::default());
    second.resize(rows, Line::default());
    let pad = |l: &Line<'_>| usize::from(COLUMN).saturating_sub(l.width());
    first
        .into_iter()
        .zip(second)
        .map(|(mut a, b)| {
            a.spans.push(Span::raw(" ".repeat(pad(&a))));
            a.spans.extend(b.spans);
            a
        })
        .collect()
}

/// Keys and what they do; keys that would push that out of the column go on below.
fn entry(app: &App, keys: &[crate::tui::keymap::Key], help: &'static str) -> Vec<Line<'static>> {
    let room = usize::from(COLUMN).saturating_sub(width(help) + 4);
    let mut rows = vec![String::new()];
    for key in keys {
        let label = key.label();
        if let Some(row) = rows.last_mut() {
            if row.is_empty() {
                row.push_str(&label);
            } else if width(row) + 2 + width(&label) < room {
                row.push_str(", ");
                row.push_str(&label);
            } else {
                row.push(',');
                rows.push(label);
            }
        }
    }
    let line = |(i, keys): (usize, String)| {
        let gap = KEYS.saturating_sub(width(&keys)).max(1);
        Line::from(vec![
            Span::raw("  "),
            Span::styled(keys, app.theme.accent),
            Span::raw(" ".repeat(gap)),
            Span::raw(if i == 0 { help } else { "" }),
        ])
    };
    rows.into_iter().enumerate().map(line).collect()
}

fn block(app: &App, group: Group) -> Vec<Line<'static>> {
    let bindings = app
        .keymap
        .bindings
        .iter()
        .filter(|b: &&Binding| b.group == group);
    let mut lines = vec![Line::from(Span::styled(
        format!(" {}", group.title()),
        app.theme.strong,
    ))];
    lines.extend(bindings.flat_map(|b| entry(app, &b.keys, b.help)));
    lines
}

fn editor(app: &App) -> Vec<Line<'static>> {
    let mut lines = vec![Line::from(Span::styled(
        " While typing a prompt or a statement",
        app.theme.strong,
    ))];
    lines.extend(
        editor_bindings()
            .iter()
            .flat_map(|(_, keys, help)| entry(app, keys, help)),
    );
    lines
}
