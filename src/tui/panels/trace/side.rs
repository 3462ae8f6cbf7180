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

/// Draws the most probable tokens at the cursor and, below, the heads.
pub(super) fn render(app: &App, r: Reading<'_>, area: Rect, buf: &mut Buffer) {
    let Some(way) = r.ways().get(r.cursor(app.views.trace.layer)) else {
        return;
    };
    let heads = r.track(way).filter(|t| !t.head_logits.is_empty());
    let rows = match heads {
        // The title counts too.
        Some(_) => (way.top.len() as u16 + 1).min(area.height.div_ceil(2)),
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
    let mut heads: Vec<(usize, f64)> = track.head_logits.iter().copied().enumerate().collect();
    let largest = |v: f64| if v.is_finite() { v.abs() } else { 0.0 };
    heads.sort_by(|a, b| largest(b.1).total_cmp(&largest(a.1)).then(a.0.cmp(&b.0)));
    let max = heads.first().map_or(0.0, |h| largest(h.1));
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
    let theme = &app.theme;
    let Some(way) = r.ways().get(r.cursor(app.views.trace.layer)) else {
        return Line::default();
    };
    let text = |rank, text: String| Part::new(rank, vec![Span::raw(text)]);
    let mut parts = vec![
        Part::new(
            0,
            vec![Span::styled(format!("layer {}", way.layer), theme.strong)],
        ),
        text(1, format!("|res| {}", plain(way.residual_norm))),
        text(2, format!("|attn| {}", plain(way.attn_norm))),
        text(2, format!("|ffn| {}", plain(way.ffn_norm))),
    ];
    if let Some(nats) = way.entropy {
        parts.push(text(3, format!("entropy {} nats", plain(nats))));
    }
    if let Some(nats) = way.kl_to_final {
        parts.push(text(4, format!("KL to the end {} nats", plain(nats))));
    }
    if let Some(t) = r.track(way) {
        parts.push(text(5, format!("P {}", prob(t.prob))));
        parts.push(text(5, format!("logit {}", plain(t.logit))));
    }
    let gap = Span::styled(format!(" {} ", theme.glyphs.dot), theme.dim);
    chrome::join(parts, &gap, columns)
}
