//! What the processor and the system count.

use super::chrome;
use super::sheet::{self, Sheet};
use super::table::{self, Cell, Column};
use crate::session::snapshot::{BrickCounters, Counters, Support, SystemFigures, ThreadCounters};
use crate::tui::format::{count, number, percent};
use crate::tui::state::{App, Panel};
use crate::tui::text::sanitise;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

/// Draws the panel.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let inner = chrome::inner(area);
    let sheet = sheet(app, inner.width.into());
    let heading = Line::styled(" since the start, by thread ", app.theme.dim);
    sheet::render(
        app,
        Panel::Counters,
        area,
        buf,
        heading,
        &sheet,
        app.counters_top,
    );
}

/// Scrolls by so many rows.
pub fn move_cursor(app: &mut App, by: i64) {
    let Some(area) = app.layout().panel(Panel::Counters) else {
        return;
    };
    let sheet = sheet(app, chrome::inner(area).width.into());
    app.counters_top = sheet.scrolled(app.counters_top, by, area);
}

fn sheet(app: &App, width: usize) -> Sheet {
    let theme = &app.theme;
    let ascii = theme.glyphs.ascii;
    let mut sheet = Sheet::new(width);
    let Some(c) = &app.snapshot().counters else {
        let clock = sanitise(&app.snapshot().engine.clock, ascii);
        let why = if app.snapshot().engine.clock == "measured" {
            "nothing has been counted yet".to_string()
        } else {
            format!("not counted: with {clock} time the machine has no say in what is shown")
        };
        sheet.text(&why, theme.dim);
        return sheet;
    };
    sheet.text(&sanitise(&c.reading, ascii), theme.strong);
    // The first may be what the reading says already.
    let said = c.reading.to_lowercase();
    let new = |w: &&String| !said.contains(&w.to_lowercase());
    for warning in c.system.warnings.iter().filter(new) {
        sheet.text(&format!("! {}", sanitise(warning, ascii)), theme.warn);
    }
    for (name, support) in [
        ("hardware counters", &c.hardware),
        ("software counters", &c.software),
    ] {
        if let Support::Unavailable { why, remedy } = support {
            let why = sanitise(why, ascii);
            sheet.text(&format!("{name} not available: {why}"), theme.warn);
            let remedy = sanitise(remedy, ascii);
            sheet.text(&format!("  to have them: {remedy}"), Style::new());
        }
    }
    threads(app, c, &mut sheet);
    bricks(app, c, &mut sheet);
    system(app, &c.system, &mut sheet);
    sheet
}

/// A count, `-` when unknown.
fn known(v: Option<u64>) -> Cell {
    (v.map_or("-".into(), count), Style::new())
}

fn figure(v: Option<f64>, decimals: usize) -> Cell {
    (v.map_or("-".into(), |v| number(v, decimals)), Style::new())
}

/// `part / whole` in percent.
fn rate(part: Option<u64>, whole: Option<u64>) -> Cell {
    let share = part
        .zip(whole)
        .filter(|(_, whole)| *whole > 0)
        .map(|(part, whole)| part as f64 / whole as f64);
    (share.map_or("-".into(), percent), Style::new())
}

type ThreadColumn = (Column, fn(&ThreadCounters) -> Cell);

fn thread_columns() -> Vec<ThreadColumn> {
    vec![
        (Column::number("thread", 6, 0), |t| {
            (t.thread.to_string(), Style::new())
        }),
        (Column::number("core", 4, 4), |t| {
            known(t.core.map(u64::from))
        }),
        (Column::number("CPU ms", 8, 1), |t| figure(t.cpu_ms, 1)),
        (Column::number("cycles", 8, 6), |t| known(t.cycles)),
        (Column::number("instr.", 8, 7), |t| known(t.instructions)),
        (Column::number("IPC", 5, 1), |t| figure(t.ipc, 2)),
        (Column::number("LLC refs", 8, 9), |t| {
            known(t.cache_references)
        }),
        (Column::number("LLC miss", 8, 2), |t| {
            rate(t.cache_misses, t.cache_references)
        }),
        (Column::number("branches", 8, 10), |t| known(t.branches)),
        (Column::number("br.miss", 7, 5), |t| {
            rate(t.branch_misses, t.branches)
        }),
        (Column::number("faults", 6, 3), |t| known(t.page_faults)),
        (Column::number("switches", 8, 2), |t| {
            known(t.context_switches)
        }),
        (Column::number("moves", 5, 3), |t| known(t.migrations)),
    ]
}

