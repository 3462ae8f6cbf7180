//! Attention: heads down, layers across, in each cell what the head does with the newest query; or one head, query by key.

use super::parts::{self, share};
use super::{by_key, heads};
use crate::tracer::attention::pattern;
use crate::tracer::figures::{AttentionNote, AttentionView, AttentionWeightTrace, HeadPattern};
use crate::tui::layout::top;
use crate::tui::panels::{chrome, trace};
use crate::tui::state::App;
use crate::tui::text::sanitise;
use crate::tui::update::moved;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Columns of the heads' numbers.
const HEAD: u16 = 6;
/// From this size on the head under the cursor stands beside the map.
const BESIDE: (u16, u16) = (110, 16);

/// In the order of the legend.
const PATTERNS: [HeadPattern; 5] = [
    HeadPattern::Sink,
    HeadPattern::Recent,
    HeadPattern::Focused,
    HeadPattern::Uniform,
    HeadPattern::Mixed,
];

/// With so many rows to spare the head under the cursor stands below the map over its queries.
const BELOW: u16 = 8;

/// Entropy as a share of that of equal weights; `None` where only one position is seen.
pub(super) fn entropy_share(t: &AttentionWeightTrace) -> Option<f64> {
    let share = f64::from(t.entropy) / f64::from(t.seen).ln();
    (t.seen > 1 && share.is_finite()).then_some(share)
}

/// The letter of a pattern, and its name.
pub(super) fn named(pattern: HeadPattern) -> (&'static str, &'static str) {
    match pattern {
        HeadPattern::Sink => ("S", "sink"),
        HeadPattern::Recent => ("R", "recent"),
        HeadPattern::Uniform => ("U", "uniform"),
        HeadPattern::Focused => ("F", "focused"),
        HeadPattern::Mixed => ("m", "mixed"),
    }
}

/// A pattern's hue; its letter says the same.
fn hue(app: &App, pattern: HeadPattern) -> Style {
    let theme = &app.theme;
    let [norm, attention, ffn, head, _] = theme.category;
    match pattern {
        HeadPattern::Sink => norm,
        HeadPattern::Recent => ffn,
        HeadPattern::Uniform => head,
        HeadPattern::Focused => attention,
        HeadPattern::Mixed => theme.dim,
    }
}

/// Layer and head under the cursor: the chosen ones, else those that the session shows over time.
pub(super) fn cursor(app: &App, view: &AttentionView) -> (u32, u32) {
    let (layer, head) = app
        .views
        .model
        .head
        .unwrap_or((view.focus.layer, view.focus.head));
    (
        layer.min(view.n_layers.saturating_sub(1)),
        head.min(view.n_heads.saturating_sub(1)),
    )
}

/// What is known of a head at the newest query.
pub(super) fn head_at(
    view: &AttentionView,
    (layer, head): (u32, u32),
) -> Option<&AttentionWeightTrace> {
    let here = |t: &&AttentionWeightTrace| (t.layer_idx, t.head_idx) == (layer, head);
    view.heads.iter().find(here)
}

/// A position with its token, as far as the text is known.
pub(super) fn labelled(app: &App, view: &AttentionView, position: u32) -> String {
    match text_at(app, view, position) {
        Some(text) => format!("{position} \"{text}\""),
        None => position.to_string(),
    }
}

/// The text of a position's token.
pub(super) fn text_at(app: &App, view: &AttentionView, position: u32) -> Option<String> {
    let at = position.checked_sub(view.first_token)?;
    let token = view.tokens.get(at as usize)?;
    Some(sanitise(&token.text, app.theme.glyphs.ascii))
}

/// Where the map is, and the text about it.
pub(super) struct Plan {
    sentence: Rect,
    notes: Rect,
    pub map: Rect,
    /// The head under the cursor over its queries, below the map of all.
    pub below: Rect,
    pub detail: Rect,
}

pub(super) fn plan(app: &App, view: &AttentionView, body: Rect) -> Plan {
    let (sentence, rest) = top(body, 1);
    let wanted = notes(app, view, body.width.into(), body.height)
        .len()
        .min(8) as u16;
    let (notes, rest) = top(rest, wanted.min(rest.height / 5));
    let (map, detail) = if rest.width >= BESIDE.0 && rest.height >= BESIDE.1 {
        let side = (rest.width * 2 / 5).clamp(44, 72);
        parts::beside(rest, rest.width - side - 2)
    } else {
        let rows = match rest.height {
            0..5 => 0,
            5..9 => 2,
            9..16 => 3,
            rows => (rows / 3).min(12),
        };
        top(rest, rest.height - rows)
    };
    let heads = u16::try_from(view.n_heads).unwrap_or(u16::MAX);
    let used = heads.saturating_add(2);
    let (map, below) = if !app.views.model.by_key && map.height >= used.saturating_add(BELOW) {
        top(map, used)
    } else {
        top(map, map.height)
    };
    Plan {
        sentence,
        notes,
        map,
        below,
        detail,
    }
}

