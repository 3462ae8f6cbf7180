//! Command-line definitions only; what they mean is in `commands/`.

pub mod calibrate;
mod oracle;
mod quality;
pub mod tune;

pub use oracle::{BrickTuneArgs, OracleArgs, OracleFormat};
pub use quality::{PerplexityArgs, PerplexityFormat, QuantErrorArgs};

use cbtop::engine::config::{AttentionPasses, Schedule, Waiting};
use cbtop::engine::cpu::prefetch::Prefetch;
use cbtop::engine::kernels_for::KernelsFor;
use cbtop::engine::{KvType, Overflow, SyncMode};
use cbtop::gguf::{LoadMethod, MapAdvice};
use cbtop::trace::lang;
use cbtop::tracer::figures::TracerSet;
use cbtop::tui::theme::ThemeName;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Full-screen terminal profiler for language-model inference.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Without a command: the dashboard, on the embedded demo model or on --model.\n\
Exit codes: 0 good, 1 a check failed, 2 bad usage or bad input."
)]
pub struct Cli {
    /// What to do instead of the dashboard.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The dashboard.
    #[command(flatten)]
    pub dashboard: DashboardArgs,
    /// What is done about the recommendations of a headless run.
    #[command(flatten)]
    pub advice: AdviceArgs,
}

/// What is done about recommendations without a terminal.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Tuning")]
pub struct AdviceArgs {
    /// Try all recommendations one by one, measured, and keep what is faster; then print them.
    #[arg(long, requires_all = ["headless", "recommend"])]
    pub apply: bool,
    /// Write the settings in force at the end to this profile, which --profile loads.
    #[arg(long, value_name = "FILE", requires_all = ["headless", "recommend"])]
    pub save: Option<PathBuf>,
    /// Replace a file that --save would leave because it is no profile.
    #[arg(long, requires = "save")]
    pub force: bool,
}

/// What the tuner of a session works with.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Tuning")]
pub struct TunerArgs {
    /// Keep no results in the store of runs, and read none from it.
    #[arg(long)]
    pub no_store: bool,
    /// Append to this file what is measured of changes: figures, no text, name or path. Without it nothing is written.
    #[arg(long, value_name = "FILE")]
    pub telemetry: Option<PathBuf>,
}

/// Commands beside the dashboard.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure prompt processing and token generation, as llama-bench does.
    Bench(super::commands::bench::BenchArgs),
    /// Show what is in a GGUF file, what it needs, and whether it can run.
    Inspect(InspectArgs),
    /// Print logits of a text as JSON.
    Eval(EvalArgs),
    /// Turn text into token ids, or back.
    Tokenize(TokenizeArgs),
    /// Generate plain text.
    Run(RunArgs),
    /// Trace the residual stream of prompts: what every layer adds, where the answer comes from.
    Trace(TraceArgs),
    /// Measure what profiling costs, in every mode, against the same engine unwatched.
    Overhead(OverheadArgs),
    /// Print the configuration in effect, to start one's own from.
    Config(LookArgs),
    /// The dashboard, with all that it shows saved to a file as it runs.
    Record(RecordArgs),
    /// The dashboard on a recording: play it, move within it.
    Replay(ReplayArgs),
    /// Compare two runs brick by brick.
    Diff(DiffArgs),
    /// Perplexity of a text, by llama.cpp's method.
    Perplexity(PerplexityArgs),
    /// Measure what quantisation costs brick by brick, against F32 or a file of higher precision.
    QuantError(QuantErrorArgs),
    /// Measure this machine for half a minute and fit the tuner's model to it.
    Calibrate(calibrate::CalibrateArgs),
    /// What the tuner learns from: collect runs, keep them, learn.
    #[command(subcommand)]
    Tune(tune::TuneCommand),
    /// Predict rates, times and memory of a model on a machine before anything runs.
    Oracle(OracleArgs),
    /// Grade the tuner's predictions against runs that were measured.
    BrickTune(BrickTuneArgs),
}

