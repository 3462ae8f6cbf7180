//! What the dashboard's own event loop costs, read when a frame is drawn anyway.

use crate::profiler::Clock;
use crate::profiler::async_tasks::{LoopWatch, Source, Span};
use crate::profiler::time_service::CoarseClock;
use crate::session::snapshot::{AsyncTask, Snapshot};
use std::time::{Duration, Instant};

/// Least time between two readings while nobody looks at them.
const INTERVAL: Duration = Duration::from_secs(1);
/// Frames are an eighth of a second apart: a clock of this period tells their distance, at a hundred wake-ups a second.
const COARSE: Duration = Duration::from_millis(10);

/// Figures of the dashboard itself.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Own {
    /// The loop, its sources in the order they are asked, drawing.
    pub tasks: Vec<AsyncTask>,
    /// Time between the newest two snapshots shown; `None` unless the figures are looked at.
    pub frame_interval: Option<Duration>,
}

/// Watches the event loop.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) whole: LoopWatch,
    pub(super) input: Source,
    pub(super) signals: Source,
    pub(super) timer: Source,
    pub(super) session: Source,
    pub(super) drawing: Span,
    last: Option<Instant>,
    frames: Option<Frames>,
}

/// When snapshots were shown.
#[derive(Debug)]
struct Frames {
    clock: CoarseClock,
    /// The newest snapshot and when it came, by the clock.
    newest: Option<(u64, u64)>,
    interval: Option<Duration>,
}

impl Watch {
    pub(super) fn new() -> Self {
        let whole = LoopWatch::new("event loop", Clock::calibrated());
        Self {
            input: whole.source("input"),
            signals: whole.source("signals"),
            timer: whole.source("frame timer"),
            session: whole.source("session"),
            drawing: whole.span("drawing"),
            whole,
            last: None,
            frames: None,
        }
    }

    /// `snapshot` is about to be drawn, perhaps again.
    pub(super) fn shows(&mut self, snapshot: &Snapshot) {
        if let Some(frames) = &mut self.frames {
            frames.shows(snapshot.seq);
        }
    }

    /// The figures, when they are due: at every frame while they are `looked_at`, else once a second.
    pub(super) fn figures(&mut self, looked_at: bool) -> Option<Own> {
        // The clock's thread runs only while its figure is seen. Without a thread there is no figure.
        if looked_at != self.frames.is_some() {
            self.frames = looked_at.then(Frames::start).flatten();
        }
        let due = looked_at || self.last.is_none_or(|at| at.elapsed() >= INTERVAL);
        due.then(|| {
            self.last = Some(Instant::now());
            Own {
                tasks: self.whole.figures(),
                frame_interval: self.frames.as_ref().and_then(|f| f.interval),
            }
        })
    }
}

impl Frames {
    fn start() -> Option<Self> {
        Some(Self {
            clock: CoarseClock::start(COARSE).ok()?,
            newest: None,
            interval: None,
        })
    }

    fn shows(&mut self, seq: u64) {
        let now = self.clock.now_ns();
        match self.newest {
            Some((shown, _)) if shown == seq => return,
            Some((_, then)) => self.interval = Some(Duration::from_nanos(now.saturating_sub(then))),
            None => {}
        }
        self.newest = Some((seq, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::fixture::decode;
    use crate::tui::update::{Message, update};
    use ratatui::layout::Rect;
    use std::sync::Arc;

    #[test]
    fn figures_are_read_once_a_second_or_when_looked_at() {
        let mut watch = Watch::new();
        assert!(watch.figures(false).is_some());
        // However slow the test is.
        watch.last = Some(Instant::now() + 100 * INTERVAL);
        assert!(watch.figures(false).is_none());
        let own = watch.figures(true).expect("looked at");
        let names: Vec<_> = own.tasks.iter().map(|t| t.name.as_str()).collect();
        let expected = [
            "event loop",
            "input",
            "signals",
            "frame timer",
            "session",
            "drawing",
        ];
        assert_eq!(names, expected);
        watch.last = None;
        assert!(watch.figures(false).is_some());
    }

    #[test]
    fn f211_the_coarse_clock_runs_only_while_it_is_looked_at() {
        let mut watch = Watch::new();
        watch.figures(false);
        assert!(watch.frames.is_none());
        assert_eq!(watch.figures(true).and_then(|o| o.frame_interval), None);
        let show = |watch: &mut Watch, seq| {
            watch.frames.as_mut().expect("a clock").shows(seq);
            std::thread::sleep(2 * COARSE);
        };
        show(&mut watch, 1);
        show(&mut watch, 1);
        assert_eq!(watch.figures(true).and_then(|o| o.frame_interval), None);
        show(&mut watch, 2);
        let interval = watch.figures(true).and_then(|o| o.frame_interval);
        assert!(interval.is_some_and(|t| t >= COARSE), "{interval:?}");
        watch.figures(false);
        assert!(watch.frames.is_none());
    }

    #[test]
    fn a_frozen_display_keeps_its_figures() {
        let area = Rect::new(0, 0, 120, 40);
        let mut app = crate::tui::Options::default().app(Arc::new(decode(3)), area);
        let own = |polls| Own {
            tasks: vec![AsyncTask {
                polls,
                ..AsyncTask::default()
            }],
            frame_interval: Some(COARSE),
        };
        assert!(update(&mut app, Message::Own(own(1))).is_empty());
        assert_eq!((app.own[0].polls, app.frame_interval), (1, Some(COARSE)));
        app.toggle_freeze();
        update(&mut app, Message::Own(own(2)));
        assert_eq!(app.own[0].polls, 1);
        app.toggle_freeze();
        update(&mut app, Message::Own(own(3)));
        assert_eq!(app.own[0].polls, 3);
    }
}
