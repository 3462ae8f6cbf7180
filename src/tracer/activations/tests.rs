use super::*;
use crate::engine::tensor_stats::Moments;
use proptest::prelude::*;

const LAYERS: usize = 6;
const WIDTH: usize = 64;

/// What an engine would say of these elements of one token.
fn row(x: &[f32]) -> Moments {
    let finite: Vec<f64> = x
        .iter()
        .filter(|x| x.is_finite())
        .map(|x| f64::from(*x))
        .collect();
    let n = finite.len() as f64;
    let mean = finite.iter().sum::<f64>() / n.max(1.0);
    Moments {
        n: finite.len() as u64,
        nan: x.iter().filter(|x| x.is_nan()).count() as u64,
        inf: x.iter().filter(|x| x.is_infinite()).count() as u64,
        min: finite.iter().fold(f32::INFINITY, |a, x| a.min(*x as f32)),
        max: finite
            .iter()
            .fold(f32::NEG_INFINITY, |a, x| a.max(*x as f32)),
        mean,
        m2: finite.iter().map(|x| (x - mean).powi(2)).sum(),
    }
}

fn healthy(scale: f32) -> Vec<f32> {
    (0..WIDTH).map(|i| (i as f32 * 0.7).sin() * scale).collect()
}

/// A forward pass that carries what is put into it as a real one does: blocks and the stream turn NaN behind it.
struct Pass {
    first: u32,
    tokens: u32,
    inject: Vec<(usize, Site, u32, Vec<f32>)>,
}

fn pass(first: u32, tokens: u32) -> Pass {
    Pass {
        first,
        tokens,
        inject: vec![],
    }
}

impl Pass {
    fn with(mut self, layer: usize, site: Site, position: u32, x: &[f32]) -> Self {
        self.inject.push((layer, site, position, x.to_vec()));
        self
    }

    fn put(mut self, layer: usize, site: Site, position: u32, element: f32) -> Self {
        let mut x = healthy(0.5);
        x[7] = element;
        self.inject.push((layer, site, position, x));
        self
    }

    fn run(&self) -> ActivationReadings {
        let mut r = ActivationReadings {
            position: self.first + self.tokens - 1,
            tokens: self.tokens,
            layers: vec![Default::default(); LAYERS],
            ..Default::default()
        };
        for position in self.first..self.first + self.tokens {
            let mut stream = healthy(1.0);
            r.embedding.add(position, &row(&stream));
            for layer in 0..LAYERS {
                let injected = |site, or: Vec<f32>| {
                    let here = |i: &&(usize, Site, u32, Vec<f32>)| {
                        (i.0, i.1, i.2) == (layer, site, position)
                    };
                    self.inject
                        .iter()
                        .find(here)
                        .map_or(or, |(.., x)| x.clone())
                };
                let broken = stream.iter().any(|x| !x.is_finite());
                let block = |scale| {
                    if broken {
                        vec![f32::NAN; WIDTH]
                    } else {
                        healthy(scale)
                    }
                };
                let norm = injected(Site::PostNorm, block(1.0));
                let attention = injected(Site::PostAttention, block(0.5));
                let ffn = injected(Site::PostFfn, block(0.5));
                let sum = (0..WIDTH).map(|i| stream[i] + attention[i] + ffn[i]);
                stream = injected(Site::Output, sum.collect());
                let rows = [&norm, &attention, &ffn, &stream].map(|x| row(x));
                for (reading, row) in r.layers[layer].iter_mut().zip(&rows) {
                    reading.add(position, row);
                }
            }
            let logits = row(&stream);
            r.logits.add(position, &logits);
        }
        r
    }
}

fn found(readings: &ActivationReadings) -> ActivationView {
    let mut tracer = ActivationTracer::new(LAYERS);
    tracer.take(readings);
    tracer.view()
}

fn texts(view: &ActivationView) -> Vec<&str> {
    view.anomalies.iter().map(|a| a.text.as_str()).collect()
}

fn site_of(site: Site) -> ActivationSite {
    match site {
        Site::PostNorm => ActivationSite::PostNorm,
        Site::PostAttention => ActivationSite::PostAttention,
        Site::PostFfn => ActivationSite::PostFfn,
        Site::Output => ActivationSite::Output,
    }
}

