//! Two traces side by side: the one shown is A, the one kept is B, and A-B is what A's parts add more than B's.

use super::reading::{
    Reading, brief, plain, prob, quoted, rank, signed, standing, tail, text_so_far, verdict,
};
use super::table::{layer_cell, top};
use crate::model::brick::Category;
use crate::trace::figures::Track;
use crate::tui::panels::chrome::{self, Part};
use crate::tui::panels::table::{Cell, Column, lines};
use crate::tui::state::App;
use crate::tui::text::sanitise;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// The layers of both, ascending.
pub(super) fn layers(a: Reading<'_>, b: Reading<'_>) -> Vec<u32> {
    let all = a.ways().iter().chain(b.ways()).map(|w| w.layer);
    let set: std::collections::BTreeSet<u32> = all.collect();
    set.into_iter().collect()
}

/// Index of the layer under the cursor among `layers`.
pub(super) fn cursor(app: &App, a: Reading<'_>, layers: &[u32]) -> usize {
    let layer = app.views.trace.layer.or(a.decided());
    match layer {
        Some(l) => layers.iter().rposition(|x| *x <= l).unwrap_or(0),
        None => layers.len().saturating_sub(1),
    }
}

/// Draws a line for each trace and one for what sets them apart.
pub(super) fn head(app: &App, a: Reading<'_>, b: Reading<'_>, area: Rect, buf: &mut Buffer) {
    let columns = usize::from(area.width);
    let lines = [
        one(app, "A", a, a.view.model != b.view.model, columns),
        one(app, "B", b, a.view.model != b.view.model, columns),
        apart(app, a, b, columns),
    ];
    for (i, line) in lines.iter().enumerate() {
        chrome::put(line, chrome::row(area, i), buf);
    }
}

/// A trace in one line: its prompt, where the answer stands, what decided it.
fn one(
    app: &App,
    name: &'static str,
    r: Reading<'_>,
    model: bool,
    columns: usize,
) -> Line<'static> {
    let theme = &app.theme;
    let g = &theme.glyphs;
    let raw = |rank, text: String| Part::new(rank, vec![Span::raw(text)]);
    let mut verdict = verdict(app, r);
    if columns < 110
        && let Some(first) = verdict.first_mut()
    {
        *first = brief(r);
    }
    let standing = standing(app, r);
    // Where it was decided is worth more than the start of the prompt.
    let first = verdict.first().map_or(0, |v| v.chars().count());
    let taken = standing.chars().count() + first + 10;
    let room = columns.saturating_sub(taken).max(columns / 4);
    let prompt = tail(&text_so_far(app, r), room, g.ellipsis);
    let mut parts = vec![
        Part::new(1, vec![Span::styled(format!("\"{prompt}\""), theme.prompt)]),
        Part::new(0, vec![Span::styled(standing, theme.strong)]),
    ];
    if model {
        let model = sanitise(&r.view.model, g.ascii);
        parts.insert(0, raw(3, tail(&model, 24, g.ellipsis)));
    }
    let verdict = verdict.into_iter().zip(2u8..);
    parts.extend(verdict.map(|(text, rank)| raw(rank, text)));
    let gap = Span::styled(format!(" {} ", g.dot), theme.dim);
    let mut line = chrome::join(parts, &gap, columns.saturating_sub(2));
    let name = Span::styled(format!("{name} "), theme.accent);
    line.spans.insert(0, name);
    line
}

/// Where two traces part: the first layer with another top-1, and the part that differs most.
fn apart(app: &App, a: Reading<'_>, b: Reading<'_>, columns: usize) -> Line<'static> {
    let theme = &app.theme;
    let mut parts = Vec::new();
    let text = |rank, text: String| Part::new(rank, vec![Span::styled(text, theme.warn)]);
    if a.token() == b.token() {
        let mut largest: Option<(u32, &str, f64)> = None;
        for way in a.ways() {
            let other = b.way(way.layer).and_then(|w| b.track(w));
            let (Some(x), Some(y)) = (a.track(way), other) else {
                continue;
            };
            for (part, d) in [
                ("attention", x.attn_logit - y.attn_logit),
                ("FFN", x.ffn_logit - y.ffn_logit),
            ] {
                if d.is_finite() && largest.is_none_or(|l| d.abs() > l.2.abs()) {
                    largest = Some((way.layer, part, d));
                }
            }
        }
        if let Some((layer, part, d)) = largest {
            parts.push(text(
                0,
                format!(
                    "A-B is largest at {part} of layer {layer}: {} logits",
                    signed(d)
                ),
            ));
        }
    } else {
        parts.push(text(0, "A and B follow different tokens".into()));
    }
    let top = |r: Reading<'_>, layer| {
        let way = r.ways().iter().find(|w| w.layer == layer)?;
        way.top.first().map(|c| c.token.text.clone())
    };
    let differs = layers(a, b)
        .into_iter()
        .find(|l| top(a, *l).zip(top(b, *l)).is_some_and(|(x, y)| x != y));
    parts.push(text(
        1,
        match differs {
            Some(layer) => format!("top-1 first differs after layer {layer}"),
            None => "top-1 nowhere differs".into(),
        },
    ));
    let gap = Span::styled(format!(" {} ", theme.glyphs.dot), theme.dim);
    chrome::join(parts, &gap, columns)
}

