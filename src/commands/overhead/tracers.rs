//! `cbtop overhead --tracers`: what each tracer costs, against the same engine without any, in one run.

use super::{CONTEXT, Cost, Setting, cost_table, median, print};
use crate::cli::OverheadArgs;
use crate::commands::setup;
use cbtop::engine::sampler::{Sampler, SamplerConfig};
use cbtop::engine::{Config, Engine, EngineError, Logits, StepKind, Unobserved};
use cbtop::session::Loaded;
use cbtop::tracer::figures::TracerSet;
use cbtop::tracer::{ModelTracer, ModelTracerConfig};
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

/// Tokens of the prompt that is read with and without tracers, as far as the context goes.
const PROMPT: usize = 256;

/// What is switched on, in words of `--trace`.
const SETS: [&str; 7] = [
    "activations",
    "attention",
    "kv",
    "activations,attention,kv",
    "logits",
    "quantisation",
    "all",
];

#[derive(Debug, Serialize)]
struct Costs {
    #[serde(flatten)]
    setting: Setting,
    prompt_tokens: usize,
    decode_tok_s: f64,
    prefill_tok_s: f64,
    decode: Vec<Cost>,
    prefill: Vec<Cost>,
}

/// Times of a round, seconds: without tracers (the mean of the two runs around the others), then by [`SETS`].
type Round = (f64, [f64; SETS.len()]);

/// Runs the command.
pub fn run(args: &OverheadArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let loaded = setup::load(args.model.as_deref(), &args.engine)?;
    let (mut config, _) = setup::config(&args.engine, &loaded)?;
    config.n_ctx = config.n_ctx.max(CONTEXT + args.tokens + 1);
    config.check()?;
    let prompt = PROMPT.min(config.n_ctx).min(config.chunk);
    let mut bench = Bench::new(&loaded, &config, prompt, args.tokens)?;
    let (mut decode, mut prefill): (Vec<Round>, Vec<Round>) = (Vec::new(), Vec::new());
    // The first round is for warming up.
    for round in 0..=args.rounds {
        let d = bench.round(round, Bench::decode)?;
        let p = bench.round(round, Bench::prefill)?;
        if round > 0 {
            decode.push(d);
            prefill.push(p);
        }
    }
    let bare = |rounds: &[Round]| -> Vec<f64> { rounds.iter().map(|r| r.0).collect() };
    let costs = |tokens: usize, rounds: &[Round]| -> Vec<Cost> {
        let cost = |(i, what)| {
            let with: Vec<f64> = rounds.iter().map(|r| r.1[i]).collect();
            Cost::new(what, tokens, &bare(rounds), &with)
        };
        SETS.into_iter().enumerate().map(cost).collect()
    };
    let costs = Costs {
        setting: Setting::new(&loaded, &config, args),
        prompt_tokens: prompt,
        decode_tok_s: args.tokens as f64 / median(&bare(&decode)),
        prefill_tok_s: prompt as f64 / median(&bare(&prefill)),
        decode: costs(args.tokens, &decode),
        prefill: costs(prompt, &prefill),
    };
    print(args.format, &costs, table, out)
}

fn table(c: &Costs, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(
        out,
        "{} and a prompt of {}; without tracers {:.1} tok/s decode, {:.1} prefill",
        c.setting, c.prompt_tokens, c.decode_tok_s, c.prefill_tok_s
    )?;
    cost_table("decode with", &c.decode, out)?;
    cost_table("prefill with", &c.prefill, out)
}

/// One engine, and tracers that are switched on in turn.
struct Bench {
    engine: Engine<Unobserved>,
    tracer: ModelTracer,
    sampler: Sampler,
    prompt: Vec<u32>,
    tokens: usize,
}

impl Bench {
    fn new(loaded: &Loaded, config: &Config, prompt: usize, tokens: usize) -> anyhow::Result<Self> {
        let model = &loaded.model;
        let ids = |n: usize| (0..n).map(|i| (i % model.n_vocab) as u32).collect();
        Ok(Self {
            engine: Engine::new(model.clone(), config.clone(), Unobserved)?,
            tracer: ModelTracer::new(
                model,
                &loaded.tokenizer,
                &loaded.name(),
                None,
                ModelTracerConfig::default(),
            )?,
            sampler: Sampler::new(SamplerConfig::GREEDY, model.n_vocab),
            prompt: ids(prompt),
            tokens,
        })
    }

    /// One round of some work: without tracers, with every choice of them, without.
    fn round(
        &mut self,
        round: usize,
        work: fn(&mut Self) -> Result<f64, EngineError>,
    ) -> Result<Round, EngineError> {
        let none = TracerSet::default();
        let before = self.timed(none, work)?;
        let mut with = [0.0; SETS.len()];
        for turn in 0..SETS.len() {
            // Whoever goes first changes, so that a drift of the machine hits all alike.
            let i = (turn + round) % SETS.len();
            // The names are those of the tracers.
            let set = SETS[i].parse().unwrap_or(none);
            with[i] = self.timed(set, work)?;
        }
        let after = self.timed(none, work)?;
        Ok((f64::midpoint(before, after), with))
    }

    fn timed(
        &mut self,
        set: TracerSet,
        work: fn(&mut Self) -> Result<f64, EngineError>,
    ) -> Result<f64, EngineError> {
        self.engine.truncate(0);
        self.tracer.switch(set);
        self.tracer.equip(&mut self.engine, None)?;
        work(self)
    }

    fn step(&mut self, ids: std::ops::Range<usize>, kind: StepKind) -> Result<(), EngineError> {
        self.engine.begin(&self.prompt[ids], Logits::Last, kind)?;
        self.tracer.finish(&mut self.engine)?;
        let choice = self.engine.sample(&mut self.sampler);
        self.engine.end_step();
        let sampler = *self.sampler.config();
        self.tracer
            .step_done(&mut self.engine, &sampler, Some(choice.id))
    }

    fn decode(&mut self) -> Result<f64, EngineError> {
        self.step(0..CONTEXT.min(self.prompt.len()), StepKind::Prefill)?;
        // What is only needed once is not part of a token.
        self.step(0..1, StepKind::Decode)?;
        let began = Instant::now();
        for _ in 0..self.tokens {
            self.step(0..1, StepKind::Decode)?;
        }
        Ok(began.elapsed().as_secs_f64())
    }

    fn prefill(&mut self) -> Result<f64, EngineError> {
        let began = Instant::now();
        self.step(0..self.prompt.len(), StepKind::Prefill)?;
        Ok(began.elapsed().as_secs_f64())
    }
}
