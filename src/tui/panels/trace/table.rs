//! The layers as a table: where the answer stands after each, what attention and FFN add to its logit, as signed bars and
//! in figures.

use super::reading::{Reading, plain, prob, quoted, rank, signed};
use crate::model::brick::Category;
use crate::trace::figures::{Track, Waypoint};
use crate::tui::panels::chrome;
use crate::tui::panels::table::{Cell, Column, fitting, lines};
use crate::tui::state::App;
use crate::tui::theme::Glyphs;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

/// Columns of a bar: at least, and at most.
const BAR: (usize, usize) = (6, 31);

/// A bar of `columns` around a middle: to the right what adds to the logit, to the left what takes from it. `max` is its
/// length on either side.
pub(super) fn bar(v: f64, max: f64, columns: usize, glyphs: &Glyphs) -> String {
    let half = columns.saturating_sub(1) / 2;
    let share = (v.abs() / max).clamp(0.0, 1.0);
    let share = if share.is_finite() { share } else { 0.0 };
    let steps = if glyphs.ascii { 1 } else { 2 };
    let units = (share * (half * steps) as f64).round() as usize;
    let (whole, part) = (units / steps, units % steps);
    let (full, left, right, middle) = match (glyphs.ascii, v < 0.0) {
        (true, true) => ("-", "", "", "|"),
        (true, false) => ("+", "", "", "|"),
        (false, _) => ("█", "▐", "▌", "│"),
    };
    let space = |n: usize| " ".repeat(n);
    let empty = half - (whole + part).min(half);
    let text = if v < 0.0 {
        let end = if part > 0 { left } else { "" };
        format!(
            "{}{end}{}{middle}{}",
            space(empty),
            full.repeat(whole),
            space(half)
        )
    } else {
        let end = if part > 0 { right } else { "" };
        format!(
            "{}{middle}{}{end}{}",
            space(half),
            full.repeat(whole),
            space(empty)
        )
    };
    let odd = columns.saturating_sub(2 * half + 1);
    format!("{text}{}", space(odd))
}

/// The first row shown of `total`, so that the one under the cursor stands in the middle of `rows`.
pub(in crate::tui::panels) fn top(cursor: usize, rows: usize, total: usize) -> usize {
    cursor
        .saturating_sub(rows / 2)
        .min(total.saturating_sub(rows))
}

/// The number of a layer with the cursor before and a mark of the deciding layer behind.
pub(super) fn layer_cell(app: &App, layer: u32, at_cursor: bool, mark: &str) -> String {
    let pointer = if at_cursor {
        app.theme.glyphs.pointer
    } else {
        " "
    };
    format!("{pointer}{layer:>3}{mark:<1}")
}

/// Columns with a lens, those of the bars as wide as `bar`.
fn with_lens(max: f64, bar: usize, app: &App) -> Vec<Column> {
    let scale = format!("{}{}", app.theme.glyphs.plus_minus, plain(max));
    let scale = if scale.chars().count() <= bar {
        scale
    } else {
        String::new()
    };
    vec![
        Column::number("layer", 5, 0),
        Column::text("top-1", 12, 4),
        Column::number("P", 5, 0),
        Column::number("rank", 6, 1),
        Column::number("logit", 6, 5),
        Column::number("attn", 6, 0),
        Column::text(&scale, bar, 2),
        Column::number("ffn", 6, 0),
        Column::text(&scale, bar, 3),
        Column::number("|res|", 6, 6),
        Column::number("|attn|", 6, 7),
        Column::number("|ffn|", 6, 8),
        Column::number("H nats", 6, 9),
        Column::number("KL nats", 7, 10),
    ]
}

/// Columns of a file without lens.
fn norms_only(bar: usize) -> Vec<Column> {
    vec![
        Column::number("layer", 5, 0),
        Column::number("|res|", 6, 0),
        Column::number("|attn|", 6, 0),
        Column::text("", bar, 2),
        Column::number("|ffn|", 6, 0),
        Column::text("", bar, 2),
    ]
}

/// Columns for `width`: the bars take what the others leave.
fn columns(app: &App, r: Reading<'_>, max: f64, width: usize) -> Vec<Column> {
    let make = |bar| {
        if r.has_lens() {
            with_lens(max, bar, app)
        } else {
            norms_only(bar)
        }
    };
    let first = make(BAR.0);
    let kept = fitting(&first, width);
    let used: usize = kept
        .iter()
        .filter_map(|i| first.get(*i))
        .map(|c| c.width + 1)
        .sum();
    let spare = (width + 1).saturating_sub(used) / 2;
    // Even, so that the middle is one.
    let bar = (BAR.0 + spare).min(BAR.1);
    make(bar - (bar + 1) % 2)
}

