//! Several sequences, batches cut into steps, and caches that turn round.

mod common;

use cbtop::engine::batch::{Split, Token};
use cbtop::engine::cpu::KernelSet;
use cbtop::engine::reference::Reference;
use cbtop::engine::{
    Config, Engine, EngineError, KvType, Logits, Overflow, Reuse, StepKind, Unobserved,
};
use cbtop::model::Slots;
use cbtop::session::{Loaded, Source};
use common::{cosine, fixture, shared};

/// Most sequences of these tests.
const MOST: usize = 64;

fn engine(loaded: &Loaded, change: impl FnOnce(&mut Config)) -> Engine<Unobserved> {
    let mut c = loaded.config();
    (c.threads, c.n_ctx, c.chunk) = (1, 32, 64);
    change(&mut c);
    Engine::new(loaded.model.clone(), c, Unobserved).expect("engine")
}

/// A file of the shared folder, `None` where that is not there.
fn model(file: &str) -> Option<Loaded> {
    let path = shared()?.join("models").join(file);
    Some(Loaded::open(Source::File(path)).expect(file))
}

/// The prompt of a sequence, two to five tokens, and what is decoded after it.
fn tokens(loaded: &Loaded, seq: usize) -> (Vec<u32>, [u32; 2]) {
    let id = |i: usize| ((seq * 131 + i * 17 + 5) % loaded.model.n_vocab) as u32;
    ((0..2 + seq % 4).map(id).collect(), [id(50), id(51)])
}

fn argmax(x: &[f32]) -> usize {
    let by_value = |(_, a): &(usize, &f32), (_, b): &(usize, &f32)| a.total_cmp(b);
    x.iter().enumerate().max_by(by_value).expect("logits").0
}

/// Root of the mean square.
fn norm(x: &[f32]) -> f32 {
    (x.iter().map(|v| v * v).sum::<f32>() / x.len() as f32).sqrt()
}

/// Logits of the last decoded token of sequences `0..n`, each run in an engine to itself.
fn alone(loaded: &Loaded, n: usize, change: impl Fn(&mut Config)) -> Vec<Vec<f32>> {
    let mut e = engine(loaded, change);
    (0..n)
        .map(|seq| {
            let (prompt, rest) = tokens(loaded, seq);
            e.truncate(0);
            e.prefill(&prompt).expect("prefill");
            rest.iter().for_each(|&id| e.decode(id).expect("decode"));
            e.logits(0).to_vec()
        })
        .collect()
}

/// The same for `n` sequences decoded together.
fn together(loaded: &Loaded, n: usize, change: impl Fn(&mut Config)) -> Vec<Vec<f32>> {
    let mut e = engine(loaded, |c| {
        change(c);
        c.n_seq = n;
    });
    for seq in 0..n {
        e.prefill_seq(seq, &tokens(loaded, seq).0).expect("prefill");
    }
    for i in 0..2 {
        // The order of a batch is not that of its sequences.
        let batch: Vec<_> = (0..n).rev().map(|s| (s, tokens(loaded, s).1[i])).collect();
        e.decode_batch(&batch).expect("decode");
    }
    (0..n).rev().map(|row| e.logits(row).to_vec()).collect()
}

#[test]
fn sequences_decoded_together_are_those_decoded_alone() {
    for file in ["llama.Q4_K_M.gguf", "gemma3.Q8_0.gguf", "qwen3.Q8_0.gguf"] {
        let Some(loaded) = model(file) else { return };
        for set in KernelSet::available() {
            for kv_type in KvType::ALL {
                let counts: &[usize] = match (set, kv_type) {
                    (KernelSet::Scalar, KvType::F16) => &[1, 3, 8],
                    (KernelSet::Scalar, _) => &[2],
                    (_, KvType::F16) => &[1, 2, 3, 8, 17, MOST],
                    _ => &[2, 3, 8],
                };
                let knobs = |c: &mut Config| (c.kernels, c.kv_type) = (set, kv_type);
                let want = alone(&loaded, counts[counts.len() - 1], knobs);
                for (i, &n) in counts.iter().enumerate() {
                    let got = together(&loaded, n, |c| {
                        knobs(c);
                        c.threads = 1 + i % 3;
                    });
                    for (seq, (got, want)) in got.iter().zip(&want).enumerate() {
                        let what = format!("{file} {set} {kv_type:?}: {seq} of {n}");
                        // Below eight columns activations have the scales that one alone has.
                        if n < 8 {
                            assert_eq!(got, want, "{what}");
                        }
                        // From eight on they are the coarser ones of prefill.
                        let c = cosine(got, want);
                        assert!(c > 0.999, "{what}: cosine {c}");
                        let (best, size) = (want[argmax(got)], norm(want));
                        let lost = want[argmax(want)] - best;
                        assert!(lost < 0.1 * size, "{what}: {best}, {lost} below the best");
                    }
                }
            }
        }
    }
}

