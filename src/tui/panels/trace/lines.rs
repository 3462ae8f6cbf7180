//! The lines around the table: what was traced and what decided it above, figures and sums below, the frame's own.

use super::plan::others;
use super::reading::{
    self, Reading, Sum, frame, plain, quoted, shows_map, signed, standing, tail, text_so_far,
    verdict,
};
use super::said;
use crate::tui::keymap::Action;
use crate::tui::panels::chrome::{self, Part};
use crate::tui::state::App;
use crate::tui::text::{fit, sanitise};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// The prompt with its answer, what decided it, and the other answers.
pub(super) fn head(app: &App, r: Reading<'_>, area: Rect, buf: &mut Buffer) {
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
    let prompt = tail(&text_so_far(app, r), room, g.ellipsis);
    let mut parts = vec![Part::new(
        1,
        vec![
            Span::styled(format!("\"{prompt}\""), theme.prompt),
            Span::raw(if r.followed() == 0 {
                String::new()
            } else {
                format!(" {} ", g.arrow)
            }),
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
    let rows = usize::from(area.height).saturating_sub(2);
    for (i, answer) in others(r, u16::MAX).take(rows).enumerate() {
        let other = Reading { answer, ..r };
        let mut parts = vec![Part::new(0, vec![Span::raw(reading::standing(app, other))])];
        let mut verdict = verdict(app, other);
        if columns < 70
            && let Some(first) = verdict.first_mut()
        {
            *first = reading::brief(other);
        }
        let verdict = verdict.into_iter().zip(1u8..);
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
pub(super) fn sum(app: &App, name: &str, r: Reading<'_>, columns: usize) -> Option<Line<'static>> {
    let sum = Sum::of(r)?;
    let term = |v: f64, what: &str| {
        let sign = if v < 0.0 { "-" } else { "+" };
        format!(" {sign} {} {what}", plain(v.abs()))
    };
    let off = if sum.holds() || r.view.after_attention {
        String::new()
    } else {
        format!("off by {}: ", signed(sum.apart()))
    };
    let long = format!(
        "{name}{off}logit {} = {} embedding{}{}{}",
        plain(sum.logit),
        plain(sum.embedding),
        term(sum.attention, "attention"),
        term(sum.ffn, "FFN"),
        term(sum.constant, "constant")
    );
    let text = if long.chars().count() <= columns {
        long
    } else {
        format!(
            "{name}{off}logit {}: emb {}, attn {}, ffn {}, const {}",
            plain(sum.logit),
            plain(sum.embedding),
            plain(sum.attention),
            plain(sum.ffn),
            plain(sum.constant)
        )
    };
    let text = fit(&text, columns, app.theme.glyphs.ellipsis);
    Some(if sum.holds() {
        Line::raw(text)
    } else {
        Line::styled(text, app.theme.warn)
    })
}

/// Draws the lines below the table: the cursor in figures, the sum, what the last statement said, what to know.
pub(super) fn foot(
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
    let facts = (r.view.facts > 0)
        .then(|| format!("{} of the overlay", counted(r.view.facts as usize, "fact")));
    let notes = edits.chain(facts).chain(r.view.notes.iter().cloned());
    let left = rows.saturating_sub(lines.len());
    lines.extend(notes.take(left).map(|t| Line::styled(clean(&t), theme.dim)));
    for (i, line) in lines.iter().enumerate() {
        chrome::put(line, chrome::row(area, i), buf);
    }
}

/// What is being computed, whether tokens are followed, what is in force, and which answer of how many.
pub(super) fn heading(app: &App, columns: usize) -> Line<'static> {
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
            add(2, counted(edits, "edit"), theme.warn);
        }
        if facts > 0 {
            add(2, counted(facts as usize, "fact"), theme.warn);
        }
        let answers = r.followed();
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
pub(super) fn legend(app: &App, columns: usize) -> Line<'static> {
    let theme = &app.theme;
    let dim = |t: String| vec![Span::styled(t, theme.dim)];
    if shows_map(app) {
        let text = " patching is causal: each cell is a run with that place replaced ";
        return Line::styled(text, theme.dim);
    }
    let Some(r) = Reading::shown(app).filter(|r| r.has_lens()) else {
        return Line::default();
    };
    let key = app.keymap.label(Action::TraceMap).unwrap_or_default();
    let causal = if frame(app).is_some_and(|f| f.map.is_some()) {
        format!("the map ({key}) is causal")
    } else {
        "PATCH is causal".into()
    };
    let mark = match (r.decided(), Reading::beside(app)) {
        (_, Some(_)) => "A, B, * decided",
        (Some(_), _) => "* decided",
        _ => "",
    };
    let says = [
        format!("attn, ffn: direct attribution in logits, not a counterfactual; {causal}"),
        format!("direct attribution, logits: descriptive; {causal}"),
        "attn, ffn: direct attribution, descriptive".into(),
        "attribution: descriptive".into(),
    ];
    let room = columns.saturating_sub(2);
    let fits = |t: &&String| t.len() + mark.len() + 3 <= room;
    let Some(says) = says.iter().find(fits) else {
        return Line::default();
    };
    let parts = vec![
        Part::new(1, dim(mark.into())),
        Part::new(0, dim(says.clone())),
    ];
    let gap = Span::styled(format!(" {} ", theme.glyphs.dot), theme.dim);
    let mut line = chrome::join(parts, &gap, columns.saturating_sub(2));
    if line.width() > 0 {
        line.spans.insert(0, " ".into());
        line.spans.push(" ".into());
    }
    line
}

/// A number of things: `1 edit`, `2 edits`.
fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
