//! The layer by brick map: rows are bricks, columns layers, and glyph and colour of a cell say how hot it is.
//!
//! Keys: `h` `l` the layer, `j` `k` the brick, `+` compares with the hottest cell and `-` with the brick's own mean.

use super::chrome::{self, Part};
use super::layers::{self, Grid, MEAN};
use crate::model::brick::BrickId;
use crate::session::snapshot::HeatRow;
use crate::tui::format::{Scale, micros, number};
use crate::tui::keymap::Action;
use crate::tui::state::{App, Panel};
use crate::tui::update::moved;
use crate::tui::views::HeatScale;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};

/// Columns for the names of the bricks.
pub(super) const NAME: u16 = 13;
/// The map needs so many rows to say more than the strip.
const LEAST_ROWS: u16 = 9;
/// Rows that are not bricks: sentence, total, numbers of the layers, one layer in words.
const AROUND: usize = 4;
/// Cells within this share of their brick's mean are the same: noise is not drawn as a pattern.
const EVEN: f64 = 0.02;

/// Whether the map is drawn in a panel with this inner area.
pub(super) fn fits(app: &App, inner: Rect) -> bool {
    inner.height >= LEAST_ROWS
        && inner.width >= NAME + MEAN + 10
        && !app.snapshot().layers.is_empty()
        && app
            .snapshot()
            .heat
            .iter()
            .any(|r| r.us.iter().any(Option::is_some))
}

/// A known time that can be compared.
fn known(us: Option<f64>) -> Option<f64> {
    us.filter(|v| v.is_finite() && *v >= 0.0)
}

/// Mean over the layers that have the brick.
fn mean(row: &HeatRow) -> Option<f64> {
    let known = || row.us.iter().filter_map(|v| known(*v));
    let count = known().count();
    (count > 0).then(|| known().sum::<f64>() / count as f64)
}

fn hottest(rows: &[HeatRow]) -> f64 {
    let all = rows.iter().flat_map(|r| &r.us);
    all.filter_map(|v| known(*v)).fold(0.0, f64::max)
}

/// Rows of the map: how many lie where.
struct Shape {
    total: usize,
    bricks: usize,
    parts: usize,
    top: usize,
}

fn shape(app: &App, inner: Rect) -> Shape {
    let rows = &app.snapshot().heat;
    let room = usize::from(inner.height).saturating_sub(AROUND);
    let bricks = rows.len().min(room);
    let spare = room - bricks;
    let total = spare.min(4);
    let parts = layers::parts(&app.snapshot().layers)
        .len()
        .saturating_sub(1);
    Shape {
        total: 1 + total,
        bricks,
        // All of them or none: some of the parts of a whole mislead.
        parts: if spare - total >= parts { parts } else { 0 },
        top: chrome::scroll_to(cursor_row(app).unwrap_or(0), bricks),
    }
}

fn cursor_row(app: &App) -> Option<usize> {
    let id = app.views.heat.brick?;
    app.snapshot().heat.iter().position(|r| r.id == id)
}

/// Draws the map inside the panel.
pub(super) fn render(app: &App, inner: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let snapshot = app.snapshot();
    let grid = Grid::new(inner, snapshot.layers.len(), NAME);
    let shape = shape(app, inner);
    let text = chrome::left(&sentence(app), inner.width.into(), theme.glyphs.ellipsis);
    chrome::put(
        &Line::styled(text, theme.strong),
        chrome::row(inner, 0),
        buf,
    );
    let parts = layers::parts(&snapshot.layers);
    let mut line = 1;
    if let Some(total) = parts.first() {
        let area = Rect {
            height: shape.total as u16,
            ..chrome::row(inner, line)
        };
        layers::strip(app, total, grid, area, buf);
    }
    line += shape.total;
    let scale = Scale::time(hottest(&snapshot.heat), theme.glyphs.micro);
    let hot = hottest(&snapshot.heat);
    for row in snapshot.heat.iter().skip(shape.top).take(shape.bricks) {
        draw_row(app, row, grid, (scale, hot), chrome::row(inner, line), buf);
        line += 1;
    }
    for part in parts.iter().skip(1).take(shape.parts) {
        layers::strip(app, part, grid, chrome::row(inner, line), buf);
        line += 1;
    }
    layers::index(app, grid, chrome::row(inner, line), buf);
    let last = usize::from(inner.height).saturating_sub(1).min(line + 2);
    chrome::put(
        &layers::detail(app, inner.width.into()),
        chrome::row(inner, last),
        buf,
    );
}

