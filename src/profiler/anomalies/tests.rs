use super::*;
use crate::profiler::figures::Cause;
use proptest::prelude::*;

const B: usize = BrickId::COUNT;

/// Numbers from 0 to 1 that look random (xorshift64*), the same in every run.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Mean 0, standard deviation 1, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().max(1e-300).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

fn quiet(position: u32) -> TokenTime {
    TokenTime {
        position,
        us: 0.0,
        minor_faults: Some(0),
        major_faults: Some(0),
        preempted: Some(0),
        migrations: Some(0),
        slow: false,
    }
}

/// Times of a token by brick with relative noise `sigma`, and attention growing by `growth` a position.
fn bricks(random: &mut Random, position: u32, sigma: f64, growth: f64) -> [f32; B] {
    let mut us = [0.0; B];
    let mut set = |id: BrickId, mean: f64| {
        us[id as usize] = (mean * (1.0 + sigma * random.normal())).max(0.0) as f32;
    };
    set(BrickId::QProj, 60.0);
    set(BrickId::Attention, 20.0 + growth * f64::from(position));
    set(BrickId::GateProj, 90.0);
    set(BrickId::DownProj, 80.0);
    set(BrickId::LmHead, 40.0);
    set(BrickId::Sync, 10.0);
    us
}

fn sum(bricks: &[f32; B]) -> f64 {
    bricks.iter().map(|v| f64::from(*v)).sum()
}

fn push(watch: &mut Watch, token: TokenTime, bricks: &[f32; B]) -> bool {
    watch.push(
        TokenTime {
            us: sum(bricks),
            ..token
        },
        bricks,
    )
}

#[test]
fn injected_slow_tokens_are_all_found_with_brick_and_cause() {
    let mut random = Random(7);
    let mut watch = Watch::new(TOKENS);
    let mut injected = Vec::new();
    for position in 0..2000 {
        let mut us = bricks(&mut random, position, 0.01, 0.001);
        let mut token = quiet(position);
        if position >= 40 && position % 37 == 0 {
            let (brick, cause) = match position % 5 {
                0 => (BrickId::LmHead, Cause::Preempted),
                1 => (BrickId::Sync, Cause::Imbalance),
                2 => (BrickId::DownProj, Cause::MajorFaults),
                3 => (BrickId::QProj, Cause::Unknown),
                _ => (BrickId::GateProj, Cause::Migrated),
            };
            match cause {
                Cause::Preempted => token.preempted = Some(2),
                Cause::MajorFaults => token.major_faults = Some(1),
                Cause::Migrated => token.migrations = Some(1),
                _ => {}
            }
            us[brick as usize] += 60.0;
            injected.push((position, brick, cause));
        }
        let slow = push(&mut watch, token, &us);
        assert_eq!(
            slow,
            injected.last().is_some_and(|i| i.0 == position),
            "{position}"
        );
    }
    let found: Vec<_> = watch
        .anomalies()
        .iter()
        .map(|a| (a.position, a.brick.unwrap(), a.cause))
        .collect();
    assert_eq!(found, injected[injected.len() - found.len()..]);
    assert!(found.len() >= 50);
    for a in watch.anomalies() {
        assert!(a.by_rule && (50.0..75.0).contains(&a.excess_us) && a.us > a.expected_us * 1.1);
    }
}

#[test]
fn stationary_noise_raises_at_most_one_alarm_in_ten_thousand_tokens() {
    // Bricks vary on their own: a token varies by about 0.45 of it.
    for sigma in [0.01, 0.05, 0.1, 0.2, 0.3] {
        let mut random = Random(11);
        let mut watch = Watch::new(TOKENS);
        let mut alarms = 0;
        for position in 0..10_000 {
            let us = bricks(&mut random, position, sigma, 0.0);
            alarms += u32::from(push(&mut watch, quiet(position), &us));
            if position % 200 == 0 {
                watch.cluster(Duration::from_secs(u64::from(position)));
            }
        }
        assert!(alarms <= 1, "{sigma}: {alarms}");
        let clusters = watch.anomalies().iter().filter(|a| a.by_clusters).count();
        assert!(clusters <= 1, "{sigma}: {clusters} by clusters");
    }
}

