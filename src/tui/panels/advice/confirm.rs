//! The sheet that shows a change and what it takes before it is made.

use super::super::chrome;
use super::figures::{base, range};
use super::item::gain;
use super::open;
use crate::engine::knobs::{Cost, Numbers, knob};
use crate::session::snapshot::{Command, Recommendation, RecommendationStatus};
use crate::tui::format::tok_s;
use crate::tui::keymap::Action;
use crate::tui::state::{App, Overlay, Panel};
use crate::tui::text::{sanitise, wrap};
use crossterm::event::{KeyCode, KeyEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};

const WIDTH: u16 = 74;
const LABEL: usize = 10;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Whether to apply the recommendation of this id.
    Apply(String),
    /// Whether to try all that are open.
    TryAll,
}

/// Asks about the selected recommendation, or says why it cannot be applied.
pub fn ask(app: &mut App) {
    let Some((_, selected)) = app.selected_advice() else {
        app.notice = Some("no recommendation to apply yet".into());
        return;
    };
    let (id, title) = (selected.id.clone(), selected.title.clone());
    let refused = refusal(selected);
    app.focus = Panel::Advice;
    match refused {
        Some(why) => app.notice = Some(format!("\"{title}\" {why}")),
        None => app.overlay = Overlay::Confirm(Question::Apply(id)),
    }
}

/// Asks whether to try all; where that is being done, stops it.
pub fn ask_all(app: &mut App) -> Vec<Command> {
    let tuner = app.snapshot().tuner.as_deref();
    let racing = tuner.is_some_and(|t| t.race.is_some());
    let any = !open(app).is_empty();
    app.focus = Panel::Advice;
    match (racing, any) {
        (true, _) => return vec![Command::TryAll],
        (false, true) => app.overlay = Overlay::Confirm(Question::TryAll),
        (false, false) => app.notice = Some("no open recommendation that can be tried".into()),
    }
    Vec::new()
}

fn refusal(r: &Recommendation) -> Option<&'static str> {
    match r.status {
        RecommendationStatus::Measuring { .. } => Some("is being measured"),
        RecommendationStatus::Applied { .. } => Some("is applied already; undo it first"),
        _ if !r.applicable => Some("is for you to do outside a running session: its text says how"),
        _ => None,
    }
}

/// A key while `question` is asked.
pub fn key(app: &mut App, question: Question, key: &KeyEvent) -> Vec<Command> {
    let action = app.keymap.action(key);
    let asked_by = match question {
        Question::Apply(_) => Action::Apply,
        Question::TryAll => Action::TryAll,
    };
    if key.code == KeyCode::Enter || action == Some(asked_by) {
        return match question {
            Question::Apply(id) => apply(app, id),
            Question::TryAll => vec![Command::TryAll],
        };
    }
    match action {
        Some(Action::Back) => {}
        Some(Action::Quit) => {
            app.quit = true;
            return vec![Command::Quit];
        }
        Some(Action::Suspend) => app.suspend = true,
        _ => app.overlay = Overlay::Confirm(question),
    }
    Vec::new()
}

/// The answer may come after the recommendation has gone or changed.
fn apply(app: &mut App, id: String) -> Vec<Command> {
    let found = app.snapshot().recommendations.iter().find(|r| r.id == id);
    match found.map(refusal) {
        Some(None) => return vec![Command::Apply(id)],
        Some(Some(why)) => app.notice = Some(format!("it {why}")),
        None => app.notice = Some("it is not recommended any more; nothing was changed".into()),
    }
    Vec::new()
}

/// `threads 1 → 2, pin off → on`.
pub fn change(app: &App, r: &Recommendation) -> String {
    let g = &app.theme.glyphs;
    let one = |to: &crate::session::snapshot::Setting| {
        let now = r.now.iter().find(|s| s.knob == to.knob);
        let text = match now {
            Some(now) => format!("{} {} {} {}", to.knob, now.value, g.arrow, to.value),
            None => format!("{} {} {}", to.knob, g.arrow, to.value),
        };
        // The arrow is ours and ASCII where it must be; the rest may be anything.
        text.split(g.arrow)
            .map(|part| sanitise(part, g.ascii))
            .collect::<Vec<_>>()
            .join(g.arrow)
    };
    r.change.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// What making the change takes.
pub fn cost(r: &Recommendation) -> &'static str {
    let costs = r.change.iter().filter_map(|s| Some(knob(&s.knob)?.cost));
    match costs.max() {
        Some(Cost::Rebuild) => {
            "the engine is built again and reads the text so far once more; generation waits for that"
        }
        Some(Cost::Reload) => {
            "the weights are loaded again, the engine reads the text so far once more; generation waits for that"
        }
        None => "not known",
    }
}

/// What happens to the numbers that the model computes.
fn numbers(r: &Recommendation) -> &'static str {
    let kinds = r.change.iter().filter_map(|s| Some(knob(&s.knob)?.numbers));
    let rank = |n: &Numbers| match n {
        Numbers::Same => 0,
        Numbers::Rounding => 1,
        Numbers::Precision => 2,
    };
    match kinds.max_by_key(rank) {
        Some(Numbers::Same) => "logits stay the same to the last bit",
        Some(Numbers::Rounding) => "logits differ by rounding: sums are in another order",
        Some(Numbers::Precision) => "logits differ by more than rounding: answers may change",
        None => "not known",
    }
}

