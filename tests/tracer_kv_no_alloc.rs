//! Watching the kv cache allocates nothing: proven with a counting allocator.

mod common;
mod counting;

use cbtop::engine::{Config, Engine, Overflow, Unobserved};
use cbtop::tracer::kv::KvTracer;
use counting::ALLOCATIONS;
use std::sync::atomic::Ordering;

#[test]
fn f266_watching_the_cache_allocates_nothing() {
    let loaded = common::fixture("gemma3.Q8_0.gguf");
    let config = Config {
        n_ctx: 100,
        keep: 3,
        chunk: 4,
        threads: 1,
        overflow: Overflow::Ring,
        ..loaded.config()
    };
    let mut engine = Engine::new(loaded.model.clone(), config, Unobserved).expect("engine");
    let mut tracer = KvTracer::new(&engine);
    engine.prefill(&[1, 2, 3]).expect("prefill");
    tracer.step(&engine, None);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for i in 0..300u32 {
        engine.decode(i % 50).expect("a token");
        let newest = engine.past() as u32 - 1;
        let read = [0, newest.saturating_sub(7), newest];
        tracer.step(&engine, (i % 2 == 0).then_some(&read[..]));
    }
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0);
    assert_eq!(tracer.view().session.steps.len(), 256);
}
