use super::*;
use proptest::prelude::*;

fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    rng.next_u64() as f64 / u64::MAX as f64
}

/// Rows of a function with a little noise: not data of anything, only something to fit.
fn rows(n: usize, seed: u64, f: impl Fn(&[f32]) -> f64) -> (Vec<Vec<f32>>, Vec<f64>) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let row = |rng: &mut ChaCha8Rng| -> Vec<f32> { (0..4).map(|_| uniform(rng) as f32).collect() };
    let x: Vec<Vec<f32>> = (0..n).map(|_| row(&mut rng)).collect();
    let y = x.iter().map(|x| f(x) + 0.1 * uniform(&mut rng)).collect();
    (x, y)
}

fn train(x: &[Vec<f32>], y: &[f64], weight: &[f64], options: &GbtOptions) -> Gbt {
    let x: Vec<&[f32]> = x.iter().map(Vec::as_slice).collect();
    let rows = Rows { x: &x, y, weight };
    Gbt::train(&rows, options).expect("trains")
}

fn wavy(x: &[f32]) -> f64 {
    f64::from((9.0 * x[0]).sin() + x[1] * x[2] * 3.0 - x[2])
}

#[test]
fn a_function_is_learned() {
    let (x, y) = rows(2000, 7, wavy);
    let model = train(&x, &y, &vec![1.0; y.len()], &GbtOptions::default());
    let (x, y) = rows(500, 8, wavy);
    let error: f64 = x
        .iter()
        .zip(&y)
        .map(|(x, y)| (model.predict(x) - y).powi(2))
        .sum::<f64>()
        / y.len() as f64;
    let mean = y.iter().sum::<f64>() / y.len() as f64;
    let spread: f64 = y.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / y.len() as f64;
    assert!(error < 0.05 * spread, "{error} of {spread}");
    let sum: f64 = model.importances().iter().sum();
    assert!((sum - 1.0).abs() < 1e-9);
    assert!(model.importances()[3] < 0.05, "column 3 is noise");
}

#[test]
fn the_same_seed_gives_the_same_model_and_another_does_not() {
    let (x, y) = rows(500, 7, wavy);
    let weight = vec![1.0; y.len()];
    let of = |seed| {
        let options = GbtOptions {
            seed,
            trees: 30,
            ..GbtOptions::default()
        };
        train(&x, &y, &weight, &options)
    };
    assert_eq!(of(3), of(3));
    assert_ne!(of(3), of(4));
}

#[test]
fn weights_say_what_counts() {
    let x = vec![vec![0.5f32]; 4];
    let options = GbtOptions::default();
    let model = train(&x, &[1.0, 1.0, 5.0, 5.0], &[1.0, 1.0, 0.0, 0.0], &options);
    assert_eq!(model.predict(&[0.5]), 1.0);
    assert_eq!(model.predict(&[]), 1.0);
}

#[test]
fn rows_that_do_not_fit_are_refused() {
    let long: [&[f32]; 2] = [&[1.0], &[1.0, 2.0]];
    let even: [&[f32]; 2] = [&[1.0], &[2.0]];
    let of = |x, y, weight| Gbt::train(&Rows { x, y, weight }, &GbtOptions::default());
    assert_eq!(of(&long, &[1.0, 2.0], &[1.0, 1.0]), Err(GbtError::Shape));
    assert_eq!(of(&even, &[1.0], &[1.0, 1.0]), Err(GbtError::Shape));
    assert_eq!(of(&[], &[], &[]), Err(GbtError::Empty));
    assert_eq!(of(&even, &[1.0, 2.0], &[0.0, 0.0]), Err(GbtError::Empty));
    let nan = [f64::NAN, 2.0];
    assert_eq!(of(&even, &nan, &[1.0, 1.0]), Err(GbtError::NotFinite));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    // Labels that run against the constraints: whatever is learned from them must keep to these.
    #[test]
    fn constraints_hold_at_depth(
        seed: u64,
        depth in 4u32..8,
        huber: bool,
        probes in prop::collection::vec(prop::array::uniform4(0.0f32..1.0), 200),
    ) {
        let against = |x: &[f32]| wavy(x) - f64::from(2.0 * x[0] * (1.0 - x[1])) + f64::from((12.0 * x[1] * x[3]).cos());
        let (x, y) = rows(400, seed, against);
        let options = GbtOptions {
            trees: 40,
            depth,
            leaves: 64,
            min_weight: 1.0,
            l2: 0.1,
            rate: 0.3,
            loss: if huber { Loss::Huber(0.3) } else { Loss::Squared },
            directions: vec![Direction::Up, Direction::Down],
            seed,
            ..GbtOptions::default()
        };
        let model = train(&x, &y, &vec![1.0; y.len()], &options);
        for probe in probes {
            for (column, sign) in [(0, 1.0), (1, -1.0)] {
                let mut other = probe;
                let mut before = f64::NEG_INFINITY;
                for step in 0..=20 {
                    other[column] = step as f32 / 20.0;
                    let now = sign * model.predict(&other);
                    prop_assert!(now >= before, "column {column} at {other:?}: {before} then {now}");
                    before = now;
                }
            }
        }
    }

    #[test]
    fn any_values_train_and_answer_with_a_number(
        x in prop::collection::vec(prop::array::uniform3(prop::num::f32::ANY), 1..60),
        y in prop::collection::vec(-1e6..1e6f64, 60),
        bins in 0usize..300,
    ) {
        let x: Vec<Vec<f32>> = x.iter().map(|x| x.to_vec()).collect();
        let options = GbtOptions { trees: 5, bins, min_weight: 0.0, l2: 0.0, ..GbtOptions::default() };
        let model = train(&x, &y[..x.len()], &vec![1.0; x.len()], &options);
        prop_assert!(x.iter().all(|x| model.predict(x).is_finite()));
    }
}
