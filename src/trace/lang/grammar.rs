//! The grammar: what follows what. Every keyword stands in a table or a [`keyword`] here, and completions come from the same.

use winnow::combinator::{alt, cut_err, fail, opt, preceded};
use winnow::error::{ErrMode, ParserError};
use winnow::prelude::*;
use winnow::stream::{Location, Stream};

use super::Spanned;
use super::ast::{Edit, Fact, Format, How, Layers, Patch, Positions, Site, Statement, Trace};
use super::error::{LangError, either, meant, quote};
use super::input::{
    Failure, Input, Res, cut, is_next, keyword, list, next_word, skip, symbol, text,
};
use super::values::{block, format, layer, layers, positions, scale, site, top};

/// A clause that a statement may have once, and what it writes to.
struct Clause<T> {
    word: &'static str,
    usage: &'static str,
    read: fn(&mut Input<'_, '_>, &mut T) -> Res<()>,
}

impl<T> Clause<T> {
    fn is(&self, word: &str) -> bool {
        self.word.eq_ignore_ascii_case(word)
    }
}

/// What a statement starts with.
struct Verb {
    word: &'static str,
    usage: &'static str,
    read: fn(&mut Input<'_, '_>) -> Res<Statement>,
}

const VERBS: &[Verb] = &[
    Verb {
        word: "TRACE",
        usage: "TRACE takes a prompt in quotes and then clauses",
        read: trace,
    },
    Verb {
        word: "PATCH",
        usage: "write PATCH \"prompt\" FROM \"other prompt\" FOR \"word\"",
        read: patch,
    },
    Verb {
        word: "INSERT",
        usage: "write INSERT \"prompt\" -> \"answer\"",
        read: insert,
    },
    Verb {
        word: "DELETE",
        usage: "write DELETE \"prompt\" -> \"answer\"",
        read: delete,
    },
    Verb {
        word: "FACTS",
        usage: "FACTS stands alone",
        read: facts,
    },
];

const EDITS: &str = "an edit is ZERO, SCALE x or REPLACE, then a site and AT LAYER n";
const LAYERS: &str = "LAYERS takes ALL, a-b, EVERY k or a list such as 1,5,9";
const POSITIONS: &str = "POSITIONS takes ALL, LAST, n or a-b";
const FORMAT: &str = "FORMAT takes TABLE, JSON or CSV";

const TRACE: &[Clause<Trace>] = &[
    Clause {
        word: "FOR",
        usage: "FOR takes one or more words in quotes, with commas between them",
        read: |input, to| set(list(text("a word"))(input), &mut to.answers),
    },
    Clause {
        word: "DECOMPOSE",
        usage: "DECOMPOSE stands alone",
        read: |_, to| set(Ok(true), &mut to.decompose),
    },
    Clause {
        word: "HEADS",
        usage: "HEADS stands alone",
        read: |_, to| set(Ok(true), &mut to.heads),
    },
    Clause {
        word: "LAYERS",
        usage: LAYERS,
        read: |input, to| set(layers(input).map(Some), &mut to.layers),
    },
    Clause {
        word: "POSITIONS",
        usage: POSITIONS,
        read: |input, to| set(positions(input).map(Some), &mut to.positions),
    },
    Clause {
        word: "TOP",
        usage: "TOP takes a number from 1 to 1000",
        read: |input, to| set(top(input).map(Some), &mut to.top),
    },
    Clause {
        word: "AFTER",
        usage: "AFTER takes ATTENTION",
        read: |input, to| {
            set(
                keyword("ATTENTION")(input).map(|()| true),
                &mut to.after_attention,
            )
        },
    },
    Clause {
        word: "WITH",
        usage: EDITS,
        read: |input, to| set(list(edit)(input), &mut to.edits),
    },
    Clause {
        word: "SAVE",
        usage: "SAVE takes the name of a file in quotes",
        read: |input, to| set(text("the file")(input).map(Some), &mut to.save),
    },
    Clause {
        word: "FORMAT",
        usage: FORMAT,
        read: |input, to| set(format(input).map(Some), &mut to.format),
    },
];

const PATCH: &[Clause<Draft>] = &[
    Clause {
        word: "FROM",
        usage: "FROM takes the other prompt in quotes",
        read: |input, to| set(text("the other prompt")(input).map(Some), &mut to.source),
    },
    Clause {
        word: "FOR",
        usage: "FOR takes the word that is watched, in quotes",
        read: |input, to| set(one_word(input).map(Some), &mut to.answer),
    },
    Clause {
        word: "SITE",
        usage: "SITE takes ATTENTION, FFN or RESIDUAL",
        read: |input, to| set(block(input).map(Some), &mut to.site),
    },
    Clause {
        word: "LAYERS",
        usage: LAYERS,
        read: |input, to| set(layers(input).map(Some), &mut to.layers),
    },
    Clause {
        word: "FORMAT",
        usage: FORMAT,
        read: |input, to| set(format(input).map(Some), &mut to.format),
    },
];

