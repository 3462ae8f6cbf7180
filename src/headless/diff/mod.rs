//! Two runs compared brick by brick, with intervals that say what is beyond chance.
//!
//! Times are those of decode steps: mean and standard deviation over steps. Consecutive steps of one process are not
//! independent of each other and two processes differ in more than the code, so that intervals are rather too narrow.

mod same;
pub mod text;
pub mod welch;

pub use same::{Unlike, unlike};

use crate::model::brick::BrickId;
use crate::session::snapshot::{BrickRow, Snapshot};
use serde::Serialize;
use std::cmp::Ordering;
use welch::{CONFIDENCE, Interval, Sample, difference};

/// Bricks with less of the step than this do not fail a check.
const LEAST_SHARE: f64 = 0.01;

/// What can be said of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// B takes longer, beyond chance.
    Slower,
    /// B takes less time, beyond chance.
    Faster,
    /// No difference beyond chance.
    Same,
    /// A report does not say how much steps varied: nothing can be said.
    NoInterval,
    /// Only A has this brick.
    OnlyA,
    /// Only B has this brick.
    OnlyB,
}

/// A time in both runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Name of the brick, or `step` for the whole.
    pub name: String,
    /// Mean time a step in A, microseconds.
    pub a_us: Option<f64>,
    /// Mean time a step in B, microseconds.
    pub b_us: Option<f64>,
    /// B less A, microseconds; `None` where one of them has no such brick.
    pub change_us: Option<f64>,
    /// The same as a share of A.
    pub change: Option<f64>,
    /// Where the true change is with the probability `confidence`, microseconds.
    pub interval_us: Option<Interval>,
    /// What that says.
    pub verdict: Verdict,
    #[serde(skip)]
    samples: Option<(Sample, Sample)>,
    /// Larger share of its run's step, 0 to 1.
    #[serde(skip)]
    share: f64,
}

/// A figure without an interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// What it is.
    pub name: &'static str,
    /// `tok/s`, `s` or `bytes`.
    pub unit: &'static str,
    /// In A, if known.
    pub a: Option<f64>,
    /// In B, if known.
    pub b: Option<f64>,
    /// B less A as a share of A.
    pub change: Option<f64>,
}

/// A comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diff {
    /// Probability that an interval holds the true change.
    pub confidence: f64,
    /// In what the runs differ besides time: empty for two runs of the same thing.
    pub unlike: Vec<Unlike>,
    /// What else to know, one line each.
    pub notes: Vec<String>,
    /// Steps that A's and B's times are of.
    pub steps: [u64; 2],
    /// The decode step as a whole.
    pub step: Row,
    /// Its bricks, largest change first.
    pub bricks: Vec<Row>,
    /// Rates and memory.
    pub figures: Vec<Figure>,
}

/// What a check against a limit found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// The limit, as a share.
    pub above: f64,
    /// Whether nothing is slower by more than that, beyond chance.
    pub passed: bool,
    /// What is.
    pub slower: Vec<String>,
    /// What could not be judged, of what counts.
    pub not_judged: Vec<String>,
}

/// Compares run `b` with run `a`.
pub fn compare(a: &Snapshot, b: &Snapshot) -> Diff {
    let step = Row::new("step".into(), step(a), step(b), 1.0);
    let [whole_a, whole_b] = [step.a_us, step.b_us];
    let share = |row: Option<&BrickRow>, whole: Option<f64>| {
        row.zip(whole)
            .map_or(0.0, |(r, w)| if w > 0.0 { r.us_per_step / w } else { 0.0 })
    };
    let mut bricks: Vec<Row> = BrickId::ALL
        .iter()
        .filter_map(|id| {
            let find = |s: &'_ Snapshot| s.bricks.iter().position(|r| r.id == *id);
            let (ra, rb) = (
                find(a).and_then(|i| a.bricks.get(i)),
                find(b).and_then(|i| b.bricks.get(i)),
            );
            ra.or(rb)?;
            let share = share(ra, whole_a).max(share(rb, whole_b));
            Some(Row::new(
                id.name().into(),
                ra.map(time),
                rb.map(time),
                share,
            ))
        })
        .collect();
    bricks.sort_by(by_change);
    let mut notes = Vec::new();
    for (name, run, whole) in [("A", a, &step.a_us), ("B", b, &step.b_us)] {
        if whole.is_none() {
            notes.push(format!("{name} has no decode steps"));
        } else if run.bricks.iter().all(|r| r.step_stddev_us.is_none()) {
            notes.push(format!(
                "{name} does not say how much steps varied: no intervals"
            ));
        }
    }
    Diff {
        confidence: CONFIDENCE,
        unlike: unlike(a, b),
        notes,
        steps: [steps(a), steps(b)],
        step,
        bricks,
        figures: figures(a, b),
    }
}

/// A mean and, where it is known, how it varied.
#[derive(Clone, Copy)]
struct Time {
    us: f64,
    sample: Option<Sample>,
}

fn time(row: &BrickRow) -> Time {
    Time {
        us: row.us_per_step,
        sample: Sample::new(row.us_per_step, row.step_stddev_us, row.steps),
    }
}

