//! Keys and mouse of the trace pane.

use super::reading::{Reading, frame, shows_map};
use super::{chart, compare, map, plan, strip, table};
use crate::session::snapshot::Command;
use crate::trace::job::TOP;
use crate::trace::lang::{Positions, Statement, Trace};
use crate::tui::keymap::Action;
use crate::tui::panels::chrome;
use crate::tui::state::{App, Panel};
use crate::tui::update::moved;
use ratatui::layout::{Position, Rect};

/// Statements remembered, the oldest forgotten first.
const STATEMENTS: usize = 100;

/// The numbers of the layers shown, ascending, and the index of the one under the cursor.
fn layers(app: &App) -> Option<(Vec<u32>, usize)> {
    let r = Reading::shown(app)?;
    Some(match Reading::beside(app) {
        Some(b) => {
            let layers = compare::layers(r, b);
            let at = compare::cursor(app, r, &layers);
            (layers, at)
        }
        None => {
            let layers = r.ways().iter().map(|w| w.layer).collect();
            (layers, r.cursor(app.views.trace.layer))
        }
    })
}

/// Moves to the layer `by` rows further down.
pub fn move_layer(app: &mut App, by: i64) {
    if shows_map(app) {
        return map::move_cursor(app, by, 0);
    }
    let to = layers(app).and_then(|(layers, at)| layers.get(moved(at, by, layers.len())).copied());
    if to.is_some() {
        app.views.trace.layer = to;
    }
}

/// Moves to the traced position `by` further to the right; from the last one on the text is followed.
pub fn move_position(app: &mut App, by: i64) {
    if shows_map(app) {
        return map::move_cursor(app, 0, by);
    }
    let to = Reading::shown(app).map(|r| {
        let positions = &r.view.positions;
        let to = moved(r.position_index(), by, positions.len());
        let inside = to + 1 < positions.len();
        positions.get(to).filter(|_| inside).map(|p| p.position)
    });
    if let Some(to) = to {
        app.views.trace.position = to;
    }
}

/// The wheel over the pane: over the tokens it moves sideways, elsewhere a layer at a time.
pub fn wheel(app: &mut App, area: Rect, at: Position, by: i64) {
    let plan = plan::current(app, chrome::inner(area));
    if !shows_map(app) && plan.strip.contains(at) {
        move_position(app, by.signum());
    } else {
        move_layer(app, by.signum());
    }
}

/// A click selects a layer, in the table or in the chart, a token, or a cell of the map.
pub fn click(app: &mut App, area: Rect, at: Position) {
    let inner = chrome::inner(area);
    if shows_map(app) {
        return map::click(app, inner, at);
    }
    let plan = plan::current(app, inner);
    let Some(r) = Reading::shown(app) else {
        return;
    };
    if plan.strip.contains(at) {
        let hit = strip::position_at(app, r, plan.strip, at.x);
        // Of a token that was not traced the nearest one that was.
        let nearest = |p: u32| {
            r.view
                .positions
                .iter()
                .min_by_key(|t| t.position.abs_diff(p))
        };
        let last = r.view.positions.last().map(|p| p.position);
        if let Some(to) = hit.and_then(nearest).map(|p| p.position) {
            app.views.trace.position = Some(to).filter(|_| Some(to) != last);
        }
        return;
    }
    let Some((layers, cursor)) = layers(app) else {
        return;
    };
    let to = if plan.table.contains(at) {
        let rows = usize::from(plan.table.height).saturating_sub(1);
        let top = table::top(cursor, rows, layers.len());
        usize::from(at.y - plan.table.y)
            .checked_sub(1)
            .map(|line| top + line)
    } else if plan.chart.contains(at) {
        chart::layer_at(r, plan.chart, at.x)
            .and_then(|i| r.ways().get(i))
            .and_then(|w| layers.iter().position(|l| *l == w.layer))
    } else {
        None
    };
    if let Some(layer) = to.and_then(|i| layers.get(i)) {
        app.views.trace.layer = Some(*layer);
    }
}

/// Keeps a statement for the line's history.
pub fn remember(app: &mut App, statement: &str) {
    app.statements.retain(|s| s != statement);
    app.statements.push(statement.into());
    let over = app.statements.len().saturating_sub(STATEMENTS);
    app.statements.drain(..over);
}

/// The keys of the pane; from anywhere they bring it to the front.
pub fn act(app: &mut App, action: Action) -> Vec<Command> {
    app.focus = Panel::Trace;
    let traced = frame(app).is_some_and(|f| f.shown.is_some());
    match action {
        Action::TracePrompt => return trace_prompt(app),
        Action::FollowTrace => {
            let following = frame(app).is_some_and(|f| f.following);
            return vec![Command::FollowTrace(!following)];
        }
        Action::KeepTrace => return vec![Command::KeepTrace],
        Action::JumpPhase if shows_map(app) => app.views.trace.cell = None,
        Action::TraceMap => toggle_map(app),
        _ if !traced => {
            let key = app.keymap.label(Action::TracePrompt).unwrap_or_default();
            app.notice = Some(format!("nothing is traced yet: {key} traces the prompt"));
        }
        Action::JumpPhase => jump(app),
        Action::NextAnswer => next_answer(app),
        _ => {}
    }
    Vec::new()
}

fn trace_prompt(app: &mut App) -> Vec<Command> {
    let prompt = &app.snapshot().prompt;
    if prompt.is_empty() {
        app.notice = Some("the run has no prompt to trace".into());
        return Vec::new();
    }
    let statement = Statement::Trace(Trace {
        prompt: prompt.to_owned(),
        positions: Some(Positions::All),
        top: Some(TOP),
        ..Trace::default()
    });
    let statement = statement.to_string();
    remember(app, &statement);
    vec![Command::Trace(statement)]
}

fn toggle_map(app: &mut App) {
    let (map, shown) = frame(app).map_or((false, false), |f| (f.map.is_some(), f.shown.is_some()));
    match (map, shown) {
        (false, _) => {
            app.notice = Some(
                "there is no map yet: PATCH \"...\" FROM \"...\" FOR \"...\" makes one".into(),
            );
        }
        (true, false) => {
            app.notice = Some("there is only a map: TRACE \"...\" makes a trace".into());
        }
        (true, true) => app.views.trace.map = !app.views.trace.map,
    }
}

fn jump(app: &mut App) {
    match Reading::shown(app).and_then(|r| r.decided()) {
        Some(layer) => app.views.trace.layer = Some(layer),
        None => app.notice = Some("no layer decided this answer here".into()),
    }
}

fn next_answer(app: &mut App) {
    let Some(r) = Reading::shown(app) else {
        return;
    };
    let (at, count) = (r.answer, r.followed());
    if count < 2 {
        app.notice = Some("one answer is followed: FOR \"one\", \"other\" follows more".into());
        return;
    }
    app.views.trace.map = false;
    app.views.trace.answer = (at + 1) % count;
}
