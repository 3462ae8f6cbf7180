//! The plot: roofs as lines, bricks as letters, both axes logarithmic.

use super::{letter, peak_label};
use crate::session::snapshot::{Peak, PeakKind, Roofline};
use crate::tui::format::number;
use crate::tui::panels::chrome;
use crate::tui::panels::dots::Dots;
use crate::tui::state::{App, Panel};
use crate::tui::text::width;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::Line;

/// Columns of the labels of the vertical axis.
const LABELS: u16 = 6;
/// Binary logarithms beyond these are no figures of a machine.
const SANE: std::ops::RangeInclusive<f64> = -20.0..=40.0;

/// Binary logarithm of a value that can stand on an axis.
fn log(v: f64) -> Option<f64> {
    let l = v.log2();
    (v > 0.0 && SANE.contains(&l)).then_some(l)
}

/// Ranges of both axes as binary logarithms; whole numbers, so that they stay while figures move a little.
struct Axes {
    x: (f64, f64),
    y: (f64, f64),
}

impl Axes {
    fn new(roofline: &Roofline) -> Option<Self> {
        let points = || {
            roofline
                .points
                .iter()
                .filter_map(|p| Some((log(p.intensity)?, log(p.gflops)?)))
        };
        let compute = || roofline.peaks.iter().filter(|p| p.kind != PeakKind::Memory);
        let memory = || roofline.peaks.iter().filter(|p| p.kind == PeakKind::Memory);
        let top = compute()
            .filter_map(|p| log(p.value))
            .fold(f64::NEG_INFINITY, f64::max);
        let bandwidth = memory()
            .filter_map(|p| log(p.value))
            .fold(f64::NEG_INFINITY, f64::max);
        let ridge = top - bandwidth;
        let ridge = ridge.is_finite().then_some(ridge);
        let (mut x, mut y) = (
            (f64::INFINITY, f64::NEG_INFINITY),
            (f64::INFINITY, f64::NEG_INFINITY),
        );
        let widen = |range: &mut (f64, f64), v: f64| {
            *range = (range.0.min(v), range.1.max(v));
        };
        for (px, py) in points() {
            widen(&mut x, px);
            widen(&mut y, py);
        }
        if let Some(ridge) = ridge {
            widen(&mut x, ridge + 1.0);
            widen(&mut x, ridge - 3.0);
        }
        for p in &roofline.peaks {
            if let (PeakKind::Fp32 | PeakKind::Int8, Some(v)) = (p.kind, log(p.value)) {
                widen(&mut y, v);
            }
        }
        if !y.0.is_finite() {
            let v = bandwidth.is_finite().then_some(bandwidth)?;
            widen(&mut x, 0.0);
            widen(&mut y, v);
        }
        if !x.0.is_finite() {
            widen(&mut x, 0.0);
        }
        let snap = |(lo, hi): (f64, f64), air: f64| ((lo - 0.3).floor(), (hi + air).ceil());
        Some(Self {
            x: snap(x, 0.2),
            y: snap(y, 0.6),
        })
    }

    /// Position in 0..=1 of a binary logarithm.
    fn at(range: (f64, f64), v: f64) -> f64 {
        (v - range.0) / (range.1 - range.0).max(1.0)
    }
}

/// The area of the dots inside a plot of `area`.
fn field(area: Rect) -> Rect {
    Rect {
        x: area.x + LABELS,
        width: area.width.saturating_sub(LABELS),
        height: area.height.saturating_sub(2),
        ..area
    }
}

