//! What to change: rules that turn figures into recommendations, and the comparison that says what a change brought.

pub mod ab;
pub mod recommendation;
