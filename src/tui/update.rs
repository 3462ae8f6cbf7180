//! What happens: messages change the state and give commands to the session. Pure: no clock, no terminal.

use super::columns::Phase;
use super::editor::{Editor, Outcome, Purpose};
use super::keymap::Action;
use super::layout::Mode;
use super::own::Own;
use super::panels;
use super::panels::advice::confirm;
use super::replay;
use super::state::{App, Overlay, Panel};
use crate::session::snapshot::{Command, Snapshot};
use crossterm::event::{KeyEvent, KeyEventKind, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};
use std::sync::Arc;

/// Something that happened.
#[derive(Debug, Clone)]
pub enum Message {
    /// A key.
    Key(KeyEvent),
    /// A mouse button or the wheel.
    Mouse(MouseEvent),
    /// Pasted text.
    Paste(String),
    /// The terminal has a new size.
    Resize(u16, u16),
    /// The session has something new.
    Snapshot(Arc<Snapshot>),
    /// What the dashboard itself costs.
    Own(Own),
}

/// Applies `message`; the commands are for the session, in order.
pub fn update(app: &mut App, message: Message) -> Vec<Command> {
    match message {
        Message::Key(key) if key.kind == KeyEventKind::Release => Vec::new(),
        Message::Key(key) => on_key(app, &key),
        Message::Mouse(mouse) => {
            if let Some(scrub) = replay::mouse(app, mouse) {
                return vec![Command::Scrub(scrub)];
            }
            on_mouse(app, mouse)
        }
        Message::Paste(text) => {
            on_paste(app, &text);
            Vec::new()
        }
        Message::Resize(width, height) => {
            app.area = Rect::new(0, 0, width, height);
            Vec::new()
        }
        Message::Snapshot(snapshot) => {
            app.take(snapshot);
            Vec::new()
        }
        Message::Own(own) => {
            app.take_own(own);
            Vec::new()
        }
    }
}

fn on_key(app: &mut App, key: &KeyEvent) -> Vec<Command> {
    if let Overlay::Edit(purpose, editor) = &mut app.overlay {
        let (purpose, editor) = (*purpose, std::mem::take(editor));
        app.overlay = Overlay::None;
        return on_editor_key(app, purpose, editor, key);
    }
    if let Overlay::Confirm(question) = &app.overlay {
        let question = question.clone();
        app.overlay = Overlay::None;
        return confirm::key(app, question, key);
    }
    let Some(action) = app.keymap.action(key) else {
        return Vec::new();
    };
    app.notice = None;
    if let Overlay::Help(top) = app.overlay {
        let last = panels::help::last_top(app, app.area);
        let page = i32::from(app.area.height / 2).max(1);
        let to = |by: i32| Overlay::Help((i32::from(top) + by).clamp(0, i32::from(last)) as u16);
        match action {
            Action::Help | Action::Back => app.overlay = Overlay::None,
            Action::Move(by) => app.overlay = to(by.into()),
            Action::Page(by) => app.overlay = to(i32::from(by) * page),
            Action::First => app.overlay = Overlay::Help(0),
            Action::Last => app.overlay = Overlay::Help(last),
            Action::Quit => return act(app, action),
            Action::Suspend => app.suspend = true,
            _ => {
                app.overlay = Overlay::None;
                return act(app, action);
            }
        }
        return Vec::new();
    }
    act(app, action)
}

fn on_editor_key(
    app: &mut App,
    purpose: Purpose,
    mut editor: Editor,
    key: &KeyEvent,
) -> Vec<Command> {
    let outcome = match purpose {
        Purpose::Prompt => editor.key(key, std::slice::from_ref(&app.snapshot().prompt)),
        Purpose::Statement => editor.key(key, &app.statements),
    };
    match (outcome, purpose) {
        (Outcome::Editing, _) => app.overlay = Overlay::Edit(purpose, editor),
        (Outcome::Cancel, _) => {}
        (Outcome::Quit, _) => return act(app, Action::Quit),
        (Outcome::Send(prompt), Purpose::Prompt) => {
            app.text_top = None;
            return vec![Command::NewPrompt(prompt)];
        }
        (Outcome::Send(statement), Purpose::Statement) => {
            panels::trace::remember(app, &statement);
            app.focus = Panel::Trace;
            return vec![Command::Trace(statement)];
        }
    }
    Vec::new()
}

fn on_paste(app: &mut App, text: &str) {
    if app.snapshot().playback.is_some() {
        app.notice = Some(replay::NO_SESSION.into());
        return;
    }
    match &mut app.overlay {
        Overlay::Edit(_, editor) => editor.insert(text),
        _ => {
            let mut editor = Editor::default();
            editor.insert(text);
            app.overlay = Overlay::Edit(Purpose::Prompt, editor);
        }
    }
}

