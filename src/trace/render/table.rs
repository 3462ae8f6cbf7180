//! `TRACE` as tables.

use super::cells::{self, Grid, Side::Left, Side::Right, figure, maybe, prob, signed, token};
use super::{heads, layers};
use crate::trace::figures::{
    Answer, PhaseTransition, PositionTrace, SubLayer, TraceView, Track, Waypoint,
};
use crate::trace::lang::{Statement, Trace};
use crate::trace::summary;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Candidates side by side; more go on in the next line.
const ACROSS: usize = 5;
/// Candidates beside which entropy and divergence still find room.
const BESIDE_ENTROPY: usize = 2;

/// What the figures of attribution are, under every table of them.
const DIRECT: &str = "Attn and FFN are direct attribution, in logits: what a part adds through the final norm at its last \
                      scale.\nThat describes this run and is no counterfactual; WITH and PATCH say what changes without a part.\n";

/// The tables of a trace.
pub(super) fn trace(view: &TraceView, statement: &Trace) -> String {
    let mut out = head(view, statement);
    let shown = layers(view, statement);
    for position in &view.positions {
        let tables = Tables {
            view,
            statement,
            position,
            shown: &shown,
        };
        tables.print(&mut out);
    }
    let attributes = !statement.answers.is_empty() || statement.heads;
    if attributes && view.positions.iter().any(|p| !p.tracked.is_empty()) {
        let _ = write!(out, "\n{DIRECT}");
    }
    notes(&view.notes, &mut out);
    out
}

/// Statement and model.
fn head(view: &TraceView, statement: &Trace) -> String {
    let mut out = String::new();
    if !statement.prompt.is_empty() {
        let statement = Statement::Trace(statement.clone()).to_string();
        let _ = writeln!(out, "{}", cells::line(&statement));
    }
    let _ = write!(
        out,
        "{}: {} layers, width {}; {} tokens",
        cells::line(&view.model),
        view.n_layers,
        view.hidden_size,
        view.tokens.len()
    );
    if view.facts > 0 {
        let _ = write!(out, "; facts of the overlay in force: {}", view.facts);
    }
    if statement.after_attention {
        out.push_str("; lens between attention and FFN");
    }
    out.push('\n');
    out
}

/// Lines under the tables.
pub(super) fn notes(notes: &[String], out: &mut String) {
    if !notes.is_empty() {
        out.push('\n');
    }
    for note in notes {
        let _ = writeln!(out, "note: {}", cells::line(note));
    }
}

/// The tables of one position.
struct Tables<'a> {
    view: &'a TraceView,
    statement: &'a Trace,
    position: &'a PositionTrace,
    shown: &'a BTreeSet<u32>,
}

