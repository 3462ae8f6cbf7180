//! The parsers that the grammar is made of, and what they keep for messages and completions.

use std::ops::Range;

use winnow::combinator::{cut_err, opt};
use winnow::error::{ErrMode, ParserError};
use winnow::prelude::*;
use winnow::stream::{Stateful, Stream, TokenSlice};

use super::error::{LangError, either, meant, quote};
use super::tokens::{Kind, Token};

/// A parser's result.
pub(super) type Res<T> = Result<T, ErrMode<Failure>>;

/// What the grammar reads.
pub(super) type Input<'t, 's> = Stateful<TokenSlice<'t, Token<'s>>, State>;

/// A clear error, or none where what was expected says it all (see [`State`]).
#[derive(Debug)]
pub(super) struct Failure(pub Option<Box<LangError>>);

impl<I: Stream> ParserError<I> for Failure {
    type Inner = Self;

    fn from_input(_: &I) -> Self {
        Self(None)
    }

    fn into_inner(self) -> Result<Self, Self> {
        Ok(self)
    }
}

/// An error that no other reading of the text can mend.
pub(super) fn cut(error: LangError) -> ErrMode<Failure> {
    ErrMode::Cut(Failure(Some(Box::new(error))))
}

/// What could have stood at the furthest token looked at.
#[derive(Debug)]
pub(super) struct State {
    /// Which statement is read, from 1.
    pub number: usize,
    /// What the statement or clause now read takes, for a message's help.
    pub usage: &'static str,
    /// The statement that is complete, where only a clause or its end can follow.
    pub complete: Option<&'static str>,
    /// Tokens from the furthest one looked at to the end.
    left: usize,
    /// Keywords that could stand there.
    pub keywords: Vec<&'static str>,
    /// What else could.
    others: Vec<&'static str>,
}

/// A stream over all tokens of a source.
pub(super) fn over<'t, 's>(tokens: &'t [Token<'s>]) -> Input<'t, 's> {
    let state = State {
        number: 0,
        usage: "",
        complete: None,
        left: usize::MAX,
        keywords: Vec::new(),
        others: Vec::new(),
    };
    Stateful {
        input: TokenSlice::new(tokens),
        state,
    }
}

impl State {
    fn at(&mut self, left: usize) -> bool {
        if left < self.left {
            self.left = left;
            self.keywords.clear();
            self.others.clear();
        }
        left == self.left
    }

    /// Keywords that can follow the last token.
    pub fn at_end(self) -> Vec<&'static str> {
        if self.left == 0 {
            self.keywords
        } else {
            Vec::new()
        }
    }

    /// The error that a failed parse of `tokens` is shown as.
    pub fn report(&self, error: ErrMode<Failure>, tokens: &[Token<'_>]) -> LangError {
        let clear = error.into_inner().ok().and_then(|failure| failure.0);
        let mut error = clear.map_or_else(|| self.unexpected(tokens), |error| *error);
        let last = tokens.len().saturating_sub(1);
        if tokens
            .iter()
            .take(last)
            .any(|token| matches!(token.kind, Kind::Symbol(";")))
        {
            error.message = format!("statement {}: {}", self.number, error.message);
        }
        error
    }

    fn unexpected(&self, tokens: &[Token<'_>]) -> LangError {
        let end = tokens.last().map_or(0, |token| token.span.end);
        let token = tokens
            .len()
            .checked_sub(self.left)
            .and_then(|at| tokens.get(at));
        let found = match token.map(|token| &token.kind) {
            Some(Kind::Invalid(error)) => return error.clone(),
            Some(Kind::Word(word)) => quote(word),
            Some(Kind::Number(number)) => quote(number),
            Some(Kind::Text(_)) => "a text".to_owned(),
            Some(Kind::Symbol(symbol)) => quote(symbol),
            None => "the end".to_owned(),
        };
        let clause = self
            .complete
            .filter(|_| !self.keywords.is_empty())
            .map(|verb| format!("a clause of {verb}"));
        let keywords: Vec<&str> = clause
            .as_ref()
            .map_or_else(|| self.keywords.clone(), |clause| vec![clause]);
        let expected: Vec<&str> = keywords
            .into_iter()
            .chain(self.others.iter().copied())
            .collect();
        let span = token.map_or(end..end, |token| token.span.clone());
        let error = LangError::new(
            span,
            format!("expected {}, found {found}", either(&expected)),
        );
        match token.map(|token| &token.kind) {
            Some(Kind::Word(word)) => match meant(word, &self.keywords) {
                Some(keyword) => error.help(format!("did you mean {keyword}?")),
                None => error.help(self.usage),
            },
            _ => error.help(self.usage),
        }
    }
}

/// The word that comes next, with its place.
pub(super) fn next_word<'t, 's>(input: &Input<'t, 's>) -> Option<(&'s str, Range<usize>)> {
    match input.peek_token() {
        Some(Token {
            kind: Kind::Word(word),
            span,
        }) => Some((word, span.clone())),
        _ => None,
    }
}

/// Notes that `word` could come next, and says whether it does.
pub(super) fn is_next(input: &mut Input<'_, '_>, word: &'static str) -> bool {
    let left = input.eof_offset();
    if input.state.at(left) && !input.state.keywords.contains(&word) {
        input.state.keywords.push(word);
    }
    next_word(input).is_some_and(|(next, _)| next.eq_ignore_ascii_case(word))
}

/// A token that `read` takes, which messages call `what`.
fn one<'t, 's: 't, T>(
    what: &'static str,
    read: impl Fn(&'t Kind<'s>) -> Option<T>,
) -> impl FnMut(&mut Input<'t, 's>) -> Res<(T, Range<usize>)> {
    move |input| {
        let left = input.eof_offset();
        if input.state.at(left) && !input.state.others.contains(&what) {
            input.state.others.push(what);
        }
        let token = input.peek_token();
        let read = token.and_then(|token| Some((read(&token.kind)?, token.span.clone())));
        let read = read.ok_or(ErrMode::Backtrack(Failure(None)))?;
        input.next_token();
        Ok(read)
    }
}

