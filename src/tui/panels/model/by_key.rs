//! One head over its queries: rows are queries, columns keys, the height of a cell is its weight.

use super::attention::{Plan, cursor, labelled, text_at};
use super::heads;
use super::parts;
use crate::tracer::figures::{AttentionView, AttentionWeightTrace};
use crate::tui::format::number;
use crate::tui::keymap::Action;
use crate::tui::panels::{chrome, trace};
use crate::tui::state::App;
use crate::tui::text::width;
use crate::tui::update::moved;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::text::Line;

/// Columns of a query's label: cursor, position, token.
const LABEL: u16 = 18;

/// The queries of the head under the cursor; none while the session still shows another head.
fn queries<'a>(app: &App, view: &'a AttentionView) -> &'a [AttentionWeightTrace] {
    if (view.focus.layer, view.focus.head) == cursor(app, view) {
        &view.focus.queries
    } else {
        &[]
    }
}

/// The cells: keys share a column where there are more of them than columns.
struct Grid {
    cells: Rect,
    /// Columns of a cell.
    width: u16,
    /// Keys of a cell.
    keys: u32,
    first_query: usize,
}

fn grid(app: &App, view: &AttentionView, area: Rect) -> Grid {
    let all = queries(app, view);
    let label = LABEL.min(area.width);
    let rows = area.height.saturating_sub(1);
    let cells = Rect::new(
        area.x + label,
        area.y + 1.min(area.height),
        area.width - label,
        rows.min(u16::try_from(all.len()).unwrap_or(u16::MAX)),
    );
    let last = all.iter().map(|q| q.query_pos).max().unwrap_or(0);
    let count = last.saturating_add(1);
    let room = u32::from(cells.width).max(1);
    let width = (room / count).clamp(1, 2) as u16;
    let (query, _) = chosen(app, view);
    Grid {
        cells,
        width,
        keys: count.div_ceil(room).max(1),
        first_query: trace::top(query, cells.height.into(), all.len()),
    }
}

/// Index of the query under the cursor and position of the key: the chosen ones, else the newest query's largest weight.
fn chosen(app: &App, view: &AttentionView) -> (usize, u32) {
    let all = queries(app, view);
    let newest = all.len().saturating_sub(1);
    match app.views.model.cell {
        Some((query, key)) => {
            let at = all.iter().rposition(|q| q.query_pos <= query).unwrap_or(0);
            let last = all.last().map_or(0, |q| q.query_pos);
            (at, key.min(last))
        }
        None => {
            let top = all.last().and_then(|q| q.top_k_positions.first());
            (newest, top.copied().unwrap_or(0))
        }
    }
}

/// The largest weight recorded of the keys from `first` on.
fn largest(q: &AttentionWeightTrace, first: u32, keys: u32) -> Option<(u32, f32)> {
    let inside = |p: u32| p.checked_sub(first).is_some_and(|d| d < keys);
    let known = q
        .top_k_positions
        .iter()
        .copied()
        .zip(q.top_k_weights.iter().copied());
    known
        .filter(|(p, _)| inside(*p))
        .max_by(|a, b| a.1.total_cmp(&b.1))
}

/// What the map is about and what lies under its cursor.
pub(super) fn sentence(app: &App, view: &AttentionView) -> String {
    let (layer, head) = cursor(app, view);
    let all = queries(app, view);
    let (at, key) = chosen(app, view);
    let Some(query) = all.get(at) else {
        let why = if app.snapshot().playback.is_some() {
            "its queries are not in the recording, which has those of one head at a time"
        } else {
            "its queries come with the next step"
        };
        return format!("layer {layer}, head {head}: {why}");
    };
    let weight = match largest(query, key, 1) {
        Some((_, w)) => number(w.into(), 3),
        None if key > query.query_pos => "later than the query".into(),
        None => "not among its largest".into(),
    };
    format!(
        "layer {layer}, head {head}: query {} to key {}: {weight}",
        labelled(app, view, query.query_pos),
        labelled(app, view, key),
    )
}

/// Draws the map and the head in figures.
pub(super) fn render(app: &App, view: &AttentionView, plan: &Plan, buf: &mut Buffer) {
    let all = queries(app, view);
    let (at, _) = chosen(app, view);
    map(app, view, plan.map, buf);
    heads::render(app, view, all.get(at), plan.detail, buf);
}

/// The head under the cursor below the map of all heads.
pub(super) fn below(app: &App, view: &AttentionView, area: Rect, buf: &mut Buffer) {
    if area.height < 3 {
        return;
    }
    let (layer, head) = cursor(app, view);
    let key = app.keymap.label(Action::TraceMap).unwrap_or_default();
    let text = if queries(app, view).is_empty() {
        sentence(app, view)
    } else {
        format!("layer {layer}, head {head} over its queries ({key}: to walk over them)")
    };
    let title = parts::line(app, &text, app.theme.dim, area.width.into());
    chrome::put(&title, area, buf);
    map(app, view, crate::tui::layout::top(area, 1).1, buf);
}

