//! Curves over the layers: rank on a logarithmic axis, probability, norms.

use super::reading::{Reading, rank};
use crate::tui::format::number;
use crate::tui::panels::chrome;
use crate::tui::panels::dots::Dots;
use crate::tui::state::App;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Columns of the labels on the left.
const LABEL: u16 = 7;
/// From this height on rank and probability have a chart each.
const TWO: u16 = 13;

/// What a chart is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Figure {
    Rank,
    Prob,
    Norm,
}

/// Values over layers, one for each waypoint.
fn values(r: Reading<'_>, figure: Figure) -> Vec<Option<f64>> {
    r.ways()
        .iter()
        .map(|w| match figure {
            Figure::Rank => r.track(w).map(|t| f64::from(t.rank.max(1))),
            Figure::Prob => r.track(w).map(|t| t.prob.clamp(0.0, 1.0)),
            Figure::Norm => Some(w.residual_norm),
        })
        .map(|v| v.filter(|v| v.is_finite()))
        .collect()
}

/// The ends of an axis, lower edge first.
struct Axis {
    figure: Figure,
    low: f64,
    high: f64,
}

impl Axis {
    fn new(figure: Figure, all: &[Vec<Option<f64>>]) -> Self {
        let known = || all.iter().flatten().flatten().copied();
        let (low, high) = match figure {
            Figure::Rank => (known().fold(10.0, f64::max), 1.0),
            Figure::Prob => (0.0, 1.0),
            Figure::Norm => {
                let positive = || known().filter(|v| *v > 0.0);
                let low = positive().fold(f64::INFINITY, f64::min);
                let high = positive().fold(0.0, f64::max);
                if low < high { (low, high) } else { (0.1, 10.0) }
            }
        };
        Self { figure, low, high }
    }

