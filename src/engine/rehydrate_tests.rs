use super::*;
use crate::engine::capture::{Capture, Captured, Part};
use crate::engine::cpu::KernelSet;
use crate::engine::{Config, KvType, Logits, Overflow, StepKind, Unobserved};
use crate::session::{Loaded, Source};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

type Stream = HashMap<(usize, usize), Vec<f32>>;

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("folder")
        .map(|e| e.expect("entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "gguf"))
        .collect();
    files.sort();
    files
}

/// Every tiny model of the repository, and the demo.
fn models() -> Vec<Loaded> {
    let files = [
        files("tests/fixtures/archs"),
        files("tests/fixtures/models"),
    ]
    .concat();
    let sources = files.into_iter().map(Source::File).chain([Source::Demo]);
    sources.map(|s| Loaded::open(s).expect("a model")).collect()
}

fn engine(loaded: &Loaded, config: Config) -> Engine<Unobserved> {
    Engine::new(loaded.model.clone(), config, Unobserved).expect("engine")
}

fn config(loaded: &Loaded, kv_type: KvType) -> Config {
    Config {
        n_ctx: 32,
        chunk: 16,
        kv_type,
        threads: 2,
        ..loaded.config()
    }
}

fn ids(loaded: &Loaded, n: usize) -> Vec<u32> {
    (0..n)
        .map(|i| ((i * 37 + 11) % loaded.model.n_vocab) as u32)
        .collect()
}

/// Runs `ids` in these steps; the stream of all of it.
fn run(engine: &mut Engine<Unobserved>, ids: &[u32], steps: &[usize]) -> Stream {
    let mut stream = Stream::new();
    engine.set_capture(Some(Capture::ALL)).expect("memory");
    let mut rest = ids;
    for &n in steps {
        let (step, after) = rest.split_at(n);
        engine
            .begin(step, Logits::Last, StepKind::Prefill)
            .expect("a step");
        let mut take = |c: Captured<'_>| {
            if c.part == Part::Residual {
                stream.insert((c.layer, c.position), c.data.to_vec());
            }
        };
        engine.finish_captured(&mut take).expect("a step");
        engine.end_step();
        rest = after;
    }
    stream
}

fn bits(engine: &mut Engine<Unobserved>) -> Vec<u32> {
    let logits = engine.logits(0).iter();
    logits.map(|l| l.to_bits()).collect()
}

#[test]
fn f271_a_cache_rebuilt_from_the_stream_is_that_of_the_run_bit_for_bit() {
    let mut checked = 0;
    for loaded in models() {
        for kv_type in KvType::ALL {
            let config = config(&loaded, kv_type);
            if config.check_heads(&loaded.model.hparams).is_err() {
                continue;
            }
            let what = format!("{} {}", loaded.source, kv_type.name());
            // Coarse scales, fine ones, one token.
            let steps = [9, 3, 1];
            let ids = ids(&loaded, 13);
            let mut ran = engine(&loaded, config.clone());
            let stream = run(&mut ran, &ids, &steps);
            let mut rebuilt = engine(&loaded, config);
            let residual = |layer, position| stream.get(&(layer, position)).map(Vec::as_slice);
            let there = rebuilt
                .rehydrate(0, &steps, Some(&ids), &residual)
                .expect("a stream");
            assert!(there, "{what}: logits");
            assert!(
                ran.exec.cache_bits() == rebuilt.exec.cache_bits(),
                "{what}: the cache differs"
            );
            assert_eq!(bits(&mut ran), bits(&mut rebuilt), "{what}: logits");
            assert_eq!((ran.past(), rebuilt.past()), (13, 13));
            for id in [5, 3] {
                ran.decode(id).expect("a token");
                rebuilt.decode(id).expect("a token");
                assert_eq!(bits(&mut ran), bits(&mut rebuilt), "{what}: decoding on");
            }
            checked += 1;
        }
    }
    assert!(checked > 60, "{checked}");
}

