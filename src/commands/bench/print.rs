//! Results as text, in llama-bench's formats.

use super::compare::quartiles;
use super::plan::Plan;
use super::record::{Record, mean_and_stddev};
use clap::ValueEnum;
use serde_json::Value;
use std::io::{self, Write};

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table.
    Md,
    /// Comma-separated values.
    Csv,
    /// One array.
    Json,
    /// One object a line.
    Jsonl,
    /// Statements for SQLite.
    Sql,
}

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Model,
    Size,
    Params,
    Backend,
    Threads,
    Chunk,
    TypeK,
    TypeV,
    Prefetch,
    Test,
    Rate,
    Kernels,
    Gbps,
    Peer,
    Ratio,
    Batch,
    Each,
    Gain,
}

impl Column {
    /// llama-bench's title, least width, and whether it is aligned to the left.
    fn shape(self) -> (&'static str, usize, bool) {
        match self {
            Self::Model => ("model", 30, true),
            Self::Size => ("size", 10, false),
            Self::Params => ("params", 10, false),
            Self::Backend => ("backend", 10, true),
            Self::Threads => ("threads", 7, false),
            Self::Chunk => ("n_ubatch", 8, false),
            Self::TypeK => ("type_k", 6, false),
            Self::TypeV => ("type_v", 6, false),
            Self::Prefetch => ("prefetch", 13, false),
            Self::Test => ("test", 15, false),
            Self::Rate => ("t/s", 20, false),
            Self::Kernels => ("kernels", 7, true),
            Self::Gbps => ("GB/s", 8, false),
            Self::Peer => ("llama.cpp t/s", 20, false),
            Self::Ratio => ("ratio (quartiles)", 21, false),
            Self::Batch => ("batch", 5, false),
            Self::Each => ("t/s each", 8, false),
            Self::Gain => ("x batch 1", 9, false),
        }
    }

    fn text(self, r: &Record) -> String {
        match self {
            Self::Model => r.subject.kind.clone(),
            Self::Size => size(r.subject.bytes),
            Self::Params => params(r.subject.params),
            Self::Backend => "CPU".into(),
            Self::Threads => r.case.threads.to_string(),
            Self::Chunk => r.case.chunk.to_string(),
            Self::TypeK | Self::TypeV => r.case.kv_type.name().into(),
            Self::Prefetch => r.case.prefetch.to_string(),
            Self::Test => r.case.test.label(),
            Self::Rate => rate(r.tokens_per_second()),
            Self::Kernels => r.case.kernels.name().into(),
            Self::Gbps => or_dash(r.gbps),
            Self::Batch => r.case.batch.to_string(),
            Self::Each => format!("{:.2}", r.sequence_rate()),
            Self::Gain => or_dash(r.batch_gain),
            Self::Peer => r.beside.as_ref().map_or_else(
                || "-".into(),
                |b| rate(mean_and_stddev(&b.samples_ts(r.tokens()))),
            ),
            Self::Ratio => r.beside.as_ref().map_or_else(
                || "-".into(),
                |b| {
                    let [low, median, high] = quartiles(&b.ratios(&r.samples_ns));
                    format!("{median:.2} ({low:.2} to {high:.2})")
                },
            ),
        }
    }

    fn cell(self, text: &str) -> String {
        match self.shape() {
            (_, width, true) => format!(" {text:<width$} |"),
            (_, width, false) => format!(" {text:>width$} |"),
        }
    }
}

fn rate((mean, stddev): (f64, f64)) -> String {
    format!("{mean:.2} ± {stddev:.2}")
}

fn or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |v| format!("{v:.2}"))
}

fn size(bytes: u64) -> String {
    match bytes as f64 / f64::from(1 << 20) {
        mib if mib < 1024.0 => format!("{mib:.2} MiB"),
        mib => format!("{:.2} GiB", mib / 1024.0),
    }
}

fn params(n: u64) -> String {
    match n as f64 {
        n if n < 1e9 => format!("{:.2} M", n / 1e6),
        n => format!("{:.2} B", n / 1e9),
    }
}

/// Prints rows as they come.
pub(super) struct Printer {
    format: Format,
    columns: Vec<Column>,
    rows: usize,
    /// Program and version of the last row's peer.
    peer: Option<String>,
    /// A line for every model, on its start.
    starts: Vec<String>,
}

impl Printer {
    /// A printer with the columns that `plan` needs.
    pub fn new(format: Format, plan: &Plan) -> Self {
        use Column::*;
        let mut columns = vec![Model, Size, Params, Backend, Threads];
        columns.extend(plan.shows_chunk.then_some(Chunk));
        columns.extend(
            plan.shows_kv
                .then_some([TypeK, TypeV])
                .into_iter()
                .flatten(),
        );
        columns.extend(plan.shows_prefetch.then_some(Prefetch));
        columns.push(Test);
        columns.extend(plan.shows_batch.then_some(Batch));
        columns.push(Rate);
        let batch = plan.shows_batch.then_some([Each, Gain]);
        columns.extend(batch.into_iter().flatten());
        columns.extend(plan.compares.then_some([Peer, Ratio]).into_iter().flatten());
        columns.extend([Kernels, Gbps]);
        Self {
            format,
            columns,
            rows: 0,
            peer: None,
            starts: Vec::new(),
        }
    }