/// Knobs of the engine, shared by every command that runs a model.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Engine")]
pub struct EngineArgs {
    /// Threads [default: every CPU this process may use].
    #[arg(short, long, value_name = "N")]
    pub threads: Option<usize>,
    /// Kernels to use: auto (the best here), scalar, avx2 or avx512.
    #[arg(long, value_name = "KERNELS", default_value = "auto")]
    pub backend: String,
    /// Kernels of single weight types in their place, for example Q4_K=avx2,Q6_K=avx512 [default: none].
    #[arg(long, value_name = "TYPE=KERNELS")]
    pub kernels_for: Option<KernelsFor>,
    /// How queries read the kv cache: shared (up to four in one pass) or single [default: shared].
    #[arg(long, value_name = "HOW")]
    pub attention: Option<AttentionPasses>,
    /// How threads wait for each other: auto, spin (some 50 us, then sleep) or sleep [default: auto].
    #[arg(long, value_name = "HOW")]
    pub waiting: Option<Waiting>,
    /// Context length to allocate, tokens [default: the model's, at most 8192].
    #[arg(short, long = "ctx", value_name = "TOKENS")]
    pub ctx: Option<usize>,
    /// Element type of the kv cache: f16, f32 or q8_0.
    #[arg(long, value_name = "TYPE")]
    pub kv_type: Option<KvType>,
    /// Beyond the context: stop, or ring, where a token takes the place of the oldest [default: stop].
    #[arg(long, value_name = "HOW")]
    pub overflow: Option<Overflow>,
    /// First tokens that a ring never evicts [default: 0].
    #[arg(long, value_name = "TOKENS")]
    pub keep: Option<usize>,
    /// Tokens of a prompt processed at once [default: 512].
    #[arg(long, value_name = "TOKENS")]
    pub chunk: Option<usize>,
    /// How matrix rows are given to threads: dynamic or static [default: dynamic].
    #[arg(long, value_name = "HOW")]
    pub schedule: Option<Schedule>,
    /// Bind every thread to a CPU of its own.
    #[arg(long)]
    pub pin: bool,
    /// Bytes ahead that decode fetches weights, 0 for not; with a locality: 4096:low (none, low, moderate, high)
    /// [default: 4096].
    #[arg(long, value_name = "BYTES")]
    pub prefetch: Option<Prefetch>,
    /// Settings to start from, as --save wrote them; flags go first.
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// How the file is loaded.
    #[command(flatten)]
    pub load: LoadArgs,
}

/// How a file comes into memory.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Loading")]
pub struct LoadArgs {
    /// Map the file, read a copy of it, or read a copy past the page cache: mmap, read or direct [default: read
    /// with huge pages for files of 128 MiB to 4 GiB that fit a quarter of free memory, else mmap].
    #[arg(long, value_name = "HOW")]
    pub load: Option<LoadMethod>,
    /// What the system is told of a mapped file: none, willneed, populate, sequential or random [default: willneed].
    #[arg(long, value_name = "ADVICE")]
    pub load_advice: Option<MapAdvice>,
    /// Ask for huge pages under a copy (with --load read or direct).
    #[arg(long)]
    pub huge_pages: bool,
}

/// How the next token is chosen.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplerArgs {
    /// Temperature; 0 always takes the most probable token.
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    pub temp: f32,
    /// Keep the K most probable tokens; 0 keeps all.
    #[arg(long, value_name = "K", default_value_t = 40)]
    pub top_k: usize,
    /// Keep the fewest tokens whose probability reaches P; 1 keeps all.
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    pub top_p: f32,
    /// Drop tokens less probable than P times the most probable; 0 keeps all.
    #[arg(long, value_name = "P", default_value_t = 0.05)]
    pub min_p: f32,
    /// Seed of the random stream.
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub seed: u64,
}