/// The cell of each point that can be drawn, in the order of the list.
fn cells(roofline: &Roofline, axes: &Axes, field: Rect) -> Vec<(usize, Position)> {
    let (w, h) = (f64::from(field.width), f64::from(field.height));
    let cell = |(i, p): (usize, &crate::session::snapshot::RoofPoint)| {
        let x = Axes::at(axes.x, log(p.intensity)?) * w;
        let y = Axes::at(axes.y, log(p.gflops)?) * h;
        let column = (x as u16).min(field.width.saturating_sub(1));
        let row = (y as u16).min(field.height.saturating_sub(1));
        let at = Position::new(
            field.x + column,
            field.bottom().saturating_sub(1).saturating_sub(row),
        );
        Some((i, at))
    };
    roofline
        .points
        .iter()
        .enumerate()
        .filter_map(cell)
        .collect()
}

/// The point drawn at `at`.
pub fn point_at(roofline: &Roofline, area: Rect, at: Position) -> Option<usize> {
    let axes = Axes::new(roofline)?;
    cells(roofline, &axes, field(area))
        .into_iter()
        .find(|(_, cell)| *cell == at)
        .map(|(i, _)| i)
}

/// Draws the plot.
pub fn render(app: &App, roofline: &Roofline, cursor: usize, area: Rect, buf: &mut Buffer) {
    let field = field(area);
    let Some(axes) = Axes::new(roofline).filter(|_| !field.is_empty()) else {
        return;
    };
    axis_labels(app, &axes, area, field, buf);
    let mut dots = Dots::new(field, app.theme.glyphs.ascii);
    for p in &roofline.peaks {
        roof(app, roofline, p, &axes, &mut dots);
    }
    dots.render(buf);
    let mut taken = points(app, roofline, cursor, &axes, field, buf);
    roof_labels(app, roofline, &axes, field, &mut taken, buf);
}

/// Draws the line of one roof: a slope up to the highest compute roof, or a ceiling from the steepest slope on.
fn roof(app: &App, roofline: &Roofline, peak: &Peak, axes: &Axes, dots: &mut Dots) {
    let Some(value) = log(peak.value) else { return };
    let of = |memory: bool, same: bool| {
        roofline
            .peaks
            .iter()
            .filter(|p| (p.kind == PeakKind::Memory) == memory)
            .filter(|p| !same || p.threads == peak.threads)
            .filter_map(|p| log(p.value))
            .fold(None, |a: Option<f64>, v| Some(a.map_or(v, |a| a.max(v))))
    };
    let memory = peak.kind == PeakKind::Memory;
    let other = of(!memory, true).or_else(|| of(!memory, false));
    let style = if peak.in_use {
        app.theme.accent
    } else {
        app.theme.dim
    };
    let (w, h) = (dots.width() as f64, dots.height() as f64);
    let every = if peak.in_use { 1 } else { 3 };
    let curve = |x: usize| {
        let lx = axes.x.0 + (x as f64 + 0.5) / w * (axes.x.1 - axes.x.0);
        let v = match other {
            _ if memory => (lx + value).min(other.unwrap_or(f64::INFINITY)),
            Some(slope) if lx + slope < value => return None,
            _ => value,
        };
        // Above its own ceiling a slope would only repeat the ceiling's line.
        if memory && other.is_some_and(|o| lx + value > o + 0.2) {
            return None;
        }
        Some(Axes::at(axes.y, v) * h)
    };
    dots.curve(curve, every, style, peak.in_use);
}

