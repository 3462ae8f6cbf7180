//! The five tracers: activations, attention, logits, quantisation error and the kv cache, one view each.

mod activations;
mod attention;
mod by_key;
mod heads;
mod kv;
mod logits;
mod moves;
mod parts;
mod quantisation;
mod sampling;
mod tabs;

pub use moves::{act, acts, click, go};

use super::chrome;
use crate::tracer::figures::{
    ActivationView, AttentionView, KvView, LogitView, QuantisationView, TracerKind,
};
use crate::tui::format::count;
use crate::tui::state::{App, Panel};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// What there is to show.
enum Shown<'a> {
    Off(TracerKind),
    Waits,
    Activations(&'a ActivationView),
    Attention(&'a AttentionView),
    Logits(&'a LogitView),
    Quantisation(&'a QuantisationView),
    Kv(&'a KvView),
}

impl<'a> Shown<'a> {
    /// Of the view chosen.
    fn new(app: &'a App) -> Self {
        let kind = app.views.model.view;
        let Some(frame) = parts::frame(app).filter(|f| f.on.has(kind)) else {
            return Self::Off(kind);
        };
        let found = match kind {
            TracerKind::Activations => frame.activations.as_deref().map(Self::Activations),
            TracerKind::Attention => frame.attention.as_deref().map(Self::Attention),
            TracerKind::Logits => frame.logits.as_deref().map(Self::Logits),
            TracerKind::Quantisation => frame.quantisation.as_deref().map(Self::Quantisation),
            TracerKind::Kv => frame.kv.as_deref().map(Self::Kv),
        };
        found.unwrap_or(Self::Waits)
    }
}

/// The line of tabs, and the view below it; without room for both the view alone.
fn areas(inner: Rect) -> (Rect, Rect) {
    crate::tui::layout::top(inner, u16::from(inner.height >= 3))
}

/// Draws the panel.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let shown = Shown::new(app);
    let heading = heading(app, &shown);
    let columns = usize::from(area.width).saturating_sub(4);
    let legend = match &shown {
        Shown::Activations(v) => activations::legend(app, v, columns),
        Shown::Attention(v) => attention::legend(app, v, chrome::inner(area), columns),
        Shown::Logits(v) => logits::legend(app, v, columns),
        Shown::Quantisation(_) => quantisation::legend(app, columns),
        Shown::Kv(v) => kv::legend(app, v, chrome::inner(area), columns),
        Shown::Off(_) | Shown::Waits => Line::default(),
    };
    let inner = chrome::panel(app, Panel::Model, area, buf, heading, legend);
    if inner.is_empty() {
        return;
    }
    let (tabs, body) = areas(inner);
    if !tabs.is_empty() {
        tabs::render(app, tabs, buf);
    }
    let width = body.width.into();
    match shown {
        Shown::Off(kind) => parts::put_all(&tabs::off(app, kind, width), body, buf),
        Shown::Waits => parts::put_all(&tabs::waits(app, width), body, buf),
        Shown::Activations(v) => activations::render(app, v, body, buf),
        Shown::Attention(v) => attention::render(app, v, body, buf),
        Shown::Logits(v) => logits::render(app, v, body, buf),
        Shown::Quantisation(v) => quantisation::render(app, v, body, buf),
        Shown::Kv(v) => kv::render(app, v, body, buf),
    }
}

/// How much a view rests on.
fn heading(app: &App, shown: &Shown<'_>) -> Line<'static> {
    let steps = |n: u64, what: &str| {
        let plural = if n == 1 { "" } else { "s" };
        format!("{} {what}{plural}", count(n))
    };
    let text = match shown {
        Shown::Off(_) | Shown::Waits => return Line::default(),
        Shown::Activations(v) => {
            format!("{}, position {}", steps(v.steps, "step"), v.latest.position)
        }
        Shown::Attention(v) => format!(
            "query {}, {} kept, {} dropped",
            v.query_pos,
            v.kept,
            count(v.dropped)
        ),
        Shown::Logits(v) => steps(v.steps, "token"),
        Shown::Quantisation(v) => steps(v.tokens, "token"),
        Shown::Kv(v) => {
            let last = v.session.steps.last().map_or(0, |s| s.step);
            format!("step {}", count(last))
        }
    };
    Line::from(Span::styled(format!(" {text} "), app.theme.dim))
}
