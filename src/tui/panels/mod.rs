//! One widget a file; each draws one area from the state and nothing else.

pub mod advice;
pub mod bricks;
pub mod chrome;
pub mod footer;
pub mod header;
pub mod help;
pub mod layers;
pub mod memory;
pub mod path;
pub mod prompt;
pub mod text;