fn map(app: &App, view: &AttentionView, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let g = &theme.glyphs;
    if area.height < 2 || queries(app, view).is_empty() {
        return;
    }
    let grid = grid(app, view, area);
    let (at, key) = chosen(app, view);
    let column = key / grid.keys;
    top_line(app, view, &grid, (key, column), area, buf);
    let shown = queries(app, view).iter().enumerate();
    let rows = shown.skip(grid.first_query).take(grid.cells.height.into());
    for ((i, query), row) in rows.zip(0u16..) {
        let y = grid.cells.y + row;
        let here = i == at;
        let text = text_at(app, view, query.query_pos).unwrap_or_default();
        let text = format!("{}{:>5} {text}", parts::pointer(app, here), query.query_pos);
        let text = chrome::left(&text, usize::from(LABEL) - 1, g.ellipsis);
        let style = if here { theme.accent } else { theme.dim };
        chrome::put(
            &Line::styled(text, style),
            Rect::new(area.x, y, LABEL.min(area.width), 1),
            buf,
        );
        for c in 0..u32::from(grid.cells.width / grid.width) {
            let first = c.saturating_mul(grid.keys);
            let found = largest(query, first, grid.keys);
            let crossed = here && c == column;
            let (glyph, style) = match found {
                Some((_, w)) => theme.heat(f64::from(w).max(0.0).sqrt()),
                None if crossed => (" ", Style::new()),
                None => continue,
            };
            let style = if crossed {
                style.patch(theme.selected)
            } else {
                style
            };
            let x = grid.cells.x + c as u16 * grid.width;
            let cell = Rect::new(x, y, grid.width, 1);
            chrome::put(
                &Line::styled(glyph.repeat(grid.width.into()), style),
                cell,
                buf,
            );
        }
    }
}

/// The key under the cursor over its column, the first and the last key at the ends.
fn top_line(
    app: &App,
    view: &AttentionView,
    grid: &Grid,
    (key, column): (u32, u32),
    area: Rect,
    buf: &mut Buffer,
) {
    let theme = &app.theme;
    let title = Line::styled("query", theme.dim);
    chrome::put(
        &title,
        Rect::new(area.x, area.y, LABEL.min(area.width), 1),
        buf,
    );
    let line = Rect {
        y: area.y,
        height: 1,
        ..grid.cells
    };
    let room = usize::from(line.width);
    let mark = parts::clean(
        app,
        &format!("{}{}", theme.glyphs.sort[0], labelled(app, view, key)),
        room.min(24),
    );
    let x = (column as usize).saturating_mul(grid.width.into());
    let x = x.min(room.saturating_sub(width(&mark)));
    let put = |text: &str, x: usize, style: Style, buf: &mut Buffer| {
        let at = Rect::new(line.x + x as u16, line.y, line.width - x as u16, 1);
        chrome::put(&Line::styled(text.to_string(), style), at, buf);
    };
    if x > 6 {
        put("key 0", 0, theme.dim, buf);
    }
    let last = queries(app, view)
        .last()
        .map_or(0, |q| q.query_pos)
        .to_string();
    let end = (room.saturating_sub(last.len())).min(last.parse().map_or(room, |l: usize| {
        (l / grid.keys.max(1) as usize).saturating_mul(grid.width.into())
    }));
    if x + width(&mark) < end {
        put(&last, end, theme.dim, buf);
    }
    put(&mark, x, theme.accent, buf);
}

/// What heights mean.
pub(super) fn legend(
    app: &App,
    view: &AttentionView,
    inner: Rect,
    columns: usize,
) -> Line<'static> {
    let (_, body) = super::areas(inner);
    let grid = grid(app, view, super::attention::plan(app, view, body).map);
    let mut all = vec![
        (0, parts::ramp(app, "weight 0 ", " 1, root scale")),
        (2, parts::dim(app, "blank: not recorded")),
    ];
    if grid.keys > 1 {
        let text = format!("{} keys a column, the largest shown", grid.keys);
        all.push((1, parts::dim(app, &text)));
    }
    parts::legend(app, all, columns)
}

/// The cell `down` queries further down and `right` columns to the right.
pub(super) fn moved_cell(
    app: &App,
    view: &AttentionView,
    body: Rect,
    down: i64,
    right: i64,
) -> Option<(u32, u32)> {
    let all = queries(app, view);
    let grid = grid(app, view, super::attention::plan(app, view, body).map);
    let (at, key) = chosen(app, view);
    let query = all.get(moved(at, down, all.len()))?;
    let last = all.iter().map(|q| q.query_pos).max()?;
    let columns = (last / grid.keys) as usize + 1;
    let column = moved((key / grid.keys) as usize, right, columns);
    let first = u32::try_from(column).ok()?.saturating_mul(grid.keys);
    // Of keys that share a column the one that shows.
    let shown = largest(query, first, grid.keys).map_or(first, |(p, _)| p);
    Some((query.query_pos, if right == 0 { key } else { shown }))
}

/// The cell under a click.
pub(super) fn hit(app: &App, view: &AttentionView, body: Rect, at: Position) -> Option<(u32, u32)> {
    let all = queries(app, view);
    let grid = grid(app, view, super::attention::plan(app, view, body).map);
    if !grid.cells.contains(at) {
        return None;
    }
    let query = all.get(grid.first_query + usize::from(at.y - grid.cells.y))?;
    let first = u32::from((at.x - grid.cells.x) / grid.width).saturating_mul(grid.keys);
    let key = largest(query, first, grid.keys).map_or(first, |(p, _)| p);
    let last = all.iter().map(|q| q.query_pos).max()?;
    (key <= last).then_some((query.query_pos, key))
}