fn draw_row(
    app: &App,
    row: &HeatRow,
    grid: Grid,
    (scale, hot): (Scale, f64),
    line: Rect,
    buf: &mut Buffer,
) {
    let theme = &app.theme;
    let focused = app.focus == Panel::Layers;
    let under_cursor = focused && app.views.heat.brick == Some(row.id);
    let name = chrome::left(row.id.name(), usize::from(NAME) - 1, theme.glyphs.ellipsis);
    let style = if under_cursor {
        theme.selected
    } else {
        theme.category(row.id.category())
    };
    chrome::put(&Line::styled(name, style), line, buf);
    let mean = mean(row);
    let marked = layers::marked(app, grid);
    let count = app.snapshot().layers.len().div_ceil(grid.layers.max(1));
    let mut chunks = row.us.chunks(grid.layers.max(1));
    for i in 0..count {
        let Some(x) = grid.column(i, line.right()) else {
            break;
        };
        // Of layers that share a column the slowest shows.
        let slowest = chunks
            .next()
            .and_then(|c| c.iter().filter_map(|v| known(*v)).reduce(f64::max));
        let (glyph, style) = match slowest {
            Some(us) => theme.heat(heat(app.views.heat.scale, us, mean, hot)),
            None => (theme.glyphs.track, theme.dim),
        };
        let crossed = marked == Some(i) && (under_cursor || app.views.heat.brick.is_none());
        let style = if crossed {
            style.patch(theme.selected)
        } else {
            style
        };
        let text = glyph.repeat(grid.filled().into());
        buf.set_stringn(x, line.y, text, grid.filled().into(), style);
    }
    let x = grid
        .x
        .saturating_add((count as u16).saturating_mul(grid.width));
    if x.saturating_add(MEAN) <= line.right() {
        let text = format!("{} {}", scale.show(mean), scale.unit);
        let side = Rect {
            x,
            width: MEAN,
            ..line
        };
        let text = chrome::right(&text, MEAN.into(), theme.glyphs.ellipsis);
        chrome::put(&Line::styled(text, theme.strong), side, buf);
    }
}

/// How hot a cell is, 0 to 1: half and twice the own mean are the ends of the one scale, nothing and the hottest cell of
/// the other.
fn heat(scale: HeatScale, us: f64, mean: Option<f64>, hot: f64) -> f64 {
    match (scale, mean) {
        (HeatScale::Hottest, _) if hot > 0.0 => us / hot,
        (HeatScale::OwnMean, Some(mean)) if mean > 0.0 => {
            let ratio = us / mean;
            if (ratio - 1.0).abs() <= EVEN {
                0.5
            } else {
                0.5 + 0.5 * ratio.max(1e-9).log2()
            }
        }
        _ => 0.5,
    }
}

/// A cell in figures.
struct Cell {
    id: BrickId,
    layer: usize,
    us: f64,
    mean: f64,
}

/// The cell under the cursor; with only a brick or a layer chosen, or nothing, the one that loses most against its mean.
fn chosen(app: &App) -> Option<Cell> {
    let focused = app.focus == Panel::Layers;
    let brick = app.views.heat.brick.filter(|_| focused);
    let layer = app.layer_cursor.filter(|_| focused);
    let rows = &app.snapshot().heat;
    let brick = brick.filter(|id| rows.iter().any(|r| r.id == *id));
    let mut best: Option<Cell> = None;
    for row in rows.iter().filter(|r| brick.is_none_or(|id| r.id == id)) {
        let Some(mean) = mean(row) else { continue };
        for (at, us) in row.us.iter().enumerate() {
            let Some(us) = known(*us).filter(|_| layer.is_none_or(|l| l == at)) else {
                continue;
            };
            if best.as_ref().is_none_or(|b| us - mean > b.us - b.mean) {
                best = Some(Cell {
                    id: row.id,
                    layer: at,
                    us,
                    mean,
                });
            }
        }
    }
    best
}

