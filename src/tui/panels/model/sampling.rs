//! What sampling makes of the model's distribution: each cut, and the candidates before and behind them.

use super::parts::{self, clean};
use crate::trace::figures::TokenText;
use crate::tracer::figures::{SampledCandidate, SamplingView};
use crate::tui::format::{count, number, percent};
use crate::tui::panels::table::{Cell, Column, lines};
use crate::tui::panels::{chrome, trace};
use crate::tui::state::App;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

/// What cut a candidate; empty where nothing did.
pub(super) fn cut_by(app: &App, c: &SampledCandidate) -> String {
    c.cut_by
        .as_deref()
        .map_or(String::new(), |t| clean(app, t, 11))
}

/// Draws the cuts in their order.
pub(super) fn cuts(app: &App, s: &SamplingView, area: Rect, buf: &mut Buffer) {
    if area.height < 2 {
        return;
    }
    let theme = &app.theme;
    let width = usize::from(area.width);
    let columns = [
        Column::text("cut", 11, 0),
        Column::number("setting", 7, 0),
        Column::number("left", 6, 0),
        Column::number("cut mass", 8, 0),
        Column::number("cut", 6, 2),
        Column::text("first cut", 14, 1),
    ];
    let rows = s
        .cuts
        .iter()
        .map(|c| -> Vec<Cell> {
            let first = c
                .first_cut
                .as_ref()
                .map_or(String::new(), |t| trace::quoted(app, t));
            vec![
                (clean(app, &c.name, 11), theme.strong),
                (clean(app, &c.setting, 7), Style::new()),
                (count(c.left.into()), Style::new()),
                (percent(c.cut_mass), theme.warn),
                (count(c.cut.into()), theme.dim),
                (first, theme.dim),
            ]
        })
        .collect();
    let mut all = lines(app, &columns, rows, width);
    if area.height as usize > all.len() + 1 {
        all.push(Line::default());
        let text = format!(
            "{}: entropy {} nats by the model, {} nats drawn from",
            s.sampler,
            number(s.model_entropy, 2),
            number(s.drawn_entropy, 2)
        );
        all.extend(parts::wrapped(app, &text, theme.dim, width));
    }
    parts::put_all(&all, area, buf);
}

/// Draws the candidates with their probability by the model and of being drawn.
pub(super) fn candidates(
    app: &App,
    s: &SamplingView,
    chosen: &TokenText,
    area: Rect,
    buf: &mut Buffer,
) {
    if area.height < 2 {
        return;
    }
    let theme = &app.theme;
    let width = usize::from(area.width);
    let bar = width.saturating_sub(16 + 7 + 7 + 12 + 5).min(30);
    let columns = [
        Column::text("candidate", 16, 0),
        Column::number("model P", 7, 0),
        Column::number("drawn P", 7, 0),
        Column::text("cut by", 11, 1),
        Column::text("drawn P", bar, 2),
    ];
    let rows = s
        .candidates
        .iter()
        .map(|c| -> Vec<Cell> {
            let is_chosen = c.token.id == chosen.id;
            let name = format!(
                "{}{}",
                if is_chosen { "*" } else { " " },
                trace::quoted(app, &c.token)
            );
            let drawn = chrome::bar(c.drawn_prob, bar, &theme.glyphs, Style::new(), Style::new());
            let drawn = drawn.into_iter().map(|s| s.content.into_owned()).collect();
            let style = if is_chosen { theme.good } else { theme.strong };
            vec![
                (name, style),
                (trace::prob(c.model_prob), Style::new()),
                (trace::prob(c.drawn_prob), style),
                (cut_by(app, c), theme.warn),
                (drawn, style),
            ]
        })
        .collect();
    parts::put_all(&lines(app, &columns, rows, width), area, buf);
}
