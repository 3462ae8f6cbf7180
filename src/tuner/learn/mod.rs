//! What is learned from runs, and how.

pub mod baselines;
pub mod evaluate;
pub mod gbt;
pub mod split;
pub mod stats;
pub mod targets;
pub mod throughput;
pub mod tree;
