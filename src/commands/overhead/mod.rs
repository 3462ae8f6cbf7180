//! `cbtop overhead`: what profiling costs, measured on the real engine against the same engine unwatched, in one run.

mod trace;
mod tracers;

use super::{printable, setup};
use crate::cli::{OverheadArgs, OverheadFormat};
use anyhow::bail;
use cbtop::engine::{Config, Engine, EngineError, Logits, StepKind, SyncMode, Unobserved};
use cbtop::model::Model;
use cbtop::profiler::stats::Aggregate;
use cbtop::profiler::{Clock, StepRecorder};
use cbtop::session::Loaded;
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Tokens in the cache before anything is timed.
const CONTEXT: usize = 32;
/// Place of [`SyncMode::None`] in [`SyncMode::ALL`].
const NONE: usize = SyncMode::None as usize;
/// Fewer rounds give no interval worth the name.
const FEWEST_ROUNDS: usize = 8;

/// What is measured, and how often.
#[derive(Debug, Serialize)]
struct Setting {
    model: String,
    kernels: &'static str,
    threads: usize,
    rounds: usize,
    tokens_a_round: usize,
}

impl Setting {
    fn new(loaded: &Loaded, config: &Config, args: &OverheadArgs) -> Self {
        Self {
            model: loaded.name(),
            kernels: config.kernels.name(),
            threads: config.threads,
            rounds: args.rounds,
            tokens_a_round: args.tokens,
        }
    }
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}, {}, {} threads; {} rounds of {} tokens",
            printable(&self.model),
            self.kernels,
            self.threads,
            self.rounds,
            self.tokens_a_round
        )
    }
}

/// What one way of watching costs.
#[derive(Debug, Serialize)]
struct Cost {
    what: &'static str,
    /// Time against the same work unwatched in the same round: median, and a 95% interval of it.
    ratio: f64,
    ratio_low: f64,
    ratio_high: f64,
    /// Tokens a second with it.
    tok_s: f64,
}

impl Cost {
    /// From the times of every round, seconds, of `tokens` tokens, unwatched and watched.
    fn new(what: &'static str, tokens: usize, bare: &[f64], with: &[f64]) -> Self {
        let ratios = with.iter().zip(bare).map(|(w, b)| w / b);
        let [ratio_low, ratio, ratio_high] = median_interval(ratios.collect());
        Self {
            what,
            ratio,
            ratio_low,
            ratio_high,
            tok_s: tokens as f64 / median(with),
        }
    }
}

/// Rows of costs under a head.
fn cost_table(head: &str, costs: &[Cost], out: &mut impl Write) -> std::io::Result<()> {
    writeln!(
        out,
        "\n| {head:<34} | {:>8} | {:>7} | {:>18} |",
        "tok/s", "cost", "95% interval"
    )?;
    writeln!(
        out,
        "|------------------------------------|---------:|--------:|-------------------:|"
    )?;
    for c in costs {
        let range = format!("{} to {}", percent(c.ratio_low), percent(c.ratio_high));
        let (what, cost) = (c.what, percent(c.ratio));
        writeln!(
            out,
            "| {what:<34} | {:>8.1} | {cost:>7} | {range:>18} |",
            c.tok_s
        )?;
    }
    Ok(())
}

/// What a mode costs.
#[derive(Debug, Serialize)]
struct ModeCost {
    mode: &'static str,
    says: &'static str,
    /// Time of a token against that of an unwatched engine in the same round: median, and a 95% interval of it.
    ratio: f64,
    ratio_low: f64,
    ratio_high: f64,
    /// The same against mode `none` of the same engine, which lies in memory as this does.
    ratio_to_none: f64,
    ratio_to_none_low: f64,
    ratio_to_none_high: f64,
    tok_s: f64,
}

#[derive(Debug, Serialize)]
struct Costs {
    #[serde(flatten)]
    setting: Setting,
    unwatched_tok_s: f64,
    modes: Vec<ModeCost>,
}

