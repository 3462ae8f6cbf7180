//! Logits: the candidates' lines over the layers, their ranks, the layer that decided; and what sampling cut.

use super::parts::{self, clean};
use super::sampling;
use crate::tracer::figures::{LogitEvolutionTrace, LogitView, TokenLogitEvolution};
use crate::tui::format::number;
use crate::tui::layout::top;
use crate::tui::panels::dots::Dots;
use crate::tui::panels::table::{Cell, Column, lines};
use crate::tui::panels::{chrome, trace};
use crate::tui::state::App;
use crate::tui::update::moved;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::text::Line;

/// Columns of the labels left of the chart, and of the lines' numbers right of it.
const LABEL: u16 = 7;
const ENDS: u16 = 2;
/// From this height on cuts and candidates stand below the chart.
const BELOW: u16 = 22;

/// The trace under the cursor: of the chosen position, else the newest.
pub(super) fn shown<'a>(
    app: &App,
    view: &'a LogitView,
) -> Option<(usize, &'a LogitEvolutionTrace)> {
    let last = view.traces.len().checked_sub(1)?;
    let at = app.views.model.position.map_or(last, |p| {
        view.traces
            .iter()
            .rposition(|t| t.position <= p)
            .unwrap_or(0)
    });
    view.traces.get(at).map(|t| (at, t))
}

/// Layers a trace covers, the embedding counted as one.
fn passes(t: &LogitEvolutionTrace) -> usize {
    t.tracked_tokens
        .iter()
        .map(|e| e.per_layer_logit.len())
        .max()
        .unwrap_or(0)
}

/// How many layers the stream has passed at the cursor.
fn passed(app: &App, t: &LogitEvolutionTrace) -> usize {
    let decisive = t.decisive_layer.saturating_add(1);
    let at = app.views.model.passed.unwrap_or(decisive) as usize;
    at.min(passes(t).saturating_sub(1))
}

/// Where the stream is after so many layers, in words.
fn after(passed: usize) -> String {
    match passed.checked_sub(1) {
        None => "the embedding".into(),
        Some(layer) => format!("layer {layer}"),
    }
}

fn quoted(app: &App, text: &str, columns: usize) -> String {
    let inside = clean(app, text, columns.saturating_sub(2));
    format!("\"{inside}\"")
}

/// Whether this is the token that was chosen.
fn is_chosen(t: &LogitEvolutionTrace, e: &TokenLogitEvolution) -> bool {
    e.token_id == t.selected.id
}

/// A line's hue and whether it is solid: the chosen token's is.
fn stroke(app: &App, t: &LogitEvolutionTrace, index: usize) -> (Style, bool) {
    let theme = &app.theme;
    match t.tracked_tokens.get(index) {
        Some(e) if is_chosen(t, e) => (theme.good, true),
        _ => {
            let hues = [
                theme.category[1],
                theme.category[2],
                theme.category[3],
                theme.category[0],
            ];
            (
                hues.get(index % hues.len()).copied().unwrap_or_default(),
                false,
            )
        }
    }
}

/// What a line is called at its end and in the table.
fn mark(index: usize) -> char {
    char::from_digit(index as u32 + 1, 36).unwrap_or('+')
}

struct Plan {
    sentence: Rect,
    chart: Rect,
    table: Rect,
    cuts: Rect,
    candidates: Rect,
}

fn plan(t: &LogitEvolutionTrace, body: Rect) -> Plan {
    let none = Rect::new(body.x, body.y, 0, 0);
    let said = if body.height >= 8 { 2 } else { 1 };
    let (sentence, rest) = top(body, said);
    if rest.width < 60 {
        // Lines in three rows say nothing.
        let rows = if rest.height >= 12 {
            rest.height / 2
        } else {
            0
        };
        let (chart, table) = top(rest, rows);
        let rows = t.tracked_tokens.len().min(100) as u16 + 1;
        let (table, cuts) = top(table, rows.min(table.height.div_ceil(2)));
        return Plan {
            sentence,
            chart,
            table,
            cuts,
            candidates: none,
        };
    }
    if rest.height >= BELOW {
        let (upper, lower) = top(rest, (rest.height / 2).max(rest.height.saturating_sub(18)));
        let (chart, table) = parts::beside(upper, rest.width - (rest.width * 2 / 5).clamp(40, 62));
        let (cuts, candidates) = parts::beside(lower, (rest.width / 2).min(62));
        return Plan {
            sentence,
            chart,
            table,
            cuts,
            candidates,
        };
    }
    let (chart, side) = parts::beside(rest, rest.width - (rest.width * 11 / 20).clamp(44, 62));
    let cuts = (t.sampling.cuts.len().min(20) as u16 + 1).min(side.height / 2);
    let (table, cuts) = top(side, side.height - cuts);
    Plan {
        sentence,
        chart,
        table,
        cuts,
        candidates: none,
    }
}

