//! The lanes on the screen: axis, layers, threads and how much they wait.

use super::Frame;
use super::lanes::{Cell, LayerGroup, cells, layers, piece_of, sane, tick};
use super::moves::lane_name;
use crate::model::brick::Category;
use crate::session::snapshot::StepTrace;
use crate::tui::format::number;
use crate::tui::panels::chrome;
use crate::tui::state::App;
use crate::tui::theme::Theme;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

/// Columns of one figure in the right margin.
const FIGURE: usize = 7;

/// The letter of a block: a capital for one call alone in its columns, a small one where several share one.
pub fn letter(block: Category, several: bool) -> char {
    let c = match block {
        Category::Norm => 'N',
        Category::Attention => 'A',
        Category::Ffn => 'F',
        Category::Head => 'H',
        Category::Overhead => 'O',
    };
    if several { c.to_ascii_lowercase() } else { c }
}

/// How waiting is drawn.
pub fn wait_glyph(theme: &Theme) -> &'static str {
    if theme.glyphs.ascii { "." } else { "░" }
}

/// Draws axis, layers and threads.
pub fn lanes(app: &App, step: &StepTrace, frame: &Frame, buf: &mut Buffer) {
    let r = &frame.rows;
    if r.axis > 0 {
        axis(app, frame, chrome::row(frame.inner, r.sentence), buf);
    }
    if r.layers > 0 {
        let line = chrome::row(frame.inner, r.sentence + r.axis);
        name(app, step, frame, 0, line, buf);
        layer_lane(app, step, frame, line, buf);
    }
    for i in 0..r.lanes {
        let lane = frame.top + i + 1;
        let line = chrome::row(frame.inner, r.first_lane() + i * r.lane_rows());
        let cells = cells(step, lane, frame.window, frame.columns());
        name(app, step, frame, lane, line, buf);
        figures(app, step, frame, lane, line, buf);
        for thick in 0..=r.thick {
            let line = chrome::row(frame.inner, r.first_lane() + i * r.lane_rows() + thick);
            thread_lane(app, step, frame, &cells, (line, thick == 0), buf);
            selection(app, step, frame, lane, (line, thick == 0), buf);
        }
        if r.waits > 0 {
            let last = r.first_lane() + (i + 1) * r.lane_rows() - 1;
            waits(app, frame, &cells, chrome::row(frame.inner, last), buf);
        }
    }
}

fn within(frame: &Frame, line: Rect) -> Rect {
    Rect {
        x: frame.lanes.x,
        width: frame.lanes.width.min(line.width),
        ..line
    }
}

fn name(app: &App, step: &StepTrace, frame: &Frame, lane: usize, line: Rect, buf: &mut Buffer) {
    let columns = usize::from(frame.lanes.x - frame.inner.x);
    if columns == 0 {
        return;
    }
    let theme = &app.theme;
    let selected = frame.view.lane == lane;
    let text = chrome::left(&lane_name(step, lane, columns < 10), columns - 1, "");
    let style = if selected { theme.selected } else { theme.dim };
    chrome::put(&Line::styled(text, style), line, buf);
}

/// Round times with their unit; one unit for all.
fn axis(app: &App, frame: &Frame, line: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let columns = frame.columns();
    let place = within(frame, line);
    let every = tick(frame.window, columns, 12);
    let last = frame.window.from + frame.window.width;
    let (div, unit) = if last >= 1_000.0 {
        (1e3, "ms")
    } else {
        (1.0, theme.glyphs.micro)
    };
    let decimals = (-(every / div).log10()).ceil().clamp(0.0, 6.0) as usize;
    let mark = if theme.glyphs.ascii { "|" } else { "▏" };
    let first = (frame.window.from / every).ceil();
    for i in 0..columns.min(64) {
        let us = (first + i as f64) * every;
        let column = frame.window.column(us, columns);
        if !(0.0..columns as f64).contains(&column) {
            break;
        }
        let text = format!("{mark}{} {unit}", number(us / div, decimals));
        let x = place.x + column as u16;
        let room = usize::from(place.right().saturating_sub(x));
        // Half a label says something wrong.
        if crate::tui::text::width(&text) <= room {
            buf.set_stringn(x, place.y, text, room, theme.dim);
        }
    }
    let margin = usize::from(frame.inner.right() - frame.lanes.right());
    let titles: &[&str] = if margin >= 3 * FIGURE {
        &["work", "wait", "idle"]
    } else if margin >= FIGURE {
        &["wait"]
    } else {
        &[]
    };
    let titles: String = titles
        .iter()
        .map(|t| chrome::right(t, FIGURE, ""))
        .collect();
    let side = Rect {
        x: frame.lanes.right(),
        width: margin as u16,
        ..line
    };
    chrome::put(&Line::styled(titles, theme.dim), side, buf);
}

