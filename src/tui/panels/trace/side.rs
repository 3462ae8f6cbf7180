//! What the lens says at the cursor, and what the heads of its attention add.

use super::reading::{Reading, plain, prob, quoted, signed};
use super::table::bar;
use crate::model::brick::Category;
use crate::trace::figures::{Track, Waypoint};
use crate::tui::panels::chrome;
use crate::tui::state::App;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// Columns of a probability and of a head's logits, the gap before them included.
const FIGURE: usize = 7;

/// With fewer rows the heads are no list but a line elsewhere.
pub(super) const HEADS_FROM: u16 = 8;

/// Draws the most probable tokens at the cursor and, below, the heads.
pub(super) fn render(app: &App, r: Reading<'_>, area: Rect, buf: &mut Buffer) {
    let Some(way) = r.ways().get(r.cursor(app.views.trace.layer)) else {
        return;
    };
    let heads = r
        .track(way)
        .filter(|t| !t.head_logits.is_empty() && area.height >= HEADS_FROM);
    let rows = match heads {
        // The title counts too.
        Some(_) => (way.top.len().min(1000) as u16 + 1).min(area.height.div_ceil(2)),
        None => area.height,
    };
    let (upper, lower) = crate::tui::layout::top(area, rows);
    top_tokens(app, r, way, upper, buf);
    if let Some(track) = heads {
        heads_of(app, track, way.layer, lower, buf);
    }
}

fn top_tokens(app: &App, r: Reading<'_>, way: &Waypoint, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let ellipsis = theme.glyphs.ellipsis;
    let title = if way.top.is_empty() {
        format!("layer {}: no lens", way.layer)
    } else {
        format!("layer {} says", way.layer)
    };
    let columns = usize::from(area.width);
    let title = chrome::left(&title, columns, ellipsis);
    chrome::put(&Line::styled(title, theme.dim), chrome::row(area, 0), buf);
    let name = columns.saturating_sub(FIGURE).min(18);
    let length = columns.saturating_sub(name + FIGURE + 1).min(40);
    let rows = usize::from(area.height).saturating_sub(1);
    for (i, c) in way.top.iter().take(rows).enumerate() {
        let answer = r.token() == Some(&c.token);
        let style = if answer { theme.good } else { theme.strong };
        let text = quoted(app, &c.token);
        let mut spans = vec![
            Span::styled(chrome::left(&text, name, ellipsis), style),
            Span::raw(chrome::right(
                &prob(c.prob),
                FIGURE.min(columns - name),
                ellipsis,
            )),
        ];
        if length >= 5 {
            spans.push(Span::raw(" "));
            spans.extend(chrome::bar(c.prob, length, &theme.glyphs, style, theme.dim));
        }
        chrome::put(&Line::from(spans), chrome::row(area, i + 1), buf);
    }
}

/// The heads that add or take most, and what the output bias leaves.
fn heads_of(app: &App, track: &Track, layer: u32, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let ellipsis = theme.glyphs.ellipsis;
    let columns = usize::from(area.width);
    let heads = by_size(track);
    let max = heads.first().map_or(0.0, |h| size(h.1));
    let rest = track.attn_logit - track.head_logits.iter().sum::<f64>();
    let long = format!("heads of layer {layer}, logits; the bias {}", signed(rest));
    let short = format!("heads of layer {layer}, logits");
    let title = if long.len() <= columns { long } else { short };
    let title = chrome::left(&title, columns, ellipsis);
    chrome::put(&Line::styled(title, theme.dim), chrome::row(area, 0), buf);
    let length = columns.saturating_sub(9 + FIGURE + 1).min(41);
    let rows = usize::from(area.height).saturating_sub(1);
    let style = theme.category(Category::Attention);
    for (i, (head, v)) in heads.into_iter().take(rows).enumerate() {
        let mut spans = vec![
            Span::raw(chrome::left(&format!("head {head}"), 9, ellipsis)),
            Span::styled(chrome::right(&signed(v), FIGURE, ellipsis), style),
        ];
        if length >= 5 {
            let text = bar(v, max, length, &theme.glyphs);
            spans.push(Span::styled(format!(" {text}"), style));
        }
        chrome::put(&Line::from(spans), chrome::row(area, i + 1), buf);
    }
}

/// The stream at the cursor in figures.
pub(super) fn detail(app: &App, r: Reading<'_>, columns: usize) -> Line<'static> {
    use chrome::Part;
    let Some(way) = r.ways().get(r.cursor(app.views.trace.layer)) else {
        return Line::default();
    };
    let text = |rank, text: String| Part::new(rank, vec![Span::raw(text)]);
    let mut parts = vec![
        text(5, format!("layer {}", way.layer)),
        text(
            0,
            format!(
                "|res| {}  |attn| {}  |ffn| {}",
                plain(way.residual_norm),
                plain(way.attn_norm),
                plain(way.ffn_norm)
            ),
        ),
    ];
    let nats = [("entropy", way.entropy), ("KL", way.kl_to_final)];
    for ((name, v), rank) in nats.into_iter().zip(1u8..) {
        parts.extend(v.map(|v| text(rank, format!("{name} {} nats", plain(v)))));
    }
    if let Some(t) = r.track(way) {
        parts.push(text(3, format!("logit {}", plain(t.logit))));
    }
    chrome::join(parts, &gap(app), columns)
}

fn gap(app: &App) -> Span<'static> {
    Span::styled(format!(" {} ", app.theme.glyphs.dot), app.theme.dim)
}

/// As many of `items` as fit behind `label`; nothing without any.
fn row_of(
    app: &App,
    label: String,
    items: Vec<Span<'static>>,
    columns: usize,
) -> Option<Line<'static>> {
    if items.is_empty() {
        return None;
    }
    let mut used = label.chars().count();
    let mut spans = vec![Span::styled(label, app.theme.dim)];
    for item in items {
        let width = item.width() + 2;
        if used + width > columns {
            break;
        }
        used += width;
        spans.push(Span::raw("  "));
        spans.push(item);
    }
    Some(Line::from(spans))
}

/// The most probable tokens at the cursor in one line.
pub(super) fn tokens_line(app: &App, r: Reading<'_>, columns: usize) -> Option<Line<'static>> {
    let way = r.ways().get(r.cursor(app.views.trace.layer))?;
    let items = way.top.iter().take(columns).map(|c| {
        let answer = r.token() == Some(&c.token);
        let style = if answer {
            app.theme.good
        } else {
            app.theme.strong
        };
        Span::styled(format!("{} {}", quoted(app, &c.token), prob(c.prob)), style)
    });
    row_of(app, "says".into(), items.collect(), columns)
}

/// The heads that add or take most in one line.
pub(super) fn heads_line(app: &App, r: Reading<'_>, columns: usize) -> Option<Line<'static>> {
    let way = r.ways().get(r.cursor(app.views.trace.layer))?;
    let style = app.theme.category(Category::Attention);
    let items = by_size(r.track(way)?)
        .into_iter()
        .take(columns)
        .map(|(head, v)| Span::styled(format!("{head}: {}", signed(v)), style));
    row_of(app, "heads, logits".into(), items.collect(), columns)
}

/// Heads with what they add, the largest first.
fn by_size(track: &Track) -> Vec<(usize, f64)> {
    let mut heads: Vec<(usize, f64)> = track.head_logits.iter().copied().enumerate().collect();
    heads.sort_by(|a, b| size(b.1).total_cmp(&size(a.1)).then(a.0.cmp(&b.0)));
    heads
}

fn size(v: f64) -> f64 {
    if v.is_finite() { v.abs() } else { 0.0 }
}
