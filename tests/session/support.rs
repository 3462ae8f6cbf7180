//! Sessions on tiny models, and what holds of every snapshot.

use cbtop::engine::cpu::KernelSet;
use cbtop::engine::sampler::SamplerConfig;
use cbtop::engine::{Config, KvType, SyncMode, config::Schedule};
use cbtop::profiler::Clock;
use cbtop::session::snapshot::{
    BrickRow, Command, MAX_TOKENS_SHOWN, RecommendationStatus, RunState, Snapshot,
};
use cbtop::session::{Loaded, Options, Session, Source};
use std::path::Path;

pub const LLAMA: &str = "llama.Q4_K_M.gguf";

/// The tiny Llama fixture (3 layers, 512 tokens of vocabulary, random weights).
pub fn llama() -> Loaded {
    crate::common::fixture(LLAMA)
}

pub fn demo() -> Loaded {
    Loaded::open(Source::Demo).expect("the demo")
}

/// The same model with another token ending the text.
pub fn llama_ending_with(id: u32) -> Loaded {
    const KEY: &[u8] = b"tokenizer.ggml.eos_token_id";
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/models")
        .join(LLAMA);
    let mut bytes = std::fs::read(path).expect("fixture");
    let key = bytes
        .windows(KEY.len())
        .position(|w| w == KEY)
        .expect("the key");
    // Behind the key: 4 bytes of type, then the value.
    let value = key + KEY.len() + 4;
    bytes[value..value + 4].copy_from_slice(&id.to_le_bytes());
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ending.gguf");
    std::fs::write(&file, bytes).expect("written");
    Loaded::open(Source::File(file)).expect("still a model")
}

/// Modelled time, one thread, scalar kernels: the same everywhere.
pub fn options(prompt: &str) -> Options {
    Options {
        config: Config {
            threads: 1,
            kernels: KernelSet::Scalar,
            n_ctx: 64,
            kv_type: KvType::F16,
            chunk: 16,
            schedule: Schedule::Dynamic,
            pin: false,
            ..Config::for_context(64)
        },
        explicit: Default::default(),
        sampler: SamplerConfig::GREEDY,
        prompt: prompt.into(),
        chat: false,
        max_tokens: None,
        endless: false,
        pace: None,
        clock: Clock::modelled(),
        bandwidth: Vec::new(),
        peaks: Vec::new(),
        sync_mode: SyncMode::Deferred,
        beside: None,
        overlay: None,
        tracers: Default::default(),
        reference: None,
        tuner: None,
    }
}

pub fn session(loaded: Loaded, options: Options) -> Session {
    Session::new(loaded, options).expect("a session")
}

/// Ticks until `done`; a session that never gets there fails the test.
pub fn until(s: &mut Session, what: &str, mut done: impl FnMut(&mut Session) -> bool) {
    for _ in 0..5000 {
        if done(s) {
            return;
        }
        s.tick();
    }
    panic!("never came to: {what}; {:?}", s.snapshot());
}

pub fn finish(s: &mut Session) -> String {
    until(s, "an end", |s| s.is_over());
    match s.state() {
        RunState::Finished { reason } => reason,
        other => panic!("{other:?}"),
    }
}

pub fn ids(s: &mut Session) -> Vec<u32> {
    s.snapshot().tokens.iter().map(|t| t.id).collect()
}

pub fn texts(s: &Snapshot) -> String {
    s.tokens.iter().map(|t| t.text.as_str()).collect()
}

/// Ids of an undisturbed greedy run.
pub fn plain_ids(loaded: Loaded, mut options: Options, count: u64) -> Vec<u32> {
    options.max_tokens = Some(count);
    let mut s = session(loaded, options);
    finish(&mut s);
    ids(&mut s)
}

pub fn obey(s: &mut Session, command: Command) {
    assert!(s.obey(command));
}

pub fn status(s: &Snapshot, id: &str) -> RecommendationStatus {
    let found = s.recommendations.iter().find(|r| r.id == id);
    found
        .unwrap_or_else(|| panic!("no '{id}' in {:?}", s.recommendations))
        .status
        .clone()
}

pub fn error_of(s: &Snapshot) -> &str {
    let message = s.message.as_ref().expect("a message");
    assert!(message.is_error, "{message:?}");
    &message.text
}

/// What holds of every snapshot, whatever the session is doing.
pub fn check(s: &Snapshot, last_seq: u64) {
    assert_eq!(s.seq, last_seq + 1);
    assert!(
        s.context_used <= s.engine.n_ctx,
        "{} tokens",
        s.context_used
    );
    assert!(s.memory.kv_used_bytes <= s.memory.kv_bytes);
    for rows in [&s.bricks, &s.prefill_bricks] {
        shares_are_whole(rows);
    }
    assert!(s.tokens.len() <= MAX_TOKENS_SHOWN);
    assert!(s.tokens.len() as u64 <= s.generated);
    assert!(
        s.tokens
            .iter()
            .all(|t| (0.0..=1.0).contains(&t.prob) && t.us.is_finite() && t.us >= 0.0)
    );
    let r = &s.rates;
    for rate in [
        r.decode_now_tok_s,
        r.decode_mean_tok_s,
        r.prefill_tok_s,
        r.ttft_s,
    ] {
        assert!(rate.is_none_or(|v| v.is_finite() && v > 0.0), "{r:?}");
    }
    let measuring = |s: &RecommendationStatus| matches!(s, RecommendationStatus::Measuring { .. });
    let all: Vec<_> = s.recommendations.iter().map(|r| &r.status).collect();
    assert!(all.iter().filter(|s| measuring(s)).count() <= 1, "{all:?}");
    match &s.state {
        RunState::Prefill { done, total } => {
            assert!(
                done < total && *done == s.context_used && s.generated == 0,
                "{:?}",
                s.state
            );
        }
        RunState::PausedAtLayer { next_layer } => {
            assert!((1..s.model.n_layers).contains(next_layer), "{next_layer}");
            assert!(s.last_step.is_some());
        }
        RunState::Decode => assert!(s.generated > 0 && s.context_used > 0),
        RunState::Finished { reason } => {
            assert!(["end of text", "token limit", "context full"].contains(&reason.as_str()));
        }
        RunState::Failed { error } => assert!(!error.is_empty() && !error.contains('\n')),
        RunState::Paused => {}
    }
    if s.generated > 0 {
        assert!(r.ttft_s.is_some(), "no time to first token behind it");
    }
}

fn shares_are_whole(rows: &[BrickRow]) {
    let sum: f64 = rows.iter().map(|r| r.share).sum();
    assert!(rows.is_empty() || (sum - 1.0).abs() < 1e-9, "{sum}");
}
