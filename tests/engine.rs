//! The engine's properties: every knob that changes how, not what, leaves the logits as they are.

mod common;

use cbtop::engine::config::{MAX_THREADS, Schedule};
use cbtop::engine::cpu::KernelSet;
use cbtop::engine::reference::Reference;
use cbtop::engine::{
    Config, Engine, EngineError, KvType, Logits, Overflow, Progress, StepKind, Unobserved,
};
use cbtop::profiler::{Clock, StepRecorder};
use cbtop::session::Loaded;
use common::{cosine, fixture};

const FIXTURES: [&str; 3] = ["llama.Q4_K_M.gguf", "qwen2.Q4_K_M.gguf", "gemma3.Q8_0.gguf"];
const TEXT: &str =
    "A profiler shows where the time goes, layer by layer, and a tuner says what to change.";

fn config(loaded: &Loaded) -> Config {
    let mut c = loaded.config();
    c.threads = 1;
    c.n_ctx = 128;
    c.chunk = 64;
    c
}

fn engine(loaded: &Loaded, change: impl FnOnce(&mut Config)) -> Engine<Unobserved> {
    let mut c = config(loaded);
    change(&mut c);
    Engine::new(loaded.model.clone(), c, Unobserved).expect("engine")
}

/// A prompt, then greedy-free decoding of fixed tokens; the logits of the last.
fn run<O: cbtop::engine::Observer>(e: &mut Engine<O>, ids: &[u32]) -> Vec<f32> {
    let (prompt, rest) = ids.split_at(ids.len() - 4);
    e.prefill(prompt).expect("prefill");
    for &id in rest {
        e.decode(id).expect("decode");
    }
    e.logits(0).to_vec()
}

fn each(test: impl Fn(&str, &Loaded, &[u32])) {
    for file in FIXTURES {
        let loaded = fixture(file);
        let ids = loaded.tokenizer.encode(TEXT, true, true).expect("encode");
        test(file, &loaded, &ids);
    }
}

#[test]
fn threads_and_schedule_leave_every_bit() {
    each(|file, loaded, ids| {
        let want = run(&mut engine(loaded, |_| {}), ids);
        for threads in [2, 3, 5] {
            for schedule in [Schedule::Dynamic, Schedule::Static] {
                let got = run(
                    &mut engine(loaded, |c| {
                        c.threads = threads;
                        c.schedule = schedule;
                    }),
                    ids,
                );
                assert_eq!(got, want, "{file}: {threads} threads, {schedule:?}");
            }
        }
    });
}

#[test]
fn watching_leaves_every_bit() {
    each(|file, loaded, ids| {
        let want = run(&mut engine(loaded, |_| {}), ids);
        let recorder = StepRecorder::new(Clock::calibrated(), loaded.model.plan.bricks.len() + 1);
        let mut watched =
            Engine::new(loaded.model.clone(), config(loaded), recorder).expect("engine");
        assert_eq!(run(&mut watched, ids), want, "{file}");
        let record = watched.observer().last();
        assert_eq!(record.events().len(), loaded.model.plan.bricks.len());
        assert!(record.wall >= record.work + record.sync);
    });
}

#[test]
fn stepping_by_layers_leaves_every_bit() {
    each(|file, loaded, ids| {
        let want = run(&mut engine(loaded, |_| {}), ids);
        let mut e = engine(loaded, |c| c.threads = 2);
        let (last, prompt) = ids.split_last().expect("ids");
        let _ = run(&mut e, prompt);
        e.begin(&[*last], Logits::Last, StepKind::Decode)
            .expect("begin");
        let layers = loaded.model.hparams.n_layers;
        for next in 1..layers {
            assert_eq!(e.advance_layer(), Ok(Progress::AtLayer(next)), "{file}");
            assert!(e.in_step());
        }
        assert_eq!(e.advance_layer(), Ok(Progress::Done));
        assert_eq!(e.advance_layer(), Ok(Progress::Done));
        assert_eq!(e.past(), ids.len());
        let close = cosine(e.logits(0), &want);
        assert!(close > 0.9999, "{file}: {close}");
    });
}

