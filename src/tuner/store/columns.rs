//! A run as a row: the one list of columns that the database, Parquet and their checks share.

use crate::engine::knobs::Setting;
use crate::tuner::run::{Hardware, MachineKind, ModelShape, Origin, Run, Test, TimeShares, Trial};
use serde::de::{MapAccess, Visitor};
use std::fmt;

/// More is no rate, no number of parameters and no bytes of any machine or model.
const MOST_AMOUNT: f64 = 1e16;
/// Longest text of a column, bytes.
pub const MAX_TEXT: usize = 4096;
/// Most settings of a run.
pub const MAX_SETTINGS: usize = 256;
/// Times that a run may have, seconds since 1970: others are of a clock that was not set, or in milliseconds.
const TIMES: std::ops::Range<i64> = 0..4_102_444_800;
/// Columns of settings may be longer than names.
const MAX_SETTINGS_TEXT: usize = 64 * 1024;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// UTF-8.
    Text,
    /// A finite number.
    Real,
    /// A whole number.
    Int,
    /// Yes or no.
    Bool,
}

impl Kind {
    /// In words, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Real => "a number",
            Self::Int => "a whole number",
            Self::Bool => "true or false",
        }
    }
}

/// A column of the runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Name, the same in the database and in Parquet.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Whether a row without it is no run.
    pub required: bool,
    /// Schema version that it came with.
    pub since: u32,
}

impl Column {
    /// Longest text of it, bytes.
    pub(super) fn most_bytes(&self) -> usize {
        match self.name {
            "settings" => MAX_SETTINGS_TEXT,
            _ => MAX_TEXT,
        }
    }
}

/// What is wrong with a text of too many bytes.
pub(super) fn too_long(bytes: usize, most: usize) -> String {
    format!("has {bytes} bytes, at most {most} are allowed")
}

/// A value of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Not known.
    Null,
    /// Text.
    Text(String),
    /// A number.
    Real(f64),
    /// A whole number.
    Int(i64),
    /// Yes or no.
    Bool(bool),
}

/// A row that is no run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {what}")]
pub struct RowError {
    /// The column.
    pub column: &'static str,
    /// What is wrong with its value.
    pub what: String,
}

impl RowError {
    /// An error of a column.
    pub(super) fn new(column: &'static str, what: impl Into<String>) -> Self {
        Self {
            column,
            what: what.into(),
        }
    }
}

const fn must(name: &'static str, kind: Kind) -> Column {
    Column {
        name,
        kind,
        required: true,
        since: 1,
    }
}

const fn may(name: &'static str, kind: Kind) -> Column {
    Column {
        name,
        kind,
        required: false,
        since: 1,
    }
}

const fn later(name: &'static str, kind: Kind) -> Column {
    Column {
        name,
        kind,
        required: false,
        since: 2,
    }
}

/// All columns, in the order of [`cells`].
pub const COLUMNS: &[Column] = &[
    must("origin", Kind::Text),
    must("source", Kind::Text),
    may("unix_s", Kind::Int),
    must("hardware", Kind::Text),
    must("hardware_kind", Kind::Text),
    must("fingerprint", Kind::Text),
    may("mem_gbps", Kind::Real),
    may("gflops", Kind::Real),
    may("int8_gops", Kind::Real),
    may("cores", Kind::Int),
    may("cache_mb", Kind::Real),
    may("memory_gb", Kind::Real),
    must("model", Kind::Text),
    must("arch", Kind::Text),
    must("quant", Kind::Text),
    must("params", Kind::Real),
    may("active_params", Kind::Real),
    must("weight_bytes", Kind::Real),
    may("kv_bytes_per_token", Kind::Real),
    may("hidden", Kind::Int),
    may("layers", Kind::Int),
    may("heads", Kind::Int),
    may("head_dim", Kind::Int),
    may("vocab", Kind::Int),
    must("backend", Kind::Text),
    must("prompt", Kind::Int),
    must("generated", Kind::Int),
    must("depth", Kind::Int),
    must("batch", Kind::Int),
    must("settings", Kind::Text),
    must("tok_s", Kind::Real),
    may("stddev", Kind::Real),
    must("repetitions", Kind::Int),
    later("warm", Kind::Bool),
    later("background", Kind::Real),
    later("share_memory", Kind::Real),
    later("share_compute", Kind::Real),
    later("share_launch", Kind::Real),
    later("share_attention", Kind::Real),
    later("share_unknown", Kind::Real),
];

