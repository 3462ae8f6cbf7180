//! cbtop itself: its event loop, its clocks, what profiling costs.

use super::chrome;
use crate::tui::state::{App, Panel};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// Draws the panel.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let empty = Line::default();
    chrome::panel(app, Panel::Debug, area, buf, empty.clone(), empty);
}
