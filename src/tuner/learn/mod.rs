//! What is learned from runs, and how.

pub mod arrays;
pub mod brick_tuner;
pub mod correction;
pub mod drift;
pub mod examples;
pub mod file;
pub mod forest;
pub mod gbt;
pub mod logistic;
pub mod metrics;
pub mod novelty;
pub mod online;
pub mod rates;
pub mod train;
pub mod tree;
pub mod words;
