//! Outcomes as CSV: a header line, then rows. What is not known, or not a number, is an empty field.

use super::cells::visible;
use crate::trace::figures::{PatchMap, PositionTrace, TokenText, TraceView, Waypoint};
use csv::Writer;

/// Writes records into memory, where nothing can fail.
pub(super) fn text(records: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut writer = Writer::from_writer(Vec::new());
    for record in records {
        if writer.write_record(&record).is_err() {
            break;
        }
    }
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

/// A number that reads back as the same.
pub(super) fn number(x: f64) -> String {
    if x.is_finite() {
        x.to_string()
    } else {
        String::new()
    }
}

pub(super) fn maybe(x: Option<f64>) -> String {
    x.map_or_else(String::new, number)
}

/// Id and text; the text as tables show it, without quotes.
fn token(t: Option<&TokenText>) -> [String; 2] {
    t.map_or_else(Default::default, |t| [t.id.to_string(), visible(&t.text)])
}

/// A row for every position, layer and answer.
pub(super) fn trace(view: &TraceView) -> String {
    let waypoints = || view.positions.iter().flat_map(|p| &p.waypoints);
    let top = waypoints().map(|w| w.top.len()).max().unwrap_or(0);
    let tracks = waypoints().flat_map(|w| &w.tracks);
    let heads = tracks.map(|t| t.head_logits.len()).max().unwrap_or(0);
    let mut header: Vec<String> = [
        "position",
        "token_id",
        "token",
        "layer",
        "answer",
        "answer_id",
        "answer_token",
        "rank",
        "prob",
        "logit",
        "attn_logit",
        "ffn_logit",
        "residual_norm",
        "attn_norm",
        "ffn_norm",
        "entropy_nats",
        "kl_to_final_nats",
    ]
    .map(str::to_owned)
    .into();
    for k in 1..=top {
        header.extend([
            format!("top_{k}_id"),
            format!("top_{k}"),
            format!("top_{k}_prob"),
        ]);
    }
    header.extend((0..heads).map(|h| format!("head_{h}_logit")));
    let rows = view.positions.iter().flat_map(|p| {
        let rows = move |w| (0..p.tracked.len().max(1)).map(move |a| row(view, p, w, a));
        p.waypoints.iter().flat_map(rows)
    });
    let columns = header.len();
    let padded = rows.map(|(mut front, candidates, heads)| {
        front.extend(candidates);
        front.resize(17 + 3 * top, String::new());
        front.extend(heads);
        front.resize(columns, String::new());
        front
    });
    text([header].into_iter().chain(padded))
}

type Row = (Vec<String>, Vec<String>, Vec<String>);

fn row(view: &TraceView, p: &PositionTrace, w: &Waypoint, answer: usize) -> Row {
    let answers = view.answers_at(p);
    let of = answers.get(answer);
    let track = w.tracks.get(answer);
    let mut front = vec![p.position.to_string()];
    front.extend(token(view.tokens.get(p.position as usize)));
    front.push(w.layer.to_string());
    front.push(of.map_or_else(String::new, |a| visible(&a.word)));
    front.extend(token(of.map(|a| &a.token)));
    match track {
        Some(t) => {
            front.push(t.rank.to_string());
            front.extend([t.prob, t.logit, t.attn_logit, t.ffn_logit].map(number));
        }
        None => front.extend(std::iter::repeat_n(String::new(), 5)),
    }
    front.extend([w.residual_norm, w.attn_norm, w.ffn_norm].map(number));
    front.extend([w.entropy, w.kl_to_final].map(maybe));
    let candidates = w.top.iter().flat_map(|c| {
        let [id, text] = token(Some(&c.token));
        [id, text, number(c.prob)]
    });
    let heads = track.map_or(&[][..], |t| &t.head_logits);
    let heads = heads.iter().map(|h| number(*h)).collect();
    (front, candidates.collect(), heads)
}

/// A row for every layer and position.
pub(super) fn map(map: &PatchMap) -> String {
    let header = [
        "layer",
        "position",
        "token_id",
        "token",
        "source_token_id",
        "source_token",
        "site",
        "answer_id",
        "answer_token",
        "base_logit",
        "source_logit",
        "effect_logit",
    ]
    .map(str::to_owned)
    .into();
    let rows = map
        .layers
        .iter()
        .zip(&map.cells)
        .flat_map(|(layer, cells)| {
            cells.iter().enumerate().map(move |(position, cell)| {
                let mut row = vec![layer.to_string(), position.to_string()];
                row.extend(token(map.tokens.get(position)));
                row.extend(token(
                    map.source_tokens.get(position).and_then(Option::as_ref),
                ));
                row.push(map.site.clone());
                row.extend(token(Some(&map.answer)));
                row.extend([map.base_logit, map.source_logit].map(number));
                row.push(maybe(*cell));
                row
            })
        });
    text([header].into_iter().chain(rows))
}
