//! The brick table: where the time of a step goes.

use super::chrome::{self, Part};
use crate::model::brick::BrickId;
use crate::session::snapshot::{BrickRow, RoofPoint};
use crate::tui::columns::{Column, Phase, Placed, place, point};
use crate::tui::format::{micros, number, percent};
use crate::tui::state::{App, Panel};
use crate::tui::theme::Theme;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// The columns of the table in a panel of `area`.
pub fn columns(app: &App, area: Rect) -> Vec<Placed> {
    place(
        chrome::inner(area).width,
        app.zoomed,
        app.rows(),
        app.phase(),
        &app.theme.glyphs,
    )
}

/// The line of column titles of a panel of `area`.
pub fn title_line(area: Rect) -> Rect {
    chrome::row(chrome::inner(area), 0)
}

/// Number of rows that fit and the first one shown.
fn window(app: &App, area: Rect) -> (usize, usize) {
    let rows = usize::from(chrome::inner(area).height.saturating_sub(1));
    let (sorted, cursor) = app.sorted_rows();
    // A row to spare holds the sentence; the whole screen has one for it.
    let spare = sorted.len() < rows || (app.zoomed && rows >= 8);
    let rows = if spare { rows - 1 } else { rows };
    (rows, chrome::scroll_to(cursor, rows))
}

/// The brick drawn in screen line `y`.
pub fn row_at(app: &App, area: Rect, y: u16) -> Option<BrickId> {
    let inner = chrome::inner(area);
    let (rows, top) = window(app, area);
    let line = usize::from(y.checked_sub(inner.y + 1)?);
    app.sorted_rows()
        .0
        .get(top + line)
        .filter(|_| line < rows)
        .map(|r| r.id)
}

/// Draws the panel.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let (rows, cursor) = app.sorted_rows();
    let (visible, top) = window(app, area);
    let position = chrome::position(app, top, visible, rows.len());
    let taken = position.iter().map(Span::width).sum::<usize>() + 6;
    let mut bottom = legend(app, usize::from(area.width).saturating_sub(taken));
    bottom
        .spans
        .extend(chrome::position(app, top, visible, rows.len()));
    let inner = chrome::panel(app, Panel::Bricks, area, buf, heading(app, area), bottom);
    if rows.is_empty() {
        let what = match app.phase() {
            Phase::Decode => "no decode step has been timed yet",
            Phase::Prefill => "no prefill chunk has been timed yet",
        };
        chrome::put(&Line::styled(what, theme.dim), inner, buf);
        return;
    }
    let columns = columns(app, area);
    for c in &columns {
        title(app, c, inner, buf);
    }
    let largest = rows.iter().map(|r| r.share).fold(0.0, f64::max);
    for (line, row) in rows.iter().skip(top).take(visible).enumerate() {
        let place = chrome::row(inner, line + 1);
        for c in &columns {
            cell(app, c, row, largest, place, buf);
        }
        if app.focus == Panel::Bricks && top + line == cursor {
            // Only the name: reversed bars would read as their opposite.
            let name = columns.first().map_or(place, |c| c.title_area(place));
            buf.set_style(name, theme.selected);
        }
    }
    let mut shown = rows.len().min(visible);
    let mut room = usize::from(inner.height).saturating_sub(shown + 1);
    if room > 1
        && let Some(sum) = sum_line(app)
    {
        chrome::put(&sum, chrome::row(inner, shown + 1), buf);
        (shown, room) = (shown + 1, room - 1);
    }
    if room > 0
        && let Some(row) = rows.get(cursor)
    {
        let text = sentence(app, row, inner.width.into());
        // Under the table with air where there is some, so that it is read with it.
        let line = shown + 1 + usize::from(room > 1);
        chrome::put(
            &Line::styled(text, theme.strong),
            chrome::row(inner, line),
            buf,
        );
        if room > 3 {
            chrome::put(
                &explanation(app, &columns),
                chrome::row(inner, line + 1),
                buf,
            );
        }
    }
}

/// What the rows sum to beside the wall time of another clock, for decode steps.
fn sum_line(app: &App) -> Option<Line<'static>> {
    let theme = &app.theme;
    let micro = theme.glyphs.micro;
    let p = &app.snapshot().profiling;
    let (sum, wall) = p.accounted_us.zip(p.wall_us)?;
    let usable = sum.is_finite() && wall.is_finite() && wall > 0.0;
    if app.phase() != Phase::Decode || !usable {
        return None;
    }
    let found = format!(
        "{} of {} by the system's clock",
        micros(sum, micro),
        micros(wall, micro)
    );
    Some(Line::from(vec![
        Span::styled("sum of rows  ", theme.dim),
        Span::styled(format!("{}%", number(sum / wall * 100.0, 1)), theme.strong),
        Span::styled(format!(" = {found}"), theme.dim),
    ]))
}

