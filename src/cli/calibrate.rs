//! `cbtop calibrate`.

use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// `cbtop calibrate`.
#[derive(Debug, Clone, Args)]
pub struct CalibrateArgs {
    /// GGUF files to run, or folders of them [default: the embedded demo].
    #[arg(short, long = "model", value_name = "FILE|FOLDER", num_args = 1..)]
    pub models: Vec<PathBuf>,
    /// Time for the micro-benchmarks, seconds.
    #[arg(long, value_name = "SECONDS", default_value = "24", value_parser = crate::cli::parse_seconds)]
    pub time: Duration,
    /// Where the fitted model goes; one that is there is what is fitted [default: tuner.safetensors beside the user's run
    /// store, $CBTOP_RUNS or cbtop/runs.sqlite in $XDG_DATA_HOME or ~/.local/share].
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The run store [default: $CBTOP_RUNS, or cbtop/runs.sqlite in $XDG_DATA_HOME or ~/.local/share].
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
