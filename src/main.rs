//! The `cbtop` program: parses the command line and calls one function.

mod cli;
mod commands;

use clap::Parser;
use std::io::{ErrorKind, Write};
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
            report(&e);
            ExitCode::from(BAD_INPUT)
        }
    }
}

/// One line, whatever a file's name or contents put into the message; nobody may be reading it.
fn report(e: &anyhow::Error) {
    // What the commands read themselves says so; an error of the system on its own comes from printing.
    let alone = e.chain().count() == 1;
    let printing = alone && e.downcast_ref::<std::io::Error>().is_some();
    let what = if printing { "writing the output: " } else { "" };
    let mut message = e.to_string();
    for cause in e.chain().skip(1).map(ToString::to_string) {
        // Some errors have their cause in their own words.
        if !message.contains(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    let line: String = message
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    let _ = writeln!(std::io::stderr(), "cbtop: {what}{line}");
}

fn is_closed_pipe(e: &anyhow::Error) -> bool {
    e.chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|io| io.kind() == ErrorKind::BrokenPipe)
}
