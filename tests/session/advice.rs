//! Recommendations: applied, measured, undone.

use super::support::*;
use cbtop::engine::config::cpus;
use cbtop::engine::cpu::KernelSet;
use cbtop::profiler::Clock;
use cbtop::profiler::probe::Bandwidth;
use cbtop::session::snapshot::{Command, Recommendation, RecommendationStatus, RunState, Setting};
use cbtop::session::tuner::TunerOptions;
use cbtop::session::{Options, Session};
use cbtop::tuner::run::Origin;
use cbtop::tuner::store::Store;

/// Needs no figures of the machine: more threads than CPUs.
const THREADS: &str = "fewer-threads";

fn apply(s: &mut Session, id: &str) {
    obey(s, Command::Apply(id.into()));
}

/// On the demo, measured, with more threads than CPUs and scalar kernels: two changes to recommend.
fn slow(change: impl FnOnce(&mut Options)) -> Session {
    let mut o = options("The capital of France is");
    o.clock = Clock::calibrated();
    o.config.n_ctx = 256;
    o.config.threads = cpus() + 1;
    change(&mut o);
    let many = o.config.threads > cpus();
    let mut s = session(demo(), o);
    until(&mut s, "advice", |s| {
        if !many {
            return true;
        }
        s.snapshot()
            .recommendations
            .iter()
            .any(|r| r.id == THREADS && r.applicable)
    });
    s
}

/// Ticks until a change is decided on; whether it is in force then.
fn decided(s: &mut Session, id: &str) -> bool {
    until(s, "a result", |s| {
        matches!(
            status(&s.snapshot(), id),
            RecommendationStatus::Applied { .. } | RecommendationStatus::Reverted { .. }
        )
    });
    matches!(
        status(&s.snapshot(), id),
        RecommendationStatus::Applied { .. }
    )
}

#[test]
fn a_change_is_measured_and_stays_or_goes_by_itself() {
    let mut s = slow(|o| o.endless = true);
    let before = s.setup();
    apply(&mut s, THREADS);
    let snap = s.snapshot();
    assert!(matches!(
        status(&snap, THREADS),
        RecommendationStatus::Measuring { .. }
    ));
    // One at a time.
    apply(&mut s, "kernels");
    assert!(error_of(&s.snapshot()).contains("being measured"));

    let kept = decided(&mut s, THREADS);
    let snap = s.snapshot();
    let (RecommendationStatus::Applied {
        before_tok_s,
        after_tok_s,
        spread,
        significant,
    }
    | RecommendationStatus::Reverted {
        before_tok_s,
        after_tok_s,
        spread,
        significant,
    }) = status(&snap, THREADS)
    else {
        unreachable!()
    };
    assert!(before_tok_s > 0.0 && after_tok_s > 0.0 && spread >= 0.0);
    assert!(!kept || significant && after_tok_s > before_tok_s);
    let said = snap.message.expect("a result is said");
    assert!(!said.is_error && said.text.contains("tok/s"), "{said:?}");
    assert_eq!(snap.engine.threads as usize <= cpus(), kept);
    assert_eq!(s.setup() != before, kept);

    if kept {
        apply(&mut s, THREADS);
        assert!(error_of(&s.snapshot()).contains("applied already"));
        obey(&mut s, Command::Undo);
        let snap = s.snapshot();
        assert!(matches!(
            status(&snap, THREADS),
            RecommendationStatus::Undone { .. }
        ));
        assert!(snap.bricks.is_empty() && snap.rates.decode_mean_tok_s.is_none());
    }
    assert_eq!(s.setup(), before);
    obey(&mut s, Command::Undo);
    assert_eq!(error_of(&s.snapshot()), "nothing to undo");
    // And once more.
    apply(&mut s, THREADS);
    assert!(matches!(
        status(&s.snapshot(), THREADS),
        RecommendationStatus::Measuring { .. }
    ));
}

#[test]
fn more_threads_start_from_one() {
    if cpus() == 1 {
        println!("skipped: one CPU");
        return;
    }
    let mut s = slow_from_one();
    apply(&mut s, "more-threads");
    let kept = decided(&mut s, "more-threads");
    assert_eq!(s.snapshot().engine.threads > 1, kept);
}

