//! Traces a prompt with all five tracers and prints what they found.
//!
//! ```text
//! cargo run --release --example model_tracer -- [FILE] [PROMPT]
//! ```

use cbtop::engine::sampler::{Sampler, SamplerConfig};
use cbtop::engine::{Engine, Logits, StepKind, Unobserved};
use cbtop::session::{Loaded, Source};
use cbtop::tracer::figures::TracerSet;
use cbtop::tracer::{ModelTracer, ModelTracerConfig};
use std::error::Error;

/// Tokens to generate.
const TOKENS: usize = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let source = args.next().map_or(Source::Demo, |p| Source::File(p.into()));
    let prompt = args.next().unwrap_or("The capital of France is".into());
    let loaded = Loaded::open(source)?;
    let ids = loaded.tokenizer.encode(&prompt, true, true)?;

    let config = ModelTracerConfig {
        on: TracerSet::ALL,
        ..ModelTracerConfig::default()
    };
    let (model, tokenizer) = (&loaded.model, &loaded.tokenizer);
    let mut tracer = ModelTracer::new(model, tokenizer, &loaded.name(), None, config)?;
    let mut engine = Engine::new(model.clone(), loaded.config(), Unobserved)?;
    tracer.equip(&mut engine, None)?;

    let mut sampler = Sampler::new(SamplerConfig::GREEDY, model.n_vocab);
    let (mut step, mut kind) = (ids, StepKind::Prefill);
    for _ in 0..TOKENS {
        engine.begin(&step, Logits::Last, kind)?;
        tracer.finish(&mut engine)?;
        let id = engine.sample(&mut sampler).id;
        engine.end_step();
        tracer.step_done(&mut engine, sampler.config(), Some(id))?;
        (step, kind) = (vec![id], StepKind::Decode);
    }
    print!("{}", tracer.export(&engine, None).summary());
    Ok(())
}
