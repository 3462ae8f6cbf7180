//! `cbtop perplexity`: how well a model predicts a text, by llama.cpp's method.

use super::trace::input::{Progress, text};
use super::{printable, quant_error, setup};
use crate::cli::{EvalPath, PerplexityArgs, PerplexityFormat};
use anyhow::bail;
use cbtop::session::Loaded;
use cbtop::tracer::perplexity::{
    Comparison, FastPath, N_CTX, Perplexity, PerplexityError, ReferencePath, Scored, first_token,
    measure, text_ids,
};
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

/// Largest text read.
pub const MAX_TEXT: usize = 64 << 20;

#[derive(Serialize)]
struct Printed<'a> {
    model: String,
    path: &'static str,
    /// The other file.
    reference_file: Option<&'a str>,
    #[serde(flatten)]
    perplexity: &'a Perplexity,
}

/// Scores and prints.
pub fn run(args: &PerplexityArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    if args.chunks == Some(0) {
        bail!("--chunks is 0, expected at least 1");
    }
    let loaded = setup::load(args.model.as_deref(), &args.engine)?;
    let trained = loaded.model.hparams.n_ctx_train;
    let n_ctx = args.engine.ctx.unwrap_or(N_CTX.min(trained));
    let ids = text_ids(&loaded.tokenizer, &text(&args.file, MAX_TEXT)?)?;
    let baseline = quant_error::baseline(args.reference.as_deref(), &args.engine, &loaded)?;
    let mut pass = pass(args, &loaded, n_ctx)?;
    let mut other = match &baseline {
        None => None,
        Some((other, _)) => Some(self::pass(args, other, n_ctx)?),
    };
    let mut progress = Progress::new();
    let measured = measure(
        &mut *pass,
        other.as_mut().map(|p| &mut **p as &mut dyn Scored),
        &ids,
        (n_ctx, args.chunks),
        first_token(&loaded.tokenizer),
        &mut |done, all, so_far| {
            progress.show(&format!("PPL {so_far:.4}, windows"), done, all);
            true
        },
    )?;
    drop(progress);
    let printed = Printed {
        model: loaded.name(),
        path: match args.path {
            EvalPath::Reference => "reference",
            EvalPath::Fast => "fast",
        },
        reference_file: baseline.as_ref().map(|(_, b)| &b.name[..]),
        perplexity: &measured,
    };
    match args.format {
        PerplexityFormat::Json => {
            serde_json::to_writer_pretty(&mut *out, &printed)?;
            writeln!(out)?;
        }
        PerplexityFormat::Text => write_text(&printed, out)?,
    }
    if !measured.perplexity.is_finite() {
        eprintln!(
            "cbtop: the model's logits are no numbers; cbtop --trace activations says where they go wrong"
        );
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// The forward pass that `--path` names.
fn pass<'m>(
    args: &PerplexityArgs,
    loaded: &'m Loaded,
    n_ctx: usize,
) -> Result<Box<dyn Scored + 'm>, anyhow::Error> {
    let (config, _) = setup::config(&args.engine, loaded)?;
    Ok(match args.path {
        EvalPath::Reference => Box::new(ReferencePath::new(&loaded.model, n_ctx)),
        EvalPath::Fast => {
            let engine = FastPath::new(Arc::clone(&loaded.model), &config, n_ctx);
            Box::new(engine.map_err(PerplexityError::from)?)
        }
    })
}

fn write_text(p: &Printed<'_>, out: &mut impl Write) -> std::io::Result<()> {
    let m = p.perplexity;
    writeln!(
        out,
        "{}: {} tokens in {} windows of {}, {} scored; {} path",
        printable(&p.model),
        m.tokens,
        m.windows,
        m.n_ctx,
        m.scored,
        p.path
    )?;
    writeln!(out, "PPL {:.4}{}", m.perplexity, plus_minus(m.error))?;
    let (Some(r), Some(name)) = (&m.reference, p.reference_file) else {
        return Ok(());
    };
    let Comparison {
        perplexity,
        error,
        delta,
        ln_ratio,
        ln_ratio_error,
        kl_divergence,
        same_top,
    } = r;
    writeln!(
        out,
        "{}: PPL {perplexity:.4}{}",
        printable(&name),
        plus_minus(*error)
    )?;
    writeln!(
        out,
        "difference {delta:+.4}; ln of the ratio {ln_ratio:+.5}{}",
        plus_minus(*ln_ratio_error)
    )?;
    writeln!(
        out,
        "KL divergence {kl_divergence:.5} nat; same most probable token {:.1}%",
        100.0 * same_top
    )
}

fn plus_minus(error: Option<f64>) -> String {
    error.map_or(String::new(), |e| format!(" +/- {e:.5}"))
}
