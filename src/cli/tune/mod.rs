//! `cbtop tune`: what the tuner learns from.

mod collect;
mod train;

pub use collect::CollectArgs;
pub use train::TrainArgs;

use clap::Subcommand;

/// Commands of the tuner's data and models.
#[derive(Debug, Subcommand)]
pub enum TuneCommand {
    /// Sweep over the engine's knobs on this machine and keep the runs.
    Collect(CollectArgs),
    /// Learn from runs: rates, kernels and bottlenecks, judged on runs that were held out.
    Train(TrainArgs),
}
