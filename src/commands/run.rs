//! `cbtop run`: plain text, token by token as it is generated.

use super::setup;
use crate::cli::RunArgs;
use anyhow::bail;
use cbtop::profiler::Clock;
use cbtop::session::snapshot::RunState;
use cbtop::session::{Options, Session};
use std::io::Write;
use std::process::ExitCode;

/// Generates and prints.
pub fn run(args: &RunArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let loaded = setup::load(args.model.as_deref())?;
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
        },
    )?;
    while !session.is_over() && session.generated() < args.tokens {
        out.write_all(session.tick().as_bytes())?;
        out.flush()?;
    }
    writeln!(out)?;
    if let RunState::Failed { error } = session.state() {
        bail!(error);
    }
    Ok(ExitCode::SUCCESS)
}
