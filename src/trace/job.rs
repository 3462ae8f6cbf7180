//! A `TRACE` statement, run in pieces: the run first, then one position after the other, so that whoever drives it can do
//! something else between two pieces.

use super::TraceError;
use super::answer;
use super::attribution::{self, Direction, Head};
use super::figures::{Answer, Candidate, PositionTrace, TraceView, Track, Waypoint};
use super::forward::Forward;
use super::lang::{self, Positions, Trace};
use super::phase;
use super::readout::Distribution;
use super::stream::{Chains, Stream};
use super::vector::norm;
use crate::engine::capture::{Capture, Captured, Part, Which};
use crate::engine::edit::Edits;
use crate::tokenizer::Tokenizer;
use std::ops::Range;
use std::sync::Arc;

/// Candidates a waypoint has at least: what a pane wants to show.
pub const TOP: u32 = 10;

/// Also hears every vector of the run: a store.
pub type Sink<'a> = dyn FnMut(Captured<'_>) + 'a;

/// A trace being made.
pub struct TraceJob {
    view: TraceView,
    stream: Stream,
    /// Ids of the tokens followed.
    ids: Vec<u32>,
    top: usize,
    after_attention: bool,
    next: usize,
}

/// The positions a statement names, in a text of `n` tokens.
///
/// # Errors
/// A position that the text does not have.
pub fn positions(wanted: Option<Positions>, n: usize) -> Result<Range<usize>, TraceError> {
    let (first, last) = match wanted {
        None | Some(Positions::Last) => (n.saturating_sub(1), n.saturating_sub(1)),
        Some(Positions::All) => (0, n.saturating_sub(1)),
        Some(Positions::One(p)) => (p as usize, p as usize),
        Some(Positions::Range(a, b)) => (a as usize, b as usize),
    };
    if first > last || last >= n {
        return Err(TraceError::Statement(format!(
            "position {} does not exist: the text has {n} tokens, counted from 0",
            last.max(first)
        )));
    }
    Ok(first..last + 1)
}

impl TraceJob {
    /// Runs the prompt of a statement under `edits`, and reads the answers' tokens. `also` hears every vector that is
    /// captured: those of all positions if `capture_all`.
    ///
    /// # Errors
    /// See [`TraceError`].
    pub fn start(
        forward: &mut dyn Forward,
        tokenizer: &Tokenizer,
        name: &str,
        statement: &Trace,
        edits: Option<Arc<Edits>>,
        also: Option<&mut Sink<'_>>,
    ) -> Result<Self, TraceError> {
        let prompt = answer::encode(tokenizer, &statement.prompt)?;
        let last = prompt.len() - 1..prompt.len();
        let mut span = positions(statement.positions, prompt.len())?;
        let mut notes = Vec::new();
        if also.is_some()
            && !Stream::fits_beside_a_file(forward.model(), span.len(), statement.heads)
        {
            notes.push(format!(
                "figures are those of the last of {} positions: all of them are in the file, not in memory",
                span.len()
            ));
            span = last.clone();
        }
        let model = forward.model();
        let (n_layers, hidden) = (model.hparams.n_layers, model.hparams.n_embd);
        let mut stream = Stream::new(model, span.clone(), statement.heads)?;
        let capture = Capture {
            which: if also.is_some() || span != last {
                Which::All
            } else {
                Which::Last
            },
            heads: statement.heads,
            keys: false,
        };
        let mut nothing = |_: Captured<'_>| {};
        let also: &mut Sink<'_> = match also {
            Some(also) => also,
            None => &mut nothing,
        };
        let logits = forward.run_under(edits.clone(), &prompt, capture, &mut |c| {
            stream.take(&c);
            also(c);
        })?;
        let words = Words {
            edits,
            statement,
            prompt: &prompt,
            logits: &logits,
        };
        let answers = words.answers(forward, tokenizer, &mut notes)?;
        if !Distribution::new(&logits).is_valid() {
            notes.push(
                "the model's logits are not numbers here: ranks and probabilities mean nothing"
                    .into(),
            );
        }
        if statement.after_attention {
            notes.push("the lens stands between attention and FFN of each layer: the last row is not what the model says".into());
        }
        let residual = |e: &lang::Edit| e.site == lang::Site::Residual;
        if statement.edits.iter().any(residual) {
            notes.push(
                "a RESIDUAL edit is added by no part: from its layer on, contributions do not add up to the logit".into(),
            );
        }
        if let Some(cap) = Head::new(forward.model())?.softcap() {
            notes.push(format!(
                "contributions add up to the logit before the soft cap of {cap}"
            ));
        }
        let tokens = prompt
            .iter()
            .map(|id| answer::text(tokenizer, *id))
            .collect();
        Ok(Self {
            view: TraceView {
                model: name.to_owned(),
                prompt: statement.prompt.clone(),
                tokens,
                n_layers: n_layers as u32,
                hidden_size: hidden as u32,
                after_attention: statement.after_attention,
                positions: Vec::with_capacity(span.len()),
                edits: statement.edits.iter().map(ToString::to_string).collect(),
                facts: 0,
                notes,
                answers: answers.clone(),
            },
            ids: answers.iter().map(|a| a.token.id).collect(),
            stream,
            top: statement.top.unwrap_or(TOP) as usize,
            after_attention: statement.after_attention,
            next: span.start,
        })
    }

    /// Positions read, and how many there are.
    pub fn progress(&self) -> (usize, usize) {
        let span = self.stream.positions();
        (self.next - span.start, span.len())
    }

    /// Reads the next position. Returns whether there are more.
    ///
    /// # Errors
    /// As the engine's.
    pub fn advance(
        &mut self,
        forward: &mut dyn Forward,
        tokenizer: &Tokenizer,
    ) -> Result<bool, TraceError> {
        let span = self.stream.positions();
        if self.next < span.end {
            let read = Reading {
                stream: &self.stream,
                ids: &self.ids,
                top: self.top,
                after_attention: self.after_attention,
            };
            let position = read.position(forward, tokenizer, self.next)?;
            self.view.positions.push(position);
            self.next += 1;
        }
        Ok(self.next < span.end)
    }

    /// What there is so far.
    pub fn view(&self) -> &TraceView {
        &self.view
    }

    /// The trace, whole or as far as it has come, with its vectors.
    pub fn finish(self) -> (TraceView, Stream) {
        (self.view, self.stream)
    }
}

