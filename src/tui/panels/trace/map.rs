//! The map of activation patching: layers down, positions across, in each cell what patching there does to the answer's
//! logit. Sign and digit carry the value; two hues follow them.

use super::reading::{plain, quoted, signed, tail};
use super::table::top;
use crate::trace::figures::PatchMap;
use crate::tui::format::number;
use crate::tui::panels::chrome::{self, Part};
use crate::tui::state::App;
use crate::tui::text::{fit, sanitise};
use crate::tui::theme::Glyphs;
use crate::tui::update::moved;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Columns of the layers' numbers.
const LAYER: u16 = 5;
/// Columns of a cell: the least, that from which it holds logits in figures, and the most.
const CELL: (u16, u16, u16) = (2, 7, 12);
/// Lines above the cells: what is patched, the logits, the tokens.
const ABOVE: u16 = 3;

/// Where the cells are.
pub(super) struct Grid {
    cells: Rect,
    width: u16,
    /// First row and first column shown.
    top: usize,
    left: usize,
    rows: usize,
    columns: usize,
}

/// The map shown.
pub(super) fn map(app: &App) -> Option<&PatchMap> {
    super::reading::frame(app)?.map.as_deref()
}

/// The effect in a cell.
fn effect(map: &PatchMap, row: usize, column: usize) -> Option<f64> {
    let v = (*map.cells.get(row)?.get(column)?)?;
    v.is_finite().then_some(v)
}

/// The largest effect, with its row and column.
fn largest(map: &PatchMap) -> Option<(usize, usize, f64)> {
    let columns = map.tokens.len();
    let mut best: Option<(usize, usize, f64)> = None;
    for row in 0..map.layers.len() {
        for column in 0..columns {
            if let Some(v) = effect(map, row, column)
                && best.is_none_or(|b| v.abs() > b.2.abs())
            {
                best = Some((row, column, v));
            }
        }
    }
    best
}

/// Row and column of the cell under the cursor.
pub(super) fn cursor(app: &App, map: &PatchMap) -> (usize, usize) {
    match app.views.trace.cell {
        Some((layer, column)) => {
            let row = map.layers.iter().rposition(|l| *l <= layer).unwrap_or(0);
            let last = map.tokens.len().saturating_sub(1);
            (row, (column as usize).min(last))
        }
        None => largest(map).map_or((0, 0), |(row, column, _)| (row, column)),
    }
}

fn grid(app: &App, map: &PatchMap, inner: Rect) -> Grid {
    let above = if inner.height >= 8 { ABOVE } else { 1 };
    let below = match inner.height {
        0..5 => 0,
        5..9 => 1,
        // The legend, and a line of what the last statement said.
        _ => 2 + u16::from(!super::said(app).is_empty()),
    };
    let x = inner.x + LAYER.min(inner.width);
    let cells = Rect::new(
        x,
        inner.y + above.min(inner.height),
        inner.right() - x,
        inner
            .height
            .saturating_sub(above + below)
            .min(u16::try_from(map.layers.len()).unwrap_or(u16::MAX)),
    );
    let count = map.tokens.len().max(1);
    let each = usize::from(cells.width) / count;
    let width = each.clamp(CELL.0.into(), CELL.2.into()) as u16;
    let columns = usize::from(cells.width / width);
    let rows = usize::from(cells.height);
    let (row, column) = cursor(app, map);
    Grid {
        cells,
        width,
        top: top(row, rows, map.layers.len()),
        left: top(column, columns, count),
        rows,
        columns,
    }
}

/// Text of a cell: logits where there is room, with their height where there is more, else a sign and ninths of the largest
/// effect.
fn text(v: Option<f64>, max: f64, width: u16, g: &Glyphs) -> String {
    let Some(v) = v else {
        return "-".into();
    };
    let share = if max > 0.0 { v.abs() / max } else { 0.0 };
    if width >= CELL.1 {
        // Of ASCII heights some look like signs.
        let steps = g.ramp.len().saturating_sub(1);
        let height = g.ramp.get((share * steps as f64).round() as usize);
        return match height.filter(|_| width >= CELL.1 + 2 && !g.ascii) {
            Some(height) => format!("{height}{:>7}", signed(v)),
            None => signed(v),
        };
    }
    match (share * 9.0).round() {
        t if t < 1.0 => g.dot.into(),
        t => format!(
            "{}{}",
            if v < 0.0 { '-' } else { '+' },
            number(t.min(9.0), 0)
        ),
    }
}

/// The hue of an effect: one for what raises the logit, one for what lowers it, none for what does little.
fn hue(app: &App, v: Option<f64>, max: f64) -> Style {
    match v {
        Some(v) if max > 0.0 && v.abs() / max * 9.0 >= 0.5 => {
            if v < 0.0 {
                app.theme.bad
            } else {
                app.theme.good
            }
        }
        _ => app.theme.dim,
    }
}