fn kind_name(kind: MachineKind) -> &'static str {
    match kind {
        MachineKind::Cpu => "cpu",
        MachineKind::Gpu => "gpu",
        MachineKind::Apple => "apple",
    }
}

/// The kind of a machine by its name in a column.
pub fn machine_kind(name: &str) -> Option<MachineKind> {
    [MachineKind::Cpu, MachineKind::Gpu, MachineKind::Apple]
        .into_iter()
        .find(|k| kind_name(*k) == name)
}

/// The origin of a name in a column.
pub fn origin(name: &str) -> Option<Origin> {
    Origin::ALL.into_iter().find(|o| o.name() == name)
}

/// Settings as a JSON object in their order, so that `settings->>'threads'` finds one.
pub fn settings_text(settings: &[Setting]) -> String {
    let mut text = String::from("{");
    for (i, s) in settings.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let (knob, value) = (json_text(&s.knob), json_text(&s.value));
        text.push_str(&format!("{comma}{knob}:{value}"));
    }
    text.push('}');
    text
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The settings of a JSON object of texts.
///
/// # Errors
/// What is not one, in words.
pub fn settings_of(text: &str) -> Result<Vec<Setting>, String> {
    struct InOrder;
    impl<'de> Visitor<'de> for InOrder {
        type Value = Vec<Setting>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of texts")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut settings = Vec::new();
            while let Some((knob, value)) = map.next_entry::<String, String>()? {
                if settings.len() == MAX_SETTINGS {
                    return Err(serde::de::Error::custom("too many settings"));
                }
                settings.push(Setting { knob, value });
            }
            Ok(settings)
        }
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let settings = serde::Deserializer::deserialize_map(&mut json, InOrder);
    let settings = settings.map_err(|e| e.to_string())?;
    json.end().map_err(|e| e.to_string())?;
    Ok(settings)
}

fn opt<T>(value: Option<T>, cell: impl FnOnce(T) -> Cell) -> Cell {
    value.map_or(Cell::Null, cell)
}

fn int(n: u32) -> Cell {
    Cell::Int(i64::from(n))
}

/// The row of a run, in the order of [`COLUMNS`].
pub fn cells(run: &Run) -> Vec<Cell> {
    let (hw, model, test) = (&run.trial.hardware, &run.trial.model, &run.trial.test);
    let text = |t: &str| Cell::Text(t.to_owned());
    let share = |of: fn(&TimeShares) -> f64| opt(run.shares.as_ref().map(of), Cell::Real);
    vec![
        text(run.origin.name()),
        text(&run.source),
        opt(run.unix_s, Cell::Int),
        text(&hw.name),
        text(kind_name(hw.kind)),
        text(&hw.fingerprint),
        opt(hw.mem_gbps, Cell::Real),
        opt(hw.gflops, Cell::Real),
        opt(hw.int8_gops, Cell::Real),
        opt(hw.cores, int),
        opt(hw.cache_mb, Cell::Real),
        opt(hw.memory_gb, Cell::Real),
        text(&model.name),
        text(&model.arch),
        text(&model.quant),
        Cell::Real(model.params),
        opt(model.active_params, Cell::Real),
        Cell::Real(model.weight_bytes),
        opt(model.kv_bytes_per_token, Cell::Real),
        opt(model.hidden, int),
        opt(model.layers, int),
        opt(model.heads, int),
        opt(model.head_dim, int),
        opt(model.vocab, int),
        text(&run.trial.backend),
        int(test.prompt),
        int(test.generated),
        int(test.depth),
        int(test.batch),
        Cell::Text(settings_text(&run.trial.settings)),
        Cell::Real(run.tok_s),
        opt(run.stddev, Cell::Real),
        int(run.repetitions),
        opt(run.warm, Cell::Bool),
        opt(run.background, Cell::Real),
        share(|s| s.memory),
        share(|s| s.compute),
        share(|s| s.launch),
        share(|s| s.attention),
        share(|s| s.unknown),
    ]
}

