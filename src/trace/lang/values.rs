//! What clauses take.

use std::ops::RangeInclusive;

use winnow::combinator::{alt, cut_err, opt, preceded};
use winnow::prelude::*;

use super::ast::{Format, Layers, Positions, Site};
use super::error::{LangError, quote};
use super::input::{Input, Res, cut, digits, keyword, list, number_or_range, symbol, whole};

/// What `LAYERS` takes.
pub(super) fn layers(input: &mut Input<'_, '_>) -> Res<Layers> {
    alt((
        keyword("ALL").value(Layers::All),
        preceded((keyword("EVERY"), opt(symbol(":", "`:`"))), cut_err(step)).map(Layers::Every),
        some_layers,
    ))
    .parse_next(input)
}

fn some_layers(input: &mut Input<'_, '_>) -> Res<Layers> {
    let (first, last) = number_or_range(input)?;
    if let Some(last) = last {
        return Ok(Layers::Range(first, last));
    }
    let mut layers = vec![first];
    if opt(symbol(",", "`,`")).parse_next(input)?.is_some() {
        layers.extend(
            cut_err(list(whole))
                .parse_next(input)?
                .into_iter()
                .map(|(layer, _)| layer),
        );
    }
    Ok(Layers::List(layers))
}

fn step(input: &mut Input<'_, '_>) -> Res<u32> {
    bounded(input, 1..=u32::MAX, "EVERY 0 would never end")
}

/// What `TOP` takes.
pub(super) fn top(input: &mut Input<'_, '_>) -> Res<u32> {
    bounded(input, 1..=1000, "so many candidates are not shown")
}

/// The layer of an edit: nothing is edited in the embedding.
pub(super) fn layer(input: &mut Input<'_, '_>) -> Res<u32> {
    bounded(
        input,
        1..=u32::MAX,
        "layer 0 is the embedding, which is not edited",
    )
}

fn bounded(input: &mut Input<'_, '_>, range: RangeInclusive<u32>, message: &str) -> Res<u32> {
    let (number, span) = whole(input)?;
    if range.contains(&number) {
        return Ok(number);
    }
    Err(cut(LangError::new(span, message).help(input.state.usage)))
}

/// What `POSITIONS` takes, and `POSITION` of an edit.
pub(super) fn positions(input: &mut Input<'_, '_>) -> Res<Positions> {
    let numbers = number_or_range.map(|(first, last)| match last {
        Some(last) => Positions::Range(first, last),
        None => Positions::One(first),
    });
    alt((
        keyword("ALL").value(Positions::All),
        keyword("LAST").value(Positions::Last),
        numbers,
    ))
    .parse_next(input)
}

/// What `FORMAT` takes.
pub(super) fn format(input: &mut Input<'_, '_>) -> Res<Format> {
    alt((
        keyword("TABLE").value(Format::Table),
        keyword("JSON").value(Format::Json),
        keyword("CSV").value(Format::Csv),
    ))
    .parse_next(input)
}

/// A site that `PATCH` takes.
pub(super) fn block(input: &mut Input<'_, '_>) -> Res<Site> {
    alt((
        keyword("ATTENTION").value(Site::Attention),
        keyword("FFN").value(Site::Ffn),
        keyword("RESIDUAL").value(Site::Residual),
    ))
    .parse_next(input)
}

/// A site that an edit takes.
pub(super) fn site(input: &mut Input<'_, '_>) -> Res<Site> {
    alt((
        block,
        preceded(keyword("HEAD"), cut_err(whole)).map(|(head, _)| Site::Head(head)),
        preceded(keyword("NEURON"), cut_err(whole)).map(|(neuron, _)| Site::Neuron(neuron)),
    ))
    .parse_next(input)
}

/// What `SCALE` takes.
pub(super) fn scale(input: &mut Input<'_, '_>) -> Res<f32> {
    input.state.usage = "SCALE takes a finite number, such as 0.5";
    let sign = opt(alt((
        symbol("-", "`-`").value(-1.0),
        symbol("+", "`+`").value(1.0),
    )))
    .parse_next(input)?;
    let (number, span) = digits(input)?;
    let value: Option<f32> = number.parse().ok();
    value
        .filter(|value| value.is_finite())
        .map(|value| value * sign.unwrap_or(1.0))
        .ok_or_else(|| {
            cut(
                LangError::new(span, format!("{} is too large", quote(number)))
                    .help(format!("numbers go up to {:e}", f32::MAX)),
            )
        })
}
