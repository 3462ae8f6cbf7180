//! `INSERT` and `DELETE`, run in pieces, so that whoever drives them can do something else between two pieces.

use super::background::Texts;
use super::report::{Change, LayerTried, Report};
use super::rules::{self, Task};
use super::search::{Goal, Next, Search};
use super::trial::{self, OWN_POSITIONS, Seen};
use super::whiten::{Background, Key};
use super::{Fact, Kind, MAX_EDITS, Overlay, OverlayError, Reached};
use crate::engine::edit::RankOne;
use crate::tokenizer::Tokenizer;
use crate::trace::answer;
use crate::trace::figures::Candidate;
use crate::trace::forward::Forward;
use crate::trace::lang;
use crate::trace::readout::{Distribution, Standing};
use crate::trace::vector::norm;

/// Probability that an inserted answer is to have.
const SAY: f64 = 0.9;
/// Probability that a deleted answer is to have at most.
const SILENCE: f64 = 0.01;
/// By how much a deletion must lower the probability where it cannot reach that.
const LOWER: f64 = 10.0;
/// First size tried, times what the block adds at that place anyway.
const FIRST_SIZE: f64 = 0.1;
/// Directions tried one after the other, each from where the last one led.
const ROUNDS: u32 = 3;
/// Forward passes of one call at most, about.
const PASSES: usize = 4;
/// Mean divergence at prompts with one word changed, nats, from which on the reader is warned.
const MUCH: f64 = 1.0;
/// Candidates reported.
const SAYS: usize = 5;

/// A statement being carried out.
pub struct OverlayJob {
    overlay: Overlay,
    report: Report,
    goal: Goal,
    prompt: Vec<u32>,
    /// Tokens of the answer that get an edit.
    pieces: Vec<u32>,
    texts: Texts,
    layers: Vec<usize>,
    one_layer: bool,
    /// Changes of the facts that are there already.
    base: Vec<RankOne>,
    /// Of every layer, inputs at the background.
    around: Vec<Background>,
    /// What is said at the end of every text of the background.
    ends: Vec<Distribution>,
    stage: Stage,
    found: Vec<Found>,
    passes: usize,
}

enum Stage {
    /// Running the texts of the background; the next one.
    Around(usize),
    /// Making edits in the layer of this number.
    Making(usize, Box<Making>),
    /// Measuring what the edits of a layer change elsewhere.
    Elsewhere(usize, Box<Made>),
    Over,
}

/// Edits of a layer that are not all there yet.
#[derive(Default)]
struct Making {
    made: Made,
    /// The token that is to get an edit.
    piece: usize,
    key: Option<Key>,
    round: u32,
    /// The value that earlier rounds have led to, and the direction searched.
    start: Vec<f32>,
    way: Vec<f32>,
    search: Option<Search>,
    /// The best value of all rounds, and where the token stands with it.
    best: Option<(Vec<f32>, Standing)>,
    ffn: f64,
}

/// Edits of a layer.
#[derive(Default)]
struct Made {
    edits: Vec<RankOne>,
    size: f64,
    overlap: f64,
    overlap_new: f64,
    far: Vec<f64>,
    near: Vec<f64>,
}

/// A layer in which the statement was carried out.
struct Found {
    made: Made,
    layer: usize,
    after: Reached,
    /// Where the answer stands after the prompt behind a sentence, before and now.
    behind: [Reached; 2],
    says: Vec<Candidate>,
}

impl Made {
    /// By how much the edits change what is said elsewhere: sentences and prompts with one word changed count the same.
    fn elsewhere(&self) -> f64 {
        let of = |kls: &[f64]| mean(kls).unwrap_or(0.0);
        of(&self.far) + of(&self.near)
    }
}

