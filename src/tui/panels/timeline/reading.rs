//! The timeline in words: who waits for whom, and what the selected call did.

use super::lanes::{LayerGroup, Piece, each_piece, layers, piece_of, sane, thread_number, threads};
use crate::model::brick::BrickId;
use crate::session::snapshot::{StepTrace, ThreadSpan};
use crate::tui::format::{micros, number, percent};
use crate::tui::panels::chrome::Part;
use crate::tui::theme::Theme;
use crate::tui::views::TimelineView;
use ratatui::text::Span;

/// Under this share of the step waiting is not worth a word.
const LITTLE: f64 = 0.01;

/// From this share on the time between calls is what a step is about.
const MUCH: f64 = 0.25;

/// One sentence about the step.
pub fn sentence(step: &StepTrace, theme: &Theme) -> String {
    let wall = sane(step.wall_us);
    if wall <= 0.0 {
        return "the step is still running: its calls so far".into();
    }
    let calls: f64 = step
        .events
        .iter()
        .map(|e| sane(e.work_us) + sane(e.sync_us))
        .sum();
    let between = 1.0 - calls / wall;
    if between > MUCH {
        return format!(
            "{} of the step lies between calls: the system or another program had the CPU",
            percent(between)
        );
    }
    if step.threads.len() < 2 {
        return alone(step, wall, theme);
    }
    let waits = |t: &crate::session::snapshot::ThreadTrace| sane(t.wait_us) / wall;
    let Some((waiting, thread)) = step
        .threads
        .iter()
        .enumerate()
        .max_by(|(_, a), (_, b)| waits(a).total_cmp(&waits(b)))
    else {
        return String::new();
    };
    let share = waits(thread);
    if share < LITTLE {
        return format!(
            "the threads are even: none waits more than {} of the step",
            percent(share)
        );
    }
    let blame = blame(step, waiting + 1);
    let whom = blame
        .thread
        .map_or("other threads".into(), |t| format!("thread {t}"));
    let at = blame.brick.map_or(String::new(), |(id, share)| {
        format!(", {}% of it after {}", number(share * 100.0, 0), id.name())
    });
    format!(
        "thread {} waits {} of the step for {whom}{at}",
        thread.thread,
        percent(share)
    )
}

fn alone(step: &StepTrace, wall: f64, theme: &Theme) -> String {
    let longest = step
        .events
        .iter()
        .max_by(|a, b| sane(a.work_us).total_cmp(&sane(b.work_us)));
    let waits: f64 = step.events.iter().map(|e| sane(e.sync_us)).sum();
    let Some(e) = longest else {
        return "the step has no calls".into();
    };
    let layer = e.layer.map_or(String::new(), |l| format!(" in layer {l}"));
    format!(
        "{}{layer} is the longest call: {}, {} of the step; thread 0 waits {}",
        e.id.name(),
        micros(sane(e.work_us), theme.glyphs.micro),
        percent(sane(e.work_us) / wall),
        percent(waits / wall)
    )
}

/// Whom a lane waits for most, and the brick after which it waits most with its share of the waiting.
struct Blame {
    thread: Option<u32>,
    brick: Option<(BrickId, f64)>,
}

fn blame(step: &StepTrace, lane: usize) -> Blame {
    // The thread that ends a call last is the one the others wait for.
    let mut last = vec![(f64::MIN, 0usize); step.events.len()];
    for other in (1..=threads(step)).filter(|l| *l != lane) {
        each_piece(step, other, |p| {
            if let Some(latest) = last.get_mut(p.event)
                && p.end() > latest.0
            {
                *latest = (p.end(), other);
            }
        });
    }
    let mut by_lane = vec![0.0; threads(step) + 1];
    let mut by_brick = vec![0.0; BrickId::COUNT];
    let mut all = 0.0;
    each_piece(step, lane, |p| {
        all += p.wait;
        let whom = last.get(p.event).map_or(0, |l| l.1);
        if let Some(sum) = by_lane.get_mut(whom) {
            *sum += p.wait;
        }
        let brick = step.events.get(p.event).map(|e| e.id as usize);
        if let Some(sum) = brick.and_then(|b| by_brick.get_mut(b)) {
            *sum += p.wait;
        }
    });
    let most = |sums: &[f64]| {
        let (i, sum) = sums.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1))?;
        (*sum > 0.0).then_some((i, *sum))
    };
    Blame {
        thread: most(&by_lane)
            .filter(|(i, _)| *i > 0)
            .map(|(i, _)| thread_number(step, i)),
        brick: most(&by_brick).and_then(|(i, sum)| BrickId::ALL.get(i).map(|id| (*id, sum / all))),
    }
}

