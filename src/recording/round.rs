//! Times of a step's trace cut to the nanosecond: below that clocks say nothing, and digits of noise are half of a file.

use crate::session::snapshot::StepTrace;

/// Rounds every time of `trace`, microseconds, to the nanosecond.
pub(super) fn to_nanoseconds(trace: &mut StepTrace) {
    round(&mut trace.wall_us);
    for e in &mut trace.events {
        [&mut e.start_us, &mut e.work_us, &mut e.sync_us]
            .into_iter()
            .for_each(round);
    }
    for t in &mut trace.threads {
        [&mut t.work_us, &mut t.wait_us, &mut t.idle_us]
            .into_iter()
            .for_each(round);
        for s in &mut t.spans {
            [
                &mut s.start_us,
                &mut s.work_us,
                &mut s.wait_us,
                &mut s.slack_us,
            ]
            .into_iter()
            .for_each(round);
        }
    }
}

fn round(us: &mut f64) {
    *us = (*us * 1e3).round() / 1e3;
}
