//! `cbtop tune validate`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `cbtop tune validate`.
#[derive(Debug, Clone, Args)]
pub struct ValidateArgs {
    /// Runs to learn from and to hold out: folders of Parquet files, Parquet files, or JSON lines.
    #[arg(long, value_name = "DIR|FILE", num_args = 1..)]
    pub data: Vec<PathBuf>,
    /// A run store to take as well; without --data the user's own [default: $CBTOP_RUNS, or cbtop/runs.sqlite in
    /// $XDG_DATA_HOME or ~/.local/share].
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
    /// Seed of every draw: the same runs and seed give the same figures.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Take runs that break a rule of quality as well.
    #[arg(long)]
    pub all: bool,
    /// Exit with 1 unless every target is met.
    #[arg(long)]
    pub check: bool,
    /// Output.
    #[arg(short = 'o', long = "output", value_enum, default_value_t = ValidateFormat::Md)]
    pub format: ValidateFormat,
}

/// Output of `cbtop tune validate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ValidateFormat {
    /// Markdown tables.
    Md,
    /// JSON.
    Json,
}