/// How positions of a stream are read.
pub struct Reading<'a> {
    /// The vectors.
    pub stream: &'a Stream,
    /// Tokens followed; none: what is said at the position.
    pub ids: &'a [u32],
    /// Candidates a waypoint.
    pub top: usize,
    /// Whether the lens is put on the stream between attention and FFN.
    pub after_attention: bool,
}

impl Reading<'_> {
    /// Reads one position.
    ///
    /// # Errors
    /// As the engine's.
    pub fn position(
        &self,
        forward: &mut dyn Forward,
        tokenizer: &Tokenizer,
        position: usize,
    ) -> Result<PositionTrace, TraceError> {
        let (end, lenses) = self.lenses(forward, position)?;
        let ids = match self.ids {
            [] => end.top(1).into_iter().map(|(id, _)| id).collect(),
            ids => ids.to_vec(),
        };
        let model = forward.model();
        let n_layers = self.stream.n_layers();
        let head = Head::new(model)?;
        let last = self.stream.vector(position, n_layers, Part::Residual);
        let directions = ids.iter().map(|id| head.direction(*id, last));
        let directions: Vec<Direction> = directions.collect::<Result<_, _>>()?;
        let parts: Vec<_> = directions
            .iter()
            .map(|d| attribution::parts(self.stream, position, d))
            .collect();
        let mut waypoints = Vec::with_capacity(n_layers + 1);
        for (layer, lens) in lenses.iter().enumerate() {
            let heads = if layer > 0 && self.stream.has_heads() {
                attribution::heads(model, self.stream, position, layer, &directions)?
            } else {
                vec![Vec::new(); directions.len()]
            };
            let tracks = ids.iter().zip(&parts).zip(heads);
            let tracks = tracks.map(|((id, (_, layers)), head_logits)| {
                let at = layer.checked_sub(1).and_then(|l| layers.get(l));
                let (attn_logit, ffn_logit) = at.copied().unwrap_or((0.0, 0.0));
                let standing = lens.of.standing(*id);
                Track {
                    rank: standing.rank,
                    prob: standing.prob,
                    logit: standing.logit,
                    attn_logit,
                    ffn_logit,
                    head_logits,
                }
            });
            let tracks = tracks.collect();
            let norm_of = |part| norm(self.stream.vector(position, layer, part));
            let distribution = &lens.of;
            let top = distribution.top(self.top).into_iter();
            waypoints.push(Waypoint {
                layer: layer as u32,
                residual_norm: norm_of(Part::Residual),
                attn_norm: norm_of(Part::AttnDelta),
                ffn_norm: norm_of(Part::FfnDelta),
                top: top
                    .map(|(id, prob)| Candidate {
                        token: answer::text(tokenizer, id),
                        prob,
                    })
                    .collect(),
                entropy: Some(distribution.entropy()),
                kl_to_final: Some(lens.kl_to_final),
                tracks,
            });
        }
        let phases = (0..ids.len()).map(|a| {
            let tracks: Vec<&Track> = waypoints.iter().filter_map(|w| w.tracks.get(a)).collect();
            phase::transition(&tracks, self.after_attention)
        });
        Ok(PositionTrace {
            position: position as u32,
            tracked: ids.iter().map(|id| answer::text(tokenizer, *id)).collect(),
            phases: phases.collect(),
            embedding_logits: parts.iter().map(|p| p.0).collect(),
            constant_logits: directions.iter().map(|d| d.constant).collect(),
            waypoints,
        })
    }

    /// What the model says, and the lens after every layer, the embedding first; the last is the model's own unless the
    /// lens is put between attention and FFN.
    fn lenses(
        &self,
        forward: &mut dyn Forward,
        position: usize,
    ) -> Result<(Distribution, Vec<Lens>), TraceError> {
        let n_layers = self.stream.n_layers();
        let last = self.stream.vector(position, n_layers, Part::Residual);
        let mut end = Distribution::new(&[]);
        // Alone: bit for bit what the head made of it.
        forward.lens(last, &mut |_, logits| end = Distribution::new(logits))?;
        let mut columns = Vec::with_capacity((n_layers + 1) * self.stream.hidden_size());
        for layer in 0..=n_layers {
            if self.after_attention && layer > 0 {
                let before = self.stream.vector(position, layer - 1, Part::Residual);
                let delta = self.stream.vector(position, layer, Part::AttnDelta);
                columns.extend(before.iter().zip(delta).map(|(x, a)| x + a));
            } else if layer < n_layers {
                columns.extend(self.stream.vector(position, layer, Part::Residual));
            }
        }
        let mut lenses = Vec::with_capacity(n_layers + 1);
        forward.lens(&columns, &mut |_, logits| {
            let of = Distribution::new(logits);
            lenses.push(Lens {
                kl_to_final: end.kl(&of),
                of,
            });
        })?;
        if lenses.len() == n_layers {
            lenses.push(Lens {
                kl_to_final: if end.is_valid() { 0.0 } else { f64::NAN },
                of: end.clone(),
            });
        }
        Ok((end, lenses))
    }
}

