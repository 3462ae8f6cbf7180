//! Recommendations: applied, measured, undone.

use super::support::*;
use cbtop::engine::config::cpus;
use cbtop::engine::cpu::KernelSet;
use cbtop::profiler::Clock;
use cbtop::profiler::probe::Bandwidth;
use cbtop::session::snapshot::{Command, RecommendationStatus, RunState};
use cbtop::session::{Options, Session};

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
    let mut s = session(demo(), o);
    until(&mut s, "advice", |s| {
        s.snapshot()
            .recommendations
            .iter()
            .any(|r| r.id == THREADS && r.applicable)
    });
    s
}

fn measured(s: &mut Session, id: &str) {
    until(s, "a result", |s| {
        matches!(
            status(&s.snapshot(), id),
            RecommendationStatus::Applied { .. }
        )
    });
}

#[test]
fn a_change_is_measured_kept_and_undone() {
    let mut s = slow(|o| o.endless = true);
    apply(&mut s, THREADS);
    let snap = s.snapshot();
    assert!(matches!(
        status(&snap, THREADS),
        RecommendationStatus::Measuring { .. }
    ));
    // One at a time.
    apply(&mut s, "kernels");
    assert!(error_of(&s.snapshot()).contains("being measured"));

    measured(&mut s, THREADS);
    let snap = s.snapshot();
    assert!((snap.engine.threads as usize) <= cpus());
    let RecommendationStatus::Applied {
        before_tok_s,
        after_tok_s,
        spread,
        ..
    } = status(&snap, THREADS)
    else {
        unreachable!()
    };
    assert!(before_tok_s > 0.0 && after_tok_s > 0.0 && spread >= 0.0);
    let said = snap.message.expect("a result is said");
    assert!(!said.is_error && said.text.contains("tok/s"), "{said:?}");

    apply(&mut s, THREADS);
    assert!(error_of(&s.snapshot()).contains("applied already"));

    obey(&mut s, Command::Undo);
    let snap = s.snapshot();
    assert_eq!(snap.engine.threads as usize, cpus() + 1);
    assert!(matches!(
        status(&snap, THREADS),
        RecommendationStatus::Undone { .. }
    ));
    assert!(snap.bricks.is_empty() && snap.rates.decode_mean_tok_s.is_none());
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
    measured(&mut s, "more-threads");
    assert!(s.snapshot().engine.threads > 1);
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
    apply(&mut s, "kernels");
    measured(&mut s, "kernels");
    apply(&mut s, THREADS);
    measured(&mut s, THREADS);
    let best = KernelSet::best().name();
    obey(&mut s, Command::Undo);
    let snap = s.snapshot();
    assert_eq!(
        (snap.engine.threads as usize, snap.engine.kernels.as_str()),
        (cpus() + 1, best)
    );
    obey(&mut s, Command::Undo);
    let snap = s.snapshot();
    assert_eq!(
        (snap.engine.threads as usize, snap.engine.kernels.as_str()),
        (cpus() + 1, "scalar")
    );
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
    assert_eq!(
        threads,
        cpus() + 1,
        "not changed before there is something to compare with"
    );
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
    measured(&mut s, THREADS);
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
    measured(&mut s, THREADS);
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
    assert_eq!(
        (snap.engine.chunk, status(&snap, "chunk")),
        (4, RecommendationStatus::Open)
    );
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
