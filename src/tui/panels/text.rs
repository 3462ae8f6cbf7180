//! The prompt and the text as it is generated.

use super::chrome;
use crate::session::snapshot::RunState;
use crate::tui::format::micros;
use crate::tui::state::{App, Panel};
use crate::tui::text::{fit, sanitise, sanitise_block, wrap};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// The whole text with the offsets where the generated part, its last token and the closing note begin.
struct Content {
    text: String,
    generated: usize,
    last: usize,
    note: usize,
}

fn content(app: &App) -> Content {
    let snapshot = app.snapshot();
    let ascii = app.theme.glyphs.ascii;
    let mut text = String::with_capacity(snapshot.prompt.len() + snapshot.tokens.len() * 6);
    sanitise_block(&snapshot.prompt, ascii, &mut text);
    let generated = text.len();
    let mut last = generated;
    for token in &snapshot.tokens {
        last = text.len();
        sanitise_block(&token.text, ascii, &mut text);
    }
    let note = text.len();
    match &snapshot.state {
        RunState::Finished { reason } => text.push_str(&format!("\n[{}]", sanitise(reason, ascii))),
        RunState::Failed { error } => {
            text.push_str(&format!("\n[failed: {}]", sanitise(error, ascii)))
        }
        _ => {}
    }
    Content {
        text,
        generated,
        last,
        note,
    }
}

/// The first line shown when the end is followed.
pub fn last_top(app: &App, area: Rect) -> usize {
    let inner = chrome::inner(area);
    wrap(&content(app).text, inner.width.into())
        .len()
        .saturating_sub(inner.height.into())
}

/// Draws the panel.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let content = content(app);
    let inner = chrome::inner(area);
    let lines = wrap(&content.text, inner.width.into());
    let end = lines.len().saturating_sub(inner.height.into());
    let top = app.text_top.map_or(end, |t| t.min(end));
    let heading = match app.text_top {
        Some(_) => Line::from(chrome::position(app, top, inner.height.into(), lines.len())),
        None => heading(app),
    };
    chrome::panel(app, Panel::Text, area, buf, heading, last_token(app));
    let failed = matches!(app.snapshot().state, RunState::Failed { .. });
    let styles = [
        (0..content.generated, theme.prompt),
        (content.generated..content.last, Style::new()),
        (content.last..content.note, theme.strong),
        (
            content.note..content.text.len(),
            if failed { theme.bad } else { theme.warn },
        ),
    ];
    for (row, line) in lines.iter().skip(top).take(inner.height.into()).enumerate() {
        let spans: Vec<Span> = styles
            .iter()
            .filter_map(|(range, style)| {
                let (from, to) = (line.start.max(range.start), line.end.min(range.end));
                content
                    .text
                    .get(from..to)
                    .filter(|t| !t.is_empty())
                    .map(|t| Span::styled(t, *style))
            })
            .collect();
        chrome::put(&Line::from(spans), chrome::row(inner, row), buf);
    }
}

fn heading(app: &App) -> Line<'static> {
    let theme = &app.theme;
    Line::from(vec![
        Span::styled(" prompt ", theme.prompt),
        Span::styled(
            format!(
                "{} {} tokens generated ",
                theme.glyphs.dot,
                app.snapshot().generated
            ),
            theme.dim,
        ),
    ])
}

/// The newest token: text, probability, time.
fn last_token(app: &App) -> Line<'static> {
    let theme = &app.theme;
    let Some(token) = app.snapshot().tokens.last() else {
        return Line::default();
    };
    let text = fit(
        &sanitise(&token.text, theme.glyphs.ascii),
        20,
        theme.glyphs.ellipsis,
    );
    let dot = theme.glyphs.dot;
    Line::from(vec![
        Span::styled(" newest ", theme.dim),
        Span::styled(format!("\"{text}\""), theme.strong),
        Span::styled(
            format!(
                " {dot} probability {:.2} {dot} {} ",
                token.prob,
                micros(token.us, theme.glyphs.micro)
            ),
            theme.dim,
        ),
    ])
}