struct Lens {
    of: Distribution,
    kl_to_final: f64,
}

/// The words of a statement after a run of its prompt.
struct Words<'a> {
    /// In force while the prompt ran.
    edits: Option<Arc<Edits>>,
    statement: &'a Trace,
    prompt: &'a [u32],
    /// What the run said, `[n_vocab]`.
    logits: &'a [f32],
}

impl Words<'_> {
    /// The tokens followed: of every word the form that the model finds likelier.
    fn answers(
        &self,
        forward: &mut dyn Forward,
        tokenizer: &Tokenizer,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Answer>, TraceError> {
        let mut all = Vec::with_capacity(self.statement.answers.len());
        for word in &self.statement.answers {
            let forms = answer::continuations(tokenizer, &self.statement.prompt, word)?;
            let pieces = likeliest(&forms, self.logits).unwrap_or(&[]);
            let texts: Vec<_> = pieces
                .iter()
                .map(|id| answer::text(tokenizer, *id))
                .collect();
            let Some(token) = texts.first().cloned() else {
                continue;
            };
            if token.text != *word {
                let several = match texts.len() {
                    1 => String::new(),
                    n => format!(", the first of its {n} tokens"),
                };
                notes.push(format!(
                    "FOR \"{word}\" follows {:?} (id {}){several}",
                    token.text, token.id,
                ));
            }
            all.push(Answer {
                word: word.clone(),
                word_prob: self.word_prob(forward, pieces)?,
                token,
                pieces: texts,
            });
        }
        if all.iter().any(|a| a.word_prob.is_some()) {
            // Other texts have run since: the lens rounds as the last run did.
            let edits = self.edits.clone();
            forward.run_under(edits, self.prompt, Capture::LAST, &mut |_| {})?;
        }
        Ok(all)
    }

    /// Probability of `pieces` after the prompt, the product of each after those before it; `None` for a single one.
    fn word_prob(
        &self,
        forward: &mut dyn Forward,
        pieces: &[u32],
    ) -> Result<Option<f64>, TraceError> {
        let [first, rest @ ..] = pieces else {
            return Ok(None);
        };
        if rest.is_empty() {
            return Ok(None);
        }
        let mut ids = self.prompt.to_vec();
        ids.push(*first);
        let mut prob = Distribution::new(self.logits).prob(*first);
        for piece in rest {
            let edits = self.edits.clone();
            let logits = forward.run_under(edits, &ids, Capture::LAST, &mut |_| {})?;
            prob *= Distribution::new(&logits).prob(*piece);
            ids.push(*piece);
        }
        Ok(Some(prob))
    }
}

/// The form of a word whose first token the model finds likelier; of equals the first.
pub fn likeliest<'f>(forms: &'f [Vec<u32>], logits: &[f32]) -> Option<&'f [u32]> {
    let logit = |ids: &Vec<u32>| {
        let id = ids.first().map_or(usize::MAX, |id| *id as usize);
        logits.get(id).copied().unwrap_or(f32::NEG_INFINITY)
    };
    let by = |a: &&Vec<u32>, b: &&Vec<u32>| logit(a).total_cmp(&logit(b));
    forms.iter().rev().max_by(by).map(Vec::as_slice)
}
