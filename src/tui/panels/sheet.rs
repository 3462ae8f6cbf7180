//! A sheet of lines that scrolls: sentences, tables and facts below each other.

use super::chrome;
use crate::tui::state::{App, Panel};
use crate::tui::text::wrap;
use crate::tui::update::moved;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Columns of a fact (label and value) and of the gap to the next one.
const FACT: usize = 29;
const LABEL: usize = 12;
const GAP: usize = 3;

/// Lines of a known width.
pub struct Sheet {
    width: usize,
    lines: Vec<Line<'static>>,
}

impl Sheet {
    /// An empty sheet of `width` columns.
    pub fn new(width: usize) -> Self {
        Self {
            width,
            lines: Vec::new(),
        }
    }

    /// Its width in columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Adds text, wrapped; nothing when it is empty.
    pub fn text(&mut self, text: &str, style: Style) {
        if text.is_empty() {
            return;
        }
        let lines = wrap(text, self.width).into_iter().map(|range| {
            let part = text.get(range).unwrap_or_default().to_string();
            Line::styled(part, style)
        });
        self.lines.extend(lines);
    }

    /// Adds lines.
    pub fn lines(&mut self, lines: Vec<Line<'static>>) {
        self.lines.extend(lines);
    }

    /// Adds an empty line, unless the sheet is empty.
    pub fn gap(&mut self) {
        if !self.lines.is_empty() {
            self.lines.push(Line::default());
        }
    }

    /// Adds labels with their values, side by side where there is room, in reading order by column.
    pub fn facts(&mut self, app: &App, facts: Vec<(&str, String)>) {
        let columns = ((self.width + GAP) / (FACT + GAP)).clamp(1, 4);
        let rows = facts.len().div_ceil(columns);
        let width = FACT.min(self.width);
        for row in 0..rows {
            let mut spans = Vec::new();
            for (name, value) in facts.iter().skip(row).step_by(rows.max(1)) {
                if !spans.is_empty() {
                    spans.push(Span::raw(" ".repeat(GAP)));
                }
                let ellipsis = app.theme.glyphs.ellipsis;
                let label = LABEL.min(width);
                spans.push(Span::styled(
                    chrome::left(name, label, ellipsis),
                    app.theme.dim,
                ));
                spans.push(Span::raw(chrome::right(value, width - label, ellipsis)));
            }
            self.lines.push(Line::from(spans));
        }
    }

    /// `top` moved by `by` lines in a panel of `area`.
    pub fn scrolled(&self, top: usize, by: i64, area: Rect) -> usize {
        let last = self.last_top(area);
        moved(top.min(last), by, last + 1)
    }

    fn last_top(&self, area: Rect) -> usize {
        let rows = usize::from(chrome::inner(area).height);
        self.lines.len().saturating_sub(rows)
    }
}

/// Draws `panel` with the sheet in it from line `top` on.
pub fn render(
    app: &App,
    panel: Panel,
    area: Rect,
    buf: &mut Buffer,
    heading: Line<'static>,
    sheet: &Sheet,
    top: usize,
) {
    let rows = usize::from(chrome::inner(area).height);
    let top = top.min(sheet.last_top(area));
    let position = chrome::position(app, top, rows, sheet.lines.len());
    let inner = chrome::panel(app, panel, area, buf, heading, Line::from(position));
    for (i, line) in sheet.lines.iter().skip(top).take(rows).enumerate() {
        chrome::put(line, chrome::row(inner, i), buf);
    }
}
