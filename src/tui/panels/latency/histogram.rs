//! The histogram: bars over a time axis with marks at the percentiles; bars to the right where it is narrow.

use crate::session::snapshot::Latency;
use crate::tui::format::{Scale, count};
use crate::tui::panels::chrome;
use crate::tui::state::App;
use crate::tui::text::width;
use crate::tui::theme::Theme;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// From this ratio of slowest to fastest on the axis is logarithmic.
const LOG_FROM: f64 = 8.0;
/// Columns of the labels of the count axis.
const LABELS: u16 = 6;

/// The time axis.
struct Axis {
    from: f64,
    to: f64,
    log: bool,
}

impl Axis {
    /// `None` when there is no bucket with sane edges.
    fn new(latency: &Latency) -> Option<Self> {
        let sane = |v: f64| v.is_finite() && v > 0.0 && v < 1e15;
        let buckets = || {
            latency
                .buckets
                .iter()
                .filter(|b| sane(b.from_us.max(1e-3)) && sane(b.to_us) && b.to_us > b.from_us)
        };
        let from = buckets().map(|b| b.from_us).fold(f64::INFINITY, f64::min);
        let to = buckets().map(|b| b.to_us).fold(0.0, f64::max);
        let from = from.max(1e-3);
        (to > from).then_some(Self {
            from,
            to,
            log: to / from > LOG_FROM,
        })
    }