/// Takes the values of a row one after another, each under the name of its column.
struct Row {
    cells: std::vec::IntoIter<Cell>,
    at: usize,
}

impl Row {
    fn next(&mut self) -> (&'static str, Cell) {
        let name = COLUMNS.get(self.at).map_or("", |c| c.name);
        self.at += 1;
        (name, self.cells.next().unwrap_or(Cell::Null))
    }

    fn wrong<T>(name: &'static str, cell: &Cell, kind: Kind) -> Result<T, RowError> {
        let what = match cell {
            Cell::Null => format!("is empty, but needs {}", kind.name()),
            _ => format!("is not {}", kind.name()),
        };
        Err(RowError::new(name, what))
    }

    fn text(&mut self) -> Result<String, RowError> {
        match self.next() {
            (_, Cell::Text(text)) => Ok(text),
            (name, cell) => Self::wrong(name, &cell, Kind::Text),
        }
    }

    fn opt_real(&mut self) -> Result<Option<f64>, RowError> {
        match self.next() {
            (_, Cell::Real(x)) => Ok(Some(x)),
            (_, Cell::Null) => Ok(None),
            (name, cell) => Self::wrong(name, &cell, Kind::Real),
        }
    }

    fn real(&mut self) -> Result<f64, RowError> {
        let name = COLUMNS.get(self.at).map_or("", |c| c.name);
        match self.opt_real()? {
            Some(x) => Ok(x),
            None => Self::wrong(name, &Cell::Null, Kind::Real),
        }
    }

    fn opt_int(&mut self) -> Result<Option<i64>, RowError> {
        match self.next() {
            (_, Cell::Int(n)) => Ok(Some(n)),
            (_, Cell::Null) => Ok(None),
            (name, cell) => Self::wrong(name, &cell, Kind::Int),
        }
    }

    fn opt_u32(&mut self) -> Result<Option<u32>, RowError> {
        let name = COLUMNS.get(self.at).map_or("", |c| c.name);
        let Some(n) = self.opt_int()? else {
            return Ok(None);
        };
        let n = u32::try_from(n)
            .map_err(|_| RowError::new(name, format!("{n} is out of range, 0 to {}", u32::MAX)))?;
        Ok(Some(n))
    }

    fn u32(&mut self) -> Result<u32, RowError> {
        let name = COLUMNS.get(self.at).map_or("", |c| c.name);
        match self.opt_u32()? {
            Some(n) => Ok(n),
            None => Self::wrong(name, &Cell::Null, Kind::Int),
        }
    }

    fn opt_bool(&mut self) -> Result<Option<bool>, RowError> {
        match self.next() {
            (_, Cell::Bool(b)) => Ok(Some(b)),
            (_, Cell::Null) => Ok(None),
            (name, cell) => Self::wrong(name, &cell, Kind::Bool),
        }
    }
}

/// The run of a row in the order of [`COLUMNS`], checked.
///
/// # Errors
/// The column that makes it no run.
pub fn run(cells: Vec<Cell>) -> Result<Run, RowError> {
    let mut row = Row {
        cells: cells.into_iter(),
        at: 0,
    };
    let name = row.text()?;
    let origin = origin(&name).ok_or_else(|| RowError::new("origin", unknown(&name)))?;
    let source = row.text()?;
    let unix_s = row.opt_int()?;
    let hardware = hardware(&mut row)?;
    let model = model(&mut row)?;
    let backend = row.text()?;
    let test = Test {
        prompt: row.u32()?,
        generated: row.u32()?,
        depth: row.u32()?,
        batch: row.u32()?,
    };
    let settings = settings_of(&row.text()?).map_err(|e| RowError::new("settings", e))?;
    let run = Run {
        trial: Trial {
            hardware,
            model,
            backend,
            test,
            settings,
        },
        origin,
        source,
        unix_s,
        tok_s: row.real()?,
        stddev: row.opt_real()?,
        repetitions: row.u32()?,
        warm: row.opt_bool()?,
        background: row.opt_real()?,
        shares: shares(&mut row)?,
    };
    check(&run)?;
    Ok(run)
}