/// Draws the table with as many layers as fit around the cursor.
pub(super) fn render(app: &App, r: Reading<'_>, area: Rect, buf: &mut Buffer) {
    let rows = usize::from(area.height).saturating_sub(1);
    let width = usize::from(area.width);
    let cursor = r.cursor(app.views.trace.layer);
    let ways = r.ways();
    let top = top(cursor, rows, ways.len());
    let lens = r.has_lens();
    let max = if lens { r.largest() } else { largest_norm(r) };
    let columns = columns(app, r, max, width);
    let bar = columns
        .iter()
        .filter(|c| c.left && c.rank >= 2 && c.title != "top-1")
        .map(|c| c.width)
        .next()
        .unwrap_or(BAR.0);
    let shown = ways.iter().enumerate().skip(top).take(rows);
    let cells = shown.clone().map(|(i, way)| {
        let decided = r.decided() == Some(way.layer);
        let mark = if decided { "*" } else { "" };
        let layer = layer_cell(app, way.layer, i == cursor, mark);
        if lens {
            lens_row(app, r, way, layer, (max, bar))
        } else {
            norm_row(app, way, layer, (max, bar))
        }
    });
    let mut drawn = lines(app, &columns, cells.collect(), width);
    if let Some(line) = drawn.get_mut(1 + cursor - top.min(cursor)) {
        line.style = app.theme.selected;
    }
    for (i, line) in drawn.iter().take(rows + 1).enumerate() {
        chrome::put(line, chrome::row(area, i), buf);
    }
    let known = shown.count();
    if known == 0 && rows > 0 {
        let text = Line::styled("no layers of this position", app.theme.dim);
        chrome::put(&text, chrome::row(area, 1), buf);
    }
}

fn largest_norm(r: Reading<'_>) -> f64 {
    r.ways()
        .iter()
        .flat_map(|w| [w.attn_norm, w.ffn_norm])
        .filter(|v| v.is_finite())
        .fold(0.0, f64::max)
}

fn lens_row(
    app: &App,
    r: Reading<'_>,
    way: &Waypoint,
    layer: String,
    (max, bar_width): (f64, usize),
) -> Vec<Cell> {
    let theme = &app.theme;
    let plain_style = Style::new();
    let attention = theme.category(Category::Attention);
    let ffn = theme.category(Category::Ffn);
    let track = r.track(way);
    let known = |f: fn(&Track) -> String| track.map_or("-".into(), f);
    let draw = |v: Option<f64>| v.map_or(String::new(), |v| bar(v, max, bar_width, &theme.glyphs));
    let top = way.top.first();
    let is_answer = top.is_some_and(|t| r.token() == Some(&t.token));
    let nats = |v: Option<f64>| v.map_or("-".into(), plain);
    vec![
        (layer, theme.strong),
        (
            top.map_or("-".into(), |t| quoted(app, &t.token)),
            if is_answer { theme.good } else { plain_style },
        ),
        (known(|t| prob(t.prob)), theme.strong),
        (known(|t| rank(t.rank)), plain_style),
        (known(|t| plain(t.logit)), plain_style),
        (known(|t| signed(t.attn_logit)), attention),
        (draw(track.map(|t| t.attn_logit)), attention),
        (known(|t| signed(t.ffn_logit)), ffn),
        (draw(track.map(|t| t.ffn_logit)), ffn),
        (plain(way.residual_norm), theme.dim),
        (plain(way.attn_norm), theme.dim),
        (plain(way.ffn_norm), theme.dim),
        (nats(way.entropy), theme.dim),
        (nats(way.kl_to_final), theme.dim),
    ]
}

fn norm_row(app: &App, way: &Waypoint, layer: String, (max, bar_width): (f64, usize)) -> Vec<Cell> {
    let theme = &app.theme;
    let attention = theme.category(Category::Attention);
    let ffn = theme.category(Category::Ffn);
    let draw = |v: f64| {
        chrome::bar(
            v / max,
            bar_width,
            &theme.glyphs,
            Style::new(),
            Style::new(),
        )
        .into_iter()
        .map(|s| s.content.into_owned())
        .collect::<String>()
    };
    vec![
        (layer, theme.strong),
        (plain(way.residual_norm), theme.strong),
        (plain(way.attn_norm), attention),
        (draw(way.attn_norm), attention),
        (plain(way.ffn_norm), ffn),
        (draw(way.ffn_norm), ffn),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::theme::Theme;

    #[test]
    fn bars_grow_from_their_middle() {
        let (unicode, ascii) = (Theme::new(true, false), Theme::new(false, true));
        assert_eq!(bar(1.0, 1.0, 7, &unicode.glyphs), "   │███");
        assert_eq!(bar(-0.5, 1.0, 7, &unicode.glyphs), " ▐█│   ");
        assert_eq!(bar(-1.0, 1.0, 7, &ascii.glyphs), "---|   ");
        assert_eq!(bar(0.4, 1.0, 8, &ascii.glyphs), "   |+   ");
        assert_eq!(bar(f64::NAN, 0.0, 5, &ascii.glyphs), "  |  ");
        assert_eq!(bar(1.0, 1.0, 0, &ascii.glyphs), "|");
    }

    #[test]
    fn the_cursor_stands_in_the_middle() {
        assert_eq!((top(0, 5, 30), top(10, 5, 30), top(29, 5, 30)), (0, 8, 25));
        assert_eq!(top(3, 50, 30), 0);
    }
}
