//! `cbtop tune train`.

use cbtop::tuner::learn::train::Part;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `cbtop tune train`.
#[derive(Debug, Clone, Args)]
pub struct TrainArgs {
    /// Runs to learn from: folders of Parquet files, Parquet files, or JSON lines.
    #[arg(long, value_name = "DIR|FILE", num_args = 1..)]
    pub data: Vec<PathBuf>,
    /// A run store to learn from as well; without --data the user's own [default: $CBTOP_RUNS, or cbtop/runs.sqlite in
    /// $XDG_DATA_HOME or ~/.local/share].
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
    /// The model to write; one that is there gives its version and the parts that are not trained [default: tuner.safetensors
    /// beside the user's run store].
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Seed of every draw: the same runs and seed give the same model.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Train these parts only.
    #[arg(long, value_name = "PART", value_delimiter = ',', num_args = 1..)]
    pub only: Vec<PartName>,
    /// Learn from runs that break a rule of quality as well.
    #[arg(long)]
    pub all: bool,
}

/// A part of the model by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PartName {
    /// Tokens a second.
    Rates,
    /// The fastest kernel set.
    Kernels,
    /// What limits a token.
    Bottleneck,
}

impl From<PartName> for Part {
    fn from(name: PartName) -> Self {
        match name {
            PartName::Rates => Self::Rates,
            PartName::Kernels => Self::Kernels,
            PartName::Bottleneck => Self::Bottleneck,
        }
    }
}
