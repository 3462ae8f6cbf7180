//! Recommendations: what is predicted, what limits a token, what to change and why, and what it brought.

pub mod confirm;
mod figures;
mod item;
mod kernels;

use super::chrome;
use crate::session::snapshot::{Recommendation, RecommendationStatus};
use crate::tui::keymap::Action;
use crate::tui::state::{App, Panel};
use figures::Detail;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// From this width on the tuner's figures stand beside the list.
const BESIDE: u16 = 110;
/// Below this many lines there is no room beside the list for more than the list.
const BESIDE_ROWS: u16 = 12;
/// Columns of the list at most beside the figures: longer lines of text are hard to read.
const LIST: u16 = 100;

/// What is drawn where: lines that stay above and below, and between them the list from line `top` on.
struct Page {
    head: Vec<Line<'static>>,
    list: Vec<(usize, Line<'static>)>,
    foot: Vec<Line<'static>>,
    top: usize,
    /// Where head, list and foot are.
    area: Rect,
    /// What stands beside them, and where.
    side: (Vec<Line<'static>>, Rect),
}

impl Page {
    /// Lines for the list.
    fn rows(&self) -> usize {
        usize::from(self.area.height).saturating_sub(self.head.len() + self.foot.len())
    }
}

/// Draws the panel.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let inner = chrome::panel(app, Panel::Advice, area, buf, heading(app), hint(app));
    let page = page(app, inner);
    let lines = |lines: &[Line<'static>], from: usize, area: Rect, buf: &mut Buffer| {
        for (i, line) in lines.iter().enumerate() {
            chrome::put(line, chrome::row(area, from + i), buf);
        }
    };
    lines(&page.head, 0, page.area, buf);
    lines(&page.side.0, 0, page.side.1, buf);
    let bottom = usize::from(page.area.height).saturating_sub(page.foot.len());
    lines(&page.foot, bottom, page.area, buf);
    let selected = app.selected_advice().map(|(at, _)| at);
    let shown = page
        .list
        .iter()
        .enumerate()
        .skip(page.top)
        .take(page.rows());
    for (i, (line, (item, text))) in shown.enumerate() {
        let place = chrome::row(page.area, page.head.len() + i);
        chrome::put(text, place, buf);
        let first = i == 0
            || page
                .list
                .get(line.wrapping_sub(1))
                .is_none_or(|l| l.0 != *item);
        if first && app.focus == Panel::Advice && selected == Some(*item) {
            buf.set_style(place, app.theme.selected);
        }
    }
}

/// The recommendation drawn in screen line `y`.
pub fn item_at(app: &App, area: Rect, y: u16) -> Option<usize> {
    let page = page(app, chrome::inner(area));
    let line = usize::from(y.checked_sub(page.area.y)?).checked_sub(page.head.len())?;
    let item = page
        .list
        .get(page.top + line)
        .filter(|_| line < page.rows())?;
    Some(item.0)
}

/// Lays the page out: as much of everything as fits, the list and the selected one first.
fn page(app: &App, inner: Rect) -> Page {
    let beside = inner.width >= BESIDE && inner.height >= BESIDE_ROWS;
    if beside && app.snapshot().tuner.is_some() {
        let width = (inner.width * 57 / 100).min(LIST);
        let area = Rect { width, ..inner };
        let gap = 3.min(inner.width - width);
        let right = Rect {
            x: inner.x + width + gap,
            width: inner.width - width - gap,
            ..inner
        };
        let mut side = figures::head(app, right.width.into(), Detail::Full);
        side.extend(kernels::section(app, right.width.into(), Detail::Full));
        return fill(app, area, [Detail::None; 2], (side, right));
    }
    let none = (Vec::new(), Rect { width: 0, ..inner });
    let choices = [
        [Detail::Full, Detail::Full],
        [Detail::Full, Detail::Line],
        [Detail::Short, Detail::Line],
        [Detail::Line, Detail::Line],
        [Detail::Line, Detail::None],
    ];
    let mut choices = choices
        .into_iter()
        .map(|detail| fill(app, inner, detail, none.clone()));
    let fits = |page: &Page| {
        let of_selected = app.selected_advice().map_or(0, |(at, _)| {
            page.list.iter().filter(|(item, _)| *item == at).count()
        });
        let least = of_selected.max(usize::from(inner.height) / 2);
        page.rows() >= page.list.len().min(least)
    };
    choices
        .find(fits)
        .unwrap_or_else(|| fill(app, inner, [Detail::None; 2], none.clone()))
}

fn fill(
    app: &App,
    area: Rect,
    [head, foot]: [Detail; 2],
    side: (Vec<Line<'static>>, Rect),
) -> Page {
    let width = usize::from(area.width);
    let mut page = Page {
        head: figures::head(app, width, head),
        list: Vec::new(),
        foot: kernels::section(app, width, foot),
        top: 0,
        area,
        side,
    };
    let selected = app.selected_advice().map_or(0, |(at, _)| at);
    let build = |all: bool| -> Vec<(usize, Line<'static>)> {
        let items = app.ranked_advice().into_iter().enumerate();
        let lines = |(i, r)| {
            let lines = item::lines(app, r, width, all || i == selected);
            lines.into_iter().map(move |line| (i, line))
        };
        items.flat_map(lines).collect()
    };
    if app.snapshot().recommendations.is_empty() {
        let text = figures::nothing(app, width);
        page.list = text.into_iter().map(|line| (0, line)).collect();
        return page;
    }
    let all = build(true);
    let rows = page.rows();
    page.list = if all.len() <= rows { all } else { build(false) };
    let first = page.list.iter().position(|(i, _)| *i == selected);
    let last = page.list.iter().rposition(|(i, _)| *i == selected);
    page.top = chrome::scroll_to(last.unwrap_or(0), rows).min(first.unwrap_or(0));
    page
}

fn heading(app: &App) -> Line<'static> {
    match app.snapshot().recommendations.len() {
        0 | 1 => Line::default(),
        n => Line::styled(
            format!(
                " {} of {n} ",
                app.selected_advice().map_or(0, |(at, _)| at + 1)
            ),
            app.theme.dim,
        ),
    }
}

/// Which keys help with the selected one, and with all of them.
fn hint(app: &App) -> Line<'static> {
    let theme = &app.theme;
    let tuner = app.snapshot().tuner.as_deref();
    if let Some(race) = tuner.and_then(|t| t.race.as_ref()) {
        let word = format!("stops trying all ({} of {})", race.done, race.total);
        return keys(app, vec![(Action::TryAll, word)], "");
    }
    let Some((_, selected)) = app.selected_advice() else {
        return Line::default();
    };
    let open = open(app).len();
    let all = (open > 1).then(|| (Action::TryAll, format!("tries all {open}")));
    let (one, note) = match selected.status {
        RecommendationStatus::Measuring { .. } => return Line::default(),
        RecommendationStatus::Applied { .. } => (Some((Action::Undo, "undoes".to_string())), ""),
        _ if !selected.applicable => (None, " not in a running session "),
        _ => (Some((Action::Apply, "what it changes".into())), ""),
    };
    let line = keys(app, one.into_iter().chain(all).collect(), note);
    if line.spans.is_empty() {
        return Line::styled(note, theme.dim);
    }
    line
}

/// ` a what it changes  A tries all 3 `, with `note` before it.
fn keys(app: &App, words: Vec<(Action, String)>, note: &'static str) -> Line<'static> {
    let theme = &app.theme;
    let mut spans = Vec::new();
    if !note.is_empty() {
        spans.push(Span::styled(note, theme.dim));
    }
    for (action, word) in words {
        if let Some(key) = app.keymap.label(action) {
            spans.push(Span::styled(format!(" {key}"), theme.accent));
            spans.push(Span::styled(format!(" {word} "), theme.dim));
        }
    }
    Line::from(spans)
}

/// Those that `A` would try.
fn open(app: &App) -> Vec<&Recommendation> {
    let ranked = app.ranked_advice().into_iter();
    ranked.filter(|r| r.is_for_all()).collect()
}
