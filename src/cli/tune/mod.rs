//! `cbtop tune`: what the tuner learns from.

mod collect;
mod store;

pub use collect::CollectArgs;
pub use store::{ExportArgs, ExportFormat, HistoryArgs, HistoryFormat, ImportArgs};

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
}
