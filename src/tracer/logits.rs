//! How a token comes to be chosen: its logit and rank after every layer, by the logit lens.

use super::figures::{LogitEvolutionTrace, LogitView, TokenLogitEvolution};
use super::sampling::Shaped;
use crate::engine::capture::{Captured, Part};
use crate::engine::sampler::{SamplerConfig, top};
use crate::engine::{Engine, EngineError, Observer};
use crate::tokenizer::Tokenizer;
use crate::trace::answer;
use crate::trace::readout::{Distribution, rank};
use std::collections::VecDeque;

/// Tokens of which a trace is kept, the newest.
pub const KEPT: usize = 64;
/// Most tokens followed on request.
pub const MAX_TRACKED: usize = 16;
/// Tokens that are first in the end and therefore followed.
pub const TOP: usize = 5;

/// Follows tokens through the layers, one chosen token after the other.
#[derive(Debug, Clone, Default)]
pub struct LogitTracer {
    tracked: Vec<u32>,
    steps: u64,
    traces: VecDeque<LogitEvolutionTrace>,
    /// The stream of the token read, `[n_layers + 1][n_embd]`.
    stream: Vec<f32>,
}

impl LogitTracer {
    /// Follows `tracked` too, the first [`MAX_TRACKED`] of them; ids that the model does not have are left out.
    pub fn new(tracked: Vec<u32>) -> Self {
        let mut once: Vec<u32> = Vec::new();
        for id in tracked {
            if once.len() < MAX_TRACKED && !once.contains(&id) {
                once.push(id);
            }
        }
        Self {
            tracked: once,
            ..Self::default()
        }
    }

    /// Reads the last token of the step that has just run, after which `chosen` comes. The engine captures (at least
    /// [`Capture::LAST`](crate::engine::capture::Capture::LAST)), and the step wanted that token's logits: a decode step,
    /// or the last chunk of a prompt.
    ///
    /// Runs the head once for every layer, and once for the embedding. Of a step with one row of logits, row 0 holds
    /// afterwards what it held before.
    ///
    /// # Errors
    /// A step in progress, one without wanted logits, or one whose stream was not captured; the engine's own.
    pub fn step<O: Observer>(
        &mut self,
        engine: &mut Engine<O>,
        tokenizer: &Tokenizer,
        sampler: &SamplerConfig,
        chosen: u32,
    ) -> Result<(), EngineError> {
        let position = self.read_stream(engine)?;
        let Some(end) = engine.last_logits().map(<[f32]>::to_vec) else {
            return refuse("no logits were wanted of the step, so no token was chosen by them");
        };
        let last: Vec<u32> = top(&end, TOP).into_iter().map(|(id, _)| id).collect();
        let mut evolution = Evolution::new(self.followed(&last, chosen, end.len()), last);
        let n_embd = engine.model().hparams.n_embd;
        let (before, last) = self
            .stream
            .split_at(self.stream.len().saturating_sub(n_embd));
        engine.lens(before, &mut |_, logits| evolution.add(logits))?;
        // Alone, so that it is the step's own row bit for bit.
        engine.lens(last, &mut |_, logits| evolution.add(logits))?;
        let end = Distribution::new(&end);
        let decisive_layer = evolution.decisive_layer(chosen);
        let stable_from = evolution.stable_from(chosen);
        let trace = LogitEvolutionTrace {
            position: position as u32,
            selected: answer::text(tokenizer, chosen),
            decisive_layer,
            stable_from,
            temperature: sampler.temperature.max(0.0),
            top_p: sampler.top_p,
            sampling: Shaped::new(sampler, end.logits()).view(tokenizer),
            tracked_tokens: evolution.tokens(tokenizer, &end),
            top5_overlap: evolution.overlap,
        };
        if self.traces.len() >= KEPT {
            self.traces.pop_front();
        }
        self.traces.push_back(trace);
        self.steps += 1;
        Ok(())
    }

