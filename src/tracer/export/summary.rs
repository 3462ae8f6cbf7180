//! Traces in a few lines of text. Texts of a model are escaped: what it says must not act on a terminal.

use super::TracerExport;
use crate::tracer::attention::mass;
use crate::tracer::figures::{
    ErrorOf, KvCacheSessionTrace, LogitEvolutionTrace, ModelQuantisationError,
    QuantisationErrorTrace,
};
use std::collections::BTreeMap;

/// Bricks listed by their error.
const WORST: usize = 5;
/// Anomalies listed.
const ANOMALIES: usize = 8;
/// Decisive layers listed.
const DECISIVE: usize = 5;

pub(super) fn summary(export: &TracerExport) -> String {
    let mut lines = vec![format!("traces of {}", export.model.escape_debug())];
    if export.on.activations {
        activations(export, &mut lines);
    }
    if export.on.attention {
        attention(export, &mut lines);
    }
    if export.on.logits {
        logits(&export.logits, &mut lines);
    }
    if export.on.quantisation {
        match &export.quantisation {
            Some(model) => quantisation(model, &mut lines),
            None => lines.push("quantisation: the whole model was not measured".into()),
        }
    }
    if export.on.kv {
        kv(&export.kv, &mut lines);
    }
    lines.push(String::new());
    lines.join("\n")
}

fn activations(export: &TracerExport, lines: &mut Vec<String>) {
    let n = export.anomalies.len();
    if n == 0 && export.more_anomalies == 0 {
        lines.push("activations: nothing wrong".into());
        return;
    }
    lines.push("activations: anomalies".into());
    let texts = export.anomalies.iter().take(ANOMALIES);
    lines.extend(texts.map(|a| format!("  {}", a.text.escape_debug())));
    let more = export.more_anomalies + n.saturating_sub(ANOMALIES) as u64;
    if more > 0 {
        lines.push(format!("  and {more} more places"));
    }
}

fn attention(export: &TracerExport, lines: &mut Vec<String>) {
    let Some(newest) = export.attention.iter().map(|head| head.query_pos).max() else {
        lines.push("attention: no head was traced".into());
        return;
    };
    let heads = export
        .attention
        .iter()
        .filter(|head| head.query_pos == newest)
        .count();
    let off = export
        .attention
        .iter()
        .map(|head| (mass(head) - 1.0).abs())
        .max_by(f64::total_cmp)
        .unwrap_or(0.0);
    lines.push(format!(
        "attention: {heads} heads at position {newest}, masses sum to 1 within {off:.0e}"
    ));
    let notes = export.attention_notes.iter();
    lines.extend(notes.map(|note| format!("  {}", note.text.escape_debug())));
}

fn logits(traces: &[LogitEvolutionTrace], lines: &mut Vec<String>) {
    let Some(newest) = traces.last() else {
        lines.push("logits: no token was looked at".into());
        return;
    };
    let mut by_layer: BTreeMap<u32, usize> = BTreeMap::new();
    let is_known = |t: &&LogitEvolutionTrace| {
        let tracked = t.tracked_tokens.iter();
        let mut own = tracked.filter(|own| own.token_id == t.selected.id);
        own.all(|own| own.final_probability.is_finite())
    };
    for trace in traces.iter().filter(is_known) {
        *by_layer.entry(trace.decisive_layer).or_default() += 1;
    }
    if by_layer.is_empty() {
        lines.push("logits: no numbers, so no layer decided anything".into());
        return;
    }
    let mut by_layer: Vec<_> = by_layer.into_iter().collect();
    by_layer.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let decisive: Vec<String> = by_layer
        .iter()
        .take(DECISIVE)
        .map(|(layer, n)| format!("layer {layer} ({n})"))
        .collect();
    lines.push(format!(
        "logits: the newest {}, decided by {}",
        tokens(traces.len() as u64),
        decisive.join(", ")
    ));
    let stable = match newest.stable_from {
        Some(layer) => format!("first from layer {layer} on"),
        None => "never first".into(),
    };
    lines.push(format!(
        "  newest: {:?} after position {}, decided by layer {}, {stable}",
        newest.selected.text, newest.position, newest.decisive_layer
    ));
}

fn tokens(n: u64) -> String {
    format!("{n} token{}", if n == 1 { "" } else { "s" })
}

fn quantisation(model: &ModelQuantisationError, lines: &mut Vec<String>) {
    lines.push(format!(
        "quantisation: {} against {}",
        tokens(model.tokens.into()),
        model.reference.escape_debug()
    ));
    lines.push(format!(
        "  logits cosine {:.4}, Kullback-Leibler {:.4} nats, same first token {:.1}%, perplexity {:.4} ({:+.4})",
        model.logits_cosine,
        model.output_kl_divergence,
        model.same_top * 100.0,
        model.perplexity,
        model.perplexity_delta
    ));
    let own = |e: &&QuantisationErrorTrace| e.of == ErrorOf::Own;
    let mut worst: Vec<_> = model.brick_errors.iter().filter(own).collect();
    let cosine = |e: &QuantisationErrorTrace| match e.cosine_similarity {
        c if c.is_nan() => f64::NEG_INFINITY,
        c => c,
    };
    worst.sort_by(|a, b| cosine(a).total_cmp(&cosine(b)));
    lines.extend(worst.into_iter().take(WORST).map(brick));
}

fn brick(error: &QuantisationErrorTrace) -> String {
    let layer = error
        .layer_idx
        .map_or_else(String::new, |layer| format!("layer {layer} "));
    let snr = error
        .snr_db
        .map_or_else(String::new, |db| format!(", {db:.1} dB"));
    let grade = error.grade.name();
    format!(
        "  {layer}{} {}: cosine {:.5}{snr}, {grade}",
        error.brick_id.name(),
        error.quant_type.escape_debug(),
        error.cosine_similarity
    )
}

fn kv(session: &KvCacheSessionTrace, lines: &mut Vec<String>) {
    let hits = session
        .avg_hit_rate
        .map_or_else(String::new, |rate| format!(", hit rate {rate:.3}"));
    lines.push(format!(
        "kv cache: at most {} bytes, {} evictions{hits}, full in {} steps",
        session.peak_memory_bytes, session.total_evictions, session.window_exhaustions
    ));
    if let Some(last) = session.steps.last() {
        lines.push(format!(
            "  after step {}: {} of {} positions, oldest {}, fragmentation {:.3}",
            last.step,
            last.valid_positions,
            last.max_positions,
            last.oldest_position,
            last.fragmentation
        ));
    }
}
