//! `cbtop tune import`, `export` and `history`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// The run store that a command works on.
#[derive(Debug, Clone, Args)]
pub struct StoreArgs {
    /// The run store [default: $CBTOP_RUNS, or cbtop/runs.sqlite in $XDG_DATA_HOME or ~/.local/share].
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
}

/// `cbtop tune import`.
#[derive(Debug, Clone, Args)]
pub struct ImportArgs {
    /// Runs as `export` writes them: *.jsonl, *.parquet, or a folder with *.parquet files at any depth.
    #[arg(value_name = "FILE|FOLDER", required_unless_present = "public")]
    pub files: Vec<PathBuf>,
    /// Public results as CSV: source, hardware, backend, model, params_b, active_params_b, quant, test, n_tokens, batch,
    /// flash_attn, cuda_graphs, threads, tok_per_s, stddev.
    #[arg(long, value_name = "CSV", requires = "hardware")]
    pub public: Option<PathBuf>,
    /// Figures of their hardware as CSV: hardware, kind, mem_bw_gbs, fp16_tflops, fp32_tflops, sm_count, l2_mb, mem_gb.
    #[arg(long, value_name = "CSV", requires = "public")]
    pub hardware: Option<PathBuf>,
    /// Where they are kept.
    #[command(flatten)]
    pub store: StoreArgs,
}

/// `cbtop tune export`.
#[derive(Debug, Clone, Args)]
pub struct ExportArgs {
    /// File or folder to write, - for JSON lines on standard output.
    #[arg(short, long, value_name = "FILE|FOLDER")]
    pub out: PathBuf,
    /// What is written [default: by the name: *.parquet, *.json and *.jsonl, else a data set].
    #[arg(long, value_enum)]
    pub format: Option<ExportFormat>,
    /// Replace a file that is there.
    #[arg(long)]
    pub force: bool,
    /// Where they are kept.
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Output of `cbtop tune export`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// One Parquet file.
    Parquet,
    /// JSON lines.
    Json,
    /// A folder of Parquet files, one for every origin and machine: what `tune train --data` reads.
    Dataset,
    /// JSON lines without names of machines, models and sources, to give to others.
    Anonymous,
}

/// `cbtop tune history`.
#[derive(Debug, Clone, Args)]
pub struct HistoryArgs {
    /// Runs shown, the newest first.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub limit: u32,
    /// What is printed.
    #[arg(short = 'o', long = "output", value_enum, default_value_t = HistoryFormat::Md)]
    pub format: HistoryFormat,
    /// Where they are kept.
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Output of `cbtop tune history`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HistoryFormat {
    /// A Markdown table.
    Md,
    /// JSON: an array of runs.
    Json,
}