#[test]
fn growth_with_context_alone_is_no_fault() {
    for growth in [0.01, 0.1, 1.0] {
        let mut random = Random(3);
        let mut watch = Watch::new(TOKENS);
        for position in 0..3000 {
            let us = bricks(&mut random, position, 0.003, growth);
            let slow = push(&mut watch, quiet(position), &us);
            assert!(!slow, "{growth} at {position}: {:?}", watch.anomalies());
            if position % 100 == 0 {
                watch.cluster(Duration::from_secs(u64::from(position)));
            }
        }
        assert!(
            watch.anomalies().is_empty(),
            "{growth}: {:?}",
            watch.anomalies()
        );
    }
}

#[test]
fn a_jump_in_context_is_called_by_its_name() {
    let mut random = Random(5);
    let mut watch = Watch::new(TOKENS);
    // Too little growth to be told from noise, until a prompt of 4,000 tokens is appended.
    for position in 100..160 {
        let us = bricks(&mut random, position, 0.003, 0.05);
        assert!(!push(&mut watch, quiet(position), &us));
    }
    let us = bricks(&mut random, 4160, 0.003, 0.05);
    assert!(push(&mut watch, quiet(4160), &us));
    let found = watch.anomalies();
    assert_eq!(
        (found[0].cause, found[0].brick),
        (Cause::LongerContext, Some(BrickId::Attention))
    );
    assert!(
        found[0].says.ends_with("us more with a longer context"),
        "{}",
        found[0].says
    );
}

#[test]
fn clusters_flag_what_the_rule_flags_and_say_so() {
    let mut random = Random(9);
    let mut watch = Watch::new(TOKENS);
    for position in 0..300 {
        let mut us = bricks(&mut random, position, 0.01, 0.0);
        if position % 50 == 49 {
            us[BrickId::LmHead as usize] += 100.0;
        }
        push(&mut watch, quiet(position), &us);
    }
    assert!(watch.cluster(Duration::from_secs(1)));
    let both = watch.anomalies();
    assert_eq!(both.len(), 6);
    assert!(both.iter().all(|a| a.by_clusters));
    assert!(both.iter().all(|a| a.by_rule));
    assert!(!watch.cluster(Duration::from_secs(9)), "no new token");
    let us = bricks(&mut random, 300, 0.01, 0.0);
    push(&mut watch, quiet(300), &us);
    assert!(!watch.cluster(Duration::from_secs(2)), "too early");
    assert!(watch.cluster(Duration::from_secs(3)));
}

#[test]
fn clusters_find_slow_tokens_that_came_before_the_rule_had_a_baseline() {
    let mut random = Random(13);
    let mut watch = Watch::new(TOKENS);
    for position in 0..120 {
        let mut us = bricks(&mut random, position, 0.01, 0.0);
        if position == 4 {
            us[BrickId::DownProj as usize] += 100.0;
        }
        assert!(!push(&mut watch, quiet(position), &us));
    }
    watch.cluster(Duration::ZERO);
    let found = watch.anomalies();
    assert_eq!(found.len(), 1);
    assert!(found[0].by_clusters && !found[0].by_rule && found[0].position == 4);
    assert_eq!(found[0].brick, Some(BrickId::DownProj));
    assert!(watch.token_times()[4].slow);
}

#[test]
fn a_new_level_is_flagged_a_few_times_and_then_accepted() {
    let mut random = Random(17);
    let mut watch = Watch::new(TOKENS);
    let mut alarms = 0;
    for position in 0..600 {
        let us = bricks(&mut random, position, 0.01, 0.0)
            .map(|us| if position < 300 { us } else { 1.4 * us });
        alarms += u32::from(push(&mut watch, quiet(position), &us));
    }
    assert_eq!(alarms, NEW_LEVEL);
}

#[test]
fn a_new_sequence_is_no_anomaly_and_clear_forgets() {
    let mut random = Random(19);
    let mut watch = Watch::new(TOKENS);
    for _ in 0..5 {
        for position in 10..150 {
            let us = bricks(&mut random, position, 0.01, 0.2);
            assert!(
                !push(&mut watch, quiet(position), &us),
                "{:?}",
                watch.anomalies()
            );
        }
    }
    assert_eq!(watch.token_times().len(), 512);
    watch.clear();
    assert!(watch.token_times().is_empty() && watch.anomalies().is_empty());
    assert!(!watch.cluster(Duration::from_secs(99)));
}

