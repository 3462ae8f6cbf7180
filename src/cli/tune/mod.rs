//! `cbtop tune`: what the tuner learns from.

mod collect;
mod recipe;
mod store;
mod train;
mod validate;

pub use collect::CollectArgs;
pub use recipe::RecipeArgs;
pub use store::{ExportArgs, ExportFormat, HistoryArgs, HistoryFormat, ImportArgs};
pub use train::TrainArgs;
pub use validate::{ValidateArgs, ValidateFormat};

use clap::Subcommand;

/// Commands of the tuner's data and models.
#[derive(Debug, Subcommand)]
pub enum TuneCommand {
    /// Sweep over the engine's knobs on this machine and keep the runs.
    Collect(CollectArgs),
    /// Take in runs of files and data sets, or public results, each run once.
    Import(ImportArgs),
    /// Write the runs as JSON lines, Parquet, or a data set of many machines.
    Export(ExportArgs),
    /// Show the runs that are kept, the newest first.
    History(HistoryArgs),
    /// Learn from runs: rates, kernels and bottlenecks, judged on runs that were held out.
    Train(TrainArgs),
    /// How well rates are foretold of runs that were held out, by every method.
    Validate(ValidateArgs),
    /// Run the stages of a recipe: collect, train, check.
    Run(RecipeArgs),
}
