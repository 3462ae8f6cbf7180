//! One head in figures: pattern, entropy, where it looks, and what is left.

use super::attention::{cursor, entropy, labelled, named};
use super::parts::{self, clean, facts};
use crate::tracer::attention::pattern;
use crate::tracer::figures::{AttentionView, AttentionWeightTrace};
use crate::tui::format::number;
use crate::tui::panels::chrome;
use crate::tui::state::App;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// From this height on positions stand below each other with bars.
const LIST: u16 = 7;
/// Columns of a weight, the gap before it included.
const WEIGHT: usize = 7;

fn weight(v: f32) -> String {
    number(v.into(), 3)
}

/// Top positions with their weights.
fn tops(t: &AttentionWeightTrace) -> impl Iterator<Item = (u32, f32)> + '_ {
    let weights = t.top_k_weights.iter().copied();
    t.top_k_positions.iter().copied().zip(weights)
}

/// Draws what is known of the head under the cursor.
pub(super) fn render(
    app: &App,
    view: &AttentionView,
    trace: Option<&AttentionWeightTrace>,
    area: Rect,
    buf: &mut Buffer,
) {
    let width = usize::from(area.width);
    let (layer, head) = cursor(app, view);
    let Some(t) = trace else {
        let text = format!("layer {layer}, head {head}: not traced at this query");
        let lines = [parts::line(app, &text, app.theme.dim, width)];
        return parts::put_all(&lines, area, buf);
    };
    let (_, name) = named(pattern(t, view.recent));
    let window = view.windows.get(layer as usize).copied().flatten();
    let about = vec![
        (0, format!("layer {layer}, head {head}: {name}")),
        (1, entropy(t)),
        (
            4,
            window.map_or("no window".into(), |w| format!("window of {w}")),
        ),
    ];
    let masses = masses(t);
    let mut lines = Vec::new();
    if area.height < LIST {
        lines.push(facts(app, about, width));
        lines.push(facts(app, vec![looks(app, view, t, width)], width));
        lines.push(facts(app, masses, width));
        return parts::put_all(&lines, area, buf);
    }
    // Each fact in a line of its own where a narrow area would drop it.
    if width < 70 {
        lines.extend(about.into_iter().map(|f| facts(app, vec![f], width)));
        lines.extend(masses.chunks(3).map(|m| facts(app, m.to_vec(), width)));
    } else {
        lines.push(facts(app, about, width));
        lines.push(facts(app, masses, width));
    }
    lines.push(parts::line(
        app,
        "looks at, largest weight first",
        app.theme.dim,
        width,
    ));
    lines.extend(list(app, view, t, width));
    parts::put_all(&lines, area, buf);
}

/// Sink, newest positions, tail: what the list of top positions does not say.
fn masses(t: &AttentionWeightTrace) -> Vec<(u8, String)> {
    let first = t.first_weight.map_or("-".into(), weight);
    let mut all = vec![
        (1, format!("position 0 {first}")),
        (2, format!("newest {}", weight(t.recent_mass))),
        (1, format!("tail {}", weight(t.tail_mass))),
    ];
    if t.sink_logit_mass > 0.0 {
        all.insert(
            1,
            (1, format!("learned sink {}", weight(t.sink_logit_mass))),
        );
    }
    all
}

/// As many top positions as fit in a line.
fn looks(
    app: &App,
    view: &AttentionView,
    t: &AttentionWeightTrace,
    columns: usize,
) -> (u8, String) {
    let mut text = String::from("looks at");
    for (i, (position, w)) in tops(t).enumerate() {
        let part = format!(
            "{} {} {}",
            if i == 0 { "" } else { "," },
            labelled(app, view, position),
            weight(w)
        );
        if crate::tui::text::width(&text) + crate::tui::text::width(&part) > columns {
            break;
        }
        text.push_str(&part);
    }
    if t.top_k_positions.is_empty() {
        text.push_str(" nothing with a weight above the threshold");
    }
    (0, text)
}

fn list(
    app: &App,
    view: &AttentionView,
    t: &AttentionWeightTrace,
    width: usize,
) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let ellipsis = theme.glyphs.ellipsis;
    let name = width.saturating_sub(WEIGHT).min(24);
    let length = width.saturating_sub(name + WEIGHT + 1).min(40);
    let row = |(position, w): (u32, f32)| {
        let text = clean(app, &labelled(app, view, position), name);
        let mut spans = vec![
            Span::raw(chrome::left(&text, name, ellipsis)),
            Span::styled(chrome::right(&weight(w), WEIGHT, ellipsis), theme.strong),
            Span::raw(" "),
        ];
        if length >= 4 {
            let full = Style::new();
            spans.extend(chrome::bar(
                w.into(),
                length,
                &theme.glyphs,
                full,
                theme.dim,
            ));
        }
        Line::from(spans)
    };
    tops(t).map(row).collect()
}
