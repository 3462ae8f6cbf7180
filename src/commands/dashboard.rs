//! The dashboard, and its headless form: one frame or one report.

use super::{config, export, printable, recommend, setup};
use crate::cli::{AdviceArgs, DashboardArgs, Format, FrameArgs, TraceFlag};
use anyhow::{Context, anyhow, bail};
use cbtop::engine::config::cpus;
use cbtop::engine::cpu::KernelSet;
use cbtop::engine::kernels_for::KernelsFor;
use cbtop::headless::{self, Report};
use cbtop::profiler::Clock;
use cbtop::profiler::probe::{self, Bandwidth};
use cbtop::session::snapshot::{Command, RunState, Snapshot};
use cbtop::session::{self, Loaded, Options, Session};
use cbtop::trace::{answer, lang};
use cbtop::tracer::ModelTracerConfig;
use cbtop::tracer::figures::TracerSet;
use cbtop::tui;
use cbtop::tui::state::Panel;
use std::io::{BufWriter, IsTerminal, Write};
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
pub fn run(args: &DashboardArgs, advice: &AdviceArgs) -> anyhow::Result<ExitCode> {
    check_terminal(args.frame.headless)?;
    recommend::check(advice, &args.tuner, args.frame.format, args.deterministic)?;
    if let Some(Err(e)) = statements(args).map(|s| lang::parse(s).map_err(|e| e.render(s))) {
        // Several lines, all of the program's own making: `main` would put them into one.
        let _ = writeln!(std::io::stderr(), "cbtop: --trace: {e}");
        return Ok(ExitCode::from(crate::BAD_INPUT));
    }
    if is_of_tracers(args.frame.format) && !matches!(args.trace, Some(TraceFlag::Tracers(_))) {
        bail!(
            "--format tracer and --format summary are about tracers; switch some on, for example --trace all"
        );
    }
    // Before the model is loaded: a wrong line in it is told at once.
    let look = dashboard_look(args)?;
    let session = session(args)?;
    if args.frame.headless {
        return headless(args, advice, session, &look);
    }
    let handle = session::spawn(session).context("starting the session's thread")?;
    if let Some(statements) = statements(args) {
        // A session that is gone already is told by the dashboard.
        let _ = handle.commands.send(Command::Trace(statements.into()));
    }
    tui::run(handle, &look)?;
    Ok(ExitCode::SUCCESS)
}

