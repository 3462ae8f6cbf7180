//! One recommendation as lines.

use super::super::chrome::{self, Part};
use super::confirm;
use super::figures::{base, range};
use crate::session::snapshot::{Recommendation, RecommendationStatus as Status};
use crate::tui::format::{number, tok_s};
use crate::tui::state::App;
use crate::tui::text::{fit, sanitise, width as columns, wrap};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Columns before a title and before what stands below it.
const INDENT: usize = 2;
const LABEL: usize = 6;

/// Its title with the gain, what is expected or came of it, and with `open` the reasons.
pub fn lines(app: &App, r: &Recommendation, width: usize, open: bool) -> Vec<Line<'static>> {
    let mut lines = title(app, r, width, open);
    lines.push(outcome(app, r, width));
    if open {
        for (label, text) in details(app, r) {
            lines.extend(labelled(app, label, &text, width));
        }
    }
    lines
}

fn title(app: &App, r: &Recommendation, width: usize, whole: bool) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let g = &theme.glyphs;
    let (mark, style) = mark(app, &r.status);
    let (gain, gain_style) = gained(app, r);
    let room = width.saturating_sub(INDENT + columns(&gain) + 1);
    let text = sanitise(&r.title, g.ascii);
    let parts: Vec<String> = if whole {
        let ranges = wrap(&text, room).into_iter();
        ranges
            .map(|l| text.get(l).unwrap_or_default().trim_end().to_string())
            .collect()
    } else {
        vec![fit(&text, room, g.ellipsis)]
    };
    let line = |(i, text): (usize, String)| {
        let first = i == 0;
        let mark = if first {
            format!("{mark} ")
        } else {
            " ".repeat(INDENT)
        };
        let mut spans = vec![
            Span::styled(mark, style),
            Span::styled(chrome::left(&text, room, g.ellipsis), theme.strong),
        ];
        if first {
            spans.push(Span::styled(format!(" {gain}"), gain_style));
        }
        Line::from(spans)
    };
    parts.into_iter().enumerate().map(line).collect()
}

fn mark(app: &App, status: &Status) -> (&'static str, Style) {
    let theme = &app.theme;
    let [open, measuring, gained, even, undone] = theme.glyphs.status;
    match status {
        Status::Open => (open, theme.accent),
        Status::Measuring { .. } => (measuring, theme.warn),
        Status::Applied {
            significant: true,
            before_tok_s,
            after_tok_s,
            ..
        } if after_tok_s > before_tok_s => (gained, theme.good),
        Status::Applied {
            significant: true, ..
        } => (even, theme.bad),
        Status::Applied { .. } => (even, theme.warn),
        Status::Reverted {
            significant: true, ..
        } => (undone, theme.bad),
        Status::Reverted { .. } | Status::Undone { .. } => (undone, theme.dim),
    }
}

