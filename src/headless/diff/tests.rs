use super::text::{Style, render, verdict};
use super::*;
use crate::tui::fixture::{decode, hostile, starting};

/// `decode(n)` with the times of brick `id` multiplied, the step's with them.
fn slowed(id: BrickId, by: f64) -> Snapshot {
    let mut s = decode(200);
    let mut more = 0.0;
    for row in s.bricks.iter_mut().filter(|r| r.id == id) {
        more = row.us_per_step * (by - 1.0);
        row.us_per_step += more;
    }
    s.latency.mean_us = s.latency.mean_us.map(|m| m + more);
    s
}

#[test]
fn the_largest_change_comes_first_and_is_beyond_chance() {
    let (a, b) = (decode(200), slowed(BrickId::DownProj, 1.2));
    let diff = compare(&a, &b);
    let first = &diff.bricks[0];
    assert_eq!(
        (first.name.as_str(), first.verdict),
        ("DownProj", Verdict::Slower)
    );
    assert!((first.change.expect("known") - 0.2).abs() < 1e-9);
    let i = first.interval().expect("known");
    assert!(i.low < 0.2 && 0.2 < i.high && i.low > 0.15, "{i:?}");
    // What did not change stays in the order in which it runs.
    let rest: Vec<_> = diff.bricks[1..].iter().map(|r| r.name.clone()).collect();
    let order: Vec<_> = a
        .bricks
        .iter()
        .map(|r| r.id.name().to_owned())
        .filter(|n| n != "DownProj")
        .collect();
    assert_eq!(rest, order);
    assert!(diff.bricks[1..].iter().all(|r| r.verdict == Verdict::Same));
    assert!(diff.unlike.is_empty() && diff.notes.is_empty(), "{diff:?}");
    let back = compare(&b, &a);
    assert_eq!(back.bricks[0].verdict, Verdict::Faster);
}

#[test]
fn a_check_fails_on_what_is_slower_by_more_than_its_limit() {
    let (a, b) = (decode(200), slowed(BrickId::DownProj, 1.2));
    let check = |above| compare(&a, &b).check(above).expect("judged");
    assert_eq!(check(0.05).slower, ["DownProj"]);
    assert_eq!(check(0.0).slower, ["step", "DownProj"]);
    assert!(!check(0.05).passed && check(0.25).passed);
    assert!(compare(&b, &a).check(0.0).expect("judged").passed, "faster");
    // A brick below one per cent of the step counts for nothing alone.
    let b = slowed(BrickId::Embed, 1.5);
    let diff = compare(&a, &b);
    assert_eq!(diff.bricks[0].verdict, Verdict::Slower);
    assert!(diff.check(0.05).expect("judged").passed);
}

#[test]
fn without_deviations_nothing_is_said_to_differ() {
    let mut b = slowed(BrickId::DownProj, 1.2);
    b.bricks.iter_mut().for_each(|r| r.step_stddev_us = None);
    b.latency = Default::default();
    let diff = compare(&decode(200), &b);
    assert!(diff.notes[0].contains("B does not say"), "{:?}", diff.notes);
    assert_eq!(diff.bricks[0].verdict, Verdict::NoInterval);
    assert_eq!(diff.bricks[0].interval_us, None);
    assert_eq!(diff.check(0.05), None);
    let text = render(&diff, ["a", "b"], Style::default());
    assert!(text.contains("? no interval"), "{text}");
    // The step alone can be judged.
    b.latency = decode(200).latency;
    let check = compare(&decode(200), &b).check(0.05).expect("judged");
    assert!(check.not_judged.contains(&"DownProj".to_owned()));
    assert!(verdict(&check, Style::default()).contains("not judged"));
}

#[test]
fn bricks_of_one_run_only_are_named() {
    let a = decode(200);
    let mut b = decode(200);
    b.bricks.retain(|r| r.id != BrickId::LmHead);
    let diff = compare(&a, &b);
    assert_eq!(
        (diff.bricks[0].name.as_str(), diff.bricks[0].verdict),
        ("LmHead", Verdict::OnlyA)
    );
    assert_eq!((diff.bricks[0].b_us, diff.bricks[0].change), (None, None));
    assert_eq!(compare(&b, &a).bricks[0].verdict, Verdict::OnlyB);
}

#[test]
fn unlike_runs_are_said_to_be() {
    let mut b = decode(200);
    let mut engine = (*b.engine).clone();
    engine.threads += 1;
    b.engine = engine.into();
    let mut machine = (*b.machine).clone();
    machine.cpu = "another \x1b[31m one".into();
    b.machine = machine.into();
    let diff = compare(&decode(200), &b);
    let of: Vec<_> = diff.unlike.iter().map(|u| (u.of, u.what)).collect();
    assert_eq!(of, [("machine", "processor"), ("configuration", "threads")]);
    let text = render(&diff, ["a\x1b[2J", "b"], Style::default());
    let top: Vec<_> = text.lines().take(5).collect();
    assert!(
        top[2].contains("not of the same thing") && top[4].contains("threads"),
        "{text}"
    );
    assert!(!text.contains('\x1b'));
}

#[test]
fn colour_adds_nothing_to_the_words() {
    let diff = compare(&decode(200), &slowed(BrickId::DownProj, 1.2));
    let plain = render(&diff, ["a", "b"], Style::default());
    let coloured = render(&diff, ["a", "b"], Style { colour: true });
    assert!(plain.contains("+ slower") && coloured.contains("\x1b[31m"));
    let mut stripped = String::new();
    for (i, part) in coloured.split('\x1b').enumerate() {
        stripped.push_str(if i == 0 {
            part
        } else {
            part.split_once('m').expect("an end").1
        });
    }
    assert_eq!(stripped, plain);
}

#[test]
fn useless_figures_are_no_differences() {
    for (a, b) in [
        (hostile(), decode(40)),
        (decode(40), hostile()),
        (hostile(), hostile()),
        (starting(), decode(40)),
        (starting(), starting()),
    ] {
        let diff = compare(&a, &b);
        let text = render(&diff, ["a", "b"], Style::default());
        assert!(!text.contains('\x1b'));
        for row in &diff.bricks {
            assert!(row.change.is_none_or(f64::is_finite), "{row:?}");
            assert!(
                row.interval_us
                    .is_none_or(|i| i.low.is_finite() && i.high.is_finite()),
                "{row:?}"
            );
        }
        let _ = diff.check(0.05);
        assert!(serde_json::to_string(&diff).is_ok());
    }
    assert!(compare(&starting(), &decode(40)).notes[0].contains("no decode steps"));
}
