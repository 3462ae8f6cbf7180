//! What is measured, what is predicted and what limits a token.

use super::super::chrome::{self, Part};
use super::item::gain;
use crate::session::snapshot::{BottleneckFrame, Interval, RecommendationStatus, TunerFrame};
use crate::tui::format::{number, tok_s};
use crate::tui::state::App;
use crate::tui::text::{fit, sanitise, wrap};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// How much is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Nothing.
    None,
    /// One line.
    Line,
    /// The figures without their sources.
    Short,
    /// Everything.
    Full,
}

const LABEL: usize = 19;
const RATE: usize = 8;
const RANGE: usize = 17;
const GAIN: usize = 8;

/// The rate that gains are compared with: what is measured.
pub fn base(app: &App) -> Option<f64> {
    let s = app.snapshot();
    let tuner = s.tuner.as_deref().and_then(|t| t.current_tok_s);
    tuner.or(s.rates.decode_mean_tok_s)
}

/// `151.0–180.0`.
pub fn range(app: &App, i: &Interval) -> String {
    let to = app.theme.glyphs.to;
    format!("{}{to}{}", tok_s(Some(i.low)), tok_s(Some(i.high)))
}

/// The figures, with the race where one is run and the warnings there are.
pub fn head(app: &App, width: usize, detail: Detail) -> Vec<Line<'static>> {
    let Some(t) = app.snapshot().tuner.as_deref() else {
        return Vec::new();
    };
    let mut lines = match detail {
        Detail::None => return Vec::new(),
        Detail::Line => vec![one_line(app, t, width)],
        Detail::Short => short(app, t, width),
        Detail::Full => full(app, t, width),
    };
    if let Some(line) = race(app, t).filter(|_| detail != Detail::Line) {
        lines.push(line);
    }
    lines.extend(warnings(app, t, width, detail));
    if detail == Detail::Full {
        lines.push(Line::default());
    }
    lines
}

fn one_line(app: &App, t: &TunerFrame, width: usize) -> Line<'static> {
    let theme = &app.theme;
    let mut parts = Vec::new();
    if let Some(line) = race(app, t) {
        parts.push(Part::new(0, line.spans));
    }
    if let Some(mid) = t.with_changes.map(|i| i.mid) {
        let spans = vec![
            Span::styled("with all ", theme.dim),
            Span::raw(format!("{} tok/s", tok_s(Some(mid)))),
        ];
        parts.push(Part::new(1, spans));
    } else if let Some(mid) = t.predicted.map(|i| i.mid) {
        let spans = vec![
            Span::styled("predicted ", theme.dim),
            Span::raw(format!("{} tok/s", tok_s(Some(mid)))),
        ];
        parts.push(Part::new(1, spans));
    }
    match (&t.limit, &t.bottleneck) {
        (Some(l), _) => {
            let share = number(l.share * 100.0, 0);
            let text = format!("limit {} {share}%", sanitise(&l.class, theme.glyphs.ascii));
            parts.push(Part::new(2, vec![Span::raw(text)]));
        }
        (None, Some(b)) => {
            let text = format!("limit {} {}", class(app, b), sure(b));
            parts.push(Part::new(2, vec![Span::raw(text)]));
        }
        (None, None) => {}
    }
    chrome::join(parts, &Span::styled(dot(app), theme.dim), width)
}

fn dot(app: &App) -> String {
    format!(" {} ", app.theme.glyphs.dot)
}

fn class(app: &App, b: &BottleneckFrame) -> String {
    sanitise(&b.class, app.theme.glyphs.ascii)
}

fn sure(b: &BottleneckFrame) -> String {
    format!("({}% sure)", number(b.confidence * 100.0, 0))
}

