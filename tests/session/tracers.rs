//! Tracers in a session: switched one by one, they change no token, and what they find belongs to the run.

use super::support::{demo, finish, ids, llama, options, session, until};
use cbtop::session::Options;
use cbtop::session::snapshot::{Command, TracerFrame, TracerKind};
use cbtop::tracer::ModelTracerConfig;
use cbtop::tracer::figures::TracerSet;
use std::sync::Arc;

fn traced(on: TracerSet) -> Options {
    let mut options = options("The capital of France is");
    options.tracers = ModelTracerConfig {
        on,
        ..ModelTracerConfig::default()
    };
    options.max_tokens = Some(12);
    options
}

fn found(frame: &TracerFrame) -> [bool; 5] {
    [
        frame.activations.is_some(),
        frame.attention.is_some(),
        frame.logits.is_some(),
        frame.quantisation.is_some(),
        frame.kv.is_some(),
    ]
}

#[test]
fn f272_tokens_are_the_same_with_tracers_and_without() {
    for loaded in [llama(), demo()] {
        let mut plain = session(loaded.clone(), traced(TracerSet::default()));
        let mut all = session(loaded, traced(TracerSet::ALL));
        finish(&mut plain);
        finish(&mut all);
        assert_eq!(ids(&mut plain), ids(&mut all));
        let probs = |s: &mut cbtop::session::Session| -> Vec<u32> {
            s.snapshot()
                .tokens
                .iter()
                .map(|t| t.prob.to_bits())
                .collect()
        };
        assert_eq!(probs(&mut plain), probs(&mut all));
        assert!(plain.snapshot().tracer.is_none());
    }
}

#[test]
fn every_tracer_is_switched_on_its_own() {
    let mut s = session(llama(), traced(TracerSet::default()));
    until(&mut s, "some tokens", |s| s.generated() == 3);
    for (i, kind) in TracerKind::ALL.into_iter().enumerate() {
        s.obey(Command::Tracer(kind, true));
        s.tick();
        let frame = s.snapshot().tracer.expect("one is on");
        assert_eq!(found(&frame), std::array::from_fn(|j| i == j), "{kind:?}");
        s.obey(Command::Tracer(kind, false));
        assert!(s.snapshot().tracer.is_none());
    }
}

#[test]
fn what_is_found_is_of_the_run() {
    let mut s = session(demo(), traced(TracerSet::ALL));
    finish(&mut s);
    let frame: Arc<TracerFrame> = s.snapshot().tracer.expect("all are on");
    let activations = frame.activations.as_deref().expect("on");
    assert_eq!(activations.steps, 12);
    assert!(
        activations.anomalies.is_empty(),
        "{:?}",
        activations.anomalies
    );
    let attention = frame.attention.as_deref().expect("on");
    assert_eq!(attention.query_pos, activations.latest.position);
    assert_eq!(
        attention.heads.len() as u32,
        attention.n_layers * attention.n_heads
    );
    assert_eq!(attention.tokens.len() as u32, attention.query_pos + 1);
    assert_eq!(
        attention.focus.queries.len() as u32,
        attention.query_pos + 1
    );
    let logits = frame.logits.as_deref().expect("on");
    let chosen: Vec<u32> = logits.traces.iter().map(|t| t.selected.id).collect();
    assert_eq!(chosen, ids(&mut s));
    // The first answer is known by heart, and decided before the last layer.
    let first = &logits.traces[0];
    assert_eq!(first.selected.text, " Paris");
    let kv = frame.kv.as_deref().expect("on");
    let last = kv.session.steps.last().expect("a step");
    assert_eq!(
        u64::from(last.valid_positions),
        u64::from(attention.query_pos) + 1
    );
    assert_eq!(
        last.cache_size_bytes,
        kv.bytes_per_position * u64::from(last.valid_positions)
    );
    assert!(kv.by_weight);

    s.obey(Command::FocusHead(2, 1));
    let frame = s.snapshot().tracer.expect("on");
    let focus = &frame.attention.as_deref().expect("on").focus;
    assert_eq!((focus.layer, focus.head), (2, 1));
    assert!(
        focus
            .queries
            .iter()
            .all(|q| (q.layer_idx, q.head_idx) == (2, 1))
    );
    // A head that there is not is the nearest that there is.
    s.obey(Command::FocusHead(99, 99));
    assert!(
        !s.snapshot()
            .tracer
            .expect("on")
            .attention
            .as_deref()
            .expect("on")
            .focus
            .queries
            .is_empty()
    );

    s.obey(Command::Restart);
    s.tick();
    let frame = s.snapshot().tracer.expect("on");
    assert_eq!(frame.activations.as_deref().expect("on").steps, 1);
    assert_eq!(frame.logits.as_deref().expect("on").steps, 1);
    assert_eq!(frame.attention.as_deref().expect("on").dropped, 0);
}