fn slow_from_one() -> Session {
    let mut o = options("The capital of France is");
    o.clock = Clock::calibrated();
    o.endless = true;
    // A probe that leaves no doubt: one thread gets next to nothing.
    let all = 1..=cpus() as u32;
    o.bandwidth = all
        .map(|threads| Bandwidth {
            threads,
            gbps: if threads == 1 { 0.001 } else { 100.0 },
        })
        .collect();
    let mut s = session(demo(), o);
    until(&mut s, "advice", |s| {
        s.snapshot()
            .recommendations
            .iter()
            .any(|r| r.id == "more-threads")
    });
    s
}

#[test]
fn changes_are_undone_last_first_whatever_their_place() {
    if KernelSet::best() == KernelSet::Scalar {
        println!("skipped: no vector kernels");
        return;
    }
    let mut s = slow(|o| o.endless = true);
    until(&mut s, "advice", |s| {
        s.snapshot()
            .recommendations
            .iter()
            .any(|r| r.id == "kernels")
    });
    // Against their order in the list.
    let mut stack = Vec::new();
    for id in ["kernels", THREADS] {
        let before = s.setup();
        apply(&mut s, id);
        if decided(&mut s, id) {
            stack.push(before);
        } else {
            assert_eq!(s.setup(), before);
        }
    }
    while let Some(before) = stack.pop() {
        obey(&mut s, Command::Undo);
        assert_eq!(s.setup(), before);
    }
    obey(&mut s, Command::Undo);
    assert_eq!(error_of(&s.snapshot()), "nothing to undo");
}

#[test]
fn text_goes_on_across_changes() {
    let mut o = options("The capital of France is");
    o.config.n_ctx = 256;
    let plain = plain_ids(demo(), o, 100);
    let mut s = slow(|_| {});
    apply(&mut s, THREADS);
    until(&mut s, "a change inside the run", |s| {
        s.snapshot().engine.threads as usize <= cpus() || s.is_over()
    });
    obey(&mut s, Command::Undo);
    until(&mut s, "a hundred tokens", |s| {
        s.generated() >= 100 || s.is_over()
    });
    let got = ids(&mut s);
    assert_eq!(got[..], plain[..got.len()]);
}

#[test]
fn undo_before_the_change_breaks_the_measurement_off() {
    let mut s = slow(|_| {});
    apply(&mut s, THREADS);
    let threads = s.snapshot().engine.threads as usize;
    assert_eq!(threads, cpus() + 1, "the present setup is measured first");
    obey(&mut s, Command::Undo);
    let snap = s.snapshot();
    assert_eq!(status(&snap, THREADS), RecommendationStatus::Open);
    assert!(!snap.message.expect("said").is_error);
}

#[test]
fn another_prompt_ends_a_measurement() {
    let mut s = slow(|_| {});
    apply(&mut s, THREADS);
    until(&mut s, "the change", |s| {
        s.snapshot().engine.threads as usize <= cpus()
    });
    obey(&mut s, Command::NewPrompt("The capital of Spain is".into()));
    let snap = s.snapshot();
    assert_eq!(status(&snap, THREADS), RecommendationStatus::Open);
    assert_eq!(
        snap.engine.threads as usize,
        cpus() + 1,
        "not measured, not kept"
    );
    assert!(error_of(&snap).contains("not measured"));
    assert_eq!(snap.prompt, "The capital of Spain is");
}

#[test]
fn a_measurement_goes_over_the_end_of_a_run() {
    let mut s = slow(|o| o.max_tokens = Some(9));
    finish(&mut s);
    apply(&mut s, THREADS);
    decided(&mut s, THREADS);
    assert_eq!(finish(&mut s), "token limit");
    assert_eq!(s.generated(), 9);
}

#[test]
fn a_run_that_decodes_nothing_cannot_be_measured() {
    let mut s = slow(|o| o.max_tokens = Some(1));
    finish(&mut s);
    apply(&mut s, THREADS);
    finish(&mut s);
    let snap = s.snapshot();
    assert_eq!(status(&snap, THREADS), RecommendationStatus::Open);
    assert!(error_of(&snap).contains("not measured"));
}

#[test]
fn applying_on_the_last_layers_of_a_run_does_not_hang() {
    let mut s = slow(|o| o.max_tokens = Some(12));
    until(&mut s, "eleven", |s| s.generated() == 11);
    obey(&mut s, Command::StepLayer);
    s.tick();
    assert!(matches!(s.state(), RunState::PausedAtLayer { .. }));
    apply(&mut s, THREADS);
    assert!(!s.is_idle(), "{:?}", s.state());
    decided(&mut s, THREADS);
}

