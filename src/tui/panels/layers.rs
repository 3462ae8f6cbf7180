//! Time per layer as a strip of cells: colour and height of the glyph both carry the value.

use super::chrome::{self, Part};
use super::heat;
use crate::session::snapshot::{LayerRow, RunState};
use crate::tui::format::{Scale, micros, number};
use crate::tui::state::{App, Panel};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};

/// Columns for the names and the means of the rows.
const NAME: u16 = 10;
pub(super) const MEAN: u16 = 10;

/// A part of a layer's time: name and value.
pub(super) type Row = (&'static str, fn(&LayerRow) -> f64);
const PARTS: [Row; 6] = [
    ("total", |l| l.us_per_step),
    ("attention", |l| l.attention_us),
    ("ffn", |l| l.ffn_us),
    ("norm", |l| l.norm_us),
    ("sync", |l| l.sync_us),
    ("last step", |l| l.last_us),
];

/// How cells lie in a strip: `width` columns each, `layers` layers each, names of `name` columns before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) x: u16,
    pub(super) width: u16,
    pub(super) layers: usize,
    pub(super) name: u16,
}

impl Grid {
    /// Cells for `count` layers in `area`, names of `name` columns and means beside them unless that is 0.
    pub(super) fn new(area: Rect, count: usize, name: u16) -> Self {
        let count = count.max(1);
        let mean = if name > 0 { MEAN } else { 0 };
        let room = usize::from(area.width.saturating_sub(name + mean)).max(1);
        let layers = count.div_ceil(room);
        Self {
            x: area.x + name.min(area.width),
            width: (room / count.div_ceil(layers)).clamp(1, 6) as u16,
            layers,
            name,
        }
    }

    /// Columns of a cell that are drawn: a gap keeps wide cells apart.
    pub(super) fn filled(self) -> u16 {
        self.width - u16::from(self.width >= 3)
    }

    /// Screen column of cell `index`, if all of it is left of `right`.
    pub(super) fn column(self, index: usize, right: u16) -> Option<u16> {
        let x = usize::from(self.x) + index.saturating_mul(self.width.into());
        u16::try_from(x)
            .ok()
            .filter(|x| x.saturating_add(self.width) <= right)
    }
}

fn grid(area: Rect, app: &App) -> Grid {
    let name = match area.height {
        // A strip alone needs no name, and its mean stands in the heading.
        0..4 => 0,
        _ if heat::fits(app, area) => heat::NAME,
        _ => NAME,
    };
    Grid::new(area, app.snapshot().layers.len(), name)
}

/// Whether the panel shows the layer by brick map.
pub fn shows_map(app: &App) -> bool {
    app.layout()
        .panel(Panel::Layers)
        .is_some_and(|area| heat::fits(app, chrome::inner(area)))
}

/// The layer drawn at a position of the panel.
pub fn layer_at(app: &App, area: Rect, at: Position) -> Option<usize> {
    let count = app.snapshot().layers.len();
    let inner = chrome::inner(area);
    let grid = grid(inner, app);
    let cell = usize::from(at.x.checked_sub(grid.x)? / grid.width.max(1));
    Some(cell * grid.layers).filter(|layer| inner.contains(at) && *layer < count)
}

/// Draws the panel.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let layers = &app.snapshot().layers;
    let map = heat::fits(app, chrome::inner(area));
    let bottom = if map {
        heat::legend(app, chrome::inner(area))
    } else {
        legend(app)
    };
    let inner = chrome::panel(app, Panel::Layers, area, buf, heading(app), bottom);
    if map {
        return heat::render(app, inner, buf);
    }
    if layers.is_empty() {
        chrome::put(
            &Line::styled("no decode step has been timed yet", app.theme.dim),
            inner,
            buf,
        );
        return;
    }
    let grid = grid(inner, app);
    let mut parts = parts(layers);
    let height = usize::from(inner.height);
    let with_index = height >= 2;
    let with_detail = height >= 3;
    let around = usize::from(with_index) + usize::from(with_detail) + usize::from(app.zoomed);
    parts.truncate(height.saturating_sub(around).max(1));
    // Rows to spare make the totals taller.
    let spare = if app.zoomed {
        height.saturating_sub(parts.len() + around)
    } else {
        0
    };
    let mut line = 0;
    for part in parts {
        let rows = if line == 0 { 1 + spare.min(9) } else { 1 };
        let place = chrome::row(inner, line);
        strip(
            app,
            part,
            grid,
            Rect {
                height: place.height * rows as u16,
                ..place
            },
            buf,
        );
        line += rows;
    }
    if with_index {
        index(app, grid, chrome::row(inner, line), buf);
    }
    if with_detail {
        chrome::put(
            &detail(app, inner.width.into()),
            chrome::row(inner, line + 1 + usize::from(app.zoomed)),
            buf,
        );
    }
}

