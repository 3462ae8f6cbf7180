//! `cbtop tokenize`: text to token ids and back; a file with nothing but a vocabulary will do.

use crate::cli::TokenizeArgs;
use anyhow::{Context, bail};
use cbtop::session::{Source, load};
use cbtop::tokenizer::Tokenizer;
use std::io::{Read, Write};
use std::process::ExitCode;

/// Text read from standard input at most: a mistyped pipe must not fill the memory.
const MAX_INPUT: u64 = 256 << 20;

/// Encodes or decodes and prints.
pub fn run(args: &TokenizeArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let gguf = load::open(&Source::File(args.model.clone()))?;
    let tokenizer =
        Tokenizer::from_gguf(&gguf).with_context(|| args.model.display().to_string())?;
    let input = match &args.text {
        Some(text) => text.clone(),
        None => read_stdin()?,
    };
    if args.decode {
        let text = tokenizer.decode(&parse_ids(&input)?)?;
        out.write_all(text.as_bytes())?;
    } else {
        let ids = tokenizer.encode(&input, args.special, args.parse_special)?;
        serde_json::to_writer(&mut *out, &serde_json::json!({ "ids": ids }))
            .map_err(std::io::Error::from)?;
    }
    writeln!(out)?;
    Ok(ExitCode::SUCCESS)
}

fn read_stdin() -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .take(MAX_INPUT + 1)
        .read_to_end(&mut bytes)
        .context("reading standard input")?;
    if bytes.len() as u64 > MAX_INPUT {
        bail!(
            "standard input is longer than {} MiB; split it",
            MAX_INPUT >> 20
        );
    }
    String::from_utf8(bytes).context("standard input is not UTF-8 text")
}

/// Ids separated by spaces, commas or line ends; brackets, as this command prints them, are taken too.
pub fn parse_ids(text: &str) -> anyhow::Result<Vec<u32>> {
    let text = text.trim();
    let list = match serde_json::from_str::<serde_json::Value>(text) {
        Ok(serde_json::Value::Object(o)) if o.contains_key("ids") => o["ids"].to_string(),
        _ => text.to_owned(),
    };
    list.trim_start_matches('[')
        .trim_end_matches(']')
        .split([' ', ',', '\n', '\r', '\t'])
        .filter(|s| !s.is_empty())
        .map(|s| {
            s.parse().with_context(|| {
                format!("'{s}' is not a token id; give numbers separated by spaces")
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::parse_ids;

    #[test]
    fn ids_come_in_every_usual_form() {
        for text in [
            "1 2 3",
            "1,2,3",
            "[1, 2, 3]",
            "{\"ids\":[1,2,3]}\n",
            " 1\n2\t3 ",
        ] {
            assert_eq!(parse_ids(text).unwrap(), [1, 2, 3], "{text:?}");
        }
        assert!(parse_ids("").unwrap().is_empty());
        for text in ["1 x", "-1", "4294967296", "1.5"] {
            assert!(parse_ids(text).is_err(), "{text:?}");
        }
    }
}
