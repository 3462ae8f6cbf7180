//! `cbtop overhead --trace`: what capturing the residual stream costs, against the same engine that captures nothing.

use super::{CONTEXT, Cost, Setting, cost_table, median, print};
use crate::cli::OverheadArgs;
use crate::commands::setup;
use anyhow::{Context, bail};
use cbtop::engine::capture::{Capture, Captured};
use cbtop::engine::{Config, Engine, Logits, StepKind, Unobserved};
use cbtop::model::Model;
use cbtop::profiler::os;
use cbtop::session::Loaded;
use cbtop::trace::saved::Saving;
use cbtop::trace::store::BoundaryWriter;
use cbtop::trace::stream::Stream;
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Tokens of the prompt that is captured whole, as far as the context goes.
const PROMPT: usize = 512;
/// Boundary residuals appended to see whether memory grows.
const BOUNDARIES: u32 = 100_000;

#[derive(Debug, Serialize)]
struct Costs {
    #[serde(flatten)]
    setting: Setting,
    prompt_tokens: usize,
    decode_tok_s: f64,
    prefill_tok_s: f64,
    capture: Vec<Cost>,
    /// Boundary residuals appended to a store, and by how much the process grew meanwhile at most.
    boundaries: u32,
    boundaries_file_bytes: u64,
    boundaries_grew_bytes: u64,
    /// The same for the chains of the prompt on their way to a store.
    chains_file_bytes: u64,
    chains_grew_bytes: u64,
}

/// Runs the command.
pub fn run(args: &OverheadArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let loaded = setup::load(args.model.as_deref(), &args.engine)?;
    let (mut config, _) = setup::config(&args.engine, &loaded)?;
    let prompt = PROMPT.min(config.n_ctx);
    config.n_ctx = config.n_ctx.max(CONTEXT + args.tokens);
    config.check()?;
    let folder = tempfile::tempdir().context("a folder for stores")?;
    let mut bench = Bench::new(&loaded, &config, prompt, args.tokens)?;
    let mut decode: Vec<[f64; 2]> = Vec::new();
    let mut prefill: Vec<[f64; 3]> = Vec::new();
    // The first round is for warming up.
    for round in 0..=args.rounds {
        let d = bench.decode_round(round)?;
        let p = bench.prefill_round(round, folder.path())?;
        if round > 0 {
            decode.push(d);
            prefill.push(p);
        }
    }
    let column = |i: usize| -> Vec<f64> { prefill.iter().map(|p| p[i]).collect() };
    let ways = [
        (
            "last position, decode",
            args.tokens,
            decode.iter().map(|d| d[0]).collect(),
            decode.iter().map(|d| d[1]).collect(),
        ),
        ("all positions, prefill", prompt, column(0), column(1)),
        (
            "all positions, prefill, to a store",
            prompt,
            column(0),
            column(2),
        ),
    ];
    let capture = ways.into_iter().map(|(what, tokens, bare, with)| {
        let (bare, with): (Vec<f64>, Vec<f64>) = (bare, with);
        Cost::new(what, tokens, &bare, &with)
    });
    let capture = capture.collect();
    let (chains_grew_bytes, chains_file_bytes) = bench.chains_growth(folder.path())?;
    let (boundaries_grew_bytes, boundaries_file_bytes) =
        boundaries_growth(&loaded.model, folder.path())?;
    let costs = Costs {
        setting: Setting::new(&loaded, &config, args),
        prompt_tokens: prompt,
        decode_tok_s: args.tokens as f64 / median(&decode.iter().map(|d| d[0]).collect::<Vec<_>>()),
        prefill_tok_s: prompt as f64 / median(&column(0)),
        capture,
        boundaries: BOUNDARIES,
        boundaries_file_bytes,
        boundaries_grew_bytes,
        chains_file_bytes,
        chains_grew_bytes,
    };
    print(args.format, &costs, table, out)
}

fn table(c: &Costs, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(
        out,
        "{} and a prompt of {}; without capture {:.1} tok/s decode, {:.1} prefill",
        c.setting, c.prompt_tokens, c.decode_tok_s, c.prefill_tok_s
    )?;
    cost_table("captured", &c.capture, out)?;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    writeln!(
        out,
        "\nTo a store: into the page cache; the disk is waited for once, at the end of a file.\nMemory: {} boundary residuals make a file of {:.1} MiB, and the process grows by {:.1} MiB; the chains of the \
         prompt make one of {:.1} MiB, and it grows by {:.1} MiB.",
        c.boundaries,
        mib(c.boundaries_file_bytes),
        mib(c.boundaries_grew_bytes),
        mib(c.chains_file_bytes),
        mib(c.chains_grew_bytes)
    )
}

struct Bench {
    engine: Engine<Unobserved>,
    prompt: Vec<u32>,
    tokens: usize,
}

