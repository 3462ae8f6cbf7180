//! Text from tokens as they are generated.

use super::Tokenizer;
use std::ops::Deref;

/// Turns ids into text one at a time, holding back the bytes of a character that is not complete yet.
///
/// The text is that of [`Tokenizer::decode_continuation`]: pushing all ids and flushing gives the same.
#[derive(Debug, Clone)]
pub struct StreamDecoder<T> {
    tokenizer: T,
    pending: Vec<u8>,
}

impl<T: Deref<Target = Tokenizer>> StreamDecoder<T> {
    /// A decoder that borrows or shares a tokenizer.
    pub fn new(tokenizer: T) -> Self {
        Self {
            tokenizer,
            pending: Vec::new(),
        }
    }

    /// Adds a token and returns the text that is now complete. Invalid UTF-8 becomes U+FFFD; an id
    /// outside the vocabulary adds nothing.
    pub fn push(&mut self, id: u32) -> String {
        if let Some(bytes) = self.tokenizer.token_bytes(id) {
            self.pending.extend_from_slice(&bytes);
        }
        let complete = complete_prefix(&self.pending);
        let text = String::from_utf8_lossy(&self.pending[..complete]).into_owned();
        self.pending.drain(..complete);
        text
    }

    /// Returns what was held back, as U+FFFD where no character came of it, and starts afresh.
    pub fn flush(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        text
    }
}

/// Length of `bytes` without the beginning of a character at its end.
fn complete_prefix(bytes: &[u8]) -> usize {
    let mut done = 0;
    for chunk in bytes.utf8_chunks() {
        done += chunk.valid().len();
        let at_end = done + chunk.invalid().len() == bytes.len();
        if at_end && may_be_completed(chunk.invalid()) {
            return done;
        }
        done += chunk.invalid().len();
    }
    done
}

fn may_be_completed(invalid: &[u8]) -> bool {
    // `error_len` is None exactly when more bytes could still make a character.
    !invalid.is_empty() && std::str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unfinished_character_is_held_back() {
        assert_eq!(complete_prefix("a🚀".as_bytes()), 5);
        assert_eq!(complete_prefix(&"a🚀".as_bytes()[..4]), 1);
        assert_eq!(complete_prefix(b"a\xFF"), 2);
        assert_eq!(complete_prefix(b"\xF0\x9F\x9A\xFF\xE2\x82"), 4);
    }
}
