//! Ties engine, profiler and tuner together behind channels; no terminal code.

pub mod snapshot;