/// What limits a token: as measured where it was, and what the model says with `why`.
fn limited(app: &App, t: &TunerFrame) -> Option<String> {
    let ascii = app.theme.glyphs.ascii;
    let predicted = t.bottleneck.as_ref().map(|b| {
        let reasons = match sanitise(&b.why, ascii).as_str() {
            "" => String::new(),
            reasons => format!(": {reasons}"),
        };
        let agrees = t.limit.as_ref().is_some_and(|l| l.class == b.class);
        match (&t.limit, agrees) {
            (None, _) => format!("{} {}{reasons}", class(app, b), sure(b)),
            (_, true) => format!(", as the model says {}{reasons}", sure(b)),
            (_, false) => format!("; the model says {} {}{reasons}", class(app, b), sure(b)),
        }
    });
    let measured = t.limit.as_ref().map(|l| {
        let share = number(l.share * 100.0, 0);
        format!("{}, {share}% of a token", sanitise(&l.class, ascii))
    });
    let text = [measured, predicted]
        .into_iter()
        .flatten()
        .collect::<String>();
    (!text.is_empty()).then(|| format!("limited by {text}"))
}

fn short(app: &App, t: &TunerFrame, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let g = &theme.glyphs;
    let rate = |label: &str, value: String, more: String, rank| {
        let spans = vec![
            Span::styled(format!("{label} "), theme.dim),
            Span::raw(value),
            Span::styled(more, theme.dim),
        ];
        Part::new(rank, spans)
    };
    let line = |ranges: bool| {
        let predicted = |label: &str, i: Interval, rank| {
            let range = match ranges {
                true => format!(" ({})", range(app, &i)),
                false => String::new(),
            };
            rate(label, tok_s(Some(i.mid)), range, rank)
        };
        let mut parts = Vec::new();
        parts.extend(base(app).map(|v| rate("now", tok_s(Some(v)), String::new(), 0)));
        parts.extend(t.predicted.map(|i| predicted("predicted", i, 2)));
        parts.extend(t.with_changes.map(|i| predicted("tuned", i, 1)));
        let gap = Span::styled(dot(app), theme.dim);
        let unit = Span::styled(" tok/s", theme.dim);
        let room = if ranges { usize::MAX } else { width };
        let mut line = chrome::join(parts, &gap, room.saturating_sub(unit.width()));
        line.spans.push(unit);
        line
    };
    let with_ranges = line(true);
    let mut lines = vec![if with_ranges.width() <= width {
        with_ranges
    } else {
        line(false)
    }];
    if let Some(text) = limited(app, t) {
        lines.push(Line::raw(fit(&text, width, g.ellipsis)));
    }
    lines
}

/// A table of rates, then what limits and what predicts.
fn full(app: &App, t: &TunerFrame, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let g = &theme.glyphs;
    let with_range = width >= LABEL + RATE + RANGE;
    let with_gain = width >= LABEL + RATE + RANGE + GAIN;
    let row = |label: &str, cells: [String; 3], style: Style| {
        let mut spans = vec![
            Span::styled(chrome::left(label, LABEL, g.ellipsis), theme.dim),
            Span::styled(chrome::right(&cells[0], RATE, g.ellipsis), style),
        ];
        if with_range {
            let text = chrome::right(&cells[1], RANGE, g.ellipsis);
            spans.push(Span::styled(text, theme.dim));
        }
        if with_gain {
            let text = chrome::right(&cells[2], GAIN, g.ellipsis);
            let good = cells[2].starts_with('+');
            let style = if good { theme.good } else { theme.dim };
            spans.push(Span::styled(text, style));
        }
        Line::from(spans)
    };
    let titles = ["tok/s", "90% interval", "gain"].map(String::from);
    let mut lines = vec![row("", titles, theme.dim)];
    let now = base(app);
    let measured = [tok_s(now), String::new(), String::new()];
    lines.push(row("measured now", measured, theme.strong));
    let predicted = |i: &Interval, gain| [tok_s(Some(i.mid)), range(app, i), gain];
    if let Some(i) = &t.predicted {
        let cells = predicted(i, String::new());
        lines.push(row("predicted for this", cells, Style::new()));
    }
    if let Some(i) = &t.with_changes {
        let cells = predicted(i, now.map_or_else(String::new, |v| gain(v, i.mid)));
        lines.push(row("with all changes", cells, theme.strong));
    }
    if let Some(text) = limited(app, t) {
        lines.extend(wrapped(&text, "", width, Style::new()));
    }
    let method = sanitise(&t.method, g.ascii);
    let model = sanitise(&t.model, g.ascii);
    if !method.is_empty() {
        let text = match model.as_str() {
            "" | "none" => format!("predicted by {method}; no model is in use"),
            _ => format!("predicted by {method}; model {model}"),
        };
        lines.extend(wrapped(&text, "", width, theme.dim));
    }
    lines
}

