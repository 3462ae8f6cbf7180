//! The newest tokens under the timeline: a sparkline with the slow ones marked, and the newest anomaly in words.

use crate::session::snapshot::TokenTime;
use crate::tui::format::{micros, number};
use crate::tui::panels::chrome;
use crate::tui::state::App;
use crate::tui::text::{fit, sanitise};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// Draws the newest tokens over `area`, the newest on the right, and `!` for slow ones in `marks` or, where that is empty,
/// in their place.
pub fn strip(app: &App, area: Rect, marks: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let tokens = &app.snapshot().token_times;
    let newest = tokens
        .get(tokens.len().saturating_sub(area.width.into())..)
        .unwrap_or_default();
    // From the left while there are few, so that a token stays where it is until the strip is full.
    let high = highest(newest);
    for (x, token) in (area.left()..area.right()).zip(newest) {
        let column = Rect {
            x,
            width: 1,
            ..area
        };
        let style = if token.slow { theme.bad } else { theme.accent };
        chrome::sparkline(
            &[token.us],
            0.0,
            high,
            column,
            buf,
            &theme.glyphs,
            style,
        );
        if token.slow {
            let y = if marks.is_empty() { area.y } else { marks.y };
            buf.set_stringn(x, y, "!", 1, theme.bad);
        }
    }
}

fn highest(tokens: &[TokenTime]) -> f64 {
    tokens
        .iter()
        .map(|t| t.us)
        .filter(|v| v.is_finite())
        .fold(0.0, f64::max)
}

/// The longest time of those shown, for the margin.
pub fn top_label(app: &App, columns: usize) -> String {
    let tokens = &app.snapshot().token_times;
    let newest = tokens
        .get(tokens.len().saturating_sub(columns)..)
        .unwrap_or_default();
    match highest(newest) {
        high if high > 0.0 => micros(high, app.theme.glyphs.micro),
        _ => String::new(),
    }
}

/// The newest slow token in words, or that there is none.
pub fn sentence(app: &App, columns: usize) -> Line<'static> {
    let theme = &app.theme;
    let snapshot = app.snapshot();
    let fitted = |text: &str| {
        fit(
            &sanitise(text, theme.glyphs.ascii),
            columns,
            theme.glyphs.ellipsis,
        )
    };
    match snapshot.anomalies.last() {
        Some(anomaly) => {
            let found = match (anomaly.by_rule, anomaly.by_clusters) {
                (true, true) => " (rule and clusters)",
                (true, false) => " (rule)",
                (false, true) => " (clusters)",
                (false, false) => "",
            };
            let text = format!("! token {}: {}{found}", anomaly.position, anomaly.says);
            Line::styled(fitted(&text), theme.bad)
        }
        None if snapshot.token_times.is_empty() => Line::default(),
        None => {
            let n = snapshot.token_times.len();
            let text = format!(
                "none of the newest {} tokens was slow for its neighbours",
                number(n as f64, 0)
            );
            Line::styled(fitted(&text), theme.dim)
        }
    }
}