fn sentence(app: &App) -> String {
    let g = &app.theme.glyphs;
    let Some(cell) = chosen(app) else {
        return match (app.views.heat.brick, app.layer_cursor) {
            (Some(id), Some(layer)) => format!("layer {layer} has no {}", id.name()),
            _ => "no time is known yet".into(),
        };
    };
    let ratio = if cell.mean > 0.0 {
        cell.us / cell.mean
    } else {
        1.0
    };
    let free = app.views.heat.brick.is_none() && app.layer_cursor.is_none();
    if free && ratio <= 1.1 {
        return format!(
            "no cell stands out: {} in layer {} is the furthest from its mean, {}{}",
            cell.id.name(),
            cell.layer,
            number(ratio, 2),
            g.times
        );
    }
    let apart = cell.us - cell.mean;
    let size = micros(apart.abs(), g.micro);
    let sign = match apart {
        _ if size.starts_with("0.0 ") => "",
        a if a < 0.0 => "-",
        _ => "+",
    };
    format!(
        "{} in layer {} takes {}, {}{} its mean of {} ({sign}{size})",
        cell.id.name(),
        cell.layer,
        micros(cell.us, g.micro),
        number(ratio, 2),
        g.times,
        micros(cell.mean, g.micro),
    )
}

/// What the glyphs mean, how to change it, which rows are shown.
pub(super) fn legend(app: &App, inner: Rect) -> Line<'static> {
    let theme = &app.theme;
    let g = &theme.glyphs;
    let dim = |t: String| Span::styled(t, theme.dim);
    let steps = g.ramp.len().saturating_sub(1).max(1);
    let ramp = (0..steps).map(|i| {
        let (glyph, style) = theme.heat((i as f64 + 0.5) / steps as f64);
        Span::styled(glyph, style)
    });
    let (low, high) = match app.views.heat.scale {
        HeatScale::OwnMean => ("half ".into(), " twice the brick's mean".into()),
        HeatScale::Hottest => (
            "0 ".into(),
            format!(
                " {} the hottest cell",
                micros(hottest(&app.snapshot().heat), g.micro)
            ),
        ),
    };
    let mut spans = vec![dim(low)];
    spans.extend(ramp);
    spans.push(dim(high));
    let mut parts = vec![Part::new(0, spans)];
    let key = |by| app.keymap.label(Action::Magnify(by)).unwrap_or_default();
    let other = match app.views.heat.scale {
        HeatScale::OwnMean => format!("{} against the hottest cell", key(1)),
        HeatScale::Hottest => format!("{} against the brick's mean", key(-1)),
    };
    parts.push(Part::new(2, vec![dim(other)]));
    let grid = Grid::new(inner, app.snapshot().layers.len(), NAME);
    if grid.layers > 1 {
        let text = format!("{} layers a column, the slowest shown", grid.layers);
        parts.push(Part::new(1, vec![dim(text)]));
    }
    let gap = dim(format!(" {} ", g.dot));
    let shape = shape(app, inner);
    let position = chrome::position(app, shape.top, shape.bricks, app.snapshot().heat.len());
    let taken: usize = position.iter().map(Span::width).sum();
    let room = usize::from(inner.width).saturating_sub(4);
    let mut line = chrome::join(parts, &gap, room.saturating_sub(taken));
    line.spans.insert(0, " ".into());
    line.spans.push(" ".into());
    // What the glyphs mean is worth more than which rows they are in.
    if line.width() + taken <= room {
        line.spans.extend(position);
    }
    line
}

/// Moves to the brick `by` rows further down.
pub fn move_cursor(app: &mut App, by: i64) {
    let rows = &app.snapshot().heat;
    let to = match cursor_row(app) {
        Some(at) => moved(at, by, rows.len()),
        None => moved(0, by.saturating_sub(1).max(0), rows.len()),
    };
    app.views.heat.brick = rows.get(to).map(|r| r.id);
}

/// Compares with the hottest cell (`by` over 0) or with each brick's own mean.
pub fn rescale(app: &mut App, by: i64) {
    app.views.heat.scale = if by > 0 {
        HeatScale::Hottest
    } else {
        HeatScale::OwnMean
    };
}

/// A click on a row of the map selects its brick.
pub fn click(app: &mut App, area: Rect, at: Position) {
    let inner = chrome::inner(area);
    if !fits(app, inner) {
        return;
    }
    let shape = shape(app, inner);
    let row = usize::from(at.y)
        .checked_sub(usize::from(inner.y) + 1 + shape.total)
        .filter(|row| *row < shape.bricks);
    if let Some(row) = row {
        app.views.heat.brick = app.snapshot().heat.get(shape.top + row).map(|r| r.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_of_noise_is_even_and_ends_are_half_and_twice() {
        let own = |us| heat(HeatScale::OwnMean, us, Some(10.0), 100.0);
        assert_eq!((own(10.1), own(20.0), own(5.0)), (0.5, 1.0, 0.0));
        assert_eq!(heat(HeatScale::Hottest, 20.0, None, 100.0), 0.2);
        assert_eq!(heat(HeatScale::Hottest, 0.0, None, 0.0), 0.5);
    }
}