fn act(app: &mut App, action: Action) -> Vec<Command> {
    match action {
        Action::Pause => return vec![Command::TogglePause],
        Action::StepToken => return vec![Command::StepToken],
        Action::StepLayer => return vec![Command::StepLayer],
        Action::Restart => {
            app.text_top = None;
            return vec![Command::Restart];
        }
        Action::ResetStats => return vec![Command::ResetStats],
        Action::Apply => confirm::ask(app),
        Action::TryAll => return confirm::ask_all(app),
        Action::Bandit => {
            let tuner = app.snapshot().tuner.as_deref();
            let on = tuner.is_some_and(|t| t.bandit.is_some());
            app.focus = Panel::Advice;
            return vec![Command::Bandit(!on)];
        }
        Action::Undo => return vec![Command::Undo],
        Action::Scrub(scrub) => return vec![Command::Scrub(scrub)],
        Action::NoSession => app.notice = Some(replay::NO_SESSION.into()),
        Action::Quit => {
            app.quit = true;
            return vec![Command::Quit];
        }
        Action::EditPrompt => app.overlay = Overlay::Edit(Purpose::Prompt, Editor::default()),
        Action::FocusNext => focus_by(app, 1),
        Action::FocusPrevious => focus_by(app, Panel::ALL.len() - 1),
        Action::Focus(index) => {
            if let Some(panel) = Panel::ALL.get(usize::from(index)) {
                app.focus = *panel;
            }
        }
        Action::Zoom => app.zoomed = !app.zoomed,
        Action::Back => {
            let tracing = app
                .snapshot()
                .trace
                .as_ref()
                .is_some_and(|t| t.work.is_some());
            if tracing && app.focus == Panel::Trace {
                return vec![Command::StopTrace];
            }
            if !app.dismiss() {
                app.zoomed = false;
            }
        }
        Action::Move(_) | Action::MoveSide(_) | Action::Page(_) | Action::First | Action::Last
            if app.focus == Panel::Model =>
        {
            return panels::model::go(app, action);
        }
        Action::TraceMap if app.focus == Panel::Model => return panels::model::act(app, action),
        Action::Move(by) => move_cursor(app, by.into()),
        Action::MoveSide(by) => match app.focus {
            Panel::Timeline => panels::timeline::pan(app, by.into()),
            Panel::Tree => panels::tree::fold(app, by < 0),
            Panel::Trace => panels::trace::move_position(app, by.into()),
            _ => move_layer(app, by.into()),
        },
        Action::Magnify(by) => match app.focus {
            Panel::Timeline => panels::timeline::magnify(app, by.into()),
            Panel::Layers => panels::heat::rescale(app, by.into()),
            _ => {}
        },
        Action::Page(by) if app.focus == Panel::Timeline => {
            panels::timeline::move_lane(app, by.into());
        }
        Action::Page(by) => {
            let rows = app
                .layout()
                .panel(app.focus)
                .map_or(1, |r| i64::from(r.height.saturating_sub(3).max(1)));
            move_cursor(app, i64::from(by) * rows);
        }
        Action::First => move_cursor(app, i64::MIN / 2),
        Action::Last => move_cursor(app, i64::MAX / 2),
        Action::SortNext => {
            let visible = panels::bricks::columns(app, brick_area(app));
            app.sort.next(&visible);
            app.brick_cursor = None;
        }
        Action::SortReverse => app.sort.reversed = !app.sort.reversed,
        Action::Phase => {
            app.phase = Some(match app.phase() {
                Phase::Decode => Phase::Prefill,
                Phase::Prefill => Phase::Decode,
            });
        }
        Action::Freeze => app.toggle_freeze(),
        Action::TraceLine => {
            app.overlay = Overlay::Edit(Purpose::Statement, Editor::default());
        }
        Action::TracePrompt
        | Action::JumpPhase
        | Action::NextAnswer
        | Action::TraceMap
        | Action::FollowTrace
        | Action::KeepTrace => return panels::trace::act(app, action),
        Action::TracerView(_)
        | Action::SwitchTracer
        | Action::SwitchTracers
        | Action::MeasureError => return panels::model::act(app, action),
        Action::Theme => {
            app.theme = app.theme.next();
            app.notice = Some(format!("theme: {}", app.theme.name.name()));
        }
        Action::Help => app.overlay = Overlay::Help(0),
        Action::Suspend => app.suspend = true,
    }
    Vec::new()
}

fn brick_area(app: &App) -> Rect {
    app.layout().panel(Panel::Bricks).unwrap_or(app.area)
}

fn focus_by(app: &mut App, by: usize) {
    let at = (app.focus.index() + by) % Panel::ALL.len();
    app.focus = Panel::ALL.get(at).copied().unwrap_or(Panel::Bricks);
}

/// `at` moved by `by` within `0..len`.
pub(super) fn moved(at: usize, by: i64, len: usize) -> usize {
    let last = len.saturating_sub(1) as i64;
    (at as i64).saturating_add(by).clamp(0, last) as usize
}

