//! `cbtop tune`: what the tuner learns from.

mod collect;

pub use collect::CollectArgs;

use clap::Subcommand;

/// Commands of the tuner's data and models.
#[derive(Debug, Subcommand)]
pub enum TuneCommand {
    /// Sweep over the engine's knobs on this machine and keep the runs.
    Collect(CollectArgs),
}
