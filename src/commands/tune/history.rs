//! `cbtop tune history`: the runs that are kept.

use super::store::open_existing;
use crate::cli::tune::{HistoryArgs, HistoryFormat};
use crate::commands::bench::utc;
use crate::commands::printable;
use cbtop::engine::knobs::{Setting, Setup};
use cbtop::engine::{Config, SyncMode};
use cbtop::gguf::LoadOptions;
use cbtop::tuner::run::Run;
use std::io::{self, Write};
use std::process::ExitCode;
use unicode_width::UnicodeWidthStr;

/// Titles of the table, and whether a column is aligned to the right.
const COLUMNS: [(&str, bool); 7] = [
    ("when (UTC)", false),
    ("origin", false),
    ("machine", false),
    ("model", false),
    ("test", true),
    ("tok/s", true),
    ("settings other than the defaults here", false),
];

/// Prints the newest runs.
pub fn run(args: &HistoryArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let store = open_existing(args.store.store.as_deref())?;
    let runs = store.newest(args.limit)?;
    match args.format {
        HistoryFormat::Json => {
            serde_json::to_writer_pretty(&mut *out, &runs)?;
            writeln!(out)?;
        }
        HistoryFormat::Md => {
            table(&runs, &defaults(), out)?;
            let of = store.count()?;
            writeln!(
                out,
                "\n{} of {of} runs in {}",
                runs.len(),
                store.path().display()
            )?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What this machine would run with if nothing were set.
fn defaults() -> Vec<Setting> {
    let setup = Setup {
        config: Config::for_context(usize::MAX),
        load: LoadOptions::default(),
        sync_mode: SyncMode::default(),
    };
    setup.settings()
}

fn row(run: &Run, defaults: &[Setting]) -> [String; COLUMNS.len()] {
    let trial = &run.trial;
    let when = run.unix_s.and_then(|s| u64::try_from(s).ok());
    let rate = match run.stddev {
        Some(stddev) => format!("{:.2} ± {stddev:.2}", run.tok_s),
        None => format!("{:.2}", run.tok_s),
    };
    let others = trial.settings.iter().filter(|s| !defaults.contains(s));
    let settings: Vec<String> = others.map(|s| format!("{}={}", s.knob, s.value)).collect();
    [
        when.map_or_else(|| "-".into(), utc::iso),
        run.origin.name().into(),
        trial.hardware.name.clone(),
        format!("{} {}", trial.model.name, trial.model.quant),
        trial.test.to_string(),
        rate,
        settings.join(" "),
    ]
    // A bar would end the cell, whatever a file put into a name.
    .map(|text| printable(&text).replace('|', "/"))
}

fn table(runs: &[Run], defaults: &[Setting], out: &mut impl Write) -> io::Result<()> {
    let rows: Vec<_> = runs.iter().map(|r| row(r, defaults)).collect();
    let width = |i: usize| {
        let cells = rows.iter().filter_map(|r| r.get(i)).map(String::as_str);
        let title = COLUMNS.get(i).map(|(title, _)| *title);
        cells
            .chain(title)
            .map(UnicodeWidthStr::width)
            .max()
            .unwrap_or(3)
    };
    let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
    let mut line = |cells: [&str; COLUMNS.len()]| {
        for ((text, width), (_, right)) in cells.iter().zip(&widths).zip(COLUMNS) {
            let gap = " ".repeat(width.saturating_sub(text.width()));
            match right {
                true => write!(out, "| {gap}{text} ")?,
                false => write!(out, "| {text}{gap} ")?,
            }
        }
        writeln!(out, "|")
    };
    line(COLUMNS.map(|(title, _)| title))?;
    let rules: Vec<String> = widths
        .iter()
        .zip(COLUMNS)
        .map(|(width, (_, right))| match right {
            true => format!("{}:", "-".repeat(width - 1)),
            false => "-".repeat(*width),
        })
        .collect();
    line(std::array::from_fn(|i| {
        rules.get(i).map_or("", String::as_str)
    }))?;
    for row in &rows {
        line(std::array::from_fn(|i| {
            row.get(i).map_or("", String::as_str)
        }))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cbtop::tuner::run::{Hardware, ModelShape, Origin, Test, Trial};

    fn sample(unix_s: Option<i64>, tok_s: f64, stddev: Option<f64>, threads: &str) -> Run {
        Run {
            trial: Trial {
                hardware: Hardware {
                    name: "C|PU".into(),
                    ..Hardware::default()
                },
                model: ModelShape {
                    name: "tiny\n".into(),
                    quant: "Q4_0".into(),
                    ..ModelShape::default()
                },
                backend: "cbtop cpu".into(),
                test: Test {
                    prompt: 0,
                    generated: 128,
                    depth: 0,
                    batch: 1,
                },
                settings: vec![Setting::new("threads", threads), Setting::new("pin", "on")],
            },
            origin: Origin::Collect,
            source: "s".into(),
            unix_s,
            tok_s,
            stddev,
            repetitions: 5,
            warm: Some(true),
            background: None,
            shares: None,
        }
    }

    #[test]
    fn table_has_units_and_what_is_set_otherwise() {
        let runs = [
            sample(Some(1_790_000_000), 1234.5, Some(3.25), "2"),
            sample(None, 9.0, None, "1"),
        ];
        let defaults = [Setting::new("threads", "2")];
        let mut out = Vec::new();
        table(&runs, &defaults, &mut out).expect("written");
        insta::assert_snapshot!(String::from_utf8(out).expect("text"), @r"
        | when (UTC)           | origin  | machine | model      |  test |          tok/s | settings other than the defaults here |
        | -------------------- | ------- | ------- | ---------- | ----: | -------------: | ------------------------------------- |
        | 2026-09-21T14:13:20Z | collect | C/PU    | tiny? Q4_0 | tg128 | 1234.50 ± 3.25 | pin=on                                |
        | -                    | collect | C/PU    | tiny? Q4_0 | tg128 |           9.00 | threads=1 pin=on                      |
        ");
    }
}
