//! `cbtop trace --prompts`: many prompts with known answers, taken together.

use super::input::{self, Progress};
use super::{forward, setup};
use crate::cli::TraceArgs;
use anyhow::{Context, anyhow, bail};
use cbtop::trace::lang::{Format, Statement, Trace};
use cbtop::trace::prompts::{Prompt, prompts};
use cbtop::trace::render;
use cbtop::trace::summary::Summary;
use cbtop::trace::tracer::Outcome;
use std::io::Write;
use std::path::Path;

/// Bytes of a file of prompts that are read.
const MAX_FILE: usize = 64 << 20;

/// Traces every prompt and prints the summary. No prompt runs if a line of the file is wrong.
pub fn run(
    args: &TraceArgs,
    path: &Path,
    format: Format,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let name = input::name(path);
    let text = input::bytes(path, MAX_FILE)?;
    let mut all = 0;
    for found in prompts(&text) {
        found.map_err(|e| anyhow!("{name}: {e}"))?;
        all += 1;
    }
    if all == 0 {
        bail!("{name} has no prompts; a line is a prompt, a tab and its answer");
    }
    let loaded = setup::load(args.model.as_deref(), &args.engine)?;
    let lengths = prompts(&text).flatten().map(|(_, p)| {
        let words = std::slice::from_ref(&p.answer);
        forward::prompt(&loaded, &p.prompt, words)
    });
    let longest = lengths.max().unwrap_or(0);
    let mut tracer = setup::tracer(&loaded, args.facts.overlay.as_deref())?;
    let mut summary = Summary::new(loaded.name(), loaded.model.hparams.n_layers);
    let mut progress = Progress::new();
    forward::with(args, &loaded, longest, |forward| {
        for (line, prompt) in prompts(&text).flatten() {
            let done = tracer
                .run(forward, &statement(prompt))
                .with_context(|| format!("{name}: line {line}"))?;
            if let Outcome::Trace(view) = done {
                summary.add(&view);
            }
            progress.show("prompt", summary.prompts() as usize, all);
        }
        Ok(())
    })?;
    drop(progress);
    let text = render::summary(&summary.view(), format);
    out.write_all(text.as_bytes())?;
    Ok(())
}

/// The trace of a prompt, with no more candidates than needed.
fn statement(prompt: Prompt) -> Statement {
    Statement::Trace(Trace {
        prompt: prompt.prompt,
        answers: vec![prompt.answer],
        top: Some(1),
        ..Trace::default()
    })
}