#[test]
fn modelled_time_without_any_spread_is_judged_by_the_margin() {
    let mut watch = Watch::new(TOKENS);
    for position in 0..100 {
        let mut us = bricks(&mut Random(1), position, 0.0, 0.0);
        us[BrickId::QProj as usize] += if position == 50 { 40.0 } else { 0.0 };
        assert_eq!(push(&mut watch, quiet(position), &us), position == 50);
    }
    assert_eq!(
        watch.anomalies()[0].says,
        "340 us instead of 300 us: QProj took 40 us more and no counter says why"
    );
}

#[test]
fn sentences_name_brick_loss_and_cause() {
    let mut watch = Watch::new(TOKENS);
    let steady = bricks(&mut Random(1), 0, 0.0, 0.0);
    for position in 0..30 {
        push(&mut watch, quiet(position), &steady);
    }
    let mut slow = steady;
    slow[BrickId::LmHead as usize] += 2300.0;
    type Happen = fn(&mut TokenTime);
    let cases: [(Happen, &str); 6] = [
        (
            |t| t.major_faults = Some(3),
            "while 3 pages were read from disk",
        ),
        (
            |t| (t.preempted, t.migrations) = (Some(1), Some(1)),
            "while the scheduler took the CPU away once",
        ),
        (
            |t| (t.migrations, t.minor_faults) = (Some(2), Some(9)),
            "while 2 threads moved to another core",
        ),
        (
            |t| t.minor_faults = Some(1),
            "while a page was mapped for the first time",
        ),
        (|t| t.minor_faults = None, "and no counter says why"),
        (|_| {}, "and no counter says why"),
    ];
    for (i, (happen, why)) in cases.into_iter().enumerate() {
        let mut token = quiet(30 + i as u32);
        happen(&mut token);
        assert!(push(&mut watch, token, &slow));
        let says = watch.anomalies().pop().map(|a| a.says);
        assert_eq!(
            says,
            Some(format!(
                "2.6 ms instead of 300 us: LmHead took 2.3 ms more {why}"
            ))
        );
    }
}

/// `cargo test --release --lib anomalies -- --ignored --nocapture` prints what watching costs.
#[test]
#[ignore = "a measurement, not a check"]
fn print_cost() {
    let mut random = Random(23);
    let tokens: Vec<_> = (0..10_000)
        .map(|p| (quiet(p), bricks(&mut random, p, 0.02, 0.001)))
        .collect();
    let mut watch = Watch::new(TOKENS);
    let start = std::time::Instant::now();
    let slow = tokens
        .iter()
        .filter(|(t, b)| push(&mut watch, *t, b))
        .count();
    println!("{:?} a token, {slow} slow", start.elapsed() / 10_000);
    for i in 0..3 {
        let start = std::time::Instant::now();
        assert!(push(
            &mut watch,
            quiet(10_000 + i),
            &tokens[0].1.map(|us| 2.0 * us)
        ));
        let slow = start.elapsed();
        let start = std::time::Instant::now();
        watch.cluster(Duration::from_secs(10 * (1 + u64::from(i))));
        println!("slow token {slow:?}, clustering {:?}", start.elapsed());
    }
}

proptest! {
    #[test]
    fn nothing_upsets_it(
        tokens in prop::collection::vec(
            (prop_oneof![0u32..600, any::<u32>()], prop::num::f32::ANY, any::<Option<u32>>(), any::<Option<u32>>(), any::<bool>()),
            0..700,
        ),
        capacity: usize,
    ) {
        let mut watch = Watch::new(capacity.min(1000));
        for (i, &(position, value, a, b, scaled)) in tokens.iter().enumerate() {
            let us = std::array::from_fn(|id| if id % 3 == i % 3 { value } else { 5.0 });
            let token = TokenTime {
                us: if scaled { 100.0 + f64::from(position % 100) } else { f64::from(value) },
                minor_faults: a,
                preempted: b,
                ..quiet(position)
            };
            watch.push(token, &us);
            if i % 100 == 99 {
                watch.cluster(Duration::from_secs(i as u64));
            }
        }
        let anomalies = watch.anomalies();
        prop_assert!(anomalies.len() <= ANOMALIES);
        prop_assert!(anomalies.iter().all(|a| a.by_rule || a.by_clusters));
        prop_assert!(anomalies.iter().all(|a| a.us.is_finite() && a.expected_us.is_finite() && a.excess_us.is_finite()));
        prop_assert!(watch.token_times().iter().all(|t| t.us.is_finite() && t.us > 0.0));
    }
}
