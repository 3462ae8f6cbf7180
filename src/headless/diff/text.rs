//! A comparison as a table. Colour repeats what sign and word say.

use super::{Check, Diff, Figure, Row, Verdict};
use crate::tui::format;
use crate::tui::text::{fit, sanitise, width};
use std::fmt::Write;

/// Longest text of a fact or a file's name, columns.
const LONG: usize = 48;

/// How a table is written.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    /// With colours.
    pub colour: bool,
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    fn verdict(self, verdict: Verdict, text: &str) -> String {
        match verdict {
            Verdict::Slower => self.paint("31", text),
            Verdict::Faster => self.paint("32", text),
            Verdict::NoInterval | Verdict::OnlyA | Verdict::OnlyB => self.paint("33", text),
            Verdict::Same => self.paint("2", text),
        }
    }
}

fn short(text: &str) -> String {
    fit(&sanitise(text, false), LONG, "...")
}

/// The table of `diff`, runs called `names`.
pub fn render(diff: &Diff, names: [&str; 2], style: Style) -> String {
    let mut out = String::new();
    let [a, b] = names.map(short);
    line(&mut out, &format!("A  {a}  {} steps", diff.steps[0]));
    line(&mut out, &format!("B  {b}  {} steps", diff.steps[1]));
    for text in warnings(diff) {
        line(&mut out, &style.paint("33", &text));
    }
    line(&mut out, "");
    let head = cells("us/step", "A", "B", "change", "", "95% interval", "");
    line(&mut out, &style.paint("1", head.trim_end()));
    for row in std::iter::once(&diff.step).chain(&diff.bricks) {
        line(
            &mut out,
            &style.verdict(row.verdict, row_text(row).trim_end()),
        );
    }
    line(&mut out, "");
    for figure in &diff.figures {
        line(&mut out, figure_text(figure).trim_end());
    }
    out
}

/// One line a finding of a check.
pub fn verdict(check: &Check, style: Style) -> String {
    let mut out = String::new();
    let limit = percent(check.above).trim_start_matches('+').to_owned();
    if !check.not_judged.is_empty() {
        let which = check.not_judged.join(", ");
        line(
            &mut out,
            &style.paint("33", &format!("not judged, no interval: {which}")),
        );
    }
    if check.passed {
        let text = format!("passed: nothing is slower by more than {limit} beyond chance");
        line(&mut out, &style.paint("32", &text));
    } else {
        let which = check.slower.join(", ");
        let text = format!("FAILED: slower by more than {limit}, beyond chance: {which}");
        line(&mut out, &style.paint("31", &text));
    }
    out
}

fn warnings(diff: &Diff) -> Vec<String> {
    let mut all = Vec::new();
    if !diff.unlike.is_empty() {
        all.push("! these runs are not of the same thing:".to_owned());
    }
    all.extend(diff.unlike.iter().map(|u| {
        let (a, b) = (short(&u.a), short(&u.b));
        format!("!   {} {}: A {a}, B {b}", u.of, u.what)
    }));
    all.extend(diff.notes.iter().map(|n| format!("! {n}")));
    all
}

fn line(out: &mut String, text: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(out, "{text}");
}

fn cells(
    name: &str,
    a: &str,
    b: &str,
    change: &str,
    share: &str,
    interval: &str,
    word: &str,
) -> String {
    let pad = " ".repeat(16usize.saturating_sub(width(name)));
    format!("{name}{pad} {a:>11} {b:>11} {change:>10} {share:>8}  {interval:<20} {word}")
}

fn row_text(row: &Row) -> String {
    let us = |v: Option<f64>| v.map_or("-".into(), |v| format!("{v:.1}"));
    let change = row.change_us.map_or("-".into(), |v| format!("{v:+.1}"));
    let share = row.change.map_or("-".into(), percent);
    let interval = row.interval().map_or("-".into(), |i| {
        format!("{} to {}", percent(i.low), percent(i.high))
    });
    let word = match row.verdict {
        Verdict::Slower => "+ slower",
        Verdict::Faster => "- faster",
        Verdict::Same => "= within chance",
        Verdict::NoInterval => "? no interval",
        Verdict::OnlyA => "only in A",
        Verdict::OnlyB => "only in B",
    };
    cells(
        &row.name,
        &us(row.a_us),
        &us(row.b_us),
        &change,
        &share,
        &interval,
        word,
    )
}

fn figure_text(figure: &Figure) -> String {
    let show = |v: Option<f64>| match (v, figure.unit) {
        (None, _) => "-".into(),
        (Some(v), "bytes") => format::bytes(v as u64),
        (Some(v), "tok/s") => format!("{v:.2}"),
        (Some(v), _) => format!("{v:.4}"),
    };
    let unit = if figure.unit == "bytes" {
        ""
    } else {
        figure.unit
    };
    let name = format!("{} {unit}", figure.name);
    let change = figure.change.map_or("-".into(), percent);
    cells(
        name.trim_end(),
        &show(figure.a),
        &show(figure.b),
        "",
        &change,
        "",
        "",
    )
}

fn percent(share: f64) -> String {
    format!("{:+.1}%", share * 100.0)
}