    /// Takes the stream of the last token captured; returns its position.
    fn read_stream<O: Observer>(&mut self, engine: &mut Engine<O>) -> Result<usize, EngineError> {
        if engine.in_step() {
            return refuse("logits cannot be followed inside a token; finish it first");
        }
        let hp = &engine.model().hparams;
        let (n_layers, n_embd) = (hp.n_layers, hp.n_embd);
        self.stream.clear();
        self.stream.resize((n_layers + 1) * n_embd, 0.0);
        let (mut seen, mut position) = (0, 0);
        let stream = &mut self.stream;
        engine.captured(&mut |c: Captured<'_>| {
            let at = c.layer * n_embd;
            let to = stream.get_mut(at..at + n_embd);
            // Of several tokens the last one comes last.
            if let (Part::Residual, Some(to)) = (c.part, to)
                && to.len() == c.data.len()
            {
                to.copy_from_slice(c.data);
                seen = if c.position == position { seen + 1 } else { 1 };
                position = c.position;
            }
        });
        if seen < n_layers + 1 {
            return refuse(
                "the stream of the last token was not captured in all layers; switch capturing on before the step",
            );
        }
        Ok(position)
    }

    /// Those first in the end, the chosen one, those asked for.
    fn followed(&self, last: &[u32], chosen: u32, n_vocab: usize) -> Vec<u32> {
        let mut ids = last.to_vec();
        for &id in [chosen].iter().chain(&self.tracked) {
            if (id as usize) < n_vocab && !ids.contains(&id) {
                ids.push(id);
            }
        }
        ids
    }

    /// What was found so far.
    pub fn view(&self) -> LogitView {
        LogitView {
            steps: self.steps,
            traces: self.traces.iter().cloned().collect(),
        }
    }

    /// Forgets all of it.
    pub fn clear(&mut self) {
        self.steps = 0;
        self.traces.clear();
    }
}

fn refuse<T>(what: &str) -> Result<T, EngineError> {
    Err(EngineError::Stream(what.into()))
}

/// Logits and ranks of some tokens, row by row: the embedding, then every layer.
#[derive(Debug, Clone, Default)]
struct Evolution {
    ids: Vec<u32>,
    /// Those first in the end.
    last: Vec<u32>,
    /// By token.
    logits: Vec<Vec<f32>>,
    ranks: Vec<Vec<u32>>,
    overlap: Vec<u32>,
}

impl Evolution {
    fn new(ids: Vec<u32>, last: Vec<u32>) -> Self {
        Self {
            logits: vec![Vec::new(); ids.len()],
            ranks: vec![Vec::new(); ids.len()],
            overlap: Vec::new(),
            ids,
            last,
        }
    }

    fn add(&mut self, row: &[f32]) {
        let mut common = 0;
        for ((id, logits), ranks) in self.ids.iter().zip(&mut self.logits).zip(&mut self.ranks) {
            let rank = rank(row, *id);
            common += u32::from(rank <= TOP as u32 && self.last.contains(id));
            logits.push(row.get(*id as usize).copied().unwrap_or(f32::NAN));
            ranks.push(rank);
        }
        self.overlap.push(common);
    }

    /// The layer whose work raised the token's logit most above the mean of the others followed. The rise of layer `l`, its
    /// attention and its feed-forward block together, is `(z[l + 1] - z[l]) - mean over the others of (y[l + 1] - y[l])`,
    /// where `z` and `y` are logits by the lens and index 0 is the embedding: a layer that raises all of them alike
    /// decides nothing. The rises of all layers add up to what the token has gained on the others since the embedding. In
    /// f64; of equal rises the first, and rises that are no numbers decide nothing. Without others the mean is 0.
    fn decisive_layer(&self, chosen: u32) -> u32 {
        let mut best: Option<(u32, f64)> = None;
        for (layer, rise) in (0u32..).zip(self.rises(chosen)) {
            if rise.is_finite() && best.is_none_or(|(_, most)| rise > most) {
                best = Some((layer, rise));
            }
        }
        best.map_or(0, |(layer, _)| layer)
    }

    /// What [`Self::decisive_layer`] compares, by layer.
    fn rises(&self, chosen: u32) -> Vec<f64> {
        let mut own: &[f32] = &[];
        let mut others: Vec<&[f32]> = Vec::with_capacity(self.ids.len());
        for (id, logits) in self.ids.iter().zip(&self.logits) {
            if *id == chosen {
                own = logits;
            } else {
                others.push(logits);
            }
        }
        let rise = |logits: &[f32], layer: usize| match logits.get(layer..layer + 2) {
            Some([before, after]) => f64::from(*after) - f64::from(*before),
            _ => f64::NAN,
        };
        let rises = (0..own.len().saturating_sub(1)).map(|layer| {
            let sum: f64 = others.iter().map(|o| rise(o, layer)).sum();
            rise(own, layer) - sum / others.len().max(1) as f64
        });
        rises.collect()
    }

