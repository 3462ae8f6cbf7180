//! Where everything is: one pure function that the view draws by and the mouse is resolved by.

use super::state::Panel;
use ratatui::layout::Rect;

/// What the layout depends on besides the area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inputs {
    /// The focused panel is always visible.
    pub focus: Panel,
    /// Whether it fills the screen.
    pub zoomed: bool,
    /// Rows of the brick table.
    pub brick_rows: u16,
}

/// How much fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A few lines: throughput first.
    Tiny,
    /// One header line, the focused panel, the footer.
    Compact,
    /// Panels, as many as fit.
    Full,
}

/// Areas on the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// How much fits.
    pub mode: Mode,
    /// Model, machine, rates. All there is in `Tiny`.
    pub header: Rect,
    /// Visible panels in drawing order, without overlap.
    pub panels: Vec<(Panel, Rect)>,
    /// One line: what happened last, or what bounds the step.
    pub status: Rect,
    /// One line of keys.
    pub footer: Rect,
}

impl Layout {
    /// Lays out `area`. Every rectangle lies inside it.
    pub fn new(area: Rect, inputs: Inputs) -> Self {
        let (w, h) = (area.width, area.height);
        if w < 24 || h < 8 {
            let none = Rect::new(area.x, area.y, 0, 0);
            return Self {
                mode: Mode::Tiny,
                header: area,
                panels: Vec::new(),
                status: none,
                footer: none,
            };
        }
        let compact = w < 60 || h < 15;
        let header_rows = match h {
            _ if compact => 1,
            0..20 => 3,
            20..24 => 4,
            _ => 5,
        };
        let status_rows = u16::from(!compact);
        let (header, rest) = top(area, header_rows);
        let (rest, footer) = top(rest, rest.height - 1);
        let (main, status) = top(rest, rest.height - status_rows);
        let panels = match (compact || inputs.zoomed, w >= 100 && h >= 24) {
            (true, _) => vec![(inputs.focus, main)],
            (_, true) => wide(main, inputs),
            _ => narrow(main, inputs),
        };
        let mode = if compact { Mode::Compact } else { Mode::Full };
        Self {
            mode,
            header,
            panels,
            status,
            footer,
        }
    }

    /// Where `panel` is, if it is visible.
    pub fn panel(&self, panel: Panel) -> Option<Rect> {
        self.panels
            .iter()
            .find(|(p, _)| *p == panel)
            .map(|(_, r)| *r)
    }
}

/// Panels that say little in a few lines: focused, they get more room than others.
fn wants_room(panel: Panel) -> bool {
    matches!(
        panel,
        Panel::Timeline
            | Panel::Roofline
            | Panel::Counters
            | Panel::Latency
            | Panel::Tree
            | Panel::Trace
            | Panel::Model
            | Panel::Debug
            | Panel::Advice
    )
}

/// One column: bricks, layers and text first, more panels as the height allows.
fn narrow(main: Rect, inputs: Inputs) -> Vec<(Panel, Rect)> {
    let h = main.height;
    if wants_room(inputs.focus) && h < 30 {
        // Layers above, if they leave enough; the focused panel takes the place of the table and the text.
        let rows = if h >= 14 { 3 } else { 0 };
        let (layers, rest) = top(main, rows);
        let mut panels = vec![(inputs.focus, rest)];
        if rows > 0 {
            panels.insert(0, (Panel::Layers, layers));
        }
        return panels;
    }
    let mut stack = vec![(Panel::Bricks, 7), (Panel::Layers, 3)];
    let mut left = h.saturating_sub(10);
    let mut add = |panel, rows, least| {
        if left >= least && !stack.iter().any(|(p, _)| *p == panel) {
            let rows = left.min(rows);
            stack.push((panel, rows));
            left -= rows;
        }
    };
    add(
        inputs.focus,
        match inputs.focus {
            Panel::Text => 5,
            p if wants_room(p) => 16,
            _ => 9,
        },
        4,
    );
    add(Panel::Text, 5, 4);
    add(Panel::Path, 9, 26);
    add(Panel::Advice, 8, 22);
    add(Panel::Memory, 8, 16);
    add(Panel::Timeline, 10, 30);
    add(Panel::Latency, 12, 20);
    if !stack.iter().any(|(p, _)| *p == inputs.focus) {
        // Too low for a third panel: the focused one takes the place of the table.
        stack[0].0 = inputs.focus;
    }
    // Rows to spare go to the table until it is complete, then to the text.
    let wanted = (inputs.brick_rows + 3).saturating_sub(7).min(left);
    stack[0].1 += wanted;
    left -= wanted;
    let grows = stack
        .iter()
        .position(|(p, _)| *p == Panel::Text)
        .unwrap_or(stack.len() - 1);
    stack[grows].1 += left;
    stack.sort_by_key(|(p, _)| Panel::ALL.iter().position(|q| q == p));
    let mut panels = Vec::with_capacity(stack.len());
    split(main, &stack, &mut panels);
    panels
}

