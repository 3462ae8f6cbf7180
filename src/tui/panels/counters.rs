//! What the processor and the system count.

use super::chrome;
use crate::tui::state::{App, Panel};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// Draws the panel.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let empty = Line::default();
    chrome::panel(app, Panel::Counters, area, buf, empty.clone(), empty);
}

/// Moves the cursor by so many rows.
pub fn move_cursor(_app: &mut App, _by: i64) {}
