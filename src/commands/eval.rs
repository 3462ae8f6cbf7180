//! `cbtop eval`: logits of a text as JSON, by either forward pass.

use super::setup;
use crate::cli::{EvalArgs, EvalPath};
use anyhow::Context;
use cbtop::engine::edit::Edits;
use cbtop::engine::reference::Reference;
use cbtop::engine::sampler::{argmax, logsumexp, top};
use cbtop::engine::{Engine, EngineError, Logits, Overflow, StepKind, Unobserved};
use cbtop::session::Loaded;
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

/// Logits shown a position.
const TOP: usize = 20;
/// Positions whose logits are held at a time: 32 of the largest vocabulary (262,144) are 32 MiB.
const ROWS: usize = 32;

/// `argmax`, `logsumexp` and `top` have an entry for every position, in order.
#[derive(Default, Serialize)]
struct Evaluation {
    path: &'static str,
    ids: Vec<u32>,
    argmax: Vec<u32>,
    logsumexp: Vec<f64>,
    top: Vec<Vec<TopToken>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_logits: Option<Vec<f32>>,
}

#[derive(Serialize)]
struct TopToken {
    id: u32,
    token: String,
    logit: f32,
}

impl Evaluation {
    /// Takes the logits of the next position.
    fn push(&mut self, loaded: &Loaded, logits: &[f32]) {
        let token = |(id, logit)| TopToken {
            id,
            token: loaded
                .tokenizer
                .token_text(id)
                .unwrap_or_default()
                .to_owned(),
            logit,
        };
        self.argmax.push(argmax(logits));
        self.logsumexp.push(logsumexp(logits));
        self.top
            .push(top(logits, TOP).into_iter().map(token).collect());
    }
}

/// Evaluates and prints.
pub fn run(args: &EvalArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let loaded = setup::load(Some(&args.model), &args.engine)?;
    let ids = match (&args.ids, &args.text) {
        (Some(ids), _) => super::tokenize::parse_ids(ids)?,
        (None, text) => loaded
            .tokenizer
            .encode(text.as_deref().unwrap_or_default(), true, true)?,
    };
    let mut evaluation = Evaluation::default();
    let mut take = |logits: &[f32]| {
        evaluation.push(&loaded, logits);
        if args.logits && evaluation.argmax.len() == ids.len() {
            evaluation.last_logits = Some(logits.to_vec());
        }
    };
    let facts = setup::facts(&args.facts, &loaded)?;
    match args.path {
        EvalPath::Reference => reference(&loaded, &ids, facts, &mut take)?,
        EvalPath::Fast => fast(args, &loaded, &ids, facts, &mut take)?,
    }
    evaluation.path = match args.path {
        EvalPath::Reference => "reference",
        EvalPath::Fast => "fast",
    };
    evaluation.ids = ids;
    serde_json::to_writer(&mut *out, &evaluation).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(ExitCode::SUCCESS)
}

fn reference(
    loaded: &Loaded,
    ids: &[u32],
    facts: Option<Arc<Edits>>,
    take: &mut impl FnMut(&[f32]),
) -> anyhow::Result<()> {
    if ids.is_empty() {
        return Err(EngineError::Empty.into());
    }
    let mut reference = Reference::new(&loaded.model);
    reference.set_edits(facts);
    for chunk in ids.chunks(ROWS) {
        reference
            .forward(chunk)?
            .iter()
            .for_each(|logits| take(logits));
    }
    Ok(())
}

fn fast(
    args: &EvalArgs,
    loaded: &Loaded,
    ids: &[u32],
    facts: Option<Arc<Edits>>,
    take: &mut impl FnMut(&[f32]),
) -> anyhow::Result<()> {
    let (mut config, _) = setup::config(&args.engine, loaded)?;
    config.logit_rows = ROWS.min(config.chunk);
    if ids.is_empty() {
        return Err(EngineError::Empty.into());
    }
    if config.overflow == Overflow::Stop && ids.len() > config.n_ctx {
        // Before anything is computed: it would take its time to get there.
        let (needed, n_ctx) = (ids.len(), config.n_ctx);
        return Err(EngineError::ContextFull { needed, n_ctx }.into());
    }
    let mut engine = Engine::new(loaded.model.clone(), config.clone(), Unobserved)
        .context("building the engine")?;
    engine.set_edits(facts);
    for chunk in ids.chunks(config.logit_rows) {
        engine.step(chunk, Logits::All, StepKind::Prefill)?;
        for row in 0..chunk.len() {
            take(engine.logits(row));
        }
    }
    Ok(())
}
