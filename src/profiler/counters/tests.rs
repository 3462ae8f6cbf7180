use super::*;
use crate::model::brick::BrickId;
use crate::profiler::figures::Support;

/// About two instructions a step in a chain, so that their number and their time are steady.
fn work(steps: u64) -> u64 {
    (0..steps).fold(1u64, |x, i| std::hint::black_box(x.wrapping_mul(31) ^ i))
}

fn touch_pages(pages: usize) {
    let mut memory = memmap2::MmapMut::map_anon(pages << 12).expect("memory");
    // Else one fault may bring 512 pages.
    memory.advise(memmap2::Advice::NoHugePage).expect("madvise");
    memory.iter_mut().step_by(4096).for_each(|b| *b = 1);
    std::hint::black_box(&memory);
}

fn own_groups() -> ThreadGroups {
    ThreadGroups::open(&[thread_id()])
}

/// The words of a group that is not there, for the tests that then measure nothing.
fn why(support: &Support) -> Option<&str> {
    match support {
        Support::Available => None,
        Support::Unavailable { why, .. } => Some(why),
    }
}

#[test]
fn f148_software_events_of_this_thread_are_counted() {
    let mut groups = own_groups();
    if let Some(why) = why(groups.software()) {
        return println!("not measurable here: {why}");
    }
    touch_pages(200);
    std::thread::sleep(std::time::Duration::from_millis(1));
    let [first] = groups.read().try_into().expect("one thread");
    assert!(first.page_faults.is_some_and(|n| n >= 200), "{first:?}");
    assert!(first.context_switches.is_some_and(|n| n >= 1), "{first:?}");
    assert!(first.cpu_ms.is_some_and(|ms| ms > 0.0) && first.migrations.is_some());
    assert!(first.core.is_some() && first.thread == 0);
    touch_pages(50);
    let [second] = groups.read().try_into().expect("one thread");
    assert!(second.page_faults >= first.page_faults.map(|n| n + 50));
    assert!(second.cpu_ms >= first.cpu_ms && second.context_switches >= first.context_switches);
}

#[test]
fn f148_one_thread_opens_the_groups_of_others() {
    use std::sync::mpsc::channel;
    let (said, hear) = channel();
    let workers: Vec<_> = [300, 0]
        .map(|pages| {
            let (go, wait) = channel::<()>();
            let said = said.clone();
            let worker = std::thread::spawn(move || {
                said.send(thread_id()).expect("a listener");
                wait.recv().expect("a word");
                touch_pages(pages.max(1));
                said.send(0).expect("a listener");
                // Its counts are read while it lives.
                _ = wait.recv();
            });
            (worker, go)
        })
        .into();
    let mut tids: Vec<i32> = (0..2).map(|_| hear.recv().expect("a worker")).collect();
    // In no order: the one with many faults is found by them.
    let gone = i32::MAX;
    tids.push(gone);
    let mut groups = ThreadGroups::open(&tids);
    for (_, go) in &workers {
        go.send(()).expect("a worker");
        hear.recv().expect("a worker");
    }
    let figures = groups.read();
    for (worker, go) in workers {
        drop(go);
        worker.join().expect("a worker");
    }
    assert_eq!(
        figures.iter().map(|t| t.thread).collect::<Vec<_>>(),
        [0, 1, 2]
    );
    let mut faults: Vec<_> = figures[..2].iter().filter_map(|t| t.page_faults).collect();
    faults.sort_unstable();
    assert!(
        faults.len() == 2 && faults[0] < 200 && faults[1] >= 300,
        "{figures:?}"
    );
    assert_eq!(
        (figures[2].page_faults, figures[2].core, figures[2].ipc),
        (None, None, None)
    );
}

#[test]
fn f148_without_perf_the_figures_are_those_of_proc() {
    let mut groups = ThreadGroups::without_perf(&[thread_id()]);
    touch_pages(200);
    std::thread::sleep(std::time::Duration::from_millis(1));
    assert!(why(groups.software()).is_some() && why(groups.hardware()).is_some());
    let [thread] = groups.read().try_into().expect("one thread");
    assert!(thread.page_faults.is_some_and(|n| n >= 200), "{thread:?}");
    assert!(
        thread.context_switches.is_some_and(|n| n >= 1),
        "{thread:?}"
    );
    assert_eq!(
        (thread.cycles, thread.instructions, thread.ipc),
        (None, None, None)
    );
    assert!(thread.core.is_some());
    assert!(groups.brick_sampler(0).is_none());
    assert_eq!(groups.sample(0, Kind::Software), None);
}

#[test]
fn f148_no_threads_are_no_counters() {
    let mut groups = ThreadGroups::open(&[]);
    assert!(why(groups.hardware()).is_some() && why(groups.software()).is_some());
    assert!(groups.read().is_empty() && groups.sample(0, Kind::Hardware).is_none());
    // More than the files this process may open; none is a thread's number either.
    let mut many = ThreadGroups::open(&vec![i32::MAX; 5_000]);
    assert!(why(many.software()).is_some());
    many = ThreadGroups::open(&[0, -1]);
    assert!(
        many.read()
            .iter()
            .all(|t| t.page_faults.is_none() && t.ipc.is_none())
    );
}

