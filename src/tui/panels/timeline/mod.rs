//! The last step thread by thread, to magnify and to pan; and the newest tokens.
//!
//! Keys: `j` `k` the next and previous call of the lane, Page Up and Page Down the lane, `h` `l` to the sides, `+` `-`
//! magnify around the selected call. Mouse: a click selects what it hits, the wheel magnifies around the pointer.

mod draw;
mod lanes;
mod moves;
mod reading;
mod tokens;

use super::chrome::{self, Part};
use crate::session::snapshot::StepTrace;
use crate::tui::format::{micros, number};
use crate::tui::keymap::Action;
use crate::tui::state::{App, Panel};
use crate::tui::views::TimelineView;
use lanes::{Window, window};
pub use lanes::{layers, sane};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};

/// The rows of the panel, by what fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Rows {
    sentence: usize,
    axis: usize,
    layers: usize,
    lanes: usize,
    /// Rows that make a lane higher.
    thick: usize,
    /// Under each lane one for how much it waits.
    waits: usize,
    detail: usize,
    gap: usize,
    marks: usize,
    tokens: usize,
    anomalies: usize,
}

impl Rows {
    /// The most useful rows for `height`: a lane with what is selected in it comes first.
    fn new(height: usize, threads: usize) -> Self {
        let mut left = height;
        let mut take = |n: usize| {
            let n = n.min(left);
            left -= n;
            n
        };
        let mut r = Self {
            lanes: take(1),
            ..Self::default()
        };
        r.detail = take(1);
        r.axis = take(1);
        r.layers = take(1);
        r.lanes += take(threads.min(2) - 1);
        r.sentence = take(1);
        r.tokens = take(1);
        r.anomalies = take(1);
        r.lanes += take(threads - r.lanes.min(threads));
        r.marks = take(1);
        if take(threads) == threads && r.lanes == threads {
            r.waits = 1;
        }
        r.gap = take(1);
        r.tokens += take(5);
        r.anomalies += take(4);
        while r.lanes == threads && r.thick < 3 && take(threads) == threads {
            r.thick += 1;
        }
        r
    }

    /// First row of the lanes.
    fn first_lane(&self) -> usize {
        self.sentence + self.axis + self.layers
    }

    fn lane_rows(&self) -> usize {
        1 + self.thick + self.waits
    }

    /// First row under the lanes.
    fn under(&self) -> usize {
        self.first_lane() + self.lanes * self.lane_rows()
    }
}

/// Everything the panel is drawn and clicked by.
struct Frame {
    rows: Rows,
    view: TimelineView,
    window: Window,
    /// The lanes without their margins.
    lanes: Rect,
    /// First thread shown.
    top: usize,
    inner: Rect,
}

impl Frame {
    fn new(app: &App, step: &StepTrace, inner: Rect) -> Self {
        let view = moves::settled(step, app.views.timeline);
        let threads = lanes::threads(step);
        let rows = Rows::new(inner.height.into(), threads);
        let (left, right) = margins(inner.width);
        let at = chrome::scroll_to(view.lane.saturating_sub(1), rows.lanes);
        Self {
            rows,
            view,
            window: window(step, &view),
            lanes: Rect {
                x: inner.x + left,
                width: inner.width - left - right,
                ..inner
            },
            top: at,
            inner,
        }
    }

    fn columns(&self) -> usize {
        self.lanes.width.into()
    }

    /// The lane and the time drawn at a position.
    fn hit(&self, at: Position) -> Option<(usize, f64)> {
        let row = usize::from(at.y.checked_sub(self.inner.y)?);
        let first = self.rows.first_lane();
        let lane = if self.rows.layers > 0 && row + 1 == first {
            0
        } else {
            let lane = row.checked_sub(first)? / self.rows.lane_rows();
            (lane < self.rows.lanes).then_some(self.top + lane + 1)?
        };
        Some((lane, self.time(at.x)?))
    }

    fn time(&self, x: u16) -> Option<f64> {
        let column = x
            .checked_sub(self.lanes.x)
            .filter(|c| *c < self.lanes.width)?;
        Some(self.window.time(column.into(), self.columns()))
    }
}

/// Columns left of the lanes for their names, and right of them for their figures.
fn margins(width: u16) -> (u16, u16) {
    match width {
        0..30 => (0, 0),
        30..50 => (4, 0),
        50..90 => (10, 7),
        _ => (10, 21),
    }
}