/// The whole step, from its own statistics or, in reports that have none, as the sum of its bricks.
fn step(s: &Snapshot) -> Option<Time> {
    if let Some(us) = s.latency.mean_us {
        return Some(Time {
            us,
            sample: Sample::new(us, s.latency.stddev_us, s.latency.count),
        });
    }
    let us = s.bricks.iter().map(|r| r.us_per_step).sum();
    (!s.bricks.is_empty()).then_some(Time { us, sample: None })
}

fn steps(s: &Snapshot) -> u64 {
    let most = s.bricks.iter().map(|r| r.steps).max();
    most.unwrap_or(s.latency.count)
}

impl Row {
    fn new(name: String, a: Option<Time>, b: Option<Time>, share: f64) -> Self {
        let samples = a.and_then(|t| t.sample).zip(b.and_then(|t| t.sample));
        let interval_us = samples.map(|(a, b)| difference(a, b, 1.0, CONFIDENCE));
        let change_us = a.zip(b).map(|(a, b)| b.us - a.us).filter(|c| c.is_finite());
        let verdict = match (a, b, interval_us) {
            (Some(_), None, _) => Verdict::OnlyA,
            (None, Some(_), _) => Verdict::OnlyB,
            (_, _, None) => Verdict::NoInterval,
            (.., Some(i)) if i.low > 0.0 => Verdict::Slower,
            (.., Some(i)) if i.high < 0.0 => Verdict::Faster,
            _ => Verdict::Same,
        };
        Self {
            name,
            a_us: a.map(|t| t.us),
            b_us: b.map(|t| t.us),
            change_us,
            change: relative(a.map(|t| t.us), b.map(|t| t.us)),
            interval_us,
            verdict,
            samples,
            share,
        }
    }

    /// The interval as shares of A.
    pub fn interval(&self) -> Option<Interval> {
        let (i, a) = self.interval_us.zip(self.a_us.filter(|a| *a > 0.0))?;
        Some(Interval {
            low: i.low / a,
            high: i.high / a,
        })
    }

    /// How much time this row moves, whichever run has it.
    fn weight(&self) -> f64 {
        let only = self.a_us.xor(self.b_us);
        let weight = self.change_us.or(only).unwrap_or(0.0).abs();
        if weight.is_finite() { weight } else { 0.0 }
    }

    /// Whether B is slower than A by more than `above`, beyond chance; `None` where that cannot be said.
    fn slower_than(&self, above: f64, confidence: f64) -> Option<bool> {
        let (a, b) = self.samples?;
        Some(difference(a, b, 1.0 + above, confidence).low > 0.0)
    }
}

fn by_change(a: &Row, b: &Row) -> Ordering {
    b.weight().total_cmp(&a.weight())
}

fn relative(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    let (a, b) = a.filter(|a| *a > 0.0).zip(b)?;
    Some(b / a - 1.0).filter(|c| c.is_finite())
}

impl Diff {
    /// Whether the step, or a brick of more than 1% of it, is slower by more than the share `above`, beyond chance: the
    /// interval of B less (1 + `above`) times A lies above zero. The rows judged share one error of 5% between them
    /// (Bonferroni), or of twenty that are equal one would seem slower. `None` where nothing can be judged.
    pub fn check(&self, above: f64) -> Option<Check> {
        let (mut slower, mut not_judged) = (Vec::new(), Vec::new());
        let mut judged = false;
        let counts = |r: &&Row| r.share > LEAST_SHARE;
        let rows = 1 + self.bricks.iter().filter(counts).count();
        let confidence = 1.0 - (1.0 - CONFIDENCE) / rows as f64;
        for row in std::iter::once(&self.step).chain(self.bricks.iter().filter(counts)) {
            match row.slower_than(above, confidence) {
                Some(true) => slower.push(row.name.clone()),
                Some(false) => {}
                None => not_judged.push(row.name.clone()),
            }
            judged |= row.samples.is_some();
        }
        judged.then_some(Check {
            above,
            passed: slower.is_empty(),
            slower,
            not_judged,
        })
    }
}

fn figures(a: &Snapshot, b: &Snapshot) -> Vec<Figure> {
    type Read = fn(&Snapshot) -> Option<f64>;
    let all: [(&'static str, &'static str, Read); 8] = [
        ("decode", "tok/s", |s| s.rates.decode_mean_tok_s),
        ("prefill", "tok/s", |s| s.rates.prefill_tok_s),
        ("first token", "s", |s| s.rates.ttft_s),
        ("resident memory", "bytes", |s| {
            s.memory.rss_bytes.map(|v| v as f64)
        }),
        ("most resident", "bytes", |s| {
            s.memory.peak_rss_bytes.map(|v| v as f64)
        }),
        ("weights", "bytes", |s| Some(s.memory.weights_bytes as f64)),
        ("kv cache", "bytes", |s| Some(s.memory.kv_bytes as f64)),
        ("scratch", "bytes", |s| Some(s.memory.scratch_bytes as f64)),
    ];
    all.into_iter()
        .map(|(name, unit, read)| {
            let (a, b) = (read(a), read(b));
            Figure {
                name,
                unit,
                a,
                b,
                change: relative(a, b),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
