use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::pin::pin;

/// A future that is pending so many times, leaving its waker where the test can reach it.
struct Countdown<'a> {
    pending: u32,
    waker: &'a Mutex<Option<Waker>>,
}

impl Future for Countdown<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(left) = self.pending.checked_sub(1) else {
            return Poll::Ready(());
        };
        self.pending = left;
        *lock(self.waker) = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Counts the times a task was woken: the whole executor that the tests need.
#[derive(Default)]
struct Woken(AtomicU64);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn watch() -> LoopWatch {
    LoopWatch::new("loop", Clock::instant())
}

fn named(watch: &LoopWatch, name: &str) -> AsyncTask {
    let found = watch.figures().into_iter().find(|t| t.name == name);
    found.expect("a task of this name")
}

fn wakes(list: &[(&str, u64)]) -> Vec<(String, u64)> {
    list.iter().map(|&(s, n)| (s.to_owned(), n)).collect()
}

proptest! {
    #[test]
    fn f154_polls_are_counted_exactly(pending in proptest::collection::vec(0u32..20, 1..8)) {
        let watch = watch();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let cx = &mut Context::from_waker(&waker);
        let mut source = watch.source("source");
        let slot = Mutex::new(None);
        for &n in &pending {
            let mut task = pin!(watch.watch(source.watch(Countdown { pending: n, waker: &slot })));
            for _ in 0..n {
                prop_assert!(task.as_mut().poll(cx).is_pending());
                lock(&slot).take().expect("a waker").wake();
            }
            prop_assert!(task.as_mut().poll(cx).is_ready());
        }
        let polls: u64 = pending.iter().map(|&n| u64::from(n) + 1).sum();
        for task in watch.figures() {
            prop_assert_eq!(task.polls, polls);
            prop_assert_eq!(task.ready, pending.len() as u64);
            prop_assert_eq!(task.wakes.iter().map(|w| w.1).sum::<u64>(), polls);
        }
        // A ready poll leaves no waker, so every wake was for a pending one.
        prop_assert_eq!(woken.0.load(Ordering::SeqCst), polls - pending.len() as u64);
    }
}

#[test]
fn f154_an_unpolled_task_has_no_times() {
    let watch = watch();
    let _source = watch.source("source");
    for task in watch.figures() {
        assert_eq!((task.polls, task.total_us), (0, 0.0));
        assert_eq!((task.p50_us, task.p99_us, task.max_us), (None, None, None));
        assert!(task.wakes.is_empty());
    }
}

#[test]
fn f221_wakes_have_the_name_of_their_source() {
    let watch = watch();
    let (mut left, mut right) = (watch.source("left"), watch.source("right"));
    let slots = [Mutex::new(None), Mutex::new(None)];
    let countdown = |i: usize| Countdown {
        pending: u32::MAX,
        waker: &slots[i],
    };
    let mut both = pin!(watch.watch(futures_of(
        left.watch(countdown(0)),
        right.watch(countdown(1))
    )));
    let waker = Waker::from(Arc::new(Woken::default()));
    let cx = &mut Context::from_waker(&waker);
    assert!(both.as_mut().poll(cx).is_pending());
    // Wakers fire on other threads than the one that polls.
    let wake = |i: usize| {
        let waker = lock(&slots[i]).clone().expect("a waker");
        std::thread::spawn(move || waker.wake())
            .join()
            .expect("wake");
    };
    let mut order: VecDeque<_> = [&[1][..], &[1], &[0], &[0, 1], &[1, 1]].into();
    while let Some(sources) = order.pop_front() {
        sources.iter().for_each(|&i| wake(i));
        assert!(both.as_mut().poll(cx).is_pending());
    }
    assert!(both.as_mut().poll(cx).is_pending());
    let expected = wakes(&[("right", 4), ("left", 2), ("start or unnamed", 2)]);
    for task in watch.figures() {
        assert_eq!((task.polls, &task.wakes), (7, &expected), "{}", task.name);
    }
}

/// Polls both, as a `select!` of two branches that never end.
async fn futures_of(left: impl Future<Output = ()>, right: impl Future<Output = ()>) {
    let (mut left, mut right) = (pin!(left), pin!(right));
    std::future::poll_fn(|cx| {
        let _ = left.as_mut().poll(cx);
        right.as_mut().poll(cx)
    })
    .await;
}

