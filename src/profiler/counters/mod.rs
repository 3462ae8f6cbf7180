//! Counters.
