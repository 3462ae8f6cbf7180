//! Recommendations: what to change, why, and what it brought.

use super::chrome;
use crate::session::snapshot::{Recommendation, RecommendationStatus};
use crate::tui::format::{number, tok_s};
use crate::tui::keymap::Action;
use crate::tui::state::{App, Panel};
use crate::tui::text::{fit, sanitise, wrap};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Draws the panel.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let inner = chrome::panel(app, Panel::Advice, area, buf, heading(app), hint(app));
    if app.snapshot().recommendations.is_empty() {
        let text = "Nothing to change so far: rules look at threads, kernels and memory as tokens are timed.";
        for (i, r) in wrap(text, inner.width.into()).into_iter().enumerate() {
            let line = Line::styled(text.get(r).unwrap_or_default(), app.theme.dim);
            chrome::put(&line, chrome::row(inner, i), buf);
        }
        return;
    }
    let (lines, top) = window(app, inner);
    for (i, (item, line)) in lines.iter().skip(top).take(inner.height.into()).enumerate() {
        let place = chrome::row(inner, i);
        chrome::put(line, place, buf);
        let first = top + i == 0
            || lines
                .get(top + i - 1)
                .is_some_and(|(before, _)| before != item);
        if first
            && app.focus == Panel::Advice
            && app.selected_advice().is_some_and(|(at, _)| at == *item)
        {
            buf.set_style(place, app.theme.selected);
        }
    }
}

/// The recommendation drawn in screen line `y`.
pub fn item_at(app: &App, area: Rect, y: u16) -> Option<usize> {
    let inner = chrome::inner(area);
    let (lines, top) = window(app, inner);
    let line = usize::from(y.checked_sub(inner.y)?);
    lines
        .get(top + line)
        .filter(|_| line < usize::from(inner.height))
        .map(|(item, _)| *item)
}

/// All lines with the recommendation each belongs to, and the first one shown: the selected one is visible with its reasons.
fn window(app: &App, inner: Rect) -> (Vec<(usize, Line<'static>)>, usize) {
    let selected = app.selected_advice().map_or(0, |(at, _)| at);
    let rows = usize::from(inner.height);
    let width = usize::from(inner.width);
    let build = |all: bool| -> Vec<(usize, Line<'static>)> {
        let items = app.snapshot().recommendations.iter().enumerate();
        items
            .flat_map(|(i, r)| {
                item(app, r, width, all || i == selected)
                    .into_iter()
                    .map(move |l| (i, l))
            })
            .collect()
    };
    let all = build(true);
    let lines = if all.len() <= rows { all } else { build(false) };
    let first = lines.iter().position(|(i, _)| *i == selected).unwrap_or(0);
    let last = lines.iter().rposition(|(i, _)| *i == selected).unwrap_or(0);
    let top = chrome::scroll_to(last, rows).min(first);
    (lines, top)
}

fn heading(app: &App) -> Line<'static> {
    match app.snapshot().recommendations.len() {
        0 | 1 => Line::default(),
        n => Line::styled(
            format!(
                " {} of {n} ",
                app.selected_advice().map_or(0, |(at, _)| at + 1)
            ),
            app.theme.dim,
        ),
    }
}

/// Which keys help with the selected one.
fn hint(app: &App) -> Line<'static> {
    let theme = &app.theme;
    let Some((_, selected)) = app.selected_advice() else {
        return Line::default();
    };
    let (action, word) = match selected.status {
        RecommendationStatus::Measuring { .. } => return Line::default(),
        RecommendationStatus::Applied { .. } => (Action::Undo, "undoes it"),
        _ if !selected.applicable => return Line::styled(" not in a running session ", theme.dim),
        _ => (Action::Apply, "applies it"),
    };
    let Some(key) = app.keymap.label(action) else {
        return Line::default();
    };
    Line::from(vec![
        Span::styled(format!(" {key}"), theme.accent),
        Span::styled(format!(" {word} "), theme.dim),
    ])
}