impl OverlayJob {
    /// Begins a statement: takes out of a copy of the overlay what it replaces, and looks at what the model says. The
    /// passes of a job run on an empty cache under the overlay's edits and leave none in force.
    ///
    /// # Errors
    /// A statement that has nothing to do, a text that cannot be run, or a layer that does not exist.
    pub fn start(
        forward: &mut dyn Forward,
        tokenizer: &Tokenizer,
        overlay: &Overlay,
        kind: Kind,
        fact: &lang::Fact,
    ) -> Result<Self, OverlayError> {
        let mut new = overlay.clone();
        let task = rules::apply(&mut new, kind, &fact.prompt, &fact.answer)?;
        let prompt = answer::encode(tokenizer, &fact.prompt)?;
        let layers = layers(fact.layer, forward.model().hparams.n_layers)?;
        let was = trial::say(forward, &prompt, &overlay.rank_one())?;
        let base = new.rank_one();
        let now = trial::say(forward, &prompt, &base)?;
        let forms = answer::continuations(tokenizer, &fact.prompt, &fact.answer)?;
        let pieces = form(&forms, task, &now);
        if pieces.len() > MAX_EDITS {
            return Err(OverlayError::Statement(format!(
                "the answer has {} tokens, a fact can have {MAX_EDITS}; give a shorter one",
                pieces.len()
            )));
        }
        let first = pieces.first().copied().unwrap_or_default();
        let standing = now.standing(first);
        if !standing.prob.is_finite() {
            return Err(OverlayError::Statement(
                "the model's logits after this prompt are not numbers; check the file with cbtop inspect".into(),
            ));
        }
        let whole = matches!(task, Task::Make(Kind::Inserted) | Task::TakenOut(_));
        let watched = if whole { &pieces[..] } else { &pieces[..1] };
        let goal = goal(kind, &standing, &now, tokenizer, fact, task)?;
        let (before, _) = reached(forward, &prompt, watched, &overlay.rank_one(), Some(&was))?;
        let (after, _) = reached(forward, &prompt, watched, &base, Some(&now))?;
        let texts = pieces.iter().map(|id| answer::text(tokenizer, *id).text);
        let texts = texts.collect();
        let report = Report {
            change: match task {
                Task::Make(Kind::Inserted) => Change::Inserted,
                Task::Make(Kind::Deleted) => Change::Deleted,
                Task::TakenOut(change) => change,
            },
            prompt: fact.prompt.clone(),
            answer: fact.answer.clone(),
            pieces: texts,
            layer: None,
            edits: 0,
            before,
            after,
            says: candidates(tokenizer, &now),
            size: None,
            overlap: None,
            overlap_new: None,
            kl_background: None,
            kl_near: None,
            behind: None,
            tried: Vec::new(),
            notes: Vec::new(),
        };
        if task == Task::Make(Kind::Inserted) && after.rank == 1 && after.prob >= SAY {
            return Err(OverlayError::Statement(format!(
                "the model says {:?} after {:?} already (P {:.4}); there is nothing to insert",
                fact.answer, fact.prompt, after.prob
            )));
        }
        let making = matches!(task, Task::Make(_));
        Ok(Self {
            texts: if making {
                Texts::of(tokenizer, &fact.prompt, prompt.len())?
            } else {
                Texts::none()
            },
            overlay: new,
            report,
            goal,
            pieces: if whole { pieces } else { vec![first] },
            prompt,
            around: vec![Background::default(); layers.len()],
            ends: Vec::new(),
            layers,
            one_layer: fact.layer.is_some(),
            base,
            stage: if making {
                Stage::Around(0)
            } else {
                Stage::Over
            },
            found: Vec::new(),
            passes: 0,
        })
    }

    /// Forward passes done, and how many there will be, about.
    pub fn progress(&self) -> (usize, usize) {
        let texts = self.texts.ids.len();
        let layer = self.pieces.len() * 10 + self.texts.measured().count();
        let all = texts + self.layers.len() * layer;
        let done = match &self.stage {
            Stage::Around(next) => *next,
            Stage::Making(l, m) => texts + l * layer + m.piece * 10 + self.passes.min(9),
            Stage::Elsewhere(l, made) => {
                let measured = made.far.len() + made.near.len();
                texts + l * layer + self.pieces.len() * 10 + measured
            }
            Stage::Over => all,
        };
        (done.min(all), all)
    }