/// Draws the letters; the one under the cursor on top. Returns the cells they take.
fn points(
    app: &App,
    roofline: &Roofline,
    cursor: usize,
    axes: &Axes,
    field: Rect,
    buf: &mut Buffer,
) -> Vec<Rect> {
    let theme = &app.theme;
    let cells = cells(roofline, axes, field);
    let mut taken: Vec<Rect> = Vec::new();
    for (i, at) in cells.iter().rev() {
        let first = cells.iter().find(|(_, c)| c == at).map(|(i, _)| *i);
        let here = cells.iter().filter(|(_, c)| c == at).count();
        let selected = *i == cursor && app.focus == Panel::Roofline;
        let hidden = first != Some(*i)
            || cells
                .iter()
                .any(|(j, c)| *j == cursor && c == at && app.focus == Panel::Roofline);
        if hidden && !selected {
            continue;
        }
        let Some(point) = roofline.points.get(*i) else {
            continue;
        };
        let mut style = theme.category(point.id.category()).patch(theme.strong);
        style.fg = theme.category(point.id.category()).fg;
        if selected {
            style = style.patch(theme.selected);
        }
        if let Some(cell) = buf.cell_mut(*at) {
            cell.set_char(letter(*i)).set_style(style);
        }
        taken.push(Rect::new(at.x, at.y, 1, 1));
        let next = Position::new(at.x + 1, at.y);
        let free = field.contains(next) && !cells.iter().any(|(_, c)| *c == next);
        if here > 1 && free {
            if let Some(cell) = buf.cell_mut(next) {
                cell.set_char('+').set_style(theme.dim);
            }
            taken.push(Rect::new(next.x, next.y, 1, 1));
        }
    }
    taken
}

/// Labels at the ends of the roofs, those in use first; one that would lie over another or over a point is left out.
fn roof_labels(
    app: &App,
    roofline: &Roofline,
    axes: &Axes,
    field: Rect,
    taken: &mut Vec<Rect>,
    buf: &mut Buffer,
) {
    let theme = &app.theme;
    let row = |ly: f64| {
        let up = Axes::at(axes.y, ly) * f64::from(field.height);
        (0.0..f64::from(field.height))
            .contains(&up)
            .then(|| field.bottom() - 1 - (up as u16).min(field.height - 1))
    };
    let mut peaks: Vec<&Peak> = roofline.peaks.iter().collect();
    peaks.sort_by_key(|p| !p.in_use);
    for p in peaks {
        let Some(value) = log(p.value) else { continue };
        let text = peak_label(p, theme.glyphs.ascii);
        let w = width(&text) as u16;
        // Where rows are few, labels of roofs that are not in use would push apart those that are.
        if w > field.width || (!p.in_use && field.height < 12) {
            continue;
        }
        let spots: Vec<(u16, u16)> = if p.kind == PeakKind::Memory {
            let slope = |column: u16| {
                let share = (f64::from(column) + 0.5) / f64::from(field.width.max(1));
                row(axes.x.0 + share * (axes.x.1 - axes.x.0) + value)
            };
            // Above the slope in use, to the left of it; beside the others, a little below where they enter.
            let above = [w + 1, w + 4, w + 8]
                .into_iter()
                .filter_map(|c| Some((field.x + c - w - 1, slope(c)?)))
                .filter(|_| p.in_use);
            let beside = [1u16, 3, 6, 10, 15]
                .into_iter()
                .filter_map(|c| Some((field.x + c + 3, slope(c)? + 1)))
                .filter(|(x, y)| *y < field.bottom() && x + w <= field.right());
            above.chain(beside).collect()
        } else {
            // Above the line's end, or in its place.
            let x = field.right() - w;
            row(value)
                .into_iter()
                .flat_map(|y| [y.saturating_sub(1), y])
                .filter(|y| (field.y..field.bottom()).contains(y))
                .map(|y| (x, y))
                .collect()
        };
        let place = spots
            .into_iter()
            .map(|(x, y)| Rect::new(x, y, w, 1))
            .find(|r| !taken.iter().any(|t| t.intersects(*r)));
        if let Some(place) = place {
            let style = if p.in_use { theme.strong } else { theme.dim };
            chrome::put(&Line::styled(text, style), place, buf);
            taken.push(place);
        }
    }
}