fn item(app: &App, r: &Recommendation, width: usize, open: bool) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let g = &theme.glyphs;
    let (mark, style) = mark(app, &r.status);
    let title = sanitise(&r.title, g.ascii);
    let room = width.saturating_sub(2);
    // The selected title is shown whole.
    let titles: Vec<String> = if open {
        wrap(&title, room)
            .into_iter()
            .map(|l| title.get(l).unwrap_or_default().to_string())
            .collect()
    } else {
        vec![fit(&title, room, g.ellipsis)]
    };
    let mut lines: Vec<Line<'static>> = titles
        .into_iter()
        .enumerate()
        .map(|(i, text)| {
            let mark = if i == 0 {
                format!("{mark} ")
            } else {
                "  ".into()
            };
            Line::from(vec![
                Span::styled(mark, style),
                Span::styled(text, theme.strong),
            ])
        })
        .collect();
    lines.push(outcome(app, r));
    if open {
        let why = sanitise(&r.why, g.ascii);
        let wrapped = wrap(&why, width.saturating_sub(2));
        lines.extend(
            wrapped
                .into_iter()
                .map(|l| Line::styled(format!("  {}", why.get(l).unwrap_or_default()), theme.dim)),
        );
    }
    lines
}

fn mark(app: &App, status: &RecommendationStatus) -> (&'static str, Style) {
    let theme = &app.theme;
    let [open, measuring, gained, even, undone] = theme.glyphs.status;
    match status {
        RecommendationStatus::Open => (open, theme.accent),
        RecommendationStatus::Measuring { .. } => (measuring, theme.warn),
        RecommendationStatus::Applied {
            significant: true,
            before_tok_s,
            after_tok_s,
            ..
        } if after_tok_s > before_tok_s => (gained, theme.good),
        RecommendationStatus::Applied {
            significant: true, ..
        } => (even, theme.bad),
        RecommendationStatus::Applied { .. } => (even, theme.warn),
        RecommendationStatus::Reverted {
            significant: true, ..
        } => (undone, theme.bad),
        RecommendationStatus::Reverted { .. } | RecommendationStatus::Undone { .. } => {
            (undone, theme.dim)
        }
    }
}

/// `+16.7%` of `after` over `before`; empty when there is nothing to compare with.
fn gain(before: f64, after: f64) -> String {
    if before > 0.0 && after.is_finite() {
        let percent = number((after / before - 1.0) * 100.0, 1);
        format!(
            "{}{percent}%",
            if percent.starts_with('-') { "" } else { "+" }
        )
    } else {
        String::new()
    }
}

/// The line of figures: what is expected, or what was measured.
fn outcome(app: &App, r: &Recommendation) -> Line<'static> {
    let theme = &app.theme;
    let g = &theme.glyphs;
    let spans = match &r.status {
        RecommendationStatus::Open => match r.expected_tok_s {
            Some(expected) => {
                let now = app.snapshot().rates.decode_mean_tok_s.unwrap_or(0.0);
                vec![
                    Span::styled("  expected ", theme.dim),
                    Span::raw(format!("{} tok/s", tok_s(Some(expected)))),
                    Span::styled(format!(" {}", gain(now, expected)), theme.good),
                ]
            }
            None => vec![Span::styled(
                "  gain unknown until it is measured",
                theme.dim,
            )],
        },
        RecommendationStatus::Measuring { done, total } => {
            let share = if *total > 0 {
                f64::from(*done) / f64::from(*total)
            } else {
                0.0
            };
            let mut spans = vec![Span::styled("  measuring ", theme.warn)];
            spans.extend(chrome::bar(share, 12, g, theme.warn, theme.dim));
            spans.push(Span::styled(format!(" {done}/{total} tokens"), theme.dim));
            spans
        }
        RecommendationStatus::Applied {
            before_tok_s,
            after_tok_s,
            spread,
            significant,
        }
        | RecommendationStatus::Reverted {
            before_tok_s,
            after_tok_s,
            spread,
            significant,
        } => {
            let (verdict, style) = match (significant, after_tok_s > before_tok_s) {
                (true, true) => ("faster", theme.good),
                (true, false) => ("slower", theme.bad),
                (false, _) => ("within noise", theme.warn),
            };
            vec![
                Span::raw(format!(
                    "  {} {} {} tok/s ",
                    tok_s(Some(*before_tok_s)),
                    g.arrow,
                    tok_s(Some(*after_tok_s))
                )),
                Span::styled(gain(*before_tok_s, *after_tok_s), style),
                Span::styled(
                    format!(" {}{}% ", g.plus_minus, number(spread * 100.0, 1)),
                    theme.dim,
                ),
                Span::styled(verdict, style),
            ]
        }
        RecommendationStatus::Undone {
            with_tok_s,
            without_tok_s,
        } => vec![Span::styled(
            format!(
                "  undone: {} with it, {} tok/s without",
                tok_s(Some(*with_tok_s)),
                tok_s(Some(*without_tok_s))
            ),
            theme.dim,
        )],
    };
    Line::from(spans)
}
