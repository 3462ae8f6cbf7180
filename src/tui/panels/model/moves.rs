//! Keys and mouse of the tracers' views.

use super::{Shown, activations, attention, by_key, logits, parts, quantisation, tabs};
use crate::session::snapshot::Command;
use crate::tracer::figures::TracerKind;
use crate::tui::keymap::Action;
use crate::tui::panels::chrome;
use crate::tui::state::{App, Panel};
use ratatui::layout::{Position, Rect};

/// Further than any list is long.
const FAR: i64 = i64::MAX / 2;

/// Whether a key of the trace pane or of this one means something in the view shown.
pub fn acts(app: &App, action: Action) -> bool {
    let place = &app.views.model;
    match action {
        Action::TracerView(_) | Action::SwitchTracer | Action::SwitchTracers => true,
        Action::TraceMap => {
            place.view == TracerKind::Attention && parts::is_on(app, TracerKind::Attention)
        }
        Action::MeasureError => place.view == TracerKind::Quantisation,
        _ => false,
    }
}

/// The keys of the pane; from another panel they bring it forward and change nothing yet.
pub fn act(app: &mut App, action: Action) -> Vec<Command> {
    if app.focus != Panel::Model {
        app.focus = Panel::Model;
        return Vec::new();
    }
    match action {
        Action::TracerView(by) => {
            let all = TracerKind::ALL;
            let at = all.iter().position(|k| *k == app.views.model.view);
            let to = (at.unwrap_or(0) as i64 + i64::from(by)).rem_euclid(all.len() as i64);
            if let Some(kind) = all.get(to as usize) {
                app.views.model.view = *kind;
            }
        }
        Action::SwitchTracer => {
            let kind = app.views.model.view;
            return vec![Command::Tracer(kind, !parts::is_on(app, kind))];
        }
        Action::SwitchTracers => {
            let on = !TracerKind::ALL.into_iter().all(|k| parts::is_on(app, k));
            let other = TracerKind::ALL
                .into_iter()
                .filter(|k| parts::is_on(app, *k) != on);
            return other.map(|k| Command::Tracer(k, on)).collect();
        }
        Action::MeasureError => return measure(app),
        Action::TraceMap => return toggle_by_key(app),
        _ => {}
    }
    Vec::new()
}

/// Starts or stops the measurement of the whole model, from the view that shows it.
fn measure(app: &mut App) -> Vec<Command> {
    let key = app.keymap.label(Action::MeasureError).unwrap_or_default();
    if app.views.model.view != TracerKind::Quantisation {
        app.views.model.view = TracerKind::Quantisation;
        app.notice = Some(format!("{key} here measures the error of the whole model"));
        return Vec::new();
    }
    let view = parts::frame(app).and_then(|f| f.quantisation.as_deref());
    let runs = view.is_some_and(|v| v.progress.is_some());
    vec![Command::MeasureError(!runs)]
}

/// Between all heads and one head, query by key.
fn toggle_by_key(app: &mut App) -> Vec<Command> {
    let Shown::Attention(view) = Shown::new(app) else {
        app.notice = Some("only the attention view has a map: it needs its tracer on".into());
        return Vec::new();
    };
    let at = attention::cursor(app, view);
    let elsewhere = at != (view.focus.layer, view.focus.head);
    let place = &mut app.views.model;
    place.by_key = !place.by_key;
    place.cell = None;
    if place.by_key && elsewhere {
        return ask(app, at);
    }
    Vec::new()
}

/// Asks the session for a head's queries; a recording has those that it has.
fn ask(app: &App, (layer, head): (u32, u32)) -> Vec<Command> {
    if app.snapshot().playback.is_some() {
        return Vec::new();
    }
    vec![Command::FocusHead(layer, head)]
}

/// The area below the tabs.
fn body(app: &App) -> Rect {
    let area = app.layout().panel(Panel::Model).unwrap_or(app.area);
    super::areas(chrome::inner(area)).1
}

/// Moves within the view shown.
pub fn go(app: &mut App, action: Action) -> Vec<Command> {
    let body = body(app);
    let page = match Shown::new(app) {
        Shown::Activations(view) => activations::page(view, body),
        _ => i64::from(body.height.saturating_sub(2).max(1)),
    };
    let (down, right) = match action {
        Action::Move(by) => (by.into(), 0),
        Action::MoveSide(by) => (0, by.into()),
        Action::Page(by) => (i64::from(by) * page, 0),
        Action::First => (-FAR, 0),
        Action::Last => (FAR, 0),
        _ => return Vec::new(),
    };
    match app.views.model.view {
        TracerKind::Activations => activations::move_layer(app, down),
        TracerKind::Attention => return move_head(app, body, down, right),
        TracerKind::Logits if right != 0 => logits::move_token(app, right),
        TracerKind::Logits => logits::move_layer(app, down),
        TracerKind::Quantisation => quantisation::move_brick(app, down),
        TracerKind::Kv => super::kv::scroll(app, body, down),
    }
    Vec::new()
}

/// Moves over the heads, which the session then shows over time; or over queries and keys.
fn move_head(app: &mut App, body: Rect, down: i64, right: i64) -> Vec<Command> {
    let Shown::Attention(view) = Shown::new(app) else {
        return Vec::new();
    };
    if app.views.model.by_key {
        let to = by_key::moved_cell(app, view, body, down, right);
        if to.is_some() {
            app.views.model.cell = to;
        }
        return Vec::new();
    }
    let to = attention::moved_head(app, view, down, right);
    let moved = to != attention::cursor(app, view);
    focus(app, to, moved)
}

/// Puts the cursor on a head.
fn focus(app: &mut App, to: (u32, u32), moved: bool) -> Vec<Command> {
    app.views.model.head = Some(to);
    app.views.model.cell = None;
    if moved { ask(app, to) } else { Vec::new() }
}

/// A click on a tab shows its view; on a layer, a head, a cell or a brick it selects it.
pub fn click(app: &mut App, area: Rect, at: Position) -> Vec<Command> {
    let (tab_line, body) = super::areas(chrome::inner(area));
    if let Some(kind) = tabs::at(app, tab_line, at) {
        app.views.model.view = kind;
        return Vec::new();
    }
    match Shown::new(app) {
        Shown::Activations(view) => {
            if let Some(layer) = activations::layer_at(app, view, body, at) {
                app.views.model.layer = Some(layer);
            }
        }
        Shown::Attention(view) if app.views.model.by_key => {
            let hit = by_key::hit(app, view, body, at);
            if hit.is_some() {
                app.views.model.cell = hit;
            }
        }
        Shown::Attention(view) => {
            let moved = attention::hit(app, view, body, at)
                .map(|to| (to, to != attention::cursor(app, view)));
            if let Some((to, moved)) = moved {
                return focus(app, to, moved);
            }
        }
        Shown::Logits(view) => {
            if let Some(passed) = logits::hit(app, view, body, at) {
                app.views.model.passed = Some(passed);
            }
        }
        Shown::Quantisation(view) => {
            if let Some(brick) = quantisation::hit(app, view, body, at) {
                app.views.model.brick = Some(brick);
            }
        }
        Shown::Kv(_) | Shown::Off(_) | Shown::Waits => {}
    }
    Vec::new()
}
