//! What each command does: reads its arguments, calls the library, prints.

pub mod bench;
mod brick_tune;
mod calibrate;
mod config;
mod dashboard;
mod diff;
mod eval;
mod export;
mod inspect;
mod oracle;
mod overhead;
mod perplexity;
mod quant_error;
mod recommend;
mod record;
mod replay;
mod run;
mod setup;
mod tokenize;
mod trace;
pub mod tune;

use crate::cli::{Cli, Command};
use std::io::{BufWriter, Write};
use std::process::ExitCode;

/// A text that is at hand everywhere.
const SAMPLE_TEXT: &str = include_str!("../../assets/sample.md");

/// `text` in one line, whatever a file put into it.
fn printable(text: &impl std::fmt::Display) -> String {
    text.to_string().replace(char::is_control, "?")
}

/// Runs the command of `cli`, the dashboard when there is none.
pub fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let Some(command) = cli.command else {
        return dashboard::run(&cli.dashboard, &cli.advice);
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let code = match command {
        Command::Bench(args) => bench::run(&args, &mut out),
        Command::Inspect(args) => inspect::run(&args, &mut out),
        Command::Eval(args) => eval::run(&args, &mut out),
        Command::Tokenize(args) => tokenize::run(&args, &mut out),
        Command::Run(args) => run::run(&args, &mut out),
        Command::Trace(args) => trace::run(&args, &mut out),
        Command::Overhead(args) => overhead::run(&args, &mut out),
        Command::Config(args) => config::run(&args, &mut out),
        Command::Record(args) => record::run(&args, &mut out),
        Command::Replay(args) => replay::run(&args, &mut out),
        Command::Diff(args) => diff::run(&args, &mut out),
        Command::Perplexity(args) => perplexity::run(&args, &mut out),
        Command::QuantError(args) => quant_error::run(&args, &mut out),
        Command::Calibrate(args) => calibrate::run(&args, &mut out),
        Command::Tune(command) => tune::run(&command, &mut out),
        Command::Oracle(args) => oracle::run(&args, &mut out),
        Command::BrickTune(args) => brick_tune::run(&args, &mut out),
    }?;
    out.flush()?;
    Ok(code)
}
