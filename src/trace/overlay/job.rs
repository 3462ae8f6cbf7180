//! `INSERT` and `DELETE`, run in pieces, so that whoever drives them can do something else between two pieces.

mod finish;
mod making;
mod plan;

use super::background::Texts;
use super::report::{Change, LayerTried, Report};
use super::rules::{self, Task};
use super::search::Goal;
use super::trial;
use super::whiten::Background;
use super::{Kind, MAX_EDITS, Overlay, OverlayError, Reached};
use crate::engine::edit::RankOne;
use crate::tokenizer::Tokenizer;
use crate::trace::answer;
use crate::trace::figures::Candidate;
use crate::trace::forward::Forward;
use crate::trace::lang;
use crate::trace::readout::{Distribution, Standing};
use making::Making;

/// Probability that an inserted answer is to have.
const SAY: f64 = 0.9;
/// Probability that a deleted answer is to have at most.
const SILENCE: f64 = 0.01;
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
        let layers = plan::layers(fact.layer, forward.model().hparams.n_layers)?;
        let was = trial::say(forward, &prompt, &overlay.rank_one())?;
        let base = new.rank_one();
        let now = trial::say(forward, &prompt, &base)?;
        let forms = answer::continuations(tokenizer, &fact.prompt, &fact.answer)?;
        let made = overlay
            .facts()
            .iter()
            .find(|f| f.prompt == fact.prompt && f.says(&fact.answer));
        let pieces = match made {
            // As they were when the fact was made.
            Some(made) if matches!(task, Task::TakenOut(_)) => {
                made.pieces.iter().map(|p| p.id).collect()
            }
            _ => plan::form(&forms, task, &now),
        };
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
        let goal = plan::goal(kind, &standing, &now, tokenizer, fact, task)?;
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

fn mean(of: &[f64]) -> Option<f64> {
    (!of.is_empty()).then(|| of.iter().sum::<f64>() / of.len() as f64)
}
