//! One test: random tokens through an engine that nobody watches.

use super::plan::{Case, Test};
use cbtop::engine::{Engine, EngineError, Unobserved};
use cbtop::model::Model;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::sync::Arc;
use std::time::Instant;

/// Token ids of a test, the same in every run.
struct Ids {
    depth: Vec<u32>,
    prompt: Vec<u32>,
    generated: Vec<u32>,
}

impl Ids {
    fn new(test: &Test, n_vocab: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut draw = |n| {
            (0..n)
                .map(|_| (rng.next_u64() % n_vocab.max(1) as u64) as u32)
                .collect()
        };
        Self {
            depth: draw(test.n_depth),
            prompt: draw(test.n_prompt),
            generated: draw(test.n_gen),
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
    let ids = Ids::new(&case.test, model.n_vocab);
    let mut engine = Engine::new(Arc::clone(model), case.config(), Unobserved)?;
    if !ids.depth.is_empty() {
        say("filling the cache");
        engine.prefill(&ids.depth)?;
    }
    if warmup {
        say("warming up");
        // As llama-bench: the whole prompt, one token.
        run(
            &mut engine,
            &ids.prompt,
            ids.generated.get(..1).unwrap_or_default(),
        )?;
        engine.truncate(ids.depth.len());
    }
    let mut samples = Vec::new();
    for i in 1..=repetitions {
        say(&format!("repetition {i}/{repetitions}"));
        let began = Instant::now();
        run(&mut engine, &ids.prompt, &ids.generated)?;
        samples.push(
            u64::try_from(began.elapsed().as_nanos())
                .unwrap_or(u64::MAX)
                .max(1),
        );
        engine.truncate(ids.depth.len());
    }
    Ok(samples)
}

fn run(
    engine: &mut Engine<Unobserved>,
    prompt: &[u32],
    generated: &[u32],
) -> Result<(), EngineError> {
    if !prompt.is_empty() {
        engine.prefill(prompt)?;
    }
    generated.iter().try_for_each(|&id| engine.decode(id))
}
