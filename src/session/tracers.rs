//! The five tracers of a session: what they leave after every step, and switching them.

use super::run::Session;
use crate::tracer::figures::TracerKind;

impl Session {
    /// Switches a tracer on or off.
    pub(super) fn switch_tracer(&mut self, kind: TracerKind, on: bool) {
        let _ = (kind, on);
    }

    /// Chooses the head that is shown over time.
    pub(super) fn focus_head(&mut self, layer: u32, head: u32) {
        let _ = (layer, head);
    }

    /// Measures the error of the whole model, or stops.
    pub(super) fn measure_error(&mut self, on: bool) {
        let _ = on;
    }
}
