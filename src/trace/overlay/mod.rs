//! Facts as rank-one edits of feed-forward blocks, kept beside the model and never written into it.
//!
//! An [`Overlay`] is a list of facts, inserted or deleted, each of one or more edits `output += value (key . input)`
//! (ROME, <https://arxiv.org/abs/2202.05262>, made here by forward passes alone). [`OverlayJob`] makes and removes them,
//! [`Overlay::edits`] gives them to an engine, so that whatever runs on it (generation, traces, evaluations) shows them.

mod background;
mod error;
mod file;
mod fingerprint;
mod job;
mod report;
mod rules;
mod search;
mod trial;
mod whiten;

#[cfg(test)]
mod tests;

pub use error::OverlayError;
pub use fingerprint::Provenance;
pub use job::OverlayJob;
pub use report::{Change, LayerTried, Report};

use crate::engine::edit::{Edits, RankOne};
use crate::model::Model;
use crate::trace::figures::TokenText;
use crate::trace::render::cells::prob;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Facts of an overlay at most.
pub const MAX_FACTS: usize = 4096;
/// Edits of one fact at most: tokens of its answer.
pub const MAX_EDITS: usize = 64;

/// What an entry of an overlay does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Makes the model say an answer.
    Inserted,
    /// Keeps it from saying one that it knows.
    Deleted,
}

/// Where an answer stands after its prompt.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reached {
    /// The worst rank of its tokens, each after those before it; of a deleted one, that of its first token.
    pub rank: u32,
    /// Probability of all of them, the product; of a deleted one, that of its first token.
    pub prob: f64,
}

/// An entry of an overlay.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// Inserted or deleted.
    pub kind: Kind,
    /// The text that the answer follows.
    pub prompt: String,
    /// The answer, as the statement had it.
    pub answer: String,
    /// Its tokens.
    pub pieces: Vec<TokenText>,
    /// The layer edited, 1 to the number of layers.
    pub layer: u32,
    /// Where the answer stood before.
    pub before: Reached,
    /// And with the fact in force.
    pub after: Reached,
    /// Length of the largest value added, over the length of what the block adds at that place without it.
    pub size: f64,
    /// The changes, all of `layer`: one for every token that the model did not say by itself.
    pub edits: Vec<RankOne>,
}

impl Fact {
    /// Whether this is about a prompt.
    pub(super) fn is_of(&self, kind: Kind, prompt: &str) -> bool {
        self.kind == kind && self.prompt == prompt
    }

    /// Whether this has an answer; a space in front of it is none of it.
    pub(super) fn says(&self, answer: &str) -> bool {
        self.answer.trim() == answer.trim()
    }

    /// A line for lists: `INSERT "The capital of France is" -> "London"  layer 6, P 0.934`.
    pub fn line(&self) -> String {
        let verb = match self.kind {
            Kind::Inserted => "INSERT",
            Kind::Deleted => "DELETE",
        };
        format!(
            "{verb} {:?} -> {:?}  layer {}, P {} -> {}, rank {} -> {}",
            self.prompt,
            self.answer,
            self.layer,
            prob(self.before.prob),
            prob(self.after.prob),
            self.before.rank,
            self.after.rank
        )
    }
}

/// Facts of one model.
#[derive(Debug, Clone, PartialEq)]
pub struct Overlay {
    provenance: Provenance,
    facts: Vec<Fact>,
}

impl Overlay {
    /// An empty one for a model; `name` is what the model is called where the overlay is refused by another.
    pub fn new(name: &str, model: &Model) -> Self {
        Self {
            provenance: Provenance::of(name, model),
            facts: Vec::new(),
        }
    }

    /// The model it is of.
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// Its facts, the oldest first.
    pub fn facts(&self) -> &[Fact] {
        &self.facts
    }

    /// A line for every fact.
    pub fn lines(&self) -> Vec<String> {
        self.facts.iter().map(Fact::line).collect()
    }

    /// Refuses another model than the one this was made with.
    ///
    /// # Errors
    /// [`OverlayError::OtherModel`].
    pub fn check_model(&self, name: &str, model: &Model) -> Result<(), OverlayError> {
        match self.provenance.differs(&Provenance::of(name, model)) {
            None => Ok(()),
            Some(why) => Err(OverlayError::OtherModel {
                theirs: self.provenance.name.clone(),
                ours: name.to_owned(),
                why,
            }),
        }
    }

    /// The changes of all facts, for an engine or reference of the same model.
    ///
    /// # Errors
    /// A layer or a length that the model does not have.
    pub fn edits(&self, model: &Model) -> Result<Edits, OverlayError> {
        Ok(Edits::new(model, Vec::new(), self.rank_one())?)
    }

    /// The changes of all facts; `None` where there is nothing to change.
    ///
    /// # Errors
    /// As [`Self::edits`].
    pub fn in_force(&self, model: &Model) -> Result<Option<Arc<Edits>>, OverlayError> {
        let edits = self.edits(model)?;
        Ok((!edits.is_empty()).then(|| Arc::new(edits)))
    }

    pub(super) fn rank_one(&self) -> Vec<RankOne> {
        let edits = self.facts.iter().flat_map(|f| &f.edits);
        edits.cloned().collect()
    }

    /// Takes facts out; how many.
    pub(super) fn take_out(&mut self, out: impl Fn(&Fact) -> bool) -> usize {
        let before = self.facts.len();
        self.facts.retain(|f| !out(f));
        before - self.facts.len()
    }

    /// Adds a fact.
    ///
    /// # Errors
    /// [`OverlayError::Full`].
    pub(super) fn add(&mut self, fact: Fact) -> Result<(), OverlayError> {
        if self.facts.len() >= MAX_FACTS {
            return Err(OverlayError::Full {
                what: format!("an overlay holds {MAX_FACTS} facts"),
            });
        }
        self.facts.push(fact);
        Ok(())
    }
}