/// The selected call or layer, the most important facts of rank 0.
pub fn selected(step: &StepTrace, view: &TimelineView, theme: &Theme) -> Vec<Part> {
    if view.lane == 0 {
        let group = layers(step)
            .into_iter()
            .find(|g| (g.first..=g.last).contains(&view.event));
        return group.map_or(Vec::new(), |g| layer(step, &g, theme));
    }
    let Some(event) = step.events.get(view.event) else {
        return Vec::new();
    };
    let strong = |t: String| Span::styled(t, theme.strong);
    let dim = |t: String| Span::styled(t, theme.dim);
    let micro = theme.glyphs.micro;
    let place = event
        .layer
        .map_or("outside layers".into(), |l| format!("layer {l}"));
    let mut parts = vec![
        Part::new(
            0,
            vec![Span::styled(
                event.id.name(),
                theme.category(event.id.category()),
            )],
        ),
        Part::new(1, vec![dim(place)]),
    ];
    let Some(piece) = piece_of(step, view.lane, view.event) else {
        let thread = thread_number(step, view.lane);
        parts.push(Part::new(
            0,
            vec![Span::raw(format!("thread {thread} has no share in it"))],
        ));
        return parts;
    };
    parts.push(Part::new(
        0,
        vec![Span::raw("work "), strong(micros(piece.work, micro))],
    ));
    parts.push(Part::new(
        2,
        vec![dim(format!("wait {}", micros(piece.wait, micro)))],
    ));
    if let Some(span) = span_of(step, view) {
        let slack = match sane(span.slack_us) {
            s if s > 0.0 => format!("slack {}", micros(s, micro)),
            _ => "no slack: on the critical path".into(),
        };
        parts.push(Part::new(3, vec![dim(slack)]));
        if let Some(core) = span.core {
            parts.push(Part::new(4, vec![dim(format!("core {core}"))]));
        }
        let stolen = match span.stolen {
            0 => String::new(),
            n => format!(", {n} stolen"),
        };
        let pieces = format!("{} pieces{stolen}", span.pieces);
        parts.push(Part::new(5, vec![dim(pieces)]));
    }
    parts.push(Part::new(6, vec![dim(at(piece, micro))]));
    parts
}

fn at(piece: Piece, micro: &str) -> String {
    format!("starts at {}", micros(piece.start, micro))
}

fn span_of(step: &StepTrace, view: &TimelineView) -> Option<ThreadSpan> {
    let thread = step.threads.get(view.lane.checked_sub(1)?)?;
    thread
        .spans
        .iter()
        .find(|s| s.event as usize == view.event)
        .copied()
}

fn layer(step: &StepTrace, group: &LayerGroup, theme: &Theme) -> Vec<Part> {
    let micro = theme.glyphs.micro;
    let name = group
        .layer
        .map_or("outside the layers".into(), |l| format!("layer {l}"));
    let mut parts = vec![
        Part::new(0, vec![Span::styled(name, theme.strong)]),
        Part::new(0, vec![Span::raw(micros(group.piece.work, micro))]),
    ];
    if group.layer.is_some() {
        let (mut sum, mut count) = (0.0, 0u32);
        for g in layers(step).iter().filter(|g| g.layer.is_some()) {
            sum += g.piece.work;
            count += 1;
        }
        let mean = sum / f64::from(count.max(1));
        if mean > 0.0 {
            let text = format!(
                "{}{} the mean layer of this step",
                number(group.piece.work / mean, 2),
                theme.glyphs.times
            );
            parts.push(Part::new(1, vec![Span::raw(text)]));
        }
    }
    let calls = group.last - group.first + 1;
    parts.push(Part::new(
        2,
        vec![Span::styled(format!("{calls} calls"), theme.dim)],
    ));
    parts.push(Part::new(
        3,
        vec![Span::styled(at(group.piece, micro), theme.dim)],
    ));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::fixture::decode;

    #[test]
    fn it_says_who_waits_for_whom() {
        let mut step = decode(3).last_step.unwrap_or_else(|| unreachable!());
        let theme = Theme::new(true, false);
        let text = sentence(&step, &theme);
        assert!(text.starts_with("thread 1 waits ") && text.contains("for thread 0"));
        step.threads.truncate(1);
        assert!(sentence(&step, &theme).starts_with("LmHead is the longest call"));
        step.threads.clear();
        step.wall_us = f64::NAN;
        assert!(sentence(&step, &theme).contains("still running"));
    }
}
