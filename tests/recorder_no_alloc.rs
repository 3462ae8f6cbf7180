//! The token loop's instrumentation allocates nothing: recorder, statistics, rates and the watch for slow
//! tokens, measured and modelled.
#![allow(unsafe_code)]

use cbtop::engine::{NO_LAYER, StepKind, SyncMode};
use cbtop::model::brick::BrickId;
use cbtop::model::work::Work;
use cbtop::profiler::anomalies::{TOKENS, Watch};
use cbtop::profiler::async_tasks::LoopWatch;
use cbtop::profiler::clock::Clock;
use cbtop::profiler::counters::{Kind, ThreadGroups, thread_id};
use cbtop::profiler::figures::TokenTime;
use cbtop::profiler::os::FaultCounter;
use cbtop::profiler::rates::RateMeter;
use cbtop::profiler::recorder::StepRecorder;
use cbtop::profiler::stats::Aggregate;
use cbtop::profiler::throughput::ThroughputDrop;
use cbtop::profiler::usage::TokenUsage;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

thread_local! {
    /// Of this thread only: the test harness allocates on its own.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory it hands out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller keeps `GlobalAlloc::alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System.alloc` with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn mode(on: bool) -> SyncMode {
    if on {
        SyncMode::Deferred
    } else {
        SyncMode::None
    }
}

const LAYERS: u16 = 30;
const IN_LAYER: [BrickId; 3] = [BrickId::QProj, BrickId::Attention, BrickId::DownProj];

fn step(rec: &mut StepRecorder, stats: &mut Aggregate, rates: &mut RateMeter, kind: StepKind) {
    rec.begin_step(kind, 5, 1);
    for layer in 0..LAYERS {
        for id in IN_LAYER {
            let t = rec.start();
            let t = rec.worked(
                t,
                id,
                layer,
                Work {
                    elements: 64,
                    bytes: 4096,
                    flops: 8192,
                },
            );
            rec.synced(t);
        }
        rec.pause();
        rec.resume();
    }
    let t = rec.start();
    rec.worked(
        t,
        BrickId::LmHead,
        NO_LAYER,
        Work {
            elements: 1000,
            bytes: 100_000,
            flops: 200_000,
        },
    );
    let record = rec.end_step();
    stats.add_step(record);
    match kind {
        StepKind::Decode => rates.decode(record.wall_us(), record.bytes()),
        StepKind::Prefill => rates.prefill(record.tokens, record.wall_us()),
    }
    rates.first_token(1.0);
}

#[test]
fn a_thousand_steps_allocate_nothing() {
    for clock in [Clock::calibrated(), Clock::instant(), Clock::modelled()] {
        // Room for fewer calls than come: overflow must not allocate either.
        for room in [1000, 10] {
            let mut rec = StepRecorder::new(clock, room);
            let mut stats = Aggregate::new(LAYERS.into());
            let mut rates = RateMeter::new();
            let faults = FaultCounter::open();
            let before = ALLOCATIONS.with(Cell::get);
            for i in 0..1000 {
                rec.set_mode(mode(i % 10 != 9));
                let kind = if i % 4 == 0 {
                    StepKind::Prefill
                } else {
                    StepKind::Decode
                };
                step(&mut rec, &mut stats, &mut rates, kind);
            }
            if let Some(faults) = &faults {
                faults.read();
            }
            stats.clear();
            rates.clear();
            assert_eq!(
                ALLOCATIONS.with(Cell::get) - before,
                0,
                "{} clock, room for {room}",
                clock.name()
            );
        }
    }
}