#[test]
fn a_healthy_step_has_nothing() {
    let mut tracer = ActivationTracer::new(LAYERS);
    let buffer = tracer.latest.layers.as_ptr();
    assert_eq!(tracer.take(&pass(0, 5).run()), 0);
    assert_eq!(tracer.take(&pass(5, 1).run()), 0);
    assert_eq!(buffer, tracer.latest.layers.as_ptr(), "allocated anew");
    let view = tracer.view();
    assert_eq!((view.steps, view.more_anomalies), (2, 0));
    assert!(view.anomalies.is_empty(), "{:?}", view.anomalies);
    assert!(!view.latest.has_anomaly && view.latest.anomaly_desc.is_none());
    assert_eq!((view.latest.position, view.latest.tokens), (5, 1));
    let layer = &view.latest.layers[3];
    assert_eq!(layer.input_stats, view.latest.layers[2].output_stats);
    let norms = [
        layer.input_stats,
        layer.post_attn_stats,
        layer.post_ffn_stats,
    ]
    .map(|s| s.l2_norm);
    let ratio = norms[0] / norms.iter().sum::<f32>();
    assert!((layer.residual_ratio - ratio).abs() < 1e-6);
}

proptest! {
    #[test]
    fn f251_every_nan_and_infinity_is_found(
        layer in 0..LAYERS, site in prop::sample::select(Site::ALL.to_vec()), first in 0u32..40, tokens in 1u32..6, at in any::<prop::sample::Index>(),
        element in prop::sample::select(vec![f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY]),
    ) {
        let position = first + at.index(tokens as usize) as u32;
        let view = found(&pass(first, tokens).put(layer, site, position, element).run());
        let anomaly = &view.anomalies[0];
        let kind = if element.is_nan() { AnomalyKind::Nan } else { AnomalyKind::Infinity };
        prop_assert_eq!((anomaly.kind, anomaly.layer, anomaly.site, anomaly.position), (kind, Some(layer as u32), site_of(site), position));
        prop_assert_eq!(anomaly.value, 1.0);
        prop_assert_eq!(view.anomalies.len(), 1, "{:?}", texts(&view));
        prop_assert!(view.latest.has_anomaly);
        // A norm's output is read by attention alone, and these blocks take the stream.
        let spreads = site != Site::PostNorm;
        prop_assert_eq!(view.more_anomalies > 0, spreads);
    }
}

#[test]
fn f251_the_first_place_is_named_and_the_rest_counted() {
    let mut tracer = ActivationTracer::new(LAYERS);
    let step = pass(10, 4)
        .put(2, Site::PostAttention, 12, f32::NAN)
        .put(4, Site::PostFfn, 13, f32::NAN)
        .run();
    assert_eq!(tracer.take(&step), 1);
    let pending: Vec<_> = tracer.pending().map(|(i, a)| (i, a.kind)).collect();
    assert_eq!(pending, [(0, AnomalyKind::Nan)]);
    tracer.locate(0, Some(BrickId::VProj));
    tracer.locate(0, Some(BrickId::OProj));
    assert_eq!(tracer.pending().count(), 0);
    let view = tracer.view();
    let text =
        "NaN first at layer 2, after attention (position 12): 1 of 256 elements; written by VProj";
    assert_eq!(texts(&view), [text]);
    // Output of 2, four sites of 3 to 5, logits.
    assert_eq!(view.more_anomalies, 14);
    let desc = format!("{text}; 14 more rules broken after it");
    assert_eq!(view.latest.anomaly_desc, Some(desc));
    assert!(view.latest.layers[3].residual_ratio.is_nan());

    // The same again is nothing new; what was a consequence is listed once it begins something.
    assert_eq!(tracer.take(&step), 0);
    assert_eq!(tracer.view().more_anomalies, 14);
    assert_eq!(
        tracer.take(&pass(14, 1).put(4, Site::PostFfn, 14, f32::NAN).run()),
        1
    );
    let view = tracer.view();
    assert_eq!((view.anomalies.len(), view.more_anomalies), (2, 13));
    // The step is gone, and with it the chance to find its brick.
    tracer.take(&pass(15, 1).run());
    tracer.locate(1, Some(BrickId::DownProj));
    assert_eq!(tracer.view().anomalies[1].brick, None);
    tracer.clear();
    // As text: NaN is not equal to itself.
    let fresh = ActivationTracer::new(LAYERS).view();
    assert_eq!(format!("{:?}", tracer.view()), format!("{fresh:?}"));
}

