//! Statements of the TRACE language in a session, and a generation followed.

use super::support::{demo, finish, ids, options, plain_ids, session, until};
use cbtop::session::Session;
use cbtop::session::snapshot::{Command, Snapshot, TraceFrame};
use std::sync::Arc;

const PROMPT: &str = "The capital of France is";
const STATEMENT: &str = r#"TRACE "The capital of France is" FOR "Paris" POSITIONS ALL;"#;

fn frame(s: &mut Session) -> Arc<TraceFrame> {
    s.snapshot().trace.expect("something was traced")
}

fn traced(s: &mut Session, statement: &str) -> Arc<TraceFrame> {
    s.obey(Command::Trace(statement.into()));
    until(s, "an end of the trace", |s| !s.is_tracing());
    frame(s)
}

#[test]
fn a_statement_changes_nothing_of_the_run() {
    let plain = plain_ids(demo(), options(PROMPT), 12);
    let mut options = options(PROMPT);
    options.max_tokens = Some(12);
    let mut s = session(demo(), options);
    assert_eq!(s.snapshot().trace, None);
    until(&mut s, "a few tokens", |s| s.generated() == 3);
    let shown = traced(&mut s, STATEMENT).shown.clone().expect("a trace");
    assert_eq!(shown.prompt, PROMPT);
    assert_eq!(shown.positions.len(), shown.tokens.len());
    let end = shown.positions.last().expect("positions");
    assert_eq!(end.tracked[0].text, " Paris");
    assert_eq!(end.waypoints.last().expect("layers").tracks[0].rank, 1);
    finish(&mut s);
    assert_eq!(ids(&mut s), plain);
}

#[test]
fn a_statement_runs_where_the_session_has_stopped() {
    let mut s = session(demo(), options(PROMPT));
    until(&mut s, "a token", |s| s.generated() == 1);
    s.obey(Command::StepLayer);
    s.tick();
    let state = s.state();
    assert!(s.is_idle());
    let frame = traced(&mut s, STATEMENT);
    assert!(frame.shown.is_some() && frame.work.is_none());
    assert_eq!(s.state(), state, "the token is where it was");
}

