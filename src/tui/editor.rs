//! The prompt editor: a buffer with a cursor.

use super::keymap::{EditAction, editor_bindings};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Longest prompt that can be typed or pasted, bytes.
pub const MAX_PROMPT_BYTES: usize = 64 * 1024;

/// A prompt being typed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Editor {
    text: String,
    /// Byte offset, always on a character boundary.
    cursor: usize,
}

/// What a key led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Still editing.
    Editing,
    /// Run this prompt.
    Send(String),
    /// Close the editor.
    Cancel,
    /// Leave the program.
    Quit,
}

impl Editor {
    /// What has been typed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text before and after the cursor.
    pub fn split(&self) -> (&str, &str) {
        self.text
            .split_at_checked(self.cursor)
            .unwrap_or((&self.text, ""))
    }

    /// Handles a key; `current` is the prompt of the run.
    pub fn key(&mut self, event: &KeyEvent, current: &str) -> Outcome {
        let bound = editor_bindings()
            .into_iter()
            .find(|(_, keys, _)| keys.iter().any(|k| k.matches(event)));
        match bound.map(|(action, ..)| action) {
            Some(EditAction::Send) if self.text.trim().is_empty() => return Outcome::Editing,
            Some(EditAction::Send) => return Outcome::Send(std::mem::take(self).text),
            Some(EditAction::Cancel) => return Outcome::Cancel,
            Some(EditAction::Quit) => return Outcome::Quit,
            Some(action) => self.edit(action, current),
            None => {
                let typed = !event
                    .modifiers
                    .intersects(KeyModifiers::CONTROL | KeyModifiers::SUPER | KeyModifiers::META);
                match event.code {
                    KeyCode::Char(c) if typed => self.insert(c.encode_utf8(&mut [0; 4])),
                    KeyCode::Tab => self.insert("\t"),
                    _ => {}
                }
            }
        }
        Outcome::Editing
    }

    fn edit(&mut self, action: EditAction, current: &str) {
        let (before, after) = self.split();
        let left = before.chars().next_back().map_or(0, char::len_utf8);
        let right = after.chars().next().map_or(0, char::len_utf8);
        let (start, end) = (self.cursor, self.text.len());
        match action {
            EditAction::NewLine => self.insert("\n"),
            EditAction::Recall => {
                *self = Self::default();
                self.insert(current);
            }
            EditAction::Left => self.cursor -= left,
            EditAction::Right => self.cursor += right,
            EditAction::Home => self.cursor = 0,
            EditAction::End => self.cursor = end,
            EditAction::Backspace => self.remove(start - left, start),
            EditAction::Delete => self.remove(start, start + right),
            EditAction::DeleteWord => {
                let kept = before.trim_end().rfind(char::is_whitespace).map_or(0, |i| {
                    i + before
                        .get(i..)
                        .and_then(|r| r.chars().next())
                        .map_or(0, char::len_utf8)
                });
                self.remove(kept, start);
            }
            EditAction::DeleteToStart => self.remove(0, start),
            EditAction::DeleteToEnd => self.remove(start, end),
            EditAction::Send | EditAction::Cancel | EditAction::Quit => {}
        }
    }

    fn remove(&mut self, from: usize, to: usize) {
        self.text.replace_range(from..to, "");
        self.cursor = from;
    }

    /// Inserts typed or pasted text at the cursor. Line ends become line feeds, other control characters but tabs are
    /// left out, and what would pass [`MAX_PROMPT_BYTES`] is cut off.
    pub fn insert(&mut self, text: &str) {
        let mut clean: String = text
            .replace("\r\n", "\n")
            .replace('\r', "\n")
            .chars()
            .filter(|c| matches!(c, '\n' | '\t') || !c.is_control())
            .collect();
        let mut room = MAX_PROMPT_BYTES
            .saturating_sub(self.text.len())
            .min(clean.len());
        while !clean.is_char_boundary(room) {
            room -= 1;
        }
        clean.truncate(room);
        self.text.insert_str(self.cursor, &clean);
        self.cursor += clean.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn press(editor: &mut Editor, code: KeyCode, ctrl: bool) -> Outcome {
        editor.key(&super::super::keymap::Key { code, ctrl }.event(), "now")
    }

    #[test]
    fn edits_a_line() {
        let mut e = Editor::default();
        for c in "Où est Paris".chars() {
            press(&mut e, KeyCode::Char(c), false);
        }
        press(&mut e, KeyCode::Char('w'), true);
        assert_eq!(e.text(), "Où est ");
        press(&mut e, KeyCode::Home, false);
        press(&mut e, KeyCode::Right, false);
        press(&mut e, KeyCode::Delete, false);
        assert_eq!(e.split(), ("O", " est "));
        e.insert("\x1b[31m\r\nx");
        assert_eq!(e.text(), "O[31m\nx est ");
        assert_eq!(press(&mut e, KeyCode::Esc, false), Outcome::Cancel);
        assert_eq!(
            press(&mut e, KeyCode::Enter, false),
            Outcome::Send("O[31m\nx est ".into())
        );
        let mut e = Editor::default();
        assert_eq!(
            press(&mut e, KeyCode::Enter, false),
            Outcome::Editing,
            "an empty prompt is not sent"
        );
        press(&mut e, KeyCode::Up, false);
        assert_eq!(e.text(), "now");
    }

    #[test]
    fn a_huge_paste_is_cut_on_a_character() {
        let mut e = Editor::default();
        e.insert(&"é日".repeat(40_000));
        assert!(e.text().len() <= MAX_PROMPT_BYTES && e.text().len() > MAX_PROMPT_BYTES - 4);
    }

    proptest! {
        #[test]
        fn the_cursor_stays_on_a_boundary(ops in proptest::collection::vec((0usize..14, "[aé日 ]{0,3}"), 0..60)) {
            let mut e = Editor::default();
            for (op, text) in ops {
                e.insert(&text);
                if let Some((_, keys, _)) = editor_bindings().get(op) {
                    for k in keys {
                        e.key(&k.event(), "naïve");
                    }
                }
                let (a, b) = e.split();
                prop_assert_eq!(format!("{a}{b}"), e.text());
            }
        }
    }
}
