//! The dashboard without a terminal: the same view drawn to text.

pub mod text;
