//! The result of one test: what was run, its samples and their statistics, under llama-bench's field names.

use super::compare::Beside;
use super::plan::Case;
use super::start::Start;
use cbtop::engine::cpu::kv::bytes_per_token;
use cbtop::gguf::Gguf;
use cbtop::model::{Model, Op, quantisation_name, weight_bytes_per_token};
use cbtop::profiler::os;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

/// A model as a row names it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Subject {
    /// Its file.
    pub file: String,
    /// Architecture, size and quantisation: `llama 135M Q4_1`.
    pub kind: String,
    /// Bytes of all tensors.
    pub bytes: u64,
    /// Elements of all tensors.
    pub params: u64,
    /// What it took to get a first token out of it.
    pub start: Start,
}

impl Subject {
    /// Describes a model.
    pub fn new(file: String, gguf: &Gguf, start: Start) -> Self {
        let params = gguf.tensors().iter().map(|t| t.elements()).sum();
        // One of the architectures that run, or there would be no model.
        let arch = gguf
            .str("general.architecture")
            .ok()
            .flatten()
            .unwrap_or_default();
        // The label is free text of the file; anything odd in it must not reach a terminal or break a table.
        let label = gguf
            .str("general.size_label")
            .ok()
            .flatten()
            .map(str::to_owned);
        let label = label
            .filter(|l| {
                (1..=16).contains(&l.len())
                    && l.bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b".-".contains(&b))
            })
            .unwrap_or_else(|| size_label(params));
        Self {
            file,
            kind: format!("{arch} {label} {}", quantisation_name(gguf)),
            bytes: gguf.tensors().iter().map(|t| t.bytes).sum(),
            params,
            start,
        }
    }
}

/// Three digits at most: `135M`, `1.1B`, `42K`.
pub(super) fn size_label(params: u64) -> String {
    let (value, unit) = match params as f64 {
        p if p >= 999.5e6 => (p / 1e9, "B"),
        p if p >= 999.5e3 => (p / 1e6, "M"),
        p => (p / 1e3, "K"),
    };
    if value < 9.95 {
        format!("{value:.1}{unit}")
    } else {
        format!("{value:.0}{unit}")
    }
}

/// Mean and sample standard deviation (0 for a single value).
pub(super) fn mean_and_stddev(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0).max(1.0)).sqrt())
}

/// One row.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub subject: Subject,
    pub case: Case,
    pub cpu: String,
    /// When the test began, ISO 8601.
    pub time: String,
    /// Wall time of every repetition, nanoseconds.
    pub samples_ns: Vec<u64>,
    /// Bytes of weights and kv cache read a second, GB/s (10^9), where a test is generation alone: a chunk of a prompt
    /// reads the weights once for many tokens, so bytes say little about it.
    pub gbps: Option<f64>,
    /// The peer's results, with `--compare`.
    pub beside: Option<Beside>,
    /// Tokens a second of all sequences over those of a single one in the same test of this run.
    pub batch_gain: Option<f64>,
}

impl Record {
    /// Puts a result together.
    pub fn new(
        subject: &Subject,
        case: &Case,
        model: &Model,
        time: String,
        samples_ns: Vec<u64>,
    ) -> Self {
        let mut record = Self {
            subject: subject.clone(),
            case: *case,
            cpu: os::cpu_name().unwrap_or_default(),
            time,
            samples_ns,
            gbps: None,
            beside: None,
            batch_gain: None,
        };
        if case.test.n_prompt == 0 {
            record.gbps = Some(bytes_per_step(model, case) * record.sequence_rate() / 1e9);
        }
        record
    }

    /// Tokens of a repetition, all sequences together.
    pub fn tokens(&self) -> f64 {
        ((self.case.test.n_prompt + self.case.test.n_gen) * self.case.batch) as f64
    }

    /// Tokens a second of each sequence.
    pub fn sequence_rate(&self) -> f64 {
        self.tokens_per_second().0 / self.case.batch.max(1) as f64
    }

    /// Sets the gain over the row of a single sequence, which `single` keeps from row to row.
    pub fn compare(&mut self, single: &mut Option<Record>) {
        if self.case.batch == 1 {
            *single = Some(self.clone());
        }
        let same = |s: &&Record| {
            let alone = Case {
                batch: 1,
                ..self.case
            };
            s.case == alone && s.subject == self.subject
        };
        self.batch_gain = single
            .as_ref()
            .filter(same)
            .map(|s| self.tokens_per_second().0 / s.tokens_per_second().0);
    }

    /// Tokens a second of every repetition.
    pub fn samples_ts(&self) -> Vec<f64> {
        self.samples_ns
            .iter()
            .map(|&ns| 1e9 * self.tokens() / ns as f64)
            .collect()
    }

