//! The newest tokens under the timeline: a sparkline with the slow ones marked, and the newest anomaly in words.

use crate::session::snapshot::TokenTime;
use crate::tui::format::number;
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
    let (low, high) = ends(app, area.width.into());
    for (x, token) in (area.left()..area.right()).zip(newest) {
        let column = Rect {
            x,
            width: 1,
            ..area
        };
        let style = if token.slow { theme.bad } else { theme.accent };
        chrome::sparkline(&[token.us], low, high, column, buf, &theme.glyphs, style);
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

/// The ends of the scale of the newest `columns` tokens, microseconds: from half of the longest, so that differences show,
/// or from nothing where one took less.
pub fn ends(app: &App, columns: usize) -> (f64, f64) {
    let tokens = &app.snapshot().token_times;
    let newest = tokens
        .get(tokens.len().saturating_sub(columns)..)
        .unwrap_or_default();
    let high = highest(newest);
    let all = newest.iter().all(|t| t.us.is_finite() && t.us > high / 2.0);
    (if all { high / 2.0 } else { 0.0 }, high)
}

/// The slow token `index` in words, the newest being 0; with none at all that there is none.
pub fn sentence(app: &App, index: usize, columns: usize) -> Line<'static> {
    let theme = &app.theme;
    let snapshot = app.snapshot();
    let fitted = |text: &str| {
        fit(
            &sanitise(text, theme.glyphs.ascii),
            columns,
            theme.glyphs.ellipsis,
        )
    };
    match snapshot.anomalies.iter().nth_back(index) {
        Some(anomaly) => {
            let found = match (anomaly.by_rule, anomaly.by_clusters) {
                (true, true) => " (rule and clusters)",
                (true, false) => " (rule)",
                (false, true) => " (clusters)",
                (false, false) => "",
            };
            let text = format!("! token {}: {}{found}", anomaly.position, anomaly.says);
            let style = if index == 0 { theme.bad } else { theme.dim };
            Line::styled(fitted(&text), style)
        }
        None if index > 0 || !snapshot.anomalies.is_empty() => Line::default(),
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