/// Runs the command.
pub fn run(args: &OverheadArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    if args.rounds < FEWEST_ROUNDS || args.tokens == 0 {
        bail!("give at least {FEWEST_ROUNDS} rounds (-r) of at least one token (-n)");
    }
    if args.trace {
        return trace::run(args, out);
    }
    if args.tracers {
        return tracers::run(args, out);
    }
    let loaded = setup::load(args.model.as_deref(), &args.engine)?;
    let (mut config, _) = setup::config(&args.engine, &loaded)?;
    config.n_ctx = config.n_ctx.max(CONTEXT + args.tokens);
    config.check()?;
    let mut bench = Bench::new(&loaded.model, &config, args.tokens)?;
    let times = bench.rounds(args.rounds)?;
    let tok_s = |us: &[f64]| 1e6 * args.tokens as f64 / median(us);
    let bare: Vec<f64> = times.iter().map(|t| t.bare).collect();
    let none: Vec<f64> = times.iter().map(|t| t.watched[NONE]).collect();
    let modes = SyncMode::ALL.iter().enumerate().map(|(i, mode)| {
        let watched: Vec<f64> = times.iter().map(|t| t.watched[i]).collect();
        let ratios: Vec<f64> = watched.iter().zip(&bare).map(|(w, b)| w / b).collect();
        let [ratio_low, ratio, ratio_high] = median_interval(ratios);
        let ratios: Vec<f64> = watched.iter().zip(&none).map(|(w, n)| w / n).collect();
        let [ratio_to_none_low, ratio_to_none, ratio_to_none_high] = median_interval(ratios);
        ModeCost {
            mode: mode.name(),
            says: mode.says(),
            ratio,
            ratio_low,
            ratio_high,
            ratio_to_none,
            ratio_to_none_low,
            ratio_to_none_high,
            tok_s: tok_s(&watched),
        }
    });
    let costs = Costs {
        setting: Setting::new(&loaded, &config, args),
        unwatched_tok_s: tok_s(&bare),
        modes: modes.collect(),
    };
    print(args.format, &costs, table, out)
}