/// Puts panels below each other, each with its rows, the last with what is left.
fn split(area: Rect, stack: &[(Panel, u16)], panels: &mut Vec<(Panel, Rect)>) {
    let mut rest = area;
    for (i, (panel, rows)) in stack.iter().enumerate() {
        let rows = if i + 1 == stack.len() {
            rest.height
        } else {
            *rows
        };
        let (area, below) = top(rest, rows);
        panels.push((*panel, area));
        rest = below;
    }
}

/// Puts panels below each other with heights in proportion to their weights.
fn share_out(area: Rect, weights: &[(Panel, u16)], panels: &mut Vec<(Panel, Rect)>) {
    let total: u32 = weights.iter().map(|(_, w)| u32::from(*w)).sum();
    let rows: Vec<(Panel, u16)> = weights
        .iter()
        .map(|(p, w)| {
            let rows = u32::from(area.height) * u32::from(*w) / total.max(1);
            (*p, rows as u16)
        })
        .collect();
    split(area, &rows, panels);
}

/// The first `rows` of `area`, and what is left below.
pub(super) fn top(area: Rect, rows: u16) -> (Rect, Rect) {
    let rows = rows.min(area.height);
    let below = Rect {
        y: area.y + rows,
        height: area.height - rows,
        ..area
    };
    (
        Rect {
            height: rows,
            ..area
        },
        below,
    )
}

/// All of `area` but its last `columns`, and those.
fn aside(area: Rect, columns: u16) -> (Rect, Rect) {
    let left = area.width - columns.min(area.width);
    (
        Rect {
            width: left,
            ..area
        },
        Rect {
            x: area.x + left,
            width: area.width - left,
            ..area
        },
    )
}

/// Panels side by side, for screens of 100 columns and 24 rows and more.
fn wide(main: Rect, inputs: Inputs) -> Vec<(Panel, Rect)> {
    let (w, h) = (main.width, main.height);
    if w >= 240 && h >= 64 {
        three_columns(main, inputs)
    } else if w >= 160 && h >= 37 {
        roomy(main, inputs)
    } else {
        two_columns(main, inputs)
    }
}

/// Puts the focused panel in the place of `other` unless it is there already.
fn stand_in(panels: &mut [(Panel, Rect)], focus: Panel, other: Panel) {
    if !panels.iter().any(|(p, _)| *p == focus)
        && let Some(place) = panels.iter_mut().find(|(p, _)| *p == other)
    {
        place.0 = focus;
    }
}

/// Two columns above, layers and text below.
fn two_columns(main: Rect, inputs: Inputs) -> Vec<(Panel, Rect)> {
    let h = main.height;
    let layers_rows = if h < 30 { 3 } else { 4 };
    let text_rows = if h < 24 { 4 } else { 5 };
    let top_rows = (inputs.brick_rows + 3)
        .max(14)
        .min(h.saturating_sub(layers_rows + text_rows));
    let (upper, rest) = top(main, top_rows);
    let (bricks, side) = aside(upper, side_width(main.width));
    let mut panels = vec![(Panel::Bricks, bricks)];
    let focus = inputs.focus;
    if wants_room(focus) && focus != Panel::Timeline {
        // All of the side, and as much of the width as leaves the table its main columns.
        let (bricks, side) = aside(upper, main.width.saturating_sub(60).min(main.width / 2));
        panels = vec![(Panel::Bricks, bricks), (focus, side)];
    } else if top_rows >= 22 {
        let weights = [(Panel::Path, 9), (Panel::Advice, 8), (Panel::Memory, 7)];
        share_out(side, &weights, &mut panels);
    } else if focus == Panel::Memory {
        share_out(side, &[(Panel::Path, 8), (Panel::Memory, 7)], &mut panels);
    } else {
        share_out(side, &[(Panel::Path, 8), (Panel::Advice, 7)], &mut panels);
    }
    if focus == Panel::Timeline {
        panels.push((Panel::Timeline, rest));
    } else {
        let stack = [(Panel::Layers, layers_rows), (Panel::Text, text_rows)];
        split(rest, &stack, &mut panels);
    }
    panels
}

fn side_width(width: u16) -> u16 {
    (width * 40 / 100).clamp(40, 90)
}

