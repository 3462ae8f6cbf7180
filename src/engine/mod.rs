//! The forward pass: kernels, kv cache, sampling, thread pool.

pub mod cpu;
