//! The TRACE language: text to statements and back.
//!
//! [`parse`] reads statements, their `Display` writes them in one canonical form that reads back equal, and [`completions`]
//! says how a partly written one can go on. The reference for users is `docs/src/trace-language.md`.

mod ast;
mod complete;
mod error;
mod grammar;
mod input;
mod print;
#[cfg(test)]
mod tests;
mod tokens;
mod values;

use std::ops::Range;

pub use ast::{Edit, Fact, Format, How, Layers, Patch, Positions, Site, Statement, Trace};
pub use complete::completions;
pub use error::LangError;

/// Bytes of source that are read; more is refused before any of it is looked at.
pub const MAX_SOURCE: usize = 1 << 20;

/// A value with the bytes of source that it was read from.
#[derive(Debug, Clone, PartialEq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Bytes of the source, from the first of the statement to its last, without the `;`.
    pub span: Range<usize>,
}

/// The statements of `source`, in order; none for a text of blanks, comments and `;` alone.
///
/// # Errors
///
/// The first thing that is not of the language, or a source over [`MAX_SOURCE`]. Nothing of the text is returned then.
pub fn parse(source: &str) -> Result<Vec<Spanned<Statement>>, LangError> {
    if source.len() > MAX_SOURCE {
        return Err(LangError::new(
            0..0,
            format!(
                "the statements are {} bytes long, at most {MAX_SOURCE} are read",
                source.len()
            ),
        )
        .help("split them into several files"));
    }
    let tokens = tokens::lex(source);
    let mut input = input::over(&tokens);
    grammar::statements(&mut input).map_err(|error| input.state.report(error, &tokens))
}
