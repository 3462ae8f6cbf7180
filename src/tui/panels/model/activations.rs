//! Activations: layers down, statistics across, what broke a rule lit and marked.

use super::parts::{self, MARK, ends, facts, figure, log_place};
use crate::model::brick::Category;
use crate::tracer::figures::{
    ActivationAnomaly, ActivationSite, ActivationView, AnomalyKind, LayerActivationTrace,
    TensorStats,
};
use crate::tui::layout::top;
use crate::tui::panels::table::{Cell, Column, lines};
use crate::tui::panels::{chrome, trace};
use crate::tui::state::App;
use crate::tui::update::moved;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// From this size on the detail and the anomalies stand beside the strip.
const BESIDE: (u16, u16) = (150, 20);
/// Columns of the whole strip.
const STRIP: u16 = 108;
/// Rows of the detail as a table: titles, five tensors of the layer, embedding and logits.
const DETAIL: u16 = 8;

type Value = fn(&LayerActivationTrace) -> f64;

/// A statistic of the strip: title, rank, value, and what lights it.
struct Stat {
    title: &'static str,
    rank: u8,
    value: Value,
    lit: fn(AnomalyKind, ActivationSite) -> bool,
}

const STATS: [Stat; 10] = {
    use ActivationSite as S;
    use AnomalyKind as K;
    [
        Stat {
            title: "std",
            rank: 1,
            value: |l| l.output_stats.std.into(),
            lit: |k, s| matches!(k, K::Vanishing) && matches!(s, S::Output),
        },
        Stat {
            title: "max|x|",
            rank: 0,
            value: |l| l.output_stats.max_abs().into(),
            lit: |k, s| matches!(k, K::Explosion) && matches!(s, S::Output),
        },
        Stat {
            title: "mean",
            rank: 6,
            value: |l| l.output_stats.mean.into(),
            lit: |_, _| false,
        },
        Stat {
            title: "L2",
            rank: 5,
            value: |l| l.output_stats.l2_norm.into(),
            lit: |_, _| false,
        },
        Stat {
            title: "ratio",
            rank: 2,
            value: |l| l.residual_ratio.into(),
            lit: |k, _| matches!(k, K::ResidualDominance),
        },
        Stat {
            title: "NaN/Inf",
            rank: 1,
            value: |l| broken(l) as f64,
            lit: |k, _| matches!(k, K::Nan | K::Infinity),
        },
        Stat {
            title: "attn max",
            rank: 3,
            value: |l| l.post_attn_stats.max_abs().into(),
            lit: |k, s| matches!(k, K::Explosion) && matches!(s, S::PostAttention),
        },
        Stat {
            title: "ffn max",
            rank: 4,
            value: |l| l.post_ffn_stats.max_abs().into(),
            lit: |k, s| matches!(k, K::Explosion) && matches!(s, S::PostFfn),
        },
        Stat {
            title: "attn std",
            rank: 7,
            value: |l| l.post_attn_stats.std.into(),
            lit: |k, s| matches!(k, K::Vanishing) && matches!(s, S::PostAttention),
        },
        Stat {
            title: "ffn std",
            rank: 7,
            value: |l| l.post_ffn_stats.std.into(),
            lit: |k, s| matches!(k, K::Vanishing) && matches!(s, S::PostFfn),
        },
    ]
};

/// The most elements that are not finite in one of a layer's tensors: what is broken in one is in those behind it too.
fn broken(l: &LayerActivationTrace) -> u64 {
    tensors(l)
        .iter()
        .map(|(_, t)| t.nan_count.saturating_add(t.inf_count))
        .max()
        .unwrap_or(0)
}

