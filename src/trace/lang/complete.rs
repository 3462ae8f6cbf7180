//! What can follow a partly written statement.

use super::tokens::{Kind, lex};
use super::{MAX_SOURCE, grammar, input};

/// Keywords that can stand at the end of `prefix`, whole and in capitals: where it ends in a part of a word, those that
/// begin with it, in any case; else all that can follow. None where only a text, a number or a sign can, inside of texts and
/// comments, behind a mistake, and right behind a number.
pub fn completions(prefix: &str) -> Vec<String> {
    // A letter in place of what is typed next: with it, the last token is a word or the place takes none.
    let probed = format!("{prefix}x");
    if probed.len() > MAX_SOURCE {
        return Vec::new();
    }
    let mut tokens = lex(&probed);
    let part = match tokens.pop() {
        Some(token) if matches!(token.kind, Kind::Word(_)) && token.span.end == probed.len() => {
            &prefix[token.span.start..]
        }
        _ => return Vec::new(),
    };
    let part = part.to_uppercase();
    let mut input = input::over(&tokens);
    // Where it fails, what was expected at the end is still known.
    let _ = grammar::statements(&mut input);
    let words = input
        .state
        .at_end()
        .into_iter()
        .filter(|word| word.starts_with(&part));
    words.map(str::to_owned).collect()
}
