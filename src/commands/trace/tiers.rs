//! `cbtop trace --tiers`: what a context store keeps of a text, in bytes and in accuracy, measured on the model at hand.

use super::super::{SAMPLE_TEXT, printable, setup};
use super::forward;
use super::input::Progress;
use crate::cli::TraceArgs;
use anyhow::{Context, bail};
use cbtop::engine::KvType;
use cbtop::engine::cpu::kv::bytes_per_token;
use cbtop::trace::answer;
use cbtop::trace::lang::Format;
use cbtop::trace::tiers::{RESUMED, Resume, TierTable, measure};
use std::io::Write;
use std::path::Path;

/// Tokens of a window, as the specification has it.
const WINDOW: usize = 200;

/// Measures and prints.
pub fn run(args: &TraceArgs, format: Format, out: &mut impl Write) -> anyhow::Result<()> {
    if args.windows < 2 || args.window == Some(0) {
        bail!(
            "--tiers compares windows: give at least two (--windows) of at least a token (--window)"
        );
    }
    let loaded = setup::load(args.model.as_deref(), &args.engine)?;
    let text = match &args.text {
        Some(path) => read(path)?,
        None => SAMPLE_TEXT.into(),
    };
    let ids = answer::encode(&loaded.tokenizer, &text)?;
    let most = loaded.model.hparams.n_ctx_train.saturating_sub(RESUMED + 2);
    let window = args.window.unwrap_or(WINDOW.min(most)).max(1);
    let wanted = window.saturating_mul(args.windows);
    let ids = ids.get(..wanted).unwrap_or(&ids);
    let kv_type = args.engine.kv_type.unwrap_or(KvType::F16);
    let kv = bytes_per_token(&loaded.model.hparams, kv_type) * window as u64;
    let temporary = tempfile::tempdir().context("a folder for the stores")?;
    let folder = args.stores.as_deref().unwrap_or(temporary.path());
    if let Some(folder) = &args.stores {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    let table = forward::with(args, &loaded, window + RESUMED + 2, |forward| {
        let mut progress = Progress::new();
        let mut told = |done, all| progress.show("windows", done, all);
        let table = measure(forward, &loaded.name(), ids, window, kv, folder, &mut told)?;
        Ok(table)
    })?;
    match format {
        Format::Json => {
            serde_json::to_writer(&mut *out, &table)?;
            writeln!(out)?;
        }
        Format::Table => print(&table, out)?,
        Format::Csv => bail!("--tiers has no CSV; use --format table or json"),
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path)
        .with_context(|| format!("{}: give a file of UTF-8 text", path.display()))
}

fn print(t: &TierTable, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(
        out,
        "{}: {} windows of {} tokens; residual after layer {} of {}, critical layers {} to {}",
        printable(&t.model),
        t.windows,
        t.window_tokens,
        t.residual_layer,
        t.n_layers,
        t.critical.0,
        t.critical.1
    )?;
    writeln!(
        out,
        "\n{:<8}  {:<32}  {:>12}  {:>12}  {:>11}  {:>8}  {:>10}  {:>11}",
        "Tier",
        "Content",
        "B/window",
        "370K tokens",
        "Compression",
        "Cosine",
        "Same token",
        "Bit-perfect"
    )?;
    for row in &t.rows {
        let of = |n: Option<u32>| n.map_or("-".into(), |n| format!("{n}/{}", t.windows));
        writeln!(
            out,
            "{:<8}  {:<32}  {:>12}  {:>12}  {:>11}  {:>8}  {:>10}  {:>11}",
            row.tier,
            row.content,
            row.window_bytes,
            format!("{:.1} MB", row.bytes_370k as f64 / 1e6),
            format!("{:.1}x", row.compression),
            row.cosine.map_or("-".into(), |c| format!("{c:.5}")),
            of(row.same_token),
            of(row.bit_perfect),
        )?;
    }
    writeln!(
        out,
        "\nCosine: the stream after the last layer as rebuilt and as it was, mean over windows; tiers 1 to 3 leave out what \
         they do not keep.\nSame token: the next token read from the rebuilt stream is the model's. Compression: against the \
         kv cache of a window. 370K tokens: a text of that length, the specification's measure."
    )?;
    match &t.resume {
        Some(resume) => print_resume(resume, out),
        None => writeln!(
            out,
            "Resume: not measured, a window and {RESUMED} tokens are more than the context (smaller --window)."
        ),
    }
}

fn print_resume(r: &Resume, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(
        out,
        "\nResume: the first tokens of {} windows, {} predictions, against those with the whole text before them.",
        r.windows, r.predictions
    )?;
    writeln!(
        out,
        "{:<44}  {:>10}  {:>9}",
        "Before the window", "Same token", "KL [nat]"
    )?;
    let rows = [
        ("nothing", r.alone_same, r.kl.0),
        ("its first and last token", r.token_same, r.kl.1),
    ];
    for (what, same, kl) in rows {
        writeln!(out, "{what:<44}  {:>9.1}%  {kl:>9.4}", 100.0 * same)?;
    }
    let what = format!("the last one with its residual of layer {}", r.layer);
    writeln!(
        out,
        "{what:<44}  {:>9.1}%  {:>9.4}",
        100.0 * r.resumed_same,
        r.kl.2
    )
}
