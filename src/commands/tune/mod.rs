//! What `cbtop tune` does.

pub mod collect;
mod history;
mod store;

use crate::cli::tune::TuneCommand;
use anyhow::{Context, anyhow};
use cbtop::tuner::store::Store;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Runs the command.
pub fn run(command: &TuneCommand, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    match command {
        TuneCommand::Collect(args) => collect::run(args, out),
        TuneCommand::Import(args) => store::import(args, out),
        TuneCommand::Export(args) => store::export(args, out),
        TuneCommand::History(args) => history::run(args, out),
    }
}

/// The store that was named, or the user's own.
pub fn open_store(named: Option<&Path>) -> anyhow::Result<Store> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => Store::default_path().ok_or_else(|| {
            anyhow!("no folder for the run store: HOME is not set; name a file with --store")
        })?,
    };
    Store::open(&path).context("opening the run store")
}