    /// Height over the lower edge, 0 to 1.
    fn place(&self, v: f64) -> f64 {
        match self.figure {
            Figure::Prob => v,
            _ => (v.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln(),
        }
    }

    fn label(&self, v: f64) -> String {
        match self.figure {
            Figure::Rank => rank(v as u32),
            Figure::Prob => number(v, 0),
            Figure::Norm => super::reading::plain(v),
        }
    }
}

/// One chart: a title, curves, the layers below. The first curve is solid, the second dotted.
struct Chart {
    title: String,
    axis: Axis,
    curves: Vec<(Vec<f64>, Style)>,
}

/// The values placed on an axis; what is not known is not a number.
fn placed(axis: &Axis, values: &[Option<f64>]) -> Vec<f64> {
    let place = |v: &Option<f64>| v.map_or(f64::NAN, |v| axis.place(v));
    values.iter().map(place).collect()
}

/// Draws what there is to draw of a trace, and of the one beside it.
pub(super) fn render(
    app: &App,
    r: Reading<'_>,
    beside: Option<Reading<'_>>,
    area: Rect,
    buf: &mut Buffer,
) {
    if area.height < 3 || area.width < LABEL + 6 || r.ways().is_empty() {
        return;
    }
    if !r.has_lens() {
        let chart = one(app, r, beside, Figure::Norm, area.width);
        return draw(app, r, &chart, area, buf);
    }
    if area.height >= TWO {
        let half = area.height / 2;
        let upper = Rect {
            height: half,
            ..area
        };
        let lower = Rect {
            y: area.y + half,
            height: area.height - half,
            ..area
        };
        draw(
            app,
            r,
            &one(app, r, beside, Figure::Rank, area.width),
            upper,
            buf,
        );
        draw(
            app,
            r,
            &one(app, r, beside, Figure::Prob, area.width),
            lower,
            buf,
        );
    } else if beside.is_some() {
        draw(
            app,
            r,
            &one(app, r, beside, Figure::Rank, area.width),
            area,
            buf,
        );
    } else {
        draw(app, r, &both(app, r, area.width), area, buf);
    }
}

/// The first of these titles that fits, else the last.
fn title(width: u16, titles: &[&str]) -> String {
    let fits = |t: &&&str| t.len() <= usize::from(width);
    let found = titles.iter().find(fits).or(titles.last());
    found.map_or(String::new(), |t| (*t).into())
}

/// How the solid and the dotted curve are drawn, in words.
fn strokes(app: &App) -> (&'static str, &'static str) {
    if app.theme.glyphs.ascii {
        ("*", ".")
    } else {
        ("solid", "dotted")
    }
}

/// Rank and probability of one trace.
fn both(app: &App, r: Reading<'_>, width: u16) -> Chart {
    let (ranks, probs) = (values(r, Figure::Rank), values(r, Figure::Prob));
    let axis = Axis::new(Figure::Rank, std::slice::from_ref(&ranks));
    let of_prob = Axis::new(Figure::Prob, &[]);
    let (solid, dotted) = strokes(app);
    let long = format!("rank ({solid}, log axis), P ({dotted}, 0 to 1)");
    let short = format!("rank {solid}, P {dotted}");
    Chart {
        title: title(width, &[&long, &short]),
        curves: vec![
            (placed(&axis, &ranks), app.theme.accent),
            (placed(&of_prob, &probs), app.theme.good),
        ],
        axis,
    }
}

/// One figure of one trace, or of two.
fn one(
    app: &App,
    r: Reading<'_>,
    beside: Option<Reading<'_>>,
    figure: Figure,
    width: u16,
) -> Chart {
    let all: Vec<_> = [Some(r), beside]
        .into_iter()
        .flatten()
        .map(|r| values(r, figure))
        .collect();
    let axis = Axis::new(figure, &all);
    let (solid, dotted) = strokes(app);
    let (name, scale) = match figure {
        Figure::Rank => ("rank", "log axis"),
        Figure::Prob => ("P", "probability"),
        Figure::Norm => ("|residual|", "L2 norm, log axis"),
    };
    let long = match beside {
        Some(_) => format!("{name}, {scale}: A {solid}, B {dotted}"),
        None => format!("{name}, {scale}"),
    };
    let short = match beside {
        Some(_) => format!("{name}: A {solid}, B {dotted}"),
        None => name.into(),
    };
    let styles = [app.theme.accent, app.theme.good];
    Chart {
        title: title(width, &[&long, &short]),
        curves: all
            .iter()
            .zip(styles)
            .map(|(v, style)| (placed(&axis, v), style))
            .collect(),
        axis,
    }
}

/// The part of a chart that has curves in it.
fn plot_area(area: Rect) -> Rect {
    Rect::new(
        area.x + LABEL,
        area.y + 1,
        area.width - LABEL,
        area.height - 2,
    )
}

/// Column of layer number `index` among `count`, of a plot `width` wide.
pub(in crate::tui::panels) fn column(index: usize, count: usize, width: u16) -> u16 {
    let last = count.saturating_sub(1).max(1);
    let x = index.min(last) * usize::from(width.saturating_sub(1)) / last;
    x as u16
}

/// The layer under a click at `x`, as an index.
pub(super) fn layer_at(r: Reading<'_>, area: Rect, x: u16) -> Option<usize> {
    if area.height < 3 || area.width < LABEL + 6 {
        return None;
    }
    let plot = plot_area(area);
    let count = r.ways().len();
    let distance = |i: &usize| (plot.x + column(*i, count, plot.width)).abs_diff(x);
    (x >= plot.x)
        .then(|| (0..count).min_by_key(distance))
        .flatten()
}

fn draw(app: &App, r: Reading<'_>, chart: &Chart, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let ellipsis = theme.glyphs.ellipsis;
    let text = chrome::left(&chart.title, area.width.into(), ellipsis);
    chrome::put(&Line::styled(text, theme.dim), area, buf);
    let plot = plot_area(area);
    let columns = usize::from(LABEL) - 1;
    let label = |text: String, y: u16, buf: &mut Buffer| {
        let text = chrome::right(&text, columns, ellipsis);
        let row = Rect::new(area.x, y, LABEL, 1);
        chrome::put(&Line::styled(text, theme.dim), row, buf);
    };
    label(chart.axis.label(chart.axis.high), plot.y, buf);
    if plot.height > 1 {
        label(chart.axis.label(chart.axis.low), plot.bottom() - 1, buf);
    }
    let mut dots = Dots::new(plot, theme.glyphs.ascii);
    let rows = dots.height().saturating_sub(1) as f64;
    let width = dots.width();
    for (i, (values, style)) in chart.curves.iter().enumerate().rev() {
        let up = |x: usize| between(values, x, width).map(|v| v * rows);
        dots.curve(up, if i == 0 { 1 } else { 3 }, *style, i == 0);
    }
    dots.render(buf);
    let cursor = r.cursor(app.views.trace.layer);
    let x = plot.x + column(cursor, r.ways().len(), plot.width);
    for y in plot.top()..plot.bottom() {
        if let Some(cell) = buf.cell_mut((x, y)) {
            cell.set_style(theme.selected);
        }
    }
    ticks(app, r, plot, (x, cursor), buf);
}

/// Height at dot `x`, between the layers on its left and right.
pub(in crate::tui::panels) fn between(values: &[f64], x: usize, width: usize) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let t = x as f64 * last as f64 / width.saturating_sub(1).max(1) as f64;
    let i = (t as usize).min(last);
    let a = *values.get(i)?;
    let b = values.get(i + 1).copied().unwrap_or(a);
    let share = t - i as f64;
    let v = if share < 1e-9 { a } else { a + (b - a) * share };
    v.is_finite().then_some(v)
}

/// The first and last layer, and the one under the cursor, below the plot.
fn ticks(app: &App, r: Reading<'_>, plot: Rect, (x, cursor): (u16, usize), buf: &mut Buffer) {
    let theme = &app.theme;
    let layer = |i: usize| r.ways().get(i).map_or(0, |w| w.layer).to_string();
    let line = Rect::new(plot.x, plot.bottom(), plot.width, 1);
    let last = layer(r.ways().len().saturating_sub(1));
    let end = line.right().saturating_sub(last.len() as u16);
    let mark = format!("{}{}", theme.glyphs.sort[1], layer(cursor));
    let wide = mark.chars().count() as u16;
    let at = x.min(line.right().saturating_sub(wide));
    let put = |text: String, x: u16, style: Style, buf: &mut Buffer| {
        let area = Rect::new(x, line.y, line.right().saturating_sub(x), 1);
        chrome::put(&Line::from(Span::styled(text, style)), area, buf);
    };
    // Labels give way to the cursor's.
    if at > line.x + 1 {
        put(layer(0), line.x, theme.dim, buf);
    }
    if at + wide < end {
        put(last, end, theme.dim, buf);
    }
    put(mark, at, theme.strong, buf);
}
