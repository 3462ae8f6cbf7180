//! The residual trace: where an answer forms, layer by layer and position by position, which part of which layer decided
//! it, two traces side by side, and the map of activation patching.
//!
//! What attention and FFN add to a logit is direct attribution: it describes this run. What would happen without them only
//! patching tells.

mod chart;
mod compare;
mod map;
mod moves;
mod reading;
mod side;
mod strip;
mod table;

pub use moves::{act, click, move_layer, move_position, remember, wheel};

use super::chrome::{self, Part};
use crate::tui::keymap::Action;
use crate::tui::layout;
use crate::tui::state::{App, Panel};
use crate::tui::text::{fit, sanitise, wrap};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use reading::{Reading, Sum, frame, plain, quoted, shows_map, signed, standing, tail, verdict};

/// From this width on the chart stands beside the table.
const BESIDE: u16 = 70;
/// From this width on it stands beside the table of two traces too.
const BESIDE_TWO: u16 = 110;
/// Answers besides the chosen one that get a line of their own.
const OTHERS: usize = 3;

/// Where everything is inside the pane.
struct Plan {
    head: Rect,
    table: Rect,
    chart: Rect,
    side: Rect,
    foot: Rect,
    strip: Rect,
}

/// The parts of `inner` for a head of `head` lines and `said` lines of the last statement.
fn plan(inner: Rect, head: usize, said: usize, two: bool) -> Plan {
    let h = inner.height;
    let strip_rows = u16::from(h >= 6);
    let foot_rows = match h {
        0..8 => 0,
        8..11 => 1,
        11..16 => 2,
        _ => 3,
    } + if h >= 8 {
        (said as u16).min((h / 5).max(1))
    } else {
        0
    };
    let (head, rest) = layout::top(inner, (head as u16).min(h.saturating_sub(strip_rows)));
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
    if inner.width >= if two { BESIDE_TWO } else { BESIDE } && body.height >= 5 {
        let share = if inner.width >= 100 { 38 } else { 29 };
        let columns = (inner.width * share / 100).clamp(22, 80);
        plan.table.width = inner.width - columns - 2;
        let right = Rect {
            x: body.right() - columns,
            width: columns,
            ..body
        };
        let rows = match body.height {
            h @ 0..9 => h,
            h @ 9..16 => 6 + (h - 9) / 3,
            h => h / 2,
        };
        (plan.chart, plan.side) = layout::top(right, if two { body.height } else { rows });
    } else if body.height >= 13 {
        let rows = (body.height / 3).clamp(5, 12);
        (plan.chart, plan.table) = layout::top(body, rows);
        // Long lists of tokens stand below a short table where there is room for both.
        if !two && plan.table.height >= 14 {
            let rows = plan.table.height - 6;
            (plan.table, plan.side) = layout::top(plan.table, rows);
        }
    }
    plan
}

/// Lines of the last statement that have no picture.
fn said(app: &App) -> &[String] {
    frame(app).map_or(&[], |f| &f.lines)
}

/// The plan of the pane as it is drawn now.
fn current_plan(app: &App, inner: Rect) -> Plan {
    let two = Reading::beside(app).is_some();
    let head = match (two, Reading::shown(app)) {
        (true, _) => 3,
        (false, Some(r)) => 2 + others(r, inner).count(),
        _ => 0,
    };
    plan(inner, head, said(app).len(), two)
}

/// Indices of the answers that get a line besides the chosen one.
fn others(r: Reading<'_>, inner: Rect) -> impl Iterator<Item = usize> {
    let count = if inner.height >= 22 { OTHERS } else { 0 };
    let chosen = r.answer;
    (0..r.view.answers.len())
        .filter(move |i| *i != chosen)
        .take(count)
}

/// Draws the panel.
pub fn render(app: &App, area: Rect, buf: &mut Buffer) {
    let room = usize::from(area.width).saturating_sub(26);
    let heading = heading(app, room);
    let legend = legend(app, usize::from(area.width).saturating_sub(6));
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
    let plan = current_plan(app, inner);
    let beside = Reading::beside(app);
    let foot = match beside {
        Some(b) => {
            compare::head(app, r, b, plan.head, buf);
            compare::render(app, r, b, plan.table, buf);
            vec![compare::detail(app, r, b, plan.foot.width.into())]
        }
        None => {
            head(app, r, plan.head, buf);
            table::render(app, r, plan.table, buf);
            side::render(app, r, plan.side, buf);
            vec![side::detail(app, r, plan.foot.width.into())]
        }
    };
    chart::render(app, r, beside, plan.chart, buf);
    draw_foot(app, r, foot, plan.foot, buf);
    if plan.strip.height > 0 {
        strip::render(app, r, plan.strip, buf);
    }
}

