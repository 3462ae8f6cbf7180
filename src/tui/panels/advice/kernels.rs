//! Kernel variants: how the model votes, and what the bandit has found.

use super::super::chrome;
use super::super::table::{self, Column};
use super::figures::{Detail, tried_all, wrapped};
use crate::session::snapshot::{BanditFrame, TunerFrame};
use crate::tui::format::{count, number, tok_s};
use crate::tui::keymap::Action;
use crate::tui::state::App;
use crate::tui::text::{fit, sanitise};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

const NAME: usize = 16;
/// Variants shown of those voted for.
const VOTES: usize = 5;
const BAR: usize = 12;

/// What stands below or beside the list.
pub fn section(app: &App, width: usize, detail: Detail) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let mut lines = Vec::new();
    if detail == Detail::None {
        return lines;
    }
    if let Some(text) = tried_all(app) {
        lines.extend(wrapped(&text, "", width, theme.strong));
    }
    let Some(t) = app.snapshot().tuner.as_deref() else {
        return lines;
    };
    match (&t.bandit, detail) {
        (Some(b), Detail::Full) => {
            lines.extend(votes(app, t, width));
            lines.extend(bandit(app, b, width));
        }
        (Some(b), _) => {
            let text = format!("bandit: {}", state(app, b));
            lines.push(Line::raw(fit(&text, width, theme.glyphs.ellipsis)));
        }
        (None, Detail::Full) => {
            lines.extend(votes(app, t, width));
            if let Some(key) = app.keymap.label(Action::Bandit) {
                lines.push(Line::from(vec![
                    Span::styled(key, theme.accent),
                    Span::styled(" lets a bandit try kernels as tokens come", theme.dim),
                ]));
            }
        }
        (None, _) => {}
    }
    lines
}

fn votes(app: &App, t: &TunerFrame, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let g = &theme.glyphs;
    if t.kernels.is_empty() {
        return Vec::new();
    }
    let name = NAME.min(width / 2);
    let mut lines = vec![Line::styled("best kernels by the model", theme.dim)];
    for (kernel, share) in t.kernels.iter().take(VOTES) {
        let mut spans = vec![Span::raw(chrome::left(
            &sanitise(kernel, g.ascii),
            name,
            g.ellipsis,
        ))];
        let percent = format!("{}% ", number(share * 100.0, 0));
        spans.push(Span::raw(chrome::right(&percent, 6, g.ellipsis)));
        if width > name + 6 + BAR {
            spans.extend(chrome::bar(*share, BAR, g, theme.accent, theme.dim));
        }
        lines.push(Line::from(spans));
    }
    lines.push(Line::default());
    lines
}

/// `avx512 in use, exploring cost 0.3% of at most 1.0%`.
fn state(app: &App, b: &BanditFrame) -> String {
    format!(
        "{} in use, exploring cost {}% of the time, at most {}%",
        sanitise(&b.current, app.theme.glyphs.ascii),
        number(b.regret_share * 100.0, 2),
        number(b.bound * 100.0, 2)
    )
}

fn bandit(app: &App, b: &BanditFrame, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let g = &theme.glyphs;
    let mut spans = vec![Span::styled("bandit over kernels", theme.strong)];
    if let Some(key) = app.keymap.label(Action::Bandit) {
        spans.push(Span::styled(format!("  {key}"), theme.accent));
        spans.push(Span::styled(" stops it", theme.dim));
    }
    let mut lines = vec![Line::from(spans)];
    lines.extend(wrapped(&state(app, b), "", width, Style::new()));
    let columns = [
        Column::text("kernel", (NAME + 2).min(width / 2), 0),
        Column::number("tok/s", 8, 0),
        Column::number("tokens", 8, 1),
    ];
    let rows = b.arms.iter().map(|arm| {
        let name = sanitise(&arm.name, g.ascii);
        let (mark, style) = if arm.name == b.current {
            (g.pointer, theme.strong)
        } else {
            (" ", Style::new())
        };
        vec![
            (format!("{mark} {name}"), style),
            (tok_s(arm.tok_s), style),
            (count(arm.tokens), style),
        ]
    });
    lines.extend(table::lines(app, &columns, rows.collect(), width));
    lines
}
