use super::*;
use proptest::prelude::*;

/// Logits that are known beforehand: of token `id`, `id` at its own place and 0 elsewhere.
struct Known {
    seen: Vec<u32>,
    last: Vec<Vec<f32>>,
    cleared: usize,
}

impl Scored for Known {
    fn clear(&mut self) {
        self.seen.clear();
        self.cleared += 1;
    }

    fn run(&mut self, ids: &[u32], wanted: bool) -> Result<(), EngineError> {
        self.seen.extend(ids);
        if wanted {
            let row = |&id: &u32| (0..16).map(|t| if t == id { 1.0 } else { 0.0 }).collect();
            self.last = ids.iter().map(row).collect();
        }
        Ok(())
    }

    fn logits(&mut self, row: usize) -> &[f32] {
        &self.last[row]
    }

    fn rows(&self) -> usize {
        3
    }
}

fn known() -> Known {
    Known {
        seen: Vec::new(),
        last: Vec::new(),
        cleared: 0,
    }
}

#[test]
fn the_second_half_of_every_window_is_scored() {
    let ids: Vec<u32> = (0..37).map(|i| i / 2 * 7 % 16).collect();
    let mut pass = known();
    let mut told = Vec::new();
    let p = measure(
        &mut pass,
        None,
        &ids,
        (10, None),
        Some(15),
        &mut |done, all, ppl| {
            told.push((done, all, ppl));
            true
        },
    );
    let p = p.expect("measured");
    // Of ten, positions 5 to 8 predict 6 to 9; the last token is not run.
    assert_eq!((p.windows, p.scored, pass.cleared), (3, 12, 3));
    assert_eq!(pass.seen.len(), 9);
    assert_eq!(pass.seen[0], 15);
    let mut nll = Vec::new();
    for w in 0..3 {
        for at in 5..9 {
            let (id, next) = (ids[w * 10 + at], ids[w * 10 + at + 1]);
            let logit = if id == next { 1.0 } else { 0.0 };
            nll.push((15.0 + 1f64.exp()).ln() - logit);
        }
    }
    let mean = nll.iter().sum::<f64>() / 12.0;
    assert!((p.nll - mean).abs() < 1e-12);
    assert!((p.perplexity - mean.exp()).abs() < 1e-9);
    let variance = nll.iter().map(|x| x * x).sum::<f64>() / 12.0 - mean * mean;
    let error = (variance.max(0.0) / 11.0).sqrt() * mean.exp();
    assert!((p.error.unwrap_or(0.0) - error).abs() < 1e-9);
    assert_eq!(told.len(), 3);
    assert!((told[2].2 - p.perplexity).abs() < 1e-12);
}

#[test]
fn a_pass_beside_itself_differs_in_nothing() {
    let ids: Vec<u32> = (0..40).map(|i| i * 5 % 16).collect();
    let (mut a, mut b) = (known(), known());
    let p = measure(
        &mut a,
        Some(&mut b),
        &ids,
        (8, Some(2)),
        None,
        &mut |_, _, _| true,
    );
    let p = p.expect("measured");
    let r = p.reference.expect("compared");
    assert_eq!((p.windows, r.delta, r.ln_ratio), (2, 0.0, 0.0));
    assert_eq!((r.kl_divergence, r.same_top), (0.0, 1.0));
    assert_eq!(r.perplexity, p.perplexity);
}

#[test]
fn too_little_text_is_refused_as_llama_cpp_does() {
    let mut go = |_: usize, _: usize, _: f64| true;
    let e = measure(&mut known(), None, &[1; 19], (10, None), None, &mut go);
    let text = e.expect_err("refused").to_string();
    assert!(
        text.contains("19 tokens") && text.contains("at least 20"),
        "{text}"
    );
    assert!(measure(&mut known(), None, &[1; 20], (10, None), None, &mut go).is_ok());
    let e = measure(&mut known(), None, &[], (512, None), None, &mut go);
    assert!(matches!(
        e,
        Err(PerplexityError::TooShort { tokens: 0, .. })
    ));
    let e = measure(&mut known(), None, &[1; 20], (3, None), None, &mut go);
    assert!(matches!(e, Err(PerplexityError::SmallContext(3))));
    let e = measure(
        &mut known(),
        None,
        &[1; 20],
        (10, None),
        None,
        &mut |_, _, _| false,
    );
    assert!(matches!(e, Err(PerplexityError::Stopped)));
    let e = measure(
        &mut known(),
        None,
        &[1; 20],
        (usize::MAX, None),
        None,
        &mut go,
    );
    assert!(matches!(e, Err(PerplexityError::TooShort { .. })));
}

proptest! {
    #[test]
    fn a_divergence_is_none_of_itself_and_never_negative(
        p in prop::collection::vec(-30f32..30.0, 1..50),
        q in prop::collection::vec(-30f32..30.0, 50),
    ) {
        prop_assert_eq!(divergence(&p, &p), 0.0);
        prop_assert!(divergence(&p, &q[..p.len()]) >= 0.0);
    }
}