/// Draws the sheet over everything.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let Overlay::Confirm(question) = &app.overlay else {
        return;
    };
    let width = WIDTH.min(area.width);
    let lines = content(app, question, usize::from(width).saturating_sub(4));
    let height = (lines.len() as u16).saturating_add(2).min(area.height);
    let window = Rect::new(
        area.x + (area.width - width) / 2,
        area.y + (area.height - height) / 2,
        width,
        height,
    );
    Clear.render(window, buf);
    let title = match question {
        Question::Apply(_) => " apply this change? ",
        Question::TryAll => " try all, one by one? ",
    };
    let title = Line::styled(title, app.theme.accent);
    let inner = chrome::frame(
        app,
        window,
        buf,
        true,
        title,
        Line::default(),
        answers(app, question),
    );
    for (i, line) in lines.iter().enumerate() {
        chrome::put(line, chrome::row(inner, i), buf);
    }
}

fn answers(app: &App, question: &Question) -> Line<'static> {
    let theme = &app.theme;
    let (action, yes) = match question {
        Question::Apply(_) => (Action::Apply, "applies it"),
        Question::TryAll => (Action::TryAll, "begins"),
    };
    let mut spans = Vec::new();
    if let Some(key) = app.keymap.label(action) {
        spans.push(Span::styled(format!(" {key}"), theme.accent));
        spans.push(Span::styled(" or", theme.dim));
    }
    spans.push(Span::styled(" Enter", theme.accent));
    spans.push(Span::styled(format!(" {yes} "), theme.dim));
    if let Some(key) = app.keymap.label(Action::Back) {
        spans.push(Span::styled(format!("  {key}"), theme.accent));
        spans.push(Span::styled(" changes nothing ", theme.dim));
    }
    Line::from(spans)
}

fn content(app: &App, question: &Question, width: usize) -> Vec<Line<'static>> {
    match question {
        Question::Apply(id) => {
            let found = app.snapshot().recommendations.iter().find(|r| r.id == *id);
            found.map_or_else(
                || vec![Line::raw("It is not recommended any more.")],
                |r| about(app, r, width),
            )
        }
        Question::TryAll => about_all(app, width),
    }
}

fn about(app: &App, r: &Recommendation, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let g = &theme.glyphs;
    let mut lines = Vec::new();
    let title = sanitise(&r.title, g.ascii);
    lines.extend(fact("", &title, width, theme.strong));
    let changed = match r.change.is_empty() {
        true => "as its text says".into(),
        false => change(app, r),
    };
    lines.extend(fact("change", &changed, width, theme.strong));
    let expected = match (base(app), &r.expected, r.expected_tok_s) {
        (Some(now), Some(i), _) => format!(
            "{} ({} to {}): {} tok/s ({})",
            gain(now, i.mid),
            gain(now, i.low),
            gain(now, i.high),
            tok_s(Some(i.mid)),
            range(app, i)
        ),
        (Some(now), None, Some(v)) => format!("{}: {} tok/s", gain(now, v), tok_s(Some(v))),
        _ => match r.gain.filter(|_| r.of_prompts) {
            Some(i) => format!(
                "{} ({} to {}) of the rate of prompts",
                gain(1.0, i.mid),
                gain(1.0, i.low),
                gain(1.0, i.high)
            ),
            None => "not known until it is measured".into(),
        },
    };
    lines.extend(fact("expected", &expected, width, Style::new()));
    lines.extend(fact("takes", cost(r), width, Style::new()));
    lines.extend(fact("numbers", numbers(r), width, Style::new()));
    let risk = sanitise(&r.risk, g.ascii);
    let risk = if risk.is_empty() {
        "none known"
    } else {
        risk.as_str()
    };
    lines.extend(fact("risk", risk, width, Style::new()));
    let undo = app.keymap.label(Action::Undo);
    let undo = undo.map_or_else(String::new, |key| format!("; {key} undoes it"));
    let then = format!(
        "tokens with it and without it are timed in turns; it stays if they are faster, else it is taken back by itself{undo}"
    );
    lines.extend(fact("then", &then, width, Style::new()));
    lines
}

fn about_all(app: &App, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let text = "Each is applied and measured in turns with what is in force: what is faster stays, the rest is taken back. \
                One that is clearly slower is broken off early.";
    lines.extend(fact("", text, width, Style::new()));
    let open = open(app);
    let most = 8;
    for (i, r) in open.iter().take(most).enumerate() {
        let text = match r.change.is_empty() {
            true => sanitise(&r.title, app.theme.glyphs.ascii),
            false => change(app, r),
        };
        let label = format!("{:>3}", i + 1);
        lines.extend(fact(&label, &text, width, app.theme.strong));
    }
    if open.len() > most {
        let text = format!("and {} more", open.len() - most);
        lines.extend(fact("", &text, width, Style::new()));
    }
    let key = app.keymap.label(Action::TryAll).unwrap_or_default();
    let text = format!("{key} stops it at any time; what was kept until then stays in force");
    lines.extend(fact("", &text, width, Style::new()));
    lines
}

fn fact(label: &str, text: &str, width: usize, style: Style) -> Vec<Line<'static>> {
    let room = width.saturating_sub(LABEL);
    let line = |(i, range): (usize, std::ops::Range<usize>)| {
        let label = if i == 0 { label } else { "" };
        Line::from(vec![
            Span::raw(format!("{label:LABEL$}")),
            Span::styled(text.get(range).unwrap_or_default().to_string(), style),
        ])
    };
    wrap(text, room).into_iter().enumerate().map(line).collect()
}