/// Colours and configuration of everything that draws the dashboard.
#[derive(Debug, Clone, Default, Args)]
pub struct LookArgs {
    /// Colours: dark, light, colour-blind or none [default: dark; none with NO_COLOR].
    #[arg(long, value_name = "NAME")]
    pub theme: Option<ThemeName>,
    /// Configuration file [default: $CBTOP_CONFIG, or config.toml in $XDG_CONFIG_HOME/cbtop or ~/.config/cbtop].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// How the dashboard is drawn: on a terminal, or as one frame or report.
#[derive(Debug, Args)]
pub struct FrameArgs {
    /// Draw with ASCII only [default: by the locale].
    #[arg(long)]
    pub ascii: bool,
    /// Colours and configuration.
    #[command(flatten)]
    pub look: LookArgs,
    /// Run without a terminal, print one frame or report, exit.
    #[arg(long)]
    pub headless: bool,
    /// What --headless prints.
    #[arg(long, value_enum, default_value_t = Format::Text, requires = "headless")]
    pub format: Format,
    /// Size of the headless frame, columns x rows.
    #[arg(long, value_name = "WxH", default_value = "120x40", requires = "headless", value_parser = parse_size)]
    pub size: (u16, u16),
}

/// Facts that are in force beside the model.
#[derive(Debug, Clone, Default, Args)]
pub struct FactArgs {
    /// Facts in force, in a file that INSERT and DELETE write; the model's file is never changed.
    #[arg(long, value_name = "FILE")]
    pub overlay: Option<PathBuf>,
}

/// The dashboard and its headless form.
#[derive(Debug, Args)]
pub struct DashboardArgs {
    /// GGUF file; any shard of a split one [default: the embedded demo].
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Open with the recommendations in view: `a` applies one, `u` undoes it, `A` tries all; with --headless print them.
    #[arg(long)]
    pub recommend: bool,
    /// Text to continue.
    #[arg(short, long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// Treat the prompt as a user's message, by the file's chat template.
    #[arg(long)]
    pub chat: bool,
    /// Stop after this many tokens [default: at the end of text or context; headless: 32].
    #[arg(short = 'n', long, value_name = "N")]
    pub tokens: Option<u64>,
    /// At most this many tokens a second, 0 for no limit [default: 0, the demo 20].
    #[arg(long, value_name = "TOK/S")]
    pub pace: Option<u32>,
    /// Start again when generation ends [default for the demo].
    #[arg(long = "loop")]
    pub endless: bool,
    /// Switch tracers on: names out of activations, attention, logits, quantisation and kv with commas between them, or
    /// all; or open on the trace pane and run these statements of the TRACE language.
    #[arg(long, value_name = "TRACERS|STATEMENTS", value_parser = parse_trace)]
    pub trace: Option<TraceFlag>,
    /// A word to follow through the layers with --trace logits; may be given several times.
    #[arg(long, value_name = "WORD")]
    pub track: Vec<String>,
    /// The same model in a higher precision, which --trace quantisation measures against [default: F32 of the same weights].
    #[arg(long, value_name = "FILE")]
    pub reference: Option<PathBuf>,
    /// Another GGUF file: every TRACE statement runs on it too, and both traces are shown side by side.
    #[arg(long, value_name = "FILE")]
    pub beside: Option<PathBuf>,
    /// Facts in force.
    #[command(flatten)]
    pub facts: FactArgs,
    /// How it is drawn, and where.
    #[command(flatten)]
    pub frame: FrameArgs,
    /// Write to this file instead of standard output, whole or not at all; compressed where its name ends in .gz.
    #[arg(long, value_name = "FILE", requires = "headless")]
    pub out: Option<PathBuf>,
    /// How far threads are kept in step for the profiler: immediate (all wait after every brick), per-layer, deferred (no
    /// waiting is added) or none (only whole steps are timed) [default: deferred].
    #[arg(long, value_name = "MODE")]
    pub sync_mode: Option<SyncMode>,
    /// Modelled instead of measured time, scalar kernels, one thread: the same bytes on every machine.
    #[arg(long, requires = "headless")]
    pub deterministic: bool,
    /// Knobs of the engine.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Sampling.
    #[command(flatten)]
    pub sampler: SamplerArgs,
    /// The tuner.
    #[command(flatten)]
    pub tuner: TunerArgs,
}

/// What `--trace` asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum TraceFlag {
    /// Tracers.
    Tracers(TracerSet),
    /// Statements of the TRACE language.
    Statements(String),
}

/// Names of tracers, or statements; what is neither is taken for what it looks like, and refused as such.
fn parse_trace(s: &str) -> Result<TraceFlag, String> {
    let is_name = |c: char| c.is_ascii_alphabetic() || ",_- ".contains(c);
    match s.parse() {
        Ok(set) => Ok(TraceFlag::Tracers(set)),
        Err(e) if lang::parse(s).is_err() && s.chars().all(is_name) => Err(e),
        Err(_) => Ok(TraceFlag::Statements(s.into())),
    }
}

/// Output of `--headless`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One frame of the dashboard.
    Text,
    /// The report (docs/src/report.schema.json).
    Json,
    /// A trace of every step for Perfetto and chrome://tracing: layers, bricks, kernels, threads, counters.
    Chrome,
    /// The execution graph of the last step, for graphviz.
    Dot,
    /// The execution tree of the last step, and its critical path.
    Tree,
    /// The execution graph as JSON in compressed sparse rows.
    Csr,
    /// The execution graph as JSON, nodes and edges.
    Graph,
    /// All that the tracers of --trace have kept, step by step (docs/src/tracer.schema.json).
    Tracer,
    /// What the tracers of --trace found, in words.
    Summary,
}