    /// Goes on by a few forward passes. Returns whether there is more to do.
    ///
    /// # Errors
    /// As the engine's; a key that cannot be made in the only layer.
    pub fn advance(
        &mut self,
        forward: &mut dyn Forward,
        tokenizer: &Tokenizer,
    ) -> Result<bool, OverlayError> {
        // An error leaves the job over, with nothing found.
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Around(next) => self.look_around(forward, next)?,
            Stage::Making(layer, making) => self.make(forward, layer, making)?,
            Stage::Elsewhere(layer, made) => self.measure(forward, tokenizer, layer, made)?,
            Stage::Over => Stage::Over,
        };
        Ok(!matches!(self.stage, Stage::Over))
    }

    /// The overlay with the statement carried out, and what that did.
    ///
    /// # Errors
    /// [`OverlayError::NotReached`], [`OverlayError::Full`].
    pub fn finish(mut self, tokenizer: &Tokenizer) -> Result<(Overlay, Report), OverlayError> {
        if !matches!(self.report.change, Change::Inserted | Change::Deleted) {
            return Ok((self.overlay, self.report));
        }
        let by = |a: &Found, b: &Found| a.made.elsewhere().total_cmp(&b.made.elsewhere());
        let Some(best) = std::mem::take(&mut self.found).into_iter().min_by(by) else {
            return Err(self.not_reached());
        };
        let kind = match self.goal {
            Goal::Say(_) => Kind::Inserted,
            Goal::Silence(_) => Kind::Deleted,
        };
        let pieces = self.pieces.iter().map(|id| answer::text(tokenizer, *id));
        let fact = Fact {
            kind,
            prompt: self.report.prompt.clone(),
            answer: self.report.answer.clone(),
            pieces: pieces.collect(),
            layer: best.layer as u32,
            before: self.report.before,
            after: best.after,
            size: best.made.size,
            edits: best.made.edits,
        };
        let report = &mut self.report;
        report.take(&fact);
        report.says = best.says;
        report.overlap = Some(best.made.overlap);
        report.overlap_new = Some(best.made.overlap_new);
        report.behind = Some(best.behind);
        report.kl_background = mean(&best.made.far);
        report.kl_near = mean(&best.made.near);
        match kind {
            Kind::Inserted if fact.after.prob < SAY => report.notes.push(format!(
                "the answer comes first, but with P {:.4}, less than the {SAY} wanted",
                fact.after.prob
            )),
            Kind::Deleted if fact.after.prob > SILENCE => report.notes.push(format!(
                "the answer does not come first any more, but keeps P {:.4}, more than the {SILENCE} wanted",
                fact.after.prob
            )),
            _ => {}
        }
        if let Some(near) = report.kl_near.filter(|kl| *kl > MUCH) {
            report.notes.push(format!(
                "prompts like this one are changed too (mean KL {near:.2} nats): the layer can hardly tell them apart, another \
                 one (LAYER n) may"
            ));
        }
        if kind == Kind::Deleted && report.pieces.len() > 1 {
            report.notes.push(format!(
                "{:?} is {} tokens: the first, {:?}, is kept from coming, for every word that begins with it",
                report.answer,
                report.pieces.len(),
                report.pieces.first().map_or("", String::as_str)
            ));
        }
        self.overlay.add(fact)?;
        Ok((self.overlay, self.report))
    }

    fn not_reached(&self) -> OverlayError {
        let tried = self.report.tried.iter();
        let best = tried
            .filter_map(|t| Some((t.layer, t.after?)))
            .max_by(|a, b| {
                let score = |r: &Reached| self.goal.score(&r.standing());
                score(&a.1).total_cmp(&score(&b.1))
            });
        let what = match self.goal {
            Goal::Say(_) => "does not come first",
            Goal::Silence(_) => "still comes first",
        };
        let what = format!(
            "{:?} {what} after {:?}",
            self.report.answer, self.report.prompt
        );
        OverlayError::NotReached {
            what: match best {
                Some((layer, r)) => format!(
                    "{what}: at best rank {}, P {:.4} with an edit of layer {layer} (before: rank {}, P {:.4})",
                    r.rank, r.prob, self.report.before.rank, self.report.before.prob
                ),
                None => format!("{what}: no layer tried can tell this prompt from other texts"),
            },
            one_layer: self.one_layer,
        }
    }

    fn look_around(
        &mut self,
        forward: &mut dyn Forward,
        mut next: usize,
    ) -> Result<Stage, OverlayError> {
        for _ in 0..PASSES {
            let Some(ids) = self.texts.ids.get(next) else {
                return Ok(self.next_layer(0));
            };
            let end = if self.texts.is_for_keys(next) {
                let text = (next, next < self.texts.sentences);
                let (base, layers, around) = (&self.base, &self.layers, &mut self.around);
                trial::look_around(forward, ids, base, layers, text, around)?
            } else {
                trial::say(forward, ids, &self.base)?
            };
            self.ends.push(end);
            next += 1;
        }
        Ok(Stage::Around(next))
    }

    fn next_layer(&mut self, layer: usize) -> Stage {
        self.passes = 0;
        if layer < self.layers.len() {
            Stage::Making(layer, Box::default())
        } else {
            Stage::Over
        }
    }

    /// The prompt with the answer's tokens before `piece`.
    fn ids(&self, piece: usize) -> Vec<u32> {
        let said = self.pieces.get(..piece).unwrap_or_default();
        [&self.prompt[..], said].concat()
    }

    fn make(
        &mut self,
        forward: &mut dyn Forward,
        layer: usize,
        mut m: Box<Making>,
    ) -> Result<Stage, OverlayError> {
        let Some(token) = self.pieces.get(m.piece).copied() else {
            return Ok(Stage::Elsewhere(layer, Box::new(m.made)));
        };
        let Some(search) = &mut m.search else {
            return self.begin_round(forward, layer, m, token);
        };
        let ids = [
            &self.prompt[..],
            self.pieces.get(..m.piece).unwrap_or_default(),
        ]
        .concat();
        for _ in 0..PASSES {
            let Next::Try(size) = search.next() else {
                return self.end_round(layer, m);
            };
            let Some(key) = &m.key else { break };
            let changes = [
                &self.base[..],
                &m.made.edits,
                &[change(self.layers[layer], key, &m.start, &m.way, size)],
            ]
            .concat();
            let end = trial::say(forward, &ids, &changes)?;
            search.tell(end.standing(token));
            self.passes += 1;
        }
        Ok(Stage::Making(layer, m))
    }

    /// Looks at where the answer's next token stands, and begins to search for a value where it does not stand well.
    fn begin_round(
        &mut self,
        forward: &mut dyn Forward,
        layer: usize,
        mut m: Box<Making>,
        token: u32,
    ) -> Result<Stage, OverlayError> {
        let at = self.layers[layer];
        let ids = self.ids(m.piece);
        let mut changes = [&self.base[..], &m.made.edits].concat();
        if let Some(key) = &m.key {
            changes.push(change(at, key, &m.start, &[], 0.0));
        }
        let own = (self.texts.ids.len(), OWN_POSITIONS);
        let seen: Seen = trial::look(forward, &ids, &changes, &[at], own)?;
        self.passes += 1;
        if m.key.is_none() {
            if self.goal.met(&seen.end.standing(token)) {
                m.piece += 1;
                return Ok(Stage::Making(layer, m));
            }
            let mut around = self.around[layer].clone();
            if let Some(before) = seen.before.first() {
                around.extend(before);
            }
            let said = self.pieces.get(..m.piece).unwrap_or_default();
            let mut own = seen.keys.clone();
            for text in &self.texts.behind {
                let ids = [text, said].concat();
                let seen = trial::look(forward, &ids, &changes, &[at], (0, 0))?;
                own.extend(seen.keys);
            }
            let Some(key) = around.key(&own) else {
                return self.no_key(layer);
            };
            m.made.overlap = m.made.overlap.max(key.overlap);
            m.made.overlap_new = m.made.overlap_new.max(key.held_out);
            m.key = Some(key);
            m.start = vec![0.0; seen.last.len()];
            m.ffn = seen.ffn.first().copied().unwrap_or(0.0);
        }
        m.way = trial::direction(forward.model(), at, &seen, token, self.goal)?;
        let first = FIRST_SIZE * m.ffn;
        let first = if first > 0.0 && first.is_finite() {
            first
        } else {
            FIRST_SIZE
        };
        m.search = Some(Search::new(self.goal, first));
        Ok(Stage::Making(layer, m))
    }

    fn no_key(&mut self, layer: usize) -> Result<Stage, OverlayError> {
        let at = self.layers[layer] as u32;
        if self.one_layer {
            return Err(OverlayError::NoKey {
                layer: at,
                prompt: self.report.prompt.clone(),
            });
        }
        self.tried(layer, false, None, None);
        Ok(self.next_layer(layer + 1))
    }

    fn end_round(&mut self, layer: usize, mut m: Box<Making>) -> Result<Stage, OverlayError> {
        let found = m.search.take().and_then(|s| s.found());
        let Some(found) = found else {
            self.tried(layer, false, None, None);
            return Ok(self.next_layer(layer + 1));
        };
        m.start = along(&m.start, &m.way, found.size);
        m.round += 1;
        let score = |s: &Standing| self.goal.score(s);
        let (value, standing) = match m.best.take() {
            Some(best) if score(&best.1) >= score(&found.standing) => best,
            _ => (m.start.clone(), found.standing),
        };
        if !self.goal.met(&standing) && m.round < ROUNDS {
            m.best = Some((value, standing));
            return Ok(Stage::Making(layer, m));
        }
        if !self.enough(&standing) {
            self.tried(layer, false, Some(Reached::of(&standing)), None);
            return Ok(self.next_layer(layer + 1));
        }
        if let Some(key) = m.key.take() {
            let size = norm(&value) / m.ffn.max(f64::MIN_POSITIVE);
            m.made.size = m.made.size.max(size.min(f64::MAX));
            let edit = change(self.layers[layer], &key, &value, &[], 0.0);
            m.made.edits.push(edit);
        }
        let next = Making {
            piece: m.piece + 1,
            made: m.made,
            ..Making::default()
        };
        self.passes = 0;
        Ok(Stage::Making(layer, Box::new(next)))
    }

    /// Whether what was reached is worth being kept: the rank, and of a deletion a much lower probability.
    fn enough(&self, s: &Standing) -> bool {
        self.goal.ranked(s)
            && match self.goal {
                Goal::Say(_) => true,
                Goal::Silence(_) => s.prob <= SILENCE.max(self.report.before.prob / LOWER),
            }
    }

    fn tried(&mut self, layer: usize, reached: bool, after: Option<Reached>, kl: Option<f64>) {
        self.report.tried.push(LayerTried {
            layer: self.layers[layer] as u32,
            reached,
            after,
            kl_elsewhere: kl,
        });
    }

    fn measure(
        &mut self,
        forward: &mut dyn Forward,
        tokenizer: &Tokenizer,
        layer: usize,
        mut made: Box<Made>,
    ) -> Result<Stage, OverlayError> {
        let changes = [&self.base[..], &made.edits].concat();
        let sentences = self.texts.sentences;
        for _ in 0..PASSES {
            let Some(text) = self.texts.measured().nth(made.far.len() + made.near.len()) else {
                break;
            };
            let (Some(ids), Some(end)) = (self.texts.ids.get(text), self.ends.get(text)) else {
                break;
            };
            let kl = end.kl(&trial::say(forward, ids, &changes)?);
            let of = if text < sentences {
                &mut made.far
            } else {
                &mut made.near
            };
            of.push(kl);
        }
        if made.far.len() + made.near.len() < self.texts.measured().count() {
            return Ok(Stage::Elsewhere(layer, made));
        }
        let (after, end) = reached(forward, &self.prompt, &self.pieces, &changes, None)?;
        let behind = &self.texts.behind_new;
        let (behind_before, _) = reached(forward, behind, &self.pieces, &self.base, None)?;
        let (behind, _) = reached(forward, behind, &self.pieces, &changes, None)?;
        // The edit of a later token may have moved what an earlier one did.
        let kept = self.enough(&after.standing()) && !made.edits.is_empty();
        self.tried(layer, kept, Some(after), Some(made.elsewhere()));
        if kept {
            self.found.push(Found {
                made: *made,
                layer: self.layers[layer],
                after,
                behind: [behind_before, behind],
                says: candidates(tokenizer, &end),
            });
        }
        Ok(self.next_layer(layer + 1))
    }
}