#[test]
fn f271_rings_goings_on_and_every_kernel_set_too() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models/llama.Q4_K_M.gguf");
    let loaded = Loaded::open(Source::File(path)).expect("a model");
    for kernels in KernelSet::available() {
        let config = Config {
            n_ctx: 12,
            chunk: 6,
            keep: 2,
            overflow: Overflow::Ring,
            kernels,
            n_seq: 2,
            ..config(&loaded, KvType::F16)
        };
        let ids = ids(&loaded, 20);
        let steps = [6, 6, 1, 1, 6];
        let mut ran = engine(&loaded, config.clone());
        let stream = run(&mut ran, &ids, &steps);
        let residual = |layer, position| stream.get(&(layer, position)).map(Vec::as_slice);
        let mut rebuilt = engine(&loaded, config);
        // The first half is run, the second comes from the stream.
        run(&mut rebuilt, &ids[..12], &steps[..2]);
        rebuilt
            .rehydrate(0, &steps[2..], Some(&ids[12..]), &residual)
            .expect("a stream");
        assert!(
            ran.exec.cache_bits() == rebuilt.exec.cache_bits(),
            "{kernels}"
        );
        assert_eq!(ran.slots(0), rebuilt.slots(0));
        assert_eq!(ran.cache_state(), rebuilt.cache_state());
        ran.decode(1).expect("a token");
        rebuilt.decode(1).expect("a token");
        assert_eq!(bits(&mut ran), bits(&mut rebuilt), "{kernels}");
    }
}

#[test]
fn a_stream_that_does_not_fit_is_refused_and_changes_nothing() {
    let loaded = Loaded::open(Source::Demo).expect("demo");
    let config = config(&loaded, KvType::F16);
    let ids = ids(&loaded, 6);
    let mut ran = engine(&loaded, config.clone());
    let stream = run(&mut ran, &ids, &[6]);
    let mut other = engine(&loaded, config);
    run(&mut other, &ids[..2], &[2]);
    other.truncate(0);
    let before = other.exec.cache_bits();
    let nan = vec![f32::NAN; loaded.model.hparams.n_embd];
    let mut refused = |steps: &[usize],
                       ids: Option<&[u32]>,
                       bad: Option<(usize, usize)>,
                       with: Option<&[f32]>| {
        let residual = |layer, position| match bad {
            Some(at) if at == (layer, position) => with,
            _ => stream.get(&(layer, position)).map(Vec::as_slice),
        };
        let error = other
            .rehydrate(0, steps, ids, &residual)
            .expect_err("does not fit");
        assert!(other.exec.cache_bits() == before);
        assert_eq!(other.past(), 0);
        error.to_string()
    };
    assert_eq!(
        refused(&[], None, None, None),
        EngineError::Empty.to_string()
    );
    assert_eq!(
        refused(&[3, 0], None, None, None),
        EngineError::Empty.to_string()
    );
    insta::assert_snapshot!(refused(&[17], None, None, None), @"a step of 17 tokens is larger than the chunk or the logit rows of 16");
    insta::assert_snapshot!(refused(&[16, 16, 1], None, None, None), @"33 tokens do not fit into a context of 32; use a larger one (--ctx) or a shorter prompt");
    insta::assert_snapshot!(refused(&[4, 2], Some(&ids[..5]), None, None), @"5 token ids for 6 positions; give one for each");
    insta::assert_snapshot!(refused(&[6], None, Some((2, 4)), None), @"the stream after layer 1 at position 4 is missing: the cache needs the stream of every layer and position; capture all");
    insta::assert_snapshot!(refused(&[6], None, Some((0, 5)), Some(&nan)), @"the embedding at position 5 holds values that are no finite numbers: no cache can be made of it; capture the text again");
    let mut shifted = ids.clone();
    shifted.rotate_left(1);
    insta::assert_snapshot!(refused(&[2, 4], Some(&shifted), None, None), @"the stream at position 0 does not begin with this model's embedding of its token: it was captured from another model; open that one");
    assert!(refused(&[6], None, Some((1, 0)), Some(&nan[1..])).contains("of another model"));
    let bad = [u32::MAX; 6];
    assert!(refused(&[6], Some(&bad), None, None).contains("outside the vocabulary"));
}
