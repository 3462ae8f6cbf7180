//! Stores of residual streams: memory-mapped, append-only, little endian.
