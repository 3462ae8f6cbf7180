//! Tables of facts whose columns are dropped by rank where they do not fit.

use super::chrome;
use crate::tui::state::App;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// A column.
pub struct Column {
    /// Title, with the unit.
    pub title: String,
    /// Columns on the screen, the gap before it not counted.
    pub width: usize,
    /// Columns of the highest rank are dropped first; 0 never is.
    pub rank: u8,
    /// Whether its text stands on the left; numbers stand on the right.
    pub left: bool,
}

impl Column {
    /// A column of text.
    pub fn text(title: &str, width: usize, rank: u8) -> Self {
        Self {
            title: title.into(),
            width,
            rank,
            left: true,
        }
    }

    /// A column of numbers.
    pub fn number(title: &str, width: usize, rank: u8) -> Self {
        Self {
            left: false,
            ..Self::text(title, width, rank)
        }
    }
}

/// Text of a cell and its style.
pub type Cell = (String, Style);

/// Indices of the columns that fit in `width` with a gap of one between them, in order.
pub fn fitting(columns: &[Column], width: usize) -> Vec<usize> {
    let mut by_rank: Vec<usize> = (0..columns.len()).collect();
    by_rank.sort_by_key(|i| columns.get(*i).map_or(u8::MAX, |c| c.rank));
    let mut left = width + 1;
    let mut kept = Vec::new();
    for i in by_rank {
        let Some(c) = columns.get(i) else { continue };
        if c.width + 1 > left && c.rank > 0 {
            break;
        }
        left = left.saturating_sub(c.width + 1);
        kept.push(i);
    }
    kept.sort_unstable();
    kept
}

/// The line of titles and one line a row, in `width` columns.
pub fn lines(
    app: &App,
    columns: &[Column],
    rows: Vec<Vec<Cell>>,
    width: usize,
) -> Vec<Line<'static>> {
    let kept = fitting(columns, width);
    let ellipsis = app.theme.glyphs.ellipsis;
    let line = |cells: Vec<Cell>| {
        let mut spans = Vec::new();
        for &i in &kept {
            let (Some(column), Some((text, style))) = (columns.get(i), cells.get(i)) else {
                continue;
            };
            if !spans.is_empty() {
                spans.push(Span::raw(" "));
            }
            let text = if column.left {
                chrome::left(text, column.width, ellipsis)
            } else {
                chrome::right(text, column.width, ellipsis)
            };
            spans.push(Span::styled(text, *style));
        }
        Line::from(spans)
    };
    let titles = columns.iter().map(|c| (c.title.clone(), app.theme.dim));
    let mut lines = vec![line(titles.collect())];
    lines.extend(rows.into_iter().map(line));
    lines
}
