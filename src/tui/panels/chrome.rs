//! Frames, bars, sparklines and lines that drop what does not fit: the parts all panels are made of.

use crate::model::brick::Category;
use crate::tui::state::{App, Panel};
use crate::tui::text::{fit, width};
use crate::tui::theme::Glyphs;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Widget};

/// The blocks in the order of legends.
pub const BLOCKS: [Category; 5] = [
    Category::Attention,
    Category::Ffn,
    Category::Head,
    Category::Norm,
    Category::Overhead,
];

/// The area inside a panel's frame; a panel too small for a frame has none.
pub fn inner(area: Rect) -> Rect {
    // A column of air on both sides where it costs no figure.
    let side = if area.width >= 40 { 2 } else { 1 };
    if framed(area) {
        Rect::new(
            area.x + side,
            area.y + 1,
            area.width - 2 * side,
            area.height - 2,
        )
    } else {
        area
    }
}

fn framed(area: Rect) -> bool {
    area.width >= 6 && area.height >= 3
}

/// Draws the frame of `panel` with its number and title, `right` in the top line and `bottom` in the bottom line where
/// they fit, and returns the area inside.
pub fn panel(
    app: &App,
    panel: Panel,
    area: Rect,
    buf: &mut Buffer,
    right: Line<'static>,
    bottom: Line<'static>,
) -> Rect {
    let theme = &app.theme;
    let focused = app.focus == panel;
    let title = Line::from(vec![
        Span::styled(
            if focused { theme.glyphs.pointer } else { " " },
            theme.accent,
        ),
        Span::styled(format!("{} ", app.panel_key(panel)), theme.accent),
        Span::styled(
            format!("{} ", panel.title()),
            if focused { theme.accent } else { theme.strong },
        ),
    ]);
    frame(app, area, buf, focused, title, right, bottom)
}

/// Draws a frame; titles that do not fit beside each other are left out, the right one first.
pub fn frame(
    app: &App,
    area: Rect,
    buf: &mut Buffer,
    focused: bool,
    title: Line<'static>,
    right: Line<'static>,
    bottom: Line<'static>,
) -> Rect {
    if !framed(area) {
        return area;
    }
    let room = usize::from(area.width) - 4;
    let mut block = Block::new()
        .borders(Borders::ALL)
        .border_set(app.theme.glyphs.border)
        .border_style(if focused {
            app.theme.border_focus
        } else {
            app.theme.border
        });
    let fits_right = right.width() > 0 && title.width() + right.width() < room;
    block = block.title_top(title);
    if fits_right {
        block = block.title_top(right.right_aligned());
    }
    if bottom.width() > 0 && bottom.width() <= room {
        block = block.title_bottom(bottom);
    }
    block.render(area, buf);
    inner(area)
}

/// Why there is no step to show.
pub fn no_step(app: &App) -> &'static str {
    if app.snapshot().profiling.mode == "none" {
        "bricks are not timed (--sync-mode none)"
    } else {
        "waits for the first decode steps"
    }
}

/// A part of a line: parts of the highest rank are dropped first when the line is too long.
pub struct Part {
    /// 0 is never dropped.
    pub rank: u8,
    /// What it says.
    pub spans: Vec<Span<'static>>,
}

impl Part {
    /// A part of styled pieces.
    pub fn new(rank: u8, spans: Vec<Span<'static>>) -> Self {
        Self { rank, spans }
    }
}

/// Joins the parts that fit in `columns` with `gap`.
pub fn join(mut parts: Vec<Part>, gap: &Span<'static>, columns: usize) -> Line<'static> {
    let len = |p: &Part| p.spans.iter().map(Span::width).sum::<usize>();
    parts.retain(|p| len(p) > 0);
    loop {
        let total: usize =
            parts.iter().map(len).sum::<usize>() + gap.width() * parts.len().saturating_sub(1);
        let Some((worst, rank)) = parts
            .iter()
            .enumerate()
            .map(|(i, p)| (i, p.rank))
            .max_by_key(|(i, r)| (*r, *i))
        else {
            break;
        };
        if total <= columns || rank == 0 {
            break;
        }
        parts.remove(worst);
    }
    let mut spans = Vec::new();
    for (i, part) in parts.into_iter().enumerate() {
        if i > 0 {
            spans.push(gap.clone());
        }
        spans.extend(part.spans);
    }
    Line::from(spans)
}

/// A horizontal bar of `columns` with `share` (0 to 1) filled, in eighths where the glyphs allow.
pub fn bar(
    share: f64,
    columns: usize,
    glyphs: &Glyphs,
    full: Style,
    empty: Style,
) -> Vec<Span<'static>> {
    let share = if share.is_finite() {
        share.clamp(0.0, 1.0)
    } else {
        0.0
    };
    let steps = glyphs.bar.len().saturating_sub(1).max(1);
    let units = (share * (columns * steps) as f64).round() as usize;
    let (whole, part) = (units / steps, units % steps);
    let block = glyphs.bar.last().copied().unwrap_or("#");
    let mut filled = block.repeat(whole.min(columns));
    if part > 0 && whole < columns {
        filled.push_str(glyphs.bar.get(part).copied().unwrap_or(" "));
    }
    let rest = columns - width(&filled).min(columns);
    vec![
        Span::styled(filled, full),
        Span::styled(glyphs.track.repeat(rest), empty),
    ]
}

