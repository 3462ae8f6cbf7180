//! Quantisation error: a row a brick with its worst layer, the layers of the brick under the cursor, and the whole model.

use super::parts::{self, ends, facts, figure, log_place};
use crate::model::brick::BrickId;
use crate::tracer::figures::{
    ErrorGrade, ErrorOf, ModelQuantisationError, QuantisationErrorTrace, QuantisationView,
};
use crate::tui::format::{count, number};
use crate::tui::keymap::Action;
use crate::tui::layout::top;
use crate::tui::panels::table::{Cell, Column, lines};
use crate::tui::panels::{chrome, trace};
use crate::tui::state::App;
use crate::tui::update::moved;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// From this size on strip and model stand beside the table.
const BESIDE: (u16, u16) = (150, 16);

/// The letter of a grade and its hue.
fn graded(app: &App, grade: ErrorGrade) -> (&'static str, Style) {
    match grade {
        ErrorGrade::Acceptable => ("A", app.theme.good),
        ErrorGrade::Warning => ("W", app.theme.warn),
        ErrorGrade::Critical => ("C", app.theme.bad),
    }
}

/// A brick with its layers, the worst of them picked out.
struct Row<'a> {
    id: BrickId,
    worst: &'a QuantisationErrorTrace,
    layers: Vec<&'a QuantisationErrorTrace>,
}

/// How close to its reference, for comparing: what is no number is worst.
fn closeness(t: &QuantisationErrorTrace) -> f64 {
    if t.cosine_similarity.is_finite() {
        t.cosine_similarity
    } else {
        f64::NEG_INFINITY
    }
}

/// The bricks of `all` in the order they come, each with its errors of one kind.
fn by_brick(all: &[QuantisationErrorTrace], of: ErrorOf) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for t in all.iter().filter(|t| t.of == of) {
        match rows.iter_mut().find(|r| r.id == t.brick_id) {
            Some(row) => {
                row.layers.push(t);
                if closeness(t) < closeness(row.worst) {
                    row.worst = t;
                }
            }
            None => rows.push(Row {
                id: t.brick_id,
                worst: t,
                layers: vec![t],
            }),
        }
    }
    rows
}