    /// The first layer behind which, and behind all after it, the token is first.
    fn stable_from(&self, chosen: u32) -> Option<u32> {
        let place = self.ids.iter().position(|id| *id == chosen)?;
        let layers = self.ranks.get(place)?.get(1..)?;
        let held = layers.iter().rev().take_while(|rank| **rank == 1).count();
        (held > 0).then(|| (layers.len() - held) as u32)
    }

    fn tokens(&mut self, tokenizer: &Tokenizer, end: &Distribution) -> Vec<TokenLogitEvolution> {
        let lines = self.logits.drain(..).zip(self.ranks.drain(..));
        let tokens = self.ids.iter().zip(lines).map(|(&id, (logits, ranks))| {
            let standing = end.standing(id);
            TokenLogitEvolution {
                token_id: id,
                token_str: answer::text(tokenizer, id).text,
                per_layer_logit: logits,
                per_layer_rank: ranks,
                final_probability: standing.prob as f32,
                final_rank: standing.rank,
            }
        });
        tokens.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn evolution(rows: &[&[f32]], ids: &[u32]) -> Evolution {
        let last = top(rows.last().expect("a row"), TOP);
        let last = last.into_iter().map(|(id, _)| id).collect();
        let mut e = Evolution::new(ids.to_vec(), last);
        rows.iter().for_each(|row| e.add(row));
        e
    }

    #[test]
    fn the_decisive_layer_is_the_one_that_lifts_the_token_above_the_others() {
        // Layer 1 raises the token most, but all others as much; layer 2 raises it alone.
        let rows: [&[f32]; 4] = [
            &[0.0, 0.0, 0.0],
            &[0.0, 1.0, 1.0],
            &[9.0, 9.0, 9.0],
            &[12.0, 9.0, 8.0],
        ];
        let e = evolution(&rows, &[0, 1, 2]);
        assert_eq!(e.rises(0), [-1.0, 1.0, 3.5]);
        assert_eq!((e.decisive_layer(0), e.stable_from(0)), (2, Some(1)));
        assert_eq!((e.decisive_layer(1), e.stable_from(1)), (0, None));
        assert_eq!(e.overlap, [3, 3, 3, 3]);
        // Alone its own rise counts; what is no number decides nothing.
        assert_eq!(evolution(&rows, &[0]).decisive_layer(0), 1);
        let nan: [&[f32]; 3] = [&[0.0, 0.0], &[f32::NAN, 0.0], &[f32::NAN, 0.0]];
        assert_eq!(evolution(&nan, &[0, 1]).decisive_layer(0), 0);
        assert_eq!(evolution(&nan, &[0, 1]).stable_from(0), None);
    }

    #[test]
    fn ids_are_followed_once_and_at_most_so_many() {
        let tracer = LogitTracer::new((0..100).chain(0..100).collect());
        assert_eq!(tracer.tracked.len(), MAX_TRACKED);
        let tracer = LogitTracer::new(vec![7, 3, 7, 400]);
        assert_eq!(tracer.followed(&[1, 3], 9, 300), [1, 3, 9, 7]);
        assert_eq!(tracer.followed(&[1, 3], 1, 300), [1, 3, 7]);
    }

    proptest! {
        #[test]
        fn rises_add_up_to_what_was_gained(
            rows in prop::collection::vec(prop::collection::vec(-40f32..40.0, 6), 2..12),
            chosen in 0u32..6,
        ) {
            let rows: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
            let e = evolution(&rows, &[0, 1, 2, 3, 4, 5]);
            let rises = e.rises(chosen);
            prop_assert_eq!(rises.len(), rows.len() - 1);
            let lead = |row: &[f32]| {
                let sum: f64 = row.iter().map(|l| f64::from(*l)).sum();
                let own = f64::from(row[chosen as usize]);
                own - (sum - own) / 5.0
            };
            let gained = lead(rows[rows.len() - 1]) - lead(rows[0]);
            prop_assert!((rises.iter().sum::<f64>() - gained).abs() < 1e-9);
            let most = e.decisive_layer(chosen) as usize;
            prop_assert!(rises.iter().all(|r| *r <= rises[most]));
            if let Some(from) = e.stable_from(chosen) {
                let rank = |row: &[f32]| 1 + row.iter().filter(|l| **l > row[chosen as usize]).count();
                prop_assert!(rows[from as usize + 1..].iter().all(|row| rank(row) == 1));
                prop_assert!(from == 0 || rank(rows[from as usize]) > 1);
            }
        }
    }
}
