//! `cbtop oracle` and `cbtop brick-tune`.

use cbtop::engine::KvType;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `cbtop oracle`.
#[derive(Debug, Args)]
pub struct OracleArgs {
    /// GGUF file [default: the embedded demo].
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// What it would run on: a name such as "RTX 4090", or here for this machine.
    #[arg(long, value_name = "NAME", default_value = "here")]
    pub hardware: String,
    /// Sequences run together, with commas between them.
    #[arg(short, long, value_name = "N,N", value_delimiter = ',', default_value = "1,4,8", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch: Vec<u32>,
    /// Tokens of each sequence's prompt [default: 512, fewer in a model of a shorter context].
    #[arg(short, long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(0..=10_000_000))]
    pub prompt: Option<u32>,
    /// Context of each sequence to allocate, tokens [default: the model's, at most 8192].
    #[arg(short, long = "ctx", value_name = "TOKENS")]
    pub ctx: Option<usize>,
    /// Element type of the kv cache: f16, f32 or q8_0; given, no other is looked at.
    #[arg(long, value_name = "TYPE")]
    pub kv_type: Option<KvType>,
    /// What to print.
    #[arg(short = 'o', long = "output", value_enum, default_value_t = OracleFormat::Md)]
    pub format: OracleFormat,
}

/// Output of `cbtop oracle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OracleFormat {
    /// A Markdown table.
    Md,
    /// JSON.
    Json,
}

/// `cbtop brick-tune`.
#[derive(Debug, Args)]
pub struct BrickTuneArgs {
    /// JSON reports of --headless --format json, or recordings (their last frames).
    #[arg(short, long, value_name = "FILE", num_args = 1.., required = true)]
    pub input: Vec<PathBuf>,
    /// Exit with 1 unless all targets that the profiles can show are met, or the score is 90 or more.
    #[arg(long)]
    pub validate: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
