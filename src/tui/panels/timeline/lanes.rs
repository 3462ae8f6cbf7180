//! The geometry of the timeline: lanes of pieces of time, the part of them shown, and what falls into each column of text.

use crate::session::snapshot::{StepEvent, StepTrace, ThreadSpan};
use crate::tui::views::TimelineView;

/// No less than this is shown, microseconds.
pub const LEAST_US: f64 = 1.0;

/// A time that can be drawn: unknown and negative ones are 0, none is longer than a fortnight.
pub fn sane(us: f64) -> f64 {
    if us.is_finite() {
        us.clamp(0.0, 1e12)
    } else {
        0.0
    }
}

/// One thread's share of a call, or a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Piece {
    /// Index into the step's events; of a layer its first.
    pub event: usize,
    /// Start, microseconds since the step's start.
    pub start: f64,
    /// Work, microseconds.
    pub work: f64,
    /// Waiting after it, microseconds.
    pub wait: f64,
}

impl From<&ThreadSpan> for Piece {
    fn from(s: &ThreadSpan) -> Self {
        Self {
            event: s.event as usize,
            start: sane(s.start_us),
            work: sane(s.work_us),
            wait: sane(s.wait_us),
        }
    }
}

impl Piece {
    fn of_event(event: usize, e: &StepEvent) -> Self {
        Self {
            event,
            start: sane(e.start_us),
            work: sane(e.work_us),
            wait: sane(e.sync_us),
        }
    }

    /// End of the work, microseconds.
    pub fn end(self) -> f64 {
        self.start + self.work
    }
}

/// Lanes of threads; the driving thread has one even where no thread was watched.
pub fn threads(step: &StepTrace) -> usize {
    step.threads.len().max(1)
}

/// Number of the thread in lane `lane` (from 1).
pub fn thread_number(step: &StepTrace, lane: usize) -> u32 {
    lane.checked_sub(1)
        .and_then(|i| step.threads.get(i))
        .map_or(0, |t| t.thread)
}

/// Calls `f` with the pieces of the thread in lane `lane` (from 1), in the order they ran.
pub fn each_piece(step: &StepTrace, lane: usize, mut f: impl FnMut(Piece)) {
    match lane.checked_sub(1).and_then(|i| step.threads.get(i)) {
        Some(thread) => thread.spans.iter().for_each(|s| f(s.into())),
        None if step.threads.is_empty() => {
            for (i, e) in step.events.iter().enumerate() {
                f(Piece::of_event(i, e));
            }
        }
        None => {}
    }
}

/// The piece of call `event` in a lane: thread lanes from 1, 0 is that of the layers.
pub fn piece_of(step: &StepTrace, lane: usize, event: usize) -> Option<Piece> {
    if lane == 0 {
        return layers(step)
            .into_iter()
            .find(|g| (g.first..=g.last).contains(&event))
            .map(|g| g.piece);
    }
    let mut found = None;
    each_piece(step, lane, |p| {
        if p.event == event && found.is_none() {
            found = Some(p);
        }
    });
    found
}

/// Calls of one layer in a row, or calls outside the layers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerGroup {
    /// The layer.
    pub layer: Option<u32>,
    /// Its first event.
    pub first: usize,
    /// Its last event.
    pub last: usize,
    /// From the start of the first to the end of the last.
    pub piece: Piece,
}

/// The layers in the order they ran.
pub fn layers(step: &StepTrace) -> Vec<LayerGroup> {
    let mut groups: Vec<LayerGroup> = Vec::new();
    for (i, e) in step.events.iter().enumerate() {
        let piece = Piece::of_event(i, e);
        let end = piece.end() + piece.wait;
        match groups.last_mut() {
            Some(g) if g.layer == e.layer => {
                g.last = i;
                g.piece.work = g.piece.work.max(end - g.piece.start);
            }
            _ => groups.push(LayerGroup {
                layer: e.layer,
                first: i,
                last: i,
                piece: Piece {
                    work: end - piece.start,
                    wait: 0.0,
                    ..piece
                },
            }),
        }
    }
    groups
}

/// The part of a step shown, microseconds since its start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// Left edge.
    pub from: f64,
    /// From the left to the right edge, more than 0.
    pub width: f64,
    /// The whole step.
    pub wall: f64,
}

/// Length of a step, more than 0.
fn wall(step: &StepTrace) -> f64 {
    let ends = step.events.iter().enumerate().map(|(i, e)| {
        let p = Piece::of_event(i, e);
        p.end() + p.wait
    });
    // A step in progress has no wall time yet, but calls.
    ends.fold(sane(step.wall_us), f64::max).max(LEAST_US)
}

fn start_of(step: &StepTrace, event: usize) -> f64 {
    step.events.get(event).map_or(0.0, |e| sane(e.start_us))
}

/// The part of `step` that `view` shows.
pub fn window(step: &StepTrace, view: &TimelineView) -> Window {
    let wall = wall(step);
    let width = view
        .width_us
        .filter(|w| w.is_finite())
        .unwrap_or(wall)
        .max(LEAST_US)
        .min(wall);
    let offset = if view.offset_us.is_finite() {
        view.offset_us
    } else {
        0.0
    };
    let from = (start_of(step, view.event) + offset)
        .min(wall - width)
        .max(0.0);
    Window { from, width, wall }
}

