//! Where statements come from, and what is said while they run.

use super::super::printable;
use crate::cli::TraceArgs;
use anyhow::{Context, bail};
use cbtop::trace::lang::MAX_SOURCE;
use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// What to give, for those who gave nothing.
pub const EXAMPLE: &str =
    "give one, for example: cbtop trace \"TRACE 'The capital of France is' FOR 'Paris'\"";

/// Time between two lines of progress.
const EVERY: Duration = Duration::from_millis(100);

/// A source of statements.
pub struct Input {
    /// How messages name it.
    pub name: String,
    /// The source.
    pub text: String,
}

/// The statements that the command line gives, or those on standard input if it is not a terminal.
pub fn statements(args: &TraceArgs) -> anyhow::Result<Input> {
    if let Some(text) = &args.statements {
        return Ok(Input {
            name: "the argument".into(),
            text: text.clone(),
        });
    }
    let stdin = Path::new("-");
    let path = match &args.file {
        Some(path) => path,
        None if std::io::stdin().is_terminal() => bail!("no statement; {EXAMPLE}"),
        None => stdin,
    };
    let name = name(path);
    let bytes = bytes(path, MAX_SOURCE)?;
    let text = String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let line = e
            .as_bytes()
            .iter()
            .take(at)
            .filter(|b| **b == b'\n')
            .count()
            + 1;
        anyhow::anyhow!("{name}: line {line} is not UTF-8; save it as UTF-8 text")
    })?;
    Ok(Input { name, text })
}

/// How messages name a file.
pub fn name(path: &Path) -> String {
    if path == Path::new("-") {
        "standard input".into()
    } else {
        path.display().to_string()
    }
}

/// A file, or standard input for `-`, of at most `most` bytes.
pub fn bytes(path: &Path, most: usize) -> anyhow::Result<Vec<u8>> {
    let mut all = Vec::new();
    let limit = most as u64 + 1;
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(limit).read_to_end(&mut all)
    } else {
        let file = File::open(path);
        file.and_then(|f| f.take(limit).read_to_end(&mut all))
    };
    let name = name(path);
    read.with_context(|| format!("{name} cannot be read; check the path"))?;
    if all.len() > most {
        bail!("{name} is larger than {most} bytes; split it into several");
    }
    Ok(all)
}

/// A file of text, or standard input for `-`, of at most `most` bytes.
pub fn text(path: &Path, most: usize) -> anyhow::Result<String> {
    match String::from_utf8(bytes(path, most)?) {
        Ok(text) => Ok(text),
        Err(e) => bail!(
            "{} is no UTF-8 text (byte {}); give a text file",
            name(path),
            e.utf8_error().valid_up_to()
        ),
    }
}

/// A line on a terminal that says how far something is, and goes away with this.
pub struct Progress {
    shown: Option<Instant>,
    terminal: bool,
}

impl Progress {
    /// Nothing said yet.
    pub fn new() -> Self {
        Self {
            shown: None,
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Says it, unless that was said just now.
    pub fn show(&mut self, what: &str, done: usize, all: usize) {
        if !self.terminal || self.shown.is_some_and(|at| at.elapsed() < EVERY) {
            return;
        }
        self.shown = Some(Instant::now());
        let mut err = std::io::stderr();
        let _ = write!(err, "\r\x1b[K{} {done} of {all}", printable(&what));
        let _ = err.flush();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