#[test]
fn f146_readings_between_bricks_and_tokens_allocate_nothing() {
    let clock = Clock::calibrated();
    let groups = ThreadGroups::open(&[thread_id()]);
    let mut bricks = groups.brick_sampler(0);
    let mut drop = ThroughputDrop::default();
    let watch = LoopWatch::new("loop", clock);
    let mut source = watch.source("source");
    let context = &mut Context::from_waker(Waker::noop());
    let mut poll = || {
        let whole = pin!(watch.watch(source.watch(std::future::ready(()))));
        assert!(whole.poll(context).is_ready());
    };
    poll();
    let before = ALLOCATIONS.with(Cell::get);
    for _ in 0..100 {
        std::hint::black_box((clock.stamp(), TokenUsage::now()));
        for kind in [Kind::Hardware, Kind::Software] {
            std::hint::black_box(groups.sample(0, kind));
        }
        // Only with a PMU; the code of a reading is the same as above.
        if let Some(bricks) = &mut bricks {
            bricks.start();
            bricks.boundary(BrickId::QProj);
            bricks.stop();
        }
        drop.add(1.0);
        poll();
    }
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
}

#[test]
fn watching_tokens_allocates_nothing_whether_they_are_slow_or_not() {
    let mut rec = StepRecorder::new(Clock::modelled(), 1000);
    let mut stats = Aggregate::new(LAYERS.into());
    let mut rates = RateMeter::new();
    step(&mut rec, &mut stats, &mut rates, StepKind::Decode);
    let mut watch = Watch::new(TOKENS);
    let before = ALLOCATIONS.with(Cell::get);
    let mut slow = 0;
    for position in 0..3000 {
        let mut times = stats.last_decode_ns().map(|ns| ns * 1e-3);
        if position % 20 == 19 {
            times[BrickId::QProj as usize] *= 2.0;
        }
        let token = TokenTime {
            position,
            us: times.iter().map(|us| f64::from(*us)).sum(),
            minor_faults: Some(0),
            major_faults: None,
            preempted: Some(position % 3),
            migrations: None,
            slow: false,
        };
        slow += u32::from(watch.push(token, &times));
    }
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
    assert_eq!(slow, 149, "all but the one before any is judged");
    let (tokens, found) = (watch.token_times(), watch.anomalies());
    assert_eq!((tokens.len(), found.len()), (512, 64));
    assert!((tokens[0].us - rec.last().wall_us()).abs() < 1e-2 * tokens[0].us);
}

/// `cargo test --release --test recorder_no_alloc -- --ignored --nocapture`
#[test]
#[ignore = "a measurement, not a check"]
fn print_cost_of_a_call() {
    for (clock, on) in [
        (Clock::calibrated(), true),
        (Clock::instant(), true),
        (Clock::calibrated(), false),
    ] {
        let mut rec = StepRecorder::new(clock, 1000);
        rec.set_mode(mode(on));
        let mut stats = Aggregate::new(LAYERS.into());
        let mut rates = RateMeter::new();
        let mut record_ns = Vec::new();
        let mut fold_ns = Vec::new();
        let calls = f64::from(LAYERS) * IN_LAYER.len() as f64;
        for _ in 0..2000 {
            let start = std::time::Instant::now();
            rec.begin_step(StepKind::Decode, 5, 1);
            for layer in 0..LAYERS {
                for id in IN_LAYER {
                    let t = rec.start();
                    let t = rec.worked(
                        t,
                        id,
                        layer,
                        Work {
                            elements: 64,
                            bytes: 4096,
                            flops: 8192,
                        },
                    );
                    rec.synced(t);
                }
            }
            rec.end_step();
            record_ns.push(start.elapsed().as_nanos() as f64 / calls);
            let start = std::time::Instant::now();
            stats.add_step(rec.last());
            rates.decode(rec.last().wall_us(), rec.last().bytes());
            fold_ns.push(start.elapsed().as_nanos() as f64 / calls);
        }
        record_ns.sort_by(f64::total_cmp);
        fold_ns.sort_by(f64::total_cmp);
        println!(
            "{} on={on}: record {:.1} ns, fold {:.1} ns a call (medians)",
            clock.name(),
            record_ns[1000],
            fold_ns[1000]
        );
    }
}
