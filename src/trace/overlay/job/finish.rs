//! The end of a statement: the best layer's edits become a fact, or the figures an error.

use super::{Found, MUCH, OverlayJob, SAY, SILENCE, mean};
use crate::tokenizer::Tokenizer;
use crate::trace::answer;
use crate::trace::overlay::report::{Change, Report};
use crate::trace::overlay::search::Goal;
use crate::trace::overlay::{Fact, Kind, Overlay, OverlayError, Reached};

impl OverlayJob {
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
}