#[test]
fn chunks_of_any_size_agree() {
    each(|file, loaded, ids| {
        let whole = run(&mut engine(loaded, |_| {}), ids);
        for chunk in [1, 2, 7, 16] {
            let got = run(&mut engine(loaded, |c| c.chunk = chunk), ids);
            let c = cosine(&got, &whole);
            // Short chunks have finer activation scales than long ones.
            assert!(c > 0.999, "{file}: chunk {chunk}, cosine {c}");
        }
    });
}

#[test]
fn every_kernel_set_and_cache_type_agrees_with_the_reference() {
    each(|file, loaded, ids| {
        let mut reference = Reference::new(&loaded.model);
        let want = reference
            .forward(ids)
            .expect("forward")
            .pop()
            .expect("a position");
        for set in KernelSet::available() {
            for kv_type in KvType::ALL {
                let got = run(
                    &mut engine(loaded, |c| {
                        c.kernels = set;
                        c.kv_type = kv_type;
                    }),
                    ids,
                );
                let c = cosine(&got, &want);
                assert!(c > 0.997, "{file}: {set:?} {kv_type:?}, cosine {c}");
            }
        }
    });
}

#[test]
fn a_truncated_cache_goes_on_as_if_the_rest_had_never_been() {
    each(|file, loaded, ids| {
        let mut e = engine(loaded, |_| {});
        let want = run(&mut e, ids);
        e.truncate(ids.len() - 4);
        assert_eq!(e.past(), ids.len() - 4);
        for &id in &ids[ids.len() - 4..] {
            e.decode(id).expect("decode");
        }
        assert_eq!(e.logits(0), want, "{file}");
        e.truncate(0);
        assert_eq!(run(&mut e, ids), want, "{file}: from the start again");
    });
}

#[test]
fn wrong_requests_are_refused_and_lose_nothing() {
    let loaded = fixture("llama.Q4_K_M.gguf");
    let n_vocab = loaded.model.n_vocab;
    let mut e = engine(&loaded, |c| c.n_ctx = 8);
    assert_eq!(e.prefill(&[]), Err(EngineError::Empty));
    assert_eq!(
        e.decode(n_vocab as u32),
        Err(EngineError::BadToken {
            id: n_vocab as u32,
            n_vocab
        })
    );
    assert_eq!(
        e.step(&[1; 65], Logits::Last, StepKind::Prefill),
        Err(EngineError::ChunkTooLarge {
            tokens: 65,
            max: 64
        })
    );
    assert_eq!(
        e.step(&[1, 2], Logits::All, StepKind::Prefill),
        Err(EngineError::ChunkTooLarge { tokens: 2, max: 1 })
    );
    e.prefill(&[1; 8]).expect("fits exactly");
    assert_eq!(e.room(), 0);
    assert_eq!(
        e.decode(1),
        Err(EngineError::ContextFull {
            needed: 9,
            n_ctx: 8
        })
    );
    assert_eq!(e.past(), 8);
}

#[test]
fn knobs_out_of_range_are_named() {
    let loaded = fixture("llama.Q4_K_M.gguf");
    let refused = |change: fn(&mut Config), word: &str| {
        let mut c = config(&loaded);
        change(&mut c);
        match Engine::new(loaded.model.clone(), c, Unobserved) {
            Err(EngineError::Config(message)) => assert!(message.contains(word), "{message}"),
            Err(e) => panic!("{e}"),
            Ok(_) => panic!("{word} was taken"),
        }
    };
    refused(|c| c.threads = 0, "threads");
    refused(|c| c.threads = MAX_THREADS + 1, "threads");
    refused(|c| c.chunk = 0, "chunk");
    refused(|c| c.n_ctx = 0, "context");
    refused(|c| c.logit_rows = 65, "logit rows");
    refused(|c| c.n_seq = 0, "sequences");
    refused(|c| c.n_seq = 65, "sequences");
    refused(
        |c| {
            c.n_seq = 8;
            c.chunk = 4;
        },
        "8 sequences",
    );
    refused(
        |c| {
            c.overflow = Overflow::Ring;
            c.keep = 65;
        },
        "65 kept tokens",
    );
}
