//! What the pane reads out of a trace: where the user is, figures as text, sentences.

use crate::trace::figures::{
    PhaseTransition, PositionTrace, TokenText, TraceFrame, TraceView, Track, Waypoint,
};
use crate::tui::format::{count, number};
use crate::tui::state::App;
use crate::tui::text::{fit, sanitise, width};
use unicode_width::UnicodeWidthChar;

/// What the session has traced, if anything.
pub(super) fn frame(app: &App) -> Option<&TraceFrame> {
    app.snapshot().trace.as_deref()
}

/// Whether the map of activation patching is shown rather than a trace.
pub(super) fn shows_map(app: &App) -> bool {
    frame(app).is_some_and(|f| f.map.is_some() && (app.views.trace.map || f.shown.is_none()))
}

/// One position of a trace, and one of its answers.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    pub view: &'a TraceView,
    pub at: Option<&'a PositionTrace>,
    /// Index of the answer.
    pub answer: usize,
}

/// The tokens followed at a position.
fn tracked(at: Option<&PositionTrace>) -> &[TokenText] {
    at.map_or(&[], |p| &p.tracked)
}

impl<'a> Reading<'a> {
    /// The trace shown, at the cursor.
    pub fn shown(app: &'a App) -> Option<Self> {
        let view = frame(app)?.shown.as_deref()?;
        let place = app.views.trace;
        let at = nearest(view, place.position);
        Some(Self {
            view,
            at,
            answer: place.answer.min(tracked(at).len().saturating_sub(1)),
        })
    }

    /// The trace beside it, as far from its end as the cursor is: answers stand at the end of prompts of any length.
    pub fn beside(app: &'a App) -> Option<Self> {
        let view = frame(app)?.beside.as_deref()?;
        let shown = Self::shown(app);
        let from_end = shown.and_then(|s| {
            let last = s.view.positions.last()?.position;
            Some(last.saturating_sub(s.at?.position))
        });
        let position = view
            .positions
            .last()
            .map(|p| p.position.saturating_sub(from_end.unwrap_or(0)));
        let token = shown.and_then(|s| s.token());
        let at = nearest(view, position);
        let same = |t: &TokenText| token == Some(t);
        let by_index = shown.map_or(0, |s| s.answer);
        Some(Self {
            view,
            at,
            answer: tracked(at)
                .iter()
                .position(same)
                .unwrap_or(by_index.min(tracked(at).len().saturating_sub(1))),
        })
    }

    /// How many tokens are followed here.
    pub fn followed(self) -> usize {
        tracked(self.at).len()
    }

    /// The token followed.
    pub fn token(self) -> Option<&'a TokenText> {
        tracked(self.at).get(self.answer)
    }

    /// The stream layer by layer.
    pub fn ways(self) -> &'a [Waypoint] {
        self.at.map_or(&[], |p| &p.waypoints)
    }

    /// The stream after `layer`.
    pub fn way(self, layer: u32) -> Option<&'a Waypoint> {
        self.ways().iter().find(|w| w.layer == layer)
    }

    /// Where the answer stands at a waypoint.
    pub fn track(self, way: &'a Waypoint) -> Option<&'a Track> {
        way.tracks.get(self.answer)
    }

    /// Where the answer stands after the last layer.
    pub fn end(self) -> Option<&'a Track> {
        self.track(self.ways().last()?)
    }

    /// Where the answer is decided.
    pub fn phase(self) -> Option<&'a PhaseTransition> {
        self.at?.phases.get(self.answer)
    }

    /// Whether the stream was read with the model's head; a file without its model has norms alone.
    pub fn has_lens(self) -> bool {
        self.ways().iter().any(|w| self.track(w).is_some())
    }

    /// The layer that decided the answer.
    pub fn decided(self) -> Option<u32> {
        self.phase()
            .filter(|p| p.rise > 0.0)
            .map(|p| p.largest_rise)
    }

    /// Index of the waypoint under the cursor: the chosen layer, else the one that decided, else the last.
    pub fn cursor(self, layer: Option<u32>) -> usize {
        let ways = self.ways();
        let last = ways.len().saturating_sub(1);
        match layer.or(self.decided()) {
            Some(layer) => ways.iter().rposition(|w| w.layer <= layer).unwrap_or(0),
            None => last,
        }
    }

    /// Largest contribution of attention or FFN, so that all bars have one scale.
    pub fn largest(self) -> f64 {
        self.ways()
            .iter()
            .filter_map(|w| self.track(w))
            .flat_map(|t| [t.attn_logit.abs(), t.ffn_logit.abs()])
            .filter(|v| v.is_finite())
            .fold(0.0, f64::max)
    }

    /// Index of the position under the cursor among those traced.
    pub fn position_index(self) -> usize {
        let at = self.at.map(|p| p.position);
        let same = |p: &PositionTrace| Some(p.position) == at;
        self.view.positions.iter().position(same).unwrap_or(0)
    }
}

/// The traced position nearest to `position`; the last one without.
fn nearest(view: &TraceView, position: Option<u32>) -> Option<&PositionTrace> {
    match position {
        Some(p) => view.positions.iter().min_by_key(|t| t.position.abs_diff(p)),
        None => view.positions.last(),
    }
}

/// A probability in at most five columns.
pub(in crate::tui::panels) fn prob(p: f64) -> String {
    match p {
        p if !p.is_finite() => "-".into(),
        p if p > 0.0 && p < 0.0005 => format!("{p:.0e}"),
        p => number(p, 3),
    }
}

/// A rank, exact up to six digits.
pub(in crate::tui::panels) fn rank(rank: u32) -> String {
    if rank < 1_000_000 {
        rank.to_string()
    } else {
        count(rank.into())
    }
}