/// One row in words: its share, its roof, how its time moves; the last where it fits in `columns`.
fn sentence(app: &App, row: &BrickRow, columns: usize) -> String {
    let mut text = format!("{}: {} of the step", row.id.name(), percent(row.share));
    if let Some(p) = point(row, app.points()).filter(|p| p.of_roof.is_finite()) {
        let share = number(p.of_roof * 100.0, 0);
        let (roof, so) = match p.bound.as_str() {
            "memory" => ("the memory roof", "only fewer bytes help"),
            "compute" => ("the compute roof", "only a better kernel helps"),
            "cache" => ("its roof", "its bytes come from the caches"),
            _ => ("its roof", "starting it costs more than its work"),
        };
        text = format!("{text}, {share}% of {roof}: {so}");
    }
    if let Some(trend) = trend(&row.history_us)
        && text.len() + trend.len() + 2 <= columns
    {
        text = format!("{text}; {trend}");
    }
    chrome::left(&text, columns, app.theme.glyphs.ellipsis)
}

/// How the newest quarter of the history compares with all of it.
fn trend(history: &[f64]) -> Option<String> {
    let mean = |values: &[f64]| {
        let known = || values.iter().filter(|v| v.is_finite() && **v >= 0.0);
        let n = known().count();
        (n > 0).then(|| known().sum::<f64>() / n as f64)
    };
    let newest = history.get(history.len().checked_sub(history.len().div_ceil(4))?..)?;
    let (all, newest) = (mean(history).filter(|m| *m > 0.0)?, mean(newest)?);
    let change = newest / all - 1.0;
    Some(if history.len() < 8 || change.abs() < 0.03 {
        "steady".into()
    } else {
        let percent = number(change.abs() * 100.0, 0);
        let way = if change > 0.0 { "slower" } else { "faster" };
        format!("lately {percent}% {way} than before")
    })
}

/// What the words of the roof column and the heights of the history are.
fn explanation(app: &App, columns: &[Placed]) -> Line<'static> {
    let theme = &app.theme;
    let has = |c| columns.iter().any(|p| p.column == c);
    let mut text = Vec::new();
    if has(Column::Roof) {
        text.push("of roof: mem memory, cpu compute, cch caches, ovh overhead");
    }
    if has(Column::History) {
        text.push("history: newest right, half height is the mean");
    }
    Line::styled(text.join("; "), theme.dim)
}

/// A word for what bounds a brick, and its colour.
fn bound(point: &RoofPoint, theme: &Theme) -> (&'static str, Style) {
    match point.bound.as_str() {
        "memory" => ("mem", theme.warn),
        "compute" => ("cpu", theme.good),
        "cache" => ("cch", theme.accent),
        _ => ("ovh", theme.dim),
    }
}

/// Share of the roof: bar, in a wide column the figure too, and which roof.
fn roof(app: &App, row: &BrickRow, width: usize) -> Line<'static> {
    let theme = &app.theme;
    let Some(p) = point(row, app.points()).filter(|p| p.of_roof.is_finite()) else {
        return Line::styled(chrome::right("-", width, ""), theme.dim);
    };
    let (word, style) = bound(p, theme);
    let figure = if width >= 13 { 5 } else { 0 };
    let bar = width.saturating_sub(figure + 5);
    let mut spans = vec![Span::raw(" ")];
    spans.extend(chrome::bar(p.of_roof, bar, &theme.glyphs, style, theme.dim));
    if figure > 0 {
        let text = format!("{}%", number(p.of_roof * 100.0, 0));
        spans.push(Span::raw(chrome::right(
            &text,
            figure,
            theme.glyphs.ellipsis,
        )));
    }
    spans.push(Span::styled(format!(" {word}"), style));
    Line::from(spans)
}

/// The newest times around their mean; a tenth of it either way at least, so that noise stays small.
fn history(app: &App, row: &BrickRow, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let known = || row.history_us.iter().filter(|v| v.is_finite());
    let mean = known().sum::<f64>() / known().count().max(1) as f64;
    let far = known().map(|v| (v - mean).abs()).fold(mean * 0.1, f64::max);
    let place = Rect {
        x: area.x.saturating_add(2),
        width: area.width.saturating_sub(2),
        ..area
    };
    chrome::sparkline(
        &row.history_us,
        mean - far,
        mean + far,
        place,
        buf,
        &theme.glyphs,
        theme.category(row.category),
    );
}