/// The five tensors of a layer, in the order they come.
fn tensors(l: &LayerActivationTrace) -> [(&'static str, &TensorStats); 5] {
    [
        ("input", &l.input_stats),
        ("norm", &l.post_norm_stats),
        ("attention", &l.post_attn_stats),
        ("ffn", &l.post_ffn_stats),
        ("output", &l.output_stats),
    ]
}

/// The letter of an anomaly.
fn letter(kind: AnomalyKind) -> char {
    match kind {
        AnomalyKind::Nan => 'N',
        AnomalyKind::Infinity => 'I',
        AnomalyKind::Explosion => 'E',
        AnomalyKind::Vanishing => 'V',
        AnomalyKind::ResidualDominance => 'R',
    }
}

/// The layer of the largest output.
fn largest(view: &ActivationView) -> Option<&LayerActivationTrace> {
    let known = |l: &&LayerActivationTrace| l.output_stats.max_abs().is_finite();
    let layers = view.latest.layers.iter().filter(known);
    layers.max_by(|a, b| {
        let size = |l: &LayerActivationTrace| l.output_stats.max_abs();
        size(a).total_cmp(&size(b))
    })
}

/// Index of the layer under the cursor: the chosen one, else the first that broke a rule, else that of the largest output.
fn cursor(app: &App, view: &ActivationView) -> usize {
    let first = || view.anomalies.iter().find_map(|a| a.layer);
    let layer = app.views.model.layer.or_else(first);
    let layer = layer.or_else(|| largest(view).map(|l| l.layer_idx));
    let at = |layer| {
        view.latest
            .layers
            .iter()
            .rposition(|l| l.layer_idx <= layer)
    };
    layer.and_then(at).unwrap_or(0)
}

/// Where everything is.
struct Plan {
    sentence: Rect,
    strip: Rect,
    detail: Rect,
    list: Rect,
}

fn plan(view: &ActivationView, body: Rect) -> Plan {
    let (sentence, rest) = top(body, 1);
    if rest.width >= BESIDE.0 && rest.height >= BESIDE.1 {
        let (strip, side) = parts::beside(rest, STRIP);
        let (detail, list) = top(side, DETAIL + 1);
        return Plan {
            sentence,
            strip,
            detail,
            list,
        };
    }
    let wanted = (view.anomalies.len().min(60) as u16) + u16::from(view.more_anomalies > 0);
    let list = wanted.min(rest.height / 4);
    let detail = match rest.height {
        0..5 => 0,
        5..20 => 2,
        _ => DETAIL,
    };
    let (strip, below) = top(rest, rest.height - list - detail);
    let (detail, list) = top(below, detail);
    Plan {
        sentence,
        strip,
        detail,
        list,
    }
}

/// Draws the view.
pub(super) fn render(app: &App, view: &ActivationView, body: Rect, buf: &mut Buffer) {
    let plan = plan(view, body);
    let theme = &app.theme;
    let style = if view.anomalies.is_empty() {
        theme.strong
    } else {
        theme.bad
    };
    let said = parts::sentence(app, sentence(view), style, body.width.into());
    chrome::put(&said, plan.sentence, buf);
    strip(app, view, plan.strip, buf);
    detail(app, view, plan.detail, buf);
    list(app, view, plan.list, buf);
}

/// What the step amounts to.
fn sentence(view: &ActivationView) -> Vec<(u8, String)> {
    let mut parts = Vec::new();
    match view.anomalies.first() {
        Some(first) => parts.push((0, format!("first broken: {}", first.text))),
        None => {
            let plural = if view.steps == 1 { "" } else { "s" };
            parts.push((0, format!("no anomaly in {} step{plural}", view.steps)));
        }
    }
    if let Some(l) = largest(view) {
        let size = figure(l.output_stats.max_abs().into());
        parts.push((
            1,
            format!("largest output: layer {}, max|x| {size}", l.layer_idx),
        ));
    }
    if let [first, .., last] = view.latest.layers.as_slice() {
        let std = |l: &LayerActivationTrace| figure(l.output_stats.std.into());
        parts.push((
            2,
            format!(
                "std {} after layer {}, {} after layer {}",
                std(first),
                first.layer_idx,
                std(last),
                last.layer_idx
            ),
        ));
    }
    parts
}

fn columns() -> Vec<Column> {
    let mut all = vec![Column::text("layer", 7, 0)];
    all.extend(STATS.iter().map(|s| {
        let width = match s.title {
            "ratio" => 7,
            "NaN/Inf" => 7,
            _ => 9,
        };
        Column::number(s.title, width, s.rank)
    }));
    all
}

/// Anomalies of a layer.
fn of_layer(view: &ActivationView, layer: u32) -> impl Iterator<Item = &ActivationAnomaly> {
    let here = move |a: &&ActivationAnomaly| a.layer == Some(layer);
    view.anomalies.iter().filter(here)
}

fn strip(app: &App, view: &ActivationView, area: Rect, buf: &mut Buffer) {
    if area.height < 2 {
        return;
    }
    let rows = usize::from(area.height) - 1;
    let layers = &view.latest.layers;
    let at = cursor(app, view);
    let first = trace::top(at, rows, layers.len());
    let scales: Vec<(f64, f64)> = STATS
        .iter()
        .map(|s| ends(layers.iter().map(|l| (s.value)(l).abs())))
        .collect();
    let cells = layers
        .iter()
        .enumerate()
        .skip(first)
        .take(rows)
        .map(|(i, l)| row(app, view, l, i == at, &scales))
        .collect();
    let all = lines(app, &columns(), cells, area.width.into());
    parts::put_all(&all, area, buf);
}

fn row(
    app: &App,
    view: &ActivationView,
    l: &LayerActivationTrace,
    here: bool,
    scales: &[(f64, f64)],
) -> Vec<Cell> {
    let theme = &app.theme;
    let mut marks = String::new();
    for a in of_layer(view, l.layer_idx) {
        if !marks.contains(letter(a.kind)) {
            marks.push(letter(a.kind));
        }
    }
    let style = match (marks.is_empty(), here) {
        (false, _) => theme.bad,
        (true, true) => theme.accent,
        (true, false) => theme.strong,
    };
    let pointer = parts::pointer(app, here);
    let mut cells = vec![(format!("{pointer}{:>3} {marks}", l.layer_idx), style)];
    for (stat, scale) in STATS.iter().zip(scales) {
        let v = (stat.value)(l);
        let lit = of_layer(view, l.layer_idx).any(|a| (stat.lit)(a.kind, a.site));
        let (glyph, style) = theme.heat(log_place(v.abs(), *scale));
        let (glyph, style) = match stat.title {
            _ if lit => (MARK, theme.bad),
            "NaN/Inf" => (" ", theme.dim),
            "ratio" => theme.heat(v),
            _ => (glyph, style),
        };
        let width = if matches!(stat.title, "ratio" | "NaN/Inf") {
            5
        } else {
            7
        };
        let text = match stat.title {
            "NaN/Inf" if v == 0.0 => "0".into(),
            "NaN/Inf" => crate::tui::format::count(v as u64),
            _ => figure(v),
        };
        cells.push((format!("{glyph} {text:>width$}"), style));
    }
    cells
}

/// The tensors of the layer under the cursor: a table where there is room, else deviation and magnitude in two lines.
fn detail(app: &App, view: &ActivationView, area: Rect, buf: &mut Buffer) {
    let Some(l) = view.latest.layers.get(cursor(app, view)) else {
        return;
    };
    let width = usize::from(area.width);
    if area.height < DETAIL {
        let all = |name: &str, f: fn(&TensorStats) -> f32| {
            let mut parts = vec![(0, format!("layer {} {name}", l.layer_idx))];
            let ranks = [3, 4, 1, 2, 0];
            for ((tensor, stats), rank) in tensors(l).into_iter().zip(ranks) {
                parts.push((rank, format!("{tensor} {}", figure(f(stats).into()))));
            }
            facts(app, parts, width)
        };
        let both = [all("std", |t| t.std), all("max|x|", TensorStats::max_abs)];
        return parts::put_all(&both, area, buf);
    }
    let columns = [
        Column::text(&format!("layer {}", l.layer_idx), 10, 0),
        Column::number("std", 8, 0),
        Column::number("max|x|", 8, 1),
        Column::number("min", 8, 4),
        Column::number("max", 8, 4),
        Column::number("mean", 8, 2),
        Column::number("L2", 8, 3),
        Column::number("NaN", 5, 1),
        Column::number("Inf", 5, 1),
        Column::number("elements", 8, 5),
    ];
    let mut rows: Vec<Vec<Cell>> = tensors(l).map(|(name, t)| tensor(app, name, t)).into();
    let latest = &view.latest;
    rows.push(tensor(app, "embedding", &latest.embedding_stats));
    rows.push(tensor(app, "logits", &latest.logits_stats));
    parts::put_all(&lines(app, &columns, rows, width), area, buf);
}

fn tensor(app: &App, name: &str, t: &TensorStats) -> Vec<Cell> {
    use crate::tui::format::count;
    let theme = &app.theme;
    let style = match name {
        "attention" => theme.category(Category::Attention),
        "ffn" => theme.category(Category::Ffn),
        "output" => theme.strong,
        _ => Style::new(),
    };
    let bad = |n: u64| if n > 0 { theme.bad } else { theme.dim };
    let f = |v: f32| (figure(v.into()), Style::new());
    vec![
        (name.into(), style),
        f(t.std),
        f(t.max_abs()),
        f(t.min),
        f(t.max),
        f(t.mean),
        f(t.l2_norm),
        (count(t.nan_count), bad(t.nan_count)),
        (count(t.inf_count), bad(t.inf_count)),
        (count(t.count), theme.dim),
    ]
}

/// What broke a rule, in the order it came.
fn list(app: &App, view: &ActivationView, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let width = usize::from(area.width);
    let mut all = Vec::new();
    if area.height >= 6 {
        let title = if view.anomalies.is_empty() {
            "anomalies: none"
        } else {
            "anomalies, first broken first"
        };
        all.push(Line::styled(title, theme.dim));
    }
    let most = if area.height >= 12 { 3 } else { 1 };
    for a in &view.anomalies {
        let text = format!("{MARK}{} {}", letter(a.kind), a.text);
        let lines = if most > 1 {
            parts::wrapped(app, &text, theme.bad, width)
        } else {
            vec![parts::line(app, &text, theme.bad, width)]
        };
        all.extend(lines.into_iter().take(most));
    }
    let rows = usize::from(area.height);
    let fits = all.len() + usize::from(view.more_anomalies > 0) <= rows;
    let kept = if fits {
        all.len()
    } else {
        rows.saturating_sub(1).max(1)
    };
    let more = view
        .more_anomalies
        .saturating_add(all.len().saturating_sub(kept) as u64);
    all.truncate(kept);
    if more > 0 {
        all.push(Line::styled(format!("and {more} more"), theme.warn));
    }
    parts::put_all(&all, area, buf);
}

/// What columns, heights and letters mean.
pub(super) fn legend(app: &App, view: &ActivationView, columns: usize) -> Line<'static> {
    let broken = !view.anomalies.is_empty();
    let theme = &app.theme;
    let kinds = "N NaN, I Inf, E explosion, V vanishing, R residual";
    let kinds = vec![Span::styled(kinds, theme.dim)];
    let what = parts::dim(app, "of the output; attn, ffn: what they add");
    let ramp = parts::ramp(app, "log ", "");
    let ratio = parts::dim(app, "ratio: |in| of |in|+|attn|+|ffn|");
    let parts = if broken {
        vec![(0, kinds), (2, what), (1, ramp), (3, ratio)]
    } else {
        vec![(1, what), (0, ramp), (2, ratio), (3, kinds)]
    };
    parts::legend(app, parts, columns)
}