impl Reached {
    fn of(s: &Standing) -> Self {
        Self {
            rank: s.rank,
            // Rounding may leave a probability a little above one.
            prob: s.prob.clamp(0.0, 1.0),
        }
    }

    fn standing(self) -> Standing {
        Standing {
            rank: self.rank,
            prob: self.prob,
            logit: f64::NAN,
        }
    }
}

/// The layers to try.
fn layers(wanted: Option<u32>, n: usize) -> Result<Vec<usize>, OverlayError> {
    if let Some(layer) = wanted {
        let layer = layer as usize;
        return if (1..=n).contains(&layer) {
            Ok(vec![layer])
        } else {
            Err(OverlayError::Statement(format!(
                "layer {layer} does not exist: facts can be written into layers 1 to {n}"
            )))
        };
    }
    let mut layers = vec![n / 2, 2 * n / 3, 5 * n / 6, n.saturating_sub(1)];
    layers.iter_mut().for_each(|l| *l = (*l).max(1));
    layers.dedup();
    Ok(layers)
}

/// The tokens of the answer: what is inserted reads on from the prompt, so the first form, with a space; what is there
/// already, in the form in which it is likelier.
fn form(forms: &[Vec<u32>], task: Task, now: &Distribution) -> Vec<u32> {
    let prob = |ids: &&Vec<u32>| ids.first().map_or(0.0, |id| now.prob(*id));
    let found = if task == Task::Make(Kind::Inserted) {
        forms.first()
    } else {
        // Of equals the last one wins.
        forms
            .iter()
            .rev()
            .max_by(|a, b| prob(a).total_cmp(&prob(b)))
    };
    found.cloned().unwrap_or_default()
}

