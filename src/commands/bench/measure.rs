//! One test: random tokens through an engine that nobody watches.

use super::plan::Case;
use cbtop::engine::workload::{Sizes, Workload};
use cbtop::engine::{Engine, EngineError, Unobserved};
use cbtop::model::Model;
use std::sync::Arc;
use std::time::Instant;

/// Wall time of every repetition, nanoseconds. `say` hears what is going on, outside the timing.
pub(super) fn measure(
    model: &Arc<Model>,
    case: &Case,
    repetitions: u32,
    warmup: bool,
    say: impl Fn(&str),
) -> Result<Vec<u64>, EngineError> {
    let sizes = Sizes {
        prompt: case.test.n_prompt,
        generated: case.test.n_gen,
        depth: case.test.n_depth,
        batch: case.batch,
    };
    let workload = Workload::new(sizes, model.n_vocab);
    let mut engine = Engine::new(Arc::clone(model), case.config(), Unobserved)?;
    if sizes.depth > 0 {
        say("filling the cache");
        workload.fill(&mut engine)?;
    }
    if warmup {
        say("warming up");
        workload.warm_up(&mut engine)?;
        workload.forget(&mut engine);
    }
    let mut samples = Vec::new();
    for i in 1..=repetitions {
        say(&format!("repetition {i}/{repetitions}"));
        let began = Instant::now();
        workload.run(&mut engine)?;
        samples.push(
            u64::try_from(began.elapsed().as_nanos())
                .unwrap_or(u64::MAX)
                .max(1),
        );
        workload.forget(&mut engine);
    }
    Ok(samples)
}
