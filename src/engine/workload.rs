//! Random tokens through an engine, as llama-bench does: what `cbtop bench` and the tuner time.

use super::batch::Token;
use super::{Engine, EngineError, Observer};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Sizes of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Tokens of the prompt of every sequence.
    pub prompt: usize,
    /// Tokens generated in every sequence.
    pub generated: usize,
    /// Tokens in the cache of every sequence before.
    pub depth: usize,
    /// Sequences run together.
    pub batch: usize,
}

/// Token ids of a test, the same in every run: those of every sequence are its own.
pub struct Workload {
    sizes: Sizes,
    depth: Vec<Vec<u32>>,
    /// Prompts of all sequences as one batch; logits of each one's last token.
    prompt: Vec<Token>,
    /// Generated tokens by step: one of every sequence.
    decodes: Vec<Vec<(usize, u32)>>,
}

impl Workload {
    /// Draws the tokens.
    pub fn new(sizes: Sizes, n_vocab: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut id = || (rng.next_u64() % n_vocab.max(1) as u64) as u32;
        let mut draw = |n| (0..n).map(|_| id()).collect::<Vec<_>>();
        let mut each = |n: usize| (0..sizes.batch).map(|_| draw(n)).collect::<Vec<_>>();
        let (depth, prompts, generated) =
            (each(sizes.depth), each(sizes.prompt), each(sizes.generated));
        Self {
            sizes,
            depth,
            prompt: batch_of(&prompts),
            decodes: by_step(&generated),
        }
    }

    /// Fills the caches of an engine that has been built for this many sequences.
    ///
    /// # Errors
    /// The engine's.
    pub fn fill<O: Observer>(&self, engine: &mut Engine<O>) -> Result<(), EngineError> {
        if self.sizes.depth == 0 {
            return Ok(());
        }
        let mut caches = self.depth.iter().enumerate();
        caches.try_for_each(|(seq, ids)| engine.prefill_seq(seq, ids))
    }

    /// The whole prompt and one token, as llama-bench warms up.
    ///
    /// # Errors
    /// The engine's.
    pub fn warm_up<O: Observer>(&self, engine: &mut Engine<O>) -> Result<(), EngineError> {
        self.steps(engine, self.decodes.get(..1).unwrap_or_default(), |_| {})
    }

    /// The whole test once.
    ///
    /// # Errors
    /// The engine's.
    pub fn run<O: Observer>(&self, engine: &mut Engine<O>) -> Result<(), EngineError> {
        self.steps(engine, &self.decodes, |_| {})
    }

    /// As [`Self::run`]; `seen` looks at the engine after the prompt and after every step of generation.
    ///
    /// # Errors
    /// The engine's.
    pub fn run_watched<O: Observer>(
        &self,
        engine: &mut Engine<O>,
        seen: impl FnMut(&Engine<O>),
    ) -> Result<(), EngineError> {
        self.steps(engine, &self.decodes, seen)
    }

    fn steps<O: Observer>(
        &self,
        engine: &mut Engine<O>,
        decodes: &[Vec<(usize, u32)>],
        mut seen: impl FnMut(&Engine<O>),
    ) -> Result<(), EngineError> {
        if !self.prompt.is_empty() {
            engine.run_batch(&self.prompt, |_, _| {})?;
            seen(engine);
        }
        decodes.iter().try_for_each(|step| {
            engine.decode_batch(step)?;
            seen(engine);
            Ok(())
        })
    }

    /// Takes out of the caches what [`Self::run`] put there.
    pub fn forget<O: Observer>(&self, engine: &mut Engine<O>) {
        (0..self.sizes.batch).for_each(|seq| engine.truncate_seq(seq, self.sizes.depth));
    }

    /// Tokens that one run of it counts.
    pub fn tokens(&self) -> usize {
        (self.sizes.prompt + self.sizes.generated) * self.sizes.batch
    }
}

fn batch_of(prompts: &[Vec<u32>]) -> Vec<Token> {
    let tokens = |(seq, ids): (usize, &Vec<u32>)| {
        let token = |(i, &id)| Token {
            seq,
            id,
            logits: i + 1 == ids.len(),
        };
        ids.iter().enumerate().map(token).collect::<Vec<_>>()
    };
    prompts.iter().enumerate().flat_map(tokens).collect()
}

fn by_step(generated: &[Vec<u32>]) -> Vec<Vec<(usize, u32)>> {
    let steps = generated.first().map_or(0, Vec::len);
    let step = |i: usize| {
        let of_seq = |(seq, ids): (usize, &Vec<u32>)| ids.get(i).map(|&id| (seq, id));
        generated.iter().enumerate().filter_map(of_seq).collect()
    };
    (0..steps).map(step).collect()
}
