//! The brick table: where the time of a step goes.

use super::chrome::{self, Part};
use crate::model::brick::{BrickId, Category};
use crate::session::snapshot::BrickRow;
use crate::tui::columns::{Column, Phase, Placed, place};
use crate::tui::format::{micros, number};
use crate::tui::state::{App, Panel};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

const BLOCKS: [Category; 5] = [
    Category::Attention,
    Category::Ffn,
    Category::Head,
    Category::Norm,
    Category::Overhead,
];

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
    let (_, cursor) = app.sorted_rows();
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
    let inner = chrome::panel(app, Panel::Bricks, area, buf, heading(app), bottom);
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
            buf.set_style(place, theme.selected);
        }
    }
}

/// What the times are about: `decode · 6.91 ms a token`.
fn heading(app: &App) -> Line<'static> {
    let theme = &app.theme;
    let total: f64 = app.rows().iter().map(|r| r.us_per_step).sum();
    let (phase, step) = match app.phase() {
        Phase::Decode => ("decode", "a token"),
        Phase::Prefill => ("prefill", "a chunk"),
    };
    if app.rows().is_empty() {
        return Line::from(Span::styled(format!(" {phase} "), theme.dim));
    }
    Line::from(vec![
        Span::styled(format!(" {phase} {} ", theme.glyphs.dot), theme.dim),
        Span::styled(micros(total, theme.glyphs.micro), theme.strong),
        Span::styled(format!(" {step} "), theme.dim),
    ])
}

/// Shares of the blocks in their colours.
fn legend(app: &App, columns: usize) -> Line<'static> {
    let theme = &app.theme;
    let parts = BLOCKS.iter().filter_map(|block| {
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
    text = if placed.column.is_text() {
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