#[test]
fn with_float_activations_every_batch_is_the_same_to_the_last_bit() {
    let Some(loaded) = model("llama.F16.gguf") else {
        return;
    };
    let scalar = |c: &mut Config| c.kernels = KernelSet::Scalar;
    let want = alone(&loaded, 17, scalar);
    for n in [1, 2, 8, 17] {
        assert_eq!(together(&loaded, n, scalar), want[..n], "{n}");
    }
}

#[test]
fn sequences_are_cut_back_and_refused_on_their_own() {
    let loaded = fixture("llama.Q4_K_M.gguf");
    let mut e = engine(&loaded, |c| (c.n_ctx, c.n_seq) = (8, 3));
    e.prefill_seq(1, &[1, 2, 3]).expect("prefill");
    e.prefill_seq(2, &[4; 8]).expect("fits exactly");
    assert_eq!((e.past(), e.past_of(1), e.room_of(2)), (0, 3, 0));
    assert_eq!(e.cached(), 11);
    let full = EngineError::ContextFull {
        needed: 9,
        n_ctx: 8,
    };
    assert_eq!(e.decode_batch(&[(1, 5), (2, 5)]), Err(full));
    assert_eq!(e.past_of(1), 3, "nothing of a refused batch runs");
    let twice = EngineError::SequenceTwice { seq: 1 };
    assert_eq!(e.decode_batch(&[(1, 5), (1, 6)]), Err(twice));
    let none = EngineError::NoSequence { seq: 3, n_seq: 3 };
    assert_eq!(e.decode_batch(&[(3, 5)]), Err(none.clone()));
    assert_eq!(e.prefill_seq(3, &[5]), Err(none));
    assert_eq!(e.decode_batch(&[]), Err(EngineError::Empty));
    assert_eq!(e.run_batch(&[], |_, _| {}), Err(EngineError::Empty));
    e.decode_batch(&[(1, 5), (0, 9)]).expect("decode");
    let want = e.logits(0).to_vec();
    e.truncate_seq(1, 3);
    e.truncate_seq(2, 0);
    assert_eq!((e.past_of(0), e.past_of(1), e.past_of(2)), (1, 3, 0));
    e.decode_batch(&[(1, 5)]).expect("decode");
    assert_eq!(e.logits(0), want);
}

#[test]
fn every_split_of_a_batch_gives_the_same() {
    for file in ["llama.F16.gguf", "gemma3.Q8_0.gguf"] {
        let Some(loaded) = model(file) else { return };
        // Prompts of 9, 1 and 4 tokens, interleaved, and a decode behind a prompt that is there already.
        let id = |seq: usize, i: usize| ((seq * 37 + i * 11 + 3) % loaded.model.n_vocab) as u32;
        let lengths = [9, 1, 4];
        let mut batch = Vec::new();
        for i in 0..9 {
            for (seq, &n) in lengths.iter().enumerate() {
                if i < n {
                    batch.push(Token {
                        seq,
                        id: id(seq, i),
                        logits: i + 1 == n || (seq == 0 && i == 2),
                    });
                }
            }
        }
        batch.push(Token {
            seq: 3,
            id: 7,
            logits: true,
        });
        let mut reference: Vec<Vec<Vec<f32>>> = Vec::new();
        for (seq, &n) in lengths.iter().enumerate() {
            let ids: Vec<u32> = (0..n).map(|i| id(seq, i)).collect();
            reference.push(Reference::new(&loaded.model).forward(&ids).expect("runs"));
        }
        let old = Reference::new(&loaded.model).forward(&[1, 2, 7]);
        reference.push(old.expect("runs").split_off(2));
        for how in Split::ALL {
            for sequential in [true, false] {
                for chunk in [4, 5, 64] {
                    let mut e = engine(&loaded, |c| {
                        (c.n_seq, c.chunk, c.logit_rows) = (4, chunk, chunk.min(5));
                        (c.split, c.sequential, c.threads) = (how, sequential, 2);
                    });
                    e.prefill_seq(3, &[1, 2]).expect("prefill");
                    let mut heard = Vec::new();
                    e.run_batch(&batch, |i, logits| heard.push((i, logits.to_vec())))
                        .expect("runs");
                    let mut which: Vec<usize> = heard.iter().map(|(i, _)| *i).collect();
                    which.sort_unstable();
                    let wanted = (0..batch.len()).filter(|&i| batch[i].logits);
                    assert_eq!(which, wanted.collect::<Vec<_>>());
                    for (i, logits) in heard {
                        let seq = batch[i].seq;
                        let at = batch[..i].iter().filter(|t| t.seq == seq).count();
                        let c = cosine(&logits, &reference[seq][at]);
                        assert!(
                            c > 0.999,
                            "{file} {how:?} {sequential} {chunk}: {seq} at {at}, {c}"
                        );
                    }
                    assert_eq!((e.past_of(0), e.past_of(3)), (9, 3));
                }
            }
        }
    }
}