/// Draws the panel.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let Some(step) = &app.snapshot().last_step else {
        let empty = Line::default();
        let inner = chrome::panel(app, Panel::Timeline, area, buf, empty.clone(), empty);
        let text = chrome::no_step(app);
        chrome::put(&Line::styled(text, theme.dim), inner, buf);
        return;
    };
    let frame = Frame::new(app, step, chrome::inner(area));
    let room = usize::from(area.width.saturating_sub(24));
    let bottom = legend(app, step, &frame, usize::from(area.width.saturating_sub(6)));
    chrome::panel(
        app,
        Panel::Timeline,
        area,
        buf,
        heading(app, step, &frame, room),
        bottom,
    );
    if frame.inner.is_empty() {
        return;
    }
    draw::lanes(app, step, &frame, buf);
    let row = |index| chrome::row(frame.inner, index);
    if frame.rows.sentence > 0 {
        let text = chrome::left(
            &reading::sentence(step, theme),
            frame.inner.width.into(),
            theme.glyphs.ellipsis,
        );
        chrome::put(&Line::styled(text, theme.strong), row(0), buf);
    }
    if frame.rows.detail > 0 {
        let gap = Span::styled(format!(" {} ", theme.glyphs.dot), theme.dim);
        let parts = reading::selected(step, &frame.view, theme);
        let columns = usize::from(frame.inner.width).saturating_sub(2);
        let mut line = chrome::join(parts, &gap, columns);
        let mark = format!("{} ", theme.glyphs.pointer);
        line.spans.insert(0, Span::styled(mark, theme.accent));
        chrome::put(&line, row(frame.rows.under()), buf);
    }
    draw_tokens(app, &frame, buf);
}

fn draw_tokens(app: &App, frame: &Frame, buf: &mut Buffer) {
    let theme = &app.theme;
    let r = &frame.rows;
    if r.tokens == 0 || app.snapshot().token_times.is_empty() {
        return;
    }
    let first = r.under() + r.detail + r.gap;
    let row = |index| chrome::row(frame.inner, index);
    let within = |line: Rect| Rect {
        x: frame.lanes.x,
        width: frame.lanes.width.min(line.width),
        ..line
    };
    let marks = if r.marks > 0 {
        within(row(first))
    } else {
        Rect::default()
    };
    let top = within(row(first + r.marks));
    let area = Rect {
        height: r.tokens as u16,
        ..top
    };
    tokens::strip(app, area, marks, buf);
    let left = usize::from(frame.lanes.x - frame.inner.x);
    let bottom = row(first + r.marks + r.tokens - 1);
    let label = if left >= 10 { "tokens" } else { "tok" };
    let label = chrome::left(label, left, "");
    chrome::put(&Line::styled(label, theme.dim), bottom, buf);
    let right = usize::from(frame.inner.right().saturating_sub(frame.lanes.right()));
    if right > 0 {
        let (low, high) = tokens::ends(app, frame.columns());
        let ends = [
            (first + r.marks, high),
            (first + r.marks + r.tokens - 1, low),
        ];
        for (index, us) in ends.into_iter().take(r.tokens) {
            let text = chrome::right(&micros(us, theme.glyphs.micro), right.min(8), "");
            let at = Rect {
                x: frame.lanes.right(),
                width: right as u16,
                ..row(index)
            };
            chrome::put(&Line::styled(text, theme.dim), at, buf);
        }
    }
    for i in 0..r.anomalies {
        let line = tokens::sentence(app, i, frame.inner.width.into());
        chrome::put(&line, row(first + r.marks + r.tokens + i), buf);
    }
}

/// Which step it is and how much of it is shown.
fn heading(app: &App, step: &StepTrace, frame: &Frame, columns: usize) -> Line<'static> {
    let theme = &app.theme;
    let micro = theme.glyphs.micro;
    let mut parts = vec![Part::new(
        0,
        vec![Span::styled(micros(frame.window.wall, micro), theme.strong)],
    )];
    let what = match step.kind {
        crate::engine::StepKind::Decode => format!("token {}", step.position),
        _ => format!("prefill of {} tokens", step.tokens),
    };
    parts.insert(0, Part::new(2, vec![Span::styled(what, theme.dim)]));
    if frame.window.factor() > 1.0 {
        let shown = format!(
            "{}{}{} shown, {}{}",
            micros(frame.window.from, micro),
            theme.glyphs.to,
            micros(frame.window.from + frame.window.width, micro),
            number(frame.window.factor(), 0),
            theme.glyphs.times,
        );
        parts.push(Part::new(1, vec![Span::styled(shown, theme.accent)]));
    }
    padded(chrome::join(
        parts,
        &Span::styled(format!(" {} ", theme.glyphs.dot), theme.dim),
        columns,
    ))
}