fn cursor(app: &App, rows: &[Row<'_>]) -> usize {
    let chosen = app.views.model.brick;
    chosen
        .and_then(|id| rows.iter().position(|r| r.id == id))
        .unwrap_or(0)
}

struct Plan {
    sentence: Rect,
    table: Rect,
    strip: Rect,
    model: Rect,
}

fn plan(view: &QuantisationView, bricks: usize, body: Rect) -> Plan {
    let (sentence, rest) = top(body, 1);
    if rest.width >= BESIDE.0 && rest.height >= BESIDE.1 {
        let (table, side) = parts::beside(rest, 92);
        let (strip, model) = top(side, 6);
        return Plan {
            sentence,
            table,
            strip,
            model,
        };
    }
    let wanted = if view.model.is_some() { 3 } else { 1 };
    let (strip, model) = match rest.height {
        0..5 => (0, 0),
        5..9 => (1, 1),
        9..14 => (2, wanted.min(2)),
        _ => (3, wanted),
    };
    // The rest stands right below the table, behind an empty line where there is one to spare.
    let bricks = u16::try_from(bricks).unwrap_or(u16::MAX).saturating_add(2);
    let (table, below) = top(rest, bricks.min(rest.height - strip - model));
    let (strip, model) = top(below, strip);
    Plan {
        sentence,
        table,
        strip,
        model,
    }
}

/// Draws the view.
pub(super) fn render(app: &App, view: &QuantisationView, body: Rect, buf: &mut Buffer) {
    let rows = by_brick(&view.live, ErrorOf::Own);
    let plan = plan(view, rows.len(), body);
    let (said, style) = sentence(app, view, &rows);
    let width = body.width.into();
    chrome::put(
        &parts::sentence(app, said, style, width),
        plan.sentence,
        buf,
    );
    table(app, view, &rows, plan.table, buf);
    if let Some(row) = rows.get(cursor(app, &rows)) {
        strip(app, row, plan.strip, buf);
    }
    let said = model(app, view, plan.model.width.into(), plan.model.height);
    parts::put_all(&said, plan.model, buf);
}

/// The worst of all, in words.
fn sentence(app: &App, view: &QuantisationView, rows: &[Row<'_>]) -> (Vec<(u8, String)>, Style) {
    let worst = rows.iter().map(|r| r.worst);
    let worst = worst.min_by(|a, b| closeness(a).total_cmp(&closeness(b)));
    let Some(worst) = worst else {
        let text = "nothing was compared yet: one layer a token is";
        return (vec![(0, text.into())], app.theme.dim);
    };
    let grade = worst.grade.name();
    let place = layer(worst).map_or(String::new(), |l| format!(" in layer {l}"));
    let text = format!(
        "worst: {}{place}, cosine {}: {grade}",
        worst.brick_id.name(),
        cosine(worst.cosine_similarity),
    );
    let reference = match view.reference.as_str() {
        "" => "F32 of the same weights",
        other => other,
    };
    let style = match worst.grade {
        ErrorGrade::Acceptable => app.theme.strong,
        grade => graded(app, grade).1,
    };
    (vec![(0, text), (1, format!("against {reference}"))], style)
}

fn layer(t: &QuantisationErrorTrace) -> Option<String> {
    t.layer_idx.map(|l| l.to_string())
}

/// A cosine with the digits that tell good from bad.
fn cosine(v: f64) -> String {
    if v.is_finite() {
        number(v, 6)
    } else {
        "-".into()
    }
}

fn exponent(v: f64) -> String {
    match v {
        v if !v.is_finite() => "-".into(),
        0.0 => "0".into(),
        v => format!("{v:.1e}"),
    }
}

fn snr(v: Option<f64>) -> String {
    v.map_or("-".into(), |v| number(v, 1))
}

fn columns() -> [Column; 10] {
    [
        Column::text("brick", 14, 0),
        Column::text("type", 6, 2),
        Column::number("worst", 5, 1),
        Column::number("cosine", 9, 0),
        Column::text("", 1, 0),
        Column::number("SNR dB", 6, 1),
        Column::number("mse", 8, 1),
        Column::number("max |e|", 8, 2),
        Column::number("layers", 6, 4),
        Column::number("arriving", 9, 5),
    ]
}

fn table(app: &App, view: &QuantisationView, rows: &[Row<'_>], area: Rect, buf: &mut Buffer) {
    if area.height < 2 {
        return;
    }
    let theme = &app.theme;
    let arriving = view
        .model
        .as_ref()
        .map_or(Vec::new(), |m| by_brick(&m.brick_errors, ErrorOf::Arriving));
    let at = cursor(app, rows);
    let height = usize::from(area.height) - 1;
    let first = trace::top(at, height, rows.len());
    let row = |(i, r): (usize, &Row<'_>)| -> Vec<Cell> {
        let here = i == at;
        let w = r.worst;
        let (grade, hue) = graded(app, w.grade);
        let name = format!("{}{}", parts::pointer(app, here), r.id.name());
        let style = if here {
            theme.accent
        } else {
            theme.category(r.id.category())
        };
        let arrives = arriving.iter().find(|a| a.id == r.id);
        let plain = Style::new();
        vec![
            (name, style),
            (parts::clean(app, &w.quant_type, 6), theme.dim),
            (layer(w).unwrap_or("-".into()), plain),
            (cosine(w.cosine_similarity), hue),
            (grade.into(), hue),
            (snr(w.snr_db), plain),
            (exponent(w.mse), plain),
            (figure(w.max_abs_error), plain),
            (r.layers.len().to_string(), theme.dim),
            (
                arrives.map_or("-".into(), |a| cosine(a.worst.cosine_similarity)),
                arrives.map_or(theme.dim, |a| graded(app, a.worst.grade).1),
            ),
        ]
    };
    let shown = rows.iter().enumerate().skip(first).take(height);
    let all = lines(app, &columns(), shown.map(row).collect(), area.width.into());
    parts::put_all(&all, area, buf);
}

/// The layers of a brick side by side: the higher, the larger the distance from the reference; below it the grades.
fn strip(app: &App, row: &Row<'_>, area: Rect, buf: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let theme = &app.theme;
    let distance = |t: &QuantisationErrorTrace| (1.0 - t.cosine_similarity).abs();
    let scale = ends(row.layers.iter().map(|t| distance(t)));
    let most = row.layers.iter().filter_map(|t| t.layer_idx).max();
    let label = 18.min(usize::from(area.width));
    let name = chrome::left(row.id.name(), label, theme.glyphs.ellipsis);
    let mut cells = vec![Span::styled(name, theme.category(row.id.category()))];
    let mut grades = vec![Span::styled(
        chrome::left("grade by layer", label, theme.glyphs.ellipsis),
        theme.dim,
    )];
    let count = most.map_or(0, |m| m as usize + 1);
    let room = usize::from(area.width).saturating_sub(label);
    let each = count.div_ceil(room.max(1)).max(1);
    let wide = (room / count.max(1)).clamp(1, 2);
    for column in 0..count.div_ceil(each) {
        let here =
            |t: &&&QuantisationErrorTrace| t.layer_idx.is_some_and(|l| l as usize / each == column);
        // Of layers that share a column the worst shows.
        let worst = row.layers.iter().filter(here);
        let worst = worst.min_by(|a, b| closeness(a).total_cmp(&closeness(b)));
        let Some(worst) = worst else {
            cells.push(Span::styled(theme.glyphs.track.repeat(wide), theme.dim));
            grades.push(Span::raw(" ".repeat(wide)));
            continue;
        };
        let (glyph, style) = theme.heat(log_place(distance(worst), scale));
        cells.push(Span::styled(glyph.repeat(wide), style));
        let (letter, style) = graded(app, worst.grade);
        grades.push(Span::styled(chrome::left(letter, wide, ""), style));
    }
    let range = format!(
        "1 - cosine from {} to {}",
        exponent(scale.0),
        exponent(scale.1)
    );
    let width = area.width.into();
    let all = match area.height {
        1 => vec![Line::from(cells)],
        2 => {
            let about = vec![(0, format!("by layer: {range}")), (1, "log scale".into())];
            vec![Line::from(cells), facts(app, about, width)]
        }
        _ => {
            let layers = format!("layers 0 to {}", count.saturating_sub(1));
            let about = vec![(0, range), (2, "log scale".into()), (1, layers)];
            vec![
                Line::from(cells),
                Line::from(grades),
                facts(app, about, width),
            ]
        }
    };
    parts::put_all(&all, area, buf);
}

/// The whole model: how far the measurement is, what it found, why it could not be made, or the key that starts it.
fn model(app: &App, view: &QuantisationView, columns: usize, rows: u16) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let key = app.keymap.label(Action::MeasureError).unwrap_or_default();
    let mut all = Vec::new();
    if let Some((done, of)) = view.progress {
        let share = f64::from(done) / f64::from(of.max(1));
        let text = match of {
            // Until it has an engine there is nothing to count.
            0 => "measuring the whole model: starting ".to_owned(),
            of => format!("measuring the whole model: {done} of {of} "),
        };
        let bar = columns.saturating_sub(text.len() + 22).min(40);
        let mut spans = vec![Span::styled(text, theme.warn)];
        spans.extend(chrome::bar(
            share,
            bar,
            &theme.glyphs,
            theme.warn,
            theme.dim,
        ));
        spans.push(Span::styled(
            format!(" {} ({key} stops)", parts::share(share)),
            theme.dim,
        ));
        all.push(Line::from(spans));
    }
    if let Some(error) = &view.error {
        let text = format!("not measured: {error}");
        all.push(parts::line(app, &text, theme.bad, columns));
    }
    match &view.model {
        Some(m) => all.extend(measured(app, m, columns, rows)),
        None if all.is_empty() && app.snapshot().playback.is_none() => {
            let text = format!(
                "{key} measures the whole model on the first 64 tokens: logits, KL, perplexity"
            );
            all.push(parts::line(app, &text, theme.accent, columns));
        }
        None => {}
    }
    all
}

fn measured(
    app: &App,
    m: &ModelQuantisationError,
    columns: usize,
    rows: u16,
) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let found = [
        ("logits, mean cosine", cosine(m.logits_cosine)),
        (
            "KL divergence",
            format!("{} nats", exponent(m.output_kl_divergence)),
        ),
        ("same first token", parts::share(m.same_top)),
        ("perplexity", number(m.perplexity, 3)),
        ("of the reference", number(m.reference_perplexity, 3)),
        ("difference", trace::signed(m.perplexity_delta)),
    ];
    let title = format!(
        "whole model, {} tokens, against {}",
        count(m.tokens.into()),
        m.reference
    );
    let mut all = vec![parts::line(app, &title, theme.strong, columns)];
    if rows >= 8 {
        all.extend(found.map(|(name, value)| {
            Line::from(vec![
                Span::styled(chrome::left(name, 20, ""), theme.dim),
                Span::raw(chrome::right(&value, 14, theme.glyphs.ellipsis)),
            ])
        }));
        return all;
    }
    let [cosine, kl, same, ppl, reference, delta] = found.map(|(_, v)| v);
    let first = vec![
        (0, format!("logits cosine {cosine}")),
        (0, format!("KL {kl}")),
        (1, format!("same first token {same}")),
    ];
    let second = vec![
        (0, format!("perplexity {ppl}")),
        (1, format!("of the reference {reference}")),
        (0, format!("difference {delta}")),
    ];
    if rows <= 2 {
        all.clear();
    }
    all.push(facts(app, first, columns));
    all.push(facts(app, second, columns));
    all
}

/// What letters and columns mean.
pub(super) fn legend(app: &App, columns: usize) -> Line<'static> {
    let theme = &app.theme;
    let grades = vec![
        Span::styled("A", theme.good),
        Span::styled(" from 0.995, ", theme.dim),
        Span::styled("W", theme.warn),
        Span::styled(" from 0.99, ", theme.dim),
        Span::styled("C", theme.bad),
        Span::styled(" below", theme.dim),
    ];
    parts::legend(
        app,
        vec![
            (0, grades),
            (1, parts::dim(app, "by the cosine of the worst layer")),
            (2, parts::dim(app, "own error: same input")),
            (
                3,
                parts::dim(app, "arriving: since the embedding, once measured"),
            ),
        ],
        columns,
    )
}

