//! What is learned from runs, and how.

pub mod gbt;
pub mod tree;