fn race(app: &App, t: &TunerFrame) -> Option<Line<'static>> {
    let race = t.race.as_ref()?;
    let theme = &app.theme;
    let share = f64::from(race.done) / f64::from(race.total.max(1));
    let mut spans = vec![Span::styled("trying all ", theme.warn)];
    spans.extend(chrome::bar(share, 10, &theme.glyphs, theme.warn, theme.dim));
    let text = format!(" {} of {} tried, {} kept", race.done, race.total, race.kept);
    spans.push(Span::raw(text));
    Some(Line::from(spans))
}

/// Warnings with a mark; in little room the first alone, cut.
fn warnings(app: &App, t: &TunerFrame, width: usize, detail: Detail) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let g = &theme.glyphs;
    let texts = t.warnings.iter().map(|w| sanitise(w, g.ascii));
    match detail {
        Detail::Full => texts
            .flat_map(|w| wrapped(&w, "! ", width, theme.warn))
            .collect(),
        _ => texts
            .take(1)
            .map(|w| Line::styled(fit(&format!("! {w}"), width, g.ellipsis), theme.warn))
            .collect(),
    }
}

/// `text` in lines of `width`, `mark` before the first and as many spaces before the others.
pub fn wrapped(text: &str, mark: &str, width: usize, style: Style) -> Vec<Line<'static>> {
    let indent = mark.chars().count();
    let lines = wrap(text, width.saturating_sub(indent)).into_iter();
    lines
        .enumerate()
        .map(|(i, range)| {
            let part = text.get(range).unwrap_or_default();
            let before = if i == 0 {
                mark.to_string()
            } else {
                " ".repeat(indent)
            };
            Line::styled(format!("{before}{part}"), style)
        })
        .collect()
}

/// Why there is nothing in the list.
pub fn nothing(app: &App, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let Some(t) = app.snapshot().tuner.as_deref() else {
        let text = "Nothing to change so far: rules look at threads, kernels and memory as tokens are timed.";
        return wrapped(text, "", width, theme.dim);
    };
    let says = match t.says.as_str() {
        "" => {
            "Nothing to change: no setting of this engine is expected to make generation faster here."
        }
        says => &sanitise(says, theme.glyphs.ascii),
    };
    let mut lines = wrapped(says, "", width, theme.strong);
    let measured = t.limit.as_ref().map(|l| l.class.as_str());
    let helps = match measured.or(t.bottleneck.as_ref().map(|b| b.class.as_str())) {
        Some("memory") => {
            "Memory limits a token: fewer bytes (a smaller quantisation, several sequences at once) or more bandwidth would help."
        }
        Some("compute") => {
            "Arithmetic limits a token: more cores or a processor with wider vectors would help."
        }
        Some("launch") => {
            "Waiting and dispatch limit a token: the model is small for this machine; several sequences at once would help."
        }
        Some("attention") => "Attention limits a token: a shorter context would help.",
        _ => "",
    };
    if !helps.is_empty() {
        lines.extend(wrapped(helps, "", width, theme.dim));
    }
    lines
}

/// After everything was tried: what came of it, for the line below the list.
pub fn tried_all(app: &App) -> Option<String> {
    let all = &app.snapshot().recommendations;
    let open = |s: &RecommendationStatus| {
        matches!(
            s,
            RecommendationStatus::Open | RecommendationStatus::Measuring { .. }
        )
    };
    let is_left = |r: &crate::session::snapshot::Recommendation| {
        r.is_for_all() || matches!(r.status, RecommendationStatus::Measuring { .. })
    };
    if all.is_empty() || all.iter().any(is_left) {
        return None;
    }
    let kept = |r: &&crate::session::snapshot::Recommendation| {
        matches!(r.status, RecommendationStatus::Applied { .. })
    };
    let tried = all.iter().filter(|r| !open(&r.status)).count();
    let kept = all.iter().filter(kept).count();
    (tried > 0).then(|| {
        format!("All {tried} tried, {kept} in force: nothing else is expected to make it faster.")
    })
}