/// The cells of the map of all heads.
struct Grid {
    cells: Rect,
    /// Columns of a cell, and of them those that are filled.
    width: u16,
    filled: u16,
    first_head: usize,
    first_layer: usize,
}

fn grid(app: &App, view: &AttentionView, area: Rect) -> Grid {
    let (layers, heads) = (view.n_layers as usize, view.n_heads as usize);
    let label = HEAD.min(area.width);
    let rows = area.height.saturating_sub(1);
    let cells = Rect::new(
        area.x + label,
        area.y + 1.min(area.height),
        area.width - label,
        rows.min(u16::try_from(heads).unwrap_or(u16::MAX)),
    );
    let each = usize::from(cells.width) / layers.max(1);
    let width = each.clamp(1, 4) as u16;
    let (layer, head) = cursor(app, view);
    let shown = usize::from(cells.width / width);
    Grid {
        cells,
        width,
        filled: width.min(2),
        first_head: trace::top(head as usize, cells.height.into(), heads),
        first_layer: trace::top(layer as usize, shown, layers),
    }
}

/// Draws the view.
pub(super) fn render(app: &App, view: &AttentionView, body: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let plan = plan(app, view, body);
    let width = body.width.into();
    let said = if app.views.model.by_key {
        vec![(0, by_key::sentence(app, view))]
    } else {
        sentence(view)
    };
    let said = parts::sentence(app, said, theme.strong, width);
    chrome::put(&said, plan.sentence, buf);
    parts::put_all(&notes(app, view, width, body.height), plan.notes, buf);
    if app.views.model.by_key {
        by_key::render(app, view, &plan, buf);
    } else {
        map(app, view, plan.map, buf);
        by_key::below(app, view, plan.below, buf);
        heads::render(
            app,
            view,
            head_at(view, cursor(app, view)),
            plan.detail,
            buf,
        );
    }
}

/// The findings in words, in full where there are rows for it.
fn notes(app: &App, view: &AttentionView, width: usize, rows: u16) -> Vec<Line<'static>> {
    let style = app.theme.warn;
    let text = |n: &AttentionNote| format!("{} {}", parts::MARK, n.text);
    let each = |n| match rows {
        0..16 => vec![parts::line(app, &text(n), style, width)],
        _ => parts::wrapped(app, &text(n), style, width),
    };
    view.notes.iter().flat_map(each).collect()
}

/// How many heads do what, the most frequent first.
fn sentence(view: &AttentionView) -> Vec<(u8, String)> {
    if view.heads.is_empty() {
        return vec![(0, "no head was traced yet".into())];
    }
    let of = |p| {
        view.heads
            .iter()
            .filter(|t| pattern(t, view.recent) == p)
            .count()
    };
    let mut counts: Vec<(usize, HeadPattern)> = PATTERNS.map(|p| (of(p), p)).into();
    counts.sort_by_key(|(n, _)| std::cmp::Reverse(*n));
    let does = |p| match p {
        HeadPattern::Sink => "rest on the first position",
        HeadPattern::Recent => "look at the newest",
        HeadPattern::Uniform => "weigh all alike",
        HeadPattern::Focused => "look at one other",
        HeadPattern::Mixed => "are mixed",
    };
    let mut first = format!("of {} heads ", view.heads.len());
    let mut all = Vec::new();
    for ((n, p), rank) in counts.into_iter().filter(|c| c.0 > 0).zip(0u8..) {
        let (letter, _) = named(p);
        all.push((rank, format!("{first}{n} {} ({letter})", does(p))));
        first.clear();
    }
    all
}

fn map(app: &App, view: &AttentionView, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    if area.height < 2 || view.n_layers == 0 || view.n_heads == 0 {
        return;
    }
    let grid = grid(app, view, area);
    let at = cursor(app, view);
    numbers(app, view, &grid, at.0, area, buf);
    for row in 0..grid.cells.height {
        let head = grid.first_head + usize::from(row);
        let y = grid.cells.y + row;
        let here = head == at.1 as usize;
        let style = if here { theme.accent } else { theme.dim };
        let text = format!("{}h{head:<3}", parts::pointer(app, here));
        let label = Rect::new(area.x, y, HEAD.min(area.width), 1);
        chrome::put(&Line::styled(text, style), label, buf);
    }
    for t in &view.heads {
        let (layer, head) = (t.layer_idx as usize, t.head_idx as usize);
        let (Some(column), Some(row)) = (
            layer.checked_sub(grid.first_layer),
            head.checked_sub(grid.first_head),
        ) else {
            continue;
        };
        let x = column.saturating_mul(grid.width.into());
        if x + usize::from(grid.filled) > grid.cells.width.into()
            || row >= grid.cells.height.into()
            || t.layer_idx >= view.n_layers
            || t.head_idx >= view.n_heads
        {
            continue;
        }
        let pattern = pattern(t, view.recent);
        let (letter, _) = named(pattern);
        let mut style = hue(app, pattern);
        let mut text = letter.to_string();
        if grid.filled > 1 {
            let (glyph, _) = theme.heat(entropy_share(t).unwrap_or(0.0));
            text.push_str(glyph);
        }
        if (t.layer_idx, t.head_idx) == at {
            style = style.patch(theme.selected);
        }
        let cell = Rect::new(
            grid.cells.x + x as u16,
            grid.cells.y + row as u16,
            grid.filled,
            1,
        );
        chrome::put(&Line::styled(text, style), cell, buf);
    }
}