/// `cbtop inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// GGUF file; any shard of a split one.
    pub file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Context length for the memory needed [default: as when run].
    #[arg(short, long = "ctx", value_name = "TOKENS")]
    pub ctx: Option<usize>,
    /// Element type of the kv cache for the memory needed: f16, f32 or q8_0 [default: as when run].
    #[arg(long, value_name = "TYPE")]
    pub kv_type: Option<KvType>,
}

/// `cbtop eval`.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("input").required(true).args(["text", "ids"])))]
pub struct EvalArgs {
    /// GGUF file.
    #[arg(short, long, value_name = "FILE")]
    pub model: PathBuf,
    /// Text; special tokens are added as the file asks.
    #[arg(long)]
    pub text: Option<String>,
    /// Token ids, separated by spaces or commas, taken as they are.
    #[arg(long)]
    pub ids: Option<String>,
    /// The scalar F32 reference, or the kernels that the dashboard runs.
    #[arg(long, value_enum, default_value_t = EvalPath::Fast)]
    pub path: EvalPath,
    /// Add all logits of the last position as `last_logits`.
    #[arg(long)]
    pub logits: bool,
    /// Facts in force.
    #[command(flatten)]
    pub facts: FactArgs,
    /// Knobs of the engine (fast path).
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// Forward pass of `cbtop eval`, `cbtop trace` and `cbtop perplexity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EvalPath {
    /// Scalar F32 on dequantised weights.
    Reference,
    /// The engine.
    Fast,
}

/// `cbtop tokenize`.
#[derive(Debug, Args)]
pub struct TokenizeArgs {
    /// GGUF file; one that holds a vocabulary only will do.
    #[arg(short, long, value_name = "FILE")]
    pub model: PathBuf,
    /// Text [default: standard input].
    #[arg(long)]
    pub text: Option<String>,
    /// Read ids instead, print text.
    #[arg(long)]
    pub decode: bool,
    /// Add beginning- and end-of-text tokens as the file asks.
    #[arg(long)]
    pub special: bool,
    /// Take names of control tokens in the text for those tokens.
    #[arg(long)]
    pub parse_special: bool,
}

/// `cbtop run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// GGUF file [default: the embedded demo].
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Text to continue.
    #[arg(short, long, value_name = "TEXT")]
    pub prompt: String,
    /// Stop after this many tokens.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 128)]
    pub tokens: u64,
    /// Treat the prompt as a user's message, by the file's chat template.
    #[arg(long)]
    pub chat: bool,
    /// Say on stderr at the end what loading, prompt and generation took, and what memory.
    #[arg(long)]
    pub stats: bool,
    /// Facts in force.
    #[command(flatten)]
    pub facts: FactArgs,
    /// Knobs of the engine.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Sampling.
    #[command(flatten)]
    pub sampler: SamplerArgs,
}

/// `cbtop trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// Statements of the TRACE language, with `;` between them [default: standard input, if it is no terminal].
    #[arg(conflicts_with_all = ["file", "prompts", "open"])]
    pub statements: Option<String>,
    /// GGUF file [default: the embedded demo].
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Read the statements from this file, - for standard input.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["prompts", "open"])]
    pub file: Option<PathBuf>,
    /// Trace many prompts and print what they have in common: a line is a prompt, a tab and its answer, or
    /// {"prompt": "..", "answer": ".."}; - for standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "open")]
    pub prompts: Option<PathBuf>,
    /// Print a trace that a statement has saved; needs no model.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "path"])]
    pub open: Option<PathBuf>,
    /// Put a trace of all positions that a statement has saved back into the kv cache, and continue its text from there.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["statements", "file", "prompts", "open", "tiers", "path"])]
    pub resume: Option<PathBuf>,
    /// Tokens that --resume adds at most.
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        default_value_t = 32,
        requires = "resume"
    )]
    pub tokens: u64,
    /// Show the opened trace in the dashboard's pane.
    #[arg(long, requires = "open")]
    pub pane: bool,
    /// Another saved trace, shown beside the opened one.
    #[arg(long, value_name = "FILE", requires = "pane")]
    pub beside: Option<PathBuf>,
    /// Print one frame of the pane of this size, columns x rows, instead of opening it.
    #[arg(long, value_name = "WxH", requires = "pane", value_parser = parse_size)]
    pub size: Option<(u16, u16)>,
    /// What is printed; a statement's own FORMAT goes first [default: table].
    #[arg(long, value_enum)]
    pub format: Option<TraceFormat>,
    /// The scalar F32 reference, or the kernels that the dashboard runs.
    #[arg(long, value_enum, default_value_t = EvalPath::Fast)]
    pub path: EvalPath,
    /// SAVE writes version 1 of the format, for programs that know no other: chains alone, without the figures.
    #[arg(long)]
    pub save_version_1: bool,
    /// Measure what each tier of a context store keeps of a text: bytes, compression against the kv cache, accuracy.
    #[arg(long, conflicts_with_all = ["statements", "file", "prompts", "open"])]
    pub tiers: bool,
    /// Text for --tiers [default: a sample that is part of cbtop].
    #[arg(long, value_name = "FILE", requires = "tiers")]
    pub text: Option<PathBuf>,
    /// Tokens of a window for --tiers [default: 200, less in a shorter context].
    #[arg(long, value_name = "TOKENS", requires = "tiers")]
    pub window: Option<usize>,
    /// Keep the stores that --tiers writes in this folder: the boundary residuals, and a context store for every tier.
    #[arg(long, value_name = "FOLDER", requires = "tiers")]
    pub stores: Option<PathBuf>,
    /// Windows for --tiers at most.
    #[arg(long, value_name = "N", default_value_t = 12, requires = "tiers")]
    pub windows: usize,
    /// Facts in force.
    #[command(flatten)]
    pub facts: FactArgs,
    /// Knobs of the engine (fast path).
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// Output of `cbtop trace` and `cbtop quant-error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TraceFormat {
    /// Aligned text.
    Table,
    /// JSON; of several statements an object a line.
    Json,
    /// CSV with a header line.
    Csv,
}

