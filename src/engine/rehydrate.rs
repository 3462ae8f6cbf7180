//! The kv cache from a stream that was captured: without attention, without feed-forward blocks.
//!
//! Keys and values of a layer are functions of the stream before it, so the stream of every layer is all that the cache was
//! made of.

use super::batch::Token;
use super::cpu::exec::Place;
use super::{Engine, EngineError, Observer};
use std::sync::Arc;

/// The stream after a layer at a position, `[n_embd]`: `residual(layer, position)`, where layer 0 is the embedding and
/// positions are those of the sequence. `None` where it is not there.
pub type Residuals<'a, 's> = dyn Fn(usize, usize) -> Option<&'s [f32]> + 'a;

impl<O: Observer> Engine<O> {
    /// Puts positions into the cache of a sequence, behind what it holds, from the stream of a run that was captured: as if
    /// their tokens had been run in `steps` of so many tokens each.
    ///
    /// The cache is that of the captured run bit for bit where the steps, the kernels and the types are the same: a step of
    /// eight tokens or more rounds activations for quantised weights otherwise than a smaller one. The
    /// stream after the last layer is needed of the last position alone, and only for its logits: where it is there, row 0
    /// of the logits is that of the last position, bit for bit again, and decoding goes on from there.
    ///
    /// `ids` are the tokens, where they are known: the stream has to begin with their embeddings, or it is of another model.
    ///
    /// Returns whether there are logits. The last step is then forgotten: nothing of it can be read or run again.
    ///
    /// # Errors
    /// No tokens, a step larger than the chunk, more than the context holds, an id outside the vocabulary; a stream with
    /// gaps, with values that are no numbers, of another width or of another model. Nothing has then changed.
    pub fn rehydrate(
        &mut self,
        seq: usize,
        steps: &[usize],
        ids: Option<&[u32]>,
        residual: &Residuals<'_, '_>,
    ) -> Result<bool, EngineError> {
        let first = self.past_of(seq);
        let tokens = self.check_steps(seq, steps, ids)?;
        let model = Arc::clone(&self.model);
        let (n_layers, n_embd) = (model.hparams.n_layers, model.hparams.n_embd);
        for position in first..first + tokens {
            for layer in 0..n_layers {
                check_vector(residual(layer, position), n_embd, layer, position)?;
            }
        }
        let last = first + tokens - 1;
        let end = residual(n_layers, last);
        if end.is_some() {
            check_vector(end, n_embd, n_layers, last)?;
        }
        // Nothing here is a step that anybody traces.
        let probe = self.exec.take_probe();
        let done = self.put_in(seq, (first, steps, ids), residual, end);
        self.exec.put_probe(probe);
        done
    }

    /// Checks the embeddings, then fills the cache with checked vectors.
    fn put_in(
        &mut self,
        seq: usize,
        (first, steps, ids): (usize, &[usize], Option<&[u32]>),
        residual: &Residuals<'_, '_>,
        end: Option<&[f32]>,
    ) -> Result<bool, EngineError> {
        let model = Arc::clone(&self.model);
        let n_layers = model.hparams.n_layers;
        if ids.is_some() {
            self.check_embeddings(first, steps, ids, residual)?;
        }
        self.input.ids.clear();
        self.input.places.clear();
        self.input.spans.clear();
        let mut done = 0;
        for &n in steps {
            self.step_of(first + done, n, part(ids, done, n));
            self.next.spans.push(self.sequences.enter(seq, n));
            let (exec, pool, step) = (&mut self.exec, &mut self.pool, &self.next);
            exec.embed(&model, pool, step, &mut |_, _| {})
                .map_err(|_| EngineError::WorkerFailed)?;
            for layer in 0..n_layers {
                let mut stream = |t: usize, x: &mut [f32]| {
                    if let Some(from) = residual(layer, first + done + t) {
                        x.copy_from_slice(from);
                    }
                };
                exec.refill(&model, pool, layer, step, &mut stream)
                    .map_err(|_| EngineError::WorkerFailed)?;
            }
            self.sequences.commit(&self.next.spans);
            done += n;
        }
        let (Some(end), Some(&like)) = (end, steps.last()) else {
            return Ok(false);
        };
        self.exec
            .project(&model, &mut self.pool, end, like, &mut self.next)
            .map_err(|_| EngineError::WorkerFailed)?;
        self.input.logit_rows = 1;
        Ok(true)
    }