#[test]
fn f221_polls_without_a_wake_are_the_loops_own() {
    let watch = watch();
    let mut source = watch.source("source");
    let task = async {
        for _ in 0..3 {
            source.watch(std::future::ready(())).await;
        }
    };
    let mut task = pin!(watch.watch(task));
    assert!(
        task.as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    );
    let expected = wakes(&[("the loop itself", 2), ("start or unnamed", 1)]);
    assert_eq!(named(&watch, "source").wakes, expected);
    assert_eq!(named(&watch, "loop").polls, 1);
}

#[test]
fn f221_sources_past_the_last_name_are_unnamed() {
    let watch = watch();
    let mut sources: Vec<_> = (0..MAX_SOURCES + 60)
        .map(|i| watch.source(format!("source {i}")))
        .collect();
    let slot = Mutex::new(None);
    let mut woken_by = |i: usize| {
        let countdown = Countdown {
            pending: 1,
            waker: &slot,
        };
        let mut task = pin!(watch.watch(sources[i].watch(countdown)));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(task.as_mut().poll(cx).is_pending());
        lock(&slot).take().expect("a waker").wake();
        assert!(task.as_mut().poll(cx).is_ready());
    };
    woken_by(MAX_SOURCES - 1);
    woken_by(MAX_SOURCES);
    woken_by(MAX_SOURCES + 59);
    let last = format!("source {}", MAX_SOURCES - 1);
    let expected = wakes(&[("start or unnamed", 5), (&last, 1)]);
    assert_eq!(named(&watch, "loop").wakes, expected);
}

