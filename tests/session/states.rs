//! The state machine under single commands.

use super::support::*;
use cbtop::session::snapshot::{Command, MAX_TOKENS_SHOWN, RunState};
use cbtop::session::{Options, Session};

const PROMPT: &str = "hello world";

fn started(change: impl FnOnce(&mut Options)) -> Session {
    let mut o = options(PROMPT);
    change(&mut o);
    session(llama(), o)
}

/// In decode with `n` tokens generated.
fn decoding(n: u64) -> Session {
    let mut s = started(|_| {});
    until(&mut s, "decode", |s| s.generated() == n);
    assert_eq!(s.state(), RunState::Decode);
    s
}

fn prompt_tokens(s: &mut Session) -> u32 {
    match s.snapshot().state {
        RunState::Prefill { total, .. } => total,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_prompt_is_read_in_chunks_then_tokens_are_decoded() {
    let mut s = started(|o| o.config.chunk = 2);
    let total = prompt_tokens(&mut s);
    assert!(total > 4, "{total}");
    let mut done = 0;
    while s.generated() == 0 {
        assert_eq!(s.state(), RunState::Prefill { done, total });
        s.tick();
        done += 2;
    }
    let snap = s.snapshot();
    assert_eq!((snap.context_used, &snap.state), (total, &RunState::Decode));
    assert!(snap.rates.ttft_s.is_some() && snap.rates.decode_mean_tok_s.is_none());
    s.tick();
    assert_eq!(s.snapshot().context_used, total + 1);
}

#[test]
fn a_run_ends_at_the_token_limit_the_context_or_the_end_of_text() {
    let mut s = started(|o| o.max_tokens = Some(5));
    assert_eq!(finish(&mut s), "token limit");
    assert_eq!(s.generated(), 5);

    let mut s = started(|_| {});
    let total = u64::from(prompt_tokens(&mut s));
    assert_eq!(finish(&mut s), "context full");
    // The last token needs no place: nothing is decoded after it.
    assert_eq!(s.generated(), 64 - total + 1);
    assert_eq!(s.snapshot().context_used, 64);

    let plain = plain_ids(llama(), options(PROMPT), 12);
    let (at, end) = last_new(&plain);
    let mut s = session(llama_ending_with(end), options(PROMPT));
    assert_eq!(finish(&mut s), "end of text");
    assert_eq!(ids(&mut s), plain[..at]);
}

/// The last token of `ids` that did not occur before, and where.
fn last_new(ids: &[u32]) -> (usize, u32) {
    let new = |(i, id): &(usize, &u32)| !ids[..*i].contains(id);
    let (i, id) = ids.iter().enumerate().rfind(new).expect("one");
    assert!(i > 0, "{ids:?}");
    (i, *id)
}

#[test]
fn a_limit_of_no_tokens_reads_the_prompt_only() {
    let mut s = started(|o| o.max_tokens = Some(0));
    assert_eq!(finish(&mut s), "token limit");
    let snap = s.snapshot();
    assert_eq!((snap.generated, snap.tokens.len()), (0, 0));
    assert!(snap.rates.ttft_s.is_some() && snap.context_used > 0);
}

#[test]
fn pausing_and_going_on() {
    let mut s = decoding(3);
    obey(&mut s, Command::TogglePause);
    assert_eq!(s.state(), RunState::Paused);
    assert!(s.is_idle());
    assert_eq!(s.tick(), "");
    assert_eq!(s.generated(), 3);
    obey(&mut s, Command::TogglePause);
    assert_eq!(s.state(), RunState::Decode);
    s.tick();
    assert_eq!(s.generated(), 4);
}

#[test]
fn one_token_at_a_time() {
    let mut s = decoding(2);
    for n in 3..6 {
        obey(&mut s, Command::StepToken);
        s.tick();
        assert_eq!((s.state(), s.generated()), (RunState::Paused, n));
    }
    // The prompt goes by chunks.
    let mut s = started(|o| o.config.chunk = 2);
    obey(&mut s, Command::StepToken);
    s.tick();
    assert_eq!(
        (s.state(), s.snapshot().context_used),
        (RunState::Paused, 2)
    );
}

#[test]
fn one_layer_at_a_time() {
    let mut s = decoding(2);
    let used = s.snapshot().context_used;
    for token in 3..5 {
        for next_layer in 1..3 {
            obey(&mut s, Command::StepLayer);
            s.tick();
            assert_eq!(s.state(), RunState::PausedAtLayer { next_layer });
            let snap = s.snapshot();
            let trace = snap.last_step.expect("a step in progress");
            assert_eq!(
                trace.events.iter().filter_map(|e| e.layer).max(),
                Some(next_layer - 1)
            );
        }
        obey(&mut s, Command::StepLayer);
        s.tick();
        assert_eq!((s.state(), s.generated()), (RunState::Paused, token));
    }
    assert_eq!(s.snapshot().context_used, used + 2);
}

/// Stopped between the first and the second layer of the third token.
fn inside() -> Session {
    let mut s = decoding(2);
    obey(&mut s, Command::StepLayer);
    s.tick();
    assert_eq!(s.state(), RunState::PausedAtLayer { next_layer: 1 });
    s
}

#[test]
fn every_command_inside_a_token() {
    let plain = plain_ids(llama(), options(PROMPT), 8);

    let mut s = inside();
    obey(&mut s, Command::TogglePause);
    assert_eq!((s.state(), s.generated()), (RunState::Decode, 3));

    let mut s = inside();
    obey(&mut s, Command::StepToken);
    s.tick();
    assert_eq!((s.state(), s.generated()), (RunState::Paused, 3));

    let mut s = inside();
    obey(&mut s, Command::ResetStats);
    assert_eq!(s.state(), RunState::PausedAtLayer { next_layer: 1 });
    obey(&mut s, Command::TogglePause);
    until(&mut s, "eight", |s| s.generated() == 8);
    assert_eq!(ids(&mut s), plain);

    // Two commands with no tick between them: the token is completed, not run again.
    let mut s = inside();
    obey(&mut s, Command::StepLayer);
    obey(&mut s, Command::TogglePause);
    until(&mut s, "eight", |s| s.generated() == 8);
    assert_eq!(ids(&mut s), plain);
    assert_eq!(s.snapshot().bricks[0].steps, 7);

    for again in [Command::Restart, Command::NewPrompt(PROMPT.into())] {
        let mut s = inside();
        obey(&mut s, again);
        assert!(matches!(s.state(), RunState::Prefill { done: 0, .. }));
        assert_eq!((s.generated(), s.snapshot().context_used), (0, 0));
        until(&mut s, "eight", |s| s.generated() == 8);
        assert_eq!(ids(&mut s), plain);
    }

    // Refused commands leave the token as it is.
    for refused in [
        Command::Apply("nonsense".into()),
        Command::NewPrompt("a ".repeat(500)),
    ] {
        let mut s = inside();
        obey(&mut s, refused);
        error_of(&s.snapshot());
        assert_eq!(s.state(), RunState::PausedAtLayer { next_layer: 1 });
    }
    let mut s = inside();
    obey(&mut s, Command::Undo);
    assert_eq!(error_of(&s.snapshot()), "nothing to undo");
    obey(&mut s, Command::TogglePause);
    until(&mut s, "eight", |s| s.generated() == 8);
    assert_eq!(ids(&mut s), plain);
}

#[test]
fn stepping_through_the_prompt_by_layers() {
    let mut s = started(|o| o.config.chunk = 4);
    for next_layer in 1..3 {
        obey(&mut s, Command::StepLayer);
        s.tick();
        assert_eq!(s.state(), RunState::PausedAtLayer { next_layer });
    }
    obey(&mut s, Command::StepLayer);
    s.tick();
    assert_eq!(
        (s.state(), s.snapshot().context_used),
        (RunState::Paused, 4)
    );
    obey(&mut s, Command::TogglePause);
    until(&mut s, "eight", |s| s.generated() == 8);
    let mut o = options(PROMPT);
    o.config.chunk = 4;
    assert_eq!(ids(&mut s), plain_ids(llama(), o, 8));
}

#[test]
fn after_the_end_steps_explain_and_restart_works() {
    let mut s = started(|o| o.max_tokens = Some(4));
    finish(&mut s);
    let before = ids(&mut s);
    for step in [Command::StepToken, Command::StepLayer, Command::TogglePause] {
        obey(&mut s, step);
        s.tick();
        let snap = s.snapshot();
        assert!(matches!(snap.state, RunState::Finished { .. }));
        assert!(snap.message.is_some_and(|m| m.text.contains("restart")));
        assert_eq!(s.generated(), 4);
    }
    obey(&mut s, Command::Restart);
    assert!(matches!(s.state(), RunState::Prefill { done: 0, .. }));
    finish(&mut s);
    assert_eq!(ids(&mut s), before);
}

#[test]
fn a_new_prompt_that_cannot_run_leaves_the_old_run_alone() {
    let mut s = decoding(3);
    obey(&mut s, Command::NewPrompt("word ".repeat(200)));
    let snap = s.snapshot();
    assert!(error_of(&snap).contains("do not fit"), "{:?}", snap.message);
    assert_eq!((snap.prompt.as_str(), snap.generated), (PROMPT, 3));
    s.tick();
    assert_eq!(s.generated(), 4);

    let mut s = session(demo(), options("The capital"));
    until(&mut s, "decode", |s| s.generated() == 2);
    obey(&mut s, Command::NewPrompt(String::new()));
    let snap = s.snapshot();
    assert!(error_of(&snap).contains("empty"), "{:?}", snap.message);
    assert_eq!(snap.prompt, "The capital");
}

#[test]
fn prompts_of_any_characters_run() {
    let mut s = decoding(3);
    for prompt in [
        "\x1b[2J\0\u{7}\r\n\t",
        "🚀é\u{200b}\u{fffd}",
        "<|eot_id|></s><s>",
    ] {
        obey(&mut s, Command::NewPrompt(prompt.into()));
        let snap = s.snapshot();
        assert_eq!(
            (snap.prompt.as_str(), snap.generated),
            (prompt, 0),
            "{:?}",
            snap.message
        );
        assert_eq!(snap.rates, Default::default());
        until(&mut s, "some text", |s| s.generated() == 3);
    }
}

#[test]
fn an_endless_run_turns_round() {
    let mut s = started(|o| {
        o.endless = true;
        o.config.n_ctx = 20;
    });
    until(&mut s, "the first token", |s| s.generated() > 0);
    until(&mut s, "another run", |s| s.generated() == 0);
    let snap = s.snapshot();
    assert!(matches!(snap.state, RunState::Prefill { done: 0, .. }));
    assert_eq!(
        snap.message.expect("said").text,
        "context full: started again"
    );
    assert!(snap.rates.decode_mean_tok_s.is_some() && !snap.bricks.is_empty());

    let plain = plain_ids(llama(), options(PROMPT), 12);
    let (at, end) = last_new(&plain);
    let mut o = options(PROMPT);
    o.endless = true;
    let mut s = session(llama_ending_with(end), o);
    for _ in 0..3 {
        until(&mut s, "text", |s| s.generated() == at as u64);
        assert_eq!(ids(&mut s), plain[..at]);
        until(&mut s, "another run", |s| s.generated() == 0);
        assert!(!s.is_over());
    }
    // A token limit is a wish to stop.
    let mut s = started(|o| (o.endless, o.max_tokens) = (true, Some(3)));
    assert_eq!(finish(&mut s), "token limit");
}

#[test]
fn an_endless_run_without_a_token_ends() {
    let first = plain_ids(llama(), options(PROMPT), 1)[0];
    let mut o = options(PROMPT);
    o.endless = true;
    let mut s = session(llama_ending_with(first), o);
    assert_eq!(finish(&mut s), "end of text");
    assert_eq!(s.generated(), 0);
    obey(&mut s, Command::NewPrompt("another".into()));
    assert!(!s.is_over());
}

#[test]
fn text_is_that_of_the_ids_and_independent_of_stops() {
    for loaded in [llama(), demo(), crate::common::fixture("gemma3.Q8_0.gguf")] {
        let plain = plain_ids(loaded.clone(), options(PROMPT), 30);
        let mut o = options(PROMPT);
        o.max_tokens = Some(30);
        let mut s = session(loaded.clone(), o);
        let mut printed = String::new();
        for i in 0.. {
            if s.is_over() {
                break;
            }
            match i % 7 {
                0 | 3 => obey(&mut s, Command::StepLayer),
                4 => obey(&mut s, Command::StepToken),
                5 => obey(&mut s, Command::TogglePause),
                _ => {}
            }
            printed += &s.tick();
        }
        let snap = s.snapshot();
        assert_eq!(snap.tokens.iter().map(|t| t.id).collect::<Vec<_>>(), plain);
        let whole = loaded.tokenizer.decode_continuation(&plain).expect("text");
        assert_eq!(texts(&snap), whole);
        // Without commands that complete a token by themselves every character is also returned.
        let mut o = options(PROMPT);
        o.max_tokens = Some(30);
        let mut s = session(loaded, o);
        let mut printed = String::new();
        while !s.is_over() {
            printed += &s.tick();
        }
        assert_eq!(printed, whole);
    }
}

#[test]
fn only_the_newest_tokens_are_kept() {
    let count = MAX_TOKENS_SHOWN as u64 + 50;
    let long = |prompt: &str, loaded| {
        let mut o = options(prompt);
        o.config.n_ctx = MAX_TOKENS_SHOWN + 200;
        o.config.kernels = cbtop::engine::cpu::KernelSet::best();
        o.max_tokens = Some(count);
        let mut s = session(loaded, o);
        while !s.is_over() {
            s.tick();
        }
        s.snapshot()
    };
    // A random model ends its text some day: one of these goes on for long enough.
    let snap = [PROMPT, "a", "b", "c d", "1", "(", "z z z"]
        .into_iter()
        .flat_map(|prompt| [(prompt, llama()), (prompt, demo())])
        .map(|(prompt, loaded)| long(prompt, loaded))
        .find(|snap| snap.generated == count)
        .expect("a long run");
    assert_eq!(snap.tokens.len(), MAX_TOKENS_SHOWN);
}

#[test]
fn statistics_are_of_this_run() {
    let mut s = decoding(6);
    let snap = s.snapshot();
    assert_eq!(snap.bricks[0].steps, 5);
    let prefill = snap.rates.prefill_tok_s.expect("known");
    // One chunk: the time to the first token is that of the prompt.
    let total = f64::from(snap.context_used) - 5.0;
    assert!((snap.rates.ttft_s.expect("known") - total / prefill).abs() < 1e-12);

    obey(&mut s, Command::ResetStats);
    let snap = s.snapshot();
    assert!(snap.bricks.is_empty() && snap.rates.decode_mean_tok_s.is_none());
    assert_eq!(snap.generated, 6);
    assert_eq!(snap.rates.prefill_tok_s, Some(prefill));

    obey(&mut s, Command::Restart);
    let snap = s.snapshot();
    assert_eq!(snap.rates, Default::default());
    assert!(snap.bricks.is_empty() && snap.prefill_bricks.is_empty() && snap.tokens.is_empty());
}

#[test]
fn clearing_in_the_middle_of_the_prompt_does_not_shorten_its_time() {
    let chunked = |o: &mut Options| o.config.chunk = 2;
    let mut plain = started(chunked);
    until(&mut plain, "decode", |s| s.generated() == 1);
    let mut s = started(chunked);
    s.tick();
    obey(&mut s, Command::ResetStats);
    until(&mut s, "decode", |s| s.generated() == 1);
    assert_eq!(s.snapshot().rates.ttft_s, plain.snapshot().rates.ttft_s);
}

#[test]
fn pauses_are_in_no_rate() {
    let mut o = options(PROMPT);
    o.clock = cbtop::profiler::Clock::instant();
    let mut s = session(llama(), o);
    until(&mut s, "decode", |s| s.generated() == 3);
    let began = std::time::Instant::now();
    obey(&mut s, Command::StepLayer);
    s.tick();
    assert!(matches!(s.state(), RunState::PausedAtLayer { .. }));
    let pause = std::time::Instant::now();
    std::thread::sleep(std::time::Duration::from_millis(50));
    let paused = pause.elapsed();
    obey(&mut s, Command::TogglePause);
    let worked = (began.elapsed() - paused).as_secs_f64();
    let last = s.snapshot().rates.history_tok_s.pop().expect("a token");
    // However slow the machine: the pause lies inside the token's time and is not part of it.
    assert!(1.0 / last <= worked + 1e-6, "{} {worked}", 1.0 / last);
}

#[test]
fn a_failed_session_says_so_and_restarts() {
    // A vocabulary larger than the model: ids of the demo's do not exist in the fixture.
    let mut loaded = llama();
    loaded.tokenizer = demo().tokenizer;
    let id = (512..1536)
        .find(|id| {
            loaded
                .tokenizer
                .token_text(*id)
                .is_some_and(|t| t.len() > 3 && t.chars().all(|c| c.is_ascii_lowercase()))
        })
        .expect("a word");
    let word = loaded.tokenizer.token_text(id).expect("text").to_owned();
    let mut s = session(loaded, options(&word));
    s.tick();
    let snap = s.snapshot();
    let RunState::Failed { error } = &snap.state else {
        panic!("{:?}", snap.state)
    };
    assert!(error.contains("outside the vocabulary"), "{error}");
    assert!(s.is_over() && s.is_idle());
    for refused in [
        Command::StepToken,
        Command::TogglePause,
        Command::Apply("chunk".into()),
    ] {
        obey(&mut s, refused);
        s.tick();
        assert!(s.snapshot().message.is_some());
        assert!(matches!(s.state(), RunState::Failed { .. }));
    }
    obey(&mut s, Command::Restart);
    assert!(matches!(s.state(), RunState::Prefill { .. }));
    s.tick();
    assert!(matches!(s.state(), RunState::Failed { .. }));
    obey(&mut s, Command::NewPrompt("a".into()));
    until(&mut s, "tokens", |s| s.generated() == 3);
}
