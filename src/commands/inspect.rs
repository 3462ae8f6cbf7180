//! `cbtop inspect`: what is in a GGUF file, what it needs, and whether it can run.

mod escape;
mod facts;
mod text;

use crate::cli::InspectArgs;
use cbtop::gguf::Gguf;
use cbtop::trace::render::cells;
use facts::Facts;
pub(super) use facts::buffer_bytes;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

/// Prints the file; one that is whole but cannot run is no error, it is described together with the reason.
///
/// # Errors
/// A file that is not a whole GGUF file, or a context length or cache type that cannot be.
pub fn run(args: &InspectArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let gguf = Arc::new(Gguf::open(&args.file)?);
    let facts = Facts::gather(&gguf, args.ctx, args.kv_type)?;
    if args.json {
        let json = serde_json::to_string_pretty(&facts).map_err(std::io::Error::from)?;
        writeln!(out, "{}", cells::json(&json))?;
    } else {
        text::print(&facts, out)?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests;
