//! Several sequences at once: tokens of all of them share one read of the weights.

use super::batch::{Token, order, split};
use super::{Engine, EngineError, Observer, StepKind};

impl<O: Observer> Engine<O> {
    /// Decodes one token of each of some sequences in one step; row `r` of the logits is that of `batch[r]`.
    ///
    /// # Errors
    /// As [`Self::begin_tokens`]; a sequence that is there twice.
    pub fn decode_batch(&mut self, batch: &[(usize, u32)]) -> Result<(), EngineError> {
        for (i, (seq, _)) in batch.iter().enumerate() {
            if batch.iter().take(i).any(|(s, _)| s == seq) {
                return Err(EngineError::SequenceTwice { seq: *seq });
            }
        }
        let tokens = batch.iter().map(|&(seq, id)| Token {
            seq,
            id,
            logits: true,
        });
        self.enter(tokens, StepKind::Decode)?;
        self.finish()?;
        self.end_step();
        Ok(())
    }

    /// Runs a prompt of one sequence in chunks; logits of its last token only.
    ///
    /// # Errors
    /// As [`Self::begin_tokens`].
    pub fn prefill_seq(&mut self, seq: usize, ids: &[u32]) -> Result<(), EngineError> {
        if ids.is_empty() {
            return Err(EngineError::Empty);
        }
        self.sequences.check_room(seq, ids.len())?;
        let chunk = self.config.chunk;
        for (i, part) in ids.chunks(chunk).enumerate() {
            let before = i * chunk;
            let tokens = part.iter().enumerate().map(|(t, &id)| Token {
                seq,
                id,
                logits: before + t + 1 == ids.len(),
            });
            self.enter(tokens, StepKind::Prefill)?;
            self.finish()?;
            self.end_step();
        }
        Ok(())
    }

    /// Runs a batch of prompts and decodes of any sequences, the tokens of each in the order of its positions, in as many
    /// steps as [`Config::split`](super::Config::split) cuts it into. `logits(i, row)` hears those of every token `i`
    /// that wants them, `[n_vocab]`, as soon as they are there.
    ///
    /// # Errors
    /// As [`Self::begin_tokens`], for the whole batch before anything runs; more wanted logits in one step than there are
    /// rows for ([`Config::rows`](super::Config::rows)).
    pub fn run_batch(
        &mut self,
        batch: &[Token],
        mut logits: impl FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        if batch.is_empty() {
            return Err(EngineError::Empty);
        }
        self.count(batch.iter().copied())?;
        let seqs: Vec<usize> = batch.iter().map(|t| t.seq).collect();
        let order = order(&seqs, self.config.sequential);
        let ordered: Vec<usize> = order.iter().map(|&i| seqs[i]).collect();
        let steps = split(&ordered, self.config.chunk, self.config.split);
        let rows = |step: &Vec<usize>| step.iter().filter(|&&at| batch[order[at]].logits).count();
        let max = self.config.rows();
        if let Some(tokens) = steps.iter().map(rows).find(|&n| n > max) {
            return Err(EngineError::ChunkTooLarge { tokens, max });
        }
        let mut distinct = seqs;
        distinct.sort_unstable();
        distinct.dedup();
        let kind = if distinct.len() == batch.len() {
            StepKind::Decode
        } else {
            StepKind::Prefill
        };
        for step in steps {
            let of_step = step.iter().map(|&at| order[at]);
            self.enter(of_step.clone().map(|i| batch[i]), kind)?;
            self.finish()?;
            self.end_step();
            for (row, i) in of_step.filter(|&i| batch[i].logits).enumerate() {
                logits(i, self.logits(row));
            }
        }
        Ok(())
    }
}
