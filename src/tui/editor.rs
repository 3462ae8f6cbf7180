//! The editor of prompts and statements: a buffer with a cursor and the texts to take over.

use super::keymap::Key;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Longest text that can be typed or pasted, bytes.
pub const MAX_PROMPT_BYTES: usize = 64 * 1024;

/// What the text is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A prompt to run.
    Prompt,
    /// Statements of the TRACE language.
    Statement,
}

/// A text being typed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Editor {
    text: String,
    /// Byte offset, always on a character boundary.
    cursor: usize,
    /// How many texts back from what was typed itself.
    back: usize,
    /// What was typed itself, while an earlier text is shown.
    typed: String,
}

/// What a key led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Still editing.
    Editing,
    /// Run this text.
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

    /// Handles a key; `earlier` are the texts to take over, newest last.
    pub fn key(&mut self, event: &KeyEvent, earlier: &[String]) -> Outcome {
        let bound = editor_bindings()
            .into_iter()
            .find(|(_, keys, _)| keys.iter().any(|k| k.matches(event)));
        match bound.map(|(action, ..)| action) {
            Some(EditAction::Send) if self.text.trim().is_empty() => return Outcome::Editing,
            Some(EditAction::Send) => return Outcome::Send(std::mem::take(self).text),
            Some(EditAction::Cancel) => return Outcome::Cancel,
            Some(EditAction::Quit) => return Outcome::Quit,
            Some(action) => self.edit(action, earlier),
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

    fn edit(&mut self, action: EditAction, earlier: &[String]) {
        let (before, after) = self.split();
        let left = before.chars().next_back().map_or(0, char::len_utf8);
        let right = after.chars().next().map_or(0, char::len_utf8);
        let (start, end) = (self.cursor, self.text.len());
        match action {
            EditAction::NewLine => self.insert("\n"),
            EditAction::Earlier => self.recall(self.back.saturating_add(1), earlier),
            EditAction::Later => self.recall(self.back.saturating_sub(1), earlier),
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

    /// Shows the text `back` texts before what was typed, which is 0.
    fn recall(&mut self, back: usize, earlier: &[String]) {
        let back = back.min(earlier.len());
        if back == self.back {
            return;
        }
        if self.back == 0 {
            self.typed = std::mem::take(&mut self.text);
        }
        let text = match earlier.len().checked_sub(back).and_then(|i| earlier.get(i)) {
            Some(text) => text.clone(),
            None => std::mem::take(&mut self.typed),
        };
        (self.text, self.cursor, self.back) = (String::new(), 0, back);
        self.insert(&text);
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

/// What a key does while a text is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EditAction {
    /// Run the text.
    Send,
    /// Close without a change.
    Cancel,
    /// Insert a line feed.
    NewLine,
    /// Take over the text before: the prompt of the run, or an earlier statement.
    Earlier,
    /// Take over the text after, at last what was typed itself.
    Later,
    /// One character left.
    Left,
    /// One character right.
    Right,
    /// To the start.
    Home,
    /// To the end.
    End,
    /// Delete before the cursor.
    Backspace,
    /// Delete under the cursor.
    Delete,
    /// Delete the word before the cursor.
    DeleteWord,
    /// Delete everything before the cursor.
    DeleteToStart,
    /// Delete everything after the cursor.
    DeleteToEnd,
    /// Leave the program.
    Quit,
}

/// Keys of the editor with their description; every other character is typed.
pub fn editor_bindings() -> Vec<(EditAction, Vec<Key>, &'static str)> {
    use EditAction as E;
    let ctrl = |c| Key {
        code: KeyCode::Char(c),
        ctrl: true,
    };
    let key = |code| Key { code, ctrl: false };
    vec![
        (E::Send, vec![key(KeyCode::Enter)], "send"),
        (E::Cancel, vec![key(KeyCode::Esc)], "cancel"),
        (E::NewLine, vec![ctrl('j')], "new line"),
        (
            E::Earlier,
            vec![key(KeyCode::Up), ctrl('p')],
            "current prompt, earlier statement",
        ),
        (
            E::Later,
            vec![key(KeyCode::Down), ctrl('n')],
            "back to what was typed",
        ),
        (E::Left, vec![key(KeyCode::Left), ctrl('b')], "left"),
        (E::Right, vec![key(KeyCode::Right), ctrl('f')], "right"),
        (E::Home, vec![key(KeyCode::Home), ctrl('a')], "to the start"),
        (E::End, vec![key(KeyCode::End), ctrl('e')], "to the end"),
        (
            E::Backspace,
            vec![key(KeyCode::Backspace), ctrl('h')],
            "delete before the cursor",
        ),
        (
            E::Delete,
            vec![key(KeyCode::Delete), ctrl('d')],
            "delete under the cursor",
        ),
        (
            E::DeleteWord,
            vec![ctrl('w')],
            "delete the word before the cursor",
        ),
        (E::DeleteToStart, vec![ctrl('u')], "delete to the start"),
        (E::DeleteToEnd, vec![ctrl('k')], "delete to the end"),
        (E::Quit, vec![ctrl('c')], "quit cbtop"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn press(editor: &mut Editor, code: KeyCode, ctrl: bool) -> Outcome {
        editor.key(
            &super::super::keymap::Key { code, ctrl }.event(),
            &["before".into(), "now".into()],
        )
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
        e.insert("half");
        press(&mut e, KeyCode::Up, false);
        assert_eq!(e.split(), ("now", ""));
        press(&mut e, KeyCode::Up, false);
        press(&mut e, KeyCode::Up, false);
        assert_eq!(e.text(), "before");
        press(&mut e, KeyCode::Down, false);
        press(&mut e, KeyCode::Down, false);
        press(&mut e, KeyCode::Down, false);
        assert_eq!(e.split(), ("half", ""));
    }

    #[test]
    fn a_huge_paste_is_cut_on_a_character() {
        let mut e = Editor::default();
        e.insert(&"é日".repeat(40_000));
        assert!(e.text().len() <= MAX_PROMPT_BYTES && e.text().len() > MAX_PROMPT_BYTES - 4);
    }

    proptest! {
        #[test]
        fn the_cursor_stays_on_a_boundary(ops in proptest::collection::vec((0usize..15, "[aé日 ]{0,3}"), 0..60)) {
            let mut e = Editor::default();
            for (op, text) in ops {
                e.insert(&text);
                if let Some((_, keys, _)) = editor_bindings().get(op) {
                    for k in keys {
                        e.key(&k.event(), &["naïve".into()]);
                    }
                }
                let (a, b) = e.split();
                prop_assert_eq!(format!("{a}{b}"), e.text());
            }
        }
    }
}