fn unknown(name: &str) -> String {
    let short: String = name.chars().take(40).collect();
    format!("'{}' is not known", short.escape_debug())
}

fn hardware(row: &mut Row) -> Result<Hardware, RowError> {
    Ok(Hardware {
        name: row.text()?,
        kind: {
            let name = row.text()?;
            machine_kind(&name).ok_or_else(|| RowError::new("hardware_kind", unknown(&name)))?
        },
        fingerprint: row.text()?,
        mem_gbps: row.opt_real()?,
        gflops: row.opt_real()?,
        int8_gops: row.opt_real()?,
        cores: row.opt_u32()?,
        cache_mb: row.opt_real()?,
        memory_gb: row.opt_real()?,
    })
}

fn model(row: &mut Row) -> Result<ModelShape, RowError> {
    Ok(ModelShape {
        name: row.text()?,
        arch: row.text()?,
        quant: row.text()?,
        params: row.real()?,
        active_params: row.opt_real()?,
        weight_bytes: row.real()?,
        kv_bytes_per_token: row.opt_real()?,
        hidden: row.opt_u32()?,
        layers: row.opt_u32()?,
        heads: row.opt_u32()?,
        head_dim: row.opt_u32()?,
        vocab: row.opt_u32()?,
    })
}

fn shares(row: &mut Row) -> Result<Option<TimeShares>, RowError> {
    let mut shares = [None; 5];
    for share in &mut shares {
        *share = row.opt_real()?;
    }
    match shares {
        [None, None, None, None, None] => Ok(None),
        [
            Some(memory),
            Some(compute),
            Some(launch),
            Some(attention),
            Some(unknown),
        ] => Ok(Some(TimeShares {
            memory,
            compute,
            launch,
            attention,
            unknown,
        })),
        _ => Err(RowError::new(
            "share_memory",
            "some of the five shares are empty, others are not",
        )),
    }
}

/// What every run must be, wherever it comes from: texts, times and counts in bounds, rates above zero, all numbers finite.
///
/// # Errors
/// The first column that is not.
pub fn check(run: &Run) -> Result<(), RowError> {
    for (column, cell) in COLUMNS.iter().zip(cells(run)) {
        match cell {
            Cell::Text(text) => {
                let limit = column.most_bytes();
                if text.len() > limit {
                    return Err(RowError::new(column.name, too_long(text.len(), limit)));
                }
            }
            Cell::Real(x) if !(0.0..=MOST_AMOUNT).contains(&x) => {
                let what = format!("{x:e} is no amount");
                return Err(RowError::new(column.name, what));
            }
            _ => {}
        }
    }
    let shares = run.shares.map_or(0.0, |s| {
        s.memory + s.compute + s.launch + s.attention + s.unknown
    });
    if shares > 1.01 {
        return Err(RowError::new(
            "share_memory",
            "the shares are of one whole, and sum to more",
        ));
    }
    let more_than_zero = [
        ("tok_s", run.tok_s > 0.0),
        ("params", run.trial.model.params > 0.0),
        ("weight_bytes", run.trial.model.weight_bytes > 0.0),
        ("repetitions", run.repetitions > 0),
        ("batch", run.trial.test.batch > 0),
        (
            "generated",
            run.trial.test.prompt > 0 || run.trial.test.generated > 0,
        ),
    ];
    if let Some((column, _)) = more_than_zero.iter().find(|(_, holds)| !holds) {
        return Err(RowError::new(column, "must be more than zero"));
    }
    if let Some(at) = run.unix_s.filter(|s| !TIMES.contains(s)) {
        let what =
            format!("{at} is no time of a run: seconds since 1970, of the years 1970 to 2100");
        return Err(RowError::new("unix_s", what));
    }
    if run.trial.hardware.fingerprint.is_empty() {
        return Err(RowError::new("fingerprint", "is empty"));
    }
    let mut knobs: Vec<&str> = run.trial.settings.iter().map(|s| s.knob.as_str()).collect();
    knobs.sort_unstable();
    if knobs.len() > MAX_SETTINGS || knobs.windows(2).any(|w| w.first() == w.last()) {
        return Err(RowError::new(
            "settings",
            "a knob is set twice, or too many",
        ));
    }
    Ok(())
}