    /// Position in 0..=1.
    fn at(&self, us: f64) -> f64 {
        let t = if self.log {
            (us.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (us - self.from) / (self.to - self.from)
        };
        if t.is_finite() {
            t.clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    /// Time at a position.
    fn value(&self, t: f64) -> f64 {
        if self.log {
            self.from * (self.to / self.from).powf(t)
        } else {
            self.from + t * (self.to - self.from)
        }
    }

    /// As many bars as there can be without one being finer than a bucket.
    fn bars(&self, latency: &Latency, most: usize) -> usize {
        let widest = latency
            .buckets
            .iter()
            .map(|b| self.at(b.to_us) - self.at(b.from_us))
            .fold(0.0, f64::max);
        let fit = if widest > 0.0 {
            (1.0 / widest + 1e-6) as usize
        } else {
            1
        };
        fit.clamp(1, most.max(1))
    }

    /// Tokens in each of `bars` bars.
    fn counts(&self, latency: &Latency, bars: usize) -> Vec<u64> {
        let mut counts = vec![0u64; bars];
        for b in &latency.buckets {
            let middle = (self.at(b.from_us) + self.at(b.to_us)) / 2.0;
            let i = ((middle * bars as f64) as usize).min(bars.saturating_sub(1));
            if let Some(c) = counts.get_mut(i) {
                *c = c.saturating_add(b.count);
            }
        }
        counts
    }
}

/// Style of the bars up to p90 (0), up to p99 (1) and beyond (2).
pub fn zone_style(theme: &Theme, zone: u8) -> Style {
    match zone {
        0 => theme.good,
        1 => theme.warn,
        _ => theme.bad,
    }
}

/// The zone of a time.
fn zone(latency: &Latency, us: f64) -> u8 {
    let beyond = |p: Option<f64>| p.is_some_and(|p| us > p);
    u8::from(beyond(latency.p90_us)) + u8::from(beyond(latency.p90_us) && beyond(latency.p99_us))
}

/// Draws the chart over all of `area`; nothing where it would not be readable.
pub fn render(app: &App, latency: &Latency, scale: Scale, area: Rect, buf: &mut Buffer) {
    let Some(axis) = Axis::new(latency) else {
        return;
    };
    if area.height == 0 || area.width < 20 {
        return;
    }
    if area.width >= 44 && area.height >= 5 {
        upright(app, latency, &axis, scale, area, buf);
    } else {
        lying(app, latency, &axis, scale, area, buf);
    }
}

/// One bar a line.
fn lying(app: &App, latency: &Latency, axis: &Axis, scale: Scale, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let bars = axis.bars(latency, area.height.into());
    let counts = axis.counts(latency, bars);
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    let marked = |i: usize| {
        let inside = |p: Option<f64>| {
            p.filter(|v| v.is_finite())
                .is_some_and(|v| ((axis.at(v) * bars as f64) as usize).min(bars - 1) == i)
        };
        [
            ("p99", latency.p99_us),
            ("p90", latency.p90_us),
            ("p50", latency.p50_us),
        ]
        .into_iter()
        .find(|(_, p)| inside(*p))
        .map_or("   ", |(name, _)| name)
    };
    for (i, n) in counts.iter().enumerate() {
        let from = axis.value(i as f64 / bars as f64);
        let middle = axis.value((i as f64 + 0.5) / bars as f64);
        let style = zone_style(theme, zone(latency, middle));
        let label = format!("{:>7} {} ", scale.show(Some(from)), scale.unit);
        let number = chrome::right(&count(*n), 6, "");
        let room = usize::from(area.width).saturating_sub(width(&label) + 11);
        let mut spans = vec![Span::styled(label, theme.dim)];
        let share = *n as f64 / most as f64;
        spans.extend(chrome::bar(share, room, &theme.glyphs, style, theme.dim));
        spans.push(Span::raw(format!(" {number}")));
        spans.push(Span::styled(format!(" {}", marked(i)), theme.strong));
        chrome::put(&Line::from(spans), chrome::row(area, i), buf);
    }
}

/// Bars standing on the time axis, with the percentiles marked below.
fn upright(app: &App, latency: &Latency, axis: &Axis, scale: Scale, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    // Axis with the marks, its labels, and the labels of the marks where there is room.
    let below = if area.height >= 8 { 3 } else { 2 };
    let chart = Rect {
        x: area.x + LABELS,
        width: area.width - LABELS,
        height: area.height - below,
        ..area
    };
    let bars = axis.bars(latency, chart.width.into());
    let counts = axis.counts(latency, bars);
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    let steps = theme.glyphs.ramp.len().saturating_sub(1);
    for x in 0..chart.width {
        let i = usize::from(x) * bars / usize::from(chart.width);
        let n = counts.get(i).copied().unwrap_or(0);
        if n == 0 {
            continue;
        }
        let middle = axis.value((i as f64 + 0.5) / bars as f64);
        let style = zone_style(theme, zone(latency, middle));
        let levels = steps * usize::from(chart.height);
        let filled = ((n as f64 / most as f64 * levels as f64).round() as usize).max(1);
        for (row, y) in (chart.top()..chart.bottom()).rev().enumerate() {
            let level = filled.saturating_sub(row * steps).min(steps);
            if let Some(glyph) = theme.glyphs.ramp.get(level).filter(|_| level > 0) {
                let at = Rect::new(chart.x + x, y, 1, 1);
                chrome::put(&Line::styled(*glyph, style), at, buf);
            }
        }
    }
    counts_axis(app, most, chart, area, buf);
    time_axis(app, axis, scale, chart, area, buf);
    marks(app, latency, axis, scale, chart, below == 3, buf);
}

fn counts_axis(app: &App, most: u64, chart: Rect, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let bar = if theme.glyphs.ascii { "|" } else { "│" };
    for y in chart.top()..chart.bottom() {
        let at = Rect::new(chart.x - 1, y, 1, 1);
        chrome::put(&Line::styled(bar, theme.dim), at, buf);
    }
    let mut put = |y: u16, text: &str| {
        let text = chrome::right(text, usize::from(LABELS) - 1, "");
        let at = Rect::new(area.x, y, LABELS - 1, 1);
        chrome::put(&Line::styled(text, theme.dim), at, buf);
    };
    put(chart.y, &count(most));
    if chart.height >= 3 {
        put(chart.bottom() - 1, "0");
    }
    if chart.height >= 5 {
        put(chart.y + 1, "toks");
    }
}

fn time_axis(app: &App, axis: &Axis, scale: Scale, chart: Rect, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let (corner, line) = if theme.glyphs.ascii {
        ("+", "-")
    } else {
        ("└", "─")
    };
    let rule = format!("{corner}{}", line.repeat(chart.width.into()));
    let at = Rect::new(chart.x - 1, chart.bottom(), chart.width + 1, 1);
    chrome::put(&Line::styled(rule, theme.dim), at, buf);
    let y = chart.bottom() + 1;
    let labels = usize::from(chart.width / 14).clamp(2, 8);
    for i in 0..labels {
        let t = i as f64 / (labels - 1) as f64;
        let text = format!("{} {}", scale.show(Some(axis.value(t))), scale.unit);
        let w = width(&text) as u16;
        let at = chart.x + (t * f64::from(chart.width)) as u16;
        let from = at
            .saturating_sub(w / 2)
            .clamp(area.x, area.right().saturating_sub(w).max(area.x));
        chrome::put(
            &Line::styled(text, theme.dim),
            Rect::new(from, y, w, 1).intersection(area),
            buf,
        );
    }
    let kind = if axis.log { "log axis" } else { "" };
    let w = kind.len() as u16;
    if w > 0 && chart.height > 2 {
        let at = Rect::new(chart.right().saturating_sub(w), chart.y, w, 1);
        chrome::put(&Line::styled(kind, theme.dim), at, buf);
    }
}

/// A pointer at each percentile and, if `named`, its name below; names that are too near are shifted to the right.
fn marks(
    app: &App,
    latency: &Latency,
    axis: &Axis,
    scale: Scale,
    chart: Rect,
    named: bool,
    buf: &mut Buffer,
) {
    let area = Rect {
        x: chart.x - LABELS,
        width: chart.width + LABELS,
        height: chart.height + 3,
        ..chart
    };
    let theme = &app.theme;
    let up = if theme.glyphs.ascii { "^" } else { "▲" };
    let y = chart.bottom();
    let mut free = area.x;
    for (name, value, style) in [
        ("p50", latency.p50_us, theme.strong),
        ("p90", latency.p90_us, theme.strong),
        ("p99", latency.p99_us, theme.strong),
    ] {
        let Some(us) = value.filter(|v| v.is_finite()) else {
            continue;
        };
        let last = chart.width.saturating_sub(1);
        let x = chart.x + ((axis.at(us) * f64::from(chart.width)) as u16).min(last);
        chrome::put(&Line::styled(up, style), Rect::new(x, y, 1, 1), buf);
        if !named {
            continue;
        }
        let text = format!("{name} {} {}", scale.show(Some(us)), scale.unit);
        let w = width(&text) as u16;
        let from = x.saturating_sub(1).max(free);
        let from = from.min(area.right().saturating_sub(w));
        if from < free {
            continue;
        }
        let at = Rect::new(from, y + 2, w, 1).intersection(area);
        chrome::put(&Line::styled(text, theme.dim), at, buf);
        free = from + w + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::snapshot::LatencyBucket;
    use proptest::prelude::*;

    fn latency(buckets: &[(f64, f64, u64)]) -> Latency {
        Latency {
            buckets: buckets
                .iter()
                .map(|&(from_us, to_us, count)| LatencyBucket {
                    from_us,
                    to_us,
                    count,
                })
                .collect(),
            ..Latency::default()
        }
    }

    #[test]
    fn the_axis_fits_the_times() {
        assert!(!Axis::new(&latency(&[(10.0, 20.0, 1), (30.0, 40.0, 2)])).is_some_and(|a| a.log));
        assert!(Axis::new(&latency(&[(10.0, 11.0, 1), (900.0, 940.0, 2)])).is_some_and(|a| a.log));
        for bad in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            assert!(Axis::new(&latency(&[(bad, bad, 1)])).is_none());
        }
        assert!(Axis::new(&latency(&[])).is_none());
    }

    proptest! {
        #[test]
        fn no_token_is_lost(
            times in proptest::collection::vec((1.0f64..1e6, 1u64..50), 1..60),
            most in 1usize..200,
        ) {
            let buckets: Vec<_> = times.iter().map(|(t, n)| (*t, t * 1.04, *n)).collect();
            let l = latency(&buckets);
            let axis = Axis::new(&l).expect("sane times");
            let bars = axis.bars(&l, most);
            prop_assert!(bars >= 1 && bars <= most);
            let total: u64 = axis.counts(&l, bars).iter().sum();
            prop_assert_eq!(total, times.iter().map(|(_, n)| n).sum::<u64>());
        }
    }
}
