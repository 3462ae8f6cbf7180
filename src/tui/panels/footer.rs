//! The last two lines: what happened or what bounds the step, and the keys.

use super::chrome::{self, Part};
use crate::session::snapshot::RunState;
use crate::tui::keymap::{Action, Binding, Group};
use crate::tui::replay;
use crate::tui::state::{App, Panel};
use crate::tui::text::{fit, sanitise};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Draws the status line: the dashboard's own notice, the session's message, why the run ended, or the verdict.
pub fn render_status(app: &App, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let (area, bar) = replay::split(app, area);
    replay::render(app, bar, buf);
    let (mark, text, style) = status(app);
    let text = fit(
        &sanitise(&text, theme.glyphs.ascii),
        usize::from(area.width).saturating_sub(4),
        theme.glyphs.ellipsis,
    );
    let line = Line::from(vec![
        Span::styled(format!(" {mark} "), style),
        Span::styled(text, style),
    ]);
    chrome::put(&line, area, buf);
}

fn status(app: &App) -> (&'static str, String, Style) {
    let theme = &app.theme;
    let [running, paused, finished, failed, _] = theme.glyphs.state;
    if let Some(notice) = &app.notice {
        return (theme.glyphs.pointer, notice.clone(), theme.warn);
    }
    if let Some(message) = app.message() {
        return if message.is_error {
            (failed, message.text.clone(), theme.bad)
        } else {
            (theme.glyphs.pointer, message.text.clone(), theme.good)
        };
    }
    let key = |action| app.keymap.label(action).unwrap_or_default();
    let mut again = format!(
        ": {} runs it again, {} new prompt",
        key(Action::Restart),
        key(Action::EditPrompt)
    );
    let mut steps = format!(
        ": {} one layer, {} one token, {} go on",
        key(Action::StepLayer),
        key(Action::StepToken),
        key(Action::Pause)
    );
    if app.snapshot().playback.is_some() {
        (again, steps) = (String::new(), String::new());
    }
    match &app.snapshot().state {
        RunState::Failed { error } => (failed, format!("{error}{again}"), theme.bad),
        RunState::Finished { reason } => (finished, format!("{reason}{again}"), theme.warn),
        RunState::PausedAtLayer { next_layer } => {
            let layers = app.snapshot().model.n_layers;
            (
                paused,
                format!("paused before layer {next_layer} of {layers}{steps}"),
                theme.warn,
            )
        }
        RunState::Paused => (paused, format!("paused{steps}"), theme.warn),
        RunState::Prefill { done, total } => (
            running,
            format!("reading the prompt: {done} of {total} tokens"),
            theme.good,
        ),
        RunState::Decode => match &app.snapshot().critical_path {
            Some(path) => (theme.glyphs.pointer, path.verdict.clone(), theme.strong),
            None => (running, "generating".into(), theme.good),
        },
    }
}

/// Whether a key of one pane means something in the pane that has the focus.
fn acts_in_focus(app: &App, b: &Binding) -> bool {
    match (app.focus, b.group) {
        (Panel::Trace, group) => group == Group::Trace,
        (Panel::Model, _) => super::model::acts(app, b.action),
        (Panel::Advice, group) => group == Group::Advice,
        _ => false,
    }
}

/// Draws the main keys, help and quit always among them.
pub fn render_keys(app: &App, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let paused = matches!(
        app.snapshot().state,
        RunState::Paused | RunState::PausedAtLayer { .. }
    );
    let parts: Vec<Part> = app
        .keymap
        .bindings
        .iter()
        .enumerate()
        .filter_map(|(i, b)| {
            // Of the recommendations two keys are always there: the others only say something beside them.
            let of_pane = matches!(b.group, Group::Trace | Group::Model)
                || matches!(b.action, Action::TryAll | Action::Bandit);
            if of_pane && !acts_in_focus(app, b) {
                return None;
            }
            let word = match b.action {
                Action::Pause if paused => "go on",
                _ => b.short?,
            };
            let rank = if matches!(b.action, Action::Help | Action::Quit) {
                1
            } else if of_pane {
                2
            } else {
                3 + i as u8
            };
            let key = b.keys.first()?.label();
            Some(Part::new(
                rank,
                vec![
                    Span::styled(key, theme.accent),
                    Span::raw(" "),
                    Span::styled(word, theme.dim),
                ],
            ))
        })
        .collect();
    let mut line = chrome::join(
        parts,
        &Span::raw("  "),
        usize::from(area.width).saturating_sub(1),
    );
    line.spans.insert(0, Span::raw(" "));
    chrome::put(&line, area, buf);
}