/// Numbers of the layers over their columns: every fifth, and the one under the cursor.
fn numbers(
    app: &App,
    view: &AttentionView,
    grid: &Grid,
    cursor: u32,
    area: Rect,
    buf: &mut Buffer,
) {
    let theme = &app.theme;
    let title = Line::styled("layer", theme.dim);
    chrome::put(
        &title,
        Rect::new(area.x, area.y, HEAD.min(area.width), 1),
        buf,
    );
    let mut put = |layer: usize, style: Style| {
        let Some(column) = layer.checked_sub(grid.first_layer) else {
            return;
        };
        let text = layer.to_string();
        let x = column.saturating_mul(grid.width.into());
        if x + text.len() <= grid.cells.width.into() {
            let at = Rect::new(grid.cells.x + x as u16, area.y, text.len() as u16, 1);
            chrome::put(&Line::styled(text, style), at, buf);
        }
    };
    let near = |layer: u32| layer.abs_diff(cursor) < 4 / u32::from(grid.width).max(1);
    for layer in (0..view.n_layers.min(10_000))
        .step_by(5)
        .filter(|l| !near(*l))
    {
        put(layer as usize, theme.dim);
    }
    put(cursor as usize, theme.accent);
}

/// What letters, heights and hues mean.
pub(super) fn legend(
    app: &App,
    view: &AttentionView,
    inner: Rect,
    columns: usize,
) -> Line<'static> {
    if app.views.model.by_key {
        return by_key::legend(app, view, inner, columns);
    }
    let dim = app.theme.dim;
    let letters = PATTERNS.into_iter().zip(0u8..).map(|(p, rank)| {
        let (letter, name) = named(p);
        let spans = vec![
            Span::styled(letter, hue(app, p)),
            Span::styled(format!(" {name}"), dim),
        ];
        (rank, spans)
    });
    let mut all: Vec<_> = letters.collect();
    let (_, body) = super::areas(inner);
    let plan = plan(app, view, body);
    if grid(app, view, plan.map).filled > 1 {
        let theme = &app.theme;
        let (low, high) = (theme.heat(0.0).0, theme.heat(1.0).0);
        let text = format!("entropy {low} 0, {high} of equal weights");
        all.push((5, parts::dim(app, &text)));
    }
    if !plan.below.is_empty() {
        all.push((6, parts::ramp(app, "below: weight 0 ", " 1, root scale")));
    }
    all.push((7, parts::dim(app, "blank: not traced")));
    parts::legend(app, all, columns)
}

/// The head `down` further down and `right` layers further to the right.
pub(super) fn moved_head(app: &App, view: &AttentionView, down: i64, right: i64) -> (u32, u32) {
    let (layer, head) = cursor(app, view);
    let to = |at: u32, by, len: u32| moved(at as usize, by, len as usize) as u32;
    (
        to(layer, right, view.n_layers),
        to(head, down, view.n_heads),
    )
}

/// The head under a click.
pub(super) fn hit(app: &App, view: &AttentionView, body: Rect, at: Position) -> Option<(u32, u32)> {
    let grid = grid(app, view, plan(app, view, body).map);
    if !grid.cells.contains(at) {
        return None;
    }
    let layer = grid.first_layer + usize::from((at.x - grid.cells.x) / grid.width);
    let head = grid.first_head + usize::from(at.y - grid.cells.y);
    let layer = u32::try_from(layer).ok().filter(|l| *l < view.n_layers)?;
    let head = u32::try_from(head).ok().filter(|h| *h < view.n_heads)?;
    Some((layer, head))
}

/// Entropy in words: nats, and the share of equal weights' entropy.
pub(super) fn entropy(t: &AttentionWeightTrace) -> String {
    let nats = trace::plain(t.entropy.into());
    match entropy_share(t) {
        Some(s) => format!("entropy {nats} nats = {} of ln {}", share(s), t.seen),
        None => format!("entropy {nats} nats"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_position_has_no_entropy_to_compare() {
        assert_eq!(entropy_share(&AttentionWeightTrace::default()), None);
    }
}
