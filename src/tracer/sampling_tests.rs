use super::*;
use crate::engine::sampler::Sampler;
use crate::session::{Loaded, Source};
use proptest::prelude::*;

fn config(temperature: f32, top_k: usize, top_p: f32, min_p: f32) -> SamplerConfig {
    SamplerConfig {
        temperature,
        top_k,
        top_p,
        min_p,
        seed: 3,
    }
}

fn summary(config: &SamplerConfig, probs: &[f32]) -> String {
    let loaded = Loaded::open(Source::Demo).expect("demo");
    let logits: Vec<f32> = probs.iter().map(|p| p.ln()).collect();
    let view = Shaped::new(config, &logits).view(&loaded.tokenizer);
    let cuts = view.cuts.iter().map(|c| {
        let first = c.first_cut.as_ref().map(|t| t.id);
        format!(
            "{} {}: {} left, {} cut, mass {:.4}, first {first:?}\n",
            c.name, c.setting, c.left, c.cut, c.cut_mass
        )
    });
    let candidates = view.candidates.iter().map(|c| {
        format!(
            "{} {:.4} {:.4} {:?}\n",
            c.token.id, c.model_prob, c.drawn_prob, c.cut_by
        )
    });
    let head = format!(
        "{}: {:.4} {:.4}\n",
        view.sampler, view.model_entropy, view.drawn_entropy
    );
    [head].into_iter().chain(cuts).chain(candidates).collect()
}

#[test]
fn each_cut_says_what_it_took() {
    let probs = [0.05, 0.5, 0.01, 0.3, 0.14];
    insta::assert_snapshot!(summary(&config(0.5, 4, 0.95, 0.2), &probs), @r#"
    temp 0.5, top-k 4, top-p 0.95, min-p 0.2, seed 3: 1.1789 0.7580
    top-k 4: 4 left, 1 cut, mass 0.0100, first Some(2)
    top-p 0.95: 4 left, 0 cut, mass 0.0000, first None
    min-p 0.2: 3 left, 1 cut, mass 0.0505, first Some(0)
    temperature 0.5: 3 left, 0 cut, mass 0.0000, first None
    1 0.5000 0.6952 None
    3 0.3000 0.2503 None
    4 0.1400 0.0545 None
    0 0.0500 0.0000 Some("min-p")
    2 0.0100 0.0000 Some("top-k")
    "#);
    insta::assert_snapshot!(summary(&config(1.0, 0, 1.0, 0.0), &probs), @r#"
    temp 1, seed 3: 1.1789 1.1789
    top-k off: 5 left, 0 cut, mass 0.0000, first None
    top-p off: 5 left, 0 cut, mass 0.0000, first None
    min-p off: 5 left, 0 cut, mass 0.0000, first None
    temperature 1: 5 left, 0 cut, mass 0.0000, first None
    1 0.5000 0.5000 None
    3 0.3000 0.3000 None
    4 0.1400 0.1400 None
    0 0.0500 0.0500 None
    2 0.0100 0.0100 None
    "#);
    insta::assert_snapshot!(summary(&SamplerConfig::GREEDY, &probs), @r#"
    greedy: 1.1789 0.0000
    temperature 0: 1 left, 4 cut, mass 0.5000, first Some(3)
    1 0.5000 1.0000 None
    3 0.3000 0.0000 Some("temperature")
    4 0.1400 0.0000 Some("temperature")
    0 0.0500 0.0000 Some("temperature")
    2 0.0100 0.0000 Some("temperature")
    "#);
    insta::assert_snapshot!(summary(&config(1.0, 2, 0.5, 0.1), &[f32::NAN, 0.0]), @r#"
    temp 1, top-k 2, top-p 0.5, min-p 0.1, seed 3: 0.0000 0.0000
    top-k 2: 0 left, 0 cut, mass 0.0000, first None
    top-p 0.5: 0 left, 0 cut, mass 0.0000, first None
    min-p 0.1: 0 left, 0 cut, mass 0.0000, first None
    temperature 1: 0 left, 0 cut, mass 0.0000, first None
    "#);
}

proptest! {
    #[test]
    fn masses_and_probabilities_are_whole_and_no_cut_token_is_drawn(
        logits in prop::collection::vec(prop_oneof![9 => -30f32..30.0, 1 => prop::num::f32::ANY], 1..150),
        t in prop_oneof![Just(0f32), 0.01f32..3.0], k in 0usize..60, p in 0f32..=1.0, m in 0f32..=1.0, seed in any::<u64>(),
    ) {
        let config = SamplerConfig { seed, ..config(t, k, p, m) };
        let shaped = Shaped::new(&config, &logits);
        let n = shaped.sorted().len();
        let cuts = shaped.cuts();
        prop_assert!(cuts.min_p <= cuts.top_p && cuts.top_p <= cuts.top_k && cuts.top_k <= n);
        prop_assert_eq!(cuts.min_p > 0, n > 0);
        let mut sampler = Sampler::new(config, logits.len());
        for _ in 0..20 {
            let id = sampler.sample(&logits);
            let place = shaped.sorted().iter().position(|c| c.id == id);
            match place {
                Some(i) => prop_assert!(i < cuts.min_p, "{} of {:?}", i, cuts),
                None => prop_assert_eq!((n, id), (0, 0)),
            }
        }
        if n == 0 {
            return Ok(());
        }
        let sum = |of: &dyn Fn(usize) -> f64| (0..n).map(of).sum::<f64>();
        prop_assert!((sum(&|i| shaped.model_prob(i)) - 1.0).abs() < 1e-9);
        prop_assert!((sum(&|i| shaped.drawn_prob(i)) - 1.0).abs() < 1e-9);
        // What the cuts leave of all, one after the other, is the model's mass of what is drawn from.
        let mut left = 1.0;
        for (_, _, before, behind) in shaped.steps() {
            let cut = if before == behind { 0.0 } else { shaped.mass(behind, before) / shaped.mass(0, before) };
            prop_assert!((0.0..=1.0).contains(&cut));
            left *= 1.0 - cut;
        }
        let kept: f64 = (0..cuts.min_p).map(|i| shaped.model_prob(i)).sum();
        prop_assert!((left - kept).abs() < 1e-9, "{} {}", left, kept);
        // Top-p keeps no more than it needs.
        let enough: f64 = (0..cuts.top_p - 1).map(|i| shaped.model_prob(i)).sum::<f64>();
        let of_k: f64 = (0..cuts.top_k).map(|i| shaped.model_prob(i)).sum();
        prop_assert!(config.is_greedy() || enough <= f64::from(p) * of_k + 1e-9);
    }
}
