//! The facts as text for people.

use super::escape::{grouped, text};
use super::facts::{Facts, Memory, ReadPerToken, Shape};
use cbtop::tui::format::bytes;
use cbtop::tui::text::width;
use std::io::{self, Write};

/// Characters of a name or an error on a line.
const NAME: usize = 64;
const SENTENCE: usize = 400;

/// How a column is aligned.
#[derive(Clone, Copy, PartialEq)]
enum Align {
    Left,
    Right,
}
use Align::{Left, Right};

/// Prints everything.
pub(super) fn print(f: &Facts, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", text(&f.file, SENTENCE))?;
    summary(f, out)?;
    if let Some(m) = &f.memory {
        memory(m, out)?;
    }
    if let Some(r) = &f.read_per_token {
        read(r, f.memory.as_ref().map_or(0, |m| m.context), out)?;
    }
    if !f.types.is_empty() {
        types(f, out)?;
    }
    metadata(f, out)?;
    tensors(f, out)
}

fn summary(f: &Facts, out: &mut impl Write) -> io::Result<()> {
    let files = if f.files == 1 {
        "1 file".into()
    } else {
        format!("{} files", f.files)
    };
    let or_none = |s: &Option<String>| {
        s.as_deref()
            .map_or_else(|| "not given".into(), |s| text(s, NAME))
    };
    let mut rows = vec![
        ("name", or_none(&f.name)),
        (
            "format",
            format!("GGUF v{}, {files}, {}", f.gguf_version, both(f.file_bytes)),
        ),
        ("architecture", or_none(&f.architecture)),
        ("quantisation", f.quantisation.clone()),
        ("parameters", grouped(f.parameters)),
        (
            "weights",
            match f.bits_per_weight {
                Some(bits) => format!("{}, {bits:.2} bits each", both(f.weight_bytes)),
                None => both(f.weight_bytes),
            },
        ),
    ];
    rows.extend(f.shape.as_ref().into_iter().flat_map(shape));
    rows.extend(
        f.vocabulary
            .map(|n| ("vocabulary", format!("{} tokens", grouped(n as u64)))),
    );
    if f.can_run {
        rows.push(("can run", "yes".into()));
    }
    rows.extend(
        f.refusals
            .iter()
            .map(|why| ("cannot run", text(why, SENTENCE))),
    );
    let rows: Vec<_> = rows.into_iter().map(|(k, v)| vec![k.into(), v]).collect();
    table(out, &[Left, Left], &rows)
}

fn shape(s: &Shape) -> Vec<(&'static str, String)> {
    let dims = if s.key_dim == s.value_dim {
        s.key_dim.to_string()
    } else {
        format!("{} (keys) and {} (values)", s.key_dim, s.value_dim)
    };
    let window = s.window.map_or_else(String::new, |w| {
        format!(", sliding window {}", grouped(w as u64))
    });
    let feed_forward = s.feed_forward.map_or(String::new(), |n| {
        format!(", feed-forward {}", grouped(n as u64))
    });
    let experts = s.experts.as_ref().map_or(String::new(), |e| {
        format!(", {} experts of which a token uses {}", e.n, e.used)
    });
    vec![
        (
            "shape",
            format!(
                "{} layers, width {}, {} query and {} key/value heads of {dims}{feed_forward}{experts}",
                s.layers,
                grouped(s.width as u64),
                s.query_heads,
                s.kv_heads,
            ),
        ),
        (
            "trained context",
            format!("{} tokens{window}", grouped(s.trained_context as u64)),
        ),
    ]
}

