//! The execution tree of a step, to fold and unfold.
//!
//! Keys: `j` `k` move, `l` unfolds or enters, `h` folds or leaves. Mouse: a click on a row selects it, a second one folds or
//! unfolds it.

mod rows;

use super::chrome;
use super::timeline::sane;
use crate::session::snapshot::StepTrace;
use crate::tui::format::{Scale, micros, number, percent};
use crate::tui::keymap::Action;
use crate::tui::state::{App, Panel};
use crate::tui::text::sanitise;
use crate::tui::theme::Theme;
use crate::tui::update::moved;
use crate::tui::views::Node;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use rows::{Row, parent_of, row_of, tree_rows};

/// Columns of the figures, the gap before them included.
const TIME: usize = 10;
const SHARE: usize = 7;
const BAR: usize = 12;
/// From this many columns on there is room for what a row is besides its time.
const DETAIL: usize = 24;

/// The columns of the table; 0 where there is no room.
#[derive(Clone, Copy)]
struct Columns {
    label: usize,
    share: usize,
    wait: usize,
    bar: usize,
    detail: usize,
}

fn columns(width: usize) -> Columns {
    let share = if width >= 15 + TIME + SHARE { SHARE } else { 0 };
    let label = if width >= 70 { 30 } else { 22 }.min(width.saturating_sub(TIME + share));
    let mut left = width.saturating_sub(label + TIME + share);
    let mut take = |n: usize| {
        let n = if left >= n { n } else { 0 };
        left -= n;
        n
    };
    let wait = take(TIME);
    let bar = take(BAR);
    let (bar, detail) = match left {
        _ if left >= DETAIL => (bar, left),
        _ if bar > 0 => (bar + left, 0),
        _ => (0, 0),
    };
    Columns {
        label,
        share,
        wait,
        bar,
        detail,
    }
}

fn rows(app: &App) -> Vec<Row> {
    app.snapshot().last_step.as_ref().map_or(Vec::new(), |s| {
        tree_rows(s, &app.snapshot().kernels, &app.views.tree.open)
    })
}

/// Rows above and below the tree itself: sentence and titles; details of the row under the cursor.
fn around(height: usize, detail: usize) -> (usize, usize) {
    let above = match height {
        0..3 => 0,
        3..6 => 1,
        _ => 2,
    };
    (above, usize::from(detail == 0 && height >= 5))
}

/// The first row shown and how many.
fn window(inner: Rect, cursor: usize) -> (usize, usize) {
    let height = usize::from(inner.height);
    let (above, below) = around(height, columns(inner.width.into()).detail);
    let visible = height.saturating_sub(above + below);
    (chrome::scroll_to(cursor, visible), visible)
}

/// Draws the panel.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let Some(step) = &app.snapshot().last_step else {
        let empty = Line::default();
        let inner = chrome::panel(app, Panel::Tree, area, buf, empty.clone(), empty);
        let text = chrome::no_step(app);
        chrome::put(&Line::styled(text, theme.dim), inner, buf);
        return;
    };
    let rows = rows(app);
    let cursor = row_of(&rows, app.views.tree.cursor);
    let (top, visible) = window(chrome::inner(area), cursor);
    let bottom = legend(app, top, visible, rows.len());
    let inner = chrome::panel(app, Panel::Tree, area, buf, heading(app, step), bottom);
    let columns = columns(inner.width.into());
    let (above, below) = around(inner.height.into(), columns.detail);
    let wall = rows.first().and_then(|r| r.us).unwrap_or(0.0);
    let largest = rows.iter().skip(1).filter_map(|r| r.us).fold(0.0, f64::max);
    let scale = Scale::time(wall * 10.0, theme.glyphs.micro);
    if above > 1 {
        let text = chrome::left(
            &sentence(step, theme),
            inner.width.into(),
            theme.glyphs.ellipsis,
        );
        chrome::put(
            &Line::styled(text, theme.strong),
            chrome::row(inner, 0),
            buf,
        );
    }
    if above > 0 {
        titles(theme, columns, scale, chrome::row(inner, above - 1), buf);
    }
    for (i, row) in rows.iter().enumerate().skip(top).take(visible) {
        let place = chrome::row(inner, above + i - top);
        draw_row(app, step, columns, scale, (row, wall, largest), place, buf);
        if app.focus == Panel::Tree && i == cursor {
            let label = Rect {
                width: place.width.min(columns.label as u16),
                ..place
            };
            buf.set_style(label, theme.selected);
        }
    }
    if below > 0
        && let Some(row) = rows.get(cursor)
    {
        let text = chrome::left(
            &detail(app, step, row),
            inner.width.into(),
            theme.glyphs.ellipsis,
        );
        let last = usize::from(inner.height) - 1;
        chrome::put(
            &Line::styled(text, theme.dim),
            chrome::row(inner, last),
            buf,
        );
    }
}

