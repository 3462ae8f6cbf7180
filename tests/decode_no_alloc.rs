//! Decoding allocates nothing on any thread, watched brick by brick: proven with a counting allocator.

mod common;
mod counting;

use cbtop::engine::sampler::{Sampler, SamplerConfig};
use cbtop::engine::{Engine, Logits, StepKind};
use cbtop::profiler::stats::Aggregate;
use cbtop::profiler::{Clock, StepRecorder};
use counting::ALLOCATIONS;
use std::sync::atomic::Ordering;

#[test]
fn f108_watched_decode_allocates_nothing() {
    for file in ["llama.Q4_K_M.gguf", "gemma3.Q8_0.gguf"] {
        let loaded = common::fixture(file);
        let mut config = loaded.config();
        config.threads = 3;
        config.n_ctx = 256;
        let recorder = StepRecorder::new(Clock::calibrated(), loaded.model.plan.bricks.len() + 1);
        let mut engine = Engine::new(loaded.model.clone(), config, recorder).expect("engine");
        let mut stats = Aggregate::new(loaded.model.hparams.n_layers);
        let sampling = SamplerConfig {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            seed: 1,
        };
        let mut sampler = Sampler::new(sampling, loaded.model.n_vocab);
        engine.prefill(&[1, 2, 3, 4, 5]).expect("prefill");
        let mut next = 6;
        let mut token = |engine: &mut Engine<StepRecorder>| {
            engine
                .begin(&[next], Logits::Last, StepKind::Decode)
                .expect("begin");
            engine.finish().expect("finish");
            next = engine.sample(&mut sampler).id;
            engine.end_step();
            stats.add_step(engine.observer().last());
        };
        (0..8).for_each(|_| token(&mut engine));
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        (0..100).for_each(|_| token(&mut engine));
        let after = ALLOCATIONS.load(Ordering::Relaxed);
        assert_eq!(after - before, 0, "{file}: allocations in 100 tokens");
    }
}