/// Draws the newest of `values` (last on the right) as columns between `low` and `high` over the whole area.
pub fn sparkline(
    values: &[f64],
    low: f64,
    high: f64,
    area: Rect,
    buf: &mut Buffer,
    glyphs: &Glyphs,
    style: Style,
) {
    let steps = glyphs.ramp.len().saturating_sub(1);
    let levels = steps * usize::from(area.height);
    let newest = values.iter().rev().take(area.width.into());
    for (x, value) in (area.left()..area.right()).rev().zip(newest) {
        let t = ((value - low) / (high - low).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
        let filled = if t.is_finite() {
            (t * levels as f64).round() as usize
        } else {
            0
        };
        // The lowest visible level stands for "there was a token".
        let filled = filled.max(1);
        for (row, y) in (area.top()..area.bottom()).rev().enumerate() {
            let level = filled.saturating_sub(row * steps).min(steps);
            if let Some(glyph) = glyphs.ramp.get(level) {
                buf.set_stringn(x, y, glyph, 1, style);
            }
        }
    }
}

/// Draws `line` at the top of `area`, cut to its width. ASCII, nearly all there is, goes straight into the cells: splitting
/// it into graphemes would be a third of a frame's cost.
pub fn put(line: &Line<'_>, area: Rect, buf: &mut Buffer) {
    let area = area.intersection(buf.area);
    if area.is_empty() {
        return;
    }
    let mut x = area.x;
    for span in &line.spans {
        let style = line.style.patch(span.style);
        if !span.content.bytes().all(|b| matches!(b, b' '..=b'~')) {
            (x, _) = buf.set_stringn(
                x,
                area.y,
                &span.content,
                usize::from(area.right() - x),
                style,
            );
            continue;
        }
        for (byte, to) in span.content.bytes().zip(x..area.right()) {
            if let Some(cell) = buf.cell_mut((to, area.y)) {
                cell.set_char(char::from(byte)).set_style(style);
            }
            x = to + 1;
        }
    }
}

/// The row `index` of `area`, empty when outside.
pub fn row(area: Rect, index: usize) -> Rect {
    let y = u16::try_from(index).unwrap_or(u16::MAX);
    if y < area.height {
        Rect::new(area.x, area.y + y, area.width, 1)
    } else {
        Rect::new(area.x, area.y, 0, 0)
    }
}

/// `text` right-aligned in `columns`, cut if it must be.
pub fn right(text: &str, columns: usize, ellipsis: &str) -> String {
    let text = fit(text, columns, ellipsis);
    format!("{}{text}", " ".repeat(columns - width(&text).min(columns)))
}

/// `text` left-aligned in `columns`, cut if it must be.
pub fn left(text: &str, columns: usize, ellipsis: &str) -> String {
    let mut text = fit(text, columns, ellipsis);
    text.push_str(&" ".repeat(columns - width(&text).min(columns)));
    text
}

/// The first row to show of a list so that `cursor` is visible in `rows`.
pub fn scroll_to(cursor: usize, rows: usize) -> usize {
    (cursor + 1).saturating_sub(rows.max(1))
}

/// `first–last of total` for a list that does not fit; empty when it does.
pub fn position(app: &App, top: usize, rows: usize, total: usize) -> Vec<Span<'static>> {
    if rows >= total {
        return Vec::new();
    }
    let text = format!(
        " {}{}{} of {total} ",
        top + 1,
        app.theme.glyphs.to,
        (top + rows).min(total)
    );
    vec![Span::styled(text, app.theme.dim)]
}
