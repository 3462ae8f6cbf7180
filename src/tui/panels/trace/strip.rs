//! The tokens of the text side by side, with the cursor on one.

use super::reading::Reading;
use crate::trace::figures::{PositionTrace, TraceView};
use crate::tui::panels::chrome;
use crate::tui::state::App;
use crate::tui::text::{fit, sanitise, width};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// Columns of a token at most.
const TOKEN: usize = 18;

/// A token on the screen.
struct Placed {
    index: usize,
    x: u16,
    text: String,
}

/// Which positions are traced, in words: `all`, `0-3`, `2 of them`.
fn traced(view: &TraceView) -> String {
    let (count, all) = (view.positions.len(), view.tokens.len());
    let ends = view.positions.first().zip(view.positions.last());
    match ends {
        None => "none".into(),
        Some(_) if count == all => "all".into(),
        Some((a, b)) if a.position == b.position => a.position.to_string(),
        Some((a, b)) if b.position.saturating_sub(a.position) as usize + 1 == count => {
            format!("{}-{}", a.position, b.position)
        }
        Some(_) => format!("{count} of them"),
    }
}

/// The words before the tokens.
fn label(app: &App, r: Reading<'_>, columns: usize) -> String {
    let at = r.at.map_or(0, |p| p.position);
    let last = r.view.tokens.len().saturating_sub(1);
    let long = format!(
        "position {at} of 0{}{last}, traced: {} {}",
        app.theme.glyphs.to,
        traced(r.view),
        separator(app)
    );
    if columns >= 60 {
        long
    } else {
        format!("position {at} {}", separator(app))
    }
}

/// What stands between tokens, so that their spaces show.
fn separator(app: &App) -> &'static str {
    if app.theme.glyphs.ascii { "|" } else { "│" }
}

/// The tokens in `area` behind `label`, scrolled so that the one under the cursor is among them.
fn place(app: &App, r: Reading<'_>, area: Rect, label: &str) -> Vec<Placed> {
    let g = &app.theme.glyphs;
    let start = area.x + (width(label) as u16).min(area.width);
    let room = usize::from(area.right() - start);
    let cursor = r.at.map_or(0, |p| p.position as usize);
    let token = |i: usize| {
        let text = r.view.tokens.get(i)?;
        let text = fit(&sanitise(&text.text, g.ascii), TOKEN, g.ellipsis);
        Some(if i == cursor {
            format!("[{text}]")
        } else {
            text
        })
    };
    // Backwards from the cursor until two thirds are full, then on.
    let mut from = cursor.min(r.view.tokens.len().saturating_sub(1));
    let mut used = token(from).map_or(0, |t| width(&t) + 1);
    let after: usize = (cursor.saturating_add(1)..r.view.tokens.len())
        .take(room)
        .filter_map(token)
        .map(|t| width(&t) + 1)
        .sum();
    let limit = room.saturating_sub(after.min(room / 3));
    while let Some(before) = from.checked_sub(1).and_then(token) {
        if used + width(&before) + 1 > limit {
            break;
        }
        used += width(&before) + 1;
        from -= 1;
    }
    let mut x = start;
    let mut placed = Vec::new();
    for index in from..r.view.tokens.len() {
        let Some(text) = token(index) else { break };
        let columns = width(&text) as u16;
        if x.saturating_add(columns) > area.right() {
            break;
        }
        placed.push(Placed { index, x, text });
        x = x.saturating_add(columns + 1);
    }
    placed
}

/// Draws the tokens in one line.
pub(super) fn render(app: &App, r: Reading<'_>, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let label = label(app, r, area.width.into());
    chrome::put(&Line::styled(label.clone(), theme.dim), area, buf);
    let cursor = r.at.map_or(0, |p| p.position as usize);
    let is_traced = |i: usize| {
        let key = |p: &PositionTrace| p.position as usize;
        r.view.positions.binary_search_by_key(&i, key).is_ok()
    };
    for token in place(app, r, area, &label) {
        let style = match token.index {
            i if i == cursor => theme.accent,
            i if is_traced(i) => ratatui::style::Style::new(),
            _ => theme.dim,
        };
        let spans = vec![
            Span::styled(token.text, style),
            Span::styled(separator(app), theme.dim),
        ];
        let line = Rect::new(token.x, area.y, area.right().saturating_sub(token.x), 1);
        chrome::put(&Line::from(spans), line, buf);
    }
}

/// The position under a click at `x`.
pub(super) fn position_at(app: &App, r: Reading<'_>, area: Rect, x: u16) -> Option<u32> {
    let label = label(app, r, area.width.into());
    place(app, r, area, &label)
        .iter()
        .rfind(|t| t.x <= x && usize::from(x - t.x) < width(&t.text))
        .and_then(|t| u32::try_from(t.index).ok())
}
