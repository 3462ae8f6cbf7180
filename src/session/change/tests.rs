use super::*;
use crate::engine::knobs::Setting;
use crate::engine::sampler::SamplerConfig;
use crate::session::snapshot::Command;
use std::path::Path;

fn fixture() -> Loaded {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models");
    Loaded::open(Source::File(folder.join("llama.Q4_K_M.gguf"))).expect("a fixture")
}

fn session(loaded: Loaded) -> Session {
    let config = Config {
        threads: 1,
        n_ctx: 64,
        ..Config::for_context(64)
    };
    let options = Options {
        config,
        explicit: Default::default(),
        sampler: SamplerConfig::GREEDY,
        prompt: "hello".into(),
        chat: false,
        max_tokens: None,
        endless: false,
        pace: None,
        clock: Clock::modelled(),
        sync_mode: SyncMode::Deferred,
        bandwidth: Vec::new(),
        peaks: Vec::new(),
        beside: None,
        overlay: None,
        tracers: Default::default(),
        reference: None,
        tuner: None,
    };
    Session::new(loaded, options).expect("a session")
}

fn ids(s: &mut Session, upto: u64) -> Vec<u32> {
    while s.generated() < upto && !s.is_over() {
        s.tick();
    }
    s.snapshot().tokens.iter().map(|t| t.id).collect()
}

fn with(s: &Session, knob: &str, value: &str) -> Setup {
    s.setup()
        .with(&[Setting::new(knob, value)])
        .expect("a value")
}

#[test]
fn weights_are_loaded_again_and_the_text_goes_on() {
    let plain = ids(&mut session(fixture()), 24);
    let mut s = session(fixture());
    ids(&mut s, 8);
    let old = Arc::downgrade(&s.loaded.model);
    for how in ["read", "mmap,random", "read,huge-pages", "mmap,willneed"] {
        let setup = with(&s, "load", how);
        let generated = s.generated();
        match s.rebuild(&setup) {
            Ok(()) => assert_eq!(s.setup(), setup),
            // Not everywhere are there huge pages.
            Err(e) => assert!(how.contains("huge"), "{e}"),
        }
        ids(&mut s, generated + 2);
    }
    assert!(
        old.upgrade().is_none(),
        "the first copy gives its memory back"
    );
    assert_eq!(ids(&mut s, 24), plain);
}

#[test]
fn knobs_that_keep_numbers_keep_the_text() {
    let plain = ids(&mut session(fixture()), 24);
    let mut s = session(fixture());
    ids(&mut s, 4);
    for (knob, value) in [
        ("threads", "2"),
        ("waiting", "sleep"),
        ("schedule", "static"),
        ("prefetch", "0"),
        ("pin", "on"),
        ("pin", "off"),
        ("sync-mode", "per-layer"),
        ("sync-mode", "immediate"),
    ] {
        let setup = with(&s, knob, value);
        s.rebuild(&setup).expect("it can run");
        assert_eq!(s.setup(), setup);
        let n = s.generated() + 2;
        ids(&mut s, n);
    }
    assert_eq!(s.engine.observer().mode(), SyncMode::Immediate);
    assert_eq!(ids(&mut s, 24), plain);
}

#[test]
fn a_setup_that_cannot_be_leaves_everything_as_it_was() {
    let mut s = session(Loaded::open(Source::Demo).expect("the demo"));
    ids(&mut s, 4);
    let before = s.setup();
    let setup = with(&s, "load", "read");
    let error = s.rebuild(&setup).expect_err("it is in the program");
    assert!(
        error.contains("in memory already") && !error.contains('\n'),
        "{error}"
    );
    let mut huge = before.clone();
    huge.config.n_ctx = 1 << 24;
    let error = s.rebuild(&huge).expect_err("too much");
    assert!(!error.contains('\n'), "{error}");
    assert_eq!(s.setup(), before);
    let generated = s.generated();
    ids(&mut s, generated + 2);
    assert!(s.generated() > generated || s.is_over());
    assert!(s.obey(Command::Undo));
}