    /// Mean and deviation of the repetitions' rates.
    pub fn tokens_per_second(&self) -> (f64, f64) {
        mean_and_stddev(&self.samples_ts())
    }

    /// All fields but the samples, in order.
    pub fn fields(&self) -> Vec<(&'static str, Value)> {
        let ns: Vec<f64> = self.samples_ns.iter().map(|&n| n as f64).collect();
        let ((avg_ns, stddev_ns), (avg_ts, stddev_ts)) =
            (mean_and_stddev(&ns), self.tokens_per_second());
        let (c, s) = (&self.case, &self.subject);
        let kv = c.kv_type.name();
        let mut fields = vec![
            (
                "build_commit",
                json!(concat!("cbtop ", env!("CARGO_PKG_VERSION"))),
            ),
            ("cpu_info", json!(self.cpu)),
            ("backends", json!("CPU")),
            ("model_filename", json!(s.file)),
            ("model_type", json!(s.kind)),
            ("model_size", json!(s.bytes)),
            ("model_n_params", json!(s.params)),
            ("n_batch", json!(c.chunk)),
            ("n_ubatch", json!(c.chunk)),
            ("n_threads", json!(c.threads)),
            ("type_k", json!(kv)),
            ("type_v", json!(kv)),
            ("n_prompt", json!(c.test.n_prompt)),
            ("n_gen", json!(c.test.n_gen)),
            ("n_depth", json!(c.test.n_depth)),
            ("test_time", json!(self.time)),
            ("avg_ns", json!(avg_ns.round() as u64)),
            ("stddev_ns", json!(stddev_ns.round() as u64)),
            ("avg_ts", json!(avg_ts)),
            ("stddev_ts", json!(stddev_ts)),
            ("kernels", json!(c.kernels.name())),
            ("schedule", json!(c.schedule)),
            ("pin", json!(c.pin)),
            ("gbps", json!(self.gbps)),
            ("n_seq", json!(c.batch)),
            ("split", json!(c.split)),
            ("seq_ts", json!(self.sequence_rate())),
            ("batch_gain", json!(self.batch_gain)),
            ("prefetch", json!(c.prefetch.to_string())),
            ("load", json!(s.start.how)),
            ("load_ms", json!(s.start.load_ms)),
            ("first_token_ms", json!(s.start.first_token_ms)),
            ("rss_bytes", json!(s.start.rss_bytes)),
            ("minor_faults", json!(s.start.faults.map(|f| f.minor))),
            ("major_faults", json!(s.start.faults.map(|f| f.major))),
        ];
        if let Some(beside) = &self.beside {
            fields.extend(beside.fields(self.tokens(), &self.samples_ns));
        }
        fields
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut samples = vec![
            ("samples_ns", json!(self.samples_ns)),
            ("samples_ts", json!(self.samples_ts())),
        ];
        if let Some(beside) = &self.beside {
            samples.extend([
                ("peer_samples_ns", json!(beside.samples_ns)),
                ("peer_samples_ts", json!(beside.samples_ts(self.tokens()))),
                ("ratios", json!(beside.ratios(&self.samples_ns))),
            ]);
        }
        s.collect_map(self.fields().into_iter().chain(samples))
    }
}

/// Bytes that a step of one token of every sequence reads: the weights once, every cache, a row of the embedding for each.
fn bytes_per_step(model: &Model, case: &Case) -> f64 {
    let row = |op: &Op| match op {
        Op::Embed { table, .. } => Some(table.row_bytes),
        _ => None,
    };
    let row = model.plan.bricks.iter().find_map(|b| row(&b.op));
    let more = case.batch.saturating_sub(1) * row.unwrap_or(0);
    weight_bytes_per_token(model) as f64
        + more as f64
        + kv_bytes_read(model, case) * case.batch as f64
}

/// Bytes of the kv cache that one generated token reads, mean over the test.
fn kv_bytes_read(model: &Model, case: &Case) -> f64 {
    let (hp, t) = (&model.hparams, &case.test);
    let position_bytes = bytes_per_token(hp, case.kv_type) as f64 / hp.n_layers as f64;
    let visible = |layer: usize, token: usize| {
        (t.n_depth + token + 1).min(hp.layer_window(layer).unwrap_or(usize::MAX))
    };
    let positions: f64 = (0..hp.n_layers)
        .map(|layer| {
            (0..t.n_gen)
                .map(|token| visible(layer, token) as f64)
                .sum::<f64>()
        })
        .sum();
    position_bytes * positions / t.n_gen.max(1) as f64
}
