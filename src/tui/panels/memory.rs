//! Memory of the process, page faults and context switches.

use super::chrome;
use crate::tui::format::{bytes, count, percent};
use crate::tui::state::{App, Panel};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

const LABEL: usize = 11;
const VALUE: usize = 10;
const GAP: usize = 1;

struct Fact {
    label: &'static str,
    value: String,
    style: Style,
    /// Share of something larger, drawn as a bar, and what that is.
    of: Option<(f64, String)>,
}

/// Draws the panel: one column of facts with bars, or more columns where the rows run out.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let heading = app
        .snapshot()
        .machine
        .memory_bytes
        .map(|b| Line::styled(format!(" of {} ", bytes(b)), app.theme.dim))
        .unwrap_or_default();
    let inner = chrome::panel(app, Panel::Memory, area, buf, heading, Line::default());
    let facts = facts(app);
    let rows = usize::from(inner.height).max(1);
    let width = usize::from(inner.width);
    let fit = ((width + GAP) / (LABEL + VALUE + GAP)).max(1);
    let columns = facts.len().div_ceil(rows).clamp(1, fit);
    let rows = facts.len().div_ceil(columns).min(rows).max(1);
    let column_width = (width + GAP) / columns;
    for (i, fact) in facts.iter().take(rows * columns).enumerate() {
        let line = chrome::row(inner, i % rows);
        let x = line.x + ((i / rows) * column_width) as u16;
        let cell = Rect::new(x, line.y, column_width as u16, line.height).intersection(line);
        chrome::put(
            &show(app, fact, column_width.saturating_sub(GAP)),
            cell,
            buf,
        );
    }
}

fn show(app: &App, fact: &Fact, width: usize) -> Line<'static> {
    let theme = &app.theme;
    let ellipsis = theme.glyphs.ellipsis;
    let mut spans = vec![
        Span::styled(chrome::left(fact.label, LABEL, ellipsis), theme.dim),
        Span::styled(
            chrome::right(
                &fact.value,
                VALUE.min(width.saturating_sub(LABEL)),
                ellipsis,
            ),
            fact.style,
        ),
    ];
    if let Some((share, what)) = &fact.of {
        let room = width.saturating_sub(LABEL + VALUE + 3);
        let text = chrome::right(&percent(*share), 6, ellipsis);
        let bar = room.saturating_sub(text.len() + what.len() + 1).min(24);
        if bar >= 4 {
            spans.push(Span::raw("  "));
            spans.extend(chrome::bar(
                *share,
                bar,
                &theme.glyphs,
                theme.accent,
                theme.dim,
            ));
            spans.push(Span::styled(format!("{text} {what}"), theme.dim));
        }
    }
    Line::from(spans)
}

fn facts(app: &App) -> Vec<Fact> {
    let theme = &app.theme;
    let m = &app.snapshot().memory;
    let physical = app.snapshot().machine.memory_bytes.unwrap_or(0);
    let share = |part: u64, whole: u64, what: &str| {
        (whole > 0).then(|| (part as f64 / whole as f64, what.to_string()))
    };
    let plain = |label, value| Fact {
        label,
        value,
        style: Style::new(),
        of: None,
    };
    let size = |v: Option<u64>| v.map_or("-".into(), bytes);
    let number = |v: Option<u64>| v.map_or("-".into(), count);
    let mean = |v: Option<f64>| match v {
        None => "-".into(),
        Some(0.0) => "0".into(),
        Some(v) if v < 100.0 => format!("{v:.1}"),
        Some(v) => count(v as u64),
    };
    let alarming = |v: Option<u64>, style| {
        if v.is_some_and(|v| v > 0) {
            style
        } else {
            Style::new()
        }
    };
    vec![
        Fact {
            style: theme.strong,
            of: m.rss_bytes.and_then(|b| share(b, physical, "of RAM")),
            ..plain("resident", size(m.rss_bytes))
        },
        plain("peak", size(m.peak_rss_bytes)),
        plain("weights", bytes(m.weights_bytes)),
        plain("kv cache", bytes(m.kv_bytes)),
        Fact {
            of: share(m.kv_used_bytes, m.kv_bytes, "of kv cache"),
            ..plain("kv used", bytes(m.kv_used_bytes))
        },
        // A fault or a switch in the token loop costs microseconds: worth a look when there are any.
        Fact {
            style: alarming(m.major_faults, theme.warn),
            ..plain("major fault", number(m.major_faults))
        },
        plain("minor fault", number(m.minor_faults)),
        Fact {
            style: alarming(m.minor_faults_per_step.map(|f| f.ceil() as u64), theme.warn),
            ..plain("per step", mean(m.minor_faults_per_step))
        },
        plain("preempted", number(m.involuntary_switches)),
        plain("yielded", number(m.voluntary_switches)),
        plain("scratch", bytes(m.scratch_bytes)),
        plain("huge pages", size(m.huge_page_bytes)),
    ]
}