/// The prompt with its answer, what decided it, and the other answers.
fn head(app: &App, r: Reading<'_>, area: Rect, buf: &mut Buffer) {
    let theme = &app.theme;
    let g = &theme.glyphs;
    let columns = usize::from(area.width);
    let gap = Span::styled(format!(" {} ", g.dot), theme.dim);
    let top = r.ways().last().and_then(|w| w.top.first());
    let says = top
        .filter(|t| r.token() != Some(&t.token))
        .map(|t| format!("the model says {}", quoted(app, &t.token)));
    let standing = standing(app, r);
    let taken = standing.chars().count() + 8 + says.as_ref().map_or(0, |s| s.chars().count() + 3);
    let room = columns.saturating_sub(taken).max(columns / 4);
    let prompt = tail(&sanitise(&r.view.prompt, g.ascii), room, g.ellipsis);
    let mut parts = vec![Part::new(
        1,
        vec![
            Span::styled(format!("\"{prompt}\""), theme.prompt),
            Span::raw(format!(" {} ", g.arrow)),
        ],
    )];
    parts.push(Part::new(0, vec![Span::styled(standing, theme.strong)]));
    if let Some(says) = says {
        parts.push(Part::new(2, vec![Span::styled(says, theme.warn)]));
    }
    let answer = r.view.answers.get(r.answer);
    if let Some(p) = answer.and_then(|a| a.word_prob) {
        let text = format!("whole word P {}", reading::prob(p));
        parts.push(Part::new(3, vec![Span::raw(text)]));
    }
    // The prompt and its answer are one.
    let first = match parts.len() {
        0 | 1 => chrome::join(parts, &gap, columns),
        _ => {
            let answer = parts.remove(1);
            let whole: Vec<_> = parts[0]
                .spans
                .iter()
                .chain(&answer.spans)
                .cloned()
                .collect();
            let width: usize = whole.iter().map(Span::width).sum();
            parts[0] = Part::new(
                0,
                if width <= columns {
                    whole
                } else {
                    answer.spans
                },
            );
            chrome::join(parts, &gap, columns)
        }
    };
    chrome::put(&first, chrome::row(area, 0), buf);
    chrome::put(&sentence(app, r, columns), chrome::row(area, 1), buf);
    let inner = Rect {
        height: u16::MAX,
        ..area
    };
    let rows = usize::from(area.height).saturating_sub(2);
    for (i, answer) in others(r, inner).take(rows).enumerate() {
        let other = Reading { answer, ..r };
        let mut parts = vec![Part::new(0, vec![Span::raw(reading::standing(app, other))])];
        let verdict = verdict(app, other).into_iter().zip(1u8..);
        parts.extend(verdict.map(|(t, rank)| Part::new(rank, vec![Span::raw(t)])));
        let mut line = chrome::join(parts, &gap, columns.saturating_sub(6));
        line.spans.insert(0, Span::styled("also: ", theme.dim));
        chrome::put(&line, chrome::row(area, 2 + i), buf);
    }
}

