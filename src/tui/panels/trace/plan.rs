//! Where everything is inside the pane.

use super::reading::Reading;
use super::said;
use crate::tui::layout;
use crate::tui::state::App;
use ratatui::layout::Rect;

/// From this width on the chart stands beside the table.
const BESIDE: u16 = 70;
/// From this width on it stands beside the table of two traces too.
const BESIDE_TWO: u16 = 110;
/// From this height on the tokens of a layer stand below the chart, and from that on its heads.
const SIDE: u16 = 14;
const HEADS: u16 = 21;
/// Rows of a chart at most.
const CHART: u16 = 14;
/// Answers besides the chosen one that get a line of their own.
const OTHERS: usize = 3;

/// Where everything is inside the pane.
pub(super) struct Plan {
    pub head: Rect,
    pub table: Rect,
    pub chart: Rect,
    pub side: Rect,
    pub foot: Rect,
    pub strip: Rect,
}

/// What a plan depends on besides the area.
#[derive(Clone, Copy, Default)]
struct Needs {
    /// Lines of the head.
    head: u16,
    /// Lines that the last statement said.
    said: u16,
    /// Whether the heads of the layer are known.
    heads: bool,
    /// Whether two traces are compared.
    two: bool,
}

/// The parts of `inner`.
fn plan(inner: Rect, needs: Needs) -> Plan {
    let h = inner.height;
    let strip_rows = u16::from(h >= 6);
    let wide = inner.width >= if needs.two { BESIDE_TWO } else { BESIDE };
    let mut foot_rows = match h {
        0..8 => 0,
        8..11 => 1,
        11..16 => 2,
        _ => 3,
    };
    // What has no place at the side: the tokens of the layer, its heads.
    foot_rows += u16::from(h >= 11 && !needs.two && !(wide && h >= SIDE));
    foot_rows += u16::from(h >= 13 && needs.heads && !needs.two && !(wide && h >= HEADS));
    if h >= 8 {
        foot_rows += needs.said.min((h / 5).max(1));
    }
    let (head, rest) = layout::top(inner, needs.head.min(h.saturating_sub(strip_rows)));
    let (rest, strip) = layout::top(rest, rest.height.saturating_sub(strip_rows));
    let (body, foot) = layout::top(rest, rest.height.saturating_sub(foot_rows));
    let none = Rect { height: 0, ..body };
    let mut plan = Plan {
        head,
        table: body,
        chart: none,
        side: none,
        foot,
        strip,
    };
    if wide && body.height >= 5 {
        let share = if inner.width >= 100 { 38 } else { 29 };
        let columns = (inner.width * share / 100).clamp(22, 80);
        plan.table.width = inner.width - columns - 2;
        let right = Rect {
            x: body.right() - columns,
            width: columns,
            ..body
        };
        let rows = match (needs.two, h) {
            (true, _) => body.height.min(2 * CHART),
            (_, 0..SIDE) => body.height,
            (_, SIDE..21) => 6.min(body.height),
            _ => (body.height / 2).min(CHART),
        };
        (plan.chart, plan.side) = layout::top(right, rows);
    } else if body.height >= 13 {
        (plan.chart, plan.table) = layout::top(body, (body.height / 3).clamp(5, CHART));
    }
    plan
}

/// The plan of the pane as it is drawn now.
pub(super) fn current(app: &App, inner: Rect) -> Plan {
    let two = Reading::beside(app).is_some();
    let shown = Reading::shown(app);
    let head = match (two, shown) {
        (true, _) => 3,
        (false, Some(r)) => 2 + others(r, inner.height).count(),
        _ => 0,
    };
    let track = shown.and_then(|r| r.track(r.ways().get(r.cursor(app.views.trace.layer))?));
    let needs = Needs {
        head: head as u16,
        said: u16::try_from(said(app).len()).unwrap_or(u16::MAX),
        heads: track.is_some_and(|t| !t.head_logits.is_empty()),
        two,
    };
    plan(inner, needs)
}

/// Indices of the answers that get a line besides the chosen one.
pub(super) fn others(r: Reading<'_>, height: u16) -> impl Iterator<Item = usize> {
    let count = if height >= 22 { OTHERS } else { 0 };
    let chosen = r.answer;
    (0..r.followed()).filter(move |i| *i != chosen).take(count)
}
