//! The `cbtop` program: parses the command line and calls one function.

mod cli;
mod commands;

use clap::Parser;
use std::io::ErrorKind;
use std::process::ExitCode;

/// Bad usage or bad input.
const BAD_INPUT: u8 = 2;

fn main() -> ExitCode {
    let cli = cli::Cli::parse_from(commands::bench::long_flags(std::env::args_os()));
    match commands::run(cli) {
        Ok(code) => code,
        // `| head` closed the output: it has seen what it wanted.
        Err(e) if is_closed_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("cbtop: {e:#}");
            ExitCode::from(BAD_INPUT)
        }
    }
}

fn is_closed_pipe(e: &anyhow::Error) -> bool {
    e.chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|io| io.kind() == ErrorKind::BrokenPipe)
}
