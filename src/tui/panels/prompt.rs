//! The window in which a prompt or a statement is typed.

use super::chrome;
use crate::tui::editor::{EditAction, Purpose, editor_bindings};
use crate::tui::state::{App, Overlay};
use crate::tui::text::{sanitise_block, width, wrap};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};

/// Draws the window and returns where the cursor is.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) -> Option<Position> {
    let Overlay::Edit(purpose, editor) = &app.overlay else {
        return None;
    };
    let theme = &app.theme;
    let w = area.width.min(84);
    let h = area.height.min(9);
    let window = Rect::new(
        area.x + (area.width - w) / 2,
        area.y + (area.height - h) / 2,
        w,
        h,
    );
    Clear.render(window, buf);
    let (title, hint) = match purpose {
        Purpose::Prompt => (
            " new prompt ",
            "type or paste; the model continues this text",
        ),
        Purpose::Statement => (
            " statement ",
            "TRACE \"...\" FOR \"...\"   or   PATCH \"...\" FROM \"...\" FOR \"...\"",
        ),
    };
    let title = Line::styled(title, theme.accent);
    let count = Line::styled(
        format!(" {} characters ", editor.text().chars().count()),
        theme.dim,
    );
    let inner = chrome::frame(app, window, buf, true, title, count, keys(app));
    if inner.is_empty() {
        return None;
    }
    let (before, after) = editor.split();
    let mut text = String::new();
    sanitise_block(before, theme.glyphs.ascii, &mut text);
    let at = text.len();
    sanitise_block(after, theme.glyphs.ascii, &mut text);
    // One column stays free, so that the cursor has a place after a full line.
    let lines = wrap(&text, usize::from(inner.width).saturating_sub(1));
    let cursor = lines.iter().rposition(|l| l.start <= at).unwrap_or(0);
    let top = chrome::scroll_to(cursor, inner.height.into());
    for (i, l) in lines.iter().skip(top).take(inner.height.into()).enumerate() {
        chrome::put(
            &Line::raw(text.get(l.clone()).unwrap_or_default()),
            chrome::row(inner, i),
            buf,
        );
    }
    if editor.text().is_empty() {
        chrome::put(&Line::styled(hint, theme.dim), chrome::row(inner, 0), buf);
    }
    let start = lines.get(cursor).map_or(0, |l| l.start);
    let x = inner.x + (width(text.get(start..at).unwrap_or_default()) as u16).min(inner.width - 1);
    Some(Position::new(x, inner.y + (cursor - top) as u16))
}

/// The keys that matter most, from the editor's keymap.
fn keys(app: &App) -> Line<'static> {
    let theme = &app.theme;
    let shown = [
        EditAction::Send,
        EditAction::Cancel,
        EditAction::NewLine,
        EditAction::Earlier,
    ];
    let mut spans = vec![Span::raw(" ")];
    for (action, keys, help) in editor_bindings() {
        if let (true, Some(key)) = (shown.contains(&action), keys.first()) {
            spans.push(Span::styled(key.label(), theme.accent));
            spans.push(Span::styled(format!(" {help}  "), theme.dim));
        }
    }
    Line::from(spans)
}