#[test]
fn a_chunk_is_measured_on_the_prompt() {
    let mut o = options(&"The capital of France is Paris. ".repeat(8));
    (o.config.n_ctx, o.config.chunk) = (256, 4);
    let mut s = session(demo(), o);
    until(&mut s, "advice", |s| {
        s.snapshot().recommendations.iter().any(|r| r.id == "chunk")
    });
    until(&mut s, "text", |s| s.generated() == 4);
    // In the middle of a token, too.
    obey(&mut s, Command::StepLayer);
    s.tick();
    apply(&mut s, "chunk");
    // Steps are rounds meanwhile.
    obey(&mut s, Command::StepLayer);
    s.tick();
    assert_eq!(s.state(), RunState::Paused);
    obey(&mut s, Command::TogglePause);
    assert!(decided(&mut s, "chunk"));
    let snap = s.snapshot();
    let RecommendationStatus::Applied {
        before_tok_s,
        after_tok_s,
        ..
    } = status(&snap, "chunk")
    else {
        panic!("{:?}", snap.recommendations)
    };
    // The modelled clock charges weights once a chunk.
    assert!(after_tok_s > before_tok_s, "{before_tok_s} {after_tok_s}");
    assert!(snap.engine.chunk > 4);
    assert_eq!((snap.generated, snap.context_used), (0, 0));
    obey(&mut s, Command::Undo);
    let snap = s.snapshot();
    assert_eq!(snap.engine.chunk, 4);
    assert!(matches!(
        status(&snap, "chunk"),
        RecommendationStatus::Undone { .. }
    ));
}

#[test]
fn what_cannot_be_applied_is_explained() {
    let mut s = slow(|_| {});
    apply(&mut s, "no-such-rule");
    assert!(error_of(&s.snapshot()).contains("no-such-rule"));
    let outside = s
        .snapshot()
        .recommendations
        .into_iter()
        .find(|r| !r.applicable);
    if let Some(r) = outside {
        apply(&mut s, &r.id);
        assert!(error_of(&s.snapshot()).contains("outside cbtop"));
    }
}

/// A session with the tuner's models and a store in `folder`.
fn tuned(folder: &tempfile::TempDir) -> Session {
    let mut s = slow(|o| {
        o.endless = true;
        o.config.threads = 1;
        o.tuner = Some(TunerOptions {
            store: Some(folder.path().join("runs.sqlite")),
            model: None,
            telemetry: Some(folder.path().join("telemetry.jsonl")),
        });
    });
    until(&mut s, "a rate", |s| s.generated() > 32);
    s.await_tuner();
    s
}

#[test]
fn f061_the_tuner_reads_the_profiler_and_says_what_to_change() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut s = tuned(&folder);
    let snap = s.snapshot();
    let tuner = snap.tuner.expect("an answer");
    assert!(tuner.current_tok_s.is_some_and(|r| r > 0.0));
    assert!(!tuner.says.is_empty() && !tuner.method.is_empty());
    for r in &snap.recommendations {
        assert_eq!(r.change.len(), r.now.len());
        assert_ne!(r.change, r.now, "{r:?}");
        assert!(r.change.iter().all(|c| c.knob != "sync-mode"), "{r:?}");
        if r.applicable {
            assert!(
                s.setup().with(&r.change).is_ok() && !r.risk.is_empty(),
                "{r:?}"
            );
        }
    }
}

