//! Roofs of the machine and the bricks under them, log-log.

use super::chrome;
use crate::tui::state::{App, Panel};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::Line;

/// Draws the panel.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let empty = Line::default();
    chrome::panel(app, Panel::Roofline, area, buf, empty.clone(), empty);
}

/// Moves the cursor by so many rows.
pub fn move_cursor(_app: &mut App, _by: i64) {}

/// A click.
pub fn click(_app: &mut App, _area: Rect, _at: Position) {}
