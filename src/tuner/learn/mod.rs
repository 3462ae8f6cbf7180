//! What is learned from runs, and how.

pub mod tree;