#[test]
fn a_ring_sees_what_the_reference_sees() {
    for file in ["llama.F16.gguf", "gemma3.Q8_0.gguf"] {
        let Some(loaded) = model(file) else { return };
        let ids: Vec<u32> = (0..70)
            .map(|i| ((i * i * 7 + 3) % loaded.model.n_vocab) as u32)
            .collect();
        for (keep, chunk) in [(0, 1), (0, 7), (4, 7), (5, 19)] {
            for kv_type in KvType::ALL {
                let slots = Slots { n: 24, keep };
                let mut reference = Reference::with_slots(&loaded.model, slots);
                let mut e = engine(&loaded, |c| {
                    (c.n_ctx, c.chunk, c.keep) = (slots.n, chunk, keep);
                    (c.overflow, c.kv_type, c.threads) = (Overflow::Ring, kv_type, 2);
                });
                let (prompt, rest) = ids.split_at(50);
                let steps = prompt.chunks(chunk).chain(rest.chunks(1));
                for (i, step) in steps.enumerate() {
                    e.step(step, Logits::Last, StepKind::Prefill).expect("step");
                    let want = reference.forward(step).expect("runs").pop().expect("one");
                    let c = cosine(e.logits(0), &want);
                    assert!(
                        c > 0.999,
                        "{file} keep {keep} chunk {chunk} {kv_type:?}: step {i}, {c}"
                    );
                }
                assert_eq!((e.past(), e.cached()), (70, 24));
                let state = e.cache_state();
                assert_eq!((state.occupancy, state.fragmentation), (1.0, 0.0));
                assert_eq!(state.evicted, 70 - 24);
                let held: Vec<usize> = e.slots(0).iter().map(|s| s.position).collect();
                let want: Vec<usize> = (0..keep).chain(70 - (24 - keep)..70).collect();
                assert_eq!(held, want);
            }
        }
    }
}

#[test]
fn a_ring_that_is_not_full_is_as_no_ring() {
    let loaded = fixture("gemma3.Q8_0.gguf");
    let run = |change: &dyn Fn(&mut Config)| {
        let mut e = engine(&loaded, |c| {
            c.chunk = 8;
            change(c);
        });
        e.prefill(&[5; 20]).expect("prefill");
        e.decode(6).expect("decode");
        e.logits(0).to_vec()
    };
    let ring = |c: &mut Config| (c.overflow, c.keep) = (Overflow::Ring, 4);
    assert_eq!(run(&ring), run(&|_| {}));
}

#[test]
fn f174_steps_of_the_same_shape_are_counted() {
    let loaded = fixture("llama.Q4_K_M.gguf");
    let mut e = engine(&loaded, |c| c.n_seq = 2);
    let counts = |steps, reused| Reuse { steps, reused };
    assert_eq!(e.reuse(), counts(0, 0));
    e.prefill(&[1, 2, 3]).expect("prefill");
    e.decode(4).expect("decode");
    assert_eq!(e.reuse(), counts(2, 0));
    e.decode(5).expect("decode");
    e.decode(6).expect("decode");
    assert_eq!(e.reuse(), counts(4, 2));
    e.decode_batch(&[(0, 1), (1, 2)]).expect("decode");
    assert_eq!(e.reuse(), counts(5, 2));
    e.decode_batch(&[(0, 3), (1, 4)]).expect("decode");
    assert_eq!(e.reuse(), counts(6, 3));
    e.decode_batch(&[(1, 5)]).expect("decode");
    e.step(&[1], Logits::None, StepKind::Prefill).expect("step");
    assert_eq!(e.reuse(), counts(8, 3));
    assert!(e.decode(u32::MAX).is_err());
    assert_eq!(e.reuse(), counts(8, 3), "what is refused is no step");
}

#[test]
fn blocks_that_heads_do_not_fill_are_refused_with_a_way_out() {
    let loaded = fixture("llama.Q4_K_M.gguf");
    let mut hp = loaded.model.hparams.clone();
    let mut config = loaded.config();
    config.kv_type = KvType::Q8_0;
    assert_eq!(config.check_heads(&hp), Ok(()));
    hp.head_dim_v = 80;
    let error = config.check_heads(&hp).expect_err("80").to_string();
    assert!(
        error.contains("80") && error.contains("f16 or f32 (--kv-type)"),
        "{error}"
    );
    config.kv_type = KvType::F16;
    assert_eq!(config.check_heads(&hp), Ok(()));
}