impl Tables<'_> {
    fn print(&self, out: &mut String) {
        let at = self.position.position;
        let text = self.view.tokens.get(at as usize);
        let text = text.map_or_else(String::new, |t| format!(", {}", token(&t.text)));
        let _ = writeln!(out, "\nposition {at}{text}");
        let s = self.statement;
        let read = self.position.waypoints.iter().any(|w| !w.top.is_empty());
        let asked = !s.answers.is_empty() || s.decompose || s.heads;
        if read && (s.top.is_some() || !asked) {
            out.push('\n');
            self.candidates(out);
        }
        let answers = self.view.answers_at(self.position);
        if !s.answers.is_empty() {
            for (i, answer) in answers.iter().enumerate() {
                self.answer(i, answer, out);
            }
            self.compare(out);
        }
        if s.decompose || !read {
            out.push('\n');
            self.decompose(out);
        }
        if s.heads {
            for (i, answer) in answers.iter().enumerate() {
                heads::print(self.position, i, answer, self.shown, out);
            }
        }
    }

    /// The waypoints that are shown.
    fn waypoints(&self) -> impl Iterator<Item = &Waypoint> {
        let shown = |w: &&Waypoint| self.shown.contains(&w.layer);
        self.position.waypoints.iter().filter(shown)
    }

    fn candidates(&self, out: &mut String) {
        let k = (self.statement.top.unwrap_or(1) as usize).max(1);
        let entropy = k <= BESIDE_ENTROPY;
        let mut titles = vec![("Layer".to_owned(), Right)];
        for i in 1..=k.min(ACROSS) {
            titles.extend([(format!("Top-{i}"), Left), ("P".into(), Right)]);
        }
        titles.extend([("|attn|".into(), Right), ("|ffn|".into(), Right)]);
        if entropy {
            titles.extend([("H [nat]".into(), Right), ("KL [nat]".into(), Right)]);
        }
        let mut grid = Grid::new(titles);
        for w in self.waypoints() {
            let top = w.top.get(..k.min(w.top.len())).unwrap_or_default();
            let mut lines = top.chunks(ACROSS);
            let mut row = vec![w.layer.to_string()];
            let cell = |c: &crate::trace::figures::Candidate| [token(&c.token.text), prob(c.prob)];
            let first = lines.next().unwrap_or_default();
            row.extend(first.iter().flat_map(cell));
            row.resize(1 + 2 * k.min(ACROSS), cells::UNKNOWN.into());
            row.extend(deltas(w));
            if entropy {
                row.extend([maybe(w.entropy), maybe(w.kl_to_final)]);
            }
            grid.row(row);
            for more in lines {
                let mut row = vec![String::new()];
                row.extend(more.iter().flat_map(cell));
                grid.row(row);
            }
        }
        grid.print(out);
    }

    fn decompose(&self, out: &mut String) {
        let mut grid = Grid::new(
            ["Layer", "|attn|", "|ffn|", "|residual|", "attn share"].map(|title| (title, Right)),
        );
        for w in self.waypoints() {
            let share = summary::share(w.attn_norm, w.ffn_norm);
            let mut row = vec![w.layer.to_string()];
            row.extend(deltas(w));
            row.extend([figure(w.residual_norm), cells::percent(share)]);
            grid.row(row);
        }
        grid.print(out);
        out.push_str("  norms are L2; attn share is |attn| of |attn| + |ffn|\n");
    }

    fn answer(&self, i: usize, answer: &Answer, out: &mut String) {
        let id = answer.token.id;
        let _ = write!(out, "\n{} (id {id})", token(&answer.token.text));
        if let Some(phase) = self.position.phases.get(i) {
            let _ = write!(out, ": {}", decided(phase, &self.tracks(i)));
        }
        out.push('\n');
        if let Some(p) = answer.word_prob {
            let n = answer.pieces.len();
            let _ = writeln!(
                out,
                "{} of {n} tokens, after the prompt: P {}",
                token(&answer.word),
                prob(p)
            );
        }
        let mut titles: Vec<_> = ["Layer", "Rank", "P", "Logit", "Attn [logit]", "FFN [logit]"]
            .map(|title| (title, Right))
            .into();
        titles.extend([("Who", Left), ("H [nat]", Right), ("KL [nat]", Right)]);
        let mut grid = Grid::new(titles);
        for w in self.waypoints() {
            let Some(t) = w.tracks.get(i) else { continue };
            let mut row = vec![
                w.layer.to_string(),
                t.rank.to_string(),
                prob(t.prob),
                figure(t.logit),
            ];
            if w.layer == 0 {
                row.extend([cells::UNKNOWN, cells::UNKNOWN, "embedding"].map(str::to_owned));
            } else {
                row.extend([signed(t.attn_logit), signed(t.ffn_logit), who(t).into()]);
            }
            row.extend([maybe(w.entropy), maybe(w.kl_to_final)]);
            grid.row(row);
        }
        grid.print(out);
        let sums = self.sums(i);
        let _ = write!(out, "  {} = {}", sums.say(), signed(sums.sum()));
        let last = self.position.waypoints.last();
        let head = last.filter(|w| w.layer == self.view.n_layers && w.layer > 0);
        match head.and_then(|w| w.tracks.get(i)) {
            // Between attention and FFN the lens does not read what the head did.
            Some(t) if !self.statement.after_attention => {
                let _ = writeln!(out, "; the head says {}", signed(t.logit));
            }
            _ => out.push('\n'),
        }
    }

    fn tracks(&self, i: usize) -> Vec<&Track> {
        let tracks = self.position.waypoints.iter();
        tracks.filter_map(|w| w.tracks.get(i)).collect()
    }

    /// What all parts together add to an answer's logit, whichever layers are shown.
    fn sums(&self, i: usize) -> Sums {
        let tracks = self.tracks(i);
        let p = self.position;
        Sums {
            embedding: p.embedding_logits.get(i).copied().unwrap_or(f64::NAN),
            constant: p.constant_logits.get(i).copied().unwrap_or(f64::NAN),
            attention: tracks.iter().map(|t| t.attn_logit).sum(),
            ffn: tracks.iter().map(|t| t.ffn_logit).sum(),
        }
    }

    /// How the first answer comes to stand above or below the others.
    fn compare(&self, out: &mut String) {
        let Some((first, others)) = self.view.answers.split_first() else {
            return;
        };
        for (i, other) in others.iter().enumerate() {
            let sums = self.sums(0).less(&self.sums(i + 1));
            let _ = write!(
                out,
                "\n{} less {}: {} = {}",
                token(&first.token.text),
                token(&other.token.text),
                sums.say(),
                signed(sums.sum())
            );
            let parts = differences(&self.tracks(0), &self.tracks(i + 1));
            let by = |a: &&Part, b: &&Part| a.by.total_cmp(&b.by);
            let for_it = parts.iter().max_by(by).filter(|p| p.by > 0.0);
            let against = parts.iter().min_by(by).filter(|p| p.by < 0.0);
            for (side, part) in [("for", for_it), ("against", against)] {
                if let Some(p) = part {
                    let (name, layer, by) = (p.name, p.layer, signed(p.by));
                    let _ = write!(out, "\n  most {side}: {name} of layer {layer}, {by}");
                }
            }
            out.push('\n');
            if self.statement.heads {
                heads::compare(&self.tracks(0), &self.tracks(i + 1), out);
            }
        }
    }
}

