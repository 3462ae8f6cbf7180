//! `cbtop quant-error`: what quantisation costs, brick by brick.

mod print;

use super::perplexity::MAX_TEXT;
use super::{SAMPLE_TEXT, setup};
use super::trace::input::{Progress, text};
use crate::cli::{EngineArgs, QuantErrorArgs, TraceFormat};
use cbtop::session::Loaded;
use cbtop::tracer::figures::{ErrorGrade, ErrorOf, ModelQuantisationError};
use cbtop::tracer::perplexity::text_ids;
use cbtop::tracer::quantisation::{Baseline, measure};
use cbtop::tui;
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// Tokens where none are asked for.
const TOKENS: usize = 64;
const FAILED: u8 = 1;

#[derive(Serialize)]
struct Printed<'a> {
    model: String,
    /// By own errors and logits, the worst of them.
    grade: ErrorGrade,
    #[serde(flatten)]
    error: &'a ModelQuantisationError,
}

/// Measures, prints and judges.
pub fn run(args: &QuantErrorArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    if let Some(n) = args.tokens.filter(|n| *n < 2) {
        anyhow::bail!("--tokens is {n}, expected at least 2, so that one can be predicted");
    }
    let loaded = setup::load(args.model.as_deref(), &args.engine)?;
    let (config, _) = setup::config(&args.engine, &loaded)?;
    let text = match (&args.text, &args.file) {
        (Some(text), _) => text.clone(),
        (None, Some(path)) => text(path, MAX_TEXT)?,
        (None, None) => SAMPLE_TEXT.into(),
    };
    let mut ids = text_ids(&loaded.tokenizer, &text)?;
    ids.truncate(args.tokens.unwrap_or(TOKENS.min(config.n_ctx)));
    let baseline = baseline(args.reference.as_deref(), &args.engine, &loaded)?;
    let baseline = baseline.as_ref().map(|(_, b)| b);
    let mut progress = Progress::new();
    let error = measure(&loaded.model, baseline, &ids, &config, &mut |done, all| {
        progress.show("bricks", done as usize, all as usize);
        true
    })?;
    drop(progress);
    let grade = grade(&error);
    let printed = Printed {
        model: loaded.name(),
        grade,
        error: &error,
    };
    match args.format {
        TraceFormat::Json => {
            serde_json::to_writer_pretty(&mut *out, &printed)?;
            writeln!(out)?;
        }
        TraceFormat::Csv => print::csv(&error, out)?,
        TraceFormat::Table => {
            let colour =
                std::io::stdout().is_terminal() && !tui::no_colour(|name| std::env::var(name).ok());
            print::table(&printed, args.all, colour, out)?;
        }
    }
    Ok(match grade {
        ErrorGrade::Critical => ExitCode::from(FAILED),
        _ => ExitCode::SUCCESS,
    })
}

/// The worst of own errors and logits.
fn grade(error: &ModelQuantisationError) -> ErrorGrade {
    let own = error.brick_errors.iter().filter(|e| e.of == ErrorOf::Own);
    let own = own.map(|e| e.grade).max();
    ErrorGrade::of(error.logits_cosine).max(own.unwrap_or(ErrorGrade::Acceptable))
}

/// The file that `--reference` names, checked to be the same model.
pub fn baseline(
    path: Option<&Path>,
    args: &EngineArgs,
    loaded: &Loaded,
) -> anyhow::Result<Option<(Loaded, Baseline)>> {
    let Some(path) = path else {
        return Ok(None);
    };
    let other = setup::load(Some(path), args)?;
    let name = path.file_name().unwrap_or(path.as_os_str());
    let baseline = Baseline {
        model: Arc::clone(&other.model),
        name: name.to_string_lossy().into_owned(),
    };
    baseline.check(&loaded.model)?;
    Ok(Some((other, baseline)))
}