impl Bench {
    fn new(loaded: &Loaded, config: &Config, prompt: usize, tokens: usize) -> anyhow::Result<Self> {
        let model = &loaded.model;
        Ok(Self {
            engine: Engine::new(Arc::clone(model), config.clone(), Unobserved)?,
            prompt: (0..prompt)
                .map(|i| ((i * 31 + 7) % model.n_vocab) as u32)
                .collect(),
            tokens,
        })
    }

    /// Seconds without capture and with it; who goes first changes with the round.
    fn decode_round(&mut self, round: usize) -> anyhow::Result<[f64; 2]> {
        let mut times = [0.0; 2];
        for turn in 0..2 {
            let way = (turn + round) % 2;
            self.engine
                .set_capture((way == 1).then_some(Capture::LAST))?;
            self.engine.truncate(0);
            let context = self.prompt.len().min(CONTEXT);
            self.engine.prefill(&self.prompt[..context])?;
            let model = Arc::clone(self.engine.model());
            let mut stream = Stream::new(&model, context..context + self.tokens, false)?;
            let began = Instant::now();
            for _ in 0..self.tokens {
                self.engine.begin(&[1], Logits::Last, StepKind::Decode)?;
                self.engine.finish_captured(&mut |c| stream.take(&c))?;
                self.engine.end_step();
            }
            times[way] = began.elapsed().as_secs_f64();
        }
        Ok(times)
    }

    /// Seconds without capture, with all positions handed on and dropped, and with them on their way to a store.
    fn prefill_round(&mut self, round: usize, folder: &Path) -> anyhow::Result<[f64; 3]> {
        let mut times = [0.0; 3];
        for turn in 0..3 {
            let way = (turn + round) % 3;
            self.engine.set_capture((way > 0).then_some(Capture::ALL))?;
            let mut sum = 0.0f32;
            times[way] = if way == 2 {
                self.prefill_to(&folder.join("prompt.trace"))?
            } else {
                let began = Instant::now();
                self.prefill(&mut |c| sum += c.data.first().copied().unwrap_or(0.0))?;
                began.elapsed().as_secs_f64()
            };
            std::hint::black_box(sum);
        }
        self.engine.set_capture(None)?;
        Ok(times)
    }

    fn prefill_to(&mut self, path: &Path) -> anyhow::Result<f64> {
        let hp = &self.engine.model().hparams;
        let mut saving = Saving::create(path, hp.n_embd, hp.n_layers, self.prompt.len())?;
        let began = Instant::now();
        self.prefill(&mut |c| saving.hear(&c))?;
        saving.complete()?;
        Ok(began.elapsed().as_secs_f64())
    }

    fn prefill(&mut self, sink: &mut dyn FnMut(Captured<'_>)) -> anyhow::Result<()> {
        self.engine.truncate(0);
        let chunk = self.engine.config().chunk;
        for (i, part) in self.prompt.chunks(chunk).enumerate() {
            let last = (i + 1) * chunk >= self.prompt.len();
            let logits = if last { Logits::Last } else { Logits::None };
            self.engine.begin(part, logits, StepKind::Prefill)?;
            self.engine.finish_captured(sink)?;
            self.engine.end_step();
        }
        Ok(())
    }

    /// By how much the process grows while the prompt's chains go to a store, and the file's size.
    fn chains_growth(&mut self, folder: &Path) -> anyhow::Result<(u64, u64)> {
        let path = folder.join("grown.trace");
        // Buffers of the engine are there before.
        self.engine.set_capture(Some(Capture::ALL))?;
        self.prefill(&mut |_| {})?;
        let hp = &self.engine.model().hparams;
        let mut saving = Saving::create(&path, hp.n_embd, hp.n_layers, self.prompt.len())?;
        let before = resident()?;
        let mut most = before;
        let mut heard = 0u32;
        self.prefill(&mut |c| {
            saving.hear(&c);
            heard += 1;
            if heard.is_multiple_of(4096) {
                most = most.max(resident().unwrap_or(0));
            }
        })?;
        most = most.max(resident()?);
        saving.complete()?;
        saving.finish(None)?;
        Ok((most - before, std::fs::metadata(&path)?.len()))
    }
}

/// By how much the process grows while a store gets [`BOUNDARIES`] residuals of a token each, and the file's size.
fn boundaries_growth(model: &Model, folder: &Path) -> anyhow::Result<(u64, u64)> {
    let path = folder.join("grown.bndx");
    let width = model.hparams.n_embd as u32;
    let mut writer = BoundaryWriter::create(&path, width, 1, BOUNDARIES)?;
    let residual = vec![0.5f32; model.hparams.n_embd];
    writer.append(0, 1, &residual)?;
    let before = resident()?;
    let mut most = before;
    for i in 1..BOUNDARIES {
        writer.append(i, 1, &residual)?;
        if i.is_multiple_of(1024) {
            most = most.max(resident()?);
        }
    }
    writer.finish()?;
    most = most.max(resident()?);
    Ok((most - before, std::fs::metadata(&path)?.len()))
}

fn resident() -> anyhow::Result<u64> {
    match os::resident_bytes() {
        Some(bytes) => Ok(bytes),
        None => bail!("this system does not say how much memory the process has"),
    }
}
