//! What is learned from runs, and how.

pub mod arrays;
pub mod baselines;
pub mod brick_tuner;
pub mod correction;
pub mod drift;
pub mod evaluate;
pub mod examples;
pub mod file;
pub mod forest;
pub mod gbt;
pub mod logistic;
pub mod metrics;
pub mod novelty;
pub mod online;
pub mod pairs;
pub mod rates;
pub mod split;
pub mod stats;
pub mod targets;
pub mod throughput;
pub mod train;
pub mod tree;
pub mod words;
