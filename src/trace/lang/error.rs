//! Errors of the language, shown on the source.

use std::iter;
use std::ops::Range;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns of source shown before the marked part, and of the marked part and after it.
const BEFORE: usize = 50;
const AFTER: usize = 50;

/// Why a text is not of the TRACE language.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LangError {
    /// What is wrong, in one line; of several statements it names the number of the one at fault.
    pub message: String,
    /// Where: bytes of the source. Empty at the end of the text.
    pub span: Range<usize>,
    /// What to write instead, in one line.
    pub help: Option<String>,
}

impl LangError {
    pub(super) fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            span,
            help: None,
        }
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The error as lines of text without an end of line: the message, line and column (in characters, from 1), the line
    /// of `source` with carets under the part at fault, and the help.
    ///
    /// A span of several lines is marked on its first one; of a long line the surroundings are shown. Control
    /// characters of the source are replaced, so that they cannot act on a terminal. A span that does not fit
    /// `source` is moved into it.
    pub fn render(&self, source: &str) -> String {
        let start = floor(source, self.span.start);
        let end = floor(source, self.span.end.max(start));
        let line_start = source[..start].rfind('\n').map_or(0, |at| at + 1);
        let rest = &source[start..];
        let line_end = start + rest.find('\n').unwrap_or(rest.len());
        let number = source[..line_start].matches('\n').count() + 1;
        let column = source[line_start..start].chars().count() + 1;

        let before = last_columns(&source[line_start..start], BEFORE);
        let marked = first_columns(&source[start..end.min(line_end)], AFTER);
        let after = source[end.min(line_end)..line_end].trim_end_matches('\r');
        let after = first_columns(after, AFTER.saturating_sub(marked.width()));

        let gutter = " ".repeat(number.to_string().len());
        let blank = " ".repeat(before.width());
        let carets = "^".repeat(marked.width().max(1));
        let mut out = format!(
            "{}\n{gutter}--> line {number}, column {column}\n{gutter} |\n",
            self.message
        );
        out.push_str(format!("{number} | {before}{marked}{after}").trim_end());
        out.push_str(&format!("\n{gutter} | {blank}{carets}"));
        if let Some(help) = &self.help {
            out.push_str(&format!("\n{gutter} = help: {help}"));
        }
        out
    }
}

/// The last border between characters at or before `at`.
fn floor(source: &str, at: usize) -> usize {
    let mut at = at.min(source.len());
    while !source.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// A character as it is shown, and the columns it takes.
fn shown(c: char) -> (char, usize) {
    match c {
        '\t' => ('\t', 4),
        c if hidden(c) => (char::REPLACEMENT_CHARACTER, 1),
        c => (c, c.width().unwrap_or(0)),
    }
}

fn spell(out: &mut String, c: char) {
    match c {
        '\t' => out.push_str("    "),
        c => out.push(c),
    }
}

fn first_columns(text: &str, limit: usize) -> String {
    let mut out = String::new();
    let mut columns = 0;
    // Characters without a width of their own could go on for ever.
    for (i, (c, width)) in text.chars().map(shown).enumerate() {
        columns += width;
        if columns > limit || i > 4 * limit {
            out.push('…');
            break;
        }
        spell(&mut out, c);
    }
    out
}

fn last_columns(text: &str, limit: usize) -> String {
    let mut columns = 0;
    let mut kept: Vec<char> = Vec::new();
    for (i, (c, width)) in text.chars().rev().map(shown).enumerate() {
        columns += width;
        if columns > limit || i > 4 * limit {
            kept.push('…');
            break;
        }
        kept.push(c);
    }
    let mut out = String::new();
    kept.iter().rev().for_each(|&c| spell(&mut out, c));
    out
}

/// Characters that a terminal acts on instead of showing them: controls, and those that turn the direction of text.
pub(super) fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// A piece of source as a message quotes it: in backticks, cut where it is long.
pub(super) fn quote(text: &str) -> String {
    let cut = text.chars().nth(24).map(|_| '…');
    let shown = text.chars().take(24);
    let shown = shown.map(|c| {
        if hidden(c) {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        }
    });
    iter::once('`')
        .chain(shown)
        .chain(cut)
        .chain(iter::once('`'))
        .collect()
}

/// `a`, `a or b`, `a, b or c`.
pub(super) fn either(items: &[&str]) -> String {
    match items {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// The word of `candidates` that `word` was probably meant to be.
pub(super) fn meant(word: &str, candidates: &[&'static str]) -> Option<&'static str> {
    // Longer than any keyword could be mistyped, and the comparison takes time and memory by length.
    if word.len() > 24 {
        return None;
    }
    let word = word.to_uppercase();
    let near = candidates
        .iter()
        .map(|&c| (strsim::damerau_levenshtein(&word, c), c));
    let near = near.filter(|&(distance, c)| {
        distance <= (c.len() / 3).max(1) || (word.len() >= 3 && c.starts_with(&word))
    });
    near.min_by_key(|&(distance, _)| distance).map(|(_, c)| c)
}