/// Draws the map.
pub(super) fn render(app: &App, map: &PatchMap, inner: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let g = &theme.glyphs;
    let grid = grid(app, map, inner);
    let at = cursor(app, map);
    head(app, map, inner, (grid.cells.y - inner.y).into(), buf);
    if grid.cells.y > inner.y + 1 {
        tokens(app, map, &grid, at.1, buf);
    }
    let max = largest(map).map_or(0.0, |(_, _, v)| v.abs());
    let shown = map.layers.iter().enumerate().skip(grid.top).take(grid.rows);
    for (line, (row, layer)) in shown.enumerate() {
        let y = grid.cells.y + line as u16;
        let label = super::table::layer_cell(app, *layer, row == at.0, "");
        let style = if row == at.0 { theme.accent } else { theme.dim };
        let area = Rect::new(inner.x, y, LAYER.min(inner.width), 1);
        chrome::put(&Line::styled(label, style), area, buf);
        let last = (grid.left + grid.columns).min(map.tokens.len());
        for column in grid.left..last {
            let v = effect(map, row, column);
            let x = grid.cells.x + (column - grid.left) as u16 * grid.width;
            let columns = usize::from(grid.width) - usize::from(grid.width > 2);
            let text = chrome::right(&text(v, max, grid.width, g), columns, g.ellipsis);
            let mut style = hue(app, v, max);
            if (row, column) == at {
                style = style.patch(theme.selected);
            }
            let cell = Rect::new(x, y, grid.width, 1);
            chrome::put(&Line::styled(text, style), cell, buf);
        }
    }
    let mut foot = vec![
        detail(app, map, at, inner.width.into()),
        legend(app, map, &grid, max, inner.width),
    ];
    let clean = |t: &String| fit(&sanitise(t, g.ascii), inner.width.into(), g.ellipsis);
    let said = super::said(app);
    let newest = said.iter().skip(said.len().saturating_sub(4));
    foot.extend(newest.map(|t| Line::styled(clean(t), theme.warn)));
    foot.extend(map.notes.iter().map(|t| Line::styled(clean(t), theme.dim)));
    for (line, i) in foot.iter().zip(0u16..) {
        let y = grid.cells.bottom().saturating_add(i);
        if y < inner.bottom() {
            let area = Rect::new(inner.x, y, inner.width, 1);
            chrome::put(line, area, buf);
        }
    }
}

/// What is patched into what, and the logits on either side.
fn head(app: &App, map: &PatchMap, inner: Rect, rows: usize, buf: &mut Buffer) {
    let theme = &app.theme;
    let g = &theme.glyphs;
    let site = match map.site.as_str() {
        "residual" => "the residual stream",
        "attention" => "what attention adds",
        "ffn" => "what the FFN adds",
        other => other,
    };
    let site = sanitise(site, g.ascii);
    let said = site.chars().count() + " from \"\" into \"\"".len();
    let half = usize::from(inner.width).saturating_sub(said) / 2;
    let text = |t: &str| tail(&sanitise(t, g.ascii), half.max(8), g.ellipsis);
    let first = format!(
        "{site} from \"{}\" into \"{}\"",
        text(&map.source),
        text(&map.prompt)
    );
    let second = format!(
        "logit of {}: {} as it is, {} in the source's run",
        quoted(app, &map.answer),
        plain(map.base_logit),
        plain(map.source_logit)
    );
    for (i, text) in [first, second].iter().take(rows.max(1)).enumerate() {
        let style = if i == 0 { theme.strong } else { Style::new() };
        let text = fit(text, inner.width.into(), g.ellipsis);
        chrome::put(&Line::styled(text, style), chrome::row(inner, i), buf);
    }
}

/// The tokens over their columns, or their positions where columns are too narrow.
fn tokens(app: &App, map: &PatchMap, grid: &Grid, cursor: usize, buf: &mut Buffer) {
    let theme = &app.theme;
    let g = &theme.glyphs;
    let columns = usize::from(grid.width) - usize::from(grid.width > 2);
    let shown = map.tokens.iter().enumerate();
    for (i, token) in shown.skip(grid.left).take(grid.columns) {
        let text = if grid.width >= 4 {
            let text = sanitise(token.text.trim_start(), g.ascii);
            let text = if i == cursor {
                format!("[{}]", fit(&text, columns.saturating_sub(2), g.ellipsis))
            } else {
                text
            };
            chrome::right(&text, columns, g.ellipsis)
        } else {
            // Tens apart, so that numbers do not run into each other.
            let number = if i % 10 == 0 { i % 100 } else { i % 10 };
            if grid.width < 3 && i % 10 == 9 {
                // The number behind it takes two columns.
                String::new()
            } else {
                format!("{number:>columns$}")
            }
        };
        let style = if i == cursor { theme.accent } else { theme.dim };
        let x = grid.cells.x + (i - grid.left) as u16 * grid.width;
        let area = Rect::new(x, grid.cells.y - 1, grid.width, 1);
        chrome::put(&Line::styled(text, style), area, buf);
    }
}

