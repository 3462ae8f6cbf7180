use super::*;
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A machine whose tokens take times that a test wants.
struct Machine {
    rng: ChaCha8Rng,
    token: u32,
}

impl Machine {
    fn new(seed: u64) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            token: 0,
        }
    }

    fn uniform(&mut self) -> f64 {
        ((self.rng.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Runs a comparison to its end; `time` is that of a token by side and number, without noise. One token in fifty
    /// takes three times as long: others want the processor too.
    fn compare(&mut self, noise: f64, time: impl Fn(Side, u32) -> f64) -> AbTest {
        let mut test = AbTest::of_tokens();
        for _ in 0..10_000 {
            let late = if self.uniform() < 0.02 { 3.0 } else { 1.0 };
            let us = time(test.side(), self.token) * (noise * self.normal()).exp() * late;
            self.token += 1;
            if test.feed(us) == Action::Done {
                return test;
            }
        }
        panic!("no end");
    }
}

fn kept_of(n: u64, noise: f64, time: impl Fn(Side, u32) -> f64 + Copy) -> f64 {
    let kept = (0..n).filter(|seed| {
        let test = Machine::new(*seed).compare(noise, time);
        test.outcome().expect("decided").kept
    });
    kept.count() as f64 / n as f64
}

#[test]
fn no_difference_is_seldom_kept() {
    for noise in [0.01, 0.05, 0.2] {
        let share = kept_of(2000, noise, |_, _| 1000.0);
        println!(
            "noise {noise}: kept {:.2}% without a difference",
            share * 100.0
        );
        assert!(share <= 0.025, "{share}");
    }
}

#[test]
fn a_gain_of_a_tenth_is_found() {
    let time = |side, _| {
        if side == Side::Changed {
            1000.0 / 1.1
        } else {
            1000.0
        }
    };
    for noise in [0.01, 0.03, 0.05] {
        let share = kept_of(300, noise, time);
        println!("noise {noise}: {:.1}% of gains of 10% kept", share * 100.0);
        assert!(share >= 0.97, "{share}");
    }
    let o = Machine::new(1)
        .compare(0.03, time)
        .outcome()
        .expect("decided");
    assert!(
        (o.ratio() - 1.1).abs() < 0.04 && o.low <= o.ratio() && o.ratio() <= o.high,
        "{o:?}"
    );
    assert!(o.sentence().ends_with("faster, kept"), "{}", o.sentence());
}

#[test]
fn drift_alone_is_no_gain() {
    // Every token takes 0.1% less than the one before, or more: a processor that clocks up, a context that grows.
    for step in [-0.001, 0.001] {
        let share = kept_of(1000, 0.03, |_, token| {
            1000.0 * (step * f64::from(token)).exp()
        });
        println!("drift {step}: kept {:.2}%", share * 100.0);
        assert!(share <= 0.025, "{share}");
    }
}

#[test]
fn a_loss_is_given_up_early_and_said() {
    let time = |side, _| {
        if side == Side::Changed {
            1300.0
        } else {
            1000.0
        }
    };
    let test = Machine::new(3).compare(0.01, time);
    let o = test.outcome().expect("decided");
    assert!(!o.kept && o.counted <= 6 * 4 * BLOCK, "{o:?}");
    assert!(
        o.sentence().ends_with("slower, taken back"),
        "{}",
        o.sentence()
    );
    let status = test.status();
    assert!(
        matches!(
            status,
            RecommendationStatus::Reverted {
                significant: true,
                ..
            }
        ),
        "{status:?}"
    );
}

/// Feeds until `Done`, with the sides asked for.
fn sides(test: &mut AbTest, time: impl Fn(Side) -> f64) -> Vec<Side> {
    let mut current = Side::Present;
    let mut all = Vec::new();
    loop {
        assert_eq!(test.side(), current, "it says which side it waits for");
        all.push(current);
        match test.feed(time(current)) {
            Action::Continue => {}
            Action::Use(side) => current = side,
            Action::Done => return all,
        }
    }
}

#[test]
fn sides_take_turns_and_switches_are_not_counted() {
    let mut test = AbTest::of_tokens();
    let time = |side| if side == Side::Changed { 500.0 } else { 1000.0 };
    let all = sides(&mut test, time);
    // Eight groups are enough for a gain in each.
    let group = 4 * BLOCK + 2 * SETTLE;
    assert_eq!(all.len(), SETTLE + 8 * group);
    let o = test.outcome().expect("decided");
    assert_eq!(o.counted, 8 * 4 * BLOCK);
    assert!(o.kept && (o.ratio() - 2.0).abs() < 1e-9 && o.spread() < 1e-9);
    let first: Vec<_> = all.iter().take(group).collect();
    let present = SETTLE + BLOCK;
    assert!(first[..present].iter().all(|s| **s == Side::Present));
    assert!(
        first[present..present + SETTLE + 2 * BLOCK]
            .iter()
            .all(|s| **s == Side::Changed)
    );
    assert_eq!(test.feed(1.0), Action::Done);
}

#[test]
fn prompts_are_compared_one_by_one_the_first_four_for_nothing() {
    let mut test = AbTest::of_prompts();
    let time = |side| if side == Side::Changed { 90.0 } else { 100.0 };
    assert_eq!(sides(&mut test, time).len(), 9 * 4);
    assert!(test.outcome().is_some_and(|o| o.kept && o.counted == 32));
}

#[test]
fn a_new_run_begins_a_group_anew_unless_runs_are_short() {
    let mut test = AbTest::of_tokens();
    let group = 4 * BLOCK + 2 * SETTLE;
    // In the second group, with the change in use.
    for _ in 0..SETTLE + group + BLOCK + 1 {
        test.feed(1000.0);
    }
    assert_eq!(test.side(), Side::Changed);
    assert_eq!(test.interrupt(), Action::Use(Side::Present));
    // A run shorter than a group goes on where it was.
    for _ in 0..SETTLE + BLOCK + 1 {
        test.feed(1000.0);
    }
    assert_eq!(test.side(), Side::Changed);
    assert_eq!(test.interrupt(), Action::Continue);
    assert_eq!(test.side(), Side::Changed);
}

#[test]
fn useless_times_are_not_counted() {
    let mut test = AbTest::of_tokens();
    for us in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(test.feed(us), Action::Continue);
    }
    let total = (GROUPS * (4 * BLOCK + 2 * SETTLE)) as u32;
    assert_eq!(
        test.status(),
        RecommendationStatus::Measuring { done: 0, total }
    );
}

#[test]
fn intervals_are_those_of_the_tables() {
    // Hollander, Wolfe and Chicken, table A.4: for n = 10 the tail of 8 is 0.024, of 5 it is 0.010.
    assert_eq!(signed_rank(10, 0.025), Some(8));
    assert_eq!(signed_rank(10, 0.0098), Some(5));
    assert_eq!(signed_rank(6, 0.025), Some(0));
    assert_eq!(signed_rank(5, 0.025), None);
    let (low, mid, high) = interval(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0.025).expect("six");
    assert_eq!((low, mid, high), (1.0, 3.5, 6.0));
}

proptest! {
    #[test]
    fn it_ends_with_figures_whatever_the_times(
        times in prop::collection::vec(1.0f64..1e6, 1..64),
        breaks in prop::collection::vec(1usize..60, 0..8),
    ) {
        let mut test = AbTest::of_tokens();
        let mut breaks = breaks.into_iter();
        let mut next = breaks.next();
        let mut fed = 0;
        for us in times.iter().cycle().take(5000) {
            if test.feed(*us) == Action::Done {
                break;
            }
            fed += 1;
            if next == Some(fed) {
                fed = 0;
                test.interrupt();
                next = breaks.next();
            }
        }
        let o = test.outcome().expect("it ends");
        prop_assert!(o.before_tok_s.is_finite() && o.after_tok_s.is_finite() && o.after_tok_s > 0.0);
        prop_assert!(o.low <= o.ratio() * (1.0 + 1e-9) && o.ratio() <= o.high * (1.0 + 1e-9));
        prop_assert!(!o.kept || o.low > 1.0);
        prop_assert!(o.spread() >= 0.0);
    }
}