/// The statements of `--trace`, where it has statements.
fn statements(args: &DashboardArgs) -> Option<&str> {
    match &args.trace {
        Some(TraceFlag::Statements(s)) => Some(s),
        _ => None,
    }
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

/// Refuses what only a run that is not recorded or replayed can give.
pub fn check_format(format: Format) -> anyhow::Result<()> {
    if is_of_tracers(format) {
        bail!(
            "tracers keep what every step leaves, and a recording has some of them; run cbtop --headless --format tracer"
        );
    }
    if format == Format::Chrome {
        bail!(
            "a trace needs every step, and a recording has some of them; run cbtop --headless --format chrome"
        );
    }
    Ok(())
}

/// The session that `args` ask for, ready to run.
pub fn session(args: &DashboardArgs) -> anyhow::Result<Session> {
    let loaded = setup::load(args.model.as_deref(), &args.engine)?;
    let options = options(args, &loaded)?;
    Ok(Session::new(loaded, options)?)
}

/// How to draw. With modelled time only what the command line says counts: the same bytes everywhere.
pub fn look(args: &FrameArgs, modelled: bool) -> anyhow::Result<tui::Options> {
    let mut options = if modelled {
        config::fixed(&args.look)?
    } else {
        config::options(&args.look)?
    };
    options.ascii |= args.ascii;
    Ok(options)
}

/// As [`look`], with what only a running dashboard has.
pub fn dashboard_look(args: &DashboardArgs) -> anyhow::Result<tui::Options> {
    let mut options = look(&args.frame, args.deterministic)?;
    options.recommend |= args.recommend;
    match &args.trace {
        Some(TraceFlag::Statements(_)) => (options.focus, options.zoomed) = (Panel::Trace, true),
        Some(TraceFlag::Tracers(_)) => (options.focus, options.zoomed) = (Panel::Model, true),
        None => {}
    }
    Ok(options)
}

fn options(args: &DashboardArgs, loaded: &Loaded) -> anyhow::Result<Options> {
    let (mut config, mut explicit) = setup::config(&args.engine, loaded)?;
    if args.sync_mode.is_some() {
        explicit.insert("sync-mode");
    }
    let demo = args.model.is_none();
    let mut clock = Clock::calibrated();
    let bandwidth;
    if args.deterministic {
        clock = Clock::modelled();
        (config.kernels, config.threads) = (KernelSet::Scalar, 1);
        config.kernels_for = KernelsFor::default();
        bandwidth = vec![Bandwidth {
            threads: 1,
            gbps: MODELLED_GBPS,
        }];
    } else {
        bandwidth = probe::read_bandwidth(&probe_counts(config.threads));
    }
    let pace = args
        .pace
        .or((demo && !args.frame.headless).then_some(DEMO_PACE))
        .filter(|p| *p > 0);
    if demo && pace.is_some() && args.engine.threads.is_none() && args.engine.profile.is_none() {
        // Between two paced tokens threads sleep, and waking one takes longer than a token of the demo.
        config.threads = 1;
    }
    let peaks = if args.deterministic {
        probe::memory_peaks(&bandwidth, config.threads)
    } else {
        probe::peaks(&bandwidth, config.kernels, config.threads)
    };
    Ok(Options {
        config,
        explicit,
        sampler: setup::sampler(&args.sampler)?,
        prompt: prompt(args),
        chat: args.chat,
        max_tokens: args
            .tokens
            .or(args.frame.headless.then_some(HEADLESS_TOKENS)),
        endless: args.endless || (demo && !args.frame.headless),
        pace,
        clock,
        sync_mode: setup::sync_mode(args.sync_mode, &args.engine)?,
        peaks,
        bandwidth,
        beside: args
            .beside
            .as_deref()
            .map(|file| setup::load(Some(file), &args.engine))
            .transpose()?,
        overlay: args.facts.overlay.clone(),
        tracers: tracers(args, loaded)?,
        reference: args
            .reference
            .as_deref()
            .map(|file| setup::load(Some(file), &args.engine))
            .transpose()?,
        // A frame or a report is of a run, not of what might be.
        tuner: (args.recommend || !args.frame.headless).then(|| recommend::tuner(&args.tuner)),
    })
}

/// The text to continue.
fn prompt(args: &DashboardArgs) -> String {
    let default = match args.model {
        None => DEMO_PROMPT,
        Some(_) => PROMPT,
    };
    args.prompt.clone().unwrap_or_else(|| default.into())
}

/// What `--trace` and its companions say of tracers.
fn tracers(args: &DashboardArgs, loaded: &Loaded) -> anyhow::Result<ModelTracerConfig> {
    let on = match args.trace {
        Some(TraceFlag::Tracers(set)) => set,
        _ => TracerSet::default(),
    };
    if !args.track.is_empty() && !on.logits {
        bail!("--track follows words through the layers; add --trace logits");
    }
    if args.reference.is_some() && !on.quantisation {
        bail!(
            "--reference is what quantisation error is measured against; add --trace quantisation"
        );
    }
    let prompt = prompt(args);
    let first = |word: &String| {
        let forms = answer::continuations(&loaded.tokenizer, &prompt, word)
            .map_err(|e| anyhow!("--track: {e}"))?;
        // A form of one token is the word itself.
        let form = forms.iter().find(|f| f.len() == 1).or(forms.first());
        let Some(&[id, ref rest @ ..]) = form.map(Vec::as_slice) else {
            bail!("--track {}: it has no token", printable(word));
        };
        if !rest.is_empty() {
            let first = answer::text(&loaded.tokenizer, id).text;
            eprintln!(
                "cbtop: --track {}: {} tokens; the first, {first:?}, is followed",
                printable(word),
                rest.len() + 1
            );
        }
        Ok(id)
    };
    Ok(ModelTracerConfig {
        on,
        tracked_tokens: args
            .track
            .iter()
            .map(first)
            .collect::<anyhow::Result<_>>()?,
        ..ModelTracerConfig::default()
    })
}

/// Thread counts whose bandwidth the rules compare: the one in use, one, and every CPU.
fn probe_counts(threads: usize) -> Vec<usize> {
    let mut counts = vec![1, threads, cpus()];
    counts.sort_unstable();
    counts.dedup();
    counts
}

fn headless(
    args: &DashboardArgs,
    advice: &AdviceArgs,
    mut session: Session,
    look: &tui::Options,
) -> anyhow::Result<ExitCode> {
    match &args.out {
        Some(path) => export::to_file(path, |out| {
            run_and_print(args, advice, &mut session, look, out)
        })?,
        None => {
            let mut out = BufWriter::new(std::io::stdout().lock());
            run_and_print(args, advice, &mut session, look, &mut out)?;
            out.flush()?;
        }
    }
    finished(&session.state())
}

fn run_and_print(
    args: &DashboardArgs,
    advice: &AdviceArgs,
    session: &mut Session,
    look: &tui::Options,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if args.frame.format == Format::Chrome {
        return export::chrome(session, out);
    }
    if let Some(statements) = statements(args) {
        session.obey(Command::Trace(statements.into()));
        while session.is_tracing() {
            session.tick();
        }
        if let Some(message) = session.message().filter(|m| m.is_error) {
            bail!("{}", message.text);
        }
    }
    while !session.is_over() {
        session.tick();
    }
    if let Err(e) = session.finish_tracers() {
        eprintln!(
            "cbtop: the error of the whole model was not measured: {}",
            printable(&e)
        );
    }
    if recommend::is_wanted(args.recommend, args.frame.format) {
        return recommend::print(advice, session, args.frame.format, out);
    }
    match args.frame.format {
        Format::Tracer => session.tracer_export().to_json(out)?,
        Format::Summary => out.write_all(session.tracer_export().summary().as_bytes())?,
        format => print(out, &session.snapshot(), format, args.frame.size, look)?,
    }
    Ok(())
}

/// Whether a format is about tracers.
fn is_of_tracers(format: Format) -> bool {
    matches!(format, Format::Tracer | Format::Summary)
}

/// Prints a moment of a session: a frame, a report, or its last step.
pub fn print(
    out: &mut dyn Write,
    snapshot: &Snapshot,
    format: Format,
    (width, height): (u16, u16),
    look: &tui::Options,
) -> anyhow::Result<()> {
    match format {
        Format::Text => {
            out.write_all(headless::text::render(snapshot, width, height, look).as_bytes())?;
        }
        Format::Json => Report::new(snapshot).write(out)?,
        _ => export::last_step(snapshot, format, out)?,
    }
    Ok(())
}

/// Success, unless the run failed.
pub fn finished(state: &RunState) -> anyhow::Result<ExitCode> {
    if let RunState::Failed { error } = state {
        bail!("{error}");
    }
    Ok(ExitCode::SUCCESS)
}
