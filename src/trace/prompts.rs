//! Files of prompts with their answers: `prompt<TAB>answer` or `{"prompt": .., "answer": ..}` a line.

use serde::Deserialize;

/// A text and the word that should follow it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Prompt {
    /// The text.
    pub prompt: String,
    /// The word.
    pub answer: String,
}

/// A line that is neither.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {line}: {what}; a line is prompt, tab, answer or {{\"prompt\": \"..\", \"answer\": \"..\"}}"
)]
pub struct PromptError {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

/// The prompts of a file with the numbers of their lines. Blank lines and lines that begin with `#` are skipped.
pub fn prompts(text: &[u8]) -> impl Iterator<Item = Result<(usize, Prompt), PromptError>> {
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    let lines = text.split(|b| *b == b'\n').enumerate();
    lines.filter_map(|(i, bytes)| {
        let found = match std::str::from_utf8(bytes) {
            Ok(line) => prompt(line.strip_suffix('\r').unwrap_or(line)),
            Err(_) => Err("it is not UTF-8"),
        };
        let line = i + 1;
        match found {
            Ok(prompt) => prompt.map(|p| Ok((line, p))),
            Err(what) => Some(Err(PromptError { line, what })),
        }
    })
}

fn prompt(line: &str) -> Result<Option<Prompt>, &'static str> {
    if line.trim().is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let found = if line.starts_with('{') {
        serde_json::from_str(line)
            .map_err(|_| "it begins as JSON and is not a prompt with an answer")?
    } else {
        let (prompt, answer) = line.split_once('\t').ok_or("it has no tab")?;
        if answer.contains('\t') {
            return Err("it has more than one tab");
        }
        Prompt {
            prompt: prompt.into(),
            answer: answer.into(),
        }
    };
    match found {
        Prompt { prompt, .. } if prompt.is_empty() => Err("its prompt is empty"),
        Prompt { answer, .. } if answer.trim().is_empty() => Err("its answer is empty"),
        found => Ok(Some(found)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_forms_are_read_and_the_rest_is_named() {
        let text = "\u{feff}# capitals\n\nThe capital of X is\tY\r\n{\"prompt\": \"a\\tb\", \"answer\": \" c\", \"n\": 1}\n \nno tab\n\
                    a\tb\tc\n\tb\na\t \n{\"prompt\": 3}\n{}";
        let found: Vec<_> = prompts(text.as_bytes()).collect();
        let good = |line, prompt: &str, answer: &str| {
            let (prompt, answer) = (prompt.into(), answer.into());
            Ok((line, Prompt { prompt, answer }))
        };
        assert_eq!(found[0], good(3, "The capital of X is", "Y"));
        assert_eq!(found[1], good(4, "a\tb", " c"));
        let errors: Vec<_> = found[2..]
            .iter()
            .map(|e| e.as_ref().expect_err("an error").line)
            .collect();
        assert_eq!(errors, [6, 7, 8, 9, 10, 11]);
        let message = prompts(b"x").next().expect("one").expect_err("none");
        assert_eq!(
            message.to_string(),
            "line 1: it has no tab; a line is prompt, tab, answer or {\"prompt\": \"..\", \"answer\": \"..\"}"
        );
        let bad = prompts(b"\n\xff\tx").next().expect("one");
        assert_eq!(bad.expect_err("not text").what, "it is not UTF-8");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for found in prompts(&bytes).flatten() {
                prop_assert!(!found.1.prompt.is_empty() && !found.1.answer.is_empty());
            }
        }
    }
}
