//! From a word of a statement to the tokens that would say it after a prompt.

use super::TraceError;
use super::figures::TokenText;
use crate::tokenizer::Tokenizer;

/// A prompt as a trace runs it: special tokens in front as the file asks, none appended.
///
/// # Errors
/// A text that cannot be encoded, or one without tokens.
pub fn encode(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, TraceError> {
    let mut ids = tokenizer.encode(text, true, true)?;
    // A file may ask for an end-of-text token, behind which nothing of the prompt would be continued.
    let plain = tokenizer.encode(text, false, true)?;
    while ids.len() > plain.len()
        && ids.last().is_some_and(|id| Some(*id) == tokenizer.eos())
        && plain.last() != ids.last()
    {
        ids.pop();
    }
    if ids.is_empty() {
        let message = "the prompt has no tokens; give a text between the quotes";
        return Err(TraceError::Statement(message.into()));
    }
    Ok(ids)
}

/// The ways a word can follow a prompt, each as its tokens: with a space in front, and without one; where the prompt ends
/// with white space or the word begins with it, only as it stands.
///
/// # Errors
/// A word that cannot be encoded, or one without tokens.
pub fn continuations(
    tokenizer: &Tokenizer,
    prompt: &str,
    word: &str,
) -> Result<Vec<Vec<u32>>, TraceError> {
    let open = prompt
        .chars()
        .next_back()
        .is_some_and(|c| !c.is_whitespace());
    let as_it_is = word.starts_with(char::is_whitespace) || !open;
    let spaced = format!(" {word}");
    let forms: &[&str] = if as_it_is { &[word] } else { &[&spaced, word] };
    let mut all: Vec<Vec<u32>> = Vec::new();
    for form in forms {
        let ids = continuation(tokenizer, prompt, form)?;
        if !ids.is_empty() && !all.contains(&ids) {
            all.push(ids);
        }
    }
    if all.is_empty() {
        return Err(TraceError::Statement(format!(
            "'{word}' has no tokens in this vocabulary; give another word after FOR"
        )));
    }
    Ok(all)
}

/// The tokens of `form` behind a prompt, cut where the prompt's own end; where the two would merge, those of `form` alone.
fn continuation(tokenizer: &Tokenizer, prompt: &str, form: &str) -> Result<Vec<u32>, TraceError> {
    let before = tokenizer.encode(prompt, false, true)?;
    let both = tokenizer.encode(&format!("{prompt}{form}"), false, true)?;
    if let Some(rest) = both.strip_prefix(&before[..])
        && !rest.is_empty()
    {
        return Ok(rest.to_vec());
    }
    Ok(tokenizer.encode(form, false, true)?)
}

/// A token with its text.
pub fn text(tokenizer: &Tokenizer, id: u32) -> TokenText {
    let bytes = tokenizer.token_bytes(id).unwrap_or_default();
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) if !text.is_empty() => text.to_owned(),
        // A control token has no bytes, and a byte of a longer character is no text of its own.
        _ => tokenizer.token_text(id).unwrap_or("?").to_owned(),
    };
    TokenText { id, text }
}
