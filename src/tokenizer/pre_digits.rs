//! Runs of digits cut into groups of three, counted from the end of the run.
//!
//! The published patterns say it with a look-ahead over the rest of the run, which takes quadratic time; one pass does. llama.cpp
//! has its own pass too, and departs from the patterns in what is left uncut.

use std::ops::Range;

/// Which digits count and which borders of the groups are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Triples {
    /// Any number character; every group's end. What stands before a run stays with its first group.
    EndsOnly,
    /// ASCII digits; every full group's start.
    StartsOnly,
}

impl Triples {
    fn is_digit(self, c: char) -> bool {
        match self {
            Self::EndsOnly => c.is_numeric(),
            Self::StartsOnly => c.is_ascii_digit(),
        }
    }

    /// Emits pieces that cover `text`, in order.
    pub fn split(self, text: &str, mut emit: impl FnMut(Range<usize>)) {
        let mut done = 0;
        let mut cut = |at: usize| {
            if at > done {
                emit(done..at);
                done = at;
            }
        };
        // Where each digit of the current run begins.
        let mut run = Vec::new();
        for (at, c) in text.char_indices() {
            if self.is_digit(c) {
                run.push(at);
                continue;
            }
            self.cut_run(&run, at, &mut cut);
            run.clear();
        }
        self.cut_run(&run, text.len(), &mut cut);
        cut(text.len());
    }

    /// Cuts a run whose digits begin at `run` and which ends at `end`.
    fn cut_run(self, run: &[usize], end: usize, cut: &mut impl FnMut(usize)) {
        for (before, &at) in run.iter().enumerate() {
            let joins_text = self == Self::EndsOnly && before == 0;
            if !joins_text && (run.len() - before).is_multiple_of(3) {
                cut(at);
            }
        }
        if self == Self::EndsOnly && !run.is_empty() {
            cut(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(how: Triples, text: &str) -> Vec<&str> {
        let mut found = Vec::new();
        how.split(text, |range| found.push(&text[range]));
        found
    }

    #[test]
    fn groups_are_counted_from_the_end() {
        let text = "a1234567 12x";
        assert_eq!(
            pieces(Triples::EndsOnly, text),
            ["a1", "234", "567", " 12", "x"]
        );
        assert_eq!(pieces(Triples::StartsOnly, text), ["a1", "234", "567 12x"]);
    }

    #[test]
    fn only_ascii_digits_count_where_the_pattern_says_d() {
        assert_eq!(pieces(Triples::EndsOnly, "٣٤٥٦"), ["٣", "٤٥٦"]);
        assert_eq!(pieces(Triples::StartsOnly, "٣٤٥٦"), ["٣٤٥٦"]);
        assert_eq!(
            pieces(Triples::StartsOnly, "½123456½"),
            ["½", "123", "456½"]
        );
    }
}
