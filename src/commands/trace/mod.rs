//! `cbtop trace`: the residual stream of prompts, by statements of the TRACE language.

mod forward;
pub(super) mod input;
mod many;
mod pane;
mod resume;
mod tiers;

use super::printable;
use super::setup;
use crate::cli::{TraceArgs, TraceFormat};
use cbtop::trace::lang::{self, Format, Spanned, Statement, Trace};
use cbtop::trace::patch::check_layers;
use cbtop::trace::render;
use cbtop::trace::saved::Saved;
use cbtop::trace::tracer::{Outcome, Tracer, Work};
use cbtop::trace::{Forward, TraceError};
use input::{Input, Progress};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

impl From<TraceFormat> for Format {
    fn from(format: TraceFormat) -> Self {
        match format {
            TraceFormat::Table => Self::Table,
            TraceFormat::Json => Self::Json,
            TraceFormat::Csv => Self::Csv,
        }
    }
}

/// Runs statements or prompts, or opens a file, and prints.
pub fn run(args: &TraceArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    check_flags(args)?;
    let format = args.format.map(Format::from);
    if let Some(path) = args.open.as_ref().filter(|_| args.pane) {
        pane::run(args, path, out)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(path) = &args.resume {
        resume::run(args, path, out)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(path) = &args.open {
        open(path, format, out)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(path) = &args.prompts {
        many::run(args, path, format.unwrap_or(Format::Table), out)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.tiers {
        tiers::run(args, format.unwrap_or(Format::Table), out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let input = input::statements(args)?;
    let Some(statements) = parse(&input)? else {
        return Ok(ExitCode::from(crate::BAD_INPUT));
    };
    let loaded = setup::load(args.model.as_deref(), &args.engine)?;
    let statements: Vec<Statement> = statements.into_iter().map(|s| s.value).collect();
    let n_layers = loaded.model.hparams.n_layers as u32;
    statements
        .iter()
        .try_for_each(|s| check_layers(s, n_layers))?;
    let longest = forward::longest(&loaded, &statements);
    let mut tracer = setup::tracer(&loaded, args.facts.overlay.as_deref())?;
    tracer.version_1 = args.save_version_1;
    let several = statements.len() > 1;
    forward::with(args, &loaded, longest, |forward| {
        for (i, statement) in statements.iter().enumerate() {
            let done = outcome(&mut tracer, forward, statement).map_err(|e| {
                let e = anyhow::Error::from(e);
                // Of one statement it is known which.
                if several {
                    e.context(format!("statement {}", i + 1))
                } else {
                    e
                }
            });
            let format = format_of(statement).or(format).unwrap_or(Format::Table);
            print(&done?, statement, format, i == 0, out)?;
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses flags that would say nothing: clap does not ask for a flag whose place another one excludes.
fn check_flags(args: &TraceArgs) -> anyhow::Result<()> {
    if args.pane && args.open.is_none() {
        anyhow::bail!(
            "--pane shows a saved trace (--open FILE); cbtop --trace STATEMENTS runs some there"
        );
    }
    let measured = args.text.is_some() || args.window.is_some() || args.stores.is_some();
    if measured && !args.tiers {
        anyhow::bail!("--text, --window and --stores are of --tiers; add it, or leave them out");
    }
    if args.open.is_some() && args.facts.overlay.is_some() {
        anyhow::bail!("a saved trace is shown as it was made; leave out --overlay");
    }
    Ok(())
}

/// The statements; `None` when the source is not of the language, which is then said.
fn parse(input: &Input) -> anyhow::Result<Option<Vec<Spanned<Statement>>>> {
    match lang::parse(&input.text) {
        Ok(statements) if statements.is_empty() => {
            anyhow::bail!("{} has no statement; {}", input.name, input::EXAMPLE)
        }
        Ok(statements) => Ok(Some(statements)),
        Err(e) => {
            // Several lines, all of the program's own making: the one of `main` would put them into one.
            let shown = e.render(&input.text);
            let _ = writeln!(
                std::io::stderr(),
                "cbtop: {}: {shown}",
                printable(&input.name)
            );
            Ok(None)
        }
    }
}

/// Runs a statement, and shows on a terminal how far it is.
fn outcome(
    tracer: &mut Tracer,
    forward: &mut dyn Forward,
    statement: &Statement,
) -> Result<Outcome, TraceError> {
    let mut work = tracer.begin(forward, statement)?;
    let mut progress = Progress::new();
    while tracer.advance(forward, &mut work)? {
        let (what, done, all) = Work::progress(&work);
        progress.show(what, done, all);
    }
    drop(progress);
    tracer.finish(work)
}

fn format_of(statement: &Statement) -> Option<Format> {
    match statement {
        Statement::Trace(trace) => trace.format,
        Statement::Patch(patch) => patch.format,
        Statement::Insert(_) | Statement::Delete(_) | Statement::Facts => None,
    }
}

/// Prints whole outcomes: one that is there stays there, whatever comes of the next statement.
fn print(
    outcome: &Outcome,
    statement: &Statement,
    format: Format,
    first: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    // JSON is an object a line; other forms need a border.
    if !first && format != Format::Json {
        writeln!(out)?;
    }
    out.write_all(render::outcome(outcome, statement, format).as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Prints a saved trace.
fn open(path: &Path, format: Option<Format>, out: &mut impl Write) -> anyhow::Result<()> {
    let saved = Saved::open(path)?;
    let statement = saved.statement().and_then(|source| {
        let mut statements = lang::parse(source).ok()?;
        let only = statements.len() == 1;
        statements.pop().filter(|_| only).map(|s| s.value)
    });
    let statement = statement
        .filter(|s| matches!(s, Statement::Trace(_)))
        .unwrap_or_else(|| Statement::Trace(Trace::default()));
    // What was asked for now goes before what was asked for when it was saved.
    let format = format.or(format_of(&statement)).unwrap_or(Format::Table);
    let outcome = Outcome::Trace(Box::new(saved.view()));
    print(&outcome, &statement, format, true, out)
}
