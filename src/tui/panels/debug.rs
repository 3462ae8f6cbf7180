//! cbtop itself: its event loop, its clocks, what profiling costs.

use super::chrome;
use super::sheet::{self, Sheet};
use super::table::{self, Column};
use crate::session::snapshot::{AsyncTask, NamedRow};
use crate::tui::format::{count, micros, number, percent};
use crate::tui::state::{App, Panel};
use crate::tui::text::sanitise;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

/// Draws the panel.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let sheet = sheet(app, chrome::inner(area).width.into());
    let heading = Line::styled(" what watching costs ", app.theme.dim);
    sheet::render(app, Panel::Debug, area, buf, heading, &sheet, app.debug_top);
}

/// Scrolls by so many rows.
pub fn move_cursor(app: &mut App, by: i64) {
    let Some(area) = app.layout().panel(Panel::Debug) else {
        return;
    };
    let sheet = sheet(app, chrome::inner(area).width.into());
    app.debug_top = sheet.scrolled(app.debug_top, by, area);
}

fn sheet(app: &App, width: usize) -> Sheet {
    let theme = &app.theme;
    let mut sheet = Sheet::new(width);
    sheet.text(&reading(app), theme.strong);
    profiling(app, &mut sheet);
    tasks(app, &mut sheet);
    host(app, &mut sheet);
    sheet
}