/// The parts of a layer's time that there are.
pub(super) fn parts(layers: &[LayerRow]) -> Vec<&'static Row> {
    PARTS
        .iter()
        .filter(|(_, value)| layers.iter().any(|l| value(l) > 0.0))
        .collect()
}

/// Values of the cells, the largest of each cell's layers.
fn cells(layers: &[LayerRow], grid: Grid, value: fn(&LayerRow) -> f64) -> Vec<f64> {
    layers
        .chunks(grid.layers.max(1))
        .map(|c| c.iter().map(value).fold(0.0, f64::max))
        .collect()
}

fn range(values: &[f64]) -> (f64, f64) {
    let finite = || values.iter().copied().filter(|v| v.is_finite());
    let high = finite().fold(0.0, f64::max);
    (finite().fold(high, f64::min), high)
}

/// Draws one part over `area`, its name and mean in the last row of it.
pub(super) fn strip(app: &App, (name, value): &Row, grid: Grid, area: Rect, buf: &mut Buffer) {
    let line = Rect {
        y: area.bottom().saturating_sub(1),
        height: 1,
        ..area
    };
    let theme = &app.theme;
    let layers = &app.snapshot().layers;
    let values = cells(layers, grid, *value);
    let (low, high) = range(&values);
    let ellipsis = theme.glyphs.ellipsis;
    let named = grid.x > line.x;
    if named {
        buf.set_stringn(
            line.x,
            line.y,
            chrome::left(name, grid.name.into(), ellipsis),
            line.width.into(),
            theme.dim,
        );
    }
    let marked = marked(app, grid);
    for (i, v) in values.iter().enumerate() {
        let Some(x) = grid.column(i, line.right()) else {
            break;
        };
        // Layers that differ by less than a hundredth are the same: noise is not drawn as a pattern.
        let even = high - low <= 0.01 * high;
        let t = if even { 0.5 } else { (v - low) / (high - low) };
        let (glyph, mut style) = theme.heat(t);
        if marked == Some(i) {
            style = style.patch(theme.selected);
        }
        let filled = grid.filled();
        if area.height > 1 {
            let cell = Rect {
                x,
                width: filled,
                ..area
            };
            chrome::sparkline(
                &vec![t; filled.into()],
                0.0,
                1.0,
                cell,
                buf,
                &theme.glyphs,
                style,
            );
        } else {
            buf.set_string(x, line.y, glyph.repeat(filled.into()), style);
        }
    }
    let x = grid.x.saturating_add(values.len() as u16 * grid.width);
    let side = Rect {
        x,
        width: MEAN,
        ..area
    };
    if area.height > 3 && side.right() <= area.right() {
        // The bars start at the fastest layer, not at zero: say so.
        for (row, v) in [(0, high), (usize::from(area.height) - 2, low)] {
            let text = chrome::right(&micros(v, theme.glyphs.micro), MEAN.into(), ellipsis);
            chrome::put(&Line::styled(text, theme.dim), chrome::row(side, row), buf);
        }
    }
    let mean = layers.iter().map(value).sum::<f64>() / layers.len().max(1) as f64;
    if named && x + MEAN <= line.right() {
        let text = micros(mean, theme.glyphs.micro);
        buf.set_stringn(
            x,
            line.y,
            chrome::right(&text, usize::from(MEAN), ellipsis),
            MEAN.into(),
            theme.strong,
        );
    }
}

/// The cell under the cursor, else the one the run is paused before.
pub(super) fn marked(app: &App, grid: Grid) -> Option<usize> {
    let layer = match (app.layer_cursor, &app.snapshot().state) {
        (Some(at), _) if app.focus == Panel::Layers => at,
        (_, RunState::PausedAtLayer { next_layer }) => *next_layer as usize,
        _ => return None,
    };
    Some(layer / grid.layers.max(1))
}