    /// What stands before the rows and needs none of them.
    pub fn header(&mut self, to: &mut dyn Write) -> io::Result<()> {
        match self.format {
            Format::Md => {
                let titles: String = self.columns.iter().map(|c| c.cell(c.shape().0)).collect();
                let rules: String = self.columns.iter().map(|c| rule(*c)).collect();
                writeln!(to, "|{titles}\n|{rules}")
            }
            Format::Json => writeln!(to, "["),
            Format::Csv | Format::Jsonl | Format::Sql => Ok(()),
        }
    }

    /// One result.
    pub fn row(&mut self, r: &Record, to: &mut dyn Write) -> io::Result<()> {
        let first = self.rows == 0;
        self.rows += 1;
        let start = format!("{}: {}", r.subject.kind, r.subject.start.line());
        if self.starts.last() != Some(&start) {
            self.starts.push(start);
        }
        self.peer = r.beside.as_ref().map(|b| b.build.clone());
        match self.format {
            Format::Md => {
                let cells: String = self.columns.iter().map(|c| c.cell(&c.text(r))).collect();
                writeln!(to, "|{cells}")
            }
            Format::Csv => csv(r, first, to),
            Format::Json => {
                let text = serde_json::to_string_pretty(r)?;
                let comma = if first { "" } else { ",\n" };
                write!(to, "{comma}  {}", text.replace('\n', "\n  "))
            }
            Format::Jsonl => writeln!(to, "{}", serde_json::to_string(r)?),
            Format::Sql => sql(r, first, to),
        }
    }

    /// What stands after the rows.
    pub fn footer(&mut self, to: &mut dyn Write) -> io::Result<()> {
        match self.format {
            Format::Md => {
                writeln!(to)?;
                for start in &self.starts {
                    writeln!(to, "{start}")?;
                }
                write!(to, "build: cbtop {}", env!("CARGO_PKG_VERSION"))?;
                if let Some(peer) = &self.peer {
                    write!(to, "; peer: {peer}")?;
                }
                writeln!(to)
            }
            Format::Json => writeln!(to, "\n]"),
            Format::Csv | Format::Jsonl | Format::Sql => Ok(()),
        }
    }
}

fn rule(c: Column) -> String {
    let (_, width, left) = c.shape();
    format!(
        " {}{} |",
        "-".repeat(width - 1),
        if left { '-' } else { ':' }
    )
}

fn csv(r: &Record, first: bool, to: &mut dyn Write) -> io::Result<()> {
    let fields = r.fields();
    if first {
        let names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
        writeln!(to, "{}", names.join(","))?;
    }
    let quoted: Vec<_> = fields
        .iter()
        .map(|(_, v)| match v {
            Value::Null => String::new(),
            Value::String(s) => format!("\"{}\"", s.replace('"', "\"\"")),
            other => format!("\"{other}\""),
        })
        .collect();
    writeln!(to, "{}", quoted.join(","))
}

/// llama-bench's table name, so that its comparison scripts find it.
const TABLE: &str = "llama_bench";

fn sql(r: &Record, first: bool, to: &mut dyn Write) -> io::Result<()> {
    let fields = r.fields();
    if first {
        let columns: Vec<_> = fields
            .iter()
            .map(|(name, v)| format!("  {name} {}", sql_type(name, v)))
            .collect();
        writeln!(
            to,
            "CREATE TABLE IF NOT EXISTS {TABLE} (\n{}\n);\n",
            columns.join(",\n")
        )?;
    }
    let names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
    let values: Vec<_> = fields
        .iter()
        .map(|(_, v)| match v {
            Value::Null => "NULL".into(),
            Value::Bool(b) => u8::from(*b).to_string(),
            Value::String(s) => format!("'{}'", s.replace('\'', "''")),
            other => other.to_string(),
        })
        .collect();
    writeln!(
        to,
        "INSERT INTO {TABLE} ({}) VALUES ({});",
        names.join(", "),
        values.join(", ")
    )
}

fn sql_type(name: &str, value: &Value) -> &'static str {
    match value {
        _ if matches!(name, "gbps" | "batch_gain")
            || name.ends_with("_ms")
            || name.starts_with("ratio") =>
        {
            "REAL"
        }
        Value::Number(n) if n.is_f64() => "REAL",
        Value::Number(_) | Value::Bool(_) => "INTEGER",
        _ if name == "rss_bytes" || name.ends_with("_faults") => "INTEGER",
        _ => "TEXT",
    }
}