const FACT: &[Clause<Option<u32>>] = &[Clause {
    word: "LAYER",
    usage: "LAYER takes the number of a layer, from 1",
    read: |input, to| set(layer(input).map(Some), to),
}];

const AT: Clause<Change> = Clause {
    word: "AT",
    usage: "AT takes LAYER n, from 1",
    read: |input, to| set(at_layer(input).map(Some), &mut to.layer),
};

const POSITION: Clause<Change> = Clause {
    word: "POSITION",
    usage: "POSITION takes ALL, LAST, n or a-b",
    read: |input, to| set(positions(input).map(Some), &mut to.positions),
};

const FROM: Clause<Change> = Clause {
    word: "FROM",
    usage: "FROM takes a prompt in quotes, or FILE and the name of a saved trace",
    read: |input, to| set(origin(input).map(Some), &mut to.from),
};

/// Clauses of `ZERO` and `SCALE`.
const EDIT: &[Clause<Change>] = &[AT, POSITION];
const REPLACE: &[Clause<Change>] = &[AT, POSITION, FROM];

/// A `PATCH` as far as it is read.
#[derive(Default)]
struct Draft {
    source: Option<String>,
    answer: Option<String>,
    site: Option<Site>,
    layers: Option<Layers>,
    format: Option<Format>,
}

/// An edit as far as it is read.
#[derive(Default)]
struct Change {
    layer: Option<u32>,
    positions: Option<Positions>,
    from: Option<How>,
}

/// All statements of a source.
pub(super) fn statements(input: &mut Input<'_, '_>) -> Res<Vec<Spanned<Statement>>> {
    let mut statements = Vec::new();
    loop {
        skip(input, ";");
        input.state.number = statements.len() + 1;
        input.state.usage = "a statement starts with one of these words";
        let verb = VERBS.iter().filter(|verb| is_next(input, verb.word)).last();
        if input.peek_token().is_none() {
            return Ok(statements);
        }
        let start = input.current_token_start();
        let Some(verb) = verb else {
            return fail.parse_next(input);
        };
        input.next_token();
        input.state.usage = verb.usage;
        let value = cut_err(verb.read).parse_next(input)?;
        statements.push(Spanned {
            value,
            span: start..input.previous_token_end(),
        });
        if input.peek_token().is_none() {
            return Ok(statements);
        }
        if opt(symbol(";", "`;`")).parse_next(input)?.is_none() {
            return Err(stray(input, verb));
        }
    }
}

/// The error for what stands behind a statement and is neither a clause of it nor `;`.
fn stray(input: &mut Input<'_, '_>, verb: &Verb) -> ErrMode<Failure> {
    let Some((word, span)) = next_word(input) else {
        input.state.complete = Some(verb.word);
        return ErrMode::from_input(input);
    };
    if VERBS
        .iter()
        .any(|verb| verb.word.eq_ignore_ascii_case(word))
    {
        let error = LangError::new(span, format!("`;` is missing in front of {}", quote(word)));
        return cut(error.help("every statement but the last ends with `;`"));
    }
    let error = LangError::new(
        span,
        format!("{} is no clause of {}", quote(word), verb.word),
    );
    let known = &input.state.keywords;
    let edits = verb.word == "TRACE"
        && !known.contains(&"WITH")
        && REPLACE.iter().any(|clause| clause.is(word));
    cut(match meant(word, known) {
        _ if edits => {
            error.help("AT, POSITION and FROM stand right behind the edit that WITH makes")
        }
        Some(clause) => error.help(format!("did you mean {clause}?")),
        None if known.is_empty() => error.help("end the statement with `;`"),
        None => error.help(format!("what can stand here: {}", either(known))),
    })
}

/// Clauses of `table` in any order, each at most once, up to what is none of them.
fn clauses<T>(input: &mut Input<'_, '_>, table: &[Clause<T>], to: &mut T) -> Res<()> {
    let mut seen = vec![false; table.len()];
    loop {
        let mut next = None;
        for (clause, seen) in table.iter().zip(&mut seen) {
            if !*seen {
                *seen = is_next(input, clause.word);
                next = next.or(seen.then_some(clause));
            } else if let Some((_, span)) = next_word(input).filter(|(word, _)| clause.is(word)) {
                let error = LangError::new(span, format!("{} is given twice", clause.word));
                return Err(cut(
                    error.help("a clause may stand once; take one of them out")
                ));
            }
        }
        let Some(clause) = next else {
            return Ok(());
        };
        input.next_token();
        input.state.usage = clause.usage;
        cut_err(|input: &mut Input<'_, '_>| (clause.read)(input, to)).parse_next(input)?;
    }
}

