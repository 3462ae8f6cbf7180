//! Tracers do not allocate in the forward pass, on any thread: proven with a counting allocator.

mod common;
mod counting;

use cbtop::engine::sampler::SamplerConfig;
use cbtop::engine::{Engine, Logits, StepKind, Unobserved};
use cbtop::tracer::figures::TracerSet;
use cbtop::tracer::{ModelTracer, ModelTracerConfig};
use counting::ALLOCATIONS;
use std::sync::atomic::Ordering;

#[test]
fn f266_the_forward_pass_allocates_nothing_with_tracers() {
    let allocated = || ALLOCATIONS.load(Ordering::Relaxed);
    for file in ["llama.Q4_K_M.gguf", "gemma3.Q8_0.gguf"] {
        let loaded = common::fixture(file);
        let mut config = loaded.config();
        config.threads = 3;
        config.n_ctx = 256;
        let mut engine = Engine::new(loaded.model.clone(), config, Unobserved).expect("engine");
        let config = ModelTracerConfig {
            on: TracerSet::ALL,
            ..ModelTracerConfig::default()
        };
        let (model, tokenizer) = (&loaded.model, &loaded.tokenizer);
        let mut tracer = ModelTracer::new(model, tokenizer, "tiny", None, config).expect("tracers");
        tracer.equip(&mut engine, None).expect("memory");
        engine.prefill(&[1, 2, 3, 4, 5]).expect("prefill");
        let mut in_forward = 0;
        for i in 0..100u32 {
            let before = allocated();
            engine
                .begin(&[i % 7], Logits::Last, StepKind::Decode)
                .expect("begin");
            tracer.finish(&mut engine).expect("finish");
            engine.end_step();
            // What is needed once is there after some tokens.
            if i >= 8 {
                in_forward += allocated() - before;
            }
            let greedy = SamplerConfig::GREEDY;
            tracer
                .step_done(&mut engine, &greedy, Some(i % 7))
                .expect("tracers");
        }
        assert_eq!(in_forward, 0, "{file}: allocations in 92 forward passes");
    }
}