/// Columns `[first, end)` that a stretch of time covers, at least one; `None` out of view.
fn extent(frame: &Frame, from: f64, to: f64) -> Option<(usize, usize)> {
    let columns = frame.columns();
    let (a, b) = (
        frame.window.column(from, columns),
        frame.window.column(to, columns),
    );
    if b < 0.0 || a >= columns as f64 || columns == 0 {
        return None;
    }
    let first = a.max(0.0) as usize;
    // Where one ends the next begins: neighbours never overlap.
    let end = (b.min(columns as f64) as usize).max(first + 1).min(columns);
    Some((first, end))
}

fn layer_lane(app: &App, step: &StepTrace, frame: &Frame, line: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let place = within(frame, line);
    let groups = layers(step);
    let mut inside: Vec<(&LayerGroup, usize, usize)> = Vec::new();
    for group in groups.iter().filter(|g| g.layer.is_some()) {
        if let Some((a, b)) = extent(frame, group.piece.start, group.piece.end()) {
            inside.push((group, a, b));
        }
    }
    let every = every(frame, &inside);
    let mut free = 0;
    let rule = if theme.glyphs.ascii { "-" } else { "─" };
    for (group, a, b) in inside {
        let selected =
            frame.view.lane == 0 && (group.first..=group.last).contains(&frame.view.event);
        let style = if selected { theme.selected } else { theme.dim };
        let layer = group.layer.unwrap_or(0);
        let text = layer.to_string();
        let x = place.x + a as u16;
        if a >= free && layer.is_multiple_of(every) {
            let room = usize::from(place.right() - x);
            buf.set_stringn(x, place.y, &text, room, style);
            free = a + text.len();
        }
        // The last column stays free between two layers; where not all have one, numbers alone are clearer.
        let from = a.max(free);
        let rest = b.saturating_sub(from + 1);
        if rest > 0 && every <= 2 {
            let x = place.x + from as u16;
            buf.set_stringn(x, place.y, rule.repeat(rest), rest, style);
        }
        if selected {
            buf.set_style(
                Rect {
                    x,
                    width: (b - a) as u16,
                    ..place
                },
                style,
            );
        }
    }
}

/// Every how many layers there is room for a number and a gap.
fn every(frame: &Frame, inside: &[(&LayerGroup, usize, usize)]) -> u32 {
    let time: f64 = inside.iter().map(|(g, ..)| g.piece.work).sum();
    let mean = time / inside.len().max(1) as f64 / frame.window.width * frame.columns() as f64;
    let digits = inside
        .iter()
        .filter_map(|(g, ..)| g.layer)
        .max()
        .map_or(1, |l| l.to_string().len());
    [1, 2, 5, 10, 20, 50, 100]
        .into_iter()
        .find(|n| f64::from(*n) * mean >= digits as f64 + 1.0)
        .unwrap_or(100)
}

/// Columns in a row that the same call fills.
fn runs(cells: &[Cell]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let key = |i: usize| {
        cells
            .get(i)
            .and_then(|c: &Cell| c.most)
            .map(|m| (m.event, m.waits))
    };
    for i in 0..cells.len() {
        match runs.last_mut() {
            Some((first, end)) if key(*first) == key(i) => *end = i + 1,
            _ => runs.push((i, i + 1)),
        }
    }
    runs
}

fn thread_lane(
    app: &App,
    step: &StepTrace,
    frame: &Frame,
    cells: &[Cell],
    (line, named): (Rect, bool),
    buf: &mut Buffer,
) {
    let theme = &app.theme;
    let place = within(frame, line);
    for (first, end) in runs(cells) {
        let Some(most) = cells.get(first).and_then(|c| c.most) else {
            continue;
        };
        let x = place.x + first as u16;
        let block = step
            .events
            .get(most.event)
            .map_or(Category::Overhead, |e| e.id.category());
        if most.waits {
            let text = wait_glyph(theme).repeat(end - first);
            buf.set_stringn(x, place.y, text, end - first, theme.dim);
            continue;
        }
        let name = step.events.get(most.event).map_or("?", |e| e.id.name());
        let several = cells
            .get(first..end)
            .is_some_and(|c| c.iter().any(|c| c.pieces > 1));
        let label = if named {
            label(name, letter(block, several), end - first)
        } else {
            String::new()
        };
        // A column of its own that others share with it is full as far as it is concerned.
        let last = match end - first {
            1 => 1.0,
            _ => cells
                .get(end - 1)
                .and_then(|c| c.most)
                .map_or(1.0, |m| m.filled),
        };
        let style = theme.category(block);
        let spans = vec![
            Span::styled(label.clone(), style.add_modifier(Modifier::REVERSED)),
            Span::styled(body(theme, end - first - label.len(), last), style),
        ];
        chrome::put(
            &Line::from(spans),
            Rect {
                x,
                width: (end - first) as u16,
                ..place
            },
            buf,
        );
    }
}

