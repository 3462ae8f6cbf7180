//! Errors as a table and as CSV.

use super::Printed;
use crate::commands::printable;
use cbtop::model::brick::BrickId;
use cbtop::tracer::figures::{ErrorGrade, ErrorOf, ModelQuantisationError, QuantisationErrorTrace};
use std::io::{self, Write};

/// The letter of a grade: colour is not the only sign.
fn letter(grade: ErrorGrade) -> &'static str {
    match grade {
        ErrorGrade::Acceptable => "A",
        ErrorGrade::Warning => "W",
        ErrorGrade::Critical => "C",
    }
}

fn painted(grade: ErrorGrade, text: &str, colour: bool) -> String {
    let code = match grade {
        ErrorGrade::Acceptable => 32,
        ErrorGrade::Warning => 33,
        ErrorGrade::Critical => 31,
    };
    if colour {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.into()
    }
}

/// For people: own errors, errors that arrive, outputs, verdict.
pub fn table(p: &Printed<'_>, all: bool, colour: bool, out: &mut impl Write) -> io::Result<()> {
    let e = p.error;
    writeln!(
        out,
        "{}: {} tokens against {}",
        printable(&p.model),
        e.tokens,
        printable(&e.reference)
    )?;
    writeln!(
        out,
        "A acceptable: cosine of at least {}, W warning: at least {}, C critical: below",
        ErrorGrade::ACCEPTABLE,
        ErrorGrade::WARNING
    )?;
    for (of, title) in [
        (
            ErrorOf::Own,
            "Own error: the same input, other weights or kernels",
        ),
        (
            ErrorOf::Arriving,
            "Arriving error: all before it in the other way too",
        ),
    ] {
        let rows: Vec<_> = e.brick_errors.iter().filter(|r| r.of == of).collect();
        writeln!(out, "\n{title}")?;
        let last = if all { "" } else { "  mean cosine" };
        writeln!(
            out,
            "  {:<14} {:>5} {:<7} {:>9} {:>7} {:>9} {:>9}{last}",
            "brick",
            if all { "layer" } else { "worst" },
            "weights",
            "cosine",
            "SNR dB",
            "MSE",
            "max"
        )?;
        if all {
            for r in rows {
                writeln!(out, "{}", row(r, colour))?;
            }
        } else {
            for (worst, mean) in by_brick(&rows) {
                writeln!(out, "{} {mean:>12.6}", row(worst, colour))?;
            }
        }
    }
    let logits = ErrorGrade::of(e.logits_cosine);
    writeln!(
        out,
        "\n{} logits: cosine {:.6}, KL divergence {:.5} nat, same most probable token {:.1}%",
        painted(logits, letter(logits), colour),
        e.logits_cosine,
        e.output_kl_divergence,
        100.0 * e.same_top
    )?;
    writeln!(
        out,
        "  perplexity of these tokens {:.4} against {:.4}: {:+.4}",
        e.perplexity, e.reference_perplexity, e.perplexity_delta
    )?;
    let verdict = format!("{} {}", letter(p.grade), p.grade.name());
    writeln!(
        out,
        "{}: the worst of own errors and logits",
        painted(p.grade, &verdict, colour)
    )
}

fn row(r: &QuantisationErrorTrace, colour: bool) -> String {
    let layer = r.layer_idx.map_or("-".into(), |l| l.to_string());
    let snr = r.snr_db.map_or("-".into(), |db| format!("{db:.1}"));
    format!(
        "{} {:<14} {layer:>5} {:<7} {:>9.6} {snr:>7} {:>9.2e} {:>9.2e}",
        painted(r.grade, letter(r.grade), colour),
        r.brick_id.name(),
        r.quant_type,
        r.cosine_similarity,
        r.mse,
        r.max_abs_error
    )
}

/// Every brick's worst layer, and the mean of its cosines over layers.
fn by_brick<'a>(rows: &[&'a QuantisationErrorTrace]) -> Vec<(&'a QuantisationErrorTrace, f64)> {
    let mut order: Vec<BrickId> = Vec::new();
    for r in rows {
        if !order.contains(&r.brick_id) {
            order.push(r.brick_id);
        }
    }
    // What is no number is worse than any.
    let rank = |r: &QuantisationErrorTrace| match r.cosine_similarity {
        c if c.is_nan() => f64::NEG_INFINITY,
        c => c,
    };
    let of = |id| {
        let mine = || rows.iter().filter(move |r| r.brick_id == id);
        let worst = mine().min_by(|a, b| rank(a).total_cmp(&rank(b)))?;
        let sum: f64 = mine().map(|r| r.cosine_similarity).sum();
        Some((*worst, sum / mine().count() as f64))
    };
    order.into_iter().filter_map(of).collect()
}

/// A header and a row for every brick and layer; what is no number or not known is empty.
pub fn csv(e: &ModelQuantisationError, out: &mut impl Write) -> anyhow::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record([
        "of",
        "brick",
        "layer",
        "weights",
        "cosine",
        "snr_db",
        "mse",
        "max_abs_error",
        "grade",
        "vectors",
    ])?;
    let number = |x: f64| {
        if x.is_finite() {
            x.to_string()
        } else {
            String::new()
        }
    };
    for r in &e.brick_errors {
        writer.write_record([
            match r.of {
                ErrorOf::Own => "own",
                ErrorOf::Arriving => "arriving",
            },
            r.brick_id.name(),
            &r.layer_idx.map_or(String::new(), |l| l.to_string()),
            &r.quant_type,
            &number(r.cosine_similarity),
            &r.snr_db.map_or(String::new(), number),
            &number(r.mse),
            &number(r.max_abs_error),
            r.grade.name(),
            &r.vectors.to_string(),
        ])?;
    }
    Ok(writer.flush()?)
}
