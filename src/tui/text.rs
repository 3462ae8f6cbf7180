//! Text from outside (model metadata, generated tokens, errors) made safe to draw, cut and wrapped to columns.

use ratatui::text::Span;
use std::ops::Range;
use unicode_width::UnicodeWidthStr;

/// Replaces everything that could steer a terminal or hide text: control characters become their control pictures, C1
/// controls, bidirectional overrides and invisible characters a replacement character. With `ascii` all that is not ASCII
/// becomes `?`. Line feeds and tabs are replaced too; see [`sanitise_block`] to keep them.
pub fn sanitise(text: &str, ascii: bool) -> String {
    text.chars().filter_map(|c| visible(c, ascii)).collect()
}

/// As [`sanitise`], but line feeds stay and a tab becomes four spaces.
pub fn sanitise_block(text: &str, ascii: bool, out: &mut String) {
    for c in text.chars() {
        match c {
            '\n' => out.push('\n'),
            '\t' => out.push_str("    "),
            c => out.extend(visible(c, ascii)),
        }
    }
}

/// `None` for characters that only join or restyle their neighbours and would make widths disagree between terminals.
fn visible(c: char, ascii: bool) -> Option<char> {
    Some(match c {
        ' '..='~' => c,
        '\u{200d}' | '\u{fe00}'..='\u{fe0f}' => return None,
        _ if ascii => '?',
        '\0'..='\x1f' => char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}'),
        '\x7f' => '\u{2421}',
        '\u{80}'..='\u{9f}'
        | '\u{ad}'
        | '\u{61c}'
        | '\u{115f}'..='\u{1160}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}' => '\u{fffd}',
        c => c,
    })
}

/// Columns that `text` takes.
pub fn width(text: &str) -> usize {
    if text.is_ascii() {
        text.len()
    } else {
        text.width()
    }
}

/// `text` cut to `columns`, with an ellipsis where something is missing.
pub fn fit(text: &str, columns: usize, ellipsis: &str) -> String {
    if width(text) <= columns {
        return text.into();
    }
    let room = columns.saturating_sub(width(ellipsis));
    let mut out = String::new();
    let mut used = 0;
    for g in Span::raw(text).styled_graphemes(ratatui::style::Style::new()) {
        let w = width(g.symbol);
        if used + w > room {
            break;
        }
        used += w;
        out.push_str(g.symbol);
    }
    if columns >= width(ellipsis) {
        out.push_str(ellipsis);
    }
    out
}

/// Byte ranges of the lines `text` makes in `columns`: broken at line feeds, then after spaces, then anywhere.
/// A space that a line break swallows belongs to no range. Always at least one line.
pub fn wrap(text: &str, columns: usize) -> Vec<Range<usize>> {
    let columns = columns.max(1);
    let mut lines = Vec::new();
    let mut start = 0;
    for paragraph in text.split('\n') {
        wrap_paragraph(paragraph, start, columns, &mut lines);
        start += paragraph.len() + 1;
    }
    lines
}

fn wrap_paragraph(text: &str, base: usize, columns: usize, lines: &mut Vec<Range<usize>>) {
    let mut line_start = 0;
    let mut used = 0;
    // Byte offset just after the last space of the line: where it would be broken.
    let mut break_at: Option<usize> = None;
    let mut at = 0;
    while let Some((len, w)) = next_cluster(text, at) {
        let is_space = text.get(at..at + len) == Some(" ");
        if used + w > columns && at > line_start {
            let (end, next) = match break_at {
                _ if is_space => (at, at + len),
                Some(b) => (b, b),
                None => (at, at),
            };
            lines.push(base + line_start..base + end);
            line_start = next;
            break_at = None;
            used = 0;
            at = next;
            continue;
        }
        used += w;
        at += len;
        if is_space {
            break_at = Some(at);
        }
    }
    lines.push(base + line_start..base + text.len().max(line_start));
}

/// Length and width of the character at `at` with the zero-width ones that follow it.
fn next_cluster(text: &str, at: usize) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let first = *bytes.get(at)?;
    let next_is_ascii = bytes.get(at + 1).is_none_or(u8::is_ascii);
    if first.is_ascii() && next_is_ascii {
        return Some((1, 1));
    }
    let rest = text.get(at..)?;
    let mut chars = rest.char_indices();
    let (_, c) = chars.next()?;
    let mut w = unicode_width::UnicodeWidthChar::width(c).unwrap_or(0);
    let mut len = c.len_utf8();
    for (i, c) in chars {
        if unicode_width::UnicodeWidthChar::width(c).unwrap_or(0) > 0 {
            break;
        }
        len = i + c.len_utf8();
    }
    w = w.max(width(rest.get(..len)?)).max(usize::from(w == 0));
    Some((len, w))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes_become_visible() {
        assert_eq!(
            sanitise("a\x1b[31mb\r\n\x7f\u{9b}m\u{202e}x", false),
            "a␛[31mb␍␊␡\u{fffd}m\u{fffd}x"
        );
        assert_eq!(sanitise("é\x1b", true), "??");
        let mut s = String::new();
        sanitise_block("a\tb\nc\x07", false, &mut s);
        assert_eq!(s, "a    b\nc␇");
    }

    #[test]
    fn wraps_at_words() {
        let show = |t: &str, w| {
            wrap(t, w)
                .into_iter()
                .map(|r| t[r].to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(show("the cat sat", 7), ["the cat", "sat"]);
        assert_eq!(show("the cat sat", 6), ["the ", "cat ", "sat"]);
        assert_eq!(show("abcdef\n\ng", 4), ["abcd", "ef", "", "g"]);
        assert_eq!(show("日本語", 4), ["日本", "語"]);
        assert_eq!(show("", 4), [""]);
        assert_eq!(fit("日本語テキスト", 6, "…"), "日本…");
        assert_eq!(fit("abc", 0, "…"), "");
    }

    proptest! {
        #[test]
        fn wrapped_lines_fit_and_lose_only_spaces(t in "[a-z 日é\u{301}\n]{0,80}", columns in 2usize..20) {
            let lines = wrap(&t, columns);
            prop_assert!(!lines.is_empty());
            let mut kept = String::new();
            for r in lines {
                let line = t.get(r);
                prop_assert!(line.is_some());
                let line = line.unwrap_or_default();
                prop_assert!(width(line) <= columns, "{line:?}");
                kept.push_str(line);
            }
            let squeeze = |s: &str| s.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            prop_assert_eq!(squeeze(&kept), squeeze(&t));
        }

        #[test]
        fn nothing_steers_the_terminal(t in any::<String>()) {
            prop_assert!(!sanitise(&t, false).chars().any(char::is_control));
            prop_assert!(sanitise(&t, true).is_ascii());
        }
    }
}