#[test]
fn an_earlier_position_is_no_consequence() {
    let step =
        pass(10, 4)
            .put(2, Site::PostAttention, 12, f32::NAN)
            .put(4, Site::PostFfn, 11, f32::NAN);
    let view = found(&step.run());
    let places: Vec<_> = view
        .anomalies
        .iter()
        .map(|a| (a.layer, a.position))
        .collect();
    assert_eq!(places[..2], [(Some(2), 12), (Some(4), 11)]);
    assert_eq!(places.len(), 2, "{:?}", texts(&view));
}

#[test]
fn f252_an_explosion_is_found_at_the_limit_and_not_below() {
    let view = found(&pass(3, 2).put(1, Site::PostFfn, 4, 1e7).run());
    assert_eq!(
        texts(&view),
        [
            "explosion first at layer 1, after the feed-forward block (position 4): magnitude 1.00e7, above 1e6"
        ]
    );
    assert_eq!(view.anomalies[0].value, 1e7);
    let view = found(&pass(3, 2).put(1, Site::PostNorm, 4, -1.1e6).run());
    assert_eq!(view.anomalies[0].kind, AnomalyKind::Explosion);
    let at_limit = found(&pass(3, 2).put(1, Site::PostNorm, 4, 1e6).run());
    // 1e6 alone among 64 deviates by 1.24e5.
    assert_eq!(
        texts(&at_limit),
        [
            "explosion first at layer 1, input of attention (position 4): a token's standard deviation (of all 2 tokens 8.80e4) above 1e4"
        ]
    );
    let calm = found(&pass(3, 1).put(1, Site::PostNorm, 3, 5e4).run());
    assert!(calm.anomalies.is_empty(), "{:?}", texts(&calm));
}

#[test]
fn f268_known_outliers_are_flagged() {
    let dead = vec![0.0; WIDTH];
    let layer = pass(7, 1)
        .with(0, Site::PostAttention, 7, &dead)
        .with(0, Site::PostFfn, 7, &dead)
        .run();
    let view = found(&layer);
    assert_eq!(
        texts(&view),
        [
            "vanishing at layer 0, after attention (position 7): standard deviation 0.00e0, below 1e-6; attention is dead",
            "vanishing at layer 0, after the feed-forward block (position 7): standard deviation 0.00e0, below 1e-6; the feed-forward block is dead",
            "residual dominance at layer 0, output (position 7): the stream is 1.0000 of the layer's norms, above 0.99: it adds next to nothing",
        ]
    );
    assert_eq!(view.latest.layers[0].residual_ratio, 1.0);
    let mut tracer = ActivationTracer::new(LAYERS);
    assert_eq!(tracer.take(&layer), 2, "dominance has no brick");

    // A stream that is the same everywhere is listed once, from layer 2 on.
    let flat = vec![3.0; WIDTH];
    let flat_at = |layer| found(&pass(7, 1).with(layer, Site::Output, 7, &flat).run());
    assert!(flat_at(1).anomalies.is_empty());
    let view = flat_at(2);
    assert_eq!(
        texts(&view),
        ["vanishing at layer 2, output (position 7): standard deviation 0.00e0, below 1e-6"]
    );

    // A layer that whispers, in a step of its own and in one with the first token.
    let whisper = healthy(0.004);
    let quiet = |first, tokens| {
        let mut p = pass(first, tokens);
        for at in first..first + tokens {
            p = p.with(3, Site::PostAttention, at, &whisper);
            p = p.with(3, Site::PostFfn, at, &whisper);
        }
        found(&p.run())
    };
    assert_eq!(
        quiet(4, 2).anomalies[0].kind,
        AnomalyKind::ResidualDominance
    );
    assert!(quiet(0, 2).anomalies.is_empty());
    assert!(quiet(0, 2).latest.layers[3].residual_ratio > DOMINANCE);
}

#[test]
fn f268_the_list_is_bounded_and_counts_what_is_beyond() {
    let dead = row(&[0.0; 4]);
    let mut readings = ActivationReadings {
        position: 9,
        tokens: 1,
        layers: vec![Default::default(); 100],
        ..Default::default()
    };
    for [_, attention, ..] in &mut readings.layers {
        attention.add(9, &dead);
    }
    let mut tracer = ActivationTracer::new(100);
    for _ in 0..3 {
        tracer.take(&readings);
    }
    let view = tracer.view();
    assert_eq!((view.anomalies.len(), view.more_anomalies), (64, 36));
    // More layers than were announced are not looked at.
    let mut tracer = ActivationTracer::new(3);
    tracer.take(&readings);
    assert_eq!(tracer.view().anomalies.len(), 3);
    assert_eq!(tracer.view().latest.layers.len(), 3);
}