#[test]
fn tracers_live_through_another_configuration_and_layer_steps() {
    let mut s = session(llama(), traced(TracerSet::ALL));
    until(&mut s, "some tokens", |s| s.generated() == 3);
    for _ in 0..5 {
        s.obey(Command::StepLayer);
        s.tick();
        let frame = s.snapshot().tracer.expect("on");
        let attention = frame.attention.as_deref().expect("on");
        // The newest query is one whose step has ended.
        assert!(
            attention
                .heads
                .iter()
                .all(|h| h.seen == attention.query_pos + 1)
        );
    }
    // Inside a token: it is completed first.
    s.obey(Command::Tracer(TracerKind::Attention, false));
    s.obey(Command::Tracer(TracerKind::Attention, true));
    s.obey(Command::FollowTrace(true));
    s.obey(Command::Tracer(TracerKind::Logits, false));
    s.obey(Command::TogglePause);
    finish(&mut s);
    let snapshot = s.snapshot();
    assert!(snapshot.message.is_none_or(|m| !m.is_error));
    let frame = snapshot.tracer.expect("on");
    assert_eq!(found(&frame), [true, true, false, true, true]);
    // Following goes on without the tracer that captures too.
    let followed = snapshot.trace.expect("followed");
    assert!(
        !followed
            .shown
            .as_ref()
            .expect("a trace")
            .positions
            .is_empty()
    );
}

#[test]
fn the_whole_model_is_measured_on_request_and_no_longer_than_wanted() {
    let mut s = session(llama(), traced(TracerSet::default()));
    finish(&mut s);
    s.obey(Command::MeasureError(true));
    let message = s.snapshot().message.expect("a refusal");
    assert!(message.is_error && message.text.contains("switch it on"));
    s.obey(Command::Tracer(TracerKind::Quantisation, true));
    s.obey(Command::MeasureError(true));
    s.obey(Command::MeasureError(false));
    let view = |s: &mut cbtop::session::Session| {
        let frame = s.snapshot().tracer.expect("on");
        frame.quantisation.clone().expect("on")
    };
    assert_eq!(view(&mut s).progress, None);
    s.finish_tracers().expect("measured");
    let found = view(&mut s);
    let model = found.model.clone().expect("measured");
    assert!(found.error.is_none() && found.progress.is_none());
    assert!(model.logits_cosine > 0.999 && model.perplexity.is_finite());
    s.obey(Command::NewPrompt("another text".into()));
    assert!(view(&mut s).model.is_none());
}

#[test]
fn a_reference_of_another_model_is_refused() {
    let mut options = traced(TracerSet::ALL);
    options.reference = Some(demo());
    let refused = cbtop::session::Session::new(llama(), options).err();
    let text = refused.expect("refused").to_string();
    assert!(text.contains("another model"), "{text}");
}

#[test]
fn evictions_are_counted_from_the_first_step_on() {
    let mut options = traced(TracerSet::default());
    options.config.n_ctx = 16;
    options.config.chunk = 8;
    options.config.overflow = cbtop::engine::Overflow::Ring;
    options.max_tokens = Some(30);
    let mut s = session(llama(), options);
    until(&mut s, "a full ring", |s| s.generated() == 20);
    s.obey(Command::Tracer(TracerKind::Kv, true));
    s.tick();
    let frame = s.snapshot().tracer.expect("on");
    let session = &frame.kv.as_deref().expect("on").session;
    assert_eq!(session.total_evictions, 1);
    assert_eq!(session.steps[0].evictions_this_step, 1);
    assert_eq!(session.window_exhaustions, 1);
    assert!(session.steps[0].cache_hit_rate.is_some_and(|r| r < 1.0));
    // A context that is shorter than what is measured otherwise is no error.
    s.obey(Command::Tracer(TracerKind::Quantisation, true));
    s.finish_tracers().expect("measured");
}
