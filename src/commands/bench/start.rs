//! What a model costs before its first test: opening it and getting one token out of it.

use cbtop::engine::{Config, Engine, Unobserved};
use cbtop::gguf::LoadOptions;
use cbtop::model::Model;
use cbtop::profiler::os::{FaultCounter, Faults, resident_bytes};
use cbtop::session::{Source, load};
use cbtop::tokenizer::Tokenizer;
use std::sync::Arc;
use std::time::Instant;

/// What is processed for the first token.
const PROMPT: &str = "The capital of France is";
/// Stands for the prompt where the vocabulary cannot be read.
const IDS: [u32; 5] = [0; 5];

/// The start of a model in this process; counters are `None` where the system does not tell.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Start {
    /// How the file is in memory: `mmap, willneed`.
    pub how: String,
    /// Opening, checking and preparing the file and its vocabulary, milliseconds.
    pub load_ms: f64,
    /// From the same beginning to the first token of a short prompt, milliseconds.
    pub first_token_ms: f64,
    /// Resident memory of the process after that token.
    pub rss_bytes: Option<u64>,
    /// Page faults from the beginning to that token.
    pub faults: Option<Faults>,
}

/// Opens a model and runs one prompt with `config`.
///
/// # Errors
/// A file that cannot be read or run. A vocabulary that cannot be read is none: tests need no text.
pub(super) fn start(
    source: &Source,
    options: Option<LoadOptions>,
    config: impl FnOnce(&Model) -> Config,
) -> anyhow::Result<(Arc<Model>, Start, Vec<String>)> {
    let counter = FaultCounter::open();
    let read = || counter.as_ref().and_then(FaultCounter::read);
    let (before, began) = (read(), Instant::now());
    let mut gguf = load::open(source)?;
    let outcome = gguf.load(options.unwrap_or_else(|| load::automatic(&gguf)))?;
    let tokenizer = Tokenizer::from_gguf(&gguf).ok();
    let model = Model::new(Arc::new(gguf)).map_err(|e| anyhow::anyhow!("{source}: {e}"))?;
    let model = Arc::new(model);
    let ms = || began.elapsed().as_secs_f64() * 1e3;
    let load_ms = ms();
    let mut config = config(&model);
    config.n_ctx = config.n_ctx.max(64);
    let mut ids = tokenizer
        .and_then(|t| t.encode(PROMPT, true, false).ok())
        .unwrap_or_else(|| IDS.to_vec());
    ids.truncate(config.n_ctx);
    ids.retain(|&id| (id as usize) < model.n_vocab);
    let mut engine = Engine::new(Arc::clone(&model), config, Unobserved)?;
    if !ids.is_empty() {
        engine.prefill(&ids)?;
    }
    let first_token_ms = ms();
    let faults = before.zip(read()).map(|(then, now)| now.since(then));
    let start = Start {
        how: match source {
            Source::Demo => "embedded".into(),
            Source::File(_) => outcome.options.to_string(),
        },
        load_ms,
        first_token_ms,
        rss_bytes: resident_bytes(),
        faults,
    };
    Ok((model, start, outcome.notes))
}

impl Start {
    /// One line for people.
    pub fn line(&self) -> String {
        let rss = self.rss_bytes.map_or_else(
            || "-".into(),
            |b| format!("{:.1} MiB", b as f64 / f64::from(1 << 20)),
        );
        let faults = self.faults.map_or_else(
            || "-".into(),
            |f| format!("{} minor, {} major", f.minor, f.major),
        );
        format!(
            "load {:.0} ms ({}), first token after {:.0} ms, resident {rss}, page faults {faults}",
            self.load_ms, self.how, self.first_token_ms
        )
    }
}
