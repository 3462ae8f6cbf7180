//! `cbtop tune`: what the tuner learns from.

mod collect;
mod validate;

pub use collect::CollectArgs;
pub use validate::{ValidateArgs, ValidateFormat};

use clap::Subcommand;

/// Commands of the tuner's data and models.
#[derive(Debug, Subcommand)]
pub enum TuneCommand {
    /// Sweep over the engine's knobs on this machine and keep the runs.
    Collect(CollectArgs),
    /// How well rates are foretold of runs that were held out, by every method.
    Validate(ValidateArgs),
}