/// Prints costs as a table or as JSON.
fn print<C: Serialize, W: Write>(
    format: OverheadFormat,
    costs: &C,
    table: impl FnOnce(&C, &mut W) -> std::io::Result<()>,
    out: &mut W,
) -> anyhow::Result<ExitCode> {
    match format {
        OverheadFormat::Md => table(costs, out)?,
        OverheadFormat::Json => {
            serde_json::to_writer_pretty(&mut *out, costs)?;
            writeln!(out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A change as a percentage: `+1.25%` for 1.0125.
fn percent(ratio: f64) -> String {
    format!("{:+.2}%", 100.0 * (ratio - 1.0))
}

fn table(c: &Costs, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(
        out,
        "{}; unwatched {:.1} tok/s",
        c.setting, c.unwatched_tok_s
    )?;
    let head = [
        "mode",
        "tok/s",
        "cost",
        "95% interval",
        "over none",
        "95% interval",
    ];
    let [mode, rate, cost, interval, over, interval_over] = head;
    writeln!(
        out,
        "\n| {mode:<9} | {rate:>8} | {cost:>7} | {interval:>18} | {over:>9} | {interval_over:>18} |"
    )?;
    writeln!(
        out,
        "|-----------|---------:|--------:|-------------------:|----------:|-------------------:|"
    )?;
    let range = |low: f64, high: f64| format!("{} to {}", percent(low), percent(high));
    for m in &c.modes {
        writeln!(
            out,
            "| {:<9} | {:>8.1} | {:>7} | {:>18} | {:>9} | {:>18} |",
            m.mode,
            m.tok_s,
            percent(m.ratio),
            range(m.ratio_low, m.ratio_high),
            percent(m.ratio_to_none),
            range(m.ratio_to_none_low, m.ratio_to_none_high),
        )?;
    }
    Ok(())
}

/// Times of one round, microseconds.
struct Round {
    /// The unwatched engine: mean of the two runs around those of the modes.
    bare: f64,
    /// By mode, as in [`SyncMode::ALL`].
    watched: [f64; SyncMode::ALL.len()],
}

/// Both engines, with the same text in their caches.
struct Bench {
    bare: Engine<Unobserved>,
    watched: Engine<StepRecorder>,
    stats: Aggregate,
    tokens: usize,
}

impl Bench {
    fn new(model: &Arc<Model>, config: &Config, tokens: usize) -> Result<Self, EngineError> {
        let recorder = StepRecorder::new(Clock::calibrated(), model.plan.bricks.len() + 1);
        let mut bench = Self {
            bare: Engine::new(Arc::clone(model), config.clone(), Unobserved)?,
            watched: Engine::new(Arc::clone(model), config.clone(), recorder)?,
            stats: Aggregate::new(model.hparams.n_layers),
            tokens,
        };
        let prompt: Vec<u32> = (0..CONTEXT).map(|i| (i % model.n_vocab) as u32).collect();
        bench.bare.prefill(&prompt)?;
        bench.watched.prefill(&prompt)?;
        Ok(bench)
    }

    fn rounds(&mut self, rounds: usize) -> Result<Vec<Round>, EngineError> {
        let mut times = Vec::with_capacity(rounds);
        // The first is for warming up.
        for round in 0..=rounds {
            let before = self.time_bare()?;
            let mut watched = [0.0; SyncMode::ALL.len()];
            for turn in 0..watched.len() {
                // Whoever goes first changes, so that a drift of the machine hits all alike.
                let mode = (turn + round) % watched.len();
                watched[mode] = self.time_watched(SyncMode::ALL[mode])?;
            }
            let after = self.time_bare()?;
            if round > 0 {
                times.push(Round {
                    bare: f64::midpoint(before, after),
                    watched,
                });
            }
        }
        Ok(times)
    }

    fn time_bare(&mut self) -> Result<f64, EngineError> {
        self.bare.truncate(CONTEXT);
        let began = Instant::now();
        for _ in 0..self.tokens {
            self.bare.decode(1)?;
        }
        Ok(began.elapsed().as_secs_f64() * 1e6)
    }

    /// Recorded, and folded into the statistics as in a session.
    fn time_watched(&mut self, mode: SyncMode) -> Result<f64, EngineError> {
        self.watched.truncate(CONTEXT);
        self.watched.observer_mut().set_mode(mode);
        let began = Instant::now();
        for _ in 0..self.tokens {
            self.watched.step(&[1], Logits::Last, StepKind::Decode)?;
            self.stats.add_step(self.watched.observer().last());
        }
        Ok(began.elapsed().as_secs_f64() * 1e6)
    }
}

fn median(values: &[f64]) -> f64 {
    median_interval(values.to_vec())[1]
}

/// Lower end, median and upper end of a 95% interval of the median, by ranks: the number of values below the median is
/// binomial, whatever the distribution.
fn median_interval(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    if n == 0 {
        return [f64::NAN; 3];
    }
    let reach = 0.98 * (n as f64).sqrt();
    let low = (n as f64 / 2.0 - reach).floor().max(0.0) as usize;
    let middle = f64::midpoint(values[(n - 1) / 2], values[n / 2]);
    [values[low], middle, values[n - 1 - low]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_holds_the_median() {
        assert_eq!(median_interval(vec![3.0, 1.0, 2.0])[1], 2.0);
        let [low, middle, high] = median_interval((0..100).map(f64::from).collect());
        // Ranks 41 and 60 of 100 (1-based), as tables of the sign test have it.
        assert_eq!((low, middle, high), (40.0, 49.5, 59.0));
        assert!(median_interval(Vec::new())[1].is_nan());
    }
}