/// Draws the view.
pub(super) fn render(app: &App, view: &LogitView, body: Rect, buf: &mut Buffer) {
    let Some((at, t)) = shown(app, view) else {
        return parts::put_all(&super::tabs::waits(app, body.width.into()), body, buf);
    };
    let theme = &app.theme;
    let plan = plan(t, body);
    let width = body.width.into();
    let said = [
        parts::sentence(app, sentence(app, t), theme.strong, width),
        parts::sentence(app, place(app, view, at, t), theme.dim, width),
    ];
    parts::put_all(&said, plan.sentence, buf);
    chart(app, t, plan.chart, buf);
    table(app, t, plan.table, buf);
    sampling::cuts(app, &t.sampling, plan.cuts, buf);
    sampling::candidates(app, &t.sampling, &t.selected, plan.candidates, buf);
}

/// How the token came to be chosen.
fn sentence(app: &App, t: &LogitEvolutionTrace) -> Vec<(u8, String)> {
    let chosen = quoted(app, &t.selected.text, 20);
    let drawn = t.tracked_tokens.iter().find(|e| is_chosen(t, e));
    let end = drawn.map_or(String::new(), |e| {
        format!(
            " (rank {}, P {})",
            trace::rank(e.final_rank),
            trace::prob(e.final_probability.into())
        )
    });
    let since = match t.stable_from {
        Some(layer) => format!("first from layer {layer} on"),
        None => "never first: another was more probable".into(),
    };
    vec![
        (
            0,
            format!("{chosen}{end} raised most by layer {}", t.decisive_layer),
        ),
        (1, since),
    ]
}

/// Which of the tokens kept this is, and how many of the last five were among the first five at the cursor.
fn place(app: &App, view: &LogitView, at: usize, t: &LogitEvolutionTrace) -> Vec<(u8, String)> {
    let passed = passed(app, t);
    let mut all = vec![(
        0,
        format!(
            "position {}, {} of {} kept",
            t.position,
            at + 1,
            view.traces.len()
        ),
    )];
    if let Some(n) = t.top5_overlap.get(passed) {
        let text = format!(
            "{n} of the final top 5 in the top 5 after {}",
            after(passed)
        );
        all.push((1, text));
    }
    all
}

fn chart(app: &App, t: &LogitEvolutionTrace, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let ellipsis = theme.glyphs.ellipsis;
    let count = passes(t);
    if area.height < 4 || area.width < LABEL + ENDS + 6 || count == 0 {
        return;
    }
    let solid = if theme.glyphs.ascii { "*" } else { "solid" };
    let title = format!("logits; {solid}: the chosen token");
    chrome::put(
        &parts::line(app, &title, theme.dim, area.width.into()),
        area,
        buf,
    );
    let plot = plot(area);
    let known = || {
        let all = t.tracked_tokens.iter().flat_map(|e| &e.per_layer_logit);
        all.copied().map(f64::from).filter(|v| v.is_finite())
    };
    let low = known().fold(f64::INFINITY, f64::min);
    let high = known().fold(f64::NEG_INFINITY, f64::max);
    let label = |v: f64, y: u16, buf: &mut Buffer| {
        let text = chrome::right(&trace::plain(v), usize::from(LABEL) - 1, ellipsis);
        chrome::put(
            &Line::styled(text, theme.dim),
            Rect::new(area.x, y, LABEL, 1),
            buf,
        );
    };
    label(high, plot.y, buf);
    if plot.height > 1 {
        label(low, plot.bottom() - 1, buf);
    }
    let mut dots = Dots::new(plot, theme.glyphs.ascii);
    let (rows, width) = (dots.height().saturating_sub(1) as f64, dots.width());
    let placed = |e: &TokenLogitEvolution| -> Vec<f64> {
        let place = |v: &f32| (f64::from(*v) - low) / (high - low).max(1e-9);
        e.per_layer_logit.iter().map(place).collect()
    };
    let mut order: Vec<usize> = (0..t.tracked_tokens.len()).collect();
    order.sort_by_key(|i| stroke(app, t, *i).1);
    for i in order {
        let (style, solid) = stroke(app, t, i);
        let values = t.tracked_tokens.get(i).map(placed).unwrap_or_default();
        let up = |x: usize| trace::between(&values, x, width).map(|v| v * rows);
        dots.curve(up, if solid { 1 } else { 3 }, style, solid);
    }
    dots.render(buf);
    line_ends(app, t, plot, (low, high), buf);
    let x = plot.x + trace::column(passed(app, t), count, plot.width);
    for y in plot.top()..plot.bottom() {
        if let Some(cell) = buf.cell_mut((x, y)) {
            cell.set_style(theme.selected);
        }
    }
    ticks(app, t, plot, buf);
}