fn heading(app: &App, step: &StepTrace) -> Line<'static> {
    let theme = &app.theme;
    let what = match step.kind {
        crate::engine::StepKind::Decode => format!("token {}", step.position),
        _ => format!("prefill of {} tokens", step.tokens),
    };
    Line::from(vec![
        Span::styled(format!(" {what} {} ", theme.glyphs.dot), theme.dim),
        Span::styled(
            format!("{} ", micros(sane(step.wall_us), theme.glyphs.micro)),
            theme.strong,
        ),
    ])
}

fn legend(app: &App, top: usize, visible: usize, total: usize) -> Line<'static> {
    let theme = &app.theme;
    let key = |action| app.keymap.label(action).unwrap_or_default();
    let text = format!(
        " {} unfold {} {} fold ",
        key(Action::MoveSide(1)),
        theme.glyphs.dot,
        key(Action::MoveSide(-1)),
    );
    let mut spans = vec![Span::styled(text, theme.dim)];
    spans.extend(chrome::position(app, top, visible, total));
    Line::from(spans)
}

/// How the step divides into its layers and the rest, and which layer stands out.
fn sentence(step: &StepTrace, theme: &Theme) -> String {
    let layers: Vec<(u32, f64)> = super::timeline::layers(step)
        .into_iter()
        .filter_map(|g| Some((g.layer?, g.piece.work)))
        .collect();
    let wall = sane(step.wall_us);
    let sum: f64 = layers.iter().map(|l| l.1).sum();
    let slowest = layers.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let mean = sum / layers.len().max(1) as f64;
    let Some((layer, us)) = slowest.filter(|_| mean > 0.0) else {
        return format!("{} calls, none of them in a layer", step.events.len());
    };
    let share = if wall > 0.0 {
        format!("{} of the step", percent(sum / wall))
    } else {
        format!("{} so far", micros(sum, theme.glyphs.micro))
    };
    let micro = theme.glyphs.micro;
    let spread = if us / mean < 1.02 {
        format!("all near {}", micros(mean, micro))
    } else {
        format!(
            "layer {layer} takes {}{} their mean of {}",
            number(us / mean, 2),
            theme.glyphs.times,
            micros(mean, micro)
        )
    };
    format!("{} layers take {share}; {spread}", layers.len())
}

fn titles(theme: &Theme, columns: Columns, scale: Scale, line: Rect, buf: &mut Buffer) {
    let mut text = chrome::left("call", columns.label, "");
    text.push_str(&chrome::right(scale.unit, TIME, ""));
    text.push_str(&chrome::right("share", columns.share, ""));
    text.push_str(&chrome::right("waits", columns.wait, ""));
    text.push_str(&" ".repeat(columns.bar));
    if columns.detail > 0 {
        text.push_str("  what ran");
    }
    chrome::put(&Line::styled(text, theme.dim), line, buf);
}

fn draw_row(
    app: &App,
    step: &StepTrace,
    columns: Columns,
    scale: Scale,
    (row, wall, largest): (&Row, f64, f64),
    line: Rect,
    buf: &mut Buffer,
) {
    let theme = &app.theme;
    let ellipsis = theme.glyphs.ellipsis;
    let (text, style) = label(app, step, row);
    let known = |us: Option<f64>| us.map_or(String::new(), |v| scale.show(Some(v)));
    let share = row.us.filter(|_| wall > 0.0).map(|us| us / wall);
    let mut spans = vec![
        Span::styled(chrome::left(&text, columns.label, ellipsis), style),
        Span::styled(chrome::right(&known(row.us), TIME, ellipsis), theme.strong),
        Span::raw(chrome::right(
            &share.map_or(String::new(), percent),
            columns.share,
            ellipsis,
        )),
    ];
    if columns.wait > 0 {
        let text = chrome::right(&known(row.wait_us), TIME, ellipsis);
        spans.push(Span::styled(text, theme.dim));
    }
    if columns.bar > 0 {
        spans.push(Span::raw("  "));
        let bar = columns.bar - 2;
        match row.us {
            Some(us) if row.node != Node::Step && largest > 0.0 => spans.extend(chrome::bar(
                us / largest,
                bar,
                &theme.glyphs,
                style,
                theme.dim,
            )),
            _ => spans.push(Span::raw(" ".repeat(bar))),
        }
    }
    if columns.detail > 0 {
        let text = chrome::left(&detail(app, step, row), columns.detail - 2, ellipsis);
        spans.push(Span::styled(format!("  {text}"), theme.dim));
    }
    chrome::put(&Line::from(spans), line, buf);
}

fn label(app: &App, step: &StepTrace, row: &Row) -> (String, Style) {
    let theme = &app.theme;
    let g = &theme.glyphs;
    let mark = match row.open {
        Some(true) => g.sort[0],
        Some(false) => g.pointer,
        None => " ",
    };
    let event = |e: u32| step.events.get(e as usize);
    let block = |e: u32| event(e).map_or(Style::new(), |e| theme.category(e.id.category()));
    let (text, style) = match row.node {
        Node::Step => ("step".to_string(), theme.strong),
        Node::Rest => ("between calls".to_string(), theme.dim),
        Node::Layer(e) => {
            let layer = event(e).and_then(|e| e.layer).unwrap_or(0);
            (format!("layer {layer}"), Style::new())
        }
        Node::Brick(e) => (event(e).map_or("?", |e| e.id.name()).to_string(), block(e)),
        Node::Kernel(e) => (
            kernel(app, step, e).map_or("kernel".into(), |k| {
                format!("kernel {}", sanitise(&k.name, g.ascii))
            }),
            theme.dim,
        ),
        Node::Task(e, t) => {
            let thread = step.threads.get(t as usize).map_or(0, |t| t.thread);
            (format!("thread {thread}"), block(e))
        }
    };
    let indent = "  ".repeat(row.depth.into());
    (format!("{indent}{mark} {text}"), style)
}