#[test]
fn errors_are_messages_and_what_comes_after_runs() {
    let mut s = session(demo(), options(PROMPT));
    for (bad, word) in [
        ("TRACE", "prompt"),
        ("TRASE \"a\"", "TRACE"),
        ("", "no statement"),
        (r#"TRACE "a" POSITIONS 99"#, "position 99"),
        (r#"TRACE "a" WITH ZERO HEAD 400 AT LAYER 1"#, "head 400"),
        (r#"TRACE "a" SAVE "/nowhere/x.trace""#, "POSITIONS ALL"),
        (
            r#"TRACE "a" POSITIONS ALL SAVE "/nowhere/x.trace""#,
            "/nowhere",
        ),
    ] {
        s.obey(Command::Trace(bad.into()));
        while s.is_tracing() {
            s.tick();
        }
        let message = s.snapshot().message.expect("a message");
        assert!(message.is_error, "{bad}");
        assert!(message.text.contains(word), "{bad}: {}", message.text);
    }
    assert!(traced(&mut s, STATEMENT).shown.is_some());
}

#[test]
fn a_kept_trace_stands_beside_the_next() {
    let mut s = session(demo(), options(PROMPT));
    s.obey(Command::KeepTrace);
    assert!(frame(&mut s).beside.is_none());
    traced(&mut s, STATEMENT);
    s.obey(Command::KeepTrace);
    let edited = r#"TRACE "The capital of France is" FOR "Paris" WITH ZERO ATTENTION AT LAYER 8"#;
    let frame = traced(&mut s, edited);
    let (shown, beside) = (frame.shown.clone(), frame.beside.clone());
    let (shown, beside) = (shown.expect("shown"), beside.expect("beside"));
    assert_eq!(shown.edits.len(), 1);
    assert!(beside.edits.is_empty());
    let end = |view: &cbtop::trace::figures::TraceView| {
        view.positions.last().expect("a position").waypoints[8].clone()
    };
    assert_eq!(end(&shown).attn_norm, 0.0);
    assert_ne!(end(&shown).tracks, end(&beside).tracks);
    s.obey(Command::KeepTrace);
    assert!(self::frame(&mut s).beside.is_none());
}

#[test]
fn another_model_is_put_beside() {
    let mut options = options(PROMPT);
    options.beside = Some(super::support::llama());
    let mut s = session(demo(), options);
    let frame = traced(&mut s, STATEMENT);
    let layers = |view: &Option<Arc<cbtop::trace::figures::TraceView>>| {
        view.as_ref().expect("a trace").n_layers
    };
    assert_eq!((layers(&frame.shown), layers(&frame.beside)), (8, 3));
}

#[test]
fn patching_makes_a_map_in_pieces() {
    let mut s = session(demo(), options(PROMPT));
    s.obey(Command::Trace(
        r#"PATCH "The capital of France is" FROM "The capital of Japan is" FOR "Paris""#.into(),
    ));
    let mut seen = 0;
    while s.is_tracing() {
        s.tick();
        seen += usize::from(frame(&mut s).work.is_some());
    }
    let map = frame(&mut s).map.clone().expect("a map");
    assert!(seen > map.layers.len(), "progress was told");
    let cells: Vec<f64> = map
        .cells
        .iter()
        .flatten()
        .map(|c| c.expect("computed"))
        .collect();
    assert_eq!(cells.len(), map.layers.len() * map.tokens.len());
    // The stream of the last layer and position is all that the head sees.
    let whole = map.source_logit - map.base_logit;
    let last = cells.last().expect("cells");
    assert!((last - whole).abs() < 1e-3 * whole.abs(), "{last} {whole}");
    // What is the same in both texts has no effect.
    assert_eq!(map.cells[0][0], Some(0.0));
}

#[test]
fn a_statement_can_be_stopped_and_what_there_is_stays() {
    let mut s = session(demo(), options(PROMPT));
    let patch = r#"PATCH "The capital of France is" FROM "The capital of Japan is" FOR "Paris""#;
    s.obey(Command::Trace(format!("{patch}; {STATEMENT}")));
    for _ in 0..8 {
        s.tick();
    }
    let filling = frame(&mut s).map.clone().expect("a map that fills");
    let done = |map: &cbtop::trace::figures::PatchMap| map.cells.iter().flatten().flatten().count();
    assert!(
        done(&filling) > 0 && done(&filling) < 20,
        "{}",
        done(&filling)
    );
    s.obey(Command::StopTrace);
    assert!(!s.is_tracing());
    let frame = frame(&mut s);
    assert!(frame.work.is_none() && frame.shown.is_none());
    assert_eq!(frame.map.as_deref().map(done), Some(done(&filling)));
    finish(&mut s);
}

#[test]
fn a_followed_generation_is_the_same_and_every_token_is_traced() {
    let plain = plain_ids(demo(), options(PROMPT), 10);
    let mut options = options(PROMPT);
    options.max_tokens = Some(10);
    let mut s = session(demo(), options);
    s.obey(Command::FollowTrace(true));
    finish(&mut s);
    assert_eq!(ids(&mut s), plain);
    let Snapshot { trace, tokens, .. } = s.snapshot();
    let frame = trace.expect("followed");
    assert!(frame.following);
    let view = frame.shown.clone().expect("a trace");
    assert_eq!(view.positions.len(), 10);
    for (at, token) in view.positions.iter().zip(&tokens) {
        assert_eq!(at.tracked[0].id, token.id);
        let last = at.waypoints.last().expect("layers");
        assert_eq!(last.tracks[0].rank, 1);
        assert!((last.tracks[0].prob - f64::from(token.prob)).abs() < 1e-5);
    }
    // A restart begins again; and following ends.
    s.obey(Command::Restart);
    until(&mut s, "two tokens", |s| s.generated() == 2);
    assert_eq!(frame_positions(&mut s), 2);
    s.obey(Command::FollowTrace(false));
    until(&mut s, "more", |s| s.generated() == 4);
    assert_eq!(frame_positions(&mut s), 2);
}

fn frame_positions(s: &mut Session) -> usize {
    frame(s).shown.as_ref().expect("a trace").positions.len()
}
