//! The state on the screen. Pure: reads nothing but the state.

use super::layout::Mode;
use super::panels;
use super::state::{App, Overlay, Panel};
use ratatui::Frame;

/// Draws `app` on the whole frame.
pub fn view(app: &App, frame: &mut Frame) {
    let area = frame.area();
    if area.is_empty() {
        return;
    }
    let layout = app.layout_of(area);
    let buf = frame.buffer_mut();
    match layout.mode {
        Mode::Tiny => panels::header::render_tiny(app, layout.header, buf),
        Mode::Compact => panels::header::render_line(app, layout.header, buf),
        Mode::Full => panels::header::render(app, layout.header, buf),
    }
    for (panel, area) in layout.panels {
        match panel {
            Panel::Bricks => panels::bricks::render(app, area, buf),
            Panel::Layers => panels::layers::render(app, area, buf),
            Panel::Text => panels::text::render(app, area, buf),
            Panel::Path => panels::path::render(app, area, buf),
            Panel::Advice => panels::advice::render(app, area, buf),
            Panel::Memory => panels::memory::render(app, area, buf),
            Panel::Timeline => panels::timeline::render(app, area, buf),
            Panel::Roofline => panels::roofline::render(app, area, buf),
            Panel::Counters => panels::counters::render(app, area, buf),
            Panel::Latency => panels::latency::render(app, area, buf),
            Panel::Tree => panels::tree::render(app, area, buf),
            Panel::Trace => panels::trace::render(app, area, buf),
            Panel::Model => panels::model::render(app, area, buf),
            Panel::Debug => panels::debug::render(app, area, buf),
        }
    }
    if layout.mode != Mode::Tiny {
        panels::footer::render_status(app, layout.status, buf);
        panels::footer::render_keys(app, layout.footer, buf);
    }
    match app.overlay {
        Overlay::None => {}
        Overlay::Help(_) => panels::help::render(app, area, buf),
        Overlay::Confirm(_) => panels::advice::confirm::render(app, area, buf),
        Overlay::Edit(..) => {
            if let Some(at) = panels::prompt::render(app, area, buf) {
                frame.set_cursor_position(at);
            }
        }
    }
}