/// What decided the answer.
fn sentence(app: &App, r: Reading<'_>, columns: usize) -> Line<'static> {
    let theme = &app.theme;
    let parts = verdict(app, r).into_iter().enumerate().map(|(i, text)| {
        let style = if i == 0 { theme.accent } else { Style::new() };
        Part::new(i as u8, vec![Span::styled(text, style)])
    });
    let gap = Span::styled(format!(" {} ", theme.glyphs.dot), theme.dim);
    chrome::join(parts.collect(), &gap, columns)
}

/// What the parts add up to, against the logit of the lens.
fn sum(app: &App, r: Reading<'_>, columns: usize) -> Option<Line<'static>> {
    let theme = &app.theme;
    let sum = Sum::of(r)?;
    let term = |v: f64, name: &str| {
        let sign = if v < 0.0 { "-" } else { "+" };
        format!(" {sign} {} {name}", plain(v.abs()))
    };
    let mut text = format!(
        "logit {} = {} embedding",
        plain(sum.logit),
        plain(sum.embedding)
    );
    text.push_str(&term(sum.attention, "attention"));
    text.push_str(&term(sum.ffn, "FFN"));
    text.push_str(&term(sum.constant, "constant"));
    if !sum.holds() {
        let apart = format!("off by {}: ", signed(sum.apart()));
        let text = fit(&format!("{apart}{text}"), columns, theme.glyphs.ellipsis);
        return Some(Line::styled(text, theme.warn));
    }
    let text = fit(&text, columns, theme.glyphs.ellipsis);
    Some(Line::raw(text))
}

/// Draws the lines below the table: the cursor in figures, the sum, what the last statement said, what to know.
fn draw_foot(
    app: &App,
    r: Reading<'_>,
    mut lines: Vec<Line<'static>>,
    area: Rect,
    buf: &mut Buffer,
) {
    let theme = &app.theme;
    let columns = usize::from(area.width);
    let rows = usize::from(area.height);
    let said = said(app);
    lines.extend(sum(app, r, columns));
    lines.truncate(rows.saturating_sub(usize::from(!said.is_empty())));
    let clean = |t: &String| {
        fit(
            &sanitise(t, theme.glyphs.ascii),
            columns,
            theme.glyphs.ellipsis,
        )
    };
    let left = rows - lines.len();
    let newest = said.iter().skip(said.len().saturating_sub(left));
    lines.extend(newest.map(|t| Line::styled(clean(t), theme.warn)));
    let edits = r.view.edits.iter().map(|e| format!("edit: {e}"));
    let facts = (r.view.facts > 0).then(|| format!("{} facts of the overlay", r.view.facts));
    let notes = edits.chain(facts).chain(r.view.notes.iter().cloned());
    let left = rows.saturating_sub(lines.len());
    lines.extend(notes.take(left).map(|t| Line::styled(clean(&t), theme.dim)));
    for (i, line) in lines.iter().enumerate() {
        chrome::put(line, chrome::row(area, i), buf);
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

/// What is being computed, whether tokens are followed, what is in force, and which answer of how many.
fn heading(app: &App, columns: usize) -> Line<'static> {
    let theme = &app.theme;
    let Some(f) = frame(app) else {
        return Line::default();
    };
    let ascii = theme.glyphs.ascii;
    let mut parts = Vec::new();
    let mut add =
        |rank, text: String, style| parts.push(Part::new(rank, vec![Span::styled(text, style)]));
    if let Some((what, done, of)) = &f.work {
        let what = fit(&sanitise(what, ascii), 40, theme.glyphs.ellipsis);
        add(0, format!("{what}: {done} of {of}"), theme.warn);
    }
    if f.following {
        add(1, "following tokens".into(), theme.good);
    }
    if let Some(r) = Reading::shown(app).filter(|_| !shows_map(app)) {
        let (edits, facts) = (r.view.edits.len(), r.view.facts);
        if edits > 0 {
            add(2, format!("{edits} edits"), theme.warn);
        }
        if facts > 0 {
            add(2, format!("{facts} facts"), theme.warn);
        }
        let answers = r.view.answers.len();
        if answers > 1 {
            add(
                3,
                format!("answer {} of {answers}", r.answer + 1),
                theme.strong,
            );
        }
        if f.beside.is_some() {
            add(4, "A beside B".into(), theme.strong);
        }
        add(
            5,
            fit(&sanitise(&r.view.model, ascii), 30, theme.glyphs.ellipsis),
            theme.dim,
        );
    }
    let gap = Span::styled(format!(" {} ", theme.glyphs.dot), theme.dim);
    let mut line = chrome::join(parts, &gap, columns.saturating_sub(2));
    if line.width() > 0 {
        line.spans.insert(0, " ".into());
        line.spans.push(" ".into());
    }
    line
}

/// What the figures are, and what they are not.
fn legend(app: &App, columns: usize) -> Line<'static> {
    let theme = &app.theme;
    let dim = |t: String| vec![Span::styled(t, theme.dim)];
    let Some(r) = Reading::shown(app).filter(|r| !shows_map(app) && r.has_lens()) else {
        return Line::default();
    };
    let key = app.keymap.label(Action::TraceMap).unwrap_or_default();
    let has_map = frame(app).is_some_and(|f| f.map.is_some());
    let patching = if has_map {
        format!("causal: map ({key})")
    } else {
        "causal: PATCH".into()
    };
    let mut parts = vec![
        Part::new(
            1,
            dim("attn, ffn: logits by direct attribution, no counterfactual".into()),
        ),
        Part::new(3, dim(patching)),
    ];
    if r.decided().is_some() {
        parts.insert(0, Part::new(2, dim("* decided".into())));
    }
    let gap = Span::styled(format!(" {} ", theme.glyphs.dot), theme.dim);
    let mut line = chrome::join(parts, &gap, columns.saturating_sub(2));
    if line.width() > 0 {
        line.spans.insert(0, " ".into());
        line.spans.push(" ".into());
    }
    line
}
