//! Text to tokens.

use std::ops::Range;

use winnow::LocatingSlice;
use winnow::combinator::{alt, eof, opt, peek, preceded, repeat};
use winnow::prelude::*;
use winnow::stream::Location;
use winnow::token::{any, one_of, take_till, take_until, take_while};

use super::error::{LangError, quote};
use super::input::{Res, cut};

type Source<'s> = LocatingSlice<&'s str>;

/// What a token is.
#[derive(Debug, Clone)]
pub(super) enum Kind<'s> {
    /// A keyword, or what is meant to be one.
    Word(&'s str),
    /// An unsigned number as written.
    Number(&'s str),
    /// A text in quotes, escapes resolved.
    Text(String),
    /// `->`, `-`, `+`, `,`, `:` or `;`.
    Symbol(&'static str),
    /// What is no token; always the last one.
    Invalid(LangError),
}

/// A token and the bytes of source it stands for.
#[derive(Debug, Clone)]
pub(super) struct Token<'s> {
    pub kind: Kind<'s>,
    pub span: Range<usize>,
}

impl Location for Token<'_> {
    fn previous_token_end(&self) -> usize {
        self.span.end
    }

    fn current_token_start(&self) -> usize {
        self.span.start
    }
}

/// The tokens of `source`. What is no token is kept as the last one, so that a mistake in front of it is reported first.
pub(super) fn lex(source: &str) -> Vec<Token<'_>> {
    let mut input = LocatingSlice::new(source);
    let mut tokens = Vec::new();
    // Editors put it at the front of files.
    let _: Res<Option<char>> = opt('\u{feff}').parse_next(&mut input);
    loop {
        match preceded(blanks, alt((eof.value(None), token.map(Some)))).parse_next(&mut input) {
            Ok(Some(token)) => tokens.push(token),
            Ok(None) => return tokens,
            Err(error) => {
                let at = input.current_token_start();
                let error = error.into_inner().ok().and_then(|failure| failure.0);
                let error = error.map_or_else(
                    || LangError::new(at..at, "not of the language"),
                    |error| *error,
                );
                tokens.push(Token {
                    span: error.span.clone(),
                    kind: Kind::Invalid(error),
                });
                return tokens;
            }
        }
    }
}

fn blanks(input: &mut Source<'_>) -> Res<()> {
    let space = take_while(1.., char::is_whitespace).void();
    let line = ("--", take_till(0.., '\n')).void();
    repeat(0.., alt((space, line, block_comment))).parse_next(input)
}

fn block_comment(input: &mut Source<'_>) -> Res<()> {
    let start = input.current_token_start();
    "/*".parse_next(input)?;
    let end: Res<Option<_>> = opt((take_until(0.., "*/"), "*/")).parse_next(input);
    end?.map(|_| ()).ok_or_else(|| {
        cut(
            LangError::new(start..start + 2, "a comment that does not end")
                .help("close it with */"),
        )
    })
}

fn token<'s>(input: &mut Source<'s>) -> Res<Token<'s>> {
    alt((word, number, text, symbol, stray))
        .with_span()
        .map(|(kind, span)| Token { kind, span })
        .parse_next(input)
}

fn word<'s>(input: &mut Source<'s>) -> Res<Kind<'s>> {
    (
        one_of(|c: char| c.is_alphabetic() || c == '_'),
        take_while(0.., is_word),
    )
        .take()
        .map(Kind::Word)
        .parse_next(input)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn digits<'s>(input: &mut Source<'s>) -> Res<&'s str> {
    take_while(1.., |c: char| c.is_ascii_digit()).parse_next(input)
}