/// A keyword, in any case.
pub(super) fn keyword<'t, 's>(word: &'static str) -> impl FnMut(&mut Input<'t, 's>) -> Res<()> {
    move |input| {
        if !is_next(input, word) {
            return Err(ErrMode::Backtrack(Failure(None)));
        }
        input.next_token();
        Ok(())
    }
}

/// One of the symbols, which messages call `what`.
pub(super) fn symbol<'t, 's>(
    symbol: &'static str,
    what: &'static str,
) -> impl FnMut(&mut Input<'t, 's>) -> Res<()> {
    move |input| {
        let same =
            |kind: &Kind<'_>| matches!(kind, Kind::Symbol(next) if *next == symbol).then_some(());
        one(what, same)(input).map(|_| ())
    }
}

/// A text in quotes, not an empty one; messages call it `what`.
pub(super) fn text<'t, 's>(what: &'static str) -> impl FnMut(&mut Input<'t, 's>) -> Res<String> {
    move |input| {
        let read = |kind: &Kind<'_>| {
            if let Kind::Text(text) = kind {
                Some(text.clone())
            } else {
                None
            }
        };
        let (text, span) = one(what, read)(input)?;
        if text.is_empty() {
            return Err(cut(
                LangError::new(span, format!("{what} is empty")).help(input.state.usage)
            ));
        }
        Ok(text)
    }
}

/// Passes over symbols that messages do not mention, and says whether there were any.
pub(super) fn skip(input: &mut Input<'_, '_>, symbol: &str) -> bool {
    let mut any = false;
    while matches!(input.peek_token(), Some(Token { kind: Kind::Symbol(next), .. }) if *next == symbol)
    {
        input.next_token();
        any = true;
    }
    any
}

/// An unsigned number as written.
pub(super) fn digits<'t, 's>(input: &mut Input<'t, 's>) -> Res<(&'s str, Range<usize>)> {
    one("a number", |kind| {
        if let Kind::Number(number) = kind {
            Some(*number)
        } else {
            None
        }
    })(input)
}

/// A whole number of 32 bits.
pub(super) fn whole(input: &mut Input<'_, '_>) -> Res<(u32, Range<usize>)> {
    let (number, span) = digits(input)?;
    if !number.bytes().all(|b| b.is_ascii_digit()) {
        let error = LangError::new(span, format!("{} is not a whole number", quote(number)));
        return Err(cut(error.help(input.state.usage)));
    }
    match number.parse() {
        Ok(value) => Ok((value, span)),
        Err(_) => {
            let error = LangError::new(span, format!("{} is too large", quote(number)));
            Err(cut(error.help(format!("numbers go up to {}", u32::MAX))))
        }
    }
}

/// `n`, or `a-b` with a not over b.
pub(super) fn number_or_range(input: &mut Input<'_, '_>) -> Res<(u32, Option<u32>)> {
    let (first, from) = whole(input)?;
    if opt(symbol("-", "`-`")).parse_next(input)?.is_none() {
        return Ok((first, None));
    }
    let (last, to) = cut_err(whole).parse_next(input)?;
    if first > last {
        let error = LangError::new(
            from.start..to.end,
            format!("the range {first}-{last} runs backwards"),
        );
        return Err(cut(error.help(format!("write {last}-{first}"))));
    }
    Ok((first, Some(last)))
}

/// One or more of `item`, with commas between them.
pub(super) fn list<'t, 's: 't, T>(
    mut item: impl FnMut(&mut Input<'t, 's>) -> Res<T>,
) -> impl FnMut(&mut Input<'t, 's>) -> Res<Vec<T>> {
    move |input| {
        let mut items = vec![item(input)?];
        while opt(symbol(",", "`,`")).parse_next(input)?.is_some() {
            items.push(cut_err(&mut item).parse_next(input)?);
        }
        Ok(items)
    }
}