/// Moves to the brick `by` rows further down.
pub(super) fn move_brick(app: &mut App, by: i64) {
    let super::Shown::Quantisation(view) = super::Shown::new(app) else {
        return;
    };
    let rows = by_brick(&view.live, ErrorOf::Own);
    let to = rows
        .get(moved(cursor(app, &rows), by, rows.len()))
        .map(|r| r.id);
    if to.is_some() {
        app.views.model.brick = to;
    }
}

/// The brick under a click.
pub(super) fn hit(app: &App, view: &QuantisationView, body: Rect, at: Position) -> Option<BrickId> {
    let rows = by_brick(&view.live, ErrorOf::Own);
    let area = plan(view, rows.len(), body).table;
    let height = usize::from(area.height).saturating_sub(1);
    let first = trace::top(cursor(app, &rows), height, rows.len());
    let line = usize::from(at.y.checked_sub(area.y)?).checked_sub(1)?;
    let row = area.contains(at).then(|| rows.get(first + line))?;
    row.map(|r| r.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_layer_stands_for_a_brick() {
        let t = |brick_id, layer, cosine| QuantisationErrorTrace {
            brick_id,
            layer_idx: Some(layer),
            of: ErrorOf::Own,
            mse: 0.0,
            max_abs_error: 0.0,
            cosine_similarity: cosine,
            snr_db: None,
            quant_type: String::new(),
            grade: ErrorGrade::Acceptable,
            vectors: 1,
        };
        let all = [
            t(BrickId::QProj, 0, 0.999),
            t(BrickId::KProj, 0, 0.998),
            t(BrickId::QProj, 1, f64::NAN),
            t(BrickId::QProj, 2, 0.9),
        ];
        let rows = by_brick(&all, ErrorOf::Own);
        let seen: Vec<_> = rows
            .iter()
            .map(|r| (r.id, r.worst.layer_idx, r.layers.len()))
            .collect();
        assert_eq!(
            seen,
            [(BrickId::QProj, Some(1), 3), (BrickId::KProj, Some(0), 1)]
        );
        assert!(by_brick(&all, ErrorOf::Arriving).is_empty());
    }
}