#[test]
fn f146_counts_go_to_the_brick_between_two_boundaries() {
    let groups = own_groups();
    let Some(mut sampler) = groups.software_brick_sampler(0) else {
        return println!("not measurable here: {:?}", groups.software());
    };
    let faults = |sampler: &BrickSampler, id| sampler.sum(id).1[1];
    sampler.boundary(BrickId::Embed);
    assert_eq!(sampler.sum(BrickId::Embed).0, 0);
    for _ in 0..3 {
        touch_pages(40);
        sampler.start();
        touch_pages(100);
        sampler.boundary(BrickId::QProj);
        work(1000);
        sampler.boundary(BrickId::Sync);
        sampler.stop();
        touch_pages(40);
        sampler.boundary(BrickId::Embed);
    }
    assert_eq!(
        [BrickId::QProj, BrickId::Sync, BrickId::Embed].map(|id| sampler.sum(id).0),
        [3, 3, 0]
    );
    let (busy, still) = (
        faults(&sampler, BrickId::QProj),
        faults(&sampler, BrickId::Sync),
    );
    assert!(busy.is_some_and(|n| (300..340).contains(&n)), "{busy:?}");
    assert!(still.is_some_and(|n| n < 40), "{still:?}");
    sampler.clear();
    assert!(sampler.figures().is_empty());
}

#[test]
fn f148_ratios_of_a_brick_come_from_its_counts_only() {
    let groups = own_groups();
    let Some(mut sampler) = groups.software_brick_sampler(0) else {
        return println!("not measurable here: {:?}", groups.software());
    };
    let counted = |values| Counted {
        values,
        enabled_ns: 10,
        running_ns: 5,
    };
    let all = [2000, 5000, 90, 10, 300, 20].map(Some);
    sampler.add(BrickId::QProj, &counted(all));
    sampler.add(BrickId::QProj, &counted(all));
    sampler.add(
        BrickId::Rope,
        &counted([Some(0), Some(0), None, None, None, None]),
    );
    let [q, rope] = sampler.figures().try_into().expect("two bricks");
    assert_eq!((q.id, q.calls, q.ipc), (BrickId::QProj, 2, Some(2.5)));
    assert_eq!((q.cache_mpki, q.branch_mpki), (Some(2.0), Some(4.0)));
    assert_eq!(
        (rope.ipc, rope.cache_mpki, rope.branch_mpki),
        (None, None, None)
    );
}

#[test]
fn figures_are_read_once_a_second() {
    let mut watch = CounterWatch::new(&[thread_id()]);
    let first = watch.figures(Vec::new, true, None);
    assert!(first.threads.len() == 1 && !first.reading.is_empty());
    touch_pages(50);
    // However long that took.
    if let Some((at, _)) = &mut watch.latest {
        *at = Instant::now() + 100 * INTERVAL;
    }
    let again = watch.figures(|| unreachable!("not due"), true, None);
    assert_eq!(again, first);
    watch.watch_threads(&[]);
    assert!(watch.figures(Vec::new, false, None).threads.is_empty());
    assert!(watch.groups().brick_sampler(0).is_none());
}

/// What `perf stat` and our own group count the same instructions and cycles of.
const STEPS: u64 = 200_000_000;

#[test]
#[ignore = "run by f148_ipc_matches_perf_stat under `perf stat`"]
fn f148_workload() {
    std::hint::black_box(work(STEPS));
}

#[test]
fn f148_ipc_matches_perf_stat() {
    let mut groups = own_groups();
    if let Some(why) = why(groups.hardware()) {
        return println!("not measurable here: {why}");
    }
    let Some(baseline) = perf_stat_ipc() else {
        return println!("not measurable here: `perf stat` is not there or counts nothing");
    };
    work(STEPS);
    let [thread] = groups.read().try_into().expect("one thread");
    let ipc = thread.ipc.expect("instructions and cycles");
    println!("f148: {ipc:.3} instructions a cycle, `perf stat` {baseline:.3}");
    assert!((ipc / baseline - 1.0).abs() < 0.05, "{ipc} {baseline}");
}

/// Instructions a cycle of the workload in user code, as `perf stat` counts them.
fn perf_stat_ipc() -> Option<f64> {
    let program = std::env::current_exe().ok()?;
    let out = std::process::Command::new("perf")
        .args(["stat", "-x", ",", "-e", "cycles:u,instructions:u"])
        .arg(program)
        .args(["f148_workload", "--ignored"])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    let count = |event: &str| {
        let line = text.lines().find(|l| l.contains(event))?;
        line.split(',').next()?.parse::<f64>().ok()
    };
    Some(count("instructions")? / count("cycles")?)
}

/// `cargo test --release --lib counters:: -- --ignored --nocapture` prints what readings cost here.
#[test]
#[ignore = "a measurement, not a check"]
fn f146_cost_of_a_reading() {
    let mut groups = own_groups();
    println!(
        "hardware: {:?}\nsoftware: {:?}",
        groups.hardware(),
        groups.software()
    );
    let cost = |name: &str, n: u32, read: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..n).for_each(|_| read());
        println!("{name}: {:?}", start.elapsed() / n);
    };
    for kind in [Kind::Hardware, Kind::Software] {
        cost(&format!("sample, {kind:?}"), 100_000, &mut || {
            std::hint::black_box(groups.sample(0, kind));
        });
    }
    if let Some(mut sampler) = groups.software_brick_sampler(0) {
        sampler.start();
        cost("a boundary", 100_000, &mut || {
            sampler.boundary(BrickId::QProj)
        });
    }
    cost("all figures of a thread", 1000, &mut || {
        std::hint::black_box(groups.read());
    });
    let mut proc = ThreadGroups::without_perf(&[thread_id()]);
    cost("the same from /proc", 1000, &mut || {
        std::hint::black_box(proc.read());
    });
}