/// The cell under the cursor in figures and words.
fn detail(
    app: &App,
    map: &PatchMap,
    (row, column): (usize, usize),
    columns: usize,
) -> Line<'static> {
    let theme = &app.theme;
    let name = |t: Option<&_>| t.map_or("nothing".into(), |t| quoted(app, t));
    let layer = map.layers.get(row).map_or("-".into(), u32::to_string);
    let source = map.source_tokens.get(column).and_then(Option::as_ref);
    let v = effect(map, row, column);
    let apart = map.source_logit - map.base_logit;
    let share = v
        .map(|v| v / apart)
        .filter(|s| s.is_finite() && apart.abs() > 1e-6)
        .map(|s| format!("{}% of the way", number(s * 100.0, 0)));
    let effect = match v {
        Some(v) => format!("{} logits", signed(v)),
        None => "not computed".into(),
    };
    let text = |rank, text: String| Part::new(rank, vec![Span::raw(text)]);
    let mut parts = vec![
        Part::new(0, vec![Span::styled(effect, theme.strong)]),
        text(1, format!("layer {layer}, position {column}")),
        text(
            2,
            format!("{} from {}", name(map.tokens.get(column)), name(source)),
        ),
    ];
    parts.extend(share.map(|share| text(3, share)));
    let gap = Span::styled(format!(" {} ", theme.glyphs.dot), theme.dim);
    chrome::join(parts, &gap, columns)
}

/// What signs, digits and hues mean.
fn legend(app: &App, map: &PatchMap, grid: &Grid, max: f64, columns: u16) -> Line<'static> {
    let theme = &app.theme;
    let dim = |t: String| Span::styled(t, theme.dim);
    let mut parts = vec![Part::new(
        0,
        vec![
            Span::styled("+ raises", theme.good),
            dim(", ".into()),
            Span::styled("- lowers", theme.bad),
            dim(" the logit".into()),
        ],
    )];
    if grid.width < CELL.1 {
        parts.push(Part::new(
            1,
            vec![dim(format!("9 is {} logits", plain(max)))],
        ));
    } else {
        parts.push(Part::new(1, vec![dim("in logits".into())]));
    }
    let missing = (0..map.layers.len())
        .any(|row| (0..map.tokens.len()).any(|c| effect(map, row, c).is_none()));
    if missing {
        parts.push(Part::new(2, vec![dim("- alone: not computed".into())]));
    }
    let gap = dim(format!(" {} ", theme.glyphs.dot));
    chrome::join(parts, &gap, columns.into())
}

/// Moves the cursor over the cells.
pub(super) fn move_cursor(app: &mut App, down: i64, right: i64) {
    let to = map(app).and_then(|map| {
        let (row, column) = cursor(app, map);
        let layer = map.layers.get(moved(row, down, map.layers.len()))?;
        let column = moved(column, right, map.tokens.len());
        Some((*layer, u32::try_from(column).ok()?))
    });
    if to.is_some() {
        app.views.trace.cell = to;
    }
}

/// A click selects a cell.
pub(super) fn click(app: &mut App, inner: Rect, at: Position) {
    let to = map(app).and_then(|map| {
        let grid = grid(app, map, inner);
        if !grid.cells.contains(at) {
            return None;
        }
        let row = grid.top + usize::from(at.y - grid.cells.y);
        let column = grid.left + usize::from((at.x - grid.cells.x) / grid.width);
        let layer = map.layers.get(row)?;
        (column < map.tokens.len()).then_some((*layer, u32::try_from(column).ok()?))
    });
    if to.is_some() {
        app.views.trace.cell = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_say_sign_and_size() {
        use crate::tui::theme::Theme;
        let (unicode, ascii) = (
            Theme::new(true, false).glyphs,
            Theme::new(true, true).glyphs,
        );
        assert_eq!(text(Some(4.7), 4.7, 3, &ascii), "+9");
        assert_eq!(text(Some(-2.4), 4.7, 3, &ascii), "-5");
        assert_eq!(text(Some(0.1), 4.7, 3, &unicode), "·");
        assert_eq!(text(Some(-2.4), 4.7, 8, &unicode), "-2.40");
        assert_eq!(text(Some(-2.4), 4.7, 9, &unicode), "▄  -2.40");
        assert_eq!(text(None, 4.7, 8, &ascii), "-");
        assert_eq!(text(Some(0.0), 0.0, 2, &ascii), "|");
    }
}
