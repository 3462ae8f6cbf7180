//! The oracle's answer as a Markdown table.

use super::Oracle;
use crate::commands::printable;
use cbtop::tuner::oracle::Outlook;
use cbtop::tuner::recommendation::Interval;
use std::io::{self, Write};

/// Alternatives printed of each batch beside those on the front.
const FASTEST: usize = 3;
const TITLES: [&str; 9] = [
    "",
    "batch",
    "change",
    "tok/s",
    "90% interval",
    "ms/token",
    "first ms",
    "GiB",
    "limit",
];

/// Prints it.
pub fn markdown(o: &Oracle, out: &mut impl Write) -> io::Result<()> {
    let h = &o.hardware;
    let mut figures: Vec<String> = Vec::new();
    figures.extend(h.mem_gbps.map(|v| format!("{v:.0} GB/s")));
    figures.extend(h.gflops.map(|v| format!("{:.1} TFLOP/s", v / 1e3)));
    figures.extend(o.memory_bytes.map(|v| format!("{:.0} GB", v / 1e9)));
    if figures.is_empty() {
        figures.push("no figures known".into());
    }
    writeln!(
        out,
        "{} {} on {} ({}), context {} tokens a sequence, prompt {}, {} generated",
        printable(&o.model.name),
        printable(&o.model.quant),
        h.name,
        figures.join(", "),
        o.context,
        o.prompt,
        o.generated
    )?;
    writeln!(
        out,
        "Predicted by {}, model {}; nothing was run.\n",
        o.answer.method, o.tuner
    )?;
    table(&rows(o), out)?;
    writeln!(
        out,
        "\n`*`: nothing above that fits is as good in rate, time and memory and better in one. `first ms`: until the first \
         tokens of all sequences. GiB: weights, kv cache, buffers."
    )?;
    let m = o.answer.rows.first().map(|r| r.memory).unwrap_or_default();
    let gib = |v: f64| v / f64::from(1 << 30);
    writeln!(
        out,
        "Memory of the first line: weights {:.2}, kv cache {:.2}, buffers {:.2} GiB.",
        gib(m.weights),
        gib(m.kv),
        gib(m.buffers)
    )?;
    for w in &o.answer.warnings {
        writeln!(out, "Warning: {}.", printable(w))?;
    }
    Ok(())
}

/// Of every batch the settings asked about, those on the front and the fastest.
fn rows(o: &Oracle) -> Vec<[String; 9]> {
    let rate = |r: &Outlook| r.tok_s.map_or(0.0, |i| i.mid);
    let all = &o.answer.rows;
    let shown = |r: &&Outlook| {
        let faster = |other: &&Outlook| other.batch == r.batch && rate(other) > rate(r);
        r.change.is_empty() || r.front || all.iter().filter(faster).count() < FASTEST
    };
    all.iter().filter(shown).map(row).collect()
}

fn row(r: &Outlook) -> [String; 9] {
    let mark = match (r.fits, r.front) {
        (Some(false), _) => "too large",
        (_, true) => "*",
        _ => "",
    };
    let change: Vec<String> = r
        .change
        .iter()
        .map(|s| format!("{} {}", s.knob, s.value))
        .collect();
    let mid = |i: Option<Interval>, digits: usize| {
        i.filter(|i| i.mid.is_finite())
            .map_or("-".into(), |i| format!("{:.digits$}", i.mid))
    };
    let interval = r
        .tok_s
        .map_or("-".into(), |i| format!("{:.1}-{:.1}", i.low, i.high));
    [
        mark.into(),
        r.batch.to_string(),
        if change.is_empty() {
            "as it is".into()
        } else {
            change.join(", ")
        },
        mid(r.tok_s, 1),
        interval,
        mid(r.ms_per_token, 2),
        mid(r.first_token_ms, 0),
        format!("{:.2}", r.memory.total() / f64::from(1 << 30)),
        r.bottleneck.clone().unwrap_or_else(|| "-".into()),
    ]
}

/// Columns as wide as their widest cell; numbers to the right.
fn table(rows: &[[String; 9]], out: &mut impl Write) -> io::Result<()> {
    let widest = |i: usize| {
        let cells = rows.iter().filter_map(|r| r.get(i)).map(String::len);
        cells
            .chain([TITLES.get(i).map_or(0, |t| t.len())])
            .max()
            .unwrap_or(0)
    };
    let is_text = |i: usize| matches!(i, 0 | 2 | 8);
    let widths: Vec<usize> = (0..TITLES.len()).map(widest).collect();
    let line = |cells: Vec<&str>| {
        let cell = |((i, w), text): ((usize, &usize), &str)| match is_text(i) {
            true => format!("{text:<w$}"),
            false => format!("{text:>w$}"),
        };
        let cells: Vec<String> = widths.iter().enumerate().zip(cells).map(cell).collect();
        format!("| {} |", cells.join(" | "))
    };
    writeln!(out, "{}", line(TITLES.to_vec()))?;
    let rules = widths.iter().enumerate().map(|(i, w)| match is_text(i) {
        true => format!("{:-<1$}", "", w + 2),
        false => format!("{:-<1$}:", "", w + 1),
    });
    writeln!(out, "|{}|", rules.collect::<Vec<_>>().join("|"))?;
    for r in rows {
        writeln!(out, "{}", line(r.iter().map(String::as_str).collect()))?;
    }
    Ok(())
}
