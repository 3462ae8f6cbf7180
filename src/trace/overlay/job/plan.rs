//! What a statement is to try: layers, tokens of the answer, and the goal.

use super::{SAY, SILENCE};
use crate::tokenizer::Tokenizer;
use crate::trace::answer;
use crate::trace::lang;
use crate::trace::overlay::rules::Task;
use crate::trace::overlay::search::Goal;
use crate::trace::overlay::{Kind, OverlayError};
use crate::trace::readout::{Distribution, Standing};

/// The layers to try.
pub(super) fn layers(wanted: Option<u32>, n: usize) -> Result<Vec<usize>, OverlayError> {
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
pub(super) fn form(forms: &[Vec<u32>], task: Task, now: &Distribution) -> Vec<u32> {
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

/// What the answer's first token, which stands at `standing`, is to be brought to.
pub(super) fn goal(
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
