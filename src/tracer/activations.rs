//! Activations: which rules a step broke, and where first.
//!
//! Rules: an element is NaN or infinite; a magnitude above 1e6 or a deviation above 1e4 (explosion); a deviation below 1e-6
//! (vanishing); the stream's share of a layer's norms above 0.99 (residual dominance).
//!
//! What is broken spreads: a NaN in layer 5 is in every later layer. Per step only the place is listed where it began, in
//! the order of the forward pass; places that are broken because of it are counted. Causes lie in the same step, earlier
//! in the forward pass, at the same or an earlier position.

mod step;
#[cfg(test)]
mod tests;

use super::figures::{
    ActivationAnomaly, ActivationSite, ActivationView, AnomalyKind, LayerActivationTrace,
    ModelActivationTrace,
};
use crate::engine::probe::{ActivationReadings, Reading, Site};
use crate::model::brick::BrickId;
use step::Breach;

/// Most anomalies listed.
const MAX_ANOMALIES: usize = 64;
/// Largest share of the stream that is not dominance.
pub const DOMINANCE: f32 = 0.99;
/// The first layer whose stream, or input of attention, is expected to vary: embeddings can be small.
pub const VARIES_FROM: usize = 2;

/// What is wrong with activations, from the readings of every step.
///
/// Vanishing is judged of the stream and of the input of attention from layer [`VARIES_FROM`] on, of logits, and of what a
/// block adds in every layer: a block that adds the same to all elements is dead. The embedding is never held against it.
///
/// Dominance is not judged in a step that holds position 0: the first token of a text carries massive activations in
/// healthy models (<https://arxiv.org/abs/2402.17762>), beside which no layer seems to add anything.
#[derive(Debug)]
pub struct ActivationTracer {
    n_layers: usize,
    steps: u64,
    latest: ActivationReadings,
    anomalies: Vec<ActivationAnomaly>,
    more: u64,
    /// By place: the kinds that are listed, and those that were only counted, as bits.
    known: Vec<Known>,
    /// Those of the last step whose brick is not known.
    pending: Vec<usize>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    listed: u8,
    counted: u8,
}

impl ActivationTracer {
    /// For a model of `n_layers` layers. All that [`Self::take`] needs is allocated here, but for the text of anomalies.
    pub fn new(n_layers: usize) -> Self {
        let mut latest = ActivationReadings::default();
        latest.layers.reserve_exact(n_layers);
        Self {
            n_layers,
            steps: 0,
            latest,
            anomalies: Vec::with_capacity(MAX_ANOMALIES),
            more: 0,
            known: vec![Known::default(); n_layers * Site::ALL.len() + 2],
            pending: Vec::with_capacity(MAX_ANOMALIES),
        }
    }

    /// Takes in a step. How many new anomalies have a brick to be found, by running the step again: see [`Self::pending`].
    pub fn take(&mut self, readings: &ActivationReadings) -> usize {
        self.steps += 1;
        self.pending.clear();
        let layers = readings.layers.get(..self.n_layers);
        self.latest.layers.clear();
        self.latest
            .layers
            .extend_from_slice(layers.unwrap_or(&readings.layers));
        self.latest.position = readings.position;
        self.latest.tokens = readings.tokens;
        self.latest.embedding = readings.embedding;
        self.latest.logits = readings.logits;
        // Apart from `self`, whose lists change meanwhile.
        let latest = std::mem::take(&mut self.latest);
        step::breaches(&latest, |breach, is_consequence| {
            self.record(breach, is_consequence);
        });
        self.latest = latest;
        self.pending.len()
    }

    /// Lists a breach that began something and is new; counts any other that is new.
    fn record(&mut self, breach: &Breach, is_consequence: bool) {
        let bit = 1 << breach.kind as u8;
        let place = self.place(breach.layer, breach.site);
        let Some(known) = self.known.get_mut(place) else {
            return;
        };
        if known.listed & bit != 0 {
            return;
        }
        if is_consequence || self.anomalies.len() >= MAX_ANOMALIES {
            self.more += u64::from(known.counted & bit == 0);
            known.counted |= bit;
            return;
        }
        self.more -= u64::from(known.counted & bit != 0);
        known.counted &= !bit;
        known.listed |= bit;
        if breach.kind != AnomalyKind::ResidualDominance {
            self.pending.push(self.anomalies.len());
        }
        self.anomalies.push(breach.anomaly());
    }

    /// Index into `known`.
    fn place(&self, layer: Option<u32>, site: ActivationSite) -> usize {
        let in_layer = match site {
            ActivationSite::Embedding => return 0,
            ActivationSite::Logits => return self.known.len() - 1,
            ActivationSite::PostNorm => 1,
            ActivationSite::PostAttention => 2,
            ActivationSite::PostFfn => 3,
            ActivationSite::Output => 4,
        };
        layer.unwrap_or(0) as usize * Site::ALL.len() + in_layer
    }

