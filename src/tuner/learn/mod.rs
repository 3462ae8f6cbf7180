//! What is learned from runs, and how.

pub mod arrays;
pub mod correction;
pub mod drift;
pub mod examples;
pub mod forest;
pub mod logistic;
pub mod metrics;
pub mod novelty;
pub mod tree;
