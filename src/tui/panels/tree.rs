//! The execution tree of a step, to fold and unfold.

use super::chrome;
use crate::tui::state::{App, Panel};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::Line;

/// Draws the panel.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let empty = Line::default();
    chrome::panel(app, Panel::Tree, area, buf, empty.clone(), empty);
}

/// Moves the cursor by so many rows.
pub fn move_cursor(_app: &mut App, _by: i64) {}

/// Folds or unfolds the node under the cursor.
pub fn fold(_app: &mut App, _close: bool) {}

/// A click.
pub fn click(_app: &mut App, _area: Rect, _at: Position) {}