fn padded(mut line: Line<'static>) -> Line<'static> {
    if line.width() > 0 {
        line.spans.insert(0, " ".into());
        line.spans.push(" ".into());
    }
    line
}

/// What the colours and letters are, which threads are shown, and the keys.
fn legend(app: &App, step: &StepTrace, frame: &Frame, columns: usize) -> Line<'static> {
    let theme = &app.theme;
    let mut parts: Vec<Part> = chrome::BLOCKS
        .iter()
        .filter(|block| step.events.iter().any(|e| e.id.category() == **block))
        .map(|block| {
            let text = format!("{} {}", draw::letter(*block, false), block.name());
            Part::new(1, vec![Span::styled(text, theme.category(*block))])
        })
        .collect();
    let wait = format!("{} waits", draw::wait_glyph(theme));
    parts.push(Part::new(1, vec![Span::styled(wait, theme.dim)]));
    let threads = lanes::threads(step);
    let position = chrome::position(app, frame.top, frame.rows.lanes, threads);
    if !position.is_empty() {
        let mut spans = vec![Span::styled("threads", theme.dim)];
        spans.extend(position);
        parts.insert(0, Part::new(0, spans));
    }
    let key = |action| app.keymap.label(action).unwrap_or_default();
    let both = |a, b, what: &str| format!("{} {} {what}", key(a), key(b));
    for (rank, text) in [
        (3, both(Action::Magnify(1), Action::Magnify(-1), "magnify")),
        (4, both(Action::MoveSide(-1), Action::MoveSide(1), "pan")),
        (5, both(Action::Page(-1), Action::Page(1), "lane")),
        (2, "small letter: several calls".into()),
    ] {
        parts.push(Part::new(rank, vec![Span::styled(text, theme.dim)]));
    }
    padded(chrome::join(
        parts,
        &Span::styled(format!(" {} ", theme.glyphs.dot), theme.dim),
        columns,
    ))
}

/// Changes the view by `f` where there is a step.
fn change(app: &mut App, f: impl FnOnce(&StepTrace, TimelineView) -> TimelineView) {
    let view = app.views.timeline;
    if let Some(step) = &app.snapshot().last_step {
        app.views.timeline = f(step, view);
    }
}

/// Selects the call `by` further in the lane.
pub fn move_cursor(app: &mut App, by: i64) {
    change(app, |step, view| moves::select_by(step, view, by));
}

/// Selects the lane `by` further down.
pub fn move_lane(app: &mut App, by: i64) {
    change(app, |step, view| moves::lane_by(step, view, by));
}

/// Moves the part shown sideways.
pub fn pan(app: &mut App, by: i64) {
    change(app, |step, view| moves::pan(step, view, by));
}

/// Magnifies (`by` over 0) or shrinks around the selected call.
pub fn magnify(app: &mut App, by: i64) {
    change(app, |step, view| moves::magnify(step, view, by, None));
}

fn frame_at(app: &App, area: Rect) -> Option<Frame> {
    let step = app.snapshot().last_step.as_ref()?;
    Some(Frame::new(app, step, chrome::inner(area)))
}

/// The wheel at `at`: up (`by` under 0) magnifies around the pointer.
pub fn wheel(app: &mut App, area: Rect, at: Position, by: i64) {
    let time = frame_at(app, area).and_then(|f| f.time(at.x));
    change(app, |step, view| {
        moves::magnify(step, view, -by.signum(), time)
    });
}

/// A click selects the lane and the call it hits.
pub fn click(app: &mut App, area: Rect, at: Position) {
    if let Some((lane, us)) = frame_at(app, area).and_then(|f| f.hit(at)) {
        change(app, |step, view| moves::click(step, view, lane, us));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_never_exceed_the_height() {
        for height in 0..120 {
            for threads in 1..70 {
                let r = Rows::new(height, threads);
                let all = r.under() + r.detail + r.gap + r.marks + r.tokens + r.anomalies;
                assert!(all <= height, "{r:?} of {height}");
                assert!(r.lanes <= threads && (height == 0 || r.lanes > 0));
            }
        }
    }
}