/// The part of a chart that has lines in it.
fn plot(area: Rect) -> Rect {
    Rect::new(
        area.x + LABEL,
        area.y + 1,
        area.width.saturating_sub(LABEL + ENDS),
        area.height.saturating_sub(2),
    )
}

/// The lines' numbers at their right ends, moved apart where they meet.
fn line_ends(
    app: &App,
    t: &LogitEvolutionTrace,
    plot: Rect,
    (low, high): (f64, f64),
    buf: &mut Buffer,
) {
    let rows = usize::from(plot.height);
    let mut taken = vec![false; rows];
    let mut all: Vec<usize> = (0..t.tracked_tokens.len()).collect();
    // The chosen token's number has the first choice of places.
    all.sort_by_key(|i| !stroke(app, t, *i).1);
    for i in all {
        let Some(v) = t
            .tracked_tokens
            .get(i)
            .and_then(|e| e.per_layer_logit.last())
        else {
            continue;
        };
        let share = (f64::from(*v) - low) / (high - low).max(1e-9);
        if !share.is_finite() {
            continue;
        }
        let wanted =
            ((1.0 - share.clamp(0.0, 1.0)) * rows.saturating_sub(1) as f64).round() as usize;
        let free = (0..rows).filter(|r| taken.get(*r) == Some(&false));
        let Some(row) = free.min_by_key(|r| r.abs_diff(wanted)) else {
            break;
        };
        if let Some(place) = taken.get_mut(row) {
            *place = true;
        }
        let style = stroke(app, t, i).0;
        let at = Rect::new(plot.right() + 1, plot.y + row as u16, 1, 1);
        chrome::put(&Line::styled(mark(i).to_string(), style), at, buf);
    }
}

/// Below the plot: the embedding, the last layer, where it was decided, from where on it was first, and the cursor.
fn ticks(app: &App, t: &LogitEvolutionTrace, plot: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let count = passes(t);
    let line = Rect::new(plot.x, plot.bottom(), plot.width, 1);
    let cursor = passed(app, t);
    let decisive = (t.decisive_layer as usize).saturating_add(1);
    let stable = t.stable_from.map(|l| (l as usize).saturating_add(1));
    let name = |i: usize| i.checked_sub(1).map_or("emb".into(), |l| l.to_string());
    let here = |at: Option<usize>, letter| if at == Some(cursor) { letter } else { "" };
    let mark = format!(
        "{}{}{}{}",
        theme.glyphs.sort[1],
        name(cursor),
        here(Some(decisive), " D"),
        here(stable, " S")
    );
    // Later ones give way to those before them.
    let mut marks = vec![(cursor, mark, theme.strong)];
    if decisive < count {
        marks.push((decisive, "D".into(), theme.good));
    }
    if let Some(stable) = stable.filter(|s| *s < count) {
        marks.push((stable, "S".into(), theme.accent));
    }
    marks.push((0, "emb".into(), theme.dim));
    marks.push((count - 1, name(count - 1), theme.dim));
    let mut taken: Vec<(u16, u16)> = Vec::new();
    for (at, text, style) in marks {
        let wide = text.chars().count() as u16;
        let x = trace::column(at, count, plot.width).min(plot.width.saturating_sub(wide));
        if wide > plot.width || taken.iter().any(|(a, b)| x < *b && *a < x + wide + 1) {
            continue;
        }
        taken.push((x, x + wide + 1));
        let at = Rect::new(line.x + x, line.y, wide, 1);
        chrome::put(&Line::styled(text, style), at, buf);
    }
}

