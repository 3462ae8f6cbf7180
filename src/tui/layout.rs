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

/// One column: bricks, layers and text first, more panels as the height allows.
fn narrow(main: Rect, inputs: Inputs) -> Vec<(Panel, Rect)> {
    let h = main.height;
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
        if matches!(inputs.focus, Panel::Text) {
            5
        } else {
            9
        },
        4,
    );
    add(Panel::Text, 5, 4);
    add(Panel::Path, 9, 26);
    add(Panel::Advice, 8, 22);
    add(Panel::Memory, 8, 16);
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
    let mut rest = main;
    let mut panels = Vec::with_capacity(stack.len());
    for (panel, rows) in stack {
        let (area, below) = top(rest, rows);
        panels.push((panel, area));
        rest = below;
    }
    panels
}

/// The first `rows` of `area`, and what is left below.
fn top(area: Rect, rows: u16) -> (Rect, Rect) {
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

/// Two columns above, layers and text below.
fn wide(main: Rect, inputs: Inputs) -> Vec<(Panel, Rect)> {
    let h = main.height;
    let roomy = main.width >= 160 && h >= 44;
    let layers_rows = match h {
        0..30 => 3,
        30..44 => 4,
        _ => 9,
    };
    let text_rows = if h < 24 { 4 } else { 5 };
    let top_rows = (inputs.brick_rows + 3)
        .max(14)
        .min(h.saturating_sub(layers_rows + text_rows));
    let (upper, rest) = top(main, top_rows);
    let (layers, bottom) = top(rest, layers_rows);
    let side_width = (main.width * 40 / 100).clamp(40, 90);
    let (bricks, side) = aside(upper, side_width);
    let mut panels = vec![(Panel::Bricks, bricks)];
    let side_panels: Vec<(Panel, u16)> = if roomy {
        vec![(Panel::Path, 12), (Panel::Advice, 12)]
    } else if top_rows >= 22 {
        vec![(Panel::Path, 9), (Panel::Advice, 8), (Panel::Memory, 7)]
    } else if inputs.focus == Panel::Memory {
        vec![(Panel::Path, 8), (Panel::Memory, 7)]
    } else {
        vec![(Panel::Path, 8), (Panel::Advice, 7)]
    };
    let total: u16 = side_panels.iter().map(|(_, weight)| weight).sum();
    let mut below = side;
    for (i, (panel, weight)) in side_panels.iter().enumerate() {
        let last = i + 1 == side_panels.len();
        let rows = if last {
            below.height
        } else {
            side.height * weight / total.max(1)
        };
        let (area, rest) = top(below, rows);
        panels.push((*panel, area));
        below = rest;
    }
    panels.push((Panel::Layers, layers));
    if roomy {
        let (text, memory) = aside(bottom, side_width);
        panels.extend([(Panel::Text, text), (Panel::Memory, memory)]);
    } else {
        panels.push((Panel::Text, bottom));
    }
    panels
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn areas_lie_inside_and_apart_and_show_the_focus(
            w in 0u16..250, h in 0u16..80, focus in 0usize..12, zoomed: bool, brick_rows in 0u16..30,
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
            if l.mode != Mode::Tiny {
                let rect = l.panel(focus);
                prop_assert!(rect.is_some_and(|r| r.height >= 3), "{:?} not visible", focus);
                let covered: u32 = all.iter().map(|r| r.area()).sum();
                prop_assert_eq!(covered, area.area(), "holes");
            }
        }
    }
}