#[test]
fn all_suggestions_are_tried_what_is_kept_is_in_force_and_kept_in_the_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut s = tuned(&folder);
    let before = s.setup();
    let open = s.snapshot().recommendations;
    obey(&mut s, Command::TryAll);
    let mut ticks = 0;
    while s.is_racing() {
        s.tick();
        ticks += 1;
        if ticks % 500 == 0 {
            let race = s.snapshot().tuner.and_then(|t| t.race.clone());
            assert!(race.is_none_or(|r| r.done <= r.total && r.kept <= r.done));
        }
        assert!(ticks < 100_000, "{:?}", s.snapshot());
    }
    let said = s.message().cloned().expect("a result is said");
    assert!(!said.is_error, "{said:?}");
    let after = s.snapshot().recommendations;
    let is_precise = |change: &[Setting]| change.iter().all(|c| c.knob != "kv-type");
    let tried = |r: &&Recommendation| {
        open.iter().any(|o| o.id == r.id) && r.status != RecommendationStatus::Open
    };
    let results: Vec<_> = after.iter().filter(tried).collect();
    assert!(results.iter().all(|r| is_precise(&r.change)), "{results:?}");
    let kept: Vec<_> = results
        .iter()
        .filter(|r| matches!(r.status, RecommendationStatus::Applied { .. }))
        .collect();
    let in_force = before.changes_to(&s.setup());
    assert_eq!(
        kept.is_empty(),
        in_force.is_empty(),
        "{kept:?} {in_force:?}"
    );
    for setting in &in_force {
        assert!(
            kept.iter().any(|r| r.change.contains(setting)),
            "{setting:?}"
        );
    }
    for _ in &kept {
        obey(&mut s, Command::Undo);
    }
    assert_eq!(s.setup(), before);
    let measured = results.len();
    // The store is written by the time the session is gone.
    drop(s);
    let path = folder.path().join("runs.sqlite");
    let store = Store::open(&path).expect("a store");
    let runs = store.runs().expect("runs");
    // A result that a busy machine made wide is none.
    assert!(runs.len() <= 2 * measured && runs.len().is_multiple_of(2));
    assert!(runs.iter().all(|r| r.origin == Origin::Feedback));
    // What is in a line is looked at by f293 (tests/tuner_data.rs).
    let told = std::fs::read_to_string(folder.path().join("telemetry.jsonl")).unwrap_or_default();
    assert_eq!(told.lines().count(), runs.len());
}

#[test]
fn trying_all_is_stopped_by_asking_again_or_undoing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut s = tuned(&folder);
    let before = s.setup();
    for stop in [Command::TryAll, Command::Undo] {
        obey(&mut s, Command::TryAll);
        if !s.is_racing() {
            println!("skipped: nothing to try here");
            return;
        }
        s.tick();
        obey(&mut s, stop);
        assert!(!s.is_racing());
        assert_eq!(s.setup(), before);
    }
}

#[test]
fn the_bandit_turns_over_only_within_its_bound() {
    let mut o = options("The capital of France is");
    o.clock = Clock::calibrated();
    o.config.n_ctx = 256;
    o.endless = true;
    o.tuner = Some(TunerOptions::default());
    o.config.kernels = KernelSet::best();
    let mut s = session(demo(), o);
    until(&mut s, "tokens", |s| s.generated() > 8);
    obey(&mut s, Command::Bandit(true));
    let snap = s.snapshot();
    let Some(frame) = snap.tuner.and_then(|t| t.bandit.clone()) else {
        assert!(error_of(&s.snapshot()).contains("nothing to choose from"));
        println!("skipped: one set of kernels");
        return;
    };
    assert!(frame.arms.len() > 1 && frame.current == KernelSet::best().name());
    for _ in 0..2000 {
        s.tick();
    }
    let frame = s
        .snapshot()
        .tuner
        .and_then(|t| t.bandit.clone())
        .expect("on");
    assert!(frame.arms.iter().any(|a| a.tokens > 0));
    // What is kept of one set of kernels is not to be mixed up with another.
    for command in [
        Command::Apply(THREADS.into()),
        Command::TryAll,
        Command::Undo,
    ] {
        obey(&mut s, command);
        assert!(error_of(&s.snapshot()).contains("bandit"));
    }
    assert!(!s.is_racing());
    obey(&mut s, Command::Bandit(false));
    assert!(s.snapshot().tuner.is_none_or(|t| t.bandit.is_none()));
}

#[test]
fn a_run_that_is_too_short_to_measure_in_says_so() {
    let mut o = options("The capital of France is");
    o.clock = Clock::calibrated();
    o.max_tokens = Some(3);
    o.tuner = Some(TunerOptions::default());
    let mut s = session(demo(), o);
    finish(&mut s);
    s.await_tuner();
    let before = s.setup();
    let offered = s.snapshot().recommendations;
    if !offered.iter().any(|r| r.is_for_all() && !r.of_prompts) {
        println!("skipped: nothing to try here");
        return;
    }
    obey(&mut s, Command::TryAll);
    for _ in 0..5000 {
        if !s.is_racing() {
            break;
        }
        s.tick();
    }
    assert!(!s.is_racing(), "it ends");
    let said = s.message().cloned().expect("a result");
    assert!(said.text.contains("too short"), "{said:?}");
    assert_eq!(s.setup(), before);
}
