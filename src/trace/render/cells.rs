//! Cells of tables: tokens and numbers as text, and columns that stand under each other.

use std::fmt::Write;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns a token takes at most, quotes included.
const TOKEN: usize = 22;
/// Shown where a figure is not known.
pub(super) const UNKNOWN: &str = "-";

/// Whether a character could steer a terminal, reorder the line or hide.
fn hides(c: char) -> bool {
    // `escape_debug` leaves out what cannot be printed: controls, format characters, bidirectional marks, private use.
    !matches!(c, '"' | '\'' | '\\') && c.escape_debug().len() > 1
}

/// `text` with everything that a terminal would not simply draw as an escape (`\n`, `\u{1b}`).
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // The backslash too, so that an escape cannot be mistaken for text.
        if c == '\\' || hides(c) {
            out.extend(c.escape_debug());
        } else {
            out.push(c);
        }
    }
    out
}

/// A line of text that may have escapes in it already: what would act on a terminal is made visible.
pub fn line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if hides(c) {
            out.extend(c.escape_debug());
        } else {
            out.push(c);
        }
    }
    out
}

/// A token in quotes, so that its spaces are seen, cut where it is long.
pub fn token(text: &str) -> String {
    let text = visible(text);
    if text.width() + 2 <= TOKEN {
        return format!("\"{text}\"");
    }
    let mut out = String::from('"');
    let mut columns = 0;
    for c in text.chars() {
        columns += c.width().unwrap_or(0);
        if columns > TOKEN - 3 {
            break;
        }
        out.push(c);
    }
    out.push_str("…\"");
    out
}

/// JSON text with invisible and steering characters outside ASCII as `\u` escapes; those inside are escaped already.
pub fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Anything outside ASCII is inside a JSON string, where an escape means the same; the delete character too.
        if c == '\x7f' || (!c.is_ascii() && hides(c)) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// A probability: four decimals, below that its order of magnitude.
pub fn prob(p: f64) -> String {
    match p {
        p if p.is_nan() => "NaN".into(),
        p if p != 0.0 && p.abs() < 0.000_05 => format!("{p:.0e}"),
        p => format!("{p:.4}"),
    }
}

/// A figure without a sign: two decimals, very large ones by their order of magnitude.
pub(super) fn figure(x: f64) -> String {
    match x {
        x if !x.is_finite() => x.to_string(),
        x if x.abs() >= 1e6 => format!("{x:.2e}"),
        x => plain_zero(format!("{x:.2}")),
    }
}

/// As [`figure`]; [`UNKNOWN`] without one.
pub(super) fn maybe(x: Option<f64>) -> String {
    x.map_or_else(|| UNKNOWN.into(), figure)
}

/// Logits added or taken away: always with a sign.
pub(super) fn signed(x: f64) -> String {
    match x {
        x if !x.is_finite() => x.to_string(),
        x if x.abs() >= 1e6 => format!("{x:+.2e}"),
        x => match format!("{x:+.2}").as_str() {
            "-0.00" => "+0.00".into(),
            text => text.into(),
        },
    }
}

/// A share of 1 in percent.
pub(super) fn percent(share: Option<f64>) -> String {
    match share {
        Some(share) if share.is_finite() => format!("{:.1}%", share * 100.0),
        _ => UNKNOWN.into(),
    }
}

/// Less than nothing, rounded to nothing, has no sign.
fn plain_zero(text: String) -> String {
    if text == "-0.00" { "0.00".into() } else { text }
}

/// Where a column's cells stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// Rows of cells under titles.
pub(super) struct Grid {
    sides: Vec<Side>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// With a column for each title, which stands above it.
    pub(super) fn new<T: Into<String>>(columns: impl IntoIterator<Item = (T, Side)>) -> Self {
        let (titles, sides) = columns
            .into_iter()
            .map(|(title, side)| (title.into(), side))
            .unzip();
        Self {
            sides,
            rows: vec![titles],
        }
    }

    /// Another row; cells beyond the titles are left out.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The lines, two spaces between columns, none at their ends.
    pub(super) fn print(&self, out: &mut String) {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|r| r.get(column));
            cells.map(|c| c.width()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.sides.len()).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, width), side) in row.iter().zip(&widths).zip(&self.sides) {
                let gap = " ".repeat(width.saturating_sub(cell.width()));
                let (before, after) = match side {
                    Side::Left => ("", gap.as_str()),
                    Side::Right => (gap.as_str(), ""),
                };
                let _ = write!(line, "  {before}{cell}{after}");
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_keep_their_meaning() {
        let probs = [0.0, 0.3, 1.0, 0.000_012, 0.000_05, f64::NAN].map(prob);
        assert_eq!(
            probs,
            ["0.0000", "0.3000", "1.0000", "1e-5", "0.0001", "NaN"]
        );
        let logits = [1.5, -0.001, 0.0, -12.345, 2e9, f64::INFINITY].map(signed);
        assert_eq!(
            logits,
            ["+1.50", "+0.00", "+0.00", "-12.35", "+2.00e9", "inf"]
        );
        let figures = [66_638.4, -0.001, 3e12, f64::NAN].map(figure);
        assert_eq!(figures, ["66638.40", "0.00", "3.00e12", "NaN"]);
        assert_eq!(
            [Some(0.5), Some(f64::NAN), None].map(percent),
            ["50.0%", "-", "-"]
        );
    }

    #[test]
    fn tokens_show_what_is_in_them() {
        let shown = [" Paris", "\n", "\x1b[31m", "a\\n", "\u{202e}", "日本", ""].map(token);
        assert_eq!(
            shown,
            [
                "\" Paris\"",
                "\"\\n\"",
                "\"\\u{1b}[31m\"",
                "\"a\\\\n\"",
                "\"\\u{202e}\"",
                "\"日本\"",
                "\"\""
            ]
        );
        assert_eq!(token(&"日".repeat(40)), format!("\"{}…\"", "日".repeat(9)));
        assert_eq!(json("\"\u{9b}31m é\x7f\""), "\"\\u009b31m é\\u007f\"");
    }

    proptest! {
        #[test]
        fn no_token_acts_on_a_terminal_or_breaks_a_column(text in ".{0,40}", other in "\\PC{0,9}") {
            let shown = token(&text);
            prop_assert!(shown.width() <= TOKEN);
            prop_assert!(!shown.chars().any(|c| c.is_control()));
            let mut grid = Grid::new([("token", Side::Left), ("end", Side::Left)]);
            grid.row(vec![shown, "|".into()]);
            grid.row(vec![token(&other), "|".into()]);
            let mut out = String::new();
            grid.print(&mut out);
            let ends: Vec<_> = out.lines().skip(1).map(UnicodeWidthStr::width).collect();
            prop_assert_eq!(ends.len(), 2);
            prop_assert_eq!(ends[0], ends[1]);
        }
    }
}
