//! The last step thread by thread, to magnify and to pan; and the newest tokens.

use super::chrome;
use crate::tui::state::{App, Panel};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::Line;

/// Draws the panel.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let empty = Line::default();
    chrome::panel(app, Panel::Timeline, area, buf, empty.clone(), empty);
}

/// Moves the cursor by so many rows.
pub fn move_cursor(_app: &mut App, _by: i64) {}

/// Moves the part shown sideways.
pub fn pan(_app: &mut App, _by: i64) {}

/// Magnifies or shrinks.
pub fn magnify(_app: &mut App, _by: i64) {}

/// A click.
pub fn click(_app: &mut App, _area: Rect, _at: Position) {}