/// Two columns with the table, the layers and the text on the left, as many of the others as the height allows.
fn roomy(main: Rect, inputs: Inputs) -> Vec<(Panel, Rect)> {
    const LAYERS: u16 = 9;
    let h = main.height;
    let top_rows = (inputs.brick_rows + 3).max(14).min(h - LAYERS - 5);
    let (upper, rest) = top(main, top_rows);
    let (bricks, side) = aside(upper, side_width(main.width));
    let mut panels = vec![(Panel::Bricks, bricks)];
    share_out(side, &[(Panel::Path, 1), (Panel::Advice, 1)], &mut panels);
    let (layers, bottom) = top(rest, LAYERS);
    let lower = bottom.height;
    if lower < 14 {
        // As on smaller screens; a panel that is not there takes the place of the memory or of the text.
        panels.push((Panel::Layers, layers));
        let (text, memory) = aside(bottom, side_width(main.width));
        panels.extend([(Panel::Text, text), (Panel::Memory, memory)]);
        let place = match inputs.focus {
            Panel::Timeline => Panel::Text,
            _ if lower < 8 => Panel::Path,
            _ => Panel::Memory,
        };
        stand_in(&mut panels, inputs.focus, place);
        return panels;
    }
    let (layers, memory) = aside(layers, side_width(main.width));
    panels.extend([(Panel::Layers, layers), (Panel::Memory, memory)]);
    let text = (lower / 3).clamp(5, 12);
    if main.width >= 190 && lower < 34 {
        // Three columns below: the histogram is narrow by nature.
        let (rest, right) = aside(bottom, main.width * 28 / 100);
        let (left, middle) = aside(rest, main.width * 30 / 100);
        let stack = [(Panel::Timeline, lower - text), (Panel::Text, text)];
        split(left, &stack, &mut panels);
        panels.push((Panel::Roofline, middle));
        let weights: &[(Panel, u16)] = if lower >= 20 {
            &[(Panel::Latency, 1), (Panel::Counters, 1)]
        } else {
            &[(Panel::Latency, 1)]
        };
        share_out(right, weights, &mut panels);
        stand_in(&mut panels, inputs.focus, Panel::Roofline);
        return panels;
    }
    let (left, right) = aside(bottom, side_width(main.width));
    let left_stack = if lower >= 40 {
        let half = (lower - text) / 2;
        vec![
            (Panel::Timeline, half),
            (Panel::Tree, lower - text - half),
            (Panel::Text, text),
        ]
    } else {
        vec![(Panel::Timeline, lower - text), (Panel::Text, text)]
    };
    split(left, &left_stack, &mut panels);
    let weights: &[(Panel, u16)] = match lower {
        0..30 => &[(Panel::Roofline, 1)],
        30..50 => &[(Panel::Roofline, 3), (Panel::Latency, 2)],
        _ => &[
            (Panel::Roofline, 5),
            (Panel::Latency, 4),
            (Panel::Counters, 4),
        ],
    };
    share_out(right, weights, &mut panels);
    stand_in(&mut panels, inputs.focus, Panel::Roofline);
    panels
}

/// Three columns: everything at once but the dashboard's own figures.
fn three_columns(main: Rect, inputs: Inputs) -> Vec<(Panel, Rect)> {
    let h = main.height;
    let (rest, right) = aside(main, main.width * 28 / 100);
    let (left, middle) = aside(rest, main.width * 28 / 100);
    let table = (inputs.brick_rows + 3).min(h / 3);
    let layers = (h / 5).clamp(9, 20);
    let text = (h / 8).max(6);
    let mut panels = Vec::new();
    let stack = [
        (Panel::Bricks, table),
        (Panel::Layers, layers),
        (Panel::Timeline, h - table - layers - text),
        (Panel::Text, text),
    ];
    split(left, &stack, &mut panels);
    let memory = 14;
    let counters = h / 4;
    let half = (h - memory - counters) / 2;
    let stack = [
        (Panel::Path, half),
        (Panel::Advice, h - memory - counters - half),
        (Panel::Memory, memory),
        (Panel::Counters, counters),
    ];
    split(middle, &stack, &mut panels);
    let weights = [(Panel::Roofline, 4), (Panel::Latency, 3), (Panel::Tree, 3)];
    share_out(right, &weights, &mut panels);
    stand_in(&mut panels, inputs.focus, Panel::Tree);
    panels
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn areas_lie_inside_and_apart_and_show_the_focus(
            w in 0u16..320, h in 0u16..110, focus in 0usize..14, zoomed: bool, brick_rows in 0u16..30,
        ) {
            let area = Rect::new(0, 0, w, h);
            let focus = Panel::ALL[focus];
            let l = Layout::new(area, Inputs { focus, zoomed, brick_rows });
            let mut all = vec![l.header, l.status, l.footer];
            all.extend(l.panels.iter().map(|(_, r)| *r));
            for (i, a) in all.iter().enumerate() {
                prop_assert_eq!(a.intersection(area), *a);
                for b in &all[..i] {
                    prop_assert!(a.intersection(*b).is_empty(), "{:?} {:?}", a, b);
                }
            }
            for (i, (panel, _)) in l.panels.iter().enumerate() {
                prop_assert!(!l.panels[..i].iter().any(|(p, _)| p == panel), "{:?} twice", panel);
            }
            if l.mode != Mode::Tiny {
                let rect = l.panel(focus);
                prop_assert!(rect.is_some_and(|r| r.height >= 3), "{:?} not visible", focus);
                let covered: u32 = all.iter().map(|r| r.area()).sum();
                prop_assert_eq!(covered, area.area(), "holes");
            }
        }
    }
}
