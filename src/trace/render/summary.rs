//! The figures of many prompts as a table and as CSV.

use super::cells::{self, Grid, Side::Left, Side::Right, figure, prob, signed};
use super::csv::{self, maybe, number};
use crate::trace::summary::{Event, LayerSummary, SummaryView};
use std::fmt::Write;

/// The table.
pub(super) fn table(view: &SummaryView) -> String {
    let mut out = format!("{}: {} prompts\n", cells::line(&view.model), view.prompts);
    if view.layers.is_empty() {
        return out;
    }
    out.push('\n');
    let mut titles: Vec<_> = [
        "Layer",
        "% top-1",
        "Mean P",
        "Median rank",
        "Attn [logit]",
        "FFN [logit]",
        "attn of +",
        "|residual|",
        "growth",
    ]
    .map(|title| (title, Right))
    .into();
    titles.push(("Event", Left));
    let mut grid = Grid::new(titles);
    for l in &view.layers {
        let [attn, ffn] = if l.event == Event::Embedding {
            [cells::UNKNOWN; 2].map(str::to_owned)
        } else {
            [l.attn_logit, l.ffn_logit].map(signed)
        };
        grid.row(vec![
            l.layer.to_string(),
            format!("{:.1}", l.top1_percent),
            prob(l.mean_prob),
            rank(l.median_rank),
            attn,
            ffn,
            cells::percent(l.attention_share),
            figure(l.residual_norm),
            l.growth
                .map_or_else(|| cells::UNKNOWN.into(), |g| format!("x{}", figure(g))),
            event(l),
        ]);
    }
    grid.print(&mut out);
    let _ = writeln!(
        out,
        "  attn of +: attention's part of what both add, where that is more than nothing\n\n\
         attention {} and FFN {} of the positive signal over the whole pass; {}",
        cells::percent(view.attention_share),
        cells::percent(view.ffn_share),
        transition(view)
    );
    if view.multi_token > 0 {
        let _ = writeln!(
            out,
            "note: {} answers are several tokens: the first is followed",
            view.multi_token
        );
    }
    out
}

/// Whole, or of an even number of prompts a half.
fn rank(median: f64) -> String {
    if median.fract() == 0.0 {
        format!("{median:.0}")
    } else {
        format!("{median:.1}")
    }
}

fn transition(view: &SummaryView) -> String {
    let at = view.phase_transition;
    let pair = at.and_then(|t| {
        let after = view.layers.get(t as usize)?;
        let before = view.layers.get(t.checked_sub(1)? as usize)?;
        Some((before, after))
    });
    match pair {
        Some((before, after)) => format!(
            "phase transition in layer {}, mean P {} to {}",
            after.layer,
            prob(before.mean_prob),
            prob(after.mean_prob)
        ),
        None => "the mean P never rises".into(),
    }
}

/// What happens in a layer, in words.
fn event(l: &LayerSummary) -> String {
    match l.event {
        Event::Embedding => "embedding".into(),
        Event::Nothing => "nothing".into(),
        Event::Attention => format!("attention fires ({} logits)", signed(l.attn_logit)),
        Event::Ffn => format!("FFN fires ({} logits)", signed(l.ffn_logit)),
        Event::Both => format!(
            "both fire ({} and {} logits)",
            signed(l.attn_logit),
            signed(l.ffn_logit)
        ),
        Event::Stabilising => "stabilising".into(),
    }
}

/// The same word as in JSON.
fn name(event: Event) -> &'static str {
    match event {
        Event::Embedding => "embedding",
        Event::Nothing => "nothing",
        Event::Attention => "attention",
        Event::Ffn => "ffn",
        Event::Both => "both",
        Event::Stabilising => "stabilising",
    }
}

/// A row for every layer.
pub(super) fn csv(view: &SummaryView) -> String {
    let header = [
        "layer",
        "top1_percent",
        "mean_prob",
        "median_rank",
        "attn_logit",
        "ffn_logit",
        "attention_share",
        "residual_norm",
        "growth",
        "event",
    ]
    .map(str::to_owned)
    .into();
    let rows = view.layers.iter().map(|l| {
        let mut row = vec![l.layer.to_string()];
        row.extend(
            [
                l.top1_percent,
                l.mean_prob,
                l.median_rank,
                l.attn_logit,
                l.ffn_logit,
            ]
            .map(number),
        );
        row.extend([
            maybe(l.attention_share),
            number(l.residual_norm),
            maybe(l.growth),
            name(l.event).into(),
        ]);
        row
    });
    csv::text([header].into_iter().chain(rows))
}