fn kernel<'a>(
    app: &'a App,
    step: &StepTrace,
    event: u32,
) -> Option<&'a crate::session::snapshot::KernelInfo> {
    let brick = step.events.get(event as usize)?.brick?;
    app.snapshot().kernels.get(brick as usize)
}

/// What a row is besides its time.
fn detail(app: &App, step: &StepTrace, row: &Row) -> String {
    let g = &app.theme.glyphs;
    let shape = |k: &crate::session::snapshot::KernelInfo| match (k.rows, k.columns) {
        (Some(r), Some(c)) => format!(", {r} {} {c}", g.times),
        _ => String::new(),
    };
    match row.node {
        Node::Step | Node::Layer(_) => format!("{} calls", row.calls),
        Node::Brick(e) => kernel(app, step, e).map_or("not in the model's plan".into(), |k| {
            format!(
                "{} {}{}",
                sanitise(&k.name, g.ascii),
                sanitise(&k.variant, g.ascii),
                shape(k)
            )
        }),
        Node::Kernel(e) => kernel(app, step, e).map_or(String::new(), |k| {
            let tile = k
                .tile_rows
                .map_or(String::new(), |t| format!(", {t} rows at a time"));
            let hash: String = k.source_hash.chars().take(8).collect();
            format!(
                "{}{}{tile}, {} #{}",
                sanitise(&k.variant, g.ascii),
                shape(k),
                sanitise(&k.source, g.ascii),
                sanitise(&hash, g.ascii)
            )
        }),
        Node::Rest => "launch, join and gaps".into(),
        Node::Task(e, t) => task(step, e, t, g.micro),
    }
}

fn task(step: &StepTrace, event: u32, thread: u32, micro: &str) -> String {
    let Some(s) = step
        .threads
        .get(thread as usize)
        .and_then(|t| t.spans.iter().find(|s| s.event == event))
    else {
        return String::new();
    };
    let core = s.core.map_or(String::new(), |c| format!("core {c}, "));
    let stolen = match s.stolen {
        0 => String::new(),
        n => format!(" ({n} stolen)"),
    };
    let slack = match sane(s.slack_us) {
        us if us > 0.0 => format!("slack {}", micros(us, micro)),
        _ => "no slack".into(),
    };
    format!("{core}{} pieces{stolen}, {slack}", s.pieces)
}

/// Moves the cursor by so many rows.
pub fn move_cursor(app: &mut App, by: i64) {
    let rows = rows(app);
    let at = row_of(&rows, app.views.tree.cursor);
    if let Some(row) = rows.get(moved(at, by, rows.len())) {
        app.views.tree.cursor = row.node;
    }
}

/// Folds the node under the cursor, or goes to the node that holds it; unfolds it, or goes to its first one.
pub fn fold(app: &mut App, close: bool) {
    let rows = rows(app);
    let at = row_of(&rows, app.views.tree.cursor);
    let Some(row) = rows.get(at) else {
        return;
    };
    let tree = &mut app.views.tree;
    tree.cursor = row.node;
    match (close, row.open) {
        (true, Some(true)) => {
            tree.open.remove(&row.node);
        }
        (true, _) => {
            if let Some(parent) = rows.get(parent_of(&rows, at)) {
                tree.cursor = parent.node;
            }
        }
        (false, Some(false)) => {
            tree.open.insert(row.node);
        }
        (false, _) => {
            if let Some(child) = rows.get(at + 1).filter(|r| r.depth > row.depth) {
                tree.cursor = child.node;
            }
        }
    }
}

/// A click selects the row; on the row under the cursor it folds or unfolds.
pub fn click(app: &mut App, area: Rect, at: Position) {
    let inner = chrome::inner(area);
    let rows = rows(app);
    let cursor = row_of(&rows, app.views.tree.cursor);
    let (top, visible) = window(inner, cursor);
    let (above, _) = around(inner.height.into(), columns(inner.width.into()).detail);
    let line = usize::from(at.y)
        .checked_sub(usize::from(inner.y) + above)
        .filter(|l| *l < visible);
    let Some((index, row)) = line.and_then(|l| rows.get(top + l).map(|r| (top + l, r))) else {
        return;
    };
    let tree = &mut app.views.tree;
    if index != cursor {
        tree.cursor = row.node;
    } else if row.open == Some(true) {
        tree.open.remove(&row.node);
    } else if row.open == Some(false) {
        tree.open.insert(row.node);
    }
}
