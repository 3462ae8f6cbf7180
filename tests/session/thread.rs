//! The session on a thread of its own, with commands and frames through channels.

use super::support::*;
use cbtop::session::snapshot::{Command, RunState, Snapshot};
use cbtop::session::{Options, SessionHandle, spawn};
use std::time::{Duration, Instant};

/// Far more than anything here takes: a limit for what never comes, not a measurement.
const LIMIT: Duration = Duration::from_secs(60);

fn running(change: impl FnOnce(&mut Options)) -> SessionHandle {
    let mut o = options("hello world");
    o.endless = true;
    change(&mut o);
    spawn(session(llama(), o)).expect("a thread")
}

fn wait(handle: &SessionHandle, what: &str, done: impl Fn(&Snapshot) -> bool) {
    let began = Instant::now();
    while !done(&handle.frames.borrow()) {
        assert!(
            began.elapsed() < LIMIT,
            "never came to: {what}: {:?}",
            handle.frames.borrow().state
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn send(handle: &SessionHandle, command: Command) {
    handle
        .commands
        .send(command)
        .expect("a session that listens");
}

/// The thread ends, and a reader sees it.
fn ends(frames: &tokio::sync::watch::Receiver<std::sync::Arc<Snapshot>>) {
    let began = Instant::now();
    while frames.has_changed().is_ok() {
        assert!(began.elapsed() < LIMIT, "the session goes on");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn frames_come_and_commands_are_obeyed() {
    let h = running(|_| {});
    wait(&h, "text", |s| s.generated > 0);
    send(&h, Command::TogglePause);
    wait(&h, "a pause", |s| s.state == RunState::Paused);
    let seq = h.frames.borrow().seq;
    send(&h, Command::NewPrompt("another".into()));
    wait(&h, "another prompt", |s| {
        s.prompt == "another" && s.generated > 0
    });
    assert!(h.frames.borrow().seq > seq);
    send(&h, Command::Quit);
    ends(&h.frames);
}

#[test]
fn every_step_command_is_one_step() {
    let h = running(|o| o.pace = Some(1));
    send(&h, Command::TogglePause);
    wait(&h, "a pause", |s| s.state == RunState::Paused);
    send(&h, Command::Restart);
    // Many at once, as a held key sends them: none is swallowed, and the pace of 1 token a second does not hold them.
    for _ in 0..10 {
        send(&h, Command::StepToken);
    }
    // One chunk of the prompt gives the first token, which restarting may have run already.
    wait(&h, "ten steps", |s| {
        s.state == RunState::Paused && s.generated >= 10
    });
    assert!(h.frames.borrow().generated <= 11);
    let generated = h.frames.borrow().generated;
    for _ in 0..6 {
        send(&h, Command::StepLayer);
    }
    wait(&h, "two tokens by layers", |s| {
        s.state == RunState::Paused && s.generated == generated + 2
    });
}

#[test]
fn a_dropped_handle_ends_the_thread() {
    for paused in [false, true] {
        let h = running(|_| {});
        if paused {
            send(&h, Command::TogglePause);
            wait(&h, "a pause", |s| s.state == RunState::Paused);
        }
        let SessionHandle { frames, commands } = h;
        drop(commands);
        ends(&frames);
    }
}

#[test]
fn commands_come_through_when_generation_never_waits() {
    // Turns round after every token.
    let h = running(|o| {
        o.config.n_ctx = 8;
        o.prompt = "a".into();
    });
    wait(&h, "turning round", |s| s.message.is_some());
    send(&h, Command::ResetStats);
    wait(&h, "an answer", |s| {
        s.message
            .as_ref()
            .is_some_and(|m| m.text.contains("cleared"))
    });
}

#[test]
fn a_model_that_says_nothing_still_answers() {
    let first = plain_ids(llama(), options("hello world"), 1)[0];
    let mut o = options("hello world");
    o.endless = true;
    let h = spawn(session(llama_ending_with(first), o)).expect("a thread");
    wait(&h, "the end", |s| {
        matches!(s.state, RunState::Finished { .. })
    });
    send(&h, Command::NewPrompt("another".into()));
    wait(&h, "another prompt", |s| s.prompt == "another");
    send(&h, Command::Quit);
    ends(&h.frames);
}

#[test]
fn a_panic_in_the_thread_is_seen_by_the_front_end() {
    let mut loaded = llama();
    // A plan that points behind its own end: no file gives one, and the engine trusts it.
    let model = std::sync::Arc::get_mut(&mut loaded.model).expect("not shared yet");
    model.plan.layer_starts = vec![0, 5000, 6000, 7000];
    let h = spawn(session(loaded, options("hello world"))).expect("a thread");
    send(&h, Command::StepLayer);
    ends(&h.frames);
    assert!(h.commands.send(Command::Restart).is_err());
}
