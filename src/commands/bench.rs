//! `cbtop bench`: speed of prompt processing and of generation, with llama-bench's flags, columns and habits.
//!
//! Only the engine is inside the timing: token ids are random and ready beforehand, nothing is sampled or watched.

mod compare;
mod measure;
mod numbers;
mod plan;
mod print;
mod record;
mod start;
pub(super) mod utc;

use super::printable;
use crate::cli::LoadArgs;
use crate::commands::setup;
use anyhow::{Context, bail};
use cbtop::engine::batch::Split;
use cbtop::engine::config::Schedule;
use cbtop::engine::cpu::prefetch::Prefetch;
use cbtop::engine::{Config, KvType};
use cbtop::model::Model;
use cbtop::session::Source;
use clap::Args;
use compare::{Peer, PeerName};
use numbers::{Numbers, Pair};
use plan::{Case, Plan};
use print::{Format, Printer};
use record::{Record, Subject};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// `cbtop bench`.
#[derive(Debug, Args)]
#[command(
    after_help = "Numbers are lists and ranges: 512 or 128,512 or 1-4 or 64-512*2 or 0-400+100; flags may be repeated.\n\
As in llama-bench, every combination is one row, and -pg, -ub, -ctk, -ctv and -oe may be written with one dash."
)]
pub struct BenchArgs {
    /// GGUF files, separated by commas [default: the embedded demo].
    #[arg(short, long = "model", value_name = "FILE")]
    pub model: Vec<String>,
    /// Prompt lengths to process, tokens; 0 for none [default: 512].
    #[arg(short = 'p', long, value_name = "N")]
    pub n_prompt: Vec<Numbers>,
    /// Numbers of tokens to generate; 0 for none [default: 128].
    #[arg(short = 'n', long, value_name = "N")]
    pub n_gen: Vec<Numbers>,
    /// A prompt and a generation timed as one.
    #[arg(long = "pg", value_name = "PP,TG")]
    pub pg: Vec<Pair>,
    /// Tokens in the cache before the test [default: 0].
    #[arg(short = 'd', long, value_name = "N")]
    pub n_depth: Vec<Numbers>,
    /// Threads [default: every CPU this process may use].
    #[arg(short, long, value_name = "N")]
    pub threads: Vec<Numbers>,
    /// Tokens of a prompt processed at once [default: 512].
    #[arg(long, visible_alias = "chunk", value_name = "N")]
    pub ubatch_size: Vec<Numbers>,
    /// Element type of the kv cache: f16, f32, q8_0 [default: f16].
    #[arg(long, value_name = "TYPE", value_delimiter = ',', conflicts_with_all = ["cache_type_k", "cache_type_v"])]
    pub kv_type: Vec<KvType>,
    /// Type of keys; keys and values share one here, so give --cache-type-v the same.
    #[arg(
        long,
        value_name = "TYPE",
        value_delimiter = ',',
        requires = "cache_type_v"
    )]
    pub cache_type_k: Vec<KvType>,
    /// Type of values, as --cache-type-k.
    #[arg(
        long,
        value_name = "TYPE",
        value_delimiter = ',',
        requires = "cache_type_k"
    )]
    pub cache_type_v: Vec<KvType>,
    /// Sequences run together, 1 to 64, each with a kv cache and the test's tokens of its own [default: 1].
    #[arg(long, value_name = "M")]
    pub batch: Vec<Numbers>,
    /// How prompts of several sequences are cut into chunks: simple, equal, sequence [default: simple].
    #[arg(long, value_name = "HOW")]
    pub split: Option<Split>,
    /// Kernels: auto (the best here), scalar, avx2, avx512.
    #[arg(
        long,
        alias = "kernels",
        value_name = "KERNELS",
        value_delimiter = ',',
        default_value = "auto"
    )]
    pub backend: Vec<String>,
    /// How matrix rows are given to threads [default: dynamic].
    #[arg(long, value_name = "HOW")]
    pub schedule: Option<Schedule>,
    /// Bind every thread to a CPU of its own.
    #[arg(long)]
    pub pin: bool,
    /// Bytes ahead that decode fetches weights, 0 for not; with a locality: 4096:low (none, low, moderate, high).
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    pub prefetch: Vec<Prefetch>,
    /// How the file is loaded.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Timed repetitions of every test.
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub repetitions: u32,
    /// Leave out the untimed run before every test.
    #[arg(long)]
    pub no_warmup: bool,
    /// Seconds to wait before every test.
    #[arg(long, value_name = "S", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    pub delay: u32,
    /// Run the same tests on this program in turns with ours, and print both rates and their ratio.
    #[arg(long, value_enum, value_name = "PEER")]
    pub compare: Option<PeerName>,
    /// Python that has llama_cpp [default: $CBTOP_PEER_PYTHON, else llama-bench or python3 on PATH].
    #[arg(long, value_name = "FILE", requires = "compare")]
    pub peer_python: Option<PathBuf>,
    /// Say on stderr what is being measured.
    #[arg(long)]
    pub progress: bool,
    /// What to print.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Md)]
    pub output: Format,
    /// Print to stderr too, in this format.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub output_err: Option<Format>,
}

