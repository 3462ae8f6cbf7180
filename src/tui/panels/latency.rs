//! Times of tokens: histogram and percentiles.

use super::chrome;
use crate::tui::state::{App, Panel};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// Draws the panel.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let empty = Line::default();
    chrome::panel(app, Panel::Latency, area, buf, empty.clone(), empty);
}
