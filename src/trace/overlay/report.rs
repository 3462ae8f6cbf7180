//! What a statement did to an overlay.

use super::{Fact, Reached};
use crate::trace::figures::Candidate;
use crate::trace::render::cells::prob;
use serde::{Deserialize, Serialize};

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A fact was inserted.
    Inserted,
    /// One that the model knows was deleted.
    Deleted,
    /// An inserted fact was taken out of the overlay.
    Removed,
    /// A deletion was taken out of the overlay.
    Restored,
}

/// How a layer did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerTried {
    /// 1 to the number of layers.
    pub layer: u32,
    /// Whether the answer got (or lost) rank 1.
    pub reached: bool,
    /// Where it stood then; `None` where no key can be made.
    pub after: Option<Reached>,
    /// Mean divergence at sentences about anything and that at prompts with one word changed, added, nats: the layer with
    /// the smallest is taken. `None` where it was not measured.
    pub kl_elsewhere: Option<f64>,
}

/// What a statement did, with figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What was done.
    pub change: Change,
    /// The prompt.
    pub prompt: String,
    /// The answer.
    pub answer: String,
    /// Its tokens as texts.
    pub pieces: Vec<String>,
    /// The layer of the edits made; `None` where some were only taken out.
    pub layer: Option<u32>,
    /// Edits made.
    pub edits: u32,
    /// Where the answer stood before the statement.
    pub before: Reached,
    /// Where it stands now.
    pub after: Reached,
    /// What the model says first after the prompt now, most probable first.
    pub says: Vec<Candidate>,
    /// Length of the largest value added, over the length of what the block adds there without it.
    pub size: Option<f64>,
    /// Largest `|key . input|` at the background's positions; at the fact's own it is 1.
    pub overlap: Option<f64>,
    /// The same over texts that the key was not made with: what to expect of a new text.
    pub overlap_new: Option<f64>,
    /// Mean Kullback-Leibler divergence at the end of sentences about anything, before against now, nats.
    pub kl_background: Option<f64>,
    /// The same at prompts that differ from the fact's in one word, of which no key was made.
    pub kl_near: Option<f64>,
    /// Where the answer stands after the prompt behind a sentence that had no part in making the edits, before and now.
    pub behind: Option<[Reached; 2]>,
    /// The layers tried.
    pub tried: Vec<LayerTried>,
    /// What the reader should know.
    pub notes: Vec<String>,
}

impl Report {
    /// In lines, the most important first.
    pub fn lines(&self) -> Vec<String> {
        let what = match self.change {
            Change::Inserted => "inserted",
            Change::Deleted => "deleted",
            Change::Removed => "inserted fact taken out",
            Change::Restored => "deletion taken out",
        };
        let mut lines = vec![
            format!("{what}: {:?} -> {:?}", self.prompt, self.answer),
            format!(
                "  rank {} -> {}, P {} -> {}",
                self.before.rank,
                self.after.rank,
                prob(self.before.prob),
                prob(self.after.prob)
            ),
        ];
        let says = self.says.iter().take(3);
        let says: Vec<String> = says
            .map(|c| format!("{:?} {}", c.token.text, prob(c.prob)))
            .collect();
        if !says.is_empty() {
            lines.push(format!("  says now: {}", says.join(", ")));
        }
        if let (Some(layer), Some(size), Some(overlap), Some(new)) =
            (self.layer, self.size, self.overlap, self.overlap_new)
        {
            let edits = if self.edits == 1 { "edit" } else { "edits" };
            lines.push(format!(
                "  layer {layer}: {} {edits}, {size:.2} times what the FFN adds there; fires at most {overlap:.3} at the \
                 background, {new:.3} at texts left out of it (1 at the fact)",
                self.edits
            ));
        }
        if let (Some(far), Some(near)) = (self.kl_background, self.kl_near) {
            lines.push(format!(
                "  elsewhere: mean KL {far:.5} nats at other sentences, {near:.5} at prompts with one word changed"
            ));
        }
        if let Some([before, now]) = self.behind {
            lines.push(format!(
                "  with another sentence in front of the prompt: rank {} -> {}, P {} -> {}",
                before.rank,
                now.rank,
                prob(before.prob),
                prob(now.prob)
            ));
        }
        let notes = self.notes.iter().map(|n| format!("  note: {n}"));
        lines.extend(notes);
        lines
    }

    /// The figures of a fact.
    pub(super) fn take(&mut self, fact: &Fact) {
        self.layer = Some(fact.layer);
        self.edits = fact.edits.len() as u32;
        self.after = fact.after;
        self.size = Some(fact.size);
    }
}
