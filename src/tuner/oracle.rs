//! What to expect before anything is run: rates, times and memory of several batches and settings, and which of them no
//! other beats.

use super::learn::brick_tuner;
use super::recommendation::Interval;
use super::run::{Test, Trial};
use crate::engine::knobs::Setting;
use serde::Serialize;

/// What a predictor says of a trial.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Forecast {
    /// Rate, tokens a second over all sequences; `None` where it cannot be said.
    pub tok_s: Option<Interval>,
    /// What predicted it: `gradient boosting`, `k nearest runs`, `roofline`.
    pub method: String,
    /// Kernel variants, the likeliest to be fastest first, with shares that sum to 1; empty where not predicted.
    pub kernels: Vec<(String, f64)>,
    /// What limits a token: `memory`, `compute`, `launch` or `attention`; `None` where not predicted.
    pub bottleneck: Option<String>,
    /// Why it is to be doubted.
    pub warnings: Vec<String>,
}

impl From<brick_tuner::Answer> for Forecast {
    fn from(a: brick_tuner::Answer) -> Self {
        Self {
            tok_s: a.tok_s,
            method: a.method.into(),
            kernels: a.kernels,
            bottleneck: a.bottleneck.map(|b| b.class),
            warnings: a.warnings,
        }
    }
}

/// Answers trials.
pub type Predict<'a> = &'a dyn Fn(&Trial) -> Forecast;

/// What is asked.
pub struct Question<'a> {
    /// Machine, model, program and the settings that others are compared with; its test is not read.
    pub base: &'a Trial,
    /// Sequences run together.
    pub batches: &'a [u32],
    /// Tokens of the prompt of each sequence.
    pub prompt: u32,
    /// Tokens generated of each sequence; at least 1.
    pub generated: u32,
    /// Settings to look at beside those of `base`.
    pub alternatives: &'a [Vec<Setting>],
    /// Memory of a trial with so many sequences.
    pub memory: &'a dyn Fn(&Trial, u32) -> Memory,
    /// Memory the machine has, bytes.
    pub available: Option<f64>,
}

/// Memory needed, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Memory {
    /// Weights.
    pub weights: f64,
    /// Keys and values of all sequences at the full context.
    pub kv: f64,
    /// Activations, as this engine allocates them.
    pub buffers: f64,
}

impl Memory {
    /// The sum, bytes.
    pub fn total(&self) -> f64 {
        self.weights + self.kv + self.buffers
    }
}

/// One configuration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outlook {
    /// Sequences run together.
    pub batch: u32,
    /// What differs from the settings asked about; empty for those.
    pub change: Vec<Setting>,
    /// Generation, tokens a second over all sequences.
    pub tok_s: Option<Interval>,
    /// Time between two tokens of one sequence, milliseconds.
    pub ms_per_token: Option<Interval>,
    /// Time until the first tokens of all sequences, milliseconds; `None` without a prompt.
    pub first_token_ms: Option<Interval>,
    /// Memory needed.
    pub memory: Memory,
    /// Whether that fits the machine; `None` where its memory is not known.
    pub fits: Option<bool>,
    /// Whether nothing asked about that fits is at least as good in rate, time and memory, and better in one.
    pub front: bool,
    /// What limits a token.
    pub bottleneck: Option<String>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// Configurations by batch, the settings asked about before their alternatives.
    pub rows: Vec<Outlook>,
    /// What predicted the rates.
    pub method: String,
    /// Why they are to be doubted, each once.
    pub warnings: Vec<String>,
}

/// Answers a question.
pub fn ask(q: &Question<'_>, predict: Predict<'_>) -> Answer {
    let mut answer = Answer {
        rows: Vec::new(),
        method: String::new(),
        warnings: Vec::new(),
    };
    for &batch in q.batches {
        let base = outlook(q, batch, &[], predict, &mut answer);
        let mut rows = vec![base];
        for change in q.alternatives {
            let row = outlook(q, batch, change, predict, &mut answer);
            // A setting that makes no difference here is not worth a line.
            if rows.first().is_some_and(|base| differs(base, &row)) {
                rows.push(row);
            }
        }
        answer.rows.append(&mut rows);
    }
    mark_front(&mut answer.rows);
    answer
}

fn outlook(
    q: &Question<'_>,
    batch: u32,
    change: &[Setting],
    predict: Predict<'_>,
    answer: &mut Answer,
) -> Outlook {
    let mut trial = q.base.with(change);
    trial.test = Test {
        prompt: 0,
        generated: q.generated.max(1),
        depth: q.prompt,
        batch,
    };
    let said = predict(&trial);
    let tok_s = said.tok_s.filter(is_rate);
    let first_token_ms = (q.prompt > 0).then(|| {
        let mut prompt = trial.clone();
        prompt.test = Test {
            prompt: q.prompt,
            generated: 0,
            depth: 0,
            batch,
        };
        let rate = predict(&prompt).tok_s.filter(is_rate)?;
        let tokens = f64::from(q.prompt) * f64::from(batch.max(1));
        Some(times(rate, tokens))
    });
    answer.method.clone_from(&said.method);
    for w in said.warnings {
        if !answer.warnings.contains(&w) {
            answer.warnings.push(w);
        }
    }
    let memory = (q.memory)(&trial, batch);
    Outlook {
        batch,
        change: change.to_vec(),
        tok_s,
        ms_per_token: tok_s.map(|rate| times(rate, f64::from(batch.max(1)))),
        first_token_ms: first_token_ms.flatten(),
        fits: q.available.map(|has| memory.total() <= has),
        memory,
        front: false,
        bottleneck: said.bottleneck,
    }
}

fn is_rate(i: &Interval) -> bool {
    i.mid.is_finite() && i.mid > 0.0
}

/// Milliseconds that `tokens` take at a rate; the fastest rate gives the shortest time.
fn times(rate: Interval, tokens: f64) -> Interval {
    let ms = |v: f64| {
        if v > 0.0 {
            1e3 * tokens / v
        } else {
            f64::INFINITY
        }
    };
    Interval {
        low: ms(rate.high),
        mid: ms(rate.mid),
        high: ms(rate.low),
    }
}

/// Whether rate or memory are another by half a percent.
fn differs(a: &Outlook, b: &Outlook) -> bool {
    let other = |a: f64, b: f64| (a - b).abs() > 0.005 * a.abs().max(b.abs());
    let rate = |o: &Outlook| o.tok_s.map_or(0.0, |i| i.mid);
    other(rate(a), rate(b)) || other(a.memory.total(), b.memory.total())
}

/// Rate, time between tokens and memory, each so that less is better; `None` for what cannot be said or does not fit.
fn costs(o: &Outlook) -> Option<[f64; 3]> {
    let (rate, ms) = (o.tok_s?.mid, o.ms_per_token?.mid);
    let costs = [-rate, ms, o.memory.total()];
    let sound = o.fits != Some(false) && costs.iter().all(|c| c.is_finite());
    sound.then_some(costs)
}

/// Whether `a` is at least as good as `b` in all and better in one.
fn dominates(a: &[f64; 3], b: &[f64; 3]) -> bool {
    a.iter().zip(b).all(|(a, b)| a <= b) && a != b
}

/// Marks the rows that none of the others beats.
pub fn mark_front(rows: &mut [Outlook]) {
    let all: Vec<Option<[f64; 3]>> = rows.iter().map(costs).collect();
    for (row, own) in rows.iter_mut().zip(&all) {
        row.front = own
            .as_ref()
            .is_some_and(|own| !all.iter().flatten().any(|other| dominates(other, own)));
    }
}

#[cfg(test)]
mod tests;
