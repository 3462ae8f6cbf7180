//! `cbtop run`: plain text, token by token as it is generated.

use super::setup;
use crate::cli::RunArgs;
use anyhow::bail;
use cbtop::profiler::Clock;
use cbtop::session::snapshot::RunState;
use cbtop::session::snapshot::Snapshot;
use cbtop::session::{Options, Session};
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Generates and prints.
pub fn run(args: &RunArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let loaded = setup::load(args.model.as_deref(), &args.engine)?;
    // A file that does not exist is a mistake here, where nothing can be inserted.
    setup::facts(&args.facts, &loaded)?;
    let (config, explicit) = setup::config(&args.engine, &loaded)?;
    let mut session = Session::new(
        loaded,
        Options {
            config,
            explicit,
            sampler: setup::sampler(&args.sampler)?,
            prompt: args.prompt.clone(),
            chat: args.chat,
            max_tokens: Some(args.tokens),
            endless: false,
            pace: None,
            clock: Clock::calibrated(),
            bandwidth: Vec::new(),
            beside: None,
            overlay: args.facts.overlay.clone(),
            tracers: Default::default(),
            reference: None,
            peaks: Vec::new(),
            sync_mode: setup::sync_mode(None, &args.engine)?,
            tuner: None,
        },
    )?;
    let mut first_token = None;
    while !session.is_over() && session.generated() < args.tokens {
        out.write_all(session.tick().as_bytes())?;
        out.flush()?;
        if session.generated() > 0 {
            first_token.get_or_insert_with(|| began.elapsed());
        }
    }
    writeln!(out)?;
    if let RunState::Failed { error } = session.state() {
        bail!(error);
    }
    if args.stats {
        for line in stats(&session.snapshot(), first_token) {
            eprintln!("cbtop: {line}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Where the time and the memory went; `first_token` is wall time since the command began.
fn stats(s: &Snapshot, first_token: Option<Duration>) -> [String; 3] {
    let ms = |ms: Option<f64>| ms.map_or_else(|| "-".into(), |ms| format!("{ms:.1} ms"));
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".into(), |r| format!("{r:.1} tok/s"));
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let known = |value: Option<u64>| value.map_or_else(|| "-".into(), mib);
    let sum = |a: Option<u64>, b: Option<u64>| {
        a.zip(b)
            .map_or_else(|| "-".into(), |(a, b)| (a + b).to_string())
    };
    let (p, r, m) = (&s.phases, &s.rates, &s.memory);
    [
        format!(
            "load {} ({}), engine {}, first token after {}",
            ms(p.load_ms),
            s.engine.load,
            ms(p.engine_ms),
            ms(first_token.map(|d| d.as_secs_f64() * 1e3)),
        ),
        format!(
            "prompt {} tokens in {:.1} ms, {}; decode {} tokens in {:.1} ms, {}",
            p.prefill_tokens,
            p.prefill_ms,
            rate(r.prefill_tok_s),
            p.decode_tokens,
            p.decode_ms,
            rate(r.decode_mean_tok_s),
        ),
        format!(
            "resident {} (peak {}): weights {}, kv cache {} of {}, scratch {}; page faults {} minor, {} major",
            known(m.rss_bytes),
            known(m.peak_rss_bytes),
            mib(m.weights_bytes),
            mib(m.kv_used_bytes),
            mib(m.kv_bytes),
            mib(m.scratch_bytes),
            sum(m.load_minor_faults, m.minor_faults),
            sum(m.load_major_faults, m.major_faults),
        ),
    ]
}