/// One sentence on what cbtop costs and whether its event loop was blocked.
fn reading(app: &App) -> String {
    let snapshot = app.snapshot();
    let cost = match (
        snapshot.profiling.stamp_share,
        snapshot.rates.overhead_share,
    ) {
        (None, None) => "What profiling costs is not known yet".to_string(),
        (Some(stamps), None) => format!("Stamps take {} of a step", percent(stamps)),
        (None, Some(all)) => format!("Profiling and publishing take {} of the time", percent(all)),
        (Some(stamps), Some(all)) => format!(
            "Stamps take {} of a step, publishing and all else {} of the time",
            percent(stamps),
            percent(all)
        ),
    };
    let blocking = app
        .own
        .iter()
        .fold(0u64, |n, t| n.saturating_add(t.blocking));
    let worst = app
        .own
        .iter()
        .filter(|t| t.blocking > 0)
        .filter_map(|t| Some((t, t.max_us.filter(|m| m.is_finite())?)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let polls = app.own.iter().fold(0u64, |n, t| n.saturating_add(t.polls));
    let micro = app.theme.glyphs.micro;
    let events = match worst {
        _ if polls == 0 => "the event loop is not watched here".into(),
        Some((task, max)) => format!(
            "{} of {} polls took more than 100 {micro}, at most {} ({})",
            count(blocking),
            count(polls),
            micros(max, micro),
            sanitise(&task.name, app.theme.glyphs.ascii)
        ),
        None if blocking > 0 => format!("{} polls took more than 100 {micro}", count(blocking)),
        None => format!("no poll of the event loop took more than 100 {micro}"),
    };
    format!("{cost}; {events}.")
}

fn profiling(app: &App, sheet: &mut Sheet) {
    let p = &app.snapshot().profiling;
    let ascii = app.theme.glyphs.ascii;
    let mode = sanitise(&p.mode, ascii);
    sheet.gap();
    let says = sanitise(&p.says, ascii);
    match (mode.as_str(), says.as_str()) {
        ("", _) => sheet.text("how bricks are timed is not known", app.theme.dim),
        (mode, "") => sheet.text(&format!("profiling {mode}"), Style::new()),
        (mode, says) => sheet.text(&format!("profiling {mode}: {says}"), Style::new()),
    }
    let overhead = app.snapshot().rates.overhead_share;
    let facts = vec![
        ("stamps", format!("{} a step", count(p.stamps_per_step))),
        (
            "one stamp",
            p.stamp_ns
                .map_or("-".into(), |ns| format!("{} ns", number(ns, 1))),
        ),
        (
            "stamping",
            p.stamp_share
                .map_or("-".into(), |s| format!("{} of a step", percent(s))),
        ),
        (
            "all of it",
            overhead.map_or("-".into(), |s| format!("{} of the time", percent(s))),
        ),
        (
            "rows sum to",
            p.accounted_us
                .zip(p.wall_us)
                .filter(|(_, wall)| *wall > 0.0)
                .map_or("-".into(), |(sum, wall)| {
                    format!("{}% of wall", number(sum / wall * 100.0, 1))
                }),
        ),
    ];
    sheet.facts(app, facts);
}

/// What the session does between steps.
fn host(app: &App, sheet: &mut Sheet) {
    let (theme, rows) = (&app.theme, &app.snapshot().host);
    if rows.is_empty() {
        return;
    }
    sheet.gap();
    let micro = theme.glyphs.micro;
    let columns = vec![
        Column::text("between steps", 16, 0),
        Column::number("calls", 8, 1),
        Column::number(&format!("mean {micro}"), 9, 2),
        Column::number(&format!("p50 {micro}"), 8, 5),
        Column::number(&format!("p99 {micro}"), 8, 3),
        Column::number(&format!("max {micro}"), 9, 4),
        Column::number("total ms", 9, 6),
    ];
    let us = |v: Option<f64>| v.map_or("-".into(), |v| number(v, 1));
    let row = |r: &NamedRow| {
        let figures = [
            count(r.calls),
            us(r.mean_us),
            us(r.p50_us),
            us(r.p99_us),
            us(r.max_us),
            number(r.total_us * 1e-3, 1),
        ];
        let name = (sanitise(&r.name, theme.glyphs.ascii), theme.accent);
        let figures = figures.map(|text| (text, Style::new()));
        std::iter::once(name).chain(figures).collect()
    };
    let rows = rows.iter().map(row).collect();
    sheet.lines(table::lines(app, &columns, rows, sheet.width()));
}

fn columns(micro: &str) -> Vec<Column> {
    vec![
        Column::text("task", 14, 0),
        Column::number("polls", 7, 1),
        Column::number("ready", 7, 6),
        Column::number(&format!("p50 {micro}"), 8, 5),
        Column::number(&format!("p99 {micro}"), 8, 3),
        Column::number(&format!("max {micro}"), 9, 4),
        Column::number(&format!(">100 {micro}"), 7, 2),
        Column::number("total ms", 9, 8),
        Column::text("woken by", 24, 7),
    ]
}

fn tasks(app: &App, sheet: &mut Sheet) {
    let theme = &app.theme;
    sheet.gap();
    if app.own.is_empty() {
        return sheet.text(
            "event loop: not running here (one frame, or a terminal not yet watched)",
            theme.dim,
        );
    }
    let rows = app.own.iter().map(|t| row(app, t)).collect();
    let columns = columns(theme.glyphs.micro);
    sheet.lines(table::lines(app, &columns, rows, sheet.width()));
    sheet.text(
        &format!(
            "a poll of more than 100 {} holds up keys and drawing; drawing itself is one",
            theme.glyphs.micro
        ),
        theme.dim,
    );
}

fn row(app: &App, t: &AsyncTask) -> Vec<table::Cell> {
    let theme = &app.theme;
    let plain = Style::new();
    let time = |v: Option<f64>| v.map_or("-".into(), |v| number(v, 1));
    let blocking = if t.blocking > 0 { theme.warn } else { plain };
    let wakes: Vec<String> = t
        .wakes
        .iter()
        .take(4)
        .map(|(who, n)| format!("{} {}", sanitise(who, theme.glyphs.ascii), count(*n)))
        .collect();
    vec![
        (sanitise(&t.name, theme.glyphs.ascii), theme.accent),
        (count(t.polls), plain),
        (count(t.ready), plain),
        (time(t.p50_us), plain),
        (time(t.p99_us), plain),
        (time(t.max_us), plain),
        (count(t.blocking), blocking),
        (number(t.total_us / 1e3, 1), plain),
        (wakes.join(", "), theme.dim),
    ]
}