/// What a part of a layer adds to one answer more than to another.
struct Part {
    layer: usize,
    name: &'static str,
    by: f64,
}

fn differences(one: &[&Track], other: &[&Track]) -> Vec<Part> {
    let layers = one.iter().zip(other).enumerate().skip(1);
    let parts = layers.flat_map(|(layer, (a, b))| {
        [
            (SubLayer::Attention, a.attn_logit - b.attn_logit),
            (SubLayer::Ffn, a.ffn_logit - b.ffn_logit),
        ]
        .map(|(part, by)| Part {
            layer,
            name: part.name(),
            by,
        })
    });
    parts.filter(|p| p.by.is_finite()).collect()
}

/// Logits by where they come from.
struct Sums {
    embedding: f64,
    constant: f64,
    attention: f64,
    ffn: f64,
}

impl Sums {
    fn sum(&self) -> f64 {
        self.embedding + self.constant + self.attention + self.ffn
    }

    fn less(&self, other: &Self) -> Self {
        Self {
            embedding: self.embedding - other.embedding,
            constant: self.constant - other.constant,
            attention: self.attention - other.attention,
            ffn: self.ffn - other.ffn,
        }
    }

    fn say(&self) -> String {
        format!(
            "embedding {}, constant {}, attention {}, FFN {}",
            signed(self.embedding),
            signed(self.constant),
            signed(self.attention),
            signed(self.ffn)
        )
    }
}

/// The norms of what a layer added; the embedding adds nothing.
fn deltas(w: &Waypoint) -> [String; 2] {
    if w.layer == 0 {
        return [cells::UNKNOWN.into(), cells::UNKNOWN.into()];
    }
    [figure(w.attn_norm), figure(w.ffn_norm)]
}

/// Which part of a layer pushes the answer: both, if the weaker push is at least half of the stronger.
fn who(t: &Track) -> &'static str {
    let (attn, ffn) = (t.attn_logit, t.ffn_logit);
    if attn.is_nan() || ffn.is_nan() {
        cells::UNKNOWN
    } else if attn.max(ffn) <= 0.0 {
        "neither"
    } else if attn.min(ffn) * 2.0 >= attn.max(ffn) {
        "both"
    } else if attn > ffn {
        "attention"
    } else {
        "FFN"
    }
}

/// Where an answer is decided, in words.
fn decided(phase: &PhaseTransition, tracks: &[&Track]) -> String {
    let at = phase.largest_rise as usize;
    let before = at.checked_sub(1).and_then(|l| tracks.get(l));
    let mut out = match (before, tracks.get(at)) {
        (Some(before), Some(after)) if phase.rise > 0.0 => format!(
            "decided in layer {at} by {}, P {} to {}",
            phase.decided_by.name(),
            prob(before.prob),
            prob(after.prob)
        ),
        _ => "its probability never rises".into(),
    };
    let after = |layer: u32| match layer {
        0 => "the embedding".to_owned(),
        layer => format!("layer {layer}"),
    };
    match (phase.settled, phase.first_rank_1) {
        (Some(layer), first) => {
            let _ = write!(out, "; rank 1 for good after {}", after(layer));
            if let Some(first) = first.filter(|f| *f != layer) {
                let _ = write!(out, ", first after {}", after(first));
            }
        }
        (None, Some(first)) => {
            let _ = write!(out, "; rank 1 after {}, not at the end", after(first));
        }
        (None, None) => out.push_str("; never rank 1"),
    }
    out
}
