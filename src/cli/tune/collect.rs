//! `cbtop tune collect`.

use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// `cbtop tune collect`.
#[derive(Debug, Clone, Args)]
pub struct CollectArgs {
    /// GGUF files, or folders of them [default: the embedded demo].
    #[arg(short, long = "model", value_name = "FILE|FOLDER", num_args = 1..)]
    pub models: Vec<PathBuf>,
    /// Settings drawn at random for each model, each run with every kernel set.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = parse_mixtures)]
    pub mixtures: usize,
    /// Repetitions of a run.
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=100))]
    pub repetitions: u32,
    /// Seed of the order and of what is drawn: the same seed goes on where an earlier sweep stopped.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Leave out a trial whose repetitions would take longer than this, seconds.
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = crate::cli::parse_seconds)]
    pub most: Duration,
    /// Stop after this many seconds; the next call goes on from there.
    #[arg(long, value_name = "SECONDS", value_parser = crate::cli::parse_seconds)]
    pub time_limit: Option<Duration>,
    /// The run store [default: $CBTOP_RUNS, or cbtop/runs.sqlite in $XDG_DATA_HOME or ~/.local/share].
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
}

/// So many mixtures that a plan of them still fits into memory.
fn parse_mixtures(s: &str) -> Result<usize, String> {
    let most = 10_000;
    let n = s.parse().ok().filter(|n| *n <= most);
    n.ok_or_else(|| format!("'{s}' is no number of mixtures; give 0 to {most}"))
}