fn trace(input: &mut Input<'_, '_>) -> Res<Statement> {
    let mut trace = Trace {
        prompt: text("the prompt")(input)?,
        ..Trace::default()
    };
    clauses(input, TRACE, &mut trace)?;
    Ok(Statement::Trace(trace))
}

fn patch(input: &mut Input<'_, '_>) -> Res<Statement> {
    let start = input.current_token_start();
    let prompt = text("the prompt")(input)?;
    let mut draft = Draft::default();
    clauses(input, PATCH, &mut draft)?;
    let Draft {
        source,
        answer,
        site,
        layers,
        format,
    } = draft;
    let span = start..input.previous_token_end();
    let missing = |clause: &str, help: &str| {
        cut(LangError::new(span.clone(), format!("PATCH needs {clause}")).help(help))
    };
    let source =
        source.ok_or_else(|| missing("FROM", "add FROM \"the prompt that patches come from\""))?;
    let answer =
        answer.ok_or_else(|| missing("FOR", "add FOR \"the word whose logit is watched\""))?;
    Ok(Statement::Patch(Patch {
        prompt,
        source,
        answer,
        site,
        layers,
        format,
    }))
}

fn insert(input: &mut Input<'_, '_>) -> Res<Statement> {
    fact(input).map(Statement::Insert)
}

fn delete(input: &mut Input<'_, '_>) -> Res<Statement> {
    fact(input).map(Statement::Delete)
}

fn facts(_: &mut Input<'_, '_>) -> Res<Statement> {
    Ok(Statement::Facts)
}

fn fact(input: &mut Input<'_, '_>) -> Res<Fact> {
    let (prompt, _, answer) =
        (text("the prompt"), symbol("->", "`->`"), text("the answer")).parse_next(input)?;
    let mut fact = Fact {
        prompt,
        answer,
        layer: None,
    };
    clauses(input, FACT, &mut fact.layer)?;
    Ok(fact)
}

/// Writes what a clause says.
fn set<T>(read: Res<T>, to: &mut T) -> Res<()> {
    *to = read?;
    Ok(())
}

/// The word of a `PATCH`.
fn one_word(input: &mut Input<'_, '_>) -> Res<String> {
    let word = text("a word")(input)?;
    let comma = input.current_token_start();
    if skip(input, ",") {
        let error = LangError::new(comma..comma + 1, "PATCH watches one word");
        return Err(cut(error.help("write a PATCH for each of them")));
    }
    Ok(word)
}

fn at_layer(input: &mut Input<'_, '_>) -> Res<u32> {
    preceded(keyword("LAYER"), cut_err(layer)).parse_next(input)
}

/// Where `REPLACE` takes its values from.
fn origin(input: &mut Input<'_, '_>) -> Res<How> {
    alt((
        preceded(keyword("FILE"), cut_err(text("the file"))).map(How::FromFile),
        text("the prompt").map(How::FromPrompt),
    ))
    .parse_next(input)
}

fn edit(input: &mut Input<'_, '_>) -> Res<Edit> {
    input.state.usage = EDITS;
    let start = input.current_token_start();
    let how = alt((
        keyword("ZERO").value(Some(How::Zero)),
        preceded(keyword("SCALE"), cut_err(scale)).map(|x| Some(How::Scale(x))),
        keyword("REPLACE").value(None),
    ))
    .parse_next(input)?;
    input.state.usage = "what is edited is ATTENTION, FFN, RESIDUAL, HEAD n or NEURON n";
    let site = cut_err(site).parse_next(input)?;
    let mut change = Change::default();
    clauses(
        input,
        if how.is_some() { EDIT } else { REPLACE },
        &mut change,
    )?;
    if let Some((_, span)) = next_word(input).filter(|(word, _)| how.is_some() && FROM.is(word)) {
        let error = LangError::new(span, "only REPLACE takes FROM");
        return Err(cut(error.help("write REPLACE, or take FROM out")));
    }
    let span = start..input.previous_token_end();
    let missing = |clause: &str, help: &str| {
        cut(LangError::new(span.clone(), format!("the edit needs {clause}")).help(help))
    };
    let how = how.or(change.from).ok_or_else(|| {
        missing(
            "FROM",
            "add FROM \"other prompt\" or FROM FILE \"saved trace\"",
        )
    })?;
    let layer = change
        .layer
        .ok_or_else(|| missing("AT LAYER", "add AT LAYER n, from 1"))?;
    Ok(Edit {
        how,
        site,
        layer,
        positions: change.positions,
    })
}