/// The name as far as a run of `columns` holds it, the block's letter in a narrow one; one column stays for the end.
fn label(name: &str, letter: char, columns: usize) -> String {
    match columns {
        0..4 => letter.to_string(),
        n => name.chars().take(n - 1).collect(),
    }
}

/// The rest of a run: full columns, and a last one that ends where the call does, by eighths, never quite full, so that
/// neighbours of one colour stay apart.
fn body(theme: &Theme, columns: usize, last: f64) -> String {
    let Some(full) = columns.checked_sub(1) else {
        return String::new();
    };
    if theme.glyphs.ascii {
        return format!("{}|", "=".repeat(full));
    }
    let bar = theme.glyphs.bar;
    let steps = bar.len().saturating_sub(1);
    let part = ((last * steps as f64) as usize).clamp(1, steps.saturating_sub(1).max(1));
    let block = bar.last().copied().unwrap_or("#");
    format!("{}{}", block.repeat(full), bar.get(part).unwrap_or(&" "))
}

/// The selected call over its lane, also where longer ones hide it.
fn selection(
    app: &App,
    step: &StepTrace,
    frame: &Frame,
    lane: usize,
    (line, named): (Rect, bool),
    buf: &mut Buffer,
) {
    if frame.view.lane != lane {
        return;
    }
    let theme = &app.theme;
    let Some((first, end)) =
        piece_of(step, lane, frame.view.event).and_then(|p| extent(frame, p.start, p.end()))
    else {
        return;
    };
    let place = within(frame, line);
    let columns = end - first;
    let name = step
        .events
        .get(frame.view.event)
        .map_or("?", |e| e.id.name());
    let mut text = String::new();
    if named {
        text.push_str(theme.glyphs.pointer);
        text.extend(name.chars().take(columns.saturating_sub(2)));
    }
    let fill = if theme.glyphs.ascii { "+" } else { "▒" };
    text.push_str(&fill.repeat(columns.saturating_sub(crate::tui::text::width(&text))));
    buf.set_stringn(
        place.x + first as u16,
        place.y,
        text,
        columns,
        theme.strong.patch(theme.selected),
    );
}

/// Shares of the step: work, wait, idle.
fn figures(app: &App, step: &StepTrace, frame: &Frame, lane: usize, line: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let margin = usize::from(frame.inner.right() - frame.lanes.right());
    let Some(thread) = step.threads.get(lane - 1) else {
        return;
    };
    let share = |us: f64| {
        let text = format!("{}%", number(sane(us) / frame.window.wall * 100.0, 1));
        chrome::right(&text, FIGURE, theme.glyphs.ellipsis)
    };
    let wait = Span::styled(share(thread.wait_us), theme.strong);
    let spans = if margin >= 3 * FIGURE {
        vec![
            Span::raw(share(thread.work_us)),
            wait,
            Span::styled(share(thread.idle_us), theme.dim),
        ]
    } else if margin >= FIGURE {
        vec![wait]
    } else {
        Vec::new()
    };
    let side = Rect {
        x: frame.lanes.right(),
        width: margin as u16,
        ..line
    };
    chrome::put(&Line::from(spans), side, buf);
}

/// How much of each column is waiting, as heights: short waits that no column shows as its longest.
fn waits(app: &App, frame: &Frame, cells: &[Cell], line: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let place = within(frame, line);
    let columns = usize::from(frame.lanes.x - frame.inner.x);
    if columns > 0 {
        let text = chrome::left(if columns >= 10 { "  waits" } else { " w" }, columns, "");
        chrome::put(&Line::styled(text, theme.dim), line, buf);
    }
    for (x, cell) in (place.left()..place.right()).zip(cells) {
        if cell.wait > 0.005 {
            let (glyph, style): (&str, Style) = theme.heat(cell.wait);
            buf.set_stringn(x, place.y, glyph, 1, style);
        }
    }
}