fn move_cursor(app: &mut App, by: i64) {
    match app.focus {
        Panel::Bricks => {
            let (rows, at) = app.sorted_rows();
            app.brick_cursor = rows.get(moved(at, by, rows.len())).map(|r| r.id);
        }
        Panel::Layers if panels::layers::shows_map(app) => panels::heat::move_cursor(app, by),
        Panel::Layers => move_layer(app, by),
        Panel::Text => {
            let Some(area) = app.layout().panel(Panel::Text) else {
                return;
            };
            let last = panels::text::last_top(app, area);
            let top = moved(app.text_top.unwrap_or(last), by, last + 1);
            app.text_top = (top < last).then_some(top);
        }
        Panel::Path => {
            let len = app
                .snapshot()
                .critical_path
                .as_ref()
                .map_or(0, |p| p.nodes.len());
            app.path_cursor = moved(app.path_cursor, by, len);
        }
        Panel::Advice => {
            let len = app.snapshot().recommendations.len();
            let at = app.selected_advice().map_or(0, |(at, _)| at);
            app.select_advice(moved(at, by, len));
        }
        Panel::Timeline => panels::timeline::move_cursor(app, by),
        Panel::Roofline => panels::roofline::move_cursor(app, by),
        Panel::Counters => panels::counters::move_cursor(app, by),
        Panel::Tree => panels::tree::move_cursor(app, by),
        Panel::Trace => panels::trace::move_layer(app, by),
        Panel::Debug => panels::debug::move_cursor(app, by),
        // Moves of the tracers' views give commands: they are in `panels::model`.
        Panel::Memory | Panel::Latency | Panel::Model => {}
    }
}

fn move_layer(app: &mut App, by: i64) {
    let len = app.snapshot().layers.len();
    if len == 0 {
        return;
    }
    app.layer_cursor = Some(match app.layer_cursor {
        Some(at) => moved(at, by, len),
        None if by < 0 => len - 1,
        None => moved(0, by.saturating_sub(1), len),
    });
}

fn on_mouse(app: &mut App, mouse: MouseEvent) -> Vec<Command> {
    let none = Vec::new();
    let at = Position::new(mouse.column, mouse.row);
    let layout = app.layout();
    let wheel = match mouse.kind {
        MouseEventKind::ScrollUp => -3,
        MouseEventKind::ScrollDown => 3,
        MouseEventKind::Down(MouseButton::Left) => 0,
        MouseEventKind::ScrollLeft | MouseEventKind::ScrollRight => {
            let by = if mouse.kind == MouseEventKind::ScrollLeft {
                -1
            } else {
                1
            };
            let over = |(panel, area): &(Panel, Rect)| *panel == Panel::Trace && area.contains(at);
            if app.overlay == Overlay::None && layout.panels.iter().any(over) {
                panels::trace::move_position(app, by);
            }
            return none;
        }
        _ => return none,
    };
    match &mut app.overlay {
        Overlay::None => {}
        Overlay::Help(top) if wheel != 0 => {
            let top = i32::from(*top) + wheel;
            let last = panels::help::last_top(app, app.area);
            app.overlay = Overlay::Help(top.clamp(0, i32::from(last)) as u16);
            return none;
        }
        Overlay::Help(_) | Overlay::Confirm(_) => {
            app.overlay = Overlay::None;
            return none;
        }
        Overlay::Edit(..) => return none,
    }
    if wheel == 0
        && layout.mode == Mode::Full
        && let Some((panel, _)) = panels::header::tabs(app, layout.header)
            .into_iter()
            .find(|(_, r)| r.contains(at))
    {
        app.focus = panel;
        return none;
    }
    let Some((panel, area)) = layout.panels.iter().find(|(_, r)| r.contains(at)).copied() else {
        return none;
    };
    app.focus = panel;
    if wheel != 0 {
        match panel {
            Panel::Timeline => panels::timeline::wheel(app, area, at, wheel.into()),
            Panel::Trace => panels::trace::wheel(app, area, at, wheel.into()),
            Panel::Model => return panels::model::go(app, Action::Move(wheel.signum() as i16)),
            _ => move_cursor(app, wheel.into()),
        }
        return none;
    }
    app.notice = None;
    if panel == Panel::Model {
        return panels::model::click(app, area, at);
    }
    click(app, panel, area, at);
    none
}

fn click(app: &mut App, panel: Panel, area: Rect, at: Position) {
    match panel {
        Panel::Bricks => {
            let line = panels::bricks::title_line(area);
            let columns = panels::bricks::columns(app, area);
            if let Some(hit) = columns.iter().find(|c| c.title_area(line).contains(at)) {
                app.sort.select(hit.column);
                app.brick_cursor = None;
            } else if let Some(id) = panels::bricks::row_at(app, area, at.y) {
                app.brick_cursor = Some(id);
            }
        }
        Panel::Layers => {
            if let Some(layer) = panels::layers::layer_at(app, area, at) {
                app.layer_cursor = Some(layer);
            }
            panels::heat::click(app, area, at);
        }
        Panel::Advice => {
            if let Some(index) = panels::advice::item_at(app, area, at.y) {
                app.select_advice(index);
            }
        }
        Panel::Timeline => panels::timeline::click(app, area, at),
        Panel::Tree => panels::tree::click(app, area, at),
        Panel::Trace => panels::trace::click(app, area, at),
        Panel::Roofline => panels::roofline::click(app, area, at),
        Panel::Text
        | Panel::Path
        | Panel::Memory
        | Panel::Counters
        | Panel::Latency
        | Panel::Model
        | Panel::Debug => {}
    }
}
