//! What is learned from runs, and how.

pub mod drift;
pub mod forest;
pub mod logistic;
pub mod metrics;
pub mod novelty;
pub mod tree;