    /// The anomalies that are new in the last step and whose brick is neither known nor given up, each with its index for
    /// [`Self::locate`]. The next step ends the chance to find them.
    pub fn pending(&self) -> impl Iterator<Item = (usize, &ActivationAnomaly)> {
        self.pending
            .iter()
            .filter_map(|i| Some((*i, self.anomalies.get(*i)?)))
    }

    /// Notes which brick first wrote an anomaly of [`Self::pending`]; `None` where running the step again did not tell.
    pub fn locate(&mut self, index: usize, brick: Option<BrickId>) {
        let Some(at) = self.pending.iter().position(|i| *i == index) else {
            return;
        };
        self.pending.remove(at);
        if let (Some(anomaly), Some(brick)) = (self.anomalies.get_mut(index), brick) {
            anomaly.brick = Some(brick);
            anomaly.text.push_str("; written by ");
            anomaly.text.push_str(brick.name());
        }
    }

    /// Forgets all steps.
    pub fn clear(&mut self) {
        self.steps = 0;
        self.latest.layers.clear();
        self.latest = ActivationReadings {
            layers: std::mem::take(&mut self.latest.layers),
            ..ActivationReadings::default()
        };
        self.anomalies.clear();
        self.more = 0;
        self.known.fill(Known::default());
        self.pending.clear();
    }

    /// What the pane shows.
    pub fn view(&self) -> ActivationView {
        ActivationView {
            steps: self.steps,
            latest: self.trace(),
            anomalies: self.anomalies.clone(),
            more_anomalies: self.more,
        }
    }

    /// The last step.
    pub fn trace(&self) -> ModelActivationTrace {
        let latest = &self.latest;
        let anomaly_desc = self.describe();
        ModelActivationTrace {
            position: latest.position,
            tokens: latest.tokens,
            layers: (0..latest.layers.len())
                .filter_map(|i| layer(latest, i))
                .collect(),
            embedding_stats: latest.embedding.moments.stats(),
            logits_stats: latest.logits.moments.stats(),
            has_anomaly: anomaly_desc.is_some(),
            anomaly_desc,
        }
    }

    /// The first breach of the last step in words, with its brick where that is known, and how many there are beside it.
    fn describe(&self) -> Option<String> {
        let mut first = None;
        let mut more = 0;
        step::breaches(&self.latest, |breach, _| {
            if first.is_some() {
                more += 1;
            } else {
                first = Some(breach.anomaly());
            }
        });
        let mut first = first?;
        let same = |a: &&ActivationAnomaly| {
            (a.kind, a.layer, a.site, a.position)
                == (first.kind, first.layer, first.site, first.position)
        };
        let brick = self.anomalies.iter().find(same).and_then(|a| a.brick);
        if let Some(brick) = brick {
            first.text.push_str("; written by ");
            first.text.push_str(brick.name());
        }
        match more {
            0 => {}
            1 => first.text.push_str("; 1 more rule broken after it"),
            n => {
                let beside = format!("; {n} more rules broken after it");
                first.text.push_str(&beside);
            }
        }
        Some(first.text)
    }
}

/// The stream before layer `i`.
fn input(readings: &ActivationReadings, i: usize) -> Option<&Reading> {
    match i.checked_sub(1) {
        None => Some(&readings.embedding),
        Some(before) => readings.layers.get(before).map(|[.., output]| output),
    }
}

/// `|input| / (|input| + |attention| + |ffn|)`; NaN where one of them was not read or is not finite, and where all are 0.
fn residual_ratio(readings: &ActivationReadings, i: usize) -> f32 {
    let Some((input, [_, attention, ffn, _])) = input(readings, i).zip(readings.layers.get(i))
    else {
        return f32::NAN;
    };
    let parts = [input, attention, ffn].map(|reading| &reading.moments);
    if parts.iter().any(|m| m.n == 0 || m.nan + m.inf > 0) {
        return f32::NAN;
    }
    let [input, attention, ffn] = parts.map(|m| m.l2_norm());
    let all = input + attention + ffn;
    if all > 0.0 {
        (input / all) as f32
    } else {
        f32::NAN
    }
}

fn layer(readings: &ActivationReadings, i: usize) -> Option<LayerActivationTrace> {
    let [norm, attention, ffn, output] = readings.layers.get(i)?;
    Some(LayerActivationTrace {
        layer_idx: i as u32,
        input_stats: input(readings, i)?.moments.stats(),
        post_norm_stats: norm.moments.stats(),
        post_attn_stats: attention.moments.stats(),
        post_ffn_stats: ffn.moments.stats(),
        output_stats: output.moments.stats(),
        residual_ratio: residual_ratio(readings, i),
    })
}
