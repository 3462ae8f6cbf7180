//! The dashboard, and its headless form: one frame or one report.

use super::setup;
use crate::cli::{DashboardArgs, Format};
use anyhow::{Context, bail};
use cbtop::engine::config::cpus;
use cbtop::engine::cpu::KernelSet;
use cbtop::headless::{self, Report};
use cbtop::profiler::Clock;
use cbtop::profiler::probe::{self, Bandwidth};
use cbtop::session::snapshot::{RunState, Snapshot};
use cbtop::session::{self, Loaded, Options, Session};
use cbtop::tui;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

/// What the demo model continues: the start of one of the facts it knows.
const DEMO_PROMPT: &str = "The capital of France is";
/// What any other model continues when no prompt is given.
const PROMPT: &str = "Once upon a time";
/// The demo's pace: slow enough to read along.
const DEMO_PACE: u32 = 20;
/// Tokens of a headless run without `--tokens`.
const HEADLESS_TOKENS: u64 = 32;
/// Read bandwidth of the modelled machine, GB/s: that of the clock's cost model.
const MODELLED_GBPS: f64 = 10.0;

/// Opens the dashboard or prints its headless form.
pub fn run(args: &DashboardArgs) -> anyhow::Result<ExitCode> {
    check_terminal(args.headless)?;
    let session = session(args)?;
    if args.headless {
        return headless(args, session);
    }
    let handle = session::spawn(session).context("starting the session's thread")?;
    tui::run(handle, &tui_options(args))?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses to open a dashboard where there is no terminal.
pub fn check_terminal(headless: bool) -> anyhow::Result<()> {
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !headless && !terminal {
        bail!(
            "the dashboard needs a terminal for input and output; use --headless for one frame or a report"
        );
    }
    Ok(())
}

/// The session that `args` ask for, ready to run.
pub fn session(args: &DashboardArgs) -> anyhow::Result<Session> {
    let loaded = setup::load(args.model.as_deref(), &args.engine.load)?;
    let options = options(args, &loaded)?;
    Ok(Session::new(loaded, options)?)
}

/// How the dashboard is to look.
pub fn tui_options(args: &DashboardArgs) -> tui::Options {
    // Headless frames with modelled time are the same bytes everywhere: then the locale has no say.
    let mut options = if args.deterministic {
        tui::Options::default()
    } else {
        tui::Options::from_env()
    };
    options.recommend = args.recommend;
    options.ascii |= args.ascii;
    options
}

fn options(args: &DashboardArgs, loaded: &Loaded) -> anyhow::Result<Options> {
    let (mut config, explicit) = setup::config(&args.engine, loaded)?;
    let demo = args.model.is_none();
    let mut clock = Clock::calibrated();
    let bandwidth;
    if args.deterministic {
        clock = Clock::modelled();
        (config.kernels, config.threads) = (KernelSet::Scalar, 1);
        bandwidth = vec![Bandwidth {
            threads: 1,
            gbps: MODELLED_GBPS,
        }];
    } else {
        bandwidth = probe::read_bandwidth(&probe_counts(config.threads));
    }
    let pace = args
        .pace
        .or((demo && !args.headless).then_some(DEMO_PACE))
        .filter(|p| *p > 0);
    if demo && pace.is_some() && args.engine.threads.is_none() {
        // Between two paced tokens threads sleep, and waking one takes longer than a token of the demo.
        config.threads = 1;
    }
    let prompt = args
        .prompt
        .clone()
        .unwrap_or_else(|| if demo { DEMO_PROMPT } else { PROMPT }.into());
    Ok(Options {
        config,
        explicit,
        sampler: setup::sampler(&args.sampler)?,
        prompt,
        chat: args.chat,
        max_tokens: args.tokens.or(args.headless.then_some(HEADLESS_TOKENS)),
        endless: args.endless || (demo && !args.headless),
        pace,
        clock,
        bandwidth,
    })
}

/// Thread counts whose bandwidth the rules compare: the one in use, one, and every CPU.
fn probe_counts(threads: usize) -> Vec<usize> {
    let mut counts = vec![1, threads, cpus()];
    counts.sort_unstable();
    counts.dedup();
    counts
}

fn headless(args: &DashboardArgs, mut session: Session) -> anyhow::Result<ExitCode> {
    while !session.is_over() {
        session.tick();
    }
    let snapshot = session.snapshot();
    let mut out = std::io::stdout().lock();
    print(
        &mut out,
        &snapshot,
        args.format,
        args.size,
        &tui_options(args),
    )?;
    out.flush()?;
    finished(&snapshot)
}

/// Prints a frame or a report.
pub fn print(
    out: &mut impl Write,
    snapshot: &Snapshot,
    format: Format,
    (width, height): (u16, u16),
    options: &tui::Options,
) -> std::io::Result<()> {
    match format {
        Format::Text => {
            out.write_all(headless::text::render(snapshot, width, height, options).as_bytes())
        }
        Format::Json => Report::new(snapshot).write(out),
    }
}

/// Success, unless the run failed.
pub fn finished(snapshot: &Snapshot) -> anyhow::Result<ExitCode> {
    if let RunState::Failed { error } = &snapshot.state {
        bail!("{error}");
    }
    Ok(ExitCode::SUCCESS)
}