/// Ticks at powers of ten, or of two where there is room; units at the ends.
fn axis_labels(app: &App, axes: &Axes, area: Rect, field: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let ascii = theme.glyphs.ascii;
    let (bar, corner, line) = if ascii {
        ("|", "+", "-")
    } else {
        ("│", "└", "─")
    };
    let x = field.x.saturating_sub(1);
    for y in field.y..field.bottom() {
        chrome::put(&Line::styled(bar, theme.dim), Rect::new(x, y, 1, 1), buf);
    }
    let floor = field.bottom();
    let rule = format!("{corner}{}", line.repeat(field.width.into()));
    let place = Rect::new(x, floor, field.width + 1, 1);
    chrome::put(&Line::styled(rule, theme.dim), place, buf);
    let mut last: Option<u16> = None;
    for (value, ly) in ticks(axes.y, usize::from(field.height) / 2) {
        let up = (Axes::at(axes.y, ly) * f64::from(field.height)) as u16;
        let y = field.bottom() - 1 - up.min(field.height - 1);
        if last.is_some_and(|l| l.abs_diff(y) < 2) {
            continue;
        }
        last = Some(y);
        let text = chrome::right(&short(value), usize::from(LABELS) - 1, "");
        let place = Rect::new(area.x, y, LABELS - 1, 1);
        chrome::put(&Line::styled(text, theme.dim), place, buf);
    }
    let unit = "FLOP/B";
    let end = area.right().saturating_sub(unit.len() as u16);
    let mut free = area.x;
    for (value, lx) in ticks(axes.x, usize::from(field.width) / 6) {
        let text = short(value);
        let w = width(&text) as u16;
        let at = field.x + (Axes::at(axes.x, lx) * f64::from(field.width)) as u16;
        let from = at.saturating_sub(w / 2).max(area.x);
        if from < free || from + w + 1 > end {
            continue;
        }
        chrome::put(
            &Line::styled(text, theme.dim),
            Rect::new(from, floor + 1, w, 1),
            buf,
        );
        free = from + w + 1;
    }
    let place = Rect::new(end, floor + 1, unit.len() as u16, 1);
    chrome::put(&Line::styled(unit, theme.dim), place, buf);
}

/// Values and binary logarithms of at most `most` ticks in `range`: powers of two, four or ten, whatever fits first.
fn ticks(range: (f64, f64), most: usize) -> Vec<(f64, f64)> {
    let powers = |base: f64| -> Vec<(f64, f64)> {
        let step = base.log2();
        let first = (range.0 / step).ceil() as i32;
        let last = (range.1 / step).floor() as i32;
        (first..=last.min(first + 200))
            .map(|n| (base.powi(n), f64::from(n) * step))
            .collect()
    };
    let ten = powers(10.0);
    if ten.len() >= 3 || ten.len() > most {
        return ten;
    }
    [2.0, 4.0]
        .into_iter()
        .map(powers)
        .find(|t| t.len() <= most.max(2))
        .unwrap_or(ten)
}

/// A tick in at most five columns.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", number(v / 1e6, 0)),
        v if v >= 1e4 => format!("{}k", number(v / 1e3, 0)),
        v if v >= 1.0 => number(v, 0),
        v if v >= 0.01 => number(v, 3).trim_end_matches('0').to_string(),
        v => format!("{v:.0e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_powers_and_few() {
        let t: Vec<f64> = ticks((-1.0, 10.0), 20).into_iter().map(|t| t.0).collect();
        assert_eq!(t, [1.0, 10.0, 100.0, 1000.0]);
        let t: Vec<f64> = ticks((-2.0, 2.0), 9).into_iter().map(|t| t.0).collect();
        assert_eq!(t, [0.25, 0.5, 1.0, 2.0, 4.0]);
        for most in 0..30 {
            for range in [(0.0, 3.0), (-20.0, 40.0)] {
                assert!(ticks(range, most).len() <= 20.max(most));
            }
        }
        assert_eq!(
            [0.25, 1.0, 1e4, 2e7].map(short),
            ["0.25", "1", "10k", "20M"]
        );
    }

    #[test]
    fn no_figure_gives_an_endless_axis() {
        for v in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300, 1e-300] {
            assert_eq!(log(v), None);
        }
    }
}
