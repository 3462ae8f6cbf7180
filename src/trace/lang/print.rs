//! Statements as text: one canonical form, which reads back equal.
//!
//! That holds for every statement that [`parse`](super::parse) makes; one made by hand can say what the language has no
//! words for, such as an empty prompt or list, and then does not read back.

use std::fmt::{Display, Formatter, Result, Write};

use super::ast::{Edit, Fact, Format, How, Layers, Patch, Positions, Site, Statement, Trace};
use super::error::hidden;

/// A text in double quotes.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\t' => f.write_str("\\t")?,
                '\r' => f.write_str("\\r")?,
                c if hidden(c) => write!(f, "\\u{{{:x}}}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// Items with commas between them.
fn list<T: Display>(f: &mut Formatter<'_>, items: impl IntoIterator<Item = T>) -> Result {
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        write!(f, "{item}")?;
    }
    Ok(())
}

/// ` CLAUSE value` where there is a value.
fn clause<T: Display>(f: &mut Formatter<'_>, word: &str, value: Option<T>) -> Result {
    value.map_or(Ok(()), |value| write!(f, " {word} {value}"))
}

/// The statement without a `;`.
impl Display for Statement {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Trace(trace) => trace.fmt(f),
            Self::Patch(patch) => patch.fmt(f),
            Self::Insert(fact) => write!(f, "INSERT {fact}"),
            Self::Delete(fact) => write!(f, "DELETE {fact}"),
            Self::Facts => f.write_str("FACTS"),
        }
    }
}

impl Display for Trace {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "TRACE {}", Quoted(&self.prompt))?;
        if !self.answers.is_empty() {
            f.write_str(" FOR ")?;
            list(f, self.answers.iter().map(|answer| Quoted(answer)))?;
        }
        if self.decompose {
            f.write_str(" DECOMPOSE")?;
        }
        if self.heads {
            f.write_str(" HEADS")?;
        }
        clause(f, "LAYERS", self.layers.as_ref())?;
        clause(f, "POSITIONS", self.positions)?;
        clause(f, "TOP", self.top)?;
        if self.after_attention {
            f.write_str(" AFTER ATTENTION")?;
        }
        if !self.edits.is_empty() {
            f.write_str(" WITH ")?;
            list(f, &self.edits)?;
        }
        clause(f, "SAVE", self.save.as_deref().map(Quoted))?;
        clause(f, "FORMAT", self.format)
    }
}

impl Display for Patch {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let [prompt, source, answer] =
            [&self.prompt, &self.source, &self.answer].map(|text| Quoted(text));
        write!(f, "PATCH {prompt} FROM {source} FOR {answer}")?;
        clause(f, "SITE", self.site)?;
        clause(f, "LAYERS", self.layers.as_ref())?;
        clause(f, "FORMAT", self.format)
    }
}

/// The fact without the word that says what is done with it.
impl Display for Fact {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{} -> {}", Quoted(&self.prompt), Quoted(&self.answer))?;
        clause(f, "LAYER", self.layer)
    }
}

impl Display for Layers {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::All => f.write_str("ALL"),
            Self::Range(first, last) => write!(f, "{first}-{last}"),
            Self::Every(step) => write!(f, "EVERY {step}"),
            Self::List(layers) => list(f, layers),
        }
    }
}

impl Display for Positions {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::All => f.write_str("ALL"),
            Self::Last => f.write_str("LAST"),
            Self::One(position) => position.fmt(f),
            Self::Range(first, last) => write!(f, "{first}-{last}"),
        }
    }
}

impl Display for Format {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Self::Table => "TABLE",
            Self::Json => "JSON",
            Self::Csv => "CSV",
        })
    }
}

impl Display for Edit {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match &self.how {
            How::Zero => f.write_str("ZERO")?,
            // Past these, plain digits would be a row of zeros.
            How::Scale(x) if *x != 0.0 && !(1e-5..1e9).contains(&x.abs()) => {
                write!(f, "SCALE {x:e}")?
            }
            How::Scale(x) => write!(f, "SCALE {x}")?,
            How::FromPrompt(_) | How::FromFile(_) => f.write_str("REPLACE")?,
        }
        write!(f, " {} AT LAYER {}", self.site, self.layer)?;
        clause(f, "POSITION", self.positions)?;
        match &self.how {
            How::Zero | How::Scale(_) => Ok(()),
            How::FromPrompt(prompt) => write!(f, " FROM {}", Quoted(prompt)),
            How::FromFile(file) => write!(f, " FROM FILE {}", Quoted(file)),
        }
    }
}

impl Display for Site {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Attention => f.write_str("ATTENTION"),
            Self::Ffn => f.write_str("FFN"),
            Self::Residual => f.write_str("RESIDUAL"),
            Self::Head(head) => write!(f, "HEAD {head}"),
            Self::Neuron(neuron) => write!(f, "NEURON {neuron}"),
        }
    }
}