/// Gives llama-bench's flags of several letters behind one dash the second dash that the parser wants, for `bench` only.
pub fn long_flags(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.collect();
    if args.get(1).is_none_or(|a| a != "bench") {
        return args;
    }
    for arg in args.iter_mut().skip(2) {
        let long = match arg.to_str() {
            Some("-pg") => "--pg",
            Some("-ub") => "--ubatch-size",
            Some("-ctk") => "--cache-type-k",
            Some("-ctv") => "--cache-type-v",
            Some("-oe") => "--output-err",
            _ => continue,
        };
        *arg = long.into();
    }
    args
}

/// Measures every combination and prints a row as soon as it is known.
///
/// # Errors
/// Flags that contradict each other or ask for what cannot run, a file that cannot: all found before the first test.
pub fn run(args: &BenchArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let plan = Plan::from_args(args)?;
    for case in &plan.cases {
        case.config().check().with_context(|| case.label())?;
        if args.compare.is_some() && case.batch > 1 {
            bail!(
                "{}: --compare measures one sequence at a time; leave out --batch, or run it apart",
                case.label()
            );
        }
    }
    let models = open_all(args, &plan)?;
    for (subject, model) in &models {
        for case in &plan.cases {
            case.config()
                .check_heads(&model.hparams)
                .with_context(|| format!("{}, {}", subject.file, case.label()))?;
        }
    }
    let mut peer = match args.compare {
        Some(PeerName::LlamaCpp) => Some(find_peer(args, &models)?),
        None => None,
    };
    let mut printers = Printers {
        out: Printer::new(args.output, &plan),
        err: args.output_err.map(|f| Printer::new(f, &plan)),
    };
    let total = models.len() * plan.cases.len();
    printers.each(out, |p, to| p.header(to))?;
    let cases = models
        .iter()
        .flat_map(|m| plan.cases.iter().map(move |c| (m, c)));
    let mut single = None;
    for (i, ((subject, model), case)) in cases.enumerate() {
        let number = format!("{}/{total}", i + 1);
        let mut record = bench_one(args, (subject, model), case, peer.as_mut(), &number)?;
        record.compare(&mut single);
        printers.each(out, |p, to| p.row(&record, to))?;
    }
    printers.each(out, |p, to| p.footer(to))?;
    Ok(ExitCode::SUCCESS)
}

fn bench_one(
    args: &BenchArgs,
    (subject, model): (&Subject, &Arc<Model>),
    case: &Case,
    peer: Option<&mut Peer>,
    number: &str,
) -> anyhow::Result<Record> {
    if args.delay > 0 {
        std::thread::sleep(Duration::from_secs(args.delay.into()));
    }
    let say = |what: &str| {
        if args.progress {
            eprintln!("cbtop bench: {number} {}: {what}", case.label());
        }
    };
    let started = utc::now();
    let (n, warmup) = (args.repetitions, !args.no_warmup);
    let (samples, beside) = match peer {
        None => {
            let samples = measure::measure(model, case, n, warmup, say)
                .with_context(|| format!("{}, {}", subject.file, case.label()))?;
            (samples, None)
        }
        Some(peer) => {
            let file = Path::new(&subject.file);
            let (samples, beside) = compare::alternate(peer, model, file, case, n, warmup, say)?;
            (samples, Some(beside))
        }
    };
    let mut record = Record::new(subject, case, model, started, samples);
    record.beside = beside;
    Ok(record)
}

fn find_peer(args: &BenchArgs, models: &[(Subject, Arc<Model>)]) -> anyhow::Result<Peer> {
    if models
        .iter()
        .any(|(s, _)| s.file == cbtop::session::DEMO_NAME)
    {
        bail!(
            "--compare needs a file that both can read; the demo is inside cbtop: give --model FILE"
        );
    }
    Peer::find(args.peer_python.as_deref())
}

/// Where rows go.
struct Printers {
    out: Printer,
    err: Option<Printer>,
}

impl Printers {
    fn each(
        &mut self,
        out: &mut dyn Write,
        mut print: impl FnMut(&mut Printer, &mut dyn Write) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        print(&mut self.out, out)?;
        out.flush()?;
        match &mut self.err {
            Some(p) => print(p, &mut std::io::stderr().lock()),
            None => Ok(()),
        }
    }
}

fn open_all(args: &BenchArgs, plan: &Plan) -> anyhow::Result<Vec<(Subject, Arc<Model>)>> {
    let mut sources = Vec::new();
    for file in &args.model {
        // A comma separates files unless it is part of a name.
        if PathBuf::from(file).exists() {
            sources.push(Source::File(file.into()));
        } else {
            sources.extend(file.split(',').map(|f| Source::File(f.into())));
        }
    }
    if sources.is_empty() {
        sources.push(Source::Demo);
    }
    let options = setup::load_options(&args.load)?;
    let config = plan.cases.first().map(Case::config);
    let open = |source: &Source| {
        let default = |m: &Model| Config::for_context(m.hparams.n_ctx_train);
        let (model, start, notes) = start::start(source, options, |m| {
            config.clone().unwrap_or_else(|| default(m))
        })?;
        for note in notes {
            eprintln!("cbtop: {}", printable(&note));
        }
        let subject = Subject::new(source.to_string(), model.gguf(), start);
        Ok((subject, model))
    };
    sources.iter().map(open).collect()
}

#[cfg(test)]
mod tests;
