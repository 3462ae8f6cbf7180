use super::*;
use linfa::traits::Predict;
use ndarray::Axis;
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng as _};

/// Rows with a rule: the class is told by the first two columns, the third is noise; one row in `noise` is wrong.
fn rows(n: usize, classes: usize, noise: usize, seed: u64) -> Vec<(Vec<f32>, usize, u64)> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut u = move || (rng.next_u32() >> 8) as f32 / (1 << 24) as f32;
    (0..n)
        .map(|i| {
            let x = vec![u(), u(), u()];
            let class = ((x[0] + x[1]) / 2.0 * classes as f32) as usize;
            let wrong = noise > 0 && i % noise == 0;
            (x, (class + usize::from(wrong)) % classes, i as u64)
        })
        .collect()
}

fn examples(rows: &[(Vec<f32>, usize, u64)]) -> Vec<Example<'_>> {
    rows.iter()
        .map(|(x, class, group)| Example {
            x,
            class: *class,
            group: *group,
        })
        .collect()
}

fn names(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("k{i}")).collect()
}

const SMALL: ForestOptions = ForestOptions {
    trees: 12,
    depth: 6,
    columns: 0.7,
    seed: 5,
};

#[test]
fn flattened_trees_answer_as_linfa_does() {
    let data = rows(300, 2, 9, 1);
    let examples = examples(&data);
    let linfa = grow_linfa(&examples, 1, &SMALL).expect("grown");
    let trees = grow(&examples, 2, &SMALL).expect("grown");
    let x = Array2::from_shape_fn((data.len(), 3), |(i, j)| data[i].0[j]);
    let mut yes = vec![0.0f32; data.len()];
    for (model, columns) in linfa.models.iter().zip(&linfa.model_features) {
        let said = model.predict(&x.select(Axis(1), columns));
        yes.iter_mut()
            .zip(&said)
            .for_each(|(n, s)| *n += f32::from(u8::from(*s)));
    }
    for ((x, ..), yes) in data.iter().zip(yes) {
        let shares = votes(&trees, 2, x);
        let expected = (yes + 0.5) / (SMALL.trees as f32 + 1.0);
        assert!((shares[1] - expected).abs() < 1e-6, "{shares:?} {expected}");
    }
}

#[test]
fn f100_one_seed_gives_one_forest() {
    for classes in [2, 3] {
        let data = rows(200, classes, 7, 2);
        let grown = || KernelForest::train(names(classes), &examples(&data), &SMALL);
        let (a, b) = (grown().expect("grown"), grown().expect("grown"));
        assert_eq!(a.forest, b.forest);
        assert_eq!(a.held_out, b.held_out);
    }
}

#[test]
fn f003_a_rule_is_learned() {
    for classes in [2, 3, 4] {
        let data = rows(400, classes, 0, 3);
        let grown = KernelForest::train(names(classes), &examples(&data), &SMALL).expect("grown");
        let r = metrics::report(&grown.held_out, classes);
        assert!(r.accuracy > 0.85, "{classes}: {r:?}");
        let p = grown.forest.probabilities(&data[0].0);
        assert!((p.iter().sum::<f32>() - 1.0).abs() < 1e-5);
    }
}

#[test]
fn f009_probabilities_of_noisy_rows_are_calibrated() {
    let data = rows(600, 2, 5, 4);
    let grown = KernelForest::train(names(2), &examples(&data), &SMALL).expect("grown");
    let r = metrics::report(&grown.held_out, 2);
    println!(
        "F009: calibration error on rows with 20% wrong labels: {:.3}",
        r.ece
    );
    assert!(r.ece < 0.1, "{r:?}");
}

#[test]
fn f093_a_rare_class_is_found() {
    // One row in 25 is of the second class.
    let mut data = rows(600, 2, 0, 6);
    data.iter_mut()
        .for_each(|(x, class, _)| *class = usize::from(x[0] > 0.96));
    let rare = data.iter().filter(|r| r.1 == 1).count();
    let grown = KernelForest::train(names(2), &examples(&data), &SMALL).expect("grown");
    let r = metrics::report(&grown.held_out, 2);
    println!(
        "F093: {rare} of 600 rows are of the rare class; found {:?}",
        r.classes[1].recall
    );
    assert!(r.classes[1].recall > Some(0.5), "{r:?}");
}

#[test]
fn one_class_and_damaged_rows_are_refused() {
    let x = vec![0.5, f32::NAN];
    let row = |x, class| Example { x, class, group: 0 };
    let train = |rows: &[Example]| KernelForest::train(names(2), rows, &SMALL).err();
    let whole = row(&x[..1], 0);
    assert_eq!(train(&[whole, whole]), Some(ClassifierError::Classes(1)));
    assert!(matches!(train(&[]), Some(ClassifierError::Rows(_))));
    assert!(matches!(
        train(&[row(&x, 0), row(&x, 1)]),
        Some(ClassifierError::Rows(_))
    ));
    assert!(matches!(
        train(&[whole, row(&x[..1], 2)]),
        Some(ClassifierError::Rows(_))
    ));
}

#[test]
fn rows_of_folds_without_a_forest_are_not_scored() {
    // The second class is of one group: whatever is learned without it knows one class.
    let mut data = rows(100, 2, 0, 7);
    data.iter_mut().for_each(|r| {
        r.2 = if r.1 == 1 { 0 } else { 1 + r.2 % 9 };
    });
    let rows = examples(&data);
    let grown = KernelForest::train(names(2), &rows, &SMALL).expect("grown");
    assert!(!grown.held_out.is_empty());
    for s in &grown.held_out {
        assert_eq!((s.class, rows[s.row].class), (0, 0));
    }
    let one_fold: Vec<Example> = rows.iter().map(|r| Example { group: 0, ..*r }).collect();
    let grown = KernelForest::train(names(2), &one_fold, &SMALL).expect("grown");
    assert_eq!((grown.held_out.len(), grown.forest.temperature), (0, 1.0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn f092_few_rows_and_repeated_values_do_not_break_it(
        data in prop::collection::vec((0usize..3, 0u32..3, 0u32..3, 0u64..4), 1..12),
        x in prop::collection::vec(prop::num::f32::ANY, 2),
    ) {
        let data: Vec<(Vec<f32>, usize, u64)> = data
            .into_iter()
            .map(|(class, a, b, g)| (vec![a as f32 / 2.0, b as f32 / 2.0], class, g))
            .collect();
        if let Ok(grown) = KernelForest::train(names(3), &examples(&data), &SMALL) {
            let p = grown.forest.probabilities(&x);
            prop_assert!(p.iter().all(|v| v.is_finite() && *v >= 0.0));
        }
    }
}
