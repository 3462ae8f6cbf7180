//! What keys and the mouse do to the timeline's view. Pure: from one view to the next.

use super::lanes::{
    LEAST_US, each_piece, layers, piece_of, sane, thread_number, threads, window, with,
};
use crate::session::snapshot::StepTrace;
use crate::tui::update::moved;
use crate::tui::views::TimelineView;

/// `view` with a lane and a call that exist.
pub fn settled(step: &StepTrace, view: TimelineView) -> TimelineView {
    TimelineView {
        lane: view.lane.min(threads(step)),
        event: view.event.min(step.events.len().saturating_sub(1)),
        ..view
    }
}

/// Selects the call `by` further in the lane; in the lane of layers the layer.
pub fn select_by(step: &StepTrace, view: TimelineView, by: i64) -> TimelineView {
    let view = settled(step, view);
    let events: Vec<usize> = if view.lane == 0 {
        layers(step).into_iter().map(|g| g.first).collect()
    } else {
        let mut events = Vec::new();
        each_piece(step, view.lane, |p| events.push(p.event));
        events
    };
    // The call itself, or what ran last before it where this thread had no share in it.
    let at = events.iter().rposition(|e| *e <= view.event).unwrap_or(0);
    match events.get(moved(at, by, events.len())) {
        Some(event) => select(step, view, *event),
        None => view,
    }
}

/// Selects a call and shows as much of the step as before, elsewhere only where the call would be out of view.
pub fn select(step: &StepTrace, view: TimelineView, event: usize) -> TimelineView {
    let shown = window(step, &view);
    let (start, end) = piece_of(step, view.lane, event).map_or_else(
        || {
            let start = step.events.get(event).map_or(0.0, |e| sane(e.start_us));
            (start, start)
        },
        |p| (p.start, p.end()),
    );
    let inside = start >= shown.from && end <= shown.from + shown.width;
    let from = if inside {
        shown.from
    } else if end - start >= shown.width {
        start
    } else {
        (start + end - shown.width) / 2.0
    };
    with(step, view, event, from, shown.width)
}

/// Selects the lane `by` further down.
pub fn lane_by(step: &StepTrace, view: TimelineView, by: i64) -> TimelineView {
    let view = settled(step, view);
    TimelineView {
        lane: moved(view.lane, by, threads(step) + 1),
        ..view
    }
}

/// Moves the part shown by eighths of it; with the whole step in view there is nothing to move, and the selection moves.
pub fn pan(step: &StepTrace, view: TimelineView, by: i64) -> TimelineView {
    let view = settled(step, view);
    let shown = window(step, &view);
    if shown.width >= shown.wall {
        return select_by(step, view, by);
    }
    let from = (shown.from + by as f64 * shown.width / 8.0)
        .min(shown.wall - shown.width)
        .max(0.0);
    with(step, view, view.event, from, shown.width)
}

/// Shows a half (`by` 1) or twice as much (-1) around `at`, microseconds; around the selected call where `at` is `None`,
/// around the middle where that is out of view.
pub fn magnify(step: &StepTrace, view: TimelineView, by: i64, at: Option<f64>) -> TimelineView {
    let view = settled(step, view);
    let shown = window(step, &view);
    let width = (shown.width * 2f64.powi(-by.clamp(-60, 60) as i32))
        .max(LEAST_US)
        .min(shown.wall);
    let selected = || {
        piece_of(step, view.lane, view.event)
            .map(|p| p.start + p.work / 2.0)
            .filter(|t| (shown.from..=shown.from + shown.width).contains(t))
    };
    let focus = at
        .or_else(selected)
        .unwrap_or(shown.from + shown.width / 2.0);
    let from = (focus - (focus - shown.from) * width / shown.width)
        .min(shown.wall - width)
        .max(0.0);
    with(step, view, view.event, from, width)
}

/// Selects what is drawn in lane `lane` at time `us`.
pub fn click(step: &StepTrace, view: TimelineView, lane: usize, us: f64) -> TimelineView {
    let view = settled(step, TimelineView { lane, ..view });
    let shown = window(step, &view);
    let mut hit = None;
    if view.lane == 0 {
        hit = layers(step)
            .into_iter()
            .rfind(|g| g.piece.start <= us)
            .map(|g| g.first);
    } else {
        each_piece(step, view.lane, |p| {
            if p.start <= us {
                hit = Some(p.event);
            }
        });
    }
    match hit {
        // What was clicked is in view: it stays where it is.
        Some(event) => with(step, view, event, shown.from, shown.width),
        None => view,
    }
}

/// Name of a lane.
pub fn lane_name(step: &StepTrace, lane: usize, short: bool) -> String {
    match (lane, short) {
        (0, false) => "layer".into(),
        (0, true) => "L".into(),
        (_, false) => format!("thread {}", thread_number(step, lane)),
        (_, true) => format!("t{}", thread_number(step, lane)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::fixture::{decode, hostile};
    use proptest::prelude::*;

    fn step() -> StepTrace {
        decode(3).last_step.unwrap_or_else(|| unreachable!())
    }

    #[test]
    fn magnifying_and_back_shows_the_same() {
        let step = step();
        let view = select_by(&step, TimelineView::default(), 100);
        let near = magnify(&step, view, 4, None);
        assert!((window(&step, &near).factor() - 16.0).abs() < 1e-9);
        let panned = pan(&step, near, 3);
        assert!(window(&step, &panned).from > window(&step, &near).from);
        assert_eq!(magnify(&step, near, -4, None).width_us, None);
        assert_eq!(
            select_by(&step, view, i64::MAX / 2).event,
            step.events.len() - 1
        );
        assert_eq!(select_by(&step, view, i64::MIN / 2).event, 0);
    }

    #[test]
    fn a_click_selects_what_is_there() {
        let step = step();
        let e = &step.events[77];
        let view = click(&step, TimelineView::default(), 2, e.start_us + 0.1);
        assert_eq!((view.lane, view.event), (2, 77));
        let view = click(&step, view, 0, e.start_us + 0.1);
        assert_eq!(step.events[view.event].layer, e.layer);
    }

    proptest! {
        #[test]
        fn the_selection_is_always_in_view(moves in proptest::collection::vec((0usize..3, -3i64..=3), 1..40), broken: bool) {
            let mut step = step();
            if broken {
                step = hostile().last_step.unwrap_or(step);
                for (i, e) in step.events.iter_mut().enumerate() {
                    e.start_us = [f64::NAN, 1e300, -1.0, 5.0][i % 4];
                }
            }
            let mut view = TimelineView::default();
            for (what, by) in moves {
                view = match what {
                    0 => magnify(&step, view, by, None),
                    1 => lane_by(&step, view, by),
                    _ => select_by(&step, view, by),
                };
                let shown = window(&step, &view);
                prop_assert!(shown.width > 0.0 && shown.from >= 0.0 && shown.from + shown.width <= shown.wall * (1.0 + 1e-9));
                prop_assert!(view.event < step.events.len() && view.lane <= threads(&step));
            }
        }
    }
}