/// Numbers of the layers.
pub(super) fn index(app: &App, grid: Grid, line: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    if grid.x > line.x {
        let room = line.width.min(grid.name);
        buf.set_stringn(line.x, line.y, "layer", room.into(), theme.dim);
        let x = grid.x.saturating_add(
            (app.snapshot().layers.len().div_ceil(grid.layers.max(1)) as u16)
                .saturating_mul(grid.width),
        );
        if x.saturating_add(MEAN) <= line.right() {
            buf.set_stringn(
                x,
                line.y,
                chrome::right("mean", MEAN.into(), ""),
                MEAN.into(),
                theme.dim,
            );
        }
    }
    let cells = app.snapshot().layers.len().div_ceil(grid.layers.max(1));
    let every = [1, 2, 5, 10, 20, 50]
        .into_iter()
        .find(|n| n * usize::from(grid.width) >= 4)
        .unwrap_or(50);
    for i in (0..cells).step_by(every) {
        let x = usize::from(grid.x) + i * usize::from(grid.width);
        let Ok(x) = u16::try_from(x) else { break };
        if x < line.right() {
            let room = usize::from(line.right() - x);
            buf.set_stringn(x, line.y, (i * grid.layers).to_string(), room, theme.dim);
        }
    }
}

/// One layer in words: the one under the cursor, else the slowest.
pub(super) fn detail(app: &App, columns: usize) -> Line<'static> {
    let theme = &app.theme;
    let layers = &app.snapshot().layers;
    let slowest = || {
        layers
            .iter()
            .enumerate()
            .max_by(|(_, a), (_, b)| a.us_per_step.total_cmp(&b.us_per_step))
            .map(|(i, _)| i)
    };
    let (label, at) = match app.layer_cursor.filter(|at| *at < layers.len()) {
        Some(at) if app.focus == Panel::Layers => ("layer", Some(at)),
        _ => ("slowest: layer", slowest()),
    };
    let Some(l) = at.and_then(|at| layers.get(at)) else {
        return Line::default();
    };
    let scale = Scale::time(l.us_per_step.max(l.last_us), theme.glyphs.micro);
    let show = |v: f64| scale.show(Some(v));
    let dim = |text| vec![Span::styled(text, theme.dim)];
    let parts = vec![
        Part::new(
            0,
            vec![
                Span::styled(format!("{label} {} ", l.layer), theme.strong),
                Span::raw(format!("{} {}", show(l.us_per_step), scale.unit)),
            ],
        ),
        Part::new(
            1,
            dim(format!(
                " = attn {} + ffn {} + norm {} + sync {}",
                show(l.attention_us),
                show(l.ffn_us),
                show(l.norm_us),
                show(l.sync_us),
            )),
        ),
        Part::new(
            2,
            dim(format!("; last step {} {}", show(l.last_us), scale.unit)),
        ),
    ];
    chrome::join(parts, &Span::raw(""), columns)
}

fn heading(app: &App) -> Line<'static> {
    let theme = &app.theme;
    let n = app.snapshot().layers.len();
    match app.snapshot().state {
        RunState::PausedAtLayer { next_layer } => Line::styled(
            format!(
                " paused before layer {next_layer} of {} ",
                app.snapshot().model.n_layers
            ),
            theme.warn,
        ),
        _ if n > 0 => {
            let mean = app
                .snapshot()
                .layers
                .iter()
                .map(|l| l.us_per_step)
                .sum::<f64>()
                / n as f64;
            Line::styled(
                format!(
                    " {n} layers, mean {} a token ",
                    micros(mean, theme.glyphs.micro)
                ),
                theme.dim,
            )
        }
        _ => Line::default(),
    }
}

/// The ramp with the times at its ends and how far they are apart.
fn legend(app: &App) -> Line<'static> {
    let theme = &app.theme;
    let values: Vec<f64> = app
        .snapshot()
        .layers
        .iter()
        .map(|l| l.us_per_step)
        .collect();
    let (low, high) = range(&values);
    if high <= 0.0 {
        return Line::default();
    }
    let mut spans = vec![Span::styled(
        format!(" fastest {} ", micros(low, theme.glyphs.micro)),
        theme.dim,
    )];
    let steps = theme.glyphs.ramp.len().saturating_sub(1).max(1);
    spans.extend((0..steps).map(|i| {
        let (glyph, style) = theme.heat((i as f64 + 0.5) / steps as f64);
        Span::styled(glyph, style)
    }));
    let apart = if low > 0.0 {
        format!(" (+{}%)", number((high / low - 1.0) * 100.0, 0))
    } else {
        String::new()
    };
    spans.push(Span::styled(
        format!(" slowest {}{apart} ", micros(high, theme.glyphs.micro)),
        theme.dim,
    ));
    Line::from(spans)
}