/// `+16.7%` of `after` over `before`; empty when there is nothing to compare with.
pub fn gain(before: f64, after: f64) -> String {
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

/// The gain expected or measured, for the right edge.
fn gained(app: &App, r: &Recommendation) -> (String, Style) {
    let theme = &app.theme;
    match &r.status {
        Status::Open | Status::Measuring { .. } => {
            let text = r
                .ratio(base(app))
                .map_or_else(String::new, |ratio| gain(1.0, ratio));
            match text.is_empty() {
                true => ("?".into(), theme.dim),
                false => (text, theme.good),
            }
        }
        Status::Applied {
            before_tok_s,
            after_tok_s,
            ..
        }
        | Status::Reverted {
            before_tok_s,
            after_tok_s,
            ..
        } => (gain(*before_tok_s, *after_tok_s), verdict(app, &r.status).1),
        Status::Undone {
            with_tok_s,
            without_tok_s,
        } => (gain(*without_tok_s, *with_tok_s), theme.dim),
    }
}

fn verdict(app: &App, status: &Status) -> (&'static str, Style) {
    let theme = &app.theme;
    match status {
        Status::Applied {
            before_tok_s,
            after_tok_s,
            significant,
            ..
        }
        | Status::Reverted {
            before_tok_s,
            after_tok_s,
            significant,
            ..
        } => match (significant, after_tok_s > before_tok_s) {
            (true, true) => ("faster", theme.good),
            (true, false) => ("slower", theme.bad),
            (false, _) => ("no difference", theme.warn),
        },
        _ => ("", theme.dim),
    }
}

/// The line of figures: what is expected, how far a measurement is, or what was measured.
fn outcome(app: &App, r: &Recommendation, width: usize) -> Line<'static> {
    let theme = &app.theme;
    let g = &theme.glyphs;
    let mut spans = vec![Span::raw(" ".repeat(INDENT))];
    match &r.status {
        Status::Open => {
            let gap = Span::raw(" ");
            let room = width.saturating_sub(INDENT);
            spans.extend(chrome::join(expected(app, r), &gap, room).spans);
        }
        Status::Measuring { done, total } => {
            let share = f64::from(*done) / f64::from((*total).max(1));
            spans.push(Span::styled("measuring ", theme.warn));
            spans.extend(chrome::bar(share, 12, g, theme.warn, theme.dim));
            let what = if r.of_prompts { "prompts" } else { "tokens" };
            spans.push(Span::styled(format!(" {done}/{total} {what}"), theme.dim));
        }
        Status::Applied {
            before_tok_s,
            after_tok_s,
            spread,
            ..
        }
        | Status::Reverted {
            before_tok_s,
            after_tok_s,
            spread,
            ..
        } => {
            let kept = matches!(r.status, Status::Applied { .. });
            let (verdict, style) = verdict(app, &r.status);
            let word = if kept { "in force: " } else { "taken back: " };
            spans.push(Span::styled(word, theme.dim));
            spans.push(Span::styled(verdict, style));
            let before = tok_s(Some(*before_tok_s));
            let after = tok_s(Some(*after_tok_s));
            let of = if r.of_prompts { " of prompts" } else { "" };
            spans.push(Span::raw(format!(
                ", {before} {} {after} tok/s{of}",
                g.arrow
            )));
            let spread = number(spread * 100.0, 1);
            let text = format!(" {}{spread}%", g.plus_minus);
            spans.push(Span::styled(text, theme.dim));
        }
        Status::Undone {
            with_tok_s,
            without_tok_s,
        } => {
            let with = tok_s(Some(*with_tok_s));
            let without = tok_s(Some(*without_tok_s));
            let text = format!("undone: {with} with it, {without} tok/s without");
            spans.push(Span::styled(text, theme.dim));
        }
    }
    let mut line = Line::from(spans);
    if line.width() > width {
        let text: String = line.spans.iter().map(|s| s.content.as_ref()).collect();
        line = Line::styled(fit(&text, width, g.ellipsis), theme.dim);
    }
    line
}

/// The change, then the rate as far as there is room.
fn expected(app: &App, r: &Recommendation) -> Vec<Part> {
    let theme = &app.theme;
    let dim = |rank, text: String| Part::new(rank, vec![Span::styled(text, theme.dim)]);
    let mut parts = Vec::new();
    if !r.change.is_empty() {
        let text = format!("{},", confirm::change(app, r));
        parts.push(Part::new(0, vec![Span::raw(text)]));
    } else if !r.applicable {
        parts.push(dim(0, "outside cbtop,".into()));
    }
    match r.expected.map(|i| i.mid).or(r.expected_tok_s) {
        Some(v) => {
            parts.push(dim(3, "expected".into()));
            let text = format!("{} tok/s", tok_s(Some(v)));
            parts.push(Part::new(1, vec![Span::raw(text)]));
            parts.extend(r.expected.map(|i| dim(2, format!("({})", range(app, &i)))));
        }
        None if r.of_prompts && r.gain.is_some() => {
            parts.push(dim(1, "of the rate of prompts".into()))
        }
        None => parts.push(dim(1, "gain not known until measured".into())),
    }
    parts
}

fn details(app: &App, r: &Recommendation) -> Vec<(&'static str, String)> {
    let ascii = app.theme.glyphs.ascii;
    let mut details = vec![
        ("why", sanitise(&r.why, ascii)),
        ("from", sanitise(&r.evidence, ascii)),
        ("risk", sanitise(&r.risk, ascii)),
    ];
    if r.status == Status::Open && !r.change.is_empty() {
        details.push(("cost", confirm::cost(r).into()));
    }
    details.retain(|(_, text)| !text.is_empty());
    details
}

fn labelled(app: &App, label: &'static str, text: &str, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let room = width.saturating_sub(INDENT + LABEL);
    let line = |(i, range): (usize, std::ops::Range<usize>)| {
        let label = if i == 0 { label } else { "" };
        Line::from(vec![
            Span::raw(" ".repeat(INDENT)),
            Span::styled(format!("{label:LABEL$}"), theme.accent),
            Span::styled(text.get(range).unwrap_or_default().to_string(), theme.dim),
        ])
    };
    wrap(text, room).into_iter().enumerate().map(line).collect()
}
