//! The line that names the five views, and what a view says whose tracer is off.

use super::parts::{is_on, wrapped};
use crate::tracer::figures::TracerKind;
use crate::tui::keymap::Action;
use crate::tui::panels::chrome;
use crate::tui::state::App;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// A view's name in a few letters.
fn short(kind: TracerKind) -> &'static str {
    match kind {
        TracerKind::Activations => "act",
        TracerKind::Attention => "attn",
        TracerKind::Logits => "logits",
        TracerKind::Quantisation => "quant",
        TracerKind::Kv => "kv",
    }
}

/// The texts of all tabs in the longest form that fits: whole names, short names, short names with a sign.
fn texts(app: &App, columns: usize) -> (Vec<(TracerKind, String)>, usize) {
    type Form = fn(TracerKind, bool) -> String;
    let forms: [(Form, usize); 3] = [
        (|k, on| format!("{} {}", k.name(), word(on)), 2),
        (|k, on| format!("{} {}", short(k), word(on)), 1),
        (
            |k, on| format!("{}{}", short(k), if on { '+' } else { '-' }),
            0,
        ),
    ];
    for (form, gap) in forms {
        let texts: Vec<_> = TracerKind::ALL
            .into_iter()
            .map(|k| {
                let text = form(k, is_on(app, k));
                let text = if k == app.views.model.view {
                    format!("[{text}]")
                } else {
                    format!(" {text} ")
                };
                (k, text)
            })
            .collect();
        let used: usize = texts.iter().map(|(_, t)| t.len() + gap).sum();
        if used <= columns + gap {
            return (texts, gap);
        }
    }
    let kind = app.views.model.view;
    (
        vec![(
            kind,
            format!("[{} {}]", kind.name(), word(is_on(app, kind))),
        )],
        0,
    )
}

fn word(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Draws the tabs: the view shown in brackets, behind each name whether its tracer is on.
pub(super) fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let (texts, gap) = texts(app, area.width.into());
    let mut spans = Vec::new();
    for (kind, text) in texts {
        let style = match (kind == app.views.model.view, is_on(app, kind)) {
            (true, _) => theme.accent,
            (false, true) => theme.good,
            (false, false) => theme.dim,
        };
        spans.push(Span::styled(text, style));
        spans.push(Span::raw(" ".repeat(gap)));
    }
    chrome::put(&Line::from(spans), area, buf);
}

/// The view whose tab lies under a click.
pub(super) fn at(app: &App, area: Rect, at: Position) -> Option<TracerKind> {
    let (texts, gap) = texts(app, area.width.into());
    let mut x = area.x;
    for (kind, text) in texts {
        let end = x.saturating_add(text.len() as u16);
        if area.contains(at) && (x..end).contains(&at.x) {
            return Some(kind);
        }
        x = end.saturating_add(gap as u16);
    }
    None
}

/// What a view would show.
fn would_show(kind: TracerKind) -> &'static str {
    match kind {
        TracerKind::Activations => {
            "deviation, largest magnitude, mean and norm of what every layer reads, adds and leaves, and the first NaN, infinity, explosion or dead layer"
        }
        TracerKind::Attention => {
            "where every head of every layer looks: its largest weights, entropy and pattern, and one head query by key"
        }
        TracerKind::Logits => {
            "how the chosen token won: logits and ranks of the candidates after every layer, and what temperature, top-k, top-p and min-p cut"
        }
        TracerKind::Quantisation => {
            "how far every quantised product is from F32, brick by brick, and on demand what that does to the output of the whole model"
        }
        TracerKind::Kv => {
            "how the kv cache is used: positions held, bytes, evictions, hits, and how smaller caches would have done"
        }
    }
}

/// What it costs, in words.
fn costs(kind: TracerKind) -> &'static str {
    match kind {
        TracerKind::Activations => "small: one pass over each stream while it is in the cache",
        TracerKind::Attention => "small: one look through each head's weights",
        TracerKind::Logits => "large: after every layer the stream goes through the head",
        TracerKind::Quantisation => "large: one layer a token is computed again in F32",
        TracerKind::Kv => "next to nothing: a few counters a step",
    }
}

/// A view whose tracer is off.
pub(super) fn off(app: &App, kind: TracerKind, columns: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let mut lines = wrapped(
        app,
        &format!("shows {}", would_show(kind)),
        Style::new(),
        columns,
    );
    let second = if app.snapshot().playback.is_some() {
        format!("this recording was made without the {} tracer", kind.name())
    } else {
        let key = app.keymap.label(Action::SwitchTracer).unwrap_or_default();
        format!("it is off; {key} switches it on; cost: {}", costs(kind))
    };
    lines.extend(wrapped(app, &second, theme.accent, columns));
    lines
}

/// A view whose tracer is on and has seen nothing yet.
pub(super) fn waits(app: &App, columns: usize) -> Vec<Line<'static>> {
    wrapped(app, "waits for the next step", app.theme.dim, columns)
}