/// Columns by how much they tell: probabilities first, then where the difference comes from.
fn columns() -> Vec<Column> {
    vec![
        Column::number("layer", 5, 0),
        Column::text("A top-1", 11, 5),
        Column::number("A P", 5, 0),
        Column::number("A rank", 6, 2),
        Column::number("A attn", 6, 3),
        Column::number("A ffn", 6, 3),
        Column::text("B top-1", 11, 5),
        Column::number("B P", 5, 0),
        Column::number("B rank", 6, 2),
        Column::number("B attn", 6, 3),
        Column::number("B ffn", 6, 3),
        Column::number("A-B attn", 8, 1),
        Column::number("A-B ffn", 7, 1),
        Column::number("A-B logit", 9, 6),
    ]
}

/// Draws the layers of both.
pub(super) fn render(app: &App, a: Reading<'_>, b: Reading<'_>, area: Rect, buf: &mut Buffer) {
    let rows = usize::from(area.height).saturating_sub(1);
    let layers = layers(a, b);
    let at = cursor(app, a, &layers);
    let top = top(at, rows, layers.len());
    let shown = layers.iter().enumerate().skip(top).take(rows);
    let cells = shown.map(|(i, layer)| row(app, a, b, *layer, i == at));
    let mut drawn = lines(app, &columns(), cells.collect(), area.width.into());
    if let Some(line) = drawn.get_mut(1 + at - top.min(at)) {
        line.style = app.theme.selected;
    }
    for (i, line) in drawn.iter().take(rows + 1).enumerate() {
        chrome::put(line, chrome::row(area, i), buf);
    }
}

fn row(app: &App, a: Reading<'_>, b: Reading<'_>, layer: u32, at_cursor: bool) -> Vec<Cell> {
    let theme = &app.theme;
    let attention = theme.category(Category::Attention);
    let ffn = theme.category(Category::Ffn);
    let of = |r: Reading<'_>| -> Vec<Cell> {
        let way = r.way(layer);
        let track = way.and_then(|w| r.track(w));
        let known = |f: fn(&Track) -> String| track.map_or("-".into(), f);
        let top = way.and_then(|w| w.top.first());
        let is_answer = top.is_some_and(|t| r.token() == Some(&t.token));
        vec![
            (
                top.map_or("-".into(), |t| quoted(app, &t.token)),
                if is_answer { theme.good } else { Style::new() },
            ),
            (known(|t| prob(t.prob)), theme.strong),
            (known(|t| rank(t.rank)), Style::new()),
            (known(|t| signed(t.attn_logit)), attention),
            (known(|t| signed(t.ffn_logit)), ffn),
        ]
    };
    let track = |r: Reading<'_>, f: fn(&Track) -> f64| {
        let way = r.ways().iter().find(|w| w.layer == layer)?;
        way.tracks.get(r.answer).map(f)
    };
    let less = |f: fn(&Track) -> f64| match (track(a, f), track(b, f)) {
        (Some(x), Some(y)) => signed(x - y),
        _ => "-".into(),
    };
    let mark = match (a.decided() == Some(layer), b.decided() == Some(layer)) {
        (true, true) => "*",
        (true, false) => "A",
        (false, true) => "B",
        (false, false) => "",
    };
    let mut cells = vec![(layer_cell(app, layer, at_cursor, mark), theme.strong)];
    cells.extend(of(a));
    cells.extend(of(b));
    cells.extend([
        (less(|t| t.attn_logit), attention),
        (less(|t| t.ffn_logit), ffn),
        (less(|t| t.logit), Style::new()),
    ]);
    cells
}

/// Norms of both at the cursor.
pub(super) fn detail(app: &App, a: Reading<'_>, b: Reading<'_>, columns: usize) -> Line<'static> {
    let theme = &app.theme;
    let layers = layers(a, b);
    let Some(layer) = layers.get(cursor(app, a, &layers)) else {
        return Line::default();
    };
    let norms = |r: Reading<'_>| {
        r.way(*layer).map_or("-".into(), |w| {
            format!(
                "{} {} {}",
                plain(w.residual_norm),
                plain(w.attn_norm),
                plain(w.ffn_norm)
            )
        })
    };
    let token = |r: Reading<'_>| {
        let p = r.at.map_or(0, |p| p.position);
        let token = r.view.tokens.get(p as usize);
        format!("{p} {}", token.map_or("-".into(), |t| quoted(app, t)))
    };
    let text = |rank, text: String| Part::new(rank, vec![Span::raw(text)]);
    let parts = vec![
        Part::new(
            0,
            vec![Span::styled(format!("layer {layer}"), theme.strong)],
        ),
        text(
            1,
            format!("|res| |attn| |ffn|: A {}, B {}", norms(a), norms(b)),
        ),
        text(2, format!("at A {}, B {}", token(a), token(b))),
    ];
    let gap = Span::styled(format!(" {} ", theme.glyphs.dot), theme.dim);
    chrome::join(parts, &gap, columns)
}