/// `cbtop overhead`.
#[derive(Debug, Args)]
pub struct OverheadArgs {
    /// GGUF file [default: the embedded demo].
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Rounds; each runs every mode and the unwatched engine.
    #[arg(short, long, value_name = "N", default_value_t = 40)]
    pub rounds: usize,
    /// Tokens decoded in each mode of a round.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 8)]
    pub tokens: usize,
    /// Measure what capturing the residual stream costs instead, and whether stores grow in memory.
    #[arg(long)]
    pub trace: bool,
    /// Measure what each of the five tracers costs instead.
    #[arg(long, conflicts_with = "trace")]
    pub tracers: bool,
    /// What to print.
    #[arg(short = 'o', long = "output", value_enum, default_value_t = OverheadFormat::Md)]
    pub format: OverheadFormat,
    /// Knobs of the engine.
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// Output of `cbtop overhead`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OverheadFormat {
    /// A Markdown table.
    Md,
    /// JSON.
    Json,
}

/// `cbtop record`.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// File to write; must not exist.
    pub file: PathBuf,
    /// Replace the file if it is a recording.
    #[arg(long)]
    pub force: bool,
    /// As without `record`.
    #[command(flatten)]
    pub dashboard: DashboardArgs,
}

/// `cbtop replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Recording of `cbtop record`.
    pub file: PathBuf,
    /// Begin there, paused, seconds from the recording's start [default: 0, playing; headless: the last frame].
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub at: Option<Duration>,
    /// How it is drawn, and where.
    #[command(flatten)]
    pub frame: FrameArgs,
}

/// `cbtop diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The run to compare with: a JSON report of --headless, or a recording (its last frame).
    #[arg(value_name = "A")]
    pub before: PathBuf,
    /// The run in question, likewise.
    #[arg(value_name = "B")]
    pub after: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Exit with 1 if B is slower than A by more than this, beyond chance: the step as a whole, or any brick that takes
    /// more than 1% of it.
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub fail_above: Option<f64>,
}

pub fn parse_seconds(s: &str) -> Result<Duration, String> {
    s.parse()
        .ok()
        .and_then(|v: f64| Duration::try_from_secs_f64(v).ok())
        .ok_or_else(|| format!("'{s}' is no time; give seconds, for example 12.5"))
}

/// A share of 1.
fn parse_percent(s: &str) -> Result<f64, String> {
    s.strip_suffix('%')
        .unwrap_or(s)
        .trim()
        .parse()
        .ok()
        .filter(|v| (0.0..=10_000.0).contains(v))
        .map(|v: f64| v / 100.0)
        .ok_or_else(|| format!("'{s}' is no percentage; give 0% to 10000%, for example 5%"))
}

fn parse_size(s: &str) -> Result<(u16, u16), String> {
    let parsed = s.split_once(['x', 'X']).and_then(|(w, h)| {
        let side = |v: &str| v.parse::<u16>().ok().filter(|v| (1..=1000).contains(v));
        Some((side(w)?, side(h)?))
    });
    parsed.ok_or_else(|| {
        format!("'{s}' is not a size; give columns x rows of 1 to 1000, for example 120x40")
    })
}
