//! Faults that tests inject into a forward pass, to see whether they are found.

use super::bricks::Job;
use crate::model::{Brick, Buf};
use std::ops::Range;

/// A product that computes wrongly.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    /// Its index in the plan.
    pub(crate) brick: usize,
    /// The token it goes wrong for; `None`: all.
    pub(crate) position: Option<usize>,
    /// What becomes of its output.
    pub(crate) what: Wrong,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wrong {
    /// One element has this value.
    Element(f32),
    /// All elements are zero.
    Dead,
}

/// The element that [`Wrong::Element`] is about.
const ELEMENT: usize = 3;

impl Job<'_> {
    /// Spoils rows of a product that this thread has just computed.
    pub(super) fn spoil(&self, i: usize, brick: &Brick, dst: Buf, rows: &Range<usize>) {
        let Some(fault) = self.exec.fault.filter(|f| f.brick == i) else {
            return;
        };
        let columns = brick.columns(self.hp, &self.shape);
        let skip = self.shape.tokens - columns;
        for c in 0..columns {
            let position = self.step.places[c + skip].position;
            if fault.position.is_some_and(|p| p != position) {
                continue;
            }
            // SAFETY: these rows were handed to this thread.
            let out = unsafe {
                let y = self.exec.buffers.get(dst);
                y.part_mut(c, rows.start, rows.len())
            };
            match fault.what {
                Wrong::Dead => out.fill(0.0),
                Wrong::Element(v) if rows.contains(&ELEMENT) => out[ELEMENT - rows.start] = v,
                Wrong::Element(_) => {}
            }
        }
    }
}