    /// Tokens of all steps, if they can run.
    fn check_steps(
        &mut self,
        seq: usize,
        steps: &[usize],
        ids: Option<&[u32]>,
    ) -> Result<usize, EngineError> {
        if self.in_step() {
            return refuse("the cache cannot be rebuilt inside a token; finish it first".into());
        }
        let max = self.config.chunk;
        let mut tokens = 0usize;
        for &n in steps {
            if n == 0 {
                return Err(EngineError::Empty);
            }
            if n > max {
                return Err(EngineError::ChunkTooLarge { tokens: n, max });
            }
            tokens = tokens.saturating_add(n);
        }
        if tokens == 0 {
            return Err(EngineError::Empty);
        }
        self.sequences.check_room(seq, tokens)?;
        if let Some(ids) = ids {
            if ids.len() != tokens {
                return refuse(format!(
                    "{} token ids for {tokens} positions; give one for each",
                    ids.len()
                ));
            }
            self.count(ids.iter().map(|&id| Token {
                seq,
                id,
                logits: false,
            }))?;
        }
        Ok(tokens)
    }

    /// Whether the stream begins with the embeddings of the tokens.
    fn check_embeddings(
        &mut self,
        first: usize,
        steps: &[usize],
        ids: Option<&[u32]>,
        residual: &Residuals<'_, '_>,
    ) -> Result<(), EngineError> {
        let model = Arc::clone(&self.model);
        let mut done = 0;
        for &n in steps {
            self.step_of(first + done, n, part(ids, done, n));
            let mut other = None;
            let mut compare = |t: usize, x: &[f32]| {
                let position = first + done + t;
                if residual(0, position) != Some(x) {
                    other = other.or(Some(position));
                }
            };
            self.exec
                .embed(&model, &mut self.pool, &self.next, &mut compare)
                .map_err(|_| EngineError::WorkerFailed)?;
            if let Some(position) = other {
                return refuse(format!(
                    "the stream at position {position} does not begin with this model's embedding of its token: it was \
                     captured from another model; open that one"
                ));
            }
            done += n;
        }
        Ok(())
    }

    /// Puts a step of one sequence together, without its span.
    fn step_of(&mut self, first: usize, n: usize, ids: Option<&[u32]>) {
        let next = &mut self.next;
        next.ids.clear();
        match ids {
            Some(ids) => next.ids.extend_from_slice(ids),
            // Of a token that is not known only the place matters: its embedding is in the stream.
            None => next.ids.resize(n, 0),
        }
        next.places.clear();
        next.places
            .extend((first..first + n).map(|position| Place { span: 0, position }));
        next.spans.clear();
        next.logit_rows = 0;
        next.like = None;
    }
}

fn part(ids: Option<&[u32]>, first: usize, n: usize) -> Option<&[u32]> {
    ids.and_then(|ids| ids.get(first..first + n))
}

fn refuse<T>(what: String) -> Result<T, EngineError> {
    Err(EngineError::Stream(what))
}

fn check_vector(
    x: Option<&[f32]>,
    n_embd: usize,
    layer: usize,
    position: usize,
) -> Result<(), EngineError> {
    let place = match layer {
        0 => "the embedding".to_owned(),
        layer => format!("the stream after layer {}", layer - 1),
    };
    match x {
        None => refuse(format!(
            "{place} at position {position} is missing: the cache needs the stream of every layer and position; capture all"
        )),
        Some(x) if x.len() != n_embd => refuse(format!(
            "{place} at position {position} has {} numbers, this model's has {n_embd}: it is of another model; open that one",
            x.len()
        )),
        Some(x) if !x.iter().all(|v| v.is_finite()) => refuse(format!(
            "{place} at position {position} holds values that are no finite numbers: no cache can be made of it; capture \
             the text again"
        )),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
#[path = "rehydrate_tests.rs"]
mod tests;
