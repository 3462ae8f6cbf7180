//! Commands about how good a quantised model is.

use super::{EngineArgs, EvalPath, TraceFormat};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `cbtop perplexity`.
#[derive(Debug, Args)]
pub struct PerplexityArgs {
    /// GGUF file [default: the embedded demo].
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Text to score, - for standard input. It is cut into windows as long as the context (--ctx, here 512 by default), and
    /// the second half of each is scored, as llama.cpp's llama-perplexity does.
    #[arg(short, long, value_name = "TEXT")]
    pub file: PathBuf,
    /// Windows scored at most [default: all that are whole].
    #[arg(long, value_name = "N")]
    pub chunks: Option<usize>,
    /// Score the same tokens with this GGUF file too, the same model in another precision, and compare.
    #[arg(long, value_name = "FILE")]
    pub reference: Option<PathBuf>,
    /// The scalar F32 reference, or the kernels that the dashboard runs.
    #[arg(long, value_enum, default_value_t = EvalPath::Fast)]
    pub path: EvalPath,
    /// What is printed.
    #[arg(long, value_enum, default_value_t = PerplexityFormat::Text)]
    pub format: PerplexityFormat,
    /// Knobs of the engine.
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// Output of `cbtop perplexity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PerplexityFormat {
    /// Text.
    Text,
    /// JSON.
    Json,
}

/// `cbtop quant-error`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 acceptable or warning; 1 the cosine of a brick's own error, in any layer, or of the logits is \
below 0.99 or no number (errors that arrive from bricks before do not count); 2 bad usage or bad input."
)]
pub struct QuantErrorArgs {
    /// GGUF file [default: the embedded demo].
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// The same model in higher precision to compare with [default: the file's own weights in F32, which leaves what int8
    /// activations and kernels cost].
    #[arg(long, value_name = "FILE")]
    pub reference: Option<PathBuf>,
    /// Text to run, - for standard input [default: a sample that is part of cbtop].
    #[arg(short, long, value_name = "FILE", conflicts_with = "text")]
    pub file: Option<PathBuf>,
    /// Text to run, itself.
    #[arg(long)]
    pub text: Option<String>,
    /// First tokens of the text that are run [default: 64].
    #[arg(short = 'n', long, value_name = "N")]
    pub tokens: Option<usize>,
    /// A row for every layer, not for every brick's worst one.
    #[arg(long)]
    pub all: bool,
    /// What is printed.
    #[arg(long, value_enum, default_value_t = TraceFormat::Table)]
    pub format: TraceFormat,
    /// Knobs of the engine.
    #[command(flatten)]
    pub engine: EngineArgs,
}