#[test]
fn f221_a_task_that_moves_between_executors_is_woken_where_it_is() {
    let watch = watch();
    let mut source = watch.source("source");
    let slot = Mutex::new(None);
    let mut task = pin!(source.watch(Countdown {
        pending: 2,
        waker: &slot
    }));
    let executors = [(); 2].map(|()| Arc::new(Woken::default()));
    for executor in &executors {
        let waker = Waker::from(executor.clone());
        assert!(
            task.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
    }
    lock(&slot).take().expect("a waker").wake();
    let woken = executors.map(|e| e.0.load(Ordering::SeqCst));
    assert_eq!(woken, [0, 1]);
}

proptest! {
    #[test]
    fn f231_percentiles_are_those_of_the_simulated_polls(mut us in proptest::collection::vec(0.01f64..1e5, 1..400)) {
        let mut record = Record::default();
        us.iter().for_each(|us| record.add(us * 1e3, false));
        let task = Task { name: String::new(), record: Mutex::new(record) }.figures(&|_| None);
        us.sort_by(f64::total_cmp);
        let rank = |q: f64| us[((q * us.len() as f64).ceil() as usize).max(1) - 1];
        let near = |found: Option<f64>, q: f64| found.is_some_and(|x| (x / rank(q) - 1.0).abs() <= 0.04);
        prop_assert!(near(task.p50_us, 0.5), "{:?} {}", task.p50_us, rank(0.5));
        prop_assert!(near(task.p99_us, 0.99), "{:?} {}", task.p99_us, rank(0.99));
        prop_assert_eq!(task.max_us.map(|us| us * 1e3), us.last().map(|us| us * 1e3 * 1e-3 * 1e3));
        prop_assert!((task.total_us / us.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        prop_assert_eq!(task.blocking, us.iter().filter(|&&us| us * 1e3 > BLOCKING_NS).count() as u64);
    }
}

#[test]
fn f231_a_long_tail_is_in_the_99th_percentile_only() {
    let mut record = Record::default();
    for i in 0..1000 {
        record.add(if i % 50 == 0 { 800_000.0 } else { 5_000.0 }, false);
    }
    let near = |q: f64, ns: f64| {
        record
            .time
            .quantile_ns(q)
            .is_some_and(|x| (x / ns - 1.0).abs() <= 0.04)
    };
    assert!(near(0.50, 5_000.0) && near(0.97, 5_000.0) && near(0.99, 800_000.0));
    assert_eq!(record.blocking, 20);
}

#[test]
fn f241_a_hundred_microseconds_are_not_yet_blocking() {
    let blocking = |ns: f64| {
        let mut record = Record::default();
        record.add(ns, true);
        record.blocking == 1
    };
    assert!(!blocking(100_000.0_f64.next_down()));
    assert!(!blocking(100_000.0));
    assert!(blocking(100_000.0_f64.next_up()));
    assert!(!blocking(f64::NAN) && !blocking(-1.0) && !blocking(0.0));
}

#[test]
fn f241_a_poll_that_sleeps_is_blocking() {
    let watch = watch();
    let mut source = watch.source("source");
    let span = watch.span("drawing");
    let mut task = pin!(watch.watch(source.watch(async {
        span.time(|| std::thread::sleep(std::time::Duration::from_micros(150)));
    })));
    assert!(
        task.as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    );
    for task in watch.figures() {
        assert_eq!(
            (task.polls, task.ready, task.blocking),
            (1, 1, 1),
            "{}",
            task.name
        );
        assert!(task.max_us.is_some_and(|us| us >= 150.0));
    }
}

#[test]
fn f241_time_that_is_left_out_blocks_nothing() {
    // So long that the rest of the poll, however slow the machine, is not taken for it.
    let nap = std::time::Duration::from_millis(300);
    let watch = watch();
    let mut task = pin!(watch.watch(async { watch.leave_out(|| std::thread::sleep(nap)) }));
    let start = std::time::Instant::now();
    let ready = task
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_ready();
    let rest = start.elapsed() - nap;
    assert!(ready);
    let whole = named(&watch, "loop");
    assert!(
        whole.total_us <= rest.as_secs_f64() * 1e6,
        "{whole:?} {rest:?}"
    );
}

#[test]
fn f221_a_real_executor_is_woken_by_channel_and_timer() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let watch = watch();
    let (mut timer, mut channel) = (watch.source("timer"), watch.source("channel"));
    let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
    let (go, wait) = std::sync::mpsc::channel();
    let sender = std::thread::spawn(move || {
        // One message for each time that the timer was heard of, so that both must wake the loop.
        for i in 0..5 {
            wait.recv().expect("a word");
            send.send(i).expect("the loop listens");
        }
    });
    let task = async {
        let mut got = Vec::new();
        loop {
            tokio::select! {
                biased;
                message = channel.watch(receive.recv()) => match message {
                    Some(i) => got.push(i),
                    None => return got,
                },
                () = timer.watch(tokio::time::sleep(std::time::Duration::from_millis(10))) => {
                    // After the last message the sender hears nothing any more.
                    let _ = go.send(());
                }
            }
        }
    };
    let got = runtime.expect("a runtime").block_on(watch.watch(task));
    sender.join().expect("sender");
    assert_eq!(got, [0, 1, 2, 3, 4]);
    let [whole, timer, channel]: [AsyncTask; 3] = watch.figures().try_into().expect("three");
    assert_eq!((channel.ready, whole.ready), (6, 1));
    assert!(channel.polls >= channel.ready + timer.ready);
    let woken = |name: &str| whole.wakes.iter().find(|w| w.0 == name).map_or(0, |w| w.1);
    assert!(
        woken("channel") >= 1 && woken("timer") >= 1,
        "{:?}",
        whole.wakes
    );
}

/// `cargo test --release --lib async_tasks -- --ignored --nocapture` prints what watching costs here.
#[test]
#[ignore = "a measurement, not a check"]
fn cost_of_watching() {
    let watch = LoopWatch::new("loop", Clock::calibrated());
    let mut source = watch.source("source");
    let cx = &mut Context::from_waker(Waker::noop());
    let mut cost = |name: &str, poll: &mut dyn FnMut(&mut Context<'_>)| {
        let start = std::time::Instant::now();
        (0..100_000).for_each(|_| poll(cx));
        println!("{name}: {:.0} ns", start.elapsed().as_secs_f64() * 1e4);
    };
    cost("a bare poll", &mut |cx| {
        _ = std::hint::black_box(pin!(std::future::ready(())).poll(cx));
    });
    cost("a watched poll", &mut |cx| {
        _ = std::hint::black_box(pin!(source.watch(std::future::ready(()))).poll(cx));
    });
}
