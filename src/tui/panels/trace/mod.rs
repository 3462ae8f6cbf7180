//! The residual trace: where an answer forms, layer by layer and position by position, which part of which layer decided
//! it, two traces side by side, and the map of activation patching.
//!
//! What attention and FFN add to a logit is direct attribution: it describes this run. What would happen without them only
//! patching tells.

mod chart;
mod compare;
mod lines;
mod map;
mod moves;
mod plan;
mod reading;
mod side;
mod strip;
mod table;

pub(super) use chart::{between, column};
pub(super) use reading::{plain, prob, quoted, rank, signed};
pub(super) use table::top;

pub use moves::{act, click, move_layer, move_position, remember, wheel};

use super::chrome;
use crate::tui::keymap::Action;
use crate::tui::state::{App, Panel};
use crate::tui::text::{fit, sanitise, wrap};
use lines::sum;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use reading::{Reading, frame, shows_map};

/// Lines of the last statement that have no picture.
fn said(app: &App) -> &[String] {
    frame(app).map_or(&[], |f| &f.lines)
}

/// Draws the panel.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let room = usize::from(area.width).saturating_sub(26);
    let heading = lines::heading(app, room);
    let legend = lines::legend(app, usize::from(area.width).saturating_sub(6));
    let inner = chrome::panel(app, Panel::Trace, area, buf, heading, legend);
    if inner.is_empty() {
        return;
    }
    if shows_map(app) {
        if let Some(patched) = map::map(app) {
            map::render(app, patched, inner, buf);
        }
        return;
    }
    let Some(r) = Reading::shown(app) else {
        return empty(app, inner, buf);
    };
    let plan = plan::current(app, inner);
    let beside = Reading::beside(app);
    let foot = match beside {
        Some(b) => {
            compare::head(app, r, b, plan.head, buf);
            compare::render(app, r, b, plan.table, buf);
            let columns = plan.foot.width.into();
            let mut foot = vec![compare::detail(app, r, b, columns)];
            foot.extend(sum(app, "A: ", r, columns));
            foot.extend(sum(app, "B: ", b, columns));
            foot
        }
        None => {
            lines::head(app, r, plan.head, buf);
            table::render(app, r, plan.table, buf);
            side::render(app, r, plan.side, buf);
            let columns = plan.foot.width.into();
            let mut foot = vec![side::detail(app, r, columns)];
            if plan.side.height == 0 {
                foot.extend(side::tokens_line(app, r, columns));
            }
            if plan.side.height < side::HEADS_FROM {
                foot.extend(side::heads_line(app, r, columns));
            }
            foot.extend(sum(app, "", r, columns));
            foot
        }
    };
    chart::render(app, r, beside, plan.chart, buf);
    lines::foot(app, r, foot, plan.foot, buf);
    if plan.strip.height > 0 {
        strip::render(app, r, plan.strip, buf);
    }
}

/// The pane before anything was traced.
fn empty(app: &App, inner: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let columns = usize::from(inner.width);
    let key = |a| app.keymap.label(a).unwrap_or_default();
    let mut texts = Vec::new();
    if app.snapshot().playback.is_some() {
        texts.push((
            "a recording holds no trace: a running session makes them".to_string(),
            theme.dim,
        ));
    } else {
        texts.push((
            format!(
                "nothing is traced yet: {} traces the prompt of the run; {} takes a statement, such as",
                key(Action::TracePrompt),
                key(Action::TraceLine)
            ),
            Style::new(),
        ));
        texts.push((
            "TRACE \"The capital of France is\" FOR \"Paris\"".into(),
            theme.accent,
        ));
        texts.push((
            "PATCH \"The capital of France is\" FROM \"The capital of Italy is\" FOR \"Paris\""
                .into(),
            theme.accent,
        ));
    }
    let mut row = 0;
    for (text, style) in texts {
        for line in wrap(&text, columns) {
            let part = text.get(line).unwrap_or_default().to_string();
            chrome::put(&Line::styled(part, style), chrome::row(inner, row), buf);
            row += 1;
        }
    }
    for (i, text) in said(app).iter().enumerate() {
        let text = fit(
            &sanitise(text, theme.glyphs.ascii),
            columns,
            theme.glyphs.ellipsis,
        );
        chrome::put(
            &Line::styled(text, theme.warn),
            chrome::row(inner, row + 1 + i),
            buf,
        );
    }
}
