//! One test: random tokens through an engine that nobody watches.

use super::plan::Case;
use cbtop::engine::batch::Token;
use cbtop::engine::{Engine, EngineError, Unobserved};
use cbtop::model::Model;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::sync::Arc;
use std::time::Instant;

/// Token ids of a test, the same in every run: a list for every sequence.
struct Ids {
    depth: Vec<Vec<u32>>,
    prompt: Vec<Vec<u32>>,
    generated: Vec<Vec<u32>>,
}

impl Ids {
    fn new(case: &Case, n_vocab: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut id = || (rng.next_u64() % n_vocab.max(1) as u64) as u32;
        let mut draw = |n| (0..n).map(|_| id()).collect::<Vec<_>>();
        let mut each = |n: usize| (0..case.batch).map(|_| draw(n)).collect();
        Self {
            depth: each(case.test.n_depth),
            prompt: each(case.test.n_prompt),
            generated: each(case.test.n_gen),
        }
    }
}

/// Wall time of every repetition, nanoseconds. `say` hears what is going on, outside the timing.
pub(super) fn measure(
    model: &Arc<Model>,
    case: &Case,
    repetitions: u32,
    warmup: bool,
    say: impl Fn(&str),
) -> Result<Vec<u64>, EngineError> {
    let ids = Ids::new(case, model.n_vocab);
    let (prompt, decodes) = (batch_of(&ids.prompt), decodes(&ids.generated));
    let mut engine = Engine::new(Arc::clone(model), case.config(), Unobserved)?;
    if case.test.n_depth > 0 {
        say("filling the cache");
        for (seq, ids) in ids.depth.iter().enumerate() {
            engine.prefill_seq(seq, ids)?;
        }
    }
    let forget = |engine: &mut Engine<Unobserved>| {
        (0..case.batch).for_each(|seq| engine.truncate_seq(seq, case.test.n_depth));
    };
    if warmup {
        say("warming up");
        // As llama-bench: the whole prompt, one token.
        run(&mut engine, &prompt, decodes.get(..1).unwrap_or_default())?;
        forget(&mut engine);
    }
    let mut samples = Vec::new();
    for i in 1..=repetitions {
        say(&format!("repetition {i}/{repetitions}"));
        let began = Instant::now();
        run(&mut engine, &prompt, &decodes)?;
        samples.push(
            u64::try_from(began.elapsed().as_nanos())
                .unwrap_or(u64::MAX)
                .max(1),
        );
        forget(&mut engine);
    }
    Ok(samples)
}

/// Prompts of all sequences as one batch; logits of each one's last token.
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

/// Generated tokens by step: one of every sequence.
fn decodes(generated: &[Vec<u32>]) -> Vec<Vec<(usize, u32)>> {
    let steps = generated.first().map_or(0, Vec::len);
    let step = |i: usize| {
        let of_seq = |(seq, ids): (usize, &Vec<u32>)| ids.get(i).map(|&id| (seq, id));
        generated.iter().enumerate().filter_map(of_seq).collect()
    };
    (0..steps).map(step).collect()
}

fn run(
    engine: &mut Engine<Unobserved>,
    prompt: &[Token],
    decodes: &[Vec<(usize, u32)>],
) -> Result<(), EngineError> {
    if !prompt.is_empty() {
        engine.run_batch(prompt, |_, _| {})?;
    }
    decodes
        .iter()
        .try_for_each(|step| engine.decode_batch(step))
}