fn threads(app: &App, c: &Counters, sheet: &mut Sheet) {
    if c.threads.is_empty() {
        return;
    }
    // A column that no thread fills would only push others out.
    let columns: Vec<ThreadColumn> = thread_columns()
        .into_iter()
        .filter(|(_, cell)| c.threads.iter().any(|t| cell(t).0 != "-"))
        .collect();
    let rows = c
        .threads
        .iter()
        .map(|t| columns.iter().map(|(_, cell)| cell(t)).collect())
        .collect();
    let columns: Vec<Column> = columns.into_iter().map(|(c, _)| c).collect();
    sheet.gap();
    let shown = table::fitting(&columns, sheet.width());
    let explained = [
        ("LLC miss", "LLC: last-level cache"),
        ("br.miss", "br.miss: branches guessed wrong"),
        ("faults", "faults: page faults"),
        ("switches", "switches: of threads on a CPU"),
        ("moves", "moves: to another core"),
    ];
    let legend: Vec<&str> = explained
        .into_iter()
        .filter(|(title, _)| {
            shown
                .iter()
                .any(|i| columns.get(*i).is_some_and(|c| c.title == *title))
        })
        .map(|(_, text)| text)
        .collect();
    sheet.lines(table::lines(app, &columns, rows, sheet.width()));
    let dot = app.theme.glyphs.dot;
    sheet.text(&legend.join(&format!(" {dot} ")), app.theme.dim);
}

fn bricks(app: &App, c: &Counters, sheet: &mut Sheet) {
    if c.bricks.is_empty() {
        return;
    }
    let theme = &app.theme;
    let columns = [
        Column::text("brick", 13, 0),
        Column::number("samples", 8, 4),
        Column::number("IPC", 5, 1),
        Column::number("LLC MPKI", 8, 2),
        Column::number("br. MPKI", 8, 3),
    ];
    let row = |b: &BrickCounters| {
        vec![
            (b.id.name().to_string(), theme.category(b.id.category())),
            known(Some(b.calls)),
            figure(b.ipc, 2),
            figure(b.cache_mpki, 2),
            figure(b.branch_mpki, 2),
        ]
    };
    sheet.gap();
    let rows = c.bricks.iter().map(row).collect();
    sheet.lines(table::lines(app, &columns, rows, sheet.width()));
    sheet.text("MPKI: misses in a thousand instructions", theme.dim);
}

fn system(app: &App, s: &SystemFigures, sheet: &mut Sheet) {
    let theme = &app.theme;
    let ascii = theme.glyphs.ascii;
    let mhz = |v: f64| format!("{} MHz", number(v, 0));
    let text = |v: &Option<String>| v.as_ref().map(|t| sanitise(t, ascii));
    let frequency = match (s.frequency_mhz, s.frequency_max_mhz) {
        (Some(now), Some(max)) => Some(format!("{} of {}", number(now, 0), mhz(max))),
        (Some(now), None) => Some(mhz(now)),
        (None, max) => max.map(|m| format!("at most {}", mhz(m))),
    };
    let facts = [
        ("frequency", frequency),
        ("time stamps", s.tsc_mhz.map(mhz)),
        ("governor", text(&s.governor)),
        (
            "temperature",
            s.temperature_c
                .map(|t| format!("{} {}C", number(t, 0), if ascii { "" } else { "°" })),
        ),
        ("stolen time", s.steal_share.map(percent)),
        ("CPUs busy", s.busy_share.map(percent)),
        ("load, 1 min", s.load_1m.map(|l| number(l, 2))),
        ("huge pages", text(&s.huge_page_mode)),
        ("slowed by", s.throughput_drop.map(percent)),
    ];
    sheet.gap();
    let known = facts
        .iter()
        .filter_map(|(name, value)| Some((*name, value.clone()?)))
        .collect();
    sheet.facts(app, known);
    let missing: Vec<&str> = facts
        .iter()
        .filter(|(_, v)| v.is_none())
        .map(|(name, _)| *name)
        .collect();
    if !missing.is_empty() {
        let text = format!("not shown by this system: {}", missing.join(", "));
        sheet.text(&text, theme.dim);
    }
}