/// The tokens followed: where they stand at the cursor and in the end, and what sampling made of them.
fn table(app: &App, t: &LogitEvolutionTrace, area: Rect, buf: &mut Buffer) {
    if area.height < 2 {
        return;
    }
    let theme = &app.theme;
    let at = passed(app, t);
    let here = match at.checked_sub(1) {
        None => "emb".into(),
        Some(layer) => format!("@{layer}"),
    };
    let columns = [
        Column::text("#", 2, 0),
        Column::text("token", 10, 0),
        Column::number(&format!("logit{here}"), 8, 1),
        Column::number(&format!("rank{here}"), 7, 1),
        Column::number("P", 5, 0),
        Column::number("drawn", 5, 2),
        Column::number("rank", 4, 4),
        Column::number("cut by", 11, 3),
    ];
    let rows = usize::from(area.height) - 1;
    let row = |(i, e): (usize, &TokenLogitEvolution)| -> Vec<Cell> {
        let style = stroke(app, t, i).0;
        let sampled = t
            .sampling
            .candidates
            .iter()
            .find(|c| c.token.id == e.token_id);
        let mark = format!("{}{}", mark(i), if is_chosen(t, e) { "*" } else { "" });
        vec![
            (mark, style),
            (quoted(app, &e.token_str, 10), style),
            (
                e.per_layer_logit
                    .get(at)
                    .map_or("-".into(), |v| trace::plain(f64::from(*v))),
                Style::new(),
            ),
            (
                e.per_layer_rank
                    .get(at)
                    .map_or("-".into(), |r| trace::rank(*r)),
                theme.strong,
            ),
            (trace::prob(e.final_probability.into()), Style::new()),
            (
                sampled.map_or("-".into(), |c| trace::prob(c.drawn_prob)),
                theme.strong,
            ),
            (trace::rank(e.final_rank), theme.dim),
            (
                sampled.map_or("-".into(), |c| sampling::cut_by(app, c)),
                theme.warn,
            ),
        ]
    };
    let rows = t
        .tracked_tokens
        .iter()
        .enumerate()
        .take(rows)
        .map(row)
        .collect();
    parts::put_all(&lines(app, &columns, rows, area.width.into()), area, buf);
}

/// What marks and figures mean.
pub(super) fn legend(app: &App, view: &LogitView, columns: usize) -> Line<'static> {
    let mut all = vec![
        (0, parts::dim(app, "D decisive, S first from here")),
        (2, parts::dim(app, "* chosen")),
        (3, parts::dim(app, "logits by the logit lens: descriptive")),
        (4, parts::dim(app, "drawn: probability after the cuts")),
    ];
    if let Some((_, t)) = shown(app, view) {
        let text = format!(
            "temperature {}, top-p {}",
            number(t.temperature.into(), 2),
            number(t.top_p.into(), 2)
        );
        all.push((1, parts::dim(app, &text)));
    }
    parts::legend(app, all, columns)
}

/// Moves to the token `by` tokens later; from the newest on the text is followed.
pub(super) fn move_token(app: &mut App, by: i64) {
    let super::Shown::Logits(view) = super::Shown::new(app) else {
        return;
    };
    let Some((at, _)) = shown(app, view) else {
        return;
    };
    let to = moved(at, by, view.traces.len());
    let inside = to + 1 < view.traces.len();
    let position = view.traces.get(to).filter(|_| inside).map(|t| t.position);
    app.views.model.position = position;
}

/// Moves over the layers.
pub(super) fn move_layer(app: &mut App, by: i64) {
    let super::Shown::Logits(view) = super::Shown::new(app) else {
        return;
    };
    if let Some((_, t)) = shown(app, view) {
        let to = moved(passed(app, t), by, passes(t));
        app.views.model.passed = u32::try_from(to).ok();
    }
}

/// How many layers the stream has passed under a click in the chart.
pub(super) fn hit(app: &App, view: &LogitView, body: Rect, at: Position) -> Option<u32> {
    let (_, t) = shown(app, view)?;
    let plot = plot(plan(t, body).chart);
    let count = passes(t);
    if !plot.contains(at) || count == 0 {
        return None;
    }
    let distance = |i: &usize| (plot.x + trace::column(*i, count, plot.width)).abs_diff(at.x);
    let nearest = (0..count.min(100_000)).min_by_key(distance)?;
    u32::try_from(nearest).ok()
}
