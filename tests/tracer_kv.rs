//! The kv cache watched, and traces put back into it.

mod common;

use cbtop::engine::{Config, Engine, KvType, Overflow, Unobserved};
use cbtop::session::Loaded;
use cbtop::trace::rehydrate::rehydrate;
use cbtop::tracer::kv::KvTracer;
use proptest::prelude::*;
use std::path::Path;
use std::process::{Command, Stdio};

fn engine(loaded: &Loaded, config: Config) -> Engine<Unobserved> {
    Engine::new(loaded.model.clone(), config, Unobserved).expect("engine")
}

fn ring(loaded: &Loaded, n_ctx: usize, keep: usize) -> Config {
    Config {
        n_ctx,
        keep,
        chunk: 4,
        threads: 1,
        overflow: Overflow::Ring,
        ..loaded.config()
    }
}

#[test]
fn f260_every_step_says_what_is_held() {
    let loaded = common::fixture("llama.Q4_K_M.gguf");
    for kv_type in [KvType::F16, KvType::F32] {
        let mut engine = engine(
            &loaded,
            Config {
                kv_type,
                ..ring(&loaded, 12, 2)
            },
        );
        let mut tracer = KvTracer::new(&engine);
        for i in 0..20u32 {
            engine.decode(i).expect("a token");
            tracer.step(&engine, None);
            let view = tracer.view();
            let last = view.session.steps.last().expect("a step");
            let held = u64::from(last.valid_positions);
            assert_eq!(held, 12.min(u64::from(i) + 1));
            assert_eq!(last.cache_size_bytes, held * engine.kv_bytes_per_token());
            assert_eq!(view.allocated_bytes, 12 * view.bytes_per_position);
            assert_eq!(last.evictions_this_step, u32::from(i >= 12));
        }
        let session = tracer.view().session;
        assert_eq!(session.total_evictions, engine.cache_state().evicted);
        assert_eq!(session.peak_memory_bytes, engine.kv_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn f262_fragmentation_is_between_0_and_1_whatever_is_done(
        keep in 0usize..3, is_ring in any::<bool>(),
        acts in prop::collection::vec((1usize..5, prop::option::weighted(0.3, 0usize..30)), 1..20),
    ) {
        let loaded = common::fixture("llama.Q4_K_M.gguf");
        let mut config = ring(&loaded, 10, keep);
        if !is_ring {
            config.overflow = Overflow::Stop;
        }
        let mut engine = engine(&loaded, config);
        let mut tracer = KvTracer::new(&engine);
        for (tokens, truncate) in acts {
            if let Some(to) = truncate {
                engine.truncate(to);
            }
            if engine.prefill(&vec![7; tokens]).is_err() {
                prop_assert!(!is_ring);
                continue;
            }
            tracer.step(&engine, None);
            let view = tracer.view();
            let last = view.session.steps.last().expect("a step");
            prop_assert!((0.0..=1.0).contains(&last.fragmentation));
            prop_assert_eq!(f64::from(last.fragmentation), f64::from(engine.cache_state().fragmentation as f32));
            prop_assert!(last.cache_size_bytes <= view.allocated_bytes);
            prop_assert!(last.cache_hit_rate.is_none_or(|r| (0.0..=1.0).contains(&r)));
            prop_assert!(view.notes.iter().all(|n| n.finding != cbtop::tracer::figures::KvFinding::Leak));
        }
    }
}

/// `cbtop trace` with a file of all chains.
fn save(path: &Path, extra: &[&str]) {
    let statement = format!(
        "TRACE \"The capital of France is\" POSITIONS ALL SAVE \"{}\"",
        path.display()
    );
    let done = Command::new(env!("CARGO_BIN_EXE_cbtop"))
        .args(["trace", &statement, "--backend", "scalar", "-t", "1"])
        .args(extra)
        .stdin(Stdio::null())
        .output()
        .expect("runs");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

#[test]
fn f271_a_saved_trace_is_put_back_and_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.trac");
    let loaded = Loaded::open(cbtop::session::Source::Demo).expect("demo");
    for chunk in [2, 512] {
        save(&path, &["--chunk", &chunk.to_string()]);
        let config = Config {
            threads: 1,
            kernels: cbtop::engine::cpu::KernelSet::Scalar,
            n_ctx: 64,
            chunk,
            ..loaded.config()
        };
        let mut back = engine(&loaded, config.clone());
        let done = rehydrate(&mut back, &path, chunk).expect("a trace");
        let ids = done.ids.expect("tokens");
        assert_eq!((done.positions, done.notes.len()), (ids.len(), 0));
        let mut ran = engine(&loaded, config);
        ran.prefill(&ids).expect("prefill");
        assert_eq!(ran.logits(0), back.logits(0));
        for id in [3, 9, 27] {
            ran.decode(id).expect("a token");
            back.decode(id).expect("a token");
            assert_eq!(ran.logits(0), back.logits(0));
        }
    }

    // What cannot be put back says why, and leaves nothing behind.
    let bytes = std::fs::read(&path).expect("a file");
    let changed = folder.path().join("b.trac");
    let refused = |bytes: &[u8], loaded: &Loaded| {
        std::fs::write(&changed, bytes).expect("written");
        let config = Config {
            n_ctx: 64,
            threads: 1,
            ..loaded.config()
        };
        let mut engine = engine(loaded, config.clone());
        let error = rehydrate(&mut engine, &changed, config.chunk).expect_err("refused");
        assert_eq!(engine.past(), 0);
        let text = error.to_string();
        assert_eq!(text.lines().count(), 1);
        text.replace(&changed.display().to_string(), "FILE")
    };
    let other = common::fixture("llama.Q4_K_M.gguf");
    insta::assert_snapshot!(refused(&bytes, &other), @"FILE: the trace is of a model of 8 layers and width 128, this one has 3 and 256; open the model it was made with");
    let chain = 4 * 3 * loaded.model.hparams.n_embd * (loaded.model.hparams.n_layers + 1);
    insta::assert_snapshot!(refused(&bytes[..64 + 2 * chain + 5], &loaded), @"FILE: 3 of 5 positions are not in the file: it was cut; save the trace again");
    let mut nan = bytes.clone();
    nan[64 + chain..64 + chain + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    insta::assert_snapshot!(refused(&nan, &loaded), @"FILE: the embedding at position 1 holds values that are no finite numbers: no cache can be made of it; capture the text again");
    let mut shifted = bytes.clone();
    shifted[64] ^= 1;
    insta::assert_snapshot!(refused(&shifted, &loaded), @"FILE: the stream at position 0 does not begin with this model's embedding of its token: it was captured from another model; open that one");
    assert!(refused(b"TRAC", &loaded).contains("FILE"));
}

#[test]
fn f271_chains_without_figures_are_enough() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.trac");
    save(&path, &["--save-version-1"]);
    let loaded = Loaded::open(cbtop::session::Source::Demo).expect("demo");
    let config = Config {
        n_ctx: 64,
        threads: 1,
        ..loaded.config()
    };
    let mut back = engine(&loaded, config.clone());
    let done = rehydrate(&mut back, &path, config.chunk).expect("a trace");
    assert_eq!((done.ids, done.notes.len()), (None, 1));
    assert_eq!(back.past(), done.positions);
}