fn number<'s>(input: &mut Source<'s>) -> Res<Kind<'s>> {
    let start = input.current_token_start();
    let mantissa = alt(((digits, opt(('.', digits))).void(), ('.', digits).void()));
    let exponent = (one_of(['e', 'E']), opt(one_of(['+', '-'])), digits);
    let number: &str = (mantissa, opt(exponent)).take().parse_next(input)?;
    let end = input.current_token_start();
    let glued: &str = take_while(0.., is_word).parse_next(input)?;
    if !glued.is_empty() {
        let message = format!("{} is not a number", quote(&format!("{number}{glued}")));
        return Err(cut(LangError::new(start..end + glued.len(), message)
            .help("put a blank between number and word")));
    }
    // `5--9` would be 5 and a comment, and the 9 lost without a word.
    let comment = peek(opt(("--", digits))).parse_next(input)?;
    if comment.is_some() {
        let error = LangError::new(end..end + 2, "`--` starts a comment");
        return Err(cut(error.help(
            "a range is written with one `-`; put a blank before a comment",
        )));
    }
    Ok(Kind::Number(number))
}

fn symbol<'s>(input: &mut Source<'s>) -> Res<Kind<'s>> {
    alt((
        "->".value("->"),
        "-".value("-"),
        "+".value("+"),
        ",".value(","),
        ":".value(":"),
        ";".value(";"),
    ))
    .map(Kind::Symbol)
    .parse_next(input)
}

fn text<'s>(input: &mut Source<'s>) -> Res<Kind<'s>> {
    let start = input.current_token_start();
    let quote = one_of(['"', '\'']).parse_next(input)?;
    let mut text = String::new();
    loop {
        text.push_str(take_till(0.., |c| c == quote || c == '\\').parse_next(input)?);
        match opt(any).parse_next(input)? {
            Some('\\') => text.extend(escape(input)?),
            Some(_) => return Ok(Kind::Text(text)),
            None => {
                let error = LangError::new(start..start + 1, "a text that does not end");
                return Err(cut(error.help(format!(
                    "close it with {quote}; inside of it write \\{quote}"
                ))));
            }
        }
    }
}

/// What stands after a backslash; nothing at the end of the source, where the text itself is at fault.
fn escape(input: &mut Source<'_>) -> Res<Option<char>> {
    let start = input.current_token_start() - 1;
    let Some(c) = opt(any).parse_next(input)? else {
        return Ok(None);
    };
    let plain = match c {
        '"' | '\'' | '\\' => c,
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'u' => return unicode(input, start).map(Some),
        _ => {
            let end = input.current_token_start();
            let message = format!("{} is no escape", quote(&format!("\\{c}")));
            let error = LangError::new(start..end, message);
            return Err(cut(error.help(
                "there are \\\" \\' \\\\ \\n \\r \\t \\u{..}; write \\\\ for a backslash",
            )));
        }
    };
    Ok(Some(plain))
}

fn unicode(input: &mut Source<'_>, start: usize) -> Res<char> {
    let hex = take_while(1..=6, |c: char| c.is_ascii_hexdigit());
    let digits: Option<&str> = opt(('{', hex, '}').map(|(_, hex, _)| hex)).parse_next(input)?;
    let code = digits.and_then(|hex| u32::from_str_radix(hex, 16).ok());
    code.and_then(char::from_u32).ok_or_else(|| {
        let end = input.current_token_start();
        let error = LangError::new(
            start..end,
            "`\\u` takes the number of a character in hexadecimal",
        );
        cut(error.help("write \\u{e9} for é, one to six digits in braces"))
    })
}

/// A character that starts no token.
fn stray<'s>(input: &mut Source<'s>) -> Res<Kind<'s>> {
    let start = input.current_token_start();
    let c: char = any.parse_next(input)?;
    let error = LangError::new(
        start..start + c.len_utf8(),
        format!("{} is not of the language", quote(&c.to_string())),
    );
    let help = match c {
        '“' | '”' | '„' | '‘' | '’' | '«' | '»' | '`' => {
            "texts stand in straight quotes, \"like this\""
        }
        '–' | '—' | '−' => "a range is written with a plain `-`",
        '→' => "write `->`",
        '.' => "a range is written a-b",
        _ => "texts stand in double quotes",
    };
    Err(cut(error.help(help)))
}
