//! One frame of the dashboard as text.

use crate::session::snapshot::Snapshot;
use crate::tui::Options;
use crate::tui::view::view;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::Rect;
use std::sync::Arc;

/// Draws the dashboard about `snapshot` at `width` by `height` cells with the same view as on a terminal. Every line ends in a line feed
/// and is trimmed on the right; `options.colour` has no effect, text carries none. The same snapshot gives the same bytes.
pub fn render(snapshot: &Snapshot, width: u16, height: u16, options: &Options) -> String {
    let app = options.app(Arc::new(snapshot.clone()), Rect::new(0, 0, width, height));
    draw(&app, width, height)
}

/// Draws `app` at `width` by `height` cells to text.
pub(crate) fn draw(app: &crate::tui::state::App, width: u16, height: u16) -> String {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|frame| view(app, frame));
    let buffer = terminal.backend().buffer();
    let mut out = String::new();
    for y in 0..height {
        let mut line = String::new();
        let mut skip = 0;
        for x in 0..width {
            let symbol = buffer.cell((x, y)).map_or(" ", |c| c.symbol());
            // The cells behind a wide character hold nothing.
            if skip == 0 {
                line.push_str(symbol);
            }
            skip = crate::tui::text::width(symbol).max(skip).saturating_sub(1);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}
