//! Traces for Perfetto and `chrome://tracing`: the JSON of the Trace Event Format (Google, "Trace Event Format", 2016).
//!
//! Tracks: steps, layers, bricks with waiting, kernels; each thread with work and waiting; counters. On a track nothing
//! overlaps, as the viewers ask. Times are microseconds with three decimals, exact nanoseconds.

mod event;
#[cfg(test)]
mod tests;
mod writer;

use crate::profiler::figures::{KernelInfo, StepTrace};
use std::io::{self, Write};

pub use writer::ChromeTrace;

/// Traces above some 500 MB show blank in the viewers (kineto issue 805).
pub const LIMIT_BYTES: u64 = 400_000_000;

/// A step and when it began, microseconds since the trace's start.
#[derive(Debug, Clone, Copy)]
pub struct TraceStep<'a> {
    /// What ran.
    pub trace: &'a StepTrace,
    /// When.
    pub start_us: f64,
}

/// The value of a counter from a moment on.
#[derive(Debug, Clone, Copy)]
pub struct CounterSample<'a> {
    /// When, microseconds since the trace's start.
    pub at_us: f64,
    /// Which counter, for example `tok/s`, `page faults`.
    pub name: &'a str,
    /// Its value; one that is not finite is left out.
    pub value: f64,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TraceSize {
    /// Events.
    pub events: u64,
    /// Bytes of JSON, before compression.
    pub bytes: u64,
    /// Events left out because of the limit; the trace ends with a note then.
    pub left_out: u64,
}

/// Writes a whole trace of at most `limit_bytes` bytes.
///
/// # Errors
///
/// Those of the writer.
pub fn chrome_trace<W: Write>(
    out: W,
    steps: &[TraceStep<'_>],
    kernels: &[KernelInfo],
    counters: &[CounterSample<'_>],
    limit_bytes: u64,
) -> io::Result<TraceSize> {
    let mut trace = ChromeTrace::new(out, limit_bytes)?;
    for step in steps {
        trace.step(*step, kernels)?;
    }
    for sample in counters {
        trace.counter(*sample)?;
    }
    trace.finish().map(|(size, _)| size)
}