/// Moves to the layer `by` rows further down.
pub(super) fn move_layer(app: &mut App, by: i64) {
    let to = match super::Shown::new(app) {
        super::Shown::Activations(view) => {
            let layers = &view.latest.layers;
            layers
                .get(moved(cursor(app, view), by, layers.len()))
                .map(|l| l.layer_idx)
        }
        _ => None,
    };
    if to.is_some() {
        app.views.model.layer = to;
    }
}

/// Rows of the strip, for pages.
pub(super) fn page(view: &ActivationView, body: Rect) -> i64 {
    i64::from(plan(view, body).strip.height.saturating_sub(1).max(1))
}

/// The layer under a click.
pub(super) fn layer_at(app: &App, view: &ActivationView, body: Rect, at: Position) -> Option<u32> {
    let area = plan(view, body).strip;
    let rows = usize::from(area.height).saturating_sub(1);
    let first = trace::top(cursor(app, view), rows, view.latest.layers.len());
    let line = usize::from(at.y.checked_sub(area.y)?).checked_sub(1)?;
    let hit = area
        .contains(at)
        .then(|| view.latest.layers.get(first + line))?;
    hit.map(|l| l.layer_idx)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_strip_has_the_room_it_is_given() {
        let kept = crate::tui::panels::table::fitting(&columns(), STRIP.into());
        assert_eq!(kept.len(), STATS.len() + 1);
    }
}
