use super::*;
use crate::engine::NO_LAYER;
use std::time::Duration;

fn work(bytes: u64) -> Work {
    Work {
        elements: 1,
        bytes,
        flops: 2,
    }
}

/// What a step's time is made of.
fn parts(step: &StepRecord) -> u64 {
    step.work + step.sync + step.launch + step.join + step.unattributed
}

fn two_layers(rec: &mut StepRecorder) -> StepTrace {
    rec.begin_step(StepKind::Decode, 7, 1);
    for layer in 0..2 {
        let t = rec.start();
        let t = rec.worked(t, BrickId::QProj, layer, work(1000));
        rec.synced(t);
    }
    let t = rec.start();
    rec.worked(t, BrickId::LmHead, NO_LAYER, work(50_000));
    rec.end_step();
    rec.trace().expect("a step was recorded")
}

#[test]
fn modelled_steps_are_the_same_every_time() {
    let mut a = StepRecorder::new(Clock::modelled(), 16);
    let first = two_layers(&mut a);
    std::thread::sleep(Duration::from_millis(1));
    a.pause();
    let second = two_layers(&mut a);
    assert_eq!(first, second);
    assert_eq!(
        first,
        two_layers(&mut StepRecorder::new(Clock::modelled(), 16))
    );
    // 3 calls of 0.5 us and 52,000 bytes at 10 bytes a nanosecond.
    assert!(
        (first.wall_us - (1.5 + 5.2)).abs() < 1e-9,
        "{}",
        first.wall_us
    );
    assert_eq!(first.events[2].layer, None);
    assert!((first.events[1].start_us - 0.6).abs() < 1e-9);
    assert_eq!(a.last().unattributed, 0);
}

#[test]
fn modelled_recorder_cannot_be_switched_off() {
    let mut rec = StepRecorder::new(Clock::modelled(), 16);
    rec.set_mode(SyncMode::None);
    assert_eq!(two_layers(&mut rec).events.len(), 3);
}

#[test]
fn parts_of_a_measured_step_sum_to_its_wall_time() {
    let mut rec = StepRecorder::new(Clock::calibrated(), 16);
    two_layers(&mut rec);
    let step = rec.last();
    assert_eq!(parts(step), step.wall);
    assert_eq!(step.bytes(), 52_000);
}

#[test]
fn off_records_nothing_but_the_steps_wall_time() {
    let mut rec = StepRecorder::new(Clock::calibrated(), 16);
    rec.set_mode(SyncMode::None);
    rec.begin_step(StepKind::Prefill, 3, 4);
    let t = rec.start();
    let t = rec.worked(t, BrickId::QProj, 0, work(1));
    rec.synced(t);
    rec.record(BrickId::QProj, 0, 0, 1, 2, work(1));
    std::thread::sleep(Duration::from_millis(1));
    let step = rec.end_step();
    assert!(step.events().is_empty());
    assert!(step.wall_us() >= 1000.0);
    assert_eq!(step.unattributed, step.wall);
    assert!(rec.trace().is_none());
}

#[test]
fn pauses_are_not_part_of_the_step() {
    let mut rec = StepRecorder::new(Clock::instant(), 16);
    let started = std::time::Instant::now();
    rec.begin_step(StepKind::Decode, 0, 1);
    let t = rec.start();
    rec.worked(t, BrickId::QProj, 0, work(1));
    rec.pause();
    let frozen = rec.now();
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(rec.now(), frozen);
    rec.resume();
    let t = rec.start();
    rec.worked(t, BrickId::KProj, 0, work(1));
    let wall = rec.end_step().wall;
    let with_pause = started.elapsed().as_nanos();
    assert!(
        u128::from(wall) + 29_000_000 <= with_pause,
        "{wall} of {with_pause}"
    );
    let step = rec.last();
    assert_eq!(parts(step), step.wall);
}

#[test]
fn calls_that_do_not_fit_are_counted_and_left_unattributed() {
    let mut rec = StepRecorder::new(Clock::modelled(), 1);
    let room = rec.record.events.capacity() as u64;
    rec.begin_step(StepKind::Decode, 0, 1);
    for _ in 0..room + 2 {
        let t = rec.start();
        let t = rec.worked(t, BrickId::QProj, 0, work(0));
        rec.synced(t);
    }
    let step = rec.end_step();
    assert_eq!(step.dropped, 2);
    assert_eq!(step.unattributed, 2 * Clock::modelled_cost(0));
}

#[test]
fn stamps_that_run_backward_never_make_time_negative() {
    let mut rec = StepRecorder::new(Clock::instant(), 4);
    rec.begin_step(StepKind::Decode, 0, 1);
    rec.record(BrickId::QProj, 0, 10, 5, 1, work(0));
    rec.record(BrickId::QProj, 0, 0, u64::MAX / 2, u64::MAX / 2, work(0));
    let step = rec.end_step();
    assert_eq!(step.events()[0].work_ticks, 0);
    assert_eq!(step.unattributed, 0);
}

#[test]
fn a_step_in_progress_can_be_shown() {
    let mut rec = StepRecorder::new(Clock::modelled(), 4);
    assert!(rec.trace().is_none());
    rec.begin_step(StepKind::Decode, 0, 1);
    let t = rec.start();
    rec.worked(t, BrickId::Embed, NO_LAYER, work(0));
    rec.pause();
    let trace = rec.trace().expect("one brick ran");
    assert_eq!(trace.events.len(), 1);
    assert!((trace.wall_us - 0.5).abs() < 1e-9);
}