/// `view` with `event` selected and the left edge at `from`, `width` microseconds shown.
pub fn with(
    step: &StepTrace,
    view: TimelineView,
    event: usize,
    from: f64,
    width: f64,
) -> TimelineView {
    TimelineView {
        event,
        width_us: (width < wall(step)).then_some(width.max(LEAST_US)),
        offset_us: from - start_of(step, event),
        ..view
    }
}

impl Window {
    /// How many times it is magnified, 1 for the whole step.
    pub fn factor(self) -> f64 {
        self.wall / self.width
    }

    /// The place of a time in a lane of `columns`, in columns from its left edge.
    pub fn column(self, us: f64, columns: usize) -> f64 {
        (us - self.from) / self.width * columns as f64
    }

    /// The time at the middle of a column.
    pub fn time(self, column: usize, columns: usize) -> f64 {
        self.from + (column as f64 + 0.5) / columns.max(1) as f64 * self.width
    }
}

/// What fills most of a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// The call.
    pub event: usize,
    /// Whether it is the waiting after it.
    pub waits: bool,
    /// How much of the column it fills, 0 to 1.
    pub filled: f64,
}

/// A column of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cell {
    /// How much of it is waiting, 0 to 1.
    pub wait: f64,
    /// Pieces of work in it.
    pub pieces: u32,
    /// What fills most of it.
    pub most: Option<Share>,
}

/// What a lane shows in each of `columns`.
pub fn cells(step: &StepTrace, lane: usize, window: Window, columns: usize) -> Vec<Cell> {
    let mut cells = vec![Cell::default(); columns];
    each_piece(step, lane, |p| {
        fill(&mut cells, window, p.event, false, p.start, p.end());
        fill(&mut cells, window, p.event, true, p.end(), p.end() + p.wait);
    });
    cells
}

fn fill(cells: &mut [Cell], window: Window, event: usize, waits: bool, from: f64, to: f64) {
    let columns = cells.len();
    let a = window.column(from, columns).max(0.0);
    let b = window.column(to, columns).min(columns as f64);
    if b <= a {
        return;
    }
    let first = a.floor() as usize;
    for (i, cell) in cells.iter_mut().enumerate().skip(first) {
        let filled = b.min(i as f64 + 1.0) - a.max(i as f64);
        if filled <= 0.0 {
            break;
        }
        if waits {
            cell.wait = (cell.wait + filled).min(1.0);
        } else {
            cell.pieces = cell.pieces.saturating_add(1);
        }
        if cell.most.is_none_or(|m| filled > m.filled) {
            cell.most = Some(Share {
                event,
                waits,
                filled,
            });
        }
    }
}

/// A round distance of ticks, microseconds, so that they are at least `apart` columns from each other.
pub fn tick(window: Window, columns: usize, apart: usize) -> f64 {
    let least = window.width * apart as f64 / columns.max(1) as f64;
    let decade = 10f64.powf(least.max(1e-3).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|n| n * decade)
        .find(|t| *t >= least)
        .unwrap_or(least)
        .max(1e-3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::fixture::decode;

    fn step() -> StepTrace {
        decode(3).last_step.unwrap_or_else(|| unreachable!())
    }

    #[test]
    fn columns_hold_all_the_time_there_is() {
        let step = step();
        let whole = window(&step, &TimelineView::default());
        assert_eq!(whole.factor(), 1.0);
        for lane in [1, 2] {
            let cells = cells(&step, lane, whole, 120);
            let waits: f64 = cells.iter().map(|c| c.wait).sum::<f64>() * whole.width / 120.0;
            assert!((waits - step.threads[lane - 1].wait_us).abs() < 1e-6);
            assert!(cells.iter().any(|c| c.pieces > 1));
        }
        assert_eq!(
            layers(&step).iter().filter(|g| g.layer.is_some()).count(),
            30
        );
    }

    #[test]
    fn a_view_keeps_its_call_where_it_is_when_the_step_gets_longer() {
        let step = step();
        let view = with(&step, TimelineView::default(), 200, 2_000.0, 100.0);
        let before = window(&step, &view);
        assert_eq!((before.from, before.width), (2_000.0, 100.0));
        let mut later = step.clone();
        later.wall_us += 500.0;
        for e in &mut later.events {
            e.start_us += 500.0;
        }
        let after = window(&later, &view);
        assert_eq!(
            after.from - later.events[200].start_us,
            before.from - step.events[200].start_us
        );
    }

    #[test]
    fn ticks_are_round() {
        let of = |width| {
            tick(
                Window {
                    from: 0.0,
                    width,
                    wall: 1e4,
                },
                100,
                12,
            )
        };
        assert_eq!(of(7_400.0), 1_000.0);
        assert_eq!(of(100.0), 20.0);
        assert!((of(1.0) - 0.2).abs() < 1e-12);
    }
}