/// A norm, or anything without a sign, in at most six columns.
pub(in crate::tui::panels) fn plain(v: f64) -> String {
    match v.abs() {
        a if !a.is_finite() => "-".into(),
        a if a < 99.995 => number(v, 2),
        a if a < 999.95 => number(v, 1),
        a if a < 99_999.5 => number(v, 0),
        _ => format!("{v:.0e}"),
    }
}

/// Logits with their sign, in at most six columns.
pub(in crate::tui::panels) fn signed(v: f64) -> String {
    let text = plain(v);
    let zero = text.chars().all(|c| matches!(c, '0' | '.'));
    if v > 0.0 && v.is_finite() && !zero {
        format!("+{text}")
    } else {
        text
    }
}

/// A token in quotes, safe to draw.
pub(in crate::tui::panels) fn quoted(app: &App, token: &TokenText) -> String {
    format!("\"{}\"", sanitise(&token.text, app.theme.glyphs.ascii))
}

/// The end of `text` in `columns`: of a prompt the end says most.
pub(super) fn tail(text: &str, columns: usize, ellipsis: &str) -> String {
    if width(text) <= columns {
        return text.into();
    }
    let room = columns.saturating_sub(width(ellipsis));
    let mut used = 0;
    let mut from = text.len();
    for (i, c) in text.char_indices().rev() {
        used += c.width().unwrap_or(0);
        if used > room {
            break;
        }
        from = i;
    }
    let end = text.get(from..).unwrap_or_default();
    fit(&format!("{ellipsis}{end}"), columns, "")
}

/// Where an answer is decided, most important first.
pub(super) fn verdict(app: &App, r: Reading<'_>) -> Vec<String> {
    let g = &app.theme.glyphs;
    let Some(phase) = r.phase() else {
        return vec![match (r.ways().is_empty(), r.has_lens()) {
            (true, _) => "nothing is known of this position".into(),
            (_, false) => "norms only: no model to read them".into(),
            _ => "where it is decided is not known".into(),
        }];
    };
    let mut parts = Vec::new();
    if let Some(layer) = r.decided() {
        parts.push(format!(
            "decided after layer {layer} by {}",
            phase.decided_by.name()
        ));
        let p = |l: u32| Some(r.track(r.way(l)?)?.prob);
        parts.push(match (layer.checked_sub(1).and_then(p), p(layer)) {
            (Some(a), Some(b)) => format!("P {} {} {}", prob(a), g.arrow, prob(b)),
            _ => format!("P +{}", prob(phase.rise)),
        });
    } else {
        parts.push("never decided: P does not rise".into());
    }
    parts.push(match (phase.settled, phase.first_rank_1) {
        (Some(s), _) => format!("rank 1 from layer {s}"),
        (None, Some(f)) => format!("rank 1 after layer {f}, not at the end"),
        (None, None) => "never rank 1".into(),
    });
    if let Some(t) = r.decided().and_then(|l| r.track(r.way(l)?)) {
        parts.push(format!(
            "attention {}, FFN {} logits",
            signed(t.attn_logit),
            signed(t.ffn_logit)
        ));
    }
    parts
}

/// Where an answer is decided, in as few words as can be.
pub(super) fn brief(r: Reading<'_>) -> String {
    match r.decided().zip(r.phase()) {
        Some((layer, phase)) => format!("layer {layer}, {}", phase.decided_by.name()),
        None => "not decided".into(),
    }
}

/// The text up to the position under the cursor, which is what its answers follow.
pub(super) fn text_so_far(app: &App, r: Reading<'_>) -> String {
    let last = r.at.map_or(usize::MAX, |p| p.position as usize);
    let tokens = r.view.tokens.iter().take(last.saturating_add(1));
    let text: String = tokens.map(|t| t.text.as_str()).collect();
    // The prompt itself has none of the tokens that only the model sees.
    let whole = !r.view.prompt.is_empty() && text.ends_with(&r.view.prompt);
    let text = if whole { &r.view.prompt } else { &text };
    sanitise(text, app.theme.glyphs.ascii)
}

/// The answer's rank and probability at the end of the layers.
pub(super) fn standing(app: &App, r: Reading<'_>) -> String {
    let name = r.token().map_or(String::new(), |t| quoted(app, t));
    match r.end() {
        Some(t) => format!("{name} rank {}, P {}", rank(t.rank), prob(t.prob)),
        None => name,
    }
}

/// What adds up to the answer's logit.
pub(super) struct Sum {
    pub embedding: f64,
    pub constant: f64,
    pub attention: f64,
    pub ffn: f64,
    /// The lens after the last layer.
    pub logit: f64,
}

impl Sum {
    /// The parts of the answer's logit; `None` where one is not known.
    pub fn of(r: Reading<'_>) -> Option<Self> {
        let at = r.at?;
        let tracks = || r.ways().iter().filter_map(|w| r.track(w));
        Some(Self {
            embedding: *at.embedding_logits.get(r.answer)?,
            constant: *at.constant_logits.get(r.answer)?,
            attention: tracks().map(|t| t.attn_logit).sum(),
            ffn: tracks().map(|t| t.ffn_logit).sum(),
            logit: r.end()?.logit,
        })
    }

    /// By how much the parts miss the logit.
    pub fn apart(&self) -> f64 {
        self.embedding + self.constant + self.attention + self.ffn - self.logit
    }

    /// Whether the parts add up to the logit, to what f32 arithmetic and two digits can show.
    pub fn holds(&self) -> bool {
        let size = [self.embedding, self.attention, self.ffn, self.logit]
            .into_iter()
            .fold(1.0, |a: f64, v| a.max(v.abs()));
        self.apart().abs() <= 2e-3 * size
    }
}