fn memory(m: &Memory, out: &mut impl Write) -> io::Result<()> {
    let threads = if m.threads == 1 {
        "1 thread".into()
    } else {
        format!("{} threads", m.threads)
    };
    let context = grouped(m.context as u64);
    writeln!(
        out,
        "\nMemory needed at a context of {context} tokens and {threads}"
    )?;
    let mut rows = vec![
        sized("weights", m.weights_bytes, "mapped from the file"),
        sized(&format!("kv cache ({})", m.kv_type), m.kv_bytes, ""),
        sized("buffers", m.buffer_bytes, ""),
        sized("total", m.total_bytes, ""),
    ];
    if let Some(available) = m.available_bytes {
        let verdict = if m.total_bytes > available {
            "not enough: give a smaller --ctx"
        } else {
            ""
        };
        rows.push(sized("available now", available, verdict));
    }
    table(out, &[Left, Right, Right, Left], &rows)
}

fn read(r: &ReadPerToken, context: usize, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\nBytes read a token")?;
    let full = format!(
        "when all {} tokens of the context are used",
        grouped(context as u64)
    );
    let rows = [
        sized(
            "weights",
            r.weight_bytes,
            "each once, one row of the embedding",
        ),
        sized("kv cache", r.kv_full_bytes, &full),
        sized("total", r.weight_bytes.saturating_add(r.kv_full_bytes), ""),
    ];
    table(out, &[Left, Right, Right, Left], &rows)
}

fn sized(what: &str, n: u64, note: &str) -> Vec<String> {
    vec![
        what.into(),
        bytes(n),
        format!("{} bytes", grouped(n)),
        note.into(),
    ]
}

fn both(n: u64) -> String {
    format!("{} ({} bytes)", bytes(n), grouped(n))
}

fn types(f: &Facts, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\nTypes ({})", f.types.len())?;
    let mut rows = vec![row([
        "type",
        "tensors",
        "elements",
        "bytes",
        "share",
        "bits/weight",
    ])];
    rows.extend(f.types.iter().map(|t| {
        row([
            t.ty.name(),
            &grouped(t.tensors),
            &grouped(t.elements),
            &grouped(t.bytes),
            &format!(
                "{:.1}%",
                100.0 * t.bytes as f64 / f.weight_bytes.max(1) as f64
            ),
            &format!("{:.2}", t.bits_per_weight),
        ])
    }));
    table(out, &[Left, Right, Right, Right, Right, Right], &rows)
}

fn metadata(f: &Facts, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\nMetadata ({})", f.metadata.len())?;
    let rows: Vec<_> = f
        .metadata
        .iter()
        .map(|e| row([&text(&e.key, NAME), &e.ty, &e.line]))
        .collect();
    table(out, &[Left, Left, Left], &rows)
}

fn tensors(f: &Facts, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\nTensors ({})", grouped(f.tensors.len() as u64))?;
    if f.tensors.is_empty() {
        return Ok(());
    }
    let mut rows = vec![row(["name", "type", "shape", "elements", "bytes"])];
    rows.extend(f.tensors.iter().map(|t| {
        let dims: Vec<_> = t.dims.iter().map(u64::to_string).collect();
        let (elements, bytes) = (grouped(t.elements), grouped(t.bytes));
        row([
            &text(&t.name, NAME),
            t.ty.name(),
            &dims.join(" x "),
            &elements,
            &bytes,
        ])
    }));
    table(out, &[Left, Left, Right, Right, Right], &rows)
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// Rows with aligned columns, two spaces apart, nothing behind the last character.
fn table(out: &mut impl Write, aligns: &[Align], rows: &[Vec<String>]) -> io::Result<()> {
    let widths: Vec<usize> = (0..aligns.len())
        .map(|c| {
            rows.iter()
                .filter_map(|r| r.get(c))
                .map(|s| width(s))
                .max()
                .unwrap_or(0)
        })
        .collect();
    for row in rows {
        let mut line = String::new();
        for ((cell, align), w) in row.iter().zip(aligns).zip(&widths) {
            let pad = " ".repeat(w.saturating_sub(width(cell)));
            line.push_str("  ");
            match align {
                Left => line.extend([cell.as_str(), &pad]),
                Right => line.extend([pad.as_str(), cell]),
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
