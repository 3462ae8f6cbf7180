//! The forward pass that a trace runs on.

use super::super::setup;
use crate::cli::{EvalPath, TraceArgs};
use anyhow::Context;
use cbtop::engine::reference::Reference;
use cbtop::engine::{Engine, Unobserved};
use cbtop::session::Loaded;
use cbtop::session::tracing::LENS_ROWS;
use cbtop::trace::lang::{How, Statement};
use cbtop::trace::{Forward, answer};

/// Tokens of the texts that a fact's prompt is tried in, beside the prompt.
const AROUND_FACTS: usize = 128;
/// Context of the least cache, tokens.
const LEAST_CONTEXT: usize = 512;

/// Calls `then` with the pass that the arguments ask for, which takes texts of `longest` tokens if the model was trained
/// on as many, and of as many as `--ctx` says.
pub fn with<T>(
    args: &TraceArgs,
    loaded: &Loaded,
    longest: usize,
    then: impl FnOnce(&mut dyn Forward) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    if args.path == EvalPath::Reference {
        return then(&mut Reference::new(&loaded.model));
    }
    let (mut config, explicit) = setup::config(&args.engine, loaded)?;
    // Facts are measured on sentences of their own.
    let needed = longest
        .max(LEAST_CONTEXT)
        .min(loaded.model.hparams.n_ctx_train)
        .max(1);
    config.n_ctx = if explicit.contains("ctx") {
        config.n_ctx.max(needed)
    } else {
        // A cache for more would be memory for nothing.
        needed
    };
    if !explicit.contains("chunk") {
        config.chunk = config.chunk.min(config.n_ctx);
    }
    config.logit_rows = LENS_ROWS.min(config.chunk);
    config.check()?;
    let mut engine =
        Engine::new(loaded.model.clone(), config, Unobserved).context("building the engine")?;
    then(&mut engine)
}

/// Tokens of the longest text that statements run: prompts, sources of edits, and words of several tokens behind their
/// prompts. A text that cannot be encoded is 0: its statement says so.
pub fn longest(loaded: &Loaded, statements: &[Statement]) -> usize {
    let all = statements.iter().map(|statement| match statement {
        Statement::Trace(trace) => {
            let of = prompt(loaded, &trace.prompt, &trace.answers);
            let sources = trace.edits.iter().map(|edit| match &edit.how {
                How::FromPrompt(source) => prompt(loaded, source, &[]),
                How::Zero | How::Scale(_) | How::FromFile(_) => 0,
            });
            sources.fold(of, usize::max)
        }
        Statement::Patch(patch) => {
            let source = prompt(loaded, &patch.source, &[]);
            source.max(prompt(loaded, &patch.prompt, &[]))
        }
        Statement::Insert(fact) | Statement::Delete(fact) => {
            // Behind a sentence, and with words changed, too.
            prompt(loaded, &fact.prompt, std::slice::from_ref(&fact.answer)) + AROUND_FACTS
        }
        Statement::Facts => 0,
    });
    all.max().unwrap_or(0)
}

/// Tokens of a prompt, with the longest of the words that may follow it.
pub fn prompt(loaded: &Loaded, prompt: &str, words: &[String]) -> usize {
    let tokenizer = &loaded.tokenizer;
    let n = answer::encode(tokenizer, prompt).map_or(0, |ids| ids.len());
    let forms = words
        .iter()
        .filter_map(|word| answer::continuations(tokenizer, prompt, word).ok());
    n + forms.flatten().map(|ids| ids.len()).max().unwrap_or(0)
}