fn goal(
    kind: Kind,
    standing: &Standing,
    now: &Distribution,
    tokenizer: &Tokenizer,
    fact: &lang::Fact,
    task: Task,
) -> Result<Goal, OverlayError> {
    if task == Task::Make(Kind::Deleted) && standing.rank != 1 {
        let top = now.top(1);
        let said = top.first().map(|t| answer::text(tokenizer, t.0).text);
        return Err(OverlayError::Statement(format!(
            "the model does not say {:?} after {:?} (rank {}, P {:.4}) but {:?}; there is nothing to delete",
            fact.answer,
            fact.prompt,
            standing.rank,
            standing.prob,
            said.unwrap_or_default()
        )));
    }
    Ok(match kind {
        Kind::Inserted => Goal::Say(SAY),
        Kind::Deleted => Goal::Silence(SILENCE),
    })
}

/// Where tokens stand, each after those before it, and what is said after the prompt (`known`, where it is).
fn reached(
    forward: &mut dyn Forward,
    prompt: &[u32],
    pieces: &[u32],
    changes: &[RankOne],
    known: Option<&Distribution>,
) -> Result<(Reached, Distribution), OverlayError> {
    let mut ids = prompt.to_vec();
    let mut all = Reached { rank: 1, prob: 1.0 };
    let mut first = None;
    for (i, piece) in pieces.iter().enumerate() {
        let end = match known {
            Some(known) if i == 0 => known.clone(),
            _ => trial::say(forward, &ids, changes)?,
        };
        let one = end.standing(*piece);
        all.rank = all.rank.max(one.rank);
        all.prob *= one.prob;
        first.get_or_insert(end);
        ids.push(*piece);
    }
    all.prob = all.prob.clamp(0.0, 1.0);
    Ok((all, first.unwrap_or_else(|| Distribution::new(&[]))))
}

fn candidates(tokenizer: &Tokenizer, end: &Distribution) -> Vec<Candidate> {
    let top = end.top(SAYS).into_iter();
    top.map(|(id, prob)| Candidate {
        token: answer::text(tokenizer, id),
        prob,
    })
    .collect()
}

/// `start + size * way`; an empty way leads nowhere.
fn along(start: &[f32], way: &[f32], size: f64) -> Vec<f32> {
    let step = |i: usize| way.get(i).map_or(0.0, |w| f64::from(*w) * size);
    let all = start.iter().enumerate();
    all.map(|(i, v)| (f64::from(*v) + step(i)) as f32).collect()
}

fn change(layer: usize, key: &Key, start: &[f32], way: &[f32], size: f64) -> RankOne {
    RankOne {
        layer,
        key: key.key.as_slice().into(),
        value: along(start, way, size).into(),
    }
}

fn mean(of: &[f64]) -> Option<f64> {
    (!of.is_empty()).then(|| of.iter().sum::<f64>() / of.len() as f64)
}