/// What the times are about: `decode · 6.91 ms a token`; before it how near the row under the cursor is to its roof where
/// no row is left to say it.
fn heading(app: &App, area: Rect) -> Line<'static> {
    let theme = &app.theme;
    let total: f64 = app.rows().iter().map(|r| r.us_per_step).sum();
    let (phase, step) = match app.phase() {
        Phase::Decode => ("decode", "a token"),
        Phase::Prefill => ("prefill", "a chunk"),
    };
    if app.rows().is_empty() {
        return Line::from(Span::styled(format!(" {phase} "), theme.dim));
    }
    let (rows, at) = app.sorted_rows();
    let said = window(app, area).0 < usize::from(chrome::inner(area).height.saturating_sub(1));
    let roof = rows
        .get(at)
        .filter(|_| !said)
        .and_then(|row| point(row, app.points()))
        .filter(|p| p.of_roof.is_finite())
        .map(|p| {
            let share = number(p.of_roof * 100.0, 0);
            let text = format!(
                " {} at {share}% of its roof {}",
                p.id.name(),
                theme.glyphs.dot
            );
            Span::styled(text, theme.strong)
        });
    let mut line = Line::from(vec![
        Span::styled(format!(" {phase} {} ", theme.glyphs.dot), theme.dim),
        Span::styled(micros(total, theme.glyphs.micro), theme.strong),
        Span::styled(format!(" {step} "), theme.dim),
    ]);
    // The panel's own title takes up to 14 columns, and its corners.
    if let Some(roof) = roof
        && line.width() + roof.width() + 18 <= usize::from(area.width)
    {
        line.spans.insert(0, roof);
    }
    line
}

/// Shares of the blocks in their colours.
fn legend(app: &App, columns: usize) -> Line<'static> {
    let theme = &app.theme;
    let parts = chrome::BLOCKS.iter().filter_map(|block| {
        let share: f64 = app
            .rows()
            .iter()
            .filter(|r| r.category == *block)
            .map(|r| r.share)
            .sum();
        (share > 0.0).then(|| {
            let text = format!("{} {}%", block.name(), number(share * 100.0, 0));
            Part::new(1, vec![Span::styled(text, theme.category(*block))])
        })
    });
    let gap = Span::styled(format!(" {} ", theme.glyphs.dot), theme.dim);
    let mut line = chrome::join(parts.collect(), &gap, columns);
    if line.width() > 0 {
        line.spans.insert(0, " ".into());
        line.spans.push(" ".into());
    }
    line
}

fn title(app: &App, placed: &Placed, inner: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let sorted = app.sort.column == placed.column;
    let mark = theme
        .glyphs
        .sort
        .get(usize::from(app.sort.ascending()))
        .copied()
        .unwrap_or("");
    let mut text = if sorted && placed.column != Column::Bar {
        format!("{}{mark}", placed.title)
    } else {
        placed.title.clone()
    };
    let width = usize::from(placed.width);
    text = if placed.column == Column::History {
        chrome::left(&format!("  {text}"), width, "")
    } else if placed.column.is_text() {
        chrome::left(&text, width, "")
    } else {
        chrome::right(&text, width, "")
    };
    let style = if sorted { theme.accent } else { theme.dim };
    chrome::put(
        &Line::styled(text, style),
        placed.title_area(chrome::row(inner, 0)),
        buf,
    );
}

fn cell(app: &App, placed: &Placed, row: &BrickRow, largest: f64, line: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let block = theme.category(row.category);
    let width = usize::from(placed.width);
    let ellipsis = theme.glyphs.ellipsis;
    let area = placed.title_area(line);
    let content = match placed.column {
        Column::Brick => Line::styled(chrome::left(&placed.cell(row), width, ellipsis), block),
        Column::Block => Line::styled(chrome::left(&placed.cell(row), width, ellipsis), theme.dim),
        Column::Bar => {
            let share = if largest > 0.0 {
                row.share / largest
            } else {
                0.0
            };
            let mut spans = vec![Span::raw(" ")];
            spans.extend(chrome::bar(
                share,
                width.saturating_sub(1),
                &theme.glyphs,
                block,
                theme.dim,
            ));
            Line::from(spans)
        }
        Column::Roof => roof(app, row, width),
        Column::History => return history(app, row, area, buf),
        column => {
            let style = if column == app.sort.column {
                theme.strong
            } else {
                Default::default()
            };
            Line::styled(chrome::right(&placed.cell(row), width, ellipsis), style)
        }
    };
    chrome::put(&content, area, buf);
}
