//! Times cut to the nanosecond: below that clocks say nothing, and digits of noise are half of a file. Series and traces only: the
//! statistics of the bricks, which are compared and summed, are recorded as they are.

use crate::session::snapshot::{BrickRow, Snapshot, StepTrace};

/// Rounds the series and traces of `snapshot`, microseconds, to the nanosecond.
pub(super) fn to_nanoseconds(snapshot: &mut Snapshot) {
    snapshot.last_step.iter_mut().for_each(trace);
    snapshot.bricks.iter_mut().for_each(history);
    snapshot.prefill_bricks.iter_mut().for_each(history);
    for row in &mut snapshot.heat {
        row.us.iter_mut().flatten().for_each(round);
    }
}

fn history(row: &mut BrickRow) {
    row.history_us.iter_mut().for_each(round);
}

fn trace(trace: &mut StepTrace) {
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
