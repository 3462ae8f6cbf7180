//! What tracers hold of a long text is bounded.

mod common;
mod counting;

use cbtop::engine::sampler::SamplerConfig;
use cbtop::engine::{Config, Engine, Logits, StepKind, Unobserved};
use cbtop::session::{Loaded, Source};
use cbtop::tracer::figures::TracerSet;
use cbtop::tracer::{ModelTracer, ModelTracerConfig};
use counting::LIVE;
use std::sync::atomic::Ordering;

const MOST: u64 = 50_000_000;

/// Bytes that all five tracers hold after 1,000 tokens of a model, records of the engine included.
fn held(loaded: &Loaded, on: TracerSet, tokens: usize) -> u64 {
    let config = Config {
        n_ctx: 1024,
        threads: 2,
        ..loaded.config()
    };
    let model = &loaded.model;
    let mut engine = Engine::new(model.clone(), config, Unobserved).expect("engine");
    let before = LIVE.load(Ordering::Relaxed) as u64;
    let config = ModelTracerConfig {
        on,
        ..ModelTracerConfig::default()
    };
    let mut tracer =
        ModelTracer::new(model, &loaded.tokenizer, "model", None, config).expect("tracers");
    tracer.equip(&mut engine, None).expect("memory");
    for i in 0..tokens {
        let id = (i * 37 % model.n_vocab) as u32;
        engine
            .begin(&[id], Logits::Last, StepKind::Decode)
            .expect("begin");
        tracer.finish(&mut engine).expect("finish");
        engine.end_step();
        let greedy = SamplerConfig::GREEDY;
        tracer
            .step_done(&mut engine, &greedy, Some(id))
            .expect("tracers");
    }
    // Large pieces are the system's, not the allocator's.
    let records = engine.attention().map_or(0, |log| log.bytes());
    let grown = (LIVE.load(Ordering::Relaxed) as u64).saturating_sub(before) + records;
    println!(
        "{}: {grown} bytes held, {records} of them attention records",
        loaded.name()
    );
    grown
}

#[test]
fn f269_a_thousand_tokens_take_less_than_50_mb() {
    let tiny = common::fixture("gemma3.Q8_0.gguf");
    assert!(held(&tiny, TracerSet::ALL, 1000) < MOST);
    if let Some(path) = common::real_model(common::SMOLLM2) {
        let real = Loaded::open(Source::File(path)).expect("a model");
        // All layers through the head take minutes for 1,000 tokens; of them only the newest 64 are kept anyway.
        assert!(held(&real, TracerSet::ALL, 80) < MOST);
        let mut on = TracerSet::ALL;
        on.logits = false;
        assert!(held(&real, on, 1000) < MOST);
    }
}
